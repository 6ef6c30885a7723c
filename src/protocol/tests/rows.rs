//! The long commands, which the tests interrupt.
//!
//! Owns the initial state of the queue for each command, and the valid replies. Must not depend on the changes during
//! an interruption.

use std::sync::Arc;

use super::{World, SIZE};
use crate::access::{parse, Accounts, ClientAccess};
use crate::engine::State;
use crate::protocol::Wire;

pub struct Row {
    pub name: &'static str,
    /// Prepares the queue. Returns the command, or `None` if the test disconnects the requester instead.
    pub begin: fn(&mut World) -> Option<Vec<u8>>,
    /// The prefixes of valid replies. Empty if there is no reply.
    pub answers: &'static [&'static str],
}

const fn row(name: &'static str, begin: fn(&mut World) -> Option<Vec<u8>>, answers: &'static [&'static str]) -> Row {
    Row { name, begin, answers }
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    Some(text.as_bytes().to_vec())
}

impl World {
    pub fn send_as_holder(&mut self, commands: &str) {
        // The server does not execute commands of a client that waits for a reply.
        if !self.peers[self.holder].is_disconnected && self.holder != self.requester {
            self.send(self.holder, commands.as_bytes());
        }
    }

    fn take_ready(&mut self) {
        let commands: String = self.ids(State::Ready).iter().map(|id| format!("reserve-job {id}\r\n")).collect();
        self.send_as_other(&commands);
    }

    fn bury_ready(&mut self) {
        let ids = self.ids(State::Ready);
        let commands: String = ids.iter().map(|id| format!("reserve-job {id}\r\nbury {id} 0\r\n")).collect();
        self.send_as_other(&commands);
    }

    fn request_by(&mut self, wire: Wire) {
        self.requester = self.peer(wire);
    }

    fn watch_many(&mut self) {
        (0..3 * SIZE).for_each(|tube| self.send(self.requester, format!("watch w{tube}\r\n").as_bytes()));
    }

    /// Gives the requester only the rights in `line`, which has the format of an access file.
    fn limit(&mut self, line: &str) {
        let accounts = Accounts { user: &|_| None, group: &|_| None };
        let table = Arc::new(parse(line.as_bytes(), &accounts, |_, _, _| ()).expect("a line"));
        self.peers[self.requester].access = Some(ClientAccess::new(table, &[], false));
    }

    pub fn http(&mut self, request: &str, body: &str) -> Option<Vec<u8>> {
        self.request_by(Wire::Http);
        let head = format!("{request} HTTP/1.1\r\nHost: localhost\r\nX-Beanpole: 1\r\n");
        let length = format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        Some(format!("{head}{length}{body}").into_bytes())
    }

    /// Makes several clients wait for the outcome of a reserved job, and returns the job's ID.
    fn await_held(&mut self) -> Option<u64> {
        let id = self.ids(State::Reserved).first().copied()?;
        for _ in 0..SIZE {
            let peer = self.peer(Wire::Beanstalk);
            self.send(peer, format!("wait {id} 1000\r\n").as_bytes());
        }
        self.requester = self.holder;
        Some(id)
    }

    /// Makes the requester a Gearman worker that reserves `count` jobs of tube `t`.
    fn grab(&mut self, count: usize) {
        self.request_by(Wire::Gearman);
        self.send(self.requester, &packet(1, b"t"));
        (0..3 * SIZE).for_each(|tube| self.send(self.requester, &packet(1, format!("w{tube}").as_bytes())));
        (0..count).for_each(|_| self.send(self.requester, &packet(9, b"")));
    }
}

pub fn packet(kind: u32, data: &[u8]) -> Vec<u8> {
    [b"\0REQ".as_slice(), &kind.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
}

fn names(count: usize) -> String {
    (0..count).map(|name| format!("n{name}")).collect::<Vec<_>>().join(" ")
}

pub const ROWS: &[Row] = &[
    row(
        "kick",
        |world| {
            world.send(world.requester, b"use t\r\n");
            bytes("kick 1000\r\n")
        },
        &["KICKED "],
    ),
    row(
        "kick of delayed jobs",
        |world| {
            world.send_as_other("flush-buried t\r\n");
            world.send(world.requester, b"use t\r\n");
            bytes("kick 1000\r\n")
        },
        &["KICKED "],
    ),
    row(
        "the end of a group",
        |world| {
            world.send_as_other("put 0 0 1000 1 tub:t grp:many\r\nx\r\n");
            let member = world.all_ids().into_iter().max()?;
            world.send_as_other(&"put 0 0 1000 1 tub:t aft:many\r\nx\r\n".repeat(SIZE));
            bytes(&format!("delete {member}\r\n"))
        },
        &["DELETED", "NOT_FOUND"],
    ),
    row("list-tubes", |_| bytes("list-tubes\r\n"), &["OK "]),
    row("stats-tubes", |_| bytes("stats-tubes\r\n"), &["OK "]),
    row(
        "list-tubes-watched",
        |world| {
            world.watch_many();
            bytes("list-tubes-watched\r\n")
        },
        &["OK "],
    ),
    row(
        "stats",
        |world| {
            world.limit("* none look:t*\n");
            bytes("stats\r\n")
        },
        &["OK "],
    ),
    row(
        "delete-batch",
        |world| {
            let ids: Vec<String> = world.all_ids().iter().map(u64::to_string).collect();
            bytes(&format!("delete-batch {}\r\n", ids.join(" ")))
        },
        &["DELETED_BATCH "],
    ),
    row(
        "touch-all",
        |world| {
            world.requester = world.holder;
            bytes("touch-all\r\n")
        },
        &["TOUCHED_ALL "],
    ),
    row("flush-tube", |_| bytes("flush-tube t\r\n"), &["FLUSHED "]),
    row("flush-buried", |_| bytes("flush-buried t\r\n"), &["FLUSHED "]),
    row(
        "peek-reserved",
        |world| {
            world.send(world.requester, b"use t\r\n");
            bytes("peek-reserved\r\n")
        },
        &["FOUND ", "NOT_FOUND"],
    ),
    row("list-jobs", |_| bytes("list-jobs t reserved 0 100\r\n"), &["OK ", "NOT_FOUND"]),
    row("list-jobs of all tubes", |_| bytes("list-jobs * reserved 0 100\r\n"), &["OK "]),
    row(
        "list-keys",
        |world| {
            let put = |number: usize| format!("put 1 0 10 1 idp:k{number}:100\r\nx\r\n");
            world.send_as_other(&format!("use t\r\n{}use default\r\n", (0..SIZE).map(put).collect::<String>()));
            let ids: Vec<String> = world.ids(State::Ready).iter().map(u64::to_string).collect();
            world.send_as_other(&format!("delete-batch {}\r\n", ids.join(" ")));
            bytes("list-keys\r\n")
        },
        &["OK "],
    ),
    row(
        "list-history",
        |world| {
            world.bury_ready();
            bytes("list-history\r\n")
        },
        &["OK "],
    ),
    row("list-connections", |_| bytes("list-connections 0 100\r\n"), &["OK "]),
    row(
        "touch with progress",
        |world| {
            let id = world.await_held()?;
            bytes(&format!("touch {id} 1/2\r\n"))
        },
        &["TOUCHED", "NOT_FOUND"],
    ),
    row("move-tube ready", |_| bytes("move-tube t to ready 1000\r\n"), &["MOVED "]),
    row("move-tube delayed", |_| bytes("move-tube t to delayed 1000\r\n"), &["MOVED "]),
    row("move-tube buried", |_| bytes("move-tube t to buried 1000\r\n"), &["MOVED "]),
    row(
        "stats-tube",
        |world| {
            world.take_ready();
            // The concurrency limit keeps some ready jobs out of the tube's queue.
            let put = "put 1 0 10 1 con:k\r\nx\r\n".repeat(SIZE);
            world.send_as_other(&format!("use t\r\n{put}use default\r\n"));
            bytes("stats-tube t\r\n")
        },
        &["OK ", "NOT_FOUND"],
    ),
    row(
        "a command with a permission check",
        |world| {
            world.watch_many();
            world.limit("* none take:* look:t\n");
            bytes("reserve-with-timeout 0\r\n")
        },
        &["TIMED_OUT", "RESERVED "],
    ),
    row(
        "a reserve in many tubes",
        |world| {
            world.watch_many();
            world.send(world.requester, b"watch t\r\n");
            bytes("reserve-with-timeout 0\r\n")
        },
        &["TIMED_OUT", "RESERVED "],
    ),
    row(
        "a bury",
        |world| {
            let id = world.await_held()?;
            bytes(&format!("bury {id} 0\r\n"))
        },
        &["BURIED"],
    ),
    row(
        "a delete",
        |world| {
            let id = world.await_held()?;
            bytes(&format!("delete {id}\r\n"))
        },
        &["DELETED"],
    ),
    row(
        "the end of a pause",
        |world| {
            world.send_as_other("pause-tube t 1000\r\n");
            for _ in 0..SIZE {
                let peer = world.peer(Wire::Beanstalk);
                world.send(peer, b"watch t\r\nreserve\r\n");
            }
            bytes("pause-tube t 0\r\n")
        },
        &["PAUSED", "NOT_FOUND"],
    ),
    row(
        "set-tube",
        |world| {
            world.send_as_other("set-tube t max:1\r\n");
            for _ in 0..SIZE {
                let peer = world.peer(Wire::Beanstalk);
                world.send(peer, b"watch t\r\nreserve\r\n");
            }
            bytes("set-tube t try:3\r\n")
        },
        &["SET"],
    ),
    row(
        "fail",
        |world| {
            world.send_as_other("set-tube t try:1 dead:d\r\n");
            let id = world.await_held()?;
            bytes(&format!("fail {id} 0 2\r\nno\r\n"))
        },
        &["BURIED"],
    ),
    row(
        "reserve-with-abort",
        |world| {
            world.watch_many();
            world.send(world.requester, b"watch t\r\n");
            bytes("reserve-with-abort 0\r\n")
        },
        &["TIMED_OUT", "RESERVED "],
    ),
    row(
        "reserve-batch",
        |world| {
            world.watch_many();
            world.send(world.requester, b"watch t\r\n");
            bytes("reserve-batch 1000 0\r\n")
        },
        &["TIMED_OUT", "RESERVED_BATCH ", "DEADLINE_SOON"],
    ),
    row("stats-group", |_| bytes("stats-group g\r\n"), &["OK ", "NOT_FOUND"]),
    row(
        "kick-job of a schedule",
        |world| {
            world.send_as_other("put 0 0 10 1 tub:t idp:s every:100\r\nx\r\n");
            let id = world.engine.jobs().map(|job| job.id().0).max()?;
            for _ in 0..SIZE {
                let peer = world.peer(Wire::Beanstalk);
                world.send(peer, b"watch t\r\nreserve\r\n");
            }
            bytes(&format!("kick-job {id}\r\n"))
        },
        &["KICKED", "NOT_FOUND"],
    ),
    row(
        "a disconnect",
        |world| {
            world.requester = world.holder;
            None
        },
        &[],
    ),
    row(
        "status",
        |world| {
            world.request_by(Wire::Gearman);
            bytes("status\n")
        },
        &["t\t", "x", "default", "."],
    ),
    row(
        "workers",
        |world| {
            world.grab(1);
            world.request_by(Wire::Gearman);
            bytes("workers\n")
        },
        &["1", "2", "3", "4", "5", "6", "7", "8", "9", "."],
    ),
    row(
        "GRAB_JOB",
        |world| {
            world.grab(0);
            Some(packet(9, b""))
        },
        &["\0RES\0\0\0\u{a}", "\0RES\0\0\0\u{b}"],
    ),
    row(
        "GET_STATUS_UNIQUE",
        |world| {
            world.request_by(Wire::Gearman);
            world.send(world.requester, &packet(18, b"t\0unique\0body"));
            world.peers[world.requester].received.clear();
            Some(packet(41, b"unique"))
        },
        &["\0RES\0\0\0*"],
    ),
    row(
        "RESET_ABILITIES",
        |world| {
            world.grab(SIZE);
            Some(packet(3, b""))
        },
        &[],
    ),
    row(
        "CANT_DO",
        |world| {
            world.grab(SIZE);
            Some(packet(2, b"t"))
        },
        &[],
    ),
    row(
        "WORK_DATA",
        |world| {
            world.take_ready();
            for _ in 0..SIZE {
                let peer = world.peer(Wire::Gearman);
                world.send(peer, &packet(21, b"t\0unique\0body"));
            }
            world.grab(1);
            let received = std::mem::take(&mut world.peers[world.requester].received);
            let handle = received.get(12..)?.split(|byte| *byte == 0).next()?;
            Some(packet(28, &[handle, b"\0news"].concat()))
        },
        &[],
    ),
    row(
        "lease",
        |world| {
            world.request_by(Wire::Workq);
            bytes(&format!("lease t {} 0\r\n", names(SIZE)))
        },
        &["+OK ", "-TIMEOUT"],
    ),
    row(
        "inspect queues",
        |world| {
            world.request_by(Wire::Workq);
            bytes("inspect queues 0 100\r\n")
        },
        &["+OK "],
    ),
    row(
        "inspect jobs",
        |world| {
            world.request_by(Wire::Workq);
            bytes("inspect jobs t 0 100\r\n")
        },
        &["+OK ", "-NOT-FOUND"],
    ),
    row("GET /metrics", |world| world.http("GET /metrics", ""), &["HTTP/1.1 200"]),
    row("GET /metrics of a tube", |world| world.http("GET /metrics?tube=t", ""), &["HTTP/1.1 200", "HTTP/1.1 404"]),
    row(
        "GET /api/server",
        |world| {
            let request = world.http("GET /api/server", "");
            world.limit("* none look:t*\n");
            request
        },
        &["HTTP/1.1 200"],
    ),
    row("GET /api/tubes", |world| world.http("GET /api/tubes", ""), &["HTTP/1.1 200"]),
    row(
        "GET sorted tubes",
        |world| world.http("GET /api/tubes?sort=current-jobs-ready&order=desc", ""),
        &["HTTP/1.1 200"],
    ),
    row(
        "GET tube",
        |world| {
            world.take_ready();
            let put = "put 1 0 10 1 con:k\r\nx\r\n".repeat(SIZE);
            world.send_as_other(&format!("use t\r\n{put}use default\r\n"));
            world.http("GET /api/tubes/t", "")
        },
        &["HTTP/1.1 200", "HTTP/1.1 404"],
    ),
    row(
        "GET history",
        |world| {
            world.bury_ready();
            world.http("GET /api/history?failed=1", "")
        },
        &["HTTP/1.1 200"],
    ),
    row(
        "GET schedules",
        |world| {
            let put = |number: usize| format!("put 0 0 10 1 tub:t idp:s{number} every:100\r\nx\r\n");
            world.send_as_other(&(0..SIZE).map(put).collect::<String>());
            world.http("GET /api/schedules?sort=missed&order=desc", "")
        },
        &["HTTP/1.1 200"],
    ),
    row(
        "GET overview",
        |world| {
            world.take_ready();
            world.http("GET /api/overview", "")
        },
        &["HTTP/1.1 200"],
    ),
    row("GET connections", |world| world.http("GET /api/connections?sort=job-age", ""), &["HTTP/1.1 200"]),
    row("GET jobs", |world| world.http("GET /api/tubes/t/jobs", ""), &["HTTP/1.1 200", "HTTP/1.1 404"]),
    row(
        "GET reserved jobs",
        |world| world.http("GET /api/tubes/t/jobs?state=reserved", ""),
        &["HTTP/1.1 200", "HTTP/1.1 404"],
    ),
    row(
        "GET failed",
        |world| {
            world.bury_ready();
            world.http("GET /api/failed", "")
        },
        &["HTTP/1.1 200"],
    ),
    row(
        "GET failed jobs",
        |world| {
            world.bury_ready();
            world.http("GET /api/tubes/t/failed?reason=", "")
        },
        &["HTTP/1.1 200"],
    ),
    row(
        "POST move failed",
        |world| {
            world.bury_ready();
            world.http("POST /api/tubes/t/failed/move", r#"{"to":"to"}"#)
        },
        &["HTTP/1.1 200"],
    ),
    row(
        "POST kick failed",
        |world| {
            world.bury_ready();
            world.http("POST /api/tubes/t/failed/kick", "{}")
        },
        &["HTTP/1.1 200"],
    ),
    row(
        "POST delete failed",
        |world| {
            world.bury_ready();
            world.http("POST /api/tubes/t/failed/delete", "{}")
        },
        &["HTTP/1.1 200"],
    ),
    row("POST kick", |world| world.http("POST /api/tubes/t/kick", "{}"), &["HTTP/1.1 200"]),
    row("POST clear", |world| world.http("POST /api/tubes/t/clear", "{}"), &["HTTP/1.1 200"]),
    row("POST move", |world| world.http("POST /api/tubes/t/move", r#"{"to":"to","state":"ready"}"#), &["HTTP/1.1 200"]),
];

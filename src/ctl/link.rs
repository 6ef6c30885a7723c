//! The connection of a subcommand to its server. With pipelining, the client sends a batch of commands before it reads
//! the replies to the previous batch, so the server always has commands to execute.

use std::collections::VecDeque;
use std::time::Duration;

use super::prelude::*;
use super::server::{Identity, ServerName};
use crate::client::{Client, ClientError, Closer, Reply};
use crate::protocol::text::unquote;
use crate::shared::machine;
use crate::shared::system;

pub type IdAndBody = (u64, Vec<u8>);

#[derive(Clone)]
pub struct ServerTarget {
    server: ServerName,
    timeout: Option<u64>,
    identity: Identity,
}

pub struct Link {
    client: Client,
    target: ServerTarget,
    unchecked: usize,
}

/// The memory is checked after this many bytes of replies.
const CHECKED: usize = 64 * 1024;

impl ServerTarget {
    pub fn of(call: &Call) -> Result<ServerTarget> {
        let server = ServerName::find(call.value(&SERVER).as_deref(), |name| std::env::var(name).ok())?;
        let timeout = call.number(&TIMEOUT, 0, 86_400)?.unwrap_or(5);
        let identity = Identity::of(call, &server)?;
        Ok(ServerTarget { server, timeout: Some(timeout).filter(|timeout| *timeout > 0), identity })
    }

    pub fn name(&self) -> String {
        self.server.name()
    }

    pub fn connect(&self) -> Result<Link> {
        let limit = self.limit();
        let connected = match &self.server {
            ServerName::Unix(path) => Client::connect_unix(path),
            ServerName::Tls(host, port) => self.identity.connect(host, *port, limit),
            ServerName::Tcp(host, port) => match limit {
                Some(limit) => Client::connect_within((host.as_str(), *port), limit),
                None => Client::connect((host.as_str(), *port)),
            },
        };
        let connected = connected.and_then(|mut client| client.set_timeout(limit).map(|()| client));
        let mut client = connected.map_err(|error| self.failed(&error))?;
        self.identity.prove(&mut client).map_err(|error| match error {
            ClientError::Io(error) => self.failed(&error),
            ClientError::Refused(line) => refusal("auth", &line),
            error @ ClientError::Invalid(_) => Problem::refused(error.to_string()),
        })?;
        client.memory = machine::memory();
        Ok(Link { client, target: self.clone(), unchecked: 0 })
    }

    fn limit(&self) -> Option<Duration> {
        self.timeout.map(Duration::from_secs)
    }

    fn failed(&self, error: &std::io::Error) -> Box<Problem> {
        Problem::connection(&self.name(), error, self.timeout)
    }
}

impl Link {
    pub fn open(call: &Call) -> Result<Link> {
        ServerTarget::of(call)?.connect()
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result {
        self.client.send(bytes).map_err(|error| self.problem(error))
    }

    fn problem(&self, error: ClientError) -> Box<Problem> {
        match error {
            ClientError::Io(error) => self.target.failed(&error),
            refused => Problem::refused(refused.to_string()),
        }
    }

    /// Reads a reply. Fails if this process uses a third of the memory, because a faulty server can list without end.
    pub fn reply(&mut self) -> Result<Reply> {
        let reply = self.client.reply().map_err(|error| self.target.failed(&error))?;
        self.unchecked += reply.line.len() + reply.body.len();
        if self.unchecked > CHECKED && system::resident_memory() > self.client.memory / 3 {
            return Err(self.target.failed(&std::io::ErrorKind::OutOfMemory.into()));
        }
        self.unchecked %= CHECKED;
        Ok(reply)
    }

    /// `command` has no CR LF. A line break, possibly from a manipulated export, is refused.
    pub fn ask(&mut self, command: &str) -> Result<Reply> {
        self.client.command(command).map_err(|error| self.problem(error))?;
        self.reply()
    }

    /// Adds `seconds` to the timeout. `None` waits indefinitely.
    pub fn ask_within(&mut self, command: &str, seconds: Option<u64>) -> Result<Reply> {
        let limit = self.target.limit().zip(seconds).map(|(limit, seconds)| limit + Duration::from_secs(seconds));
        self.client.set_timeout(limit).map_err(|error| self.target.failed(&error))?;
        let reply = self.ask(command)?;
        self.client.set_timeout(self.target.limit()).map_err(|error| self.target.failed(&error))?;
        Ok(reply)
    }

    pub fn expect(&mut self, command: &str, word: &str) -> Result<Reply> {
        let reply = self.ask(command)?;
        match first_word(&reply.line) == word {
            true => Ok(reply),
            false => Err(refusal(command, &reply.line)),
        }
    }

    pub fn use_tube(&mut self, name: &str) -> Result {
        self.expect(&format!("use {name}"), "USING").map(drop)
    }

    /// Watches `default` if `tubes` is empty.
    pub fn watch(&mut self, tubes: &[String]) -> Result {
        for name in tubes {
            self.expect(&format!("watch {name}"), "WATCHING")?;
        }
        if !tubes.is_empty() && !tubes.contains(&"default".to_owned()) {
            self.expect("ignore default", "WATCHING")?;
        }
        Ok(())
    }

    pub fn reserve(&mut self, wait: Option<u64>) -> Result<Option<IdAndBody>> {
        let command = wait.map_or("reserve".to_owned(), |seconds| format!("reserve-with-timeout {seconds}"));
        let reply = self.ask_within(&command, wait)?;
        job_of(&command, reply)
    }

    pub fn peek_next(&mut self, state: &str) -> Result<Option<IdAndBody>> {
        let command = format!("peek-{state}");
        job_of(&command, self.ask(&command)?)
    }

    /// Returns `false` if the job was buried because no tries were left.
    pub fn release(&mut self, id: u64, pri: u64, delay: u64) -> Result<bool> {
        let command = format!("release {id} {pri} {delay}");
        let reply = self.ask(&command)?;
        match first_word(&reply.line) {
            "RELEASED" => Ok(true),
            "BURIED" => Ok(false),
            _ => Err(refusal(&command, &reply.line)),
        }
    }

    pub fn query(&mut self, command: &str) -> Result<Option<StatsReply>> {
        let reply = self.ask(command)?;
        stats_of(command, &reply)
    }

    pub fn existing(&mut self, command: &str) -> Result<StatsReply> {
        self.query(command)?.ok_or_else(|| refusal(command, "NOT_FOUND"))
    }

    pub fn tube(&mut self, name: &str) -> Result<StatsReply> {
        self.existing(&format!("stats-tube {name}"))
    }

    /// Returns `None` if there is no such tube, and empty statistics for a hidden tube.
    pub fn visible_tube(&mut self, name: &str) -> Result<Option<StatsReply>> {
        let command = format!("stats-tube {name}");
        let reply = self.ask(&command)?;
        match reply.line.as_str() {
            "FORBIDDEN" => Ok(Some(StatsReply::default())),
            _ => stats_of(&command, &reply),
        }
    }

    pub fn stats(&mut self) -> Result<StatsReply> {
        self.existing("stats")
    }

    pub fn tubes(&mut self) -> Result<Vec<String>> {
        let mut tubes = yaml::list(&self.expect("list-tubes", "OK")?.body);
        let order = in_order(tubes.len(), &|left, right| tubes[left].cmp(&tubes[right]));
        Ok(order.into_iter().map(|index| std::mem::take(&mut tubes[index])).collect())
    }

    pub fn closer(&self) -> Result<Closer> {
        self.client.closer().map_err(|error| self.target.failed(&error))
    }
}

pub fn stats_of(command: &str, reply: &Reply) -> Result<Option<StatsReply>> {
    match first_word(&reply.line) {
        "OK" => Ok(Some(StatsReply::parse(&String::from_utf8_lossy(&reply.body)))),
        "NOT_FOUND" => Ok(None),
        _ => Err(refusal(command, &reply.line)),
    }
}

pub fn job_of(command: &str, reply: Reply) -> Result<Option<IdAndBody>> {
    match (reply.line.as_str(), reply.number("FOUND").or(reply.number("RESERVED"))) {
        (_, Some(id)) => Ok(Some((id, reply.body))),
        ("NOT_FOUND" | "TIMED_OUT", None) => Ok(None),
        (line, None) => Err(refusal(command, line)),
    }
}

pub fn first_word(line: &str) -> &str {
    line.split(' ').next().unwrap_or_default()
}

pub fn refusal(command: &str, line: &str) -> Box<Problem> {
    let (verb, arguments) = command.split_once(' ').unwrap_or((command, ""));
    let (verb, object) = (verb.trim_end(), first_word(arguments));
    let tube = || match unquote(arguments.as_bytes()) {
        Some((name, _)) => name::written(&name),
        None => object.to_owned(),
    };
    Problem::refused(match line {
        "NOT_FOUND" if verb.ends_with("-tube") => format!("there is no tube {}", tube()),
        "NOT_FOUND" if verb == "stats-group" => format!("group {object} has no members, and no job waits for it"),
        "NOT_FOUND" if object.is_empty() => format!("{verb}: nothing found"),
        "NOT_FOUND" if matches!(verb, "stats-job" | "peek") => {
            format!("job {object} does not exist; if it has ended, see beanpole history")
        }
        "NOT_FOUND" => format!("{verb}: job {object} does not exist, or its state does not allow this"),
        "FORBIDDEN" => format!("{verb}: permission denied by the server"),
        "UNAUTHORIZED" if verb == "auth" => "the server rejected the token".to_owned(),
        "UNAUTHORIZED" => "the server requires authentication; use --token-file or --cert".to_owned(),
        "UNKNOWN_COMMAND" if verb == "auth" => "the server has no access file, and accepts no token".to_owned(),
        "UNKNOWN_COMMAND" => format!("{verb}: the server does not know this command"),
        "BAD_FORMAT" if name::is_foreign(object) => {
            format!("{verb}: the server does not support quoted tube names: {}", tube())
        }
        "BAD_FORMAT" => format!("{verb}: the server answered BAD_FORMAT; it may be too old for this"),
        "JOB_TOO_BIG" => "the job exceeds the server's maximum size (max-job-size)".to_owned(),
        "DRAINING" => "the server accepts no new jobs, because it is draining".to_owned(),
        "OUT_OF_MEMORY" => format!("{verb}: the server is out of memory"),
        "TUBE_FULL" => "the tube is full".to_owned(),
        other => format!("{verb}: the server answered {}", other.escape_debug()),
    })
}

/// Commands in a batch. Two batches must fit into the socket buffers, because a server with too many unread replies
/// stops reading.
pub const MAX_BATCH: usize = 512;

const BATCH_BYTES: usize = 64 * 1024;

pub type OnReply<'a, T> = &'a mut dyn FnMut(T, Reply) -> Result;

/// Commands with unread replies. The caller interprets a reply by the note of its command.
pub struct Pipeline<T> {
    bytes: Vec<u8>,
    unsent: VecDeque<T>,
    sent: VecDeque<T>,
}

impl<T> Pipeline<T> {
    pub fn new() -> Pipeline<T> {
        Pipeline { bytes: Vec::new(), unsent: VecDeque::new(), sent: VecDeque::new() }
    }

    /// The caller must append the command to the returned buffer.
    pub fn add(&mut self, note: T) -> &mut Vec<u8> {
        self.unsent.push_back(note);
        &mut self.bytes
    }

    pub fn send_full_batch(&mut self, link: &mut Link, each: OnReply<T>) -> Result {
        if self.bytes.len() < BATCH_BYTES && self.unsent.len() < MAX_BATCH {
            return Ok(());
        }
        self.push(link, each)
    }

    pub fn finish(&mut self, link: &mut Link, each: OnReply<T>) -> Result {
        self.push(link, each)?;
        self.push(link, each)
    }

    fn push(&mut self, link: &mut Link, each: OnReply<T>) -> Result {
        if !self.bytes.is_empty() {
            link.send(&self.bytes)?;
            self.bytes.clear();
        }
        while let Some(note) = self.sent.pop_front() {
            let reply = link.reply()?;
            each(note, reply)?;
        }
        std::mem::swap(&mut self.sent, &mut self.unsent);
        Ok(())
    }
}

pub fn ask_each(
    link: &mut Link,
    verb: &str,
    objects: &mut dyn Iterator<Item = String>,
    on_reply: OnReply<usize>,
) -> Result {
    let mut pipeline = Pipeline::new();
    for (index, object) in objects.enumerate() {
        pipeline.add(index).extend_from_slice(format!("{verb} {object}\r\n").as_bytes());
        pipeline.send_full_batch(link, on_reply)?;
    }
    pipeline.finish(link, on_reply)
}

/// Each tag in `tags` starts with a space.
pub fn put(bytes: &mut Vec<u8>, (pri, delay, ttr): (u32, u32, u32), tags: &str, body: &[u8]) {
    bytes.extend_from_slice(format!("put {pri} {delay} {ttr} {}{tags}\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(b"\r\n");
}

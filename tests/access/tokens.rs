//! Tests access tokens: correct, wrong, long, empty, repeated, slow and split tokens, and commands and connections that
//! do not accept tokens.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use beanpole::{Address, Client, Config, Server};

use super::{digest, user, Guarded, OPERATOR};
use crate::daemon::{Folder, PATIENCE};

/// Starts a server that admits only clients with a token.
fn guarded() -> Guarded {
    Guarded::start(&format!("web token:sha256:{} token:sha256:{} put:w*", digest("secret"), digest("second")))
}

#[test]
fn a_token_identifies_a_client() {
    let guarded = guarded();
    for token in ["secret", "second"] {
        let mut client = guarded.connect("beanstalk");
        assert_eq!(client.ask(&format!("auth {token}")), "AUTHENTICATED");
        assert_eq!(client.ask("use w"), "USING w");
        assert_eq!(client.ask("watch w"), "FORBIDDEN");
        assert_eq!(client.ask(&format!("auth {OPERATOR}")), "AUTHENTICATED", "a second time, with more rights");
        assert_eq!(client.ask("watch w"), "WATCHING 2");
    }
}

#[test]
fn another_user_touches_only_jobs_of_permitted_tubes() {
    let rights = [("wide", "take:a* put:a*"), ("narrow", "take:a1")];
    let rights = rights.map(|(name, rights)| format!("{name} token:sha256:{} {rights}\n", digest(name)));
    let guarded = Guarded::start(&rights.concat());
    let mut client = guarded.connect("beanstalk");
    assert_eq!(client.ask("auth wide"), "AUTHENTICATED");
    for (id, tube) in ["a1", "a2", "a3"].iter().enumerate() {
        client.send(format!("use {tube}\r\nput 0 0 60 1\r\nx\r\nreserve-job {}\r\n", id + 1).as_bytes());
        (0..4).for_each(|_| drop(client.line()));
    }
    assert_eq!(client.ask("touch-all"), "TOUCHED_ALL 3");
    assert_eq!(client.ask("auth narrow"), "AUTHENTICATED");
    assert_eq!(client.ask("touch 2"), "FORBIDDEN");
    assert_eq!(client.ask("touch-all"), "TOUCHED_ALL 1");
}

#[test]
fn tokens_can_be_split_and_pipelined() {
    let guarded = guarded();
    let mut client = guarded.connect("beanstalk");
    for byte in b"auth secret\r\n" {
        client.send(&[*byte]);
    }
    assert_eq!(client.line(), "AUTHENTICATED");
    let mut client = guarded.connect("beanstalk");
    let body = "x".repeat(60_000);
    client.send(format!("auth secret\r\nuse w\r\nput 0 0 60 60000\r\n{body}\r\nlist-tube-used\r\n").as_bytes());
    assert_eq!([client.line(), client.line()], ["AUTHENTICATED", "USING w"]);
    assert!(client.line().starts_with("INSERTED "));
    assert_eq!(client.line(), "USING w");
}

#[test]
fn other_commands_before_the_token_close_the_connection() {
    let guarded = guarded();
    let long = "x".repeat(60_000);
    for first in [
        "put 0 0 60 1\r\nx\r\nauth secret\r\n".to_owned(),
        format!("put 0 0 60 60000\r\n{long}\r\n"),
        "put 0 0 60 99999999\r\n".to_owned() + &long,
        "stats\r\nstats\r\n".to_owned(),
        "nonsense\r\n".to_owned(),
        "auth\r\n".to_owned(),
        "auth  secret\r\n".to_owned(),
        "AUTH secret\r\n".to_owned(),
        format!("auth {}\r\n", "s".repeat(218)),
        "a".repeat(300) + "\r\n",
    ] {
        let mut client = guarded.connect("beanstalk");
        client.send(first.as_bytes());
        if first.starts_with("put 0 0 60 9") {
            // The put is incomplete, so there is no reply.
            drop(client);
            continue;
        }
        assert_eq!(client.rest(), "UNAUTHORIZED\r\n", "{}", &first[..first.len().min(40)]);
    }
    let mut client = guarded.connect("beanstalk");
    client.send(b"quit\r\n");
    assert_eq!(client.rest(), "");
    assert!(guarded.operator().body("stats").contains("cmd-put: 0\n"));
}

#[test]
fn a_wrong_token_is_counted_and_delayed() {
    let guarded = guarded();
    for (number, token) in ["wrong", "", &"s".repeat(217), "secret ", "\u{e9}"].into_iter().enumerate() {
        let mut client = guarded.connect("beanstalk");
        let begin = Instant::now();
        client.send(format!("auth {token}\r\nauth secret\r\n").as_bytes());
        assert_eq!(client.rest(), "UNAUTHORIZED\r\n", "{token:?}");
        assert!(begin.elapsed() >= Duration::from_millis(900), "reply after {:?}", begin.elapsed());
        let stats = guarded.operator().body("stats");
        assert!(stats.contains(&format!("failed-auths: {}\n", number + 1)), "{stats}");
    }
    // The delayed reply to a wrong token must not delay other clients.
    let mut late = guarded.connect("beanstalk");
    let begin = Instant::now();
    late.send(b"auth wrong\r\n");
    guarded.operator();
    let silent = late.is_silent_for(Duration::from_millis(50));
    assert!(silent || begin.elapsed() >= Duration::from_millis(900), "reply after {:?}", begin.elapsed());
    assert_eq!(late.rest(), "UNAUTHORIZED\r\n");
}

#[test]
fn a_wrong_token_revokes_the_identity() {
    let guarded = Guarded::start(&format!("me {} all", user()));
    let mut client = guarded.connect("beanstalk");
    assert_eq!(client.ask("watch x"), "WATCHING 2");
    client.send(b"auth wrong\r\nwatch y\r\n");
    assert_eq!(client.rest(), "UNAUTHORIZED\r\n");
}

#[test]
fn tokens_are_refused_on_unencrypted_public_addresses() {
    let folder = Folder::new();
    let text = format!("web token:sha256:{} all\n* none look\n", digest("secret"));
    std::fs::write(folder.file("access"), text).expect("a file");
    let config = Config::embedded().with(|config| config.access = Some(folder.file("access")));
    let server = Server::with(config).expect("a server");
    let mut stream = TcpStream::connect(server.address()).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
    stream.write_all(b"list-tubes\r\nwatch x\r\nauth secret\r\n").expect("an open connection");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the end of the stream");
    assert_eq!(answer, "OK 14\r\n---\n- default\n\r\nFORBIDDEN\r\nUNAUTHORIZED\r\n");
}

#[test]
fn without_an_access_file_the_command_is_unknown() {
    let folder = Folder::new();
    let config = Config::embedded().with(|config| config.listen = vec![Address::Unix(folder.file("socket"))]);
    let _server = Server::with(config).expect("a server");
    let mut client =
        super::Talk::new(std::os::unix::net::UnixStream::connect(folder.file("socket")).expect("a connection"));
    assert_eq!(client.ask("auth secret"), "UNKNOWN_COMMAND");
    assert_eq!(client.ask("list-tube-used"), "USING default");
    Client::connect_unix(folder.file("socket")).expect("a connection");
}

#[test]
fn other_protocols_identify_clients_only_on_unix_sockets() {
    let guarded = guarded();
    let mut client = guarded.connect("gearman");
    client.send(b"version\n");
    assert_eq!(client.rest(), "ERR UNAUTHORIZED Client+is+not+known\r\n");
    let mut client = guarded.connect("gearman");
    client.send(b"\0REQ\0\0\0\x10\0\0\0\x01x");
    assert!(client.rest().contains("UNAUTHORIZED\0"));
    let mut client = guarded.connect("workq");
    client.send(b"inspect server\r\n");
    assert_eq!(client.rest(), "-CLIENT-ERROR Unauthorized\r\n");
}

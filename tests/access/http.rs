//! Tests each HTTP path with each right, for Unix users and tokens, and the data that the server shows to each client.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use beanpole::internals::protocol::http::ROUTES;
use beanpole::{Address, Config, Server};

use super::commands::{walk, OTHER, TUBE};
use super::shown::put;
use super::{digest, user, Guarded, Talk, OPERATOR};
use crate::daemon::{run, wait_until, Folder, PATIENCE};

/// The maximum number of HTTP connections of the server.
const MAX_HTTP: usize = 64;

/// The rights that permit each request. Any one of these rights is sufficient. `open` means that no right is needed.
const ROWS: [(&str, &[&str]); 33] = [
    ("GET /", &["open"]),
    ("GET /healthz", &["open"]),
    ("GET /readyz", &["open"]),
    ("GET /metrics", &["look"]),
    ("GET /api/server", &["look"]),
    ("GET /api/tubes", &["look"]),
    ("GET /api/tubes/{tube}", &["look"]),
    ("GET /api/tubes/{tube}/jobs", &["look"]),
    ("GET /api/tubes/{tube}/peek/{state}", &["look"]),
    ("GET /api/jobs", &["look"]),
    ("GET /api/jobs/{id}", &["look"]),
    ("GET /api/jobs/{id}/body", &["look"]),
    ("POST /api/tubes/{tube}/put", &["put"]),
    ("POST /api/tubes/{tube}/kick", &["admin"]),
    ("POST /api/tubes/{tube}/pause", &["admin"]),
    ("POST /api/tubes/{tube}/settings", &["admin"]),
    ("POST /api/tubes/{tube}/clear", &["admin"]),
    // No right on this tube suffices, because the request also requires a right on the destination tube.
    ("POST /api/tubes/{tube}/move", &[]),
    ("GET /api/connections", &["look"]),
    ("GET /api/history", &["look"]),
    // Requires the right `look` on all tubes.
    ("GET /api/overview", &[]),
    ("GET /api/schedules", &["look"]),
    ("GET /api/failed", &["look"]),
    ("GET /api/tubes/{tube}/failed", &["look"]),
    ("POST /api/tubes/{tube}/failed/kick", &["admin"]),
    ("POST /api/tubes/{tube}/failed/delete", &["admin"]),
    ("POST /api/tubes/{tube}/failed/move", &[]),
    ("POST /api/jobs/{id}/kick", &["admin"]),
    ("POST /api/jobs/{id}/move", &[]),
    ("POST /api/jobs/{id}/delete", &["admin"]),
    ("POST /api/jobs/{id}/revoke", &["admin"]),
    ("POST /api/jobs/{id}/bury", &["admin"]),
    ("GET /favicon.ico", &["open"]),
];

struct Reply {
    status: u16,
    head: String,
    body: String,
}

fn reply<S: std::io::Read + Write>(talk: &mut Talk<S>) -> Reply {
    let status = talk.line();
    let mut head = String::new();
    loop {
        match talk.line() {
            line if line.is_empty() => break,
            line => head += &format!("{line}\n"),
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let body = talk.take(length.map_or(0, |length| length.parse().expect("a length")));
    let status = status.split(' ').nth(1).and_then(|status| status.parse().ok());
    Reply { status: status.expect("a status"), head, body: String::from_utf8_lossy(&body).into_owned() }
}

/// Returns an HTTP request with the method and path in `line`, such as `GET /metrics`. If the method is not GET, the
/// request contains `body`. If `token` is empty, the request has no Authorization header.
fn request(line: &str, token: &str, body: &str) -> String {
    let authorization = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    let head = format!("{line} HTTP/1.1\r\nHost: localhost\r\n{authorization}");
    if line.starts_with("GET ") {
        return head + "\r\n";
    }
    let length = body.len();
    format!("{head}X-Beanpole: 1\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
}

fn ask(talk: &mut Talk, line: &str, token: &str, body: &str) -> Reply {
    talk.send(request(line, token, body).as_bytes());
    reply(talk)
}

fn body(route: &str) -> String {
    match route.rsplit('/').next() {
        Some("put") => r#"{"body":"x"}"#.to_owned(),
        Some("move") if route.contains("/failed/") || route.contains("/jobs/") => format!(r#"{{"to":"{OTHER}"}}"#),
        Some("move") => format!(r#"{{"to":"{OTHER}","state":"ready"}}"#),
        _ => "{}".to_owned(),
    }
}

// Tests promise P25 of beanpole-promises(7).
#[test]
fn each_path_with_each_right() {
    let named: BTreeSet<String> = ROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(named, ROUTES.iter().map(|route| route.name()).collect());
    walk(&ROWS, |guarded, route, id| {
        let line = route.replace("{tube}", TUBE).replace("{state}", "ready").replace("{id}", &id.to_string());
        let line = if route == "GET /api/jobs" { format!("{line}?id={id}") } else { line };
        let mut client = guarded.connect("http");
        let found = ask(&mut client, &line, "", &body(route));
        assert_ne!(found.status, 401, "{line}");
        if found.status == 403 {
            assert!(found.body.starts_with(r#"{"error":"this needs the right "#), "{line}: {}", found.body);
        }
        assert_eq!(ask(&mut client, "GET /healthz", "", "").body, "ok\n", "{line}: the connection is out of sync");
        found.status == 403
    });
}

/// Starts a server with two clients: `eye` has the right `look` on `mail*`, and `hand` has the right `put` on `mail*`.
fn two() -> Guarded {
    Guarded::start(&format!(
        "eye token:sha256:{} look:mail*\nhand token:sha256:{} put:mail*",
        digest("eye"),
        digest("hand")
    ))
}

#[test]
fn a_token_applies_only_to_its_request() {
    let guarded = two();
    put(&guarded, &["mail"]);
    let mut client = guarded.connect("http");
    for (line, token, status) in [
        ("GET /healthz", "", 200),
        ("GET /", "", 200),
        ("GET /api/tubes/mail", "", 401),
        ("GET /nothing", "", 401),
        ("GET /api/tubes/mail", "eye", 200),
        ("GET /nothing", "eye", 404),
        ("GET /api/tubes/mail", "hand", 403),
        ("GET /api/tubes/other", "eye", 403),
        ("GET /api/tubes/mail.none", "eye", 404),
        ("GET /api/tubes/mail", "", 401),
        ("POST /api/tubes/mail/put", "hand", 200),
        ("POST /api/tubes/other/put", "hand", 403),
        ("POST /api/tubes/mail/put", "eye", 403),
        ("GET /api/tubes/mail", "eye", 200),
    ] {
        let found = ask(&mut client, line, token, &body(line));
        assert_eq!(found.status, status, "{line} by {token}: {}", found.body);
        assert_eq!(found.head.contains("WWW-Authenticate: Bearer"), status == 401, "{line} by {token}");
        assert_eq!(found.body.starts_with(r#"{"error":""#), status >= 400, "{}", found.body);
    }
}

#[test]
fn a_wrong_token_is_counted_delayed_and_closes_the_connection() {
    let guarded = two();
    let mut client = guarded.connect("http");
    let begin = Instant::now();
    client.send((request("GET /api/tubes", "guess", "") + &request("GET /api/tubes", "eye", "")).as_bytes());
    let found = reply(&mut client);
    assert!(begin.elapsed() >= Duration::from_millis(900), "response after {:?}", begin.elapsed());
    assert_eq!(found.status, 401);
    assert!(found.head.contains("Connection: close"), "{}", found.head);
    assert_eq!(client.rest(), "");
    let mut client = guarded.connect("http");
    assert_eq!(ask(&mut client, "GET /healthz", "guess", "").status, 200, "the path requires no authentication");
    assert!(guarded.operator().body("stats").contains("failed-auths: 1\n"));
}

/// Delayed replies to requests with wrong tokens must not use up the server's HTTP connections.
#[test]
fn wrong_tokens_do_not_keep_others_out() {
    let guarded = two();
    let guesses: Vec<Talk> = (0..MAX_HTTP)
        .map(|_| {
            let mut client = guarded.connect("http");
            client.send(request("GET /api/tubes", "guess", "").as_bytes());
            client
        })
        .collect();
    let counted = format!("failed-auths: {MAX_HTTP}\n");
    wait_until("all tokens are refused", || guarded.operator().body("stats").contains(&counted));
    for _ in 0..5 {
        assert_eq!(ask(&mut guarded.connect("http"), "GET /api/tubes", "eye", "").status, 200);
    }
    drop(guesses);
}

#[test]
fn a_body_is_read_only_from_an_authenticated_client() {
    let guarded = two();
    let long = format!(r#"{{"body":"{}"}}"#, "x".repeat(60_000));
    let mut client = guarded.connect("http");
    let found = ask(&mut client, "POST /api/tubes/mail/put", "hand", &long);
    assert_eq!(found.status, 200, "the first request of a connection: {}", found.body);
    let mut client = guarded.connect("http");
    // The valid token of a request must not authorize later requests on the same connection.
    assert_eq!(ask(&mut client, "GET /api/tubes", "eye", "").status, 200);
    assert_eq!(ask(&mut client, "POST /api/tubes/mail/put", "", "").status, 401);
    assert_eq!(ask(&mut client, "GET /api/tubes", "eye", "").status, 200);
    let whole = request("POST /api/tubes/mail/put", "", &long);
    client.send(&whole.as_bytes()[..whole.len() - 1]);
    let found = reply(&mut client);
    assert!(found.status == 401 && found.head.contains("Connection: close"), "{}", found.head);
    assert_eq!(client.rest(), "");
    // An authenticated client without the right gets the refusal before the whole body has arrived, and stays
    // connected.
    let mut client = guarded.connect("http");
    let whole = request("POST /api/tubes/push/put", "hand", &long);
    let (most, last) = whole.split_at(whole.len() - 1);
    client.send(most.as_bytes());
    assert_eq!(reply(&mut client).status, 403);
    client.send(last.as_bytes());
    assert_eq!(ask(&mut client, "GET /healthz", "", "").status, 200);
    // With `Expect: 100-continue`, the server refuses an invalid token before the client sends the body.
    let whole = request("POST /api/tubes/mail/put", "hand", &long);
    let (head, _) = whole.split_once("\r\n\r\n").expect("a head");
    let mut client = guarded.connect("http");
    client.send(format!("{head}\r\nExpect: 100-continue\r\n\r\n").as_bytes());
    assert_eq!([client.line(), client.line()], ["HTTP/1.1 100 Continue", ""]);
    client.send(long.as_bytes());
    assert_eq!(reply(&mut client).status, 200);
    let mut client = guarded.connect("http");
    client.send(format!("{}\r\nExpect: 100-continue\r\n\r\n", head.replace("Bearer hand", "Basic hand")).as_bytes());
    assert_eq!(reply(&mut client).status, 401);
    assert_eq!(client.rest(), "");
    assert!(guarded.operator().body("stats").contains("total-jobs: 2\n"));
}

// Tests promise P25 of beanpole-promises(7).
#[test]
fn lists_and_statistics_show_only_visible_tubes() {
    let guarded = two();
    put(&guarded, &["mail.in", "mail.out", "push", "secret"]);
    let mut client = guarded.connect("http");
    let mut get = |path: &str| {
        let found = ask(&mut client, &format!("GET {path}"), "eye", "");
        assert_eq!(found.status, 200, "{path}: {}", found.body);
        found.body
    };
    let list = get("/api/tubes");
    assert!(list.contains("mail.in") && list.contains("mail.out"), "{list}");
    let server = get("/api/server");
    for member in [r#""current-jobs-ready":2,"#, r#""total-jobs":2,"#, r#""current-tubes":2,"#, r#""admin":false,"#] {
        assert!(server.contains(member), "no {member} in {server}");
    }
    let metrics = get("/metrics");
    for line in ["beanpole_jobs{state=\"ready\"} 2", "beanpole_tubes 2", "beanpole_jobs_total 2"] {
        assert!(metrics.contains(&format!("\n{line}\n")), "no {line} in {metrics}");
    }
    assert!(metrics.contains("\nbeanpole_tubes_omitted 0\n") && !metrics.contains("beanpole_job_wait_seconds_count"));
    for text in [&list, &server, &metrics, &get("/metrics?filter=a")] {
        assert!(!text.contains("push") && !text.contains("secret"), "{text}");
    }
    assert!(get("/metrics?tube=mail.in").contains("beanpole_jobs{state=\"ready\"} 2\n"));
    assert_eq!(ask(&mut client, "GET /metrics?tube=push", "eye", "").status, 403);
    let all = ask(&mut client, "GET /metrics", OPERATOR, "").body;
    assert!(all.contains("beanpole_tubes 5\n") && all.contains("beanpole_job_wait_seconds_count"), "{all}");
    assert!(ask(&mut client, "GET /api/server", "hand", "").status == 403);
    assert!(ask(&mut client, "GET /api/server", OPERATOR, "").body.contains(r#""admin":true,"#));
}

#[test]
fn filtered_lists_can_take_several_turns() {
    let guarded = Guarded::start(&format!("me {} look:a*", user()));
    let mut operator = guarded.operator();
    for number in 0..3000 {
        let tube = format!("{}{number}", if number % 2 == 0 { "a" } else { "b" });
        assert_eq!(operator.ask(&format!("watch {tube}")), format!("WATCHING {}", number + 2));
    }
    let mut client = guarded.connect("http");
    assert!(ask(&mut client, "GET /api/server", "", "").body.contains(r#""current-tubes":1500,"#));
    let metrics = ask(&mut client, "GET /metrics", "", "").body;
    assert_eq!(metrics.lines().filter(|line| line.starts_with("beanpole_tube_watching{")).count(), 1000);
    assert!(metrics.contains("\nbeanpole_tubes_omitted 500\n") && !metrics.contains("tube=\"b"));
}

#[test]
fn a_move_requires_the_right_on_both_tubes() {
    let guarded = Guarded::start("");
    put(&guarded, &["a", "b"]);
    let path = "POST /api/tubes/a/move";
    for (rights, status) in [("admin:a", 403), ("admin:b all:c", 403), ("admin:a,b", 200)] {
        guarded.change(&format!("me {} {rights}", user()));
        let found = ask(&mut guarded.connect("http"), path, "", r#"{"to":"b","state":"ready"}"#);
        assert_eq!(found.status, status, "{rights}: {}", found.body);
    }
}

#[test]
fn removing_a_client_closes_its_connections() {
    let guarded = two();
    let (mut eye, mut hand) = (guarded.connect("http"), guarded.connect("http"));
    assert_eq!(ask(&mut eye, "GET /api/tubes", "eye", "").status, 200);
    assert_eq!(ask(&mut hand, "POST /api/tubes/mail/put", "hand", r#"{"body":"x"}"#).status, 200);
    guarded.change(&format!("hand token:sha256:{} put:mail*", digest("hand")));
    assert_eq!(eye.rest(), "");
    assert_eq!(ask(&mut hand, "POST /api/tubes/mail/put", "hand", r#"{"body":"x"}"#).status, 200);
}

#[test]
fn tokens_are_refused_on_unencrypted_public_addresses() {
    let folder = Folder::new();
    let text = format!("web token:sha256:{} all\n* none look:public\n", digest("secret"));
    std::fs::write(folder.file("access"), text).expect("a file");
    let http = vec![Address::Tcp(Some("127.0.0.1".to_owned()), Some(0))];
    let config = Config::embedded().with(|config| {
        config.access = Some(folder.file("access"));
        config.http = http;
    });
    let server = Server::with(config).expect("a server");
    let address = server.address_of(beanpole::internals::protocol::Wire::Http).expect("an address");
    let ask = |token: &str| {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        let mut talk = Talk::over(stream);
        talk.send(request("GET /api/tubes", token, "").as_bytes());
        reply(&mut talk)
    };
    assert_eq!(ask("").status, 200);
    let refused = ask("secret");
    assert!(refused.status == 401 && refused.body.contains("where others can read it"), "{}", refused.body);
}

#[test]
fn the_access_file_replaces_the_token_option() {
    let folder = Folder::new();
    for (name, text) in [("access", "* none look\n"), ("token", "0123456789abcdef\n")] {
        std::fs::write(folder.file(name), text).expect("a file");
    }
    let path = |name: &str| folder.file(name).to_str().expect("a UTF-8 path").to_owned();
    let ended = run(&["-p", "0", "--http", "--access", &path("access"), "--http-token", &path("token")]);
    assert_eq!((ended.code, ended.err.lines().count()), (1, 1), "{ended:?}");
    assert!(ended.err.contains("--http-token cannot be used with --access"), "{ended:?}");
    // With access control, the server can listen on a public address.
    let socket = folder.file("socket");
    let options = ["--http=0.0.0.0:0", "--access", &path("access")];
    let listen = format!("unix:{}", socket.display());
    let _daemon = crate::daemon::Daemon::start(&[&["-l", listen.as_str()], &options[..]].concat());
    UnixStream::connect(&socket).expect("a connection");
}

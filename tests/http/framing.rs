//! Tests where an HTTP request ends and the next request begins, for valid and invalid input.

use beanpole::internals::engine::{Engine, Limits};
use beanpole::internals::protocol::beanstalk::Extensions;
use beanpole::internals::protocol::{DecodeLimits, Dialogue, Wire};

use crate::daemon::wait_until;
use crate::visitor::serve;

#[test]
fn ambiguous_requests_are_refused_and_the_connection_closed() {
    let visited = serve(|_| ());
    let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(9000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(65));
    for (request, status) in [
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n", 413),
        ("POST / HTTP/1.1\r\nHost: a\r\nExpect: more\r\nContent-Length: 1\r\n\r\nx", 417),
        ("POST /api/tubes/t/put HTTP/1.1\r\nHost: a\r\n\r\n", 411),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 400),
        ("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 405),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", 400),
        ("GET / HTTP/2.0\r\n\r\n", 505),
        ("put 0 0 60 5\r\nhello\r\n", 505),
        ("\0REQ\0\0\0\x10", 400),
        (&long, 431),
        (&many, 431),
    ] {
        let mut visitor = visited.visitor();
        visitor.send(format!("{request}GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        let reply = visitor.reply();
        assert_eq!(reply.status, status, "{request:.80}: {reply:?}");
        assert!(reply.head.contains("Connection: close"), "{request:.80}");
        assert!(visitor.is_closed(), "{request:.80}: the server must not reply to the next request");
    }
}

#[test]
fn requests_can_be_pipelined_or_split() {
    let visited = serve(|_| ());
    let body = r#"{"body":"h\u00e9"}"#;
    let headers = "Host: localhost\r\nX-Beanpole: 1\r\nContent-Type: application/json";
    let all = format!(
        "\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n\
         POST /api/tubes/t/put HTTP/1.1\r\n{headers}\r\nContent-Length: {}\r\n\r\n{body}\
         HEAD /api/tubes HTTP/1.1\r\nHost: localhost\r\n\r\n\
         GET /api/tubes/t/peek/ready HTTP/1.1\r\nHost: localhost\r\n\r\n",
        body.len()
    );
    for step in [all.len(), 1, 7] {
        let mut visitor = visited.visitor();
        all.as_bytes().chunks(step).for_each(|piece| visitor.send(piece));
        assert_eq!(visitor.reply().body, "ok\n");
        assert!(visitor.reply().body.starts_with("{\"id\":"));
        let head = visitor.reply_of(false);
        assert!(head.status == 200 && !head.head.contains("Content-Length: 0"), "{head:?}");
        assert!(visitor.reply().body.contains("\"body\":\"h\u{e9}\""));
    }
}

/// HTTP/1.0, which health checks of load balancers often use, does not require a Host header.
#[test]
fn http_1_0_needs_no_host() {
    let visited = serve(|_| ());
    for (request, status) in [
        ("GET /healthz HTTP/1.0\r\n\r\n", 200),
        ("GET /api/tubes HTTP/1.0\r\n\r\n", 200),
        ("GET /healthz HTTP/1.0\r\nHost: evil.example\r\n\r\n", 421),
        ("GET /healthz HTTP/1.0\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
        ("GET /api/tubes HTTP/1.0\r\nOrigin: http://evil.example\r\n\r\n", 403),
    ] {
        let mut visitor = visited.visitor();
        visitor.send(request.as_bytes());
        assert_eq!(visitor.reply().status, status, "{request:?}");
    }
}

#[test]
fn connections_are_kept_alive_when_requested() {
    let visited = serve(|_| ());
    for (version, header, stays) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: TE, Close\r\n", false),
        ("1.1", "Connection: close\r\nConnection: keep-alive\r\n", false),
        ("1.1", "Connection: keep-alive\r\nConnection: close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: keep-alive\r\n", true),
    ] {
        let mut visitor = visited.visitor();
        visitor.send(format!("GET /healthz HTTP/{version}\r\nHost: localhost\r\n{header}\r\n").as_bytes());
        assert_eq!(visitor.reply().status, 200);
        if stays {
            assert_eq!(visitor.get("/readyz").body, "ok\n", "{version} {header}");
        } else {
            assert!(visitor.is_closed(), "{version} {header}");
        }
    }
}

#[test]
fn a_client_that_expects_100_continue_receives_it() {
    let visited = serve(|_| ());
    let mut visitor = visited.visitor();
    let headers = "Host: localhost\r\nX-Beanpole: 1\r\nContent-Type: application/json\r\nExpect: 100-continue";
    visitor.send(format!("POST /api/tubes/t/put HTTP/1.1\r\n{headers}\r\nContent-Length: 12\r\n\r\n").as_bytes());
    assert_eq!(visitor.reply().status, 100);
    visitor.send(br#"{"body":"x"}"#);
    assert_eq!(visitor.reply().body, "{\"id\":1}\n");
}

#[test]
fn a_request_is_refused_before_its_body_is_sent() {
    let visited = serve(|config| config.protocols.http.admin = false);
    let headers = "Host: localhost\r\nX-Beanpole: 1\r\nContent-Type: application/json";
    for (path, status) in [("/api/tubes/t/put", 403), ("/nothing", 404), ("/api/tubes", 405), ("/api/jobs/x/kick", 400)]
    {
        let mut visitor = visited.visitor();
        visitor.send(format!("POST {path} HTTP/1.1\r\n{headers}\r\nContent-Length: 100000\r\n\r\n{{").as_bytes());
        assert_eq!(visitor.reply().status, status, "{path}");
        // The server must skip the rest of the body and then parse the next request.
        visitor.send(&[b'['; 99_999]);
        assert_eq!(visitor.get("/healthz").status, 200, "{path}");
        // After `Expect: 100-continue`, a refused client may omit the body, so the server must close the connection.
        let expecting =
            format!("POST {path} HTTP/1.1\r\n{headers}\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
        visitor.send(expecting.as_bytes());
        let reply = visitor.reply();
        assert!(reply.status == status && reply.head.contains("Connection: close"), "{path}: {reply:?}");
        assert!(visitor.is_closed(), "{path}");
    }
}

#[test]
fn lists_and_nested_objects_are_refused() {
    let visited = serve(|_| ());
    let mut visitor = visited.visitor();
    for body in [r#"{"body":[0]}"#, r#"{"body":{}}"#, r#"{"x":[[]]}"#, "[]"] {
        let reply = visitor.post("/api/tubes/t/put", body);
        assert_eq!(reply.status, 400, "{body}: {reply:?}");
    }
    assert_eq!(visitor.post("/api/tubes/t/put", r#"{"body":"\u005b"}"#).status, 200);
}

#[test]
fn the_longest_idle_connections_are_closed_first() {
    let visited = serve(|_| ());
    let mut visitors: Vec<_> = (0..64).map(|_| visited.visitor()).collect();
    visitors.iter_mut().for_each(|visitor| assert_eq!(visitor.get("/healthz").status, 200));
    let mut late = visited.visitor();
    assert_eq!(late.get("/healthz").status, 200);
    assert!(visitors[0].is_closed());
    assert_eq!(visited.client().figure("stats", "dropped-connections").expect("statistics"), "1");
    // Other connections must not be affected.
    assert_eq!(visited.client().put(b"x", 0, 0, 60).expect("a job"), 1);
    assert_eq!(visitors[63].get("/healthz").status, 200);
    assert_eq!(late.get("/healthz").status, 200);
}

#[test]
fn connections_without_a_request_are_closed_before_used_ones() {
    let visited = serve(|_| ());
    let mut used: Vec<_> = (0..5).map(|_| visited.visitor()).collect();
    used.iter_mut().for_each(|visitor| assert_eq!(visitor.get("/healthz").status, 200));
    let mut silent: Vec<_> = (0..70).map(|_| visited.visitor()).collect();
    silent.iter_mut().step_by(2).for_each(|visitor| visitor.send(b"GET /"));
    let dropped = || visited.client().figure("stats", "dropped-connections").expect("statistics");
    wait_until("the server has closed 11 connections", || dropped() == "11");
    used.iter_mut().for_each(|visitor| assert_eq!(visitor.get("/healthz").status, 200));
}

#[test]
fn rejected_clients_receive_the_reason() {
    let visited = serve(|config| config.max_connections_per_address = Some(1));
    let mut first = visited.visitor();
    assert_eq!(first.get("/healthz").status, 200);
    let mut second = visited.visitor();
    let reply = second.reply();
    assert_eq!((reply.status, reply.body.as_str()), (503, "too many connections\n"), "{reply:?}");
    assert!(reply.head.contains("Connection: close\r\n") && reply.head.contains("Retry-After: 1\r\n"), "{reply:?}");
    assert!(second.is_closed());
    assert_eq!(first.get("/healthz").status, 200);
}

/// Silent connections and incomplete requests must not delay the replies to other clients.
#[test]
fn health_is_reported_despite_silent_connections() {
    let visited = serve(|_| ());
    let mut silent = Vec::new();
    for round in 0..3 {
        for number in 0..100 {
            let mut visitor = visited.visitor();
            if number % 2 == round % 2 {
                visitor.send(b"GET /healthz HTTP/1.1\r\n");
            }
            silent.push(visitor);
        }
        // Until the server has closed the excess connections, it may refuse new connections.
        wait_until("the server is healthy", || visited.is_healthy());
    }
    // Each round, the server can accept the health check only after closing silent connections. It counts those that it
    // evicts, but not those whose time limit has expired.
    let dropped = visited.client().figure("stats", "dropped-connections").expect("statistics");
    assert_ne!(dropped, "0");
}

/// A reproducible random number generator.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end
    }
}

/// Decodes bytes that arrive in random pieces of at most `max_length` bytes. Returns the decoded requests.
fn decode(bytes: &[u8], max_length: usize, chance: &mut Random) -> Vec<String> {
    let fingerprints = Engine::new(Limits::NONE).fingerprints();
    let limits =
        DecodeLimits { max_job_size: 100, room: 1 << 20, max_packet: 0, fingerprints, extensions: Extensions::ALL };
    let mut dialogue = Dialogue::new(Wire::Http);
    let (mut rest, mut found) = (Vec::new(), Vec::new());
    let mut left = bytes;
    while !left.is_empty() {
        let (piece, behind) = left.split_at(left.len().min(1 + chance.below(max_length)));
        left = behind;
        rest.extend_from_slice(piece);
        let mut input = rest.as_slice();
        while let Some(request) = dialogue.next(&mut input, &limits) {
            if let Dialogue::Http(decoder) = &mut dialogue {
                decoder.accept_body(true);
            }
            found.push(format!("{request:?}"));
            assert!(found.len() <= bytes.len(), "the decoder returns endless requests");
        }
        rest = input.to_vec();
    }
    found
}

#[test]
fn splitting_input_does_not_change_its_meaning() {
    let parts: [&[u8]; 12] = [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /metrics?filter=t HTTP/1.0\r\n\r\n",
        b"POST /api/tubes/t/put HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{\"body\":\"x\"}",
        b"POST /api/tubes/t/kick HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
        b"Host: localhost\r\n",
        b"Content-Length: 7\r\n",
        b"\r\n",
        b"\r\n\r\n",
        b"Expect: 100-continue\r\n",
        b"HEAD /%2f%zz HTTP/1.1\r\n\r\n",
        b"\xff\0",
        b"{\"body\":[[[[[",
    ];
    let mut chance = Random(7);
    for _ in 0..3000 {
        let mut bytes: Vec<u8> =
            (0..1 + chance.below(5)).flat_map(|_| parts[chance.below(parts.len())].to_vec()).collect();
        if chance.below(2) == 0 {
            let at = chance.below(bytes.len());
            bytes[at] = chance.below(256) as u8;
        }
        let whole = decode(&bytes, usize::MAX >> 40, &mut Random(1 << 40));
        for max_length in [1, 9] {
            let pieces = decode(&bytes, max_length, &mut chance);
            assert_eq!(pieces, whole, "{:?}", String::from_utf8_lossy(&bytes));
        }
    }
}

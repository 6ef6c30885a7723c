//! Tests HTTP access checks: hosts, origins, the header required for changes, tokens, and security headers.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use beanpole::internals::protocol::http::{PAGE, SCRIPT_HASH, STYLE_HASH};

use crate::daemon::command;
use crate::visitor::{serve, Visitor};

const RIGHT: &str = "Host: 127.0.0.1:11380\r\nX-Beanpole: 1\r\nContent-Type: application/json\r\n";

/// Sends a put request with the given headers. Returns the status of the reply.
fn put(visitor: &mut Visitor, headers: &str) -> u16 {
    let body = r#"{"body":"x"}"#;
    let length = body.len();
    let request = format!("POST /api/tubes/t/put HTTP/1.1\r\n{headers}Content-Length: {length}\r\n\r\n{body}");
    visitor.send(request.as_bytes());
    visitor.reply().status
}

#[test]
fn a_change_requires_headers_that_other_sites_cannot_send() {
    let visited = serve(|config| config.protocols.http.hosts.push("queue.example".to_owned()));
    let mut visitor = visited.visitor();
    for (headers, status) in [
        (RIGHT.to_owned(), 200),
        (format!("{RIGHT}Origin: http://127.0.0.1:11380\r\n"), 200),
        (RIGHT.replace("127.0.0.1:11380", "queue.example"), 200),
        (RIGHT.replace("application/json", "application/json; charset=utf-8"), 200),
        (RIGHT.replace("Host: 127.0.0.1:11380\r\n", ""), 400),
        (format!("{RIGHT}Host: 127.0.0.1:11380\r\n"), 400),
        (RIGHT.replace("127.0.0.1:11380", "evil.example"), 421),
        (RIGHT.replace("127.0.0.1:11380", "127.0.0.1.evil.example"), 421),
        (format!("{RIGHT}Origin: http://evil.example\r\n"), 403),
        (format!("{RIGHT}Origin: http://127.0.0.1:80\r\n"), 403),
        (format!("{RIGHT}Origin: null\r\n"), 403),
        (RIGHT.replace("X-Beanpole: 1\r\n", ""), 403),
        (RIGHT.replace("application/json", "text/plain"), 415),
        (RIGHT.replace("Content-Type: application/json\r\n", ""), 415),
    ] {
        assert_eq!(put(&mut visitor, &headers), status, "{headers}");
    }
    assert!(visited.get("/api/tubes/t").contains(r#""total-jobs":4,"#), "only permitted requests may put jobs");
}

#[test]
fn foreign_hosts_and_origins_cannot_read() {
    let visited = serve(|_| ());
    let mut visitor = visited.visitor();
    for path in ["/", "/healthz", "/metrics", "/api/server", "/nothing"] {
        for (headers, status) in
            [("Host: evil.example", 421), ("Host: localhost\r\nOrigin: http://evil.example", 403), ("Accept: */*", 400)]
        {
            visitor.send(format!("GET {path} HTTP/1.1\r\n{headers}\r\n\r\n").as_bytes());
            let reply = visitor.reply();
            assert_eq!(reply.status, status, "{path} {headers}");
            assert!(reply.body.starts_with("{\"error\":") && !reply.head.contains("Access-Control"), "{reply:?}");
        }
    }
}

#[test]
fn without_admin_changes_are_refused() {
    let visited = serve(|config| config.protocols.http.admin = false);
    for (path, body) in [
        ("/api/tubes/t/put", r#"{"body":"x"}"#),
        ("/api/tubes/t/kick", "{}"),
        ("/api/tubes/t/pause", "{}"),
        ("/api/tubes/t/clear", "{}"),
        ("/api/tubes/t/move", r#"{"to":"u","state":"ready"}"#),
        ("/api/jobs/1/kick", "{}"),
        ("/api/jobs/1/delete", "{}"),
        ("/api/jobs/1/bury", "{}"),
    ] {
        assert_eq!(visited.post(path, body).0, 403, "{path}");
    }
    assert!(visited.get("/api/server").contains(r#""admin":false"#));
    assert!(visited.get("/api/server").contains(r#""total-jobs":0"#));
}

#[test]
fn every_reply_has_security_headers() {
    let visited = serve(|_| ());
    for path in ["/", "/healthz", "/metrics", "/api/server", "/nothing", "/favicon.ico"] {
        let head = visited.visitor().get(path).head;
        for guard in [
            "X-Content-Type-Options: nosniff",
            "X-Frame-Options: DENY",
            "Referrer-Policy: no-referrer",
            "Cross-Origin-Resource-Policy: same-origin",
            "Content-Security-Policy: default-src 'none';",
            "frame-ancestors 'none'",
            "Cache-Control: no-store",
        ] {
            assert!(head.contains(guard), "{path}: {guard} is missing in {head}");
        }
        assert!(!head.contains("Set-Cookie"), "{path}");
    }
}

/// Computes the SHA-256 digest of `text` in base64, with standard command-line tools.
fn hash(text: &str) -> String {
    let line = "sha256sum | cut -c1-64 | tr a-f A-F | fold -w2 | while read -r byte; do printf \"\\\\$(printf %o 0x$byte)\"; done";
    let run = format!("{line} | base64");
    let mut shell =
        Command::new("sh").args(["-c", &run]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
    shell.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("a shell that reads");
    String::from_utf8(shell.wait_with_output().expect("a shell").stdout).expect("text").trim().to_owned()
}

#[test]
fn the_page_s_policy_permits_only_its_style_and_script() {
    let page = std::str::from_utf8(PAGE).expect("text");
    let policy = serve(|_| ()).visitor().get("/").head;
    for (tag, known) in [("style", STYLE_HASH), ("script", SCRIPT_HASH)] {
        let parts: Vec<&str> = page.split(&format!("<{tag}>")).collect();
        assert_eq!(parts.len(), 2, "one {tag}");
        let text = parts[1].split(&format!("</{tag}>")).next().expect("an end");
        assert_eq!(hash(text), known, "the hash of the {tag} in src/protocol/http/page.rs");
        assert!(policy.contains(&format!("{tag}-src 'sha256-{known}'")), "{policy}");
    }
    // Removes the icon, which is a data URL, and links between the page's views. Neither refers to another server.
    let page = page.replacen("href=\"data:image/svg+xml,", "", 1).replace("href=\"#", "");
    for outside in ["src=", "href=\"", "@import", "url(", "innerHTML", "style=\"", "onclick", "document.write"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

/// Starts the program and reads the first line of its log. If the line contains an HTTP port, calls `visit` with the
/// port and then kills the program. Returns the line, and the exit code if the program has exited by itself.
fn program(options: &[&str], visit: impl FnOnce(&str)) -> (String, Option<i32>) {
    let mut child = command(&["-p", "0"]).args(options).stderr(Stdio::piped()).spawn().expect("the program");
    let mut line = String::new();
    BufReader::new(child.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let port = line.split("http://").nth(1).and_then(|rest| rest.split(':').nth(1)?.split('/').next());
    if let Some(port) = port {
        visit(port);
        child.kill().expect("a process");
    }
    (line.clone(), child.wait().expect("a process").code())
}

#[test]
fn remote_clients_need_a_token() {
    let (log, code) = program(&["--http=0.0.0.0:0"], |_| unreachable!("the program must not listen"));
    assert!(log.contains("needs a token") && code == Some(1), "{log} {code:?}");
    let file = std::env::temp_dir().join(format!("beanpole-token-{}", std::process::id()));
    std::fs::write(&file, "short\n").expect("a file");
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("the token file");
    let path = file.to_str().expect("text").to_owned();
    let (log, code) =
        program(&["--http=127.0.0.1:0", "--http-token", &path], |_| unreachable!("the program must not listen"));
    assert!(log.contains("at least 16") && code == Some(1), "{log} {code:?}");
    let pipe = format!("{path}.pipe");
    nix::unistd::mkfifo(pipe.as_str(), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let (log, code) =
        program(&["--http=127.0.0.1:0", "--http-token", &pipe], |_| unreachable!("the program must not listen"));
    assert!(log.contains("not a regular file") && code == Some(1), "{log} {code:?}");
    std::fs::remove_file(pipe).expect("a pipe");
    std::fs::write(&file, "0123456789abcdef\nsecond line\n").expect("a file");
    let (log, _) = program(&["--http=0.0.0.0:0", "--http-token", &path], |port| {
        let address = format!("127.0.0.1:{port}").parse().expect("an address");
        let mut visitor = Visitor::to(address);
        let get = |visitor: &mut Visitor, path: &str, token: &str| {
            let header = if token.is_empty() { String::new() } else { format!("Authorization: {token}\r\n") };
            visitor.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n").as_bytes());
            visitor.reply()
        };
        for (path, token, status) in [
            ("/", "", 200),
            ("/healthz", "", 200),
            ("/readyz", "", 200),
            ("/metrics", "", 401),
            ("/api/tubes", "", 401),
            ("/api/tubes", "Basic 0123456789abcdef", 401),
            ("/api/tubes", "Bearer 0123456789abcdef", 200),
            ("/metrics", "bearer 0123456789abcdef", 200),
            ("/nothing", "", 401),
        ] {
            let reply = get(&mut visitor, path, token);
            assert_eq!(reply.status, status, "{path} {token}");
            assert_eq!(reply.head.contains("WWW-Authenticate: Bearer"), status == 401, "{path}");
        }
        // A Kubernetes probe sends the address of the pod in the Host header, and no token.
        let page = include_str!("../../man/beanpole-operate.7");
        let probes =
            page.split(".Ss Kubernetes\n").nth(1).and_then(|rest| rest.split(".Ss ").next()).expect("a section");
        let paths: Vec<_> =
            probes.split("httpGet: {path: ").skip(1).filter_map(|rest| rest.split(", port: 11380}").next()).collect();
        assert_eq!(paths, ["/healthz", "/readyz"], "{probes}");
        for (path, host) in paths.iter().zip(["10.244.1.7:11380", "[fd00::7]:11380"]) {
            let mut probe = Visitor::to(address);
            let headers =
                format!("Host: {host}\r\nUser-Agent: kube-probe/1.31\r\nAccept: */*\r\nConnection: close\r\n");
            probe.send(format!("GET {path} HTTP/1.1\r\n{headers}\r\n").as_bytes());
            assert_eq!(probe.reply().status, 200, "{path} {host}");
        }
        // Each wrong guess costs the client a second and a connection.
        for token in ["Bearer 0123456789abcdeg", "Bearer 0123456789abcdef0"] {
            let (mut guesser, start) = (Visitor::to(address), Instant::now());
            let reply = get(&mut guesser, "/api/tubes", token);
            assert!(reply.status == 401 && reply.head.contains("Connection: close"), "{token}");
            assert!(start.elapsed() >= Duration::from_millis(990), "{:?}", start.elapsed());
        }
        let metrics = get(&mut visitor, "/metrics", "bearer 0123456789abcdef");
        assert!(metrics.body.contains("beanpole_auth_failures_total 2"));
        let twice = "Bearer 0123456789abcdef\r\nAuthorization: Bearer 0123456789abcdef";
        assert_eq!(get(&mut visitor, "/api/tubes", twice).status, 400);
    });
    assert!(log.contains("http://0.0.0.0:"), "{log}");
    std::fs::remove_file(file).expect("a file");
}

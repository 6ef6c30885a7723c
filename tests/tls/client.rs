//! Tests the library's client and the subcommands over TLS: certificates, tokens, and error messages.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use beanpole::{Client, ClientError, ClientTls, ClientTlsFiles};

use super::{address, connect, folder, make, path, start, CertificateSpec, EC};
use crate::daemon::{run, Daemon, Ended, Folder, PATIENCE};

/// Starts a server whose access file identifies clients by certificate and by token.
fn guarded(folder: &Folder) -> Daemon {
    make(folder, CertificateSpec { name: "worker", subject: "/CN=worker", alternative: "none", ..EC });
    make(folder, CertificateSpec { name: "server", alternative: "DNS:localhost,IP:127.0.0.1", ..EC });
    let digest: String = hmac_sha256::Hash::hash(b"secret").iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(folder.file("access"), format!("w cert:worker put take\nop token:sha256:{digest} all\n"))
        .expect("a file");
    fs::write(folder.file("token"), "secret\n").expect("a file");
    fs::write(folder.file("guess"), "guess\n").expect("a file");
    let socket = format!("unix:{}", path(folder, "socket"));
    start(folder, &["-l", &socket, "-l", "127.0.0.1:0", "--access", &path(folder, "access")])
}

/// Loads a client's TLS files, including the certificate with the name `own`, if given.
fn files(folder: &Folder, own: Option<&str>) -> ClientTls {
    let own = |ending| own.map(|name| folder.file(&format!("{name}.{ending}")));
    let mut files = ClientTlsFiles::default();
    files.authority = Some(folder.file("ca.pem"));
    (files.certificate, files.key) = (own("pem"), own("key"));
    ClientTls::load(&files).expect("valid files")
}

fn port(address: &str) -> u16 {
    address.rsplit_once(':').expect("a port").1.parse().expect("a number")
}

#[test]
fn the_library_s_client_works_over_tls() {
    let folder = folder();
    let daemon = guarded(&folder);
    let port = port(&address(&daemon, ""));
    for host in ["localhost", "127.0.0.1"] {
        let mut client = Client::connect_tls(host, port, &files(&folder, None), PATIENCE).expect("a connection");
        match client.authenticate(b"guess") {
            Err(ClientError::Refused(line)) => assert_eq!(line, "UNAUTHORIZED"),
            other => panic!("{other:?}"),
        }
        let mut client = Client::connect_tls(host, port, &files(&folder, None), PATIENCE).expect("a connection");
        client.authenticate(b"secret").expect("the token");
        let body = vec![b'x'; 60_000];
        let id = client.put(&body, 0, 0, 60).expect("a job");
        assert_eq!(client.reserve(Some(0)).expect("a reply").expect("a job").body, body);
        client.delete(id).expect("the reserved job");
        client.set_timeout(Some(Duration::from_millis(50))).expect("an option");
        client.send(b"reserve\r\n").expect("a peer that reads");
        let late = client.reply().expect_err("a timeout").kind();
        assert!(matches!(late, std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut), "{late:?}");
    }
    let mut client = Client::connect_tls("localhost", port, &files(&folder, None), PATIENCE).expect("a connection");
    client.authenticate(b"secret").expect("the token");
    let closer = client.closer().expect("a closer");
    let waits = std::thread::spawn(move || client.reserve(None));
    closer.close();
    assert!(waits.join().expect("an end").is_err());
}

fn word(server: &str, words: &[&str]) -> Ended {
    run(&[&[words[0], "-s", server], &words[1..]].concat())
}

#[test]
fn subcommands_use_tls_and_authenticate() {
    let folder = folder();
    let daemon = guarded(&folder);
    let server = format!("beanstalks://localhost:{}", port(&address(&daemon, "")));
    let (authority, token) = (path(&folder, "ca.pem"), path(&folder, "token"));
    let (certificate, key) = (path(&folder, "worker.pem"), path(&folder, "worker.key"));
    let by_token = ["--cacert", authority.as_str(), "--token-file", token.as_str()];
    let done = |words: &[&str], out: &str| {
        let ended = word(&server, &[words, &by_token].concat());
        assert_eq!((ended.code, ended.out.as_str(), ended.err.as_str()), (0, out, ""), "{words:?}");
    };
    done(&["put", "-t", "mail", "hello"], "1\n");
    done(&["peek", "-t", "mail"], "hello");
    let socket = format!("unix:{}", path(&folder, "socket"));
    let ended = word(&socket, &["stats", "mail", "--token-file", &token]);
    assert!(ended.code == 0 && ended.out.contains("current-jobs-ready"), "{ended:?}");
    // This server requires client certificates.
    let more = ["--tls-client-ca", &authority, "--access", &path(&folder, "access")];
    let strict = start(&folder, &more);
    let server = format!("beanstalks://127.0.0.1:{}", port(&address(&strict, "")));
    let own = ["--cacert", authority.as_str(), "--cert", certificate.as_str(), "--key", key.as_str()];
    let ended = word(&server, &[&["put", "x"], &own[..]].concat());
    assert_eq!((ended.code, ended.out.as_str()), (0, "1\n"), "{ended:?}");
    let ended = word(&server, &[&["list", "default"], &own[..]].concat());
    assert!(ended.code == 1 && ended.err.contains("permission denied by the server"), "{ended:?}");
    let ended = word(&server, &["put", "x", "--cacert", &authority]);
    assert!(ended.code == 3 && ended.err.contains("the server wants a certificate"), "{ended:?}");
}

#[test]
fn each_problem_has_its_own_message() {
    let folder = folder();
    let daemon = guarded(&folder);
    make(&folder, CertificateSpec { name: "other", by: "other", subject: "/CN=other", alternative: "", ..EC });
    make(&folder, CertificateSpec { name: "foreign", by: "other", subject: "/CN=worker", alternative: "none", ..EC });
    let port = port(&address(&daemon, ""));
    let (secure, plain) = (format!("beanstalks://localhost:{port}"), daemon.address().to_string());
    let at = |name: &str| path(&folder, name);
    let (ca, other, token, guess) = (at("ca.pem"), at("other.pem"), at("token"), at("guess"));
    let (missing, worker, foreign) = (at("missing"), at("worker.pem"), at("other.key"));
    let named = [&secure, "--cacert", &ca];
    for (words, code, text) in [
        (vec![&*secure, "--cacert", &other], 3, "no authority that is trusted has signed the server's certificate"),
        (vec![&*secure, "--cacert", &missing], 1, "missing cannot be read"),
        (vec![&*secure, "--cacert", &token], 1, "token has no certificate in PEM"),
        ([&named[..], &["--cert", &worker]].concat(), 1, "worker.pem has no private key in PEM"),
        ([&named[..], &["--cert", &worker, "--key", &foreign]].concat(), 1, "is not that of"),
        ([&named[..], &["--key", &foreign]].concat(), 5, "--key requires --cert"),
        (named.to_vec(), 1, "the server requires authentication; use --token-file or --cert"),
        ([&named[..], &["--token-file", &guess]].concat(), 1, "the server rejected the token"),
        ([&named[..], &["--token-file", &missing]].concat(), 1, "missing: No such file"),
        (vec![&*plain, "--token-file", &token], 5, "--token-file requires TLS"),
        (vec![&*plain, "--cacert", &ca], 5, "--cacert requires a server with TLS: -s beanstalks://HOST:PORT"),
        (vec!["beanstalks://", "--cacert", &ca], 5, "invalid server"),
    ] {
        let ended = word(words[0], &[&["tubes"], &words[1..]].concat());
        assert_eq!((ended.code, ended.err.lines().count(), ended.out.as_str()), (code, 1, ""), "{words:?}: {ended:?}");
        assert!(ended.err.contains(text) && !ended.err.contains("secret"), "no {text}: {ended:?}");
    }
    // Tests a wrong server name, an expired certificate, a peer without TLS, and a client without TLS.
    make(&folder, CertificateSpec { name: "server", alternative: "DNS:queue.example", ..EC });
    let elsewhere = start(&folder, &[]);
    make(&folder, CertificateSpec { name: "server", alternative: "DNS:localhost", expired: true, ..EC });
    let late = start(&folder, &[]);
    let talks = TcpListener::bind("127.0.0.1:0").expect("a port");
    let talking = talks.try_clone().expect("a copy of the listener");
    let talker = std::thread::spawn(move || {
        let (mut stream, _) = talking.accept().expect("a client");
        stream.write_all(b"UNKNOWN_COMMAND\r\n").expect("a peer that reads");
        let _ = stream.read(&mut [0; 1000]);
    });
    for (server, text) in [
        (address(&elsewhere, ""), "the server's certificate is for another name"),
        (address(&late, ""), "the server's certificate"),
        (talks.local_addr().expect("an address").to_string(), "what answers there does not speak TLS"),
    ] {
        let server = format!("beanstalks://localhost:{}", super::client::port(&server));
        let ended = word(&server, &["tubes", "--cacert", &ca]);
        assert_eq!((ended.code, ended.err.lines().count()), (3, 1), "{ended:?}");
        assert!(ended.err.contains(text), "no {text}: {ended:?}");
    }
    talker.join().expect("a thread that does not panic");
    let ended = word(&format!("localhost:{port}"), &["tubes"]);
    assert!(ended.code == 3 && ended.err.lines().count() == 1, "without TLS: {ended:?}");
}

#[test]
fn a_silent_server_times_out_during_the_handshake() {
    let folder = folder();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = format!("beanstalks://{}", silent.local_addr().expect("an address"));
    let ended = word(&server, &["tubes", "--timeout", "1", "--cacert", &path(&folder, "ca.pem")]);
    assert!(ended.code == 3 && ended.err.contains("no answer within 1 s"), "{ended:?}");
}

#[test]
fn https_identifies_clients_by_certificate_and_token() {
    let folder = folder();
    make(&folder, CertificateSpec { name: "eye", subject: "/CN=eye", alternative: "none", ..EC });
    let digest: String = hmac_sha256::Hash::hash(b"secret").iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(folder.file("access"), format!("eye cert:eye look\nop token:sha256:{digest} all\n")).expect("a file");
    let certificate = ["--tls-cert", &path(&folder, "server.pem"), "--tls-key", &path(&folder, "server.key")];
    let http = ["--http=tls:127.0.0.1:0", "--http-admin", "--access", &path(&folder, "access"), "-l", "127.0.0.1:0"];
    let authority = path(&folder, "ca.pem");
    for (asks, names) in [(false, [None, None]), (true, [Some("eye"), Some("eye")])] {
        let more: &[&str] = if asks { &["--tls-client-ca", &authority] } else { &[] };
        let daemon = Daemon::start(&[&certificate, &http[..], more].concat());
        let name = daemon.names().iter().find(|name| name.starts_with("https://")).cloned().expect("an HTTPS address");
        let at = name.trim_start_matches("https://").trim_end_matches('/');
        let ask = |own: Option<&str>, line: &str, token: &str| {
            let mut link = connect(&folder, at, own);
            let body = "{\"body\":\"x\"}";
            let change =
                format!("X-Beanpole: 1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n", body.len());
            let (change, body) = if line.starts_with("POST") { (change.as_str(), body) } else { ("", "") };
            let text = format!("{line} HTTP/1.1\r\nHost: localhost\r\n{token}{change}Connection: close\r\n\r\n{body}");
            link.write_all(text.as_bytes()).expect("a peer that reads");
            let mut answer = String::new();
            link.read_to_string(&mut answer).expect("a complete response");
            answer.split(' ').nth(1).expect("a status").to_owned()
        };
        let token = "Authorization: Bearer secret\r\n";
        assert_eq!(ask(names[0], "GET /healthz", ""), "200");
        assert_eq!(ask(names[0], "GET /api/tubes", ""), if asks { "200" } else { "401" });
        assert_eq!(ask(names[1], "POST /api/tubes/a/put", ""), if asks { "403" } else { "401" });
        assert_eq!(ask(names[1], "POST /api/tubes/a/put", token), "200");
        assert_eq!(ask(names[0], "GET /metrics", token), "200");
        let mut plain = TcpStream::connect(at).expect("a connection");
        plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("a peer that reads");
        let mut answer = Vec::new();
        let _ = plain.read_to_end(&mut answer);
        assert!(!String::from_utf8_lossy(&answer).contains("ok"), "without TLS");
    }
}

/// Sends jobs to the server's own HTTPS port, which refuses the requests.
#[test]
fn jobs_are_sent_over_tls() {
    let folder = folder();
    make(&folder, CertificateSpec { name: "other", by: "other", subject: "/CN=other", alternative: "", ..EC });
    let [certificate, key, authority, other] =
        ["server.pem", "server.key", "ca.pem", "other.pem"].map(|name| path(&folder, name));
    let arguments = ["--tls-cert", &certificate, "--tls-key", &key, "--http=tls:127.0.0.1:0", "-l", "127.0.0.1:0"];
    let daemon = Daemon::start(&arguments);
    let name = daemon.names().iter().find(|name| name.starts_with("https://")).cloned().expect("an HTTPS address");
    let url = format!("https://localhost:{}/jobs", port(name.trim_end_matches('/')));
    let server = daemon.address().to_string();
    assert_eq!(word(&server, &["put", "x"]).code, 0);
    let ended = word(&server, &["work", "--once", "--url", &url, "--cacert", &authority]);
    assert!(ended.code == 1 && ended.err.contains("job 1 of default: HTTP 404: "), "{ended:?}");
    let ended = word(&server, &["work", "--once", "--url", &url, "--cacert", &other]);
    assert!(ended.code == 3 && ended.err.contains("no authority that is trusted"), "{ended:?}");
    let ended = word(&server, &["work", "--once", "--url", "http://localhost/", "--cacert", &authority]);
    assert!(ended.code == 5 && ended.err.contains("--cacert requires a server with TLS"), "{ended:?}");
}

//! Tests certificates of servers and clients, and the rights of clients with certificates.

use std::fs;

use super::{address, ask, connect, folder, make, path, s_client, start, CertificateSpec, EC};
use crate::daemon::Daemon;

const TALK: &str = "use a\r\nput 0 0 60 5\r\nhello\r\nwatch a\r\nreserve\r\nquit\r\n";

fn talks(output: &str) -> bool {
    ["USING a", "INSERTED ", "WATCHING 2", "RESERVED ", "hello"].iter().all(|word| output.contains(word))
}

#[test]
fn both_versions_with_each_kind_of_key_and_a_chain() {
    let folder = folder();
    make(&folder, CertificateSpec { name: "rsa", rsa: true, ..EC });
    make(&folder, CertificateSpec { name: "between", subject: "/CN=between", alternative: "", ..EC });
    make(&folder, CertificateSpec { name: "leaf", by: "between", ..EC });
    let chain = [
        fs::read(folder.file("leaf.pem")).expect("a certificate"),
        fs::read(folder.file("between.pem")).expect("a certificate"),
    ];
    fs::write(folder.file("chain.pem"), chain.concat()).expect("a file");
    for (certificate, key) in [("server.pem", "server.key"), ("rsa.pem", "rsa.key"), ("chain.pem", "leaf.key")] {
        let (certificate, key) = (path(&folder, certificate), path(&folder, key));
        let daemon = Daemon::start(&["-l", "tls:127.0.0.1:0", "--tls-cert", &certificate, "--tls-key", &key]);
        for version in ["-tls1_2", "-tls1_3"] {
            let arguments =
                [version, "-CAfile", "ca.pem", "-verify_return_error", "-verify_hostname", "localhost", "-quiet"];
            let output = s_client(&folder, &address(&daemon, ""), &arguments, TALK);
            assert!(talks(&output), "{version} {certificate}: {output}");
        }
        let output = s_client(&folder, &address(&daemon, ""), &["-tls1_1", "-quiet"], TALK);
        assert!(!output.contains("USING"), "{output}");
    }
}

#[test]
fn no_protocol_is_negotiated_and_nothing_is_resumed() {
    let folder = folder();
    let daemon = start(&folder, &[]);
    let output = s_client(&folder, &address(&daemon, ""), &["-alpn", "h2,http/1.1"], "quit\r\n");
    assert!(output.contains("No ALPN negotiated") && !output.contains("TLS session ticket:"), "{output}");
}

#[test]
fn the_server_chooses_the_cheapest_cipher() {
    let folder = folder();
    let daemon = start(&folder, &[]);
    let processor = fs::read_to_string("/proc/cpuinfo").expect("a file");
    let has_aes = processor.split_whitespace().any(|word| word == "aes");
    let ciphers = "TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
    let old = "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-CHACHA20-POLY1305";
    for (version, list, list_of) in [("-tls1_3", "-ciphersuites", ciphers), ("-tls1_2", "-cipher", old)] {
        let output = s_client(&folder, &address(&daemon, ""), &[version, list, list_of], "quit\r\n");
        let chosen = output.lines().find(|line| line.contains("Cipher is")).unwrap_or_else(|| panic!("{output}"));
        assert!(chosen.contains(if has_aes { "128" } else { "CHACHA20" }), "{chosen}");
    }
}

#[test]
fn tls_ports_ignore_plain_clients_and_plain_ports_stay_plain() {
    let folder = folder();
    let daemon = start(&folder, &["-l", "127.0.0.1:0"]);
    let mut plain = std::net::TcpStream::connect(daemon.address()).expect("a connection");
    assert_eq!(ask(&mut plain, "list-tube-used").expect("a reply"), "USING default");
    let mut wrong = std::net::TcpStream::connect(address(&daemon, "")).expect("a connection");
    assert!(!ask(&mut wrong, "list-tube-used").unwrap_or_default().contains("USING"));
    daemon.wait_log("the TLS handshake failed");
}

#[test]
fn a_certificate_identifies_a_client() {
    let folder = folder();
    make(
        &folder,
        CertificateSpec { name: "mailer", subject: "/CN=ignored", alternative: "DNS:Mailer,DNS:second", ..EC },
    );
    make(&folder, CertificateSpec { name: "common", subject: "/CN=worker", alternative: "none", ..EC });
    make(&folder, CertificateSpec { name: "nobody", subject: "/CN=nobody", alternative: "none", ..EC });
    make(&folder, CertificateSpec { name: "expired", subject: "/CN=worker", alternative: "none", expired: true, ..EC });
    make(&folder, CertificateSpec { name: "other", by: "other", subject: "/CN=other", alternative: "", ..EC });
    make(&folder, CertificateSpec { name: "foreign", by: "other", subject: "/CN=worker", alternative: "none", ..EC });
    fs::write(folder.file("access"), "m cert:mailer put:mail*\nw cert:worker take\n").expect("a file");
    let (access, authority) = (path(&folder, "access"), path(&folder, "ca.pem"));
    let options =
        ["--access", &access, "--tls-client-ca", &authority, "--gearman=tls:127.0.0.1:0", "--workq=tls:127.0.0.1:0"];
    let daemon = start(&folder, &options);
    let at = address(&daemon, "");
    let mut mailer = connect(&folder, &at, Some("mailer"));
    assert_eq!(ask(&mut mailer, "use mail.x").expect("a reply"), "USING mail.x");
    assert_eq!(ask(&mut mailer, "watch mail.x").expect("a reply"), "FORBIDDEN");
    let mut worker = connect(&folder, &at, Some("common"));
    assert_eq!(ask(&mut worker, "watch mail.x").expect("a reply"), "WATCHING 2");
    let mut nobody = connect(&folder, &at, Some("nobody"));
    assert_eq!(ask(&mut nobody, "watch mail.x").expect("a reply"), "UNAUTHORIZED");
    for refused in [None, Some("expired"), Some("foreign")] {
        let answer = ask(&mut connect(&folder, &at, refused), "list-tube-used");
        assert!(!answer.as_ref().is_ok_and(|line| !line.is_empty()), "{refused:?}: {answer:?}");
    }
    let mut worker = connect(&folder, &address(&daemon, "Gearman"), Some("common"));
    assert!(ask(&mut worker, "version").expect("a reply").starts_with("OK "));
    assert!(ask(&mut worker, "status").expect("a reply").starts_with("ERR FORBIDDEN"));
    let mut leaser = connect(&folder, &address(&daemon, "Workq"), Some("common"));
    assert_eq!(ask(&mut leaser, "lease q 0").expect("a reply"), "-TIMEOUT");
}

/// The cost of a search for a path grows exponentially with the number of certificates.
#[test]
fn three_intermediate_certificates_of_a_client_are_considered() {
    let folder = folder();
    make(&folder, CertificateSpec { name: "between", subject: "/CN=between", alternative: "", ..EC });
    make(&folder, CertificateSpec { name: "leaf", by: "between", alternative: "none", ..EC });
    make(&folder, CertificateSpec { name: "other", by: "other", subject: "/CN=between", alternative: "", ..EC });
    let daemon = start(&folder, &["--tls-client-ca", &path(&folder, "ca.pem")]);
    let read = |name: &str| fs::read(folder.file(name)).expect("a file");
    fs::write(folder.file("chain.key"), read("leaf.key")).expect("a file");
    for (others, is_accepted) in [(0, true), (2, true), (3, false), (100, false)] {
        let chain = [read("leaf.pem"), read("other.pem").repeat(others), read("between.pem")];
        fs::write(folder.file("chain.pem"), chain.concat()).expect("a file");
        let answer = ask(&mut connect(&folder, &address(&daemon, ""), Some("chain")), "list-tube-used");
        assert_eq!(answer.is_ok_and(|line| line == "USING default"), is_accepted, "{others}");
    }
}

#[test]
fn a_token_is_accepted_over_tls() {
    let folder = folder();
    let digest: String = hmac_sha256::Hash::hash(b"secret").iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(folder.file("access"), format!("w token:sha256:{digest} take\n")).expect("a file");
    let daemon = start(&folder, &["--access", &path(&folder, "access")]);
    let mut client = connect(&folder, &address(&daemon, ""), None);
    assert_eq!(ask(&mut client, "auth secret").expect("a reply"), "AUTHENTICATED");
    assert_eq!(ask(&mut client, "watch x").expect("a reply"), "WATCHING 2");
    let mut client = connect(&folder, &address(&daemon, ""), None);
    assert_eq!(ask(&mut client, "auth wrong").expect("a reply"), "UNAUTHORIZED");
    assert!(!daemon.log().contains("secret") && !daemon.log().contains("auth wrong"), "{}", daemon.log());
}

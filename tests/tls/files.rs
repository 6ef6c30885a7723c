//! Tests certificate files that are missing, invalid, or changed while the server runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::{address, ask, connect, folder, make, path, replace, start, CertificateSpec, EC};
use crate::daemon::{run, Daemon, Signal};

#[test]
fn each_problem_has_its_own_message() {
    let folder = folder();
    make(&folder, CertificateSpec { name: "other", ..EC });
    fs::write(folder.file("empty"), "").expect("a file");
    fs::write(folder.file("text"), "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n").expect("a file");
    let at = |name: &str| path(&folder, name);
    let (certificate, key, other) = (at("server.pem"), at("server.key"), at("other.key"));
    let (missing, empty, text) = (at("missing"), at("empty"), at("text"));
    let tls = ["-l", "tls:127.0.0.1:0"];
    for (options, code, words) in [
        (vec!["--tls-cert", &missing], 1, format!("{missing} cannot be read")),
        (vec!["--tls-cert", &certificate, "--tls-key", &missing], 1, format!("{missing} cannot be read")),
        (vec!["--tls-cert", &certificate], 1, format!("{certificate} has no private key in PEM")),
        (
            vec!["--tls-cert", &certificate, "--tls-key", &other],
            1,
            format!("the key {other} is not that of {certificate}"),
        ),
        (vec!["--tls-cert", &empty, "--tls-key", &key], 1, format!("{empty} has no certificate in PEM")),
        (vec!["--tls-cert", &text, "--tls-key", &key], 1, format!("{text} has no certificate that is whole")),
        (
            vec!["--tls-cert", &certificate, "--tls-key", &key, "--tls-client-ca", &empty],
            1,
            format!("{empty} has no certificate in PEM"),
        ),
        (vec![], 5, "a tls: address requires --tls-cert".to_owned()),
        (vec!["--tls-key", &key], 5, "require --tls-cert".to_owned()),
    ] {
        let ended = run(&[&tls[..], &options].concat());
        assert_eq!((ended.code, ended.err.lines().count()), (code, 1), "{ended:?}");
        assert!(ended.err.contains(&words), "no {words}: {ended:?}");
    }
    if nix::unistd::geteuid().is_root() {
        return;
    }
    fs::set_permissions(folder.file("server.key"), fs::Permissions::from_mode(0o0)).expect("the key file");
    let ended = run(&[&tls[..], &["--tls-cert", &certificate, "--tls-key", &key]].concat());
    assert!(ended.code == 1 && ended.err.contains("Permission denied"), "{ended:?}");
}

/// Opening a FIFO for reading blocks, even if a signal arrives, until another process opens the FIFO for writing.
#[test]
fn a_pipe_instead_of_a_file_blocks_nothing() {
    for name in ["server.pem", "server.key"] {
        let folder = folder();
        let daemon = start(&folder, &[]);
        let saved = fs::read(folder.file(name)).expect("a file");
        fs::remove_file(folder.file(name)).expect("a file");
        nix::unistd::mkfifo(&folder.file(name), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        daemon.signal(Signal::SIGHUP);
        daemon.wait_log(&format!("{} cannot be read: not a regular file", path(&folder, name)));
        assert_eq!(
            ask(&mut connect(&folder, &address(&daemon, ""), None), "list-tube-used").expect("a reply"),
            "USING default"
        );
        let options = ["--tls-cert", &path(&folder, "server.pem"), "--tls-key", &path(&folder, "server.key")];
        let ended = run(&[&["-l", "tls:127.0.0.1:0"][..], &options].concat());
        assert!(ended.code == 1 && ended.err.contains("not a regular file"), "{ended:?}");
        fs::remove_file(folder.file(name)).expect("a pipe");
        fs::write(folder.file(name), saved).expect("a file");
        daemon.signal(Signal::SIGHUP);
        daemon.wait_log("configuration files reloaded");
    }
}

#[test]
fn an_expired_certificate_causes_a_warning() {
    let folder = folder();
    make(&folder, CertificateSpec { name: "server", expired: true, ..EC });
    let daemon = start(&folder, &[]);
    assert!(daemon.log().contains("has expired") || daemon.log().contains("is not valid yet"), "{}", daemon.log());
}

#[test]
fn the_key_and_the_certificate_can_share_a_file() {
    let folder = folder();
    let both =
        [fs::read(folder.file("server.pem")).expect("a file"), fs::read(folder.file("server.key")).expect("a file")];
    fs::write(folder.file("both.pem"), both.concat()).expect("a file");
    let daemon = Daemon::start(&["-l", "tls:127.0.0.1:0", "--tls-cert", &path(&folder, "both.pem")]);
    assert_eq!(
        ask(&mut connect(&folder, &address(&daemon, ""), None), "list-tube-used").expect("a reply"),
        "USING default"
    );
}

#[test]
fn sighup_loads_a_new_certificate_and_drops_no_connection() {
    let folder = folder();
    let daemon = start(&folder, &[]);
    let at = address(&daemon, "");
    let mut old = connect(&folder, &at, None);
    assert_eq!(ask(&mut old, "watch x").expect("a reply"), "WATCHING 2");
    // The new certificate is signed by another authority. Clients that trust only the old authority must refuse it. The
    // server must continue to serve existing connections.
    make(&folder, CertificateSpec { name: "new", by: "new", subject: "/CN=new", alternative: "", ..EC });
    make(&folder, CertificateSpec { name: "fresh", by: "new", ..EC });
    replace(&folder.file("fresh.pem"), &folder.file("server.pem"));
    daemon.signal(Signal::SIGHUP);
    // The key file still belongs to the old certificate.
    daemon.wait_log("is not that of");
    assert_eq!(ask(&mut connect(&folder, &at, None), "list-tube-used").expect("a reply"), "USING default");
    replace(&folder.file("fresh.key"), &folder.file("server.key"));
    daemon.signal(Signal::SIGHUP);
    daemon.wait_log("configuration files reloaded");
    assert!(ask(&mut connect(&folder, &at, None), "list-tube-used").is_err());
    replace(&folder.file("new.pem"), &folder.file("ca.pem"));
    assert_eq!(ask(&mut connect(&folder, &at, None), "list-tube-used").expect("a reply"), "USING default");
    assert_eq!(ask(&mut old, "watch y").expect("a reply"), "WATCHING 3");
}

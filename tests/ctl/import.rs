//! Tests imports in which the server refuses commands, or in which a line is invalid.

use crate::daemon::{Ended, Folder};
use crate::support::Server;

/// Starts a server whose clients have only `rights`.
fn with_rights(folder: &Folder, rights: &str) -> Server {
    let file = folder.file("access");
    std::fs::write(&file, format!("* none {rights}\n")).expect("a file");
    Server::beanpole(&["--access", file.to_str().expect("a plain path")])
}

fn holds(ended: &Ended, parts: &[&str]) {
    for part in parts {
        assert!(ended.err.contains(part), "{part}: {}", ended.err);
    }
}

#[test]
fn a_job_of_a_refused_tube_is_not_put_into_another() {
    let folder = Folder::new();
    let few = (Server::beanpole(&["--max-tubes", "3"]), ["t1", "t2", "t3", "t4"], "use: ");
    let unused = (with_rights(&folder, "put:t* look:t*"), ["t1", "t2", "u3", "u4"], "use: permission denied");
    let denied = (with_rights(&Folder::new(), "put:t* look"), ["t1", "t2", "u3", "u4"], "put: permission denied");
    for (server, tubes, problem) in [few, unused, denied] {
        let line = |tube: &&str| format!("{{\"tube\":\"{tube}\",\"body\":\"of {tube}\"}}\n");
        let lines: String = tubes.iter().chain(&tubes).map(line).collect();
        let ended = server.feed(&["import"], lines.as_bytes());
        holds(&ended, &[3, 4, 7, 8].map(|number| format!("line {number}: {problem}")).each_ref().map(String::as_str));
        holds(&ended, &["imported 4 jobs, 0 of them buried; 4 lines were refused"]);
        assert_eq!(ended.code, 1);
        let export = server.ok(&["export"]);
        for tube in tubes {
            let of_tube: Vec<&str> = export.lines().filter(|line| line.contains(&format!("of {tube}\""))).collect();
            assert!(of_tube.iter().all(|line| line.contains(&format!("\"tube\":\"{tube}\""))), "{export}");
        }
    }
}

#[test]
fn a_long_invalid_name_is_cut() {
    let server = Server::beanpole(&[]);
    let line = format!("{{\"tube\":\"{}\",\"body\":\"x\"}}\n", "n".repeat(70_000));
    let ended = server.feed(&["import"], line.as_bytes());
    holds(&ended, &["line 1: invalid tube name: \"nnn", "nnn\u{2026}\n"]);
    assert!(ended.code == 1 && ended.err.len() < 400, "{}", ended.err.len());
}

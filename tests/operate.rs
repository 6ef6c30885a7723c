//! Runs the backup and restore commands of beanpole-operate(7) verbatim, and compares its alerts with the alert rules.

mod daemon;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use daemon::{Daemon, Folder};

/// Replaces systemctl(1) and mv(1). `stop` stops the server with the process ID `$PID`. The test itself starts the
/// server again. Unless `stop` has also stopped the socket, a client starts another server as soon as mv(1) has moved
/// the directory `$DIR`.
const COMMANDS: &str = r#"listening=1
systemctl() {
    if [ "$1" = stop ]; then
        case "$* " in *" beanpole.socket "*) listening= ;; esac
        kill -TERM "$PID"
        while [ -e "/proc/$PID/exe" ]; do sleep 0.05; done
    fi
}
mv() {
    command mv "$@" && { [ -z "$listening" ] || mkdir "$DIR"; }
}
"#;

/// Returns the code blocks of the section BACKUP AND RESTORE. In the blocks, `root` replaces `/var/lib`, and its
/// subdirectory `copies` replaces `/var/backups`.
fn commands(root: &Folder) -> Vec<String> {
    let page = std::fs::read_to_string("man/beanpole-operate.7").expect("the page");
    let text = page.split(".Sh BACKUP AND RESTORE\n").nth(1).expect("the section").split("\n.Sh ").next().unwrap();
    let blocks = text.split(".Bd -literal -offset indent\n").skip(1);
    let root = root.file("").to_str().expect("a name").trim_end_matches('/').to_owned();
    blocks
        .map(|block| block.split(".Ed").next().unwrap().replace("\\e", "\\"))
        .map(|block| {
            block.replace("/var/lib/", &format!("{root}/")).replace("/var/backups/", &format!("{root}/copies/"))
        })
        .collect()
}

/// Returns `true` if the commands succeeded, and their error messages.
fn attempt(block: &str, root: &Folder, daemon: &Daemon) -> (bool, String) {
    let script = format!("set -eu\n{COMMANDS}{block}");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).env("PATH", daemon::path()).env("PID", daemon.pid().to_string());
    let output = command.env("DIR", root.file("beanpole")).env("LC_ALL", "C").output().expect("a shell");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn run(block: &str, root: &Folder, daemon: &Daemon) {
    let (well, errors) = attempt(block, root, daemon);
    assert!(well, "{errors}");
}

fn serve(folder: &Path) -> Daemon {
    Daemon::start(&["-l", "127.0.0.1:0", "-b", folder.to_str().expect("a name")])
}

#[test]
fn the_documented_backup_can_be_restored() {
    let root = Folder::new();
    let copies = root.file("copies");
    std::fs::create_dir(&copies).expect("a directory");
    let [backup, restore, ..] = &commands(&root)[..] else { panic!("expected two code blocks") };
    let folder = root.file("beanpole");
    let daemon = serve(&folder);
    let mut client = daemon.client();
    let kept: Vec<u64> = (0..3).map(|_| client.put(b"kept", 0, 0, 60).expect("a job")).collect();
    // Creates 20 older backups. The commands must keep only the newest 14 backups, including the one that they create.
    let copies = copies.join("beanpole");
    for day in 1..=20 {
        std::fs::create_dir_all(copies.join(format!("2001-01-{day:02}T000000"))).expect("a directory");
    }
    run(backup, &root, &daemon);
    let mut names: Vec<_> =
        std::fs::read_dir(&copies).expect("a directory").map(|one| one.unwrap().file_name()).collect();
    names.sort();
    assert_eq!((names.len(), names[0].to_str()), (14, Some("2001-01-08T000000")));
    let later = client.put(b"later", 0, 0, 60).expect("a job");
    client.delete(kept[0]).expect("a job");
    run(restore, &root, &daemon);
    drop(daemon);
    let daemon = serve(&folder);
    let mut client = daemon.client();
    let found = kept.iter().filter(|id| client.peek(**id).is_ok_and(|job| job.body == b"kept")).count();
    assert_eq!(found, 3, "the jobs must be those of the backup");
    assert!(client.peek(later).is_err());
    let before = serve(&root.file("beanpole.before"));
    assert_eq!(before.client().peek(later).expect("a job").body, b"later");
}

/// If the directory already exists again, the commands must not mix the backup with its files.
#[test]
fn a_restore_fails_if_a_server_uses_the_directory_again() {
    let root = Folder::new();
    let [backup, restore, ..] = &commands(&root)[..] else { panic!("expected two code blocks") };
    let folder = root.file("beanpole");
    let daemon = serve(&folder);
    daemon.client().put(b"kept", 0, 0, 60).expect("a job");
    run(backup, &root, &daemon);
    let (well, errors) = attempt(&restore.replace("beanpole.socket ", ""), &root, &daemon);
    assert!(!well && errors.contains("File exists"), "{errors}");
    assert_eq!(std::fs::read_dir(&folder).expect("a directory").count(), 0);
    // A second attempt must not move the directory into the one that the first attempt has moved.
    std::fs::write(folder.join("newer"), "").expect("a file");
    let (well, errors) = attempt(restore, &root, &daemon);
    assert!(!well && folder.join("newer").exists(), "{errors}");
}

#[test]
fn each_alert_is_described() {
    let page = std::fs::read_to_string("man/beanpole-operate.7").expect("the page");
    let section = page.split("\n.Sh ALERTS\n").nth(1).and_then(|rest| rest.split("\n.Sh ").next()).expect("ALERTS");
    let heads = section.lines().filter_map(|line| line.strip_prefix(".It "));
    let described: Vec<&str> = heads.flat_map(|head| head.split(" , ")).collect();
    let rules = std::fs::read_to_string("pkg/prometheus/beanpole.rules.yml").expect("the rules");
    let names: BTreeSet<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(!names.is_empty() && described.len() == names.len(), "{described:?}");
    assert_eq!(described.into_iter().collect::<BTreeSet<&str>>(), names);
}

//! Tests the binlog options: jobs survive a restart, a missing directory is created, the files belong to the server's
//! user, and an unusable directory causes beanstalkd's exit code.

use std::fs;
use std::os::unix::fs::{chown, MetadataExt, PermissionsExt};
use std::path::Path;

use super::daemon::{run, Daemon, Folder, Signal, PATIENCE};
use super::is_root;
use super::user::nobody;

/// beanstalkd's exit code for a directory that cannot be used, for example because another server has locked it.
const NO_FOLDER: i32 = 10;

fn stops(daemon: &Daemon) {
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(PATIENCE), 0);
}

fn name(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

#[test]
fn jobs_survive_a_restart_in_every_sync_mode() {
    for options in [&[][..], &["-f0", "-s", "4096"], &["-f", "100", "--strict"], &["-Fs1"]] {
        let folder = Folder::new();
        let folder = folder.file("");
        let arguments = [&["-b", name(&folder)], options].concat();
        for round in 1..=2 {
            let daemon = Daemon::start(&arguments);
            let mut client = daemon.client();
            assert_eq!(client.put(format!("job {round}").as_bytes(), 0, 0, 60).unwrap(), round, "{options:?}");
            let job = client.peek(1).unwrap();
            assert_eq!(job.body, b"job 1", "{options:?}");
            stops(&daemon);
        }
    }
}

#[test]
fn binlog_options_without_a_directory_create_no_binlog() {
    let daemon = Daemon::start(&["-f0", "-s", "1"]);
    daemon.client().put(b"x", 0, 0, 60).unwrap();
    stops(&daemon);
}

#[test]
fn a_file_instead_of_a_directory_exits_with_10() {
    let folder = Folder::new();
    let (missing, file, socket) = (folder.file("missing/deep"), folder.file("file"), folder.file("s"));
    fs::write(&file, "precious").unwrap();
    let listen = format!("unix:{}", socket.display());
    for path in [&missing, &file] {
        let ended = run(&["-b", name(path), "-l", &listen]);
        ended.failed(NO_FOLDER, &[" ERROR ", name(path)]);
        assert!(!socket.exists(), "a socket file was left behind");
    }
    assert!(!missing.exists());
    assert_eq!(fs::read(&file).unwrap(), b"precious");
}

/// A directory that the server creates must be accessible only to its owner.
#[test]
fn a_missing_directory_is_created() {
    let folder = Folder::new();
    let missing = folder.file("missing");
    for id in 1..=2 {
        let daemon = Daemon::start(&["-b", name(&missing)]);
        assert_eq!(daemon.client().put(b"x", 0, 0, 60).unwrap(), id);
        assert_eq!(daemon.log().contains("made the folder"), id == 1, "{}", daemon.log());
        stops(&daemon);
    }
    assert_eq!(fs::metadata(&missing).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_created_directory_belongs_to_the_user() {
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    let missing = folder.file("missing");
    let daemon = Daemon::start(&["-u", "nobody", "-b", name(&missing)]);
    daemon.client().put(b"x", 0, 0, 60).unwrap();
    let made = fs::metadata(&missing).unwrap();
    assert_eq!((made.uid(), made.gid()), (nobody().uid.as_raw(), nobody().gid.as_raw()));
    stops(&daemon);
}

#[test]
fn a_directory_in_use_exits_with_10() {
    let folder = Folder::new();
    let folder = folder.file("");
    let first = Daemon::start(&["-b", name(&folder)]);
    for _ in 0..2 {
        run(&["-p", "0", "-b", name(&folder)]).failed(NO_FOLDER, &[" ERROR ", name(&folder)]);
    }
    first.client().put(b"x", 0, 0, 60).unwrap();
    // The lock file of a killed server must not prevent the next start.
    first.signal(Signal::SIGKILL);
    drop(first);
    let second = Daemon::start(&["-b", name(&folder)]);
    assert!(second.client().put(b"x", 0, 0, 60).unwrap() > 1);
}

/// All files must belong to the user given by `-u`, including files that the server creates after a restart.
#[test]
fn the_files_belong_to_the_user() {
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    let (mine, theirs) = (folder.file("mine"), folder.file("theirs"));
    for path in [&mine, &theirs] {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    chown(&theirs, Some(nobody().uid.as_raw()), Some(nobody().gid.as_raw())).unwrap();
    run(&["-p0", "-u", "nobody", "-b", name(&mine)]).failed(NO_FOLDER, &[" ERROR ", name(&mine)]);
    assert_eq!(fs::read_dir(&mine).unwrap().count(), 0);
    for id in 1..=2 {
        let daemon = Daemon::start(&["-u", "nobody", "-b", name(&theirs)]);
        assert_eq!(daemon.client().put(b"x", 0, 0, 60).unwrap(), id);
        stops(&daemon);
    }
    let files: Vec<_> = fs::read_dir(&theirs).unwrap().map(|entry| entry.unwrap().metadata().unwrap().uid()).collect();
    assert!(!files.is_empty() && files.iter().all(|uid| *uid == nobody().uid.as_raw()), "{files:?}");
}

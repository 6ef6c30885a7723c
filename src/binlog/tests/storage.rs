//! Tests of directories on a real disk.
//!
//! Owns temporary directories, which tests in other files also use.

use std::path::Path;

use super::*;

/// The directory of one test, which is removed at the end of the test.
pub struct Temporary(PathBuf);

impl Temporary {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn temporary(name: &str) -> (Folder, Temporary) {
    let path = std::env::temp_dir().join(format!("beanpole-storage-{name}-{}", std::process::id()));
    fs::create_dir_all(&path).expect("a directory");
    (Folder::new(path.clone()), Temporary(path))
}

#[test]
fn the_lock_file_is_no_link() {
    let (folder, temporary) = temporary("link");
    let target = temporary.path().join("target");
    fs::write(&target, "precious").expect("a file");
    std::os::unix::fs::symlink(&target, temporary.path().join(LOCK)).expect("a link");
    folder.lock().expect_err("a link is refused");
    assert_eq!(fs::read_to_string(&target).expect("a file"), "precious");
}

#[test]
fn a_second_name_of_a_lock_file_keeps_its_contents() {
    let (folder, temporary) = temporary("second");
    let target = temporary.path().join("target");
    fs::write(&target, "precious").expect("a file");
    fs::hard_link(&target, temporary.path().join(LOCK)).expect("a second name");
    folder.lock().expect("a lock");
    assert_eq!(fs::read_to_string(&target).expect("a file"), "precious");
}

#[test]
fn only_regular_files_are_read() {
    use std::os::unix::{fs::symlink, net::UnixListener};
    let (folder, temporary) = temporary("types");
    let place = |name: &str| temporary.path().join(name);
    fs::create_dir(place("directory")).expect("a directory");
    nix::unistd::mkfifo(&place("pipe"), Mode::S_IRWXU).expect("a pipe");
    let _socket = UnixListener::bind(place("socket")).expect("a socket");
    for (name, target) in [("endless", "/dev/zero"), ("dangling", "nothing"), ("loop", "loop"), ("around", "pipe")] {
        symlink(target, place(name)).expect("a link");
    }
    for name in ["directory", "pipe", "socket", "endless", "dangling", "loop", "around"] {
        let error = folder.length(name).expect_err("no regular file");
        assert_eq!((error.kind(), error.raw_os_error()), (io::ErrorKind::InvalidInput, None), "{name}: {error}");
        assert!(folder.read_at(name, 0, &mut [0]).is_err(), "{name} was read");
    }
    fs::write(place("file"), "text").expect("a file");
    symlink("file", place("link")).expect("a link");
    assert_eq!(folder.length("link").expect("a link to a file"), 4);
    assert_eq!(folder.length("missing").expect_err("no file").kind(), io::ErrorKind::NotFound);
    assert!(Folder::new(place("pipe")).list().is_err(), "a pipe is no directory");
}

#[test]
fn a_new_file_has_just_its_size_and_zeros() {
    let (folder, _temporary) = temporary("new");
    for size in [0, 1, ZEROS as u64 - 1, ZEROS as u64, ZEROS as u64 + 1, 2 * ZEROS as u64 + 77] {
        let name = format!("file.{size}");
        folder.create(&name, size).expect("a file");
        assert_eq!(folder.length(&name).expect("a length"), size);
    }
    let file = File::create_new(folder.path.join("filled")).expect("a file");
    fill_with_zeros(&file, ZEROS as u64 + 77).expect("free space");
    assert_eq!(folder.length("filled").expect("a length"), ZEROS as u64 + 77);
    let mut bytes = [1; 100];
    assert_eq!(folder.read_at("filled", ZEROS as u64, &mut bytes).expect("bytes"), 77);
    assert!(bytes[..77].iter().all(|&byte| byte == 0));
}

#[test]
fn every_file_of_a_large_directory_is_listed_once() {
    let (folder, temporary) = temporary("large");
    // The kernel returns these names in several parts.
    let mut expected: Vec<String> = (0..1000).map(|number| format!("{number:0250}")).collect();
    expected.push("1".to_owned());
    for name in &expected {
        File::create_new(temporary.path().join(name)).expect("a file");
    }
    let mut names = folder.list().expect("a directory");
    names.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn a_truncated_file_keeps_its_beginning() {
    let (folder, _temporary) = temporary("cut");
    let file = folder.create("file", 100).expect("a file");
    file.write_at(5, b"inside").expect("free space");
    file.truncate(8).expect("a truncated file");
    assert_eq!(fs::read(folder.path.join("file")).expect("a file"), b"\0\0\0\0\0ins");
}

#[test]
fn files_set_aside_never_replace_earlier_files() {
    let (folder, _temporary) = temporary("aside");
    for text in ["one", "two", "three"] {
        fs::write(folder.path.join("segment"), text).expect("a file");
        folder.rename("segment", "aside/segment").expect("a renamed file");
    }
    let kept = |name: &str| fs::read_to_string(folder.path.join("aside").join(name)).expect("a file");
    assert_eq!([kept("segment"), kept("segment.2"), kept("segment.3")], ["one", "two", "three"]);
    assert!(folder.length("segment").is_err());
}

#[test]
fn each_log_has_a_different_number() {
    let (folder, _temporary) = temporary("number");
    assert_ne!(folder.random_number(), folder.random_number());
}

#[test]
fn one_lock_suffices_where_the_other_is_unavailable() {
    let (folder, temporary) = temporary("locks");
    let opened = folder.opened().expect("a directory");
    let file = || open_in(&opened.folder, LOCK, OFlag::O_RDWR | OFlag::O_CREAT);
    let fail = |error: Errno| move || Err(io::Error::from(error));
    // Without free inodes or quota, or on a read-only disk, only the directory is locked.
    for error in [Errno::ENOSPC, Errno::EDQUOT, Errno::EROFS] {
        let _locks = Locks::of(lock_folder(&opened.folder), fail(error)).expect("a lock");
        assert!(Folder::new(temporary.path()).lock().is_err(), "a second server must not get the lock");
    }
    // On a file system that cannot lock directories, only the file is locked.
    for error in [Errno::ENOLCK, Errno::EOPNOTSUPP] {
        assert!(Locks::of(Err(error), file).is_ok(), "{error}");
        assert!(Locks::of(Err(error), fail(Errno::ENOSPC)).is_err(), "no lock at all");
    }
    assert!(Locks::of(Err(Errno::EIO), file).is_err());
}

#[test]
fn a_list_is_omitted_only_if_the_directory_is_unchanged() {
    let (folder, temporary) = temporary("changes");
    for name in ["one", "two"] {
        fs::write(temporary.path().join(name), "").expect("a file");
        let mut names = folder.list_if_changed().expect("a directory").expect("a list");
        names.sort_unstable();
        assert_eq!(names, if name == "one" { vec!["one"] } else { vec!["one", "two"] });
    }
    let end = Instant::now() + Duration::from_secs(60);
    while folder.list_if_changed().expect("a directory").is_some() {
        assert!(Instant::now() < end, "the list must be omitted without changes");
        std::thread::sleep(COARSE / 4);
    }
    fs::remove_file(temporary.path().join("one")).expect("a file");
    assert_eq!(folder.list_if_changed().expect("a directory"), Some(vec!["two".to_owned()]));
}

#[test]
fn a_file_that_another_program_has_replaced_is_neither_listed_nor_removed() {
    let (folder, temporary) = temporary("copied");
    let sorted = || {
        let mut names = folder.list().expect("a directory");
        names.sort_unstable();
        names
    };
    let replace = |name: &str| {
        fs::copy(temporary.path().join(name), temporary.path().join("copy")).expect("a copy");
        fs::rename(temporary.path().join("copy"), temporary.path().join(name)).expect("a replaced file");
    };
    fs::write(temporary.path().join("opened"), "").expect("a file");
    fs::write(temporary.path().join("other"), "").expect("a file");
    folder.create("created", 1).expect("a file");
    folder.open("opened").expect("a file");
    assert_eq!(sorted(), ["created", "opened", "other"]);
    // A file that the server has never opened is not compared.
    ["created", "opened", "other"].into_iter().for_each(replace);
    assert_eq!(sorted(), ["other"]);
    folder.open("created").expect("a file");
    assert_eq!(sorted(), ["other"], "the log continues without the file, even if the server opens its replacement");
    folder.remove("created").expect("a moved file");
    assert!(temporary.path().join(ASIDE).join("created").exists() && !temporary.path().join("created").exists());
    // The original can return, for example because only a part of a directory was moved.
    folder.create("created", 1).expect("a file");
    fs::rename(temporary.path().join("created"), temporary.path().join("away")).expect("a renamed file");
    assert_eq!(sorted(), ["away", ASIDE, "other"]);
    fs::rename(temporary.path().join("away"), temporary.path().join("created")).expect("a renamed file");
    assert_eq!(sorted(), ["created", ASIDE, "other"]);
    folder.remove("created").expect("a removal");
    assert_eq!(sorted(), [ASIDE, "other"]);
}

/// Many file systems give the new file the inode number of the removed one.
#[test]
fn a_file_removed_and_created_again_is_a_different_file() {
    let (folder, temporary) = temporary("again");
    let path = temporary.path().join("file");
    for what in ["a file with the same content", "a directory", "a socket", "a link that leads nowhere"] {
        folder.create("file", 1).expect("a file");
        assert!(folder.list().expect("a directory").iter().any(|name| name == "file"));
        std::thread::sleep(COARSE);
        fs::remove_file(&path).expect("a file");
        match what {
            "a directory" => fs::create_dir(&path).expect("a directory"),
            "a socket" => drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket")),
            "a link that leads nowhere" => std::os::unix::fs::symlink("nowhere", &path).expect("a link"),
            _ => fs::write(&path, [0]).expect("a file"),
        }
        assert!(!folder.list().expect("a directory").iter().any(|name| name == "file"), "{what}");
        folder.remove("file").expect("a moved file");
        assert!(path.symlink_metadata().is_err(), "{what}");
    }
    assert_eq!(fs::read_dir(temporary.path().join(ASIDE)).expect("a directory").count(), 4);
}

#[test]
fn a_truncated_file_is_neither_listed_nor_removed() {
    let (folder, temporary) = temporary("truncated");
    let open = |name: &str| File::options().write(true).open(temporary.path().join(name)).expect("a file");
    let is_listed = |name: &str| folder.list().expect("a directory").iter().any(|listed| listed == name);
    let file = folder.create("file", 100).expect("a file");
    open("file").set_len(99).expect("a truncated file");
    assert!(!is_listed("file"));
    file.truncate(99).expect_err("the server must not hide the loss");
    file.truncate(100).expect_err("the server must not hide the loss");
    folder.remove("file").expect("a moved file");
    assert_eq!(fs::read(temporary.path().join(ASIDE).join("file")).expect("a file"), [0; 99]);
    // The server itself can extend and truncate a file.
    let file = folder.create("file", 100).expect("a file");
    file.write_at(98, &[1; 10]).expect("free space");
    assert!(is_listed("file"));
    open("file").set_len(107).expect("a truncated file");
    assert!(!is_listed("file"));
    open("file").set_len(108).expect("an extended file");
    file.truncate(50).expect("a truncated file");
    assert!(is_listed("file"));
    open("file").set_len(49).expect("a truncated file");
    assert!(!is_listed("file"));
}

#[test]
fn truncated_files_of_a_large_directory_are_found_in_turn() {
    let (folder, temporary) = temporary("turns");
    let names: Vec<String> = (0..2 * AT_ONCE + 1).map(|number| format!("file.{number}")).collect();
    for name in &names {
        fs::write(temporary.path().join(name), [1]).expect("a file");
        folder.open(name).expect("a file");
    }
    std::thread::sleep(2 * COARSE);
    assert_eq!(folder.list_if_changed().expect("a directory").expect("a list").len(), names.len());
    for name in ["file.0", "file.1000"] {
        let file = File::options().write(true).open(temporary.path().join(name)).expect("a file");
        file.set_len(0).expect("a truncated file");
        let found = (0..3).find_map(|_| {
            std::thread::sleep(PAUSE);
            folder.list_if_changed().expect("a directory")
        });
        assert!(!found.expect("three checks include all files").iter().any(|listed| listed == name));
        file.set_len(1).expect("an extended file");
    }
    std::thread::sleep(PAUSE);
    assert_eq!(folder.list_if_changed().expect("a directory"), None);
}

#[test]
fn changes_that_keep_a_file_do_not_replace_it() {
    let (folder, temporary) = temporary("kept");
    let path = |name: &str| temporary.path().join(name);
    let file = folder.create("file", 9).expect("a file");
    file.write_at(3, &[7; 9]).expect("free space");
    file.truncate(5).expect("a shorter file");
    fs::hard_link(path("file"), path("second")).expect("a link");
    fs::remove_file(path("file")).expect("a file");
    fs::rename(path("second"), path("file")).expect("a renamed file");
    fs::set_permissions(path("file"), std::os::unix::fs::PermissionsExt::from_mode(0o444)).expect("permissions");
    File::open(path("file")).and_then(|file| file.set_modified(SystemTime::UNIX_EPOCH)).expect("a time");
    assert_eq!(folder.list().expect("a directory"), ["file"]);
    fs::rename(path("file"), path("elsewhere")).expect("a renamed file");
    std::os::unix::fs::symlink("elsewhere", path("file")).expect("a link");
    assert_eq!(folder.list().expect("a directory").len(), 2);
}

#[test]
fn files_stay_in_the_opened_directory_until_another_is_locked() {
    let (folder, temporary) = temporary("replaced");
    let (old, new) = (temporary.path().join("old"), temporary.path().join("log"));
    drop(folder);
    fs::create_dir(&new).expect("a directory");
    let folder = Folder::new(&new);
    folder.lock().expect("a lock");
    assert!(folder.is_in_place().expect("the state of the directory"));
    fs::rename(&new, &old).expect("a renamed directory");
    assert!(!folder.is_in_place().expect("the state of the directory"));
    folder.create("first", 1).expect("a file");
    assert!(old.join("first").exists());
    assert!(folder.lock().is_err(), "there is no directory to lock");
    // A directory that another server has locked or that contains a file is refused. An empty directory is accepted.
    fs::create_dir(&new).expect("a directory");
    let other = Folder::new(&new);
    other.lock().expect("a lock");
    assert_eq!(folder.lock().expect_err("the directory is locked").kind(), io::ErrorKind::ResourceBusy);
    drop(other);
    fs::write(new.join("file"), "").expect("a file");
    assert_eq!(folder.lock().expect_err("the directory contains a file").kind(), io::ErrorKind::AlreadyExists);
    assert!(Folder::new(&old).lock().is_err(), "the old directory must stay locked");
    fs::remove_file(new.join("file")).expect("a file");
    folder.lock().expect("a lock");
    folder.create("second", 1).expect("a file");
    assert!(new.join("second").exists() && folder.is_in_place().expect("the state of the directory"));
}

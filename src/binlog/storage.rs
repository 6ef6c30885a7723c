//! The seam between the log and the disk.
//!
//! Owns every touch of a file. The log above it sees a folder of named files that can be listed, read, created at full
//! size, written at a place, cut, synced, renamed and removed; tests put a faulty memory in its place. Must not know
//! what the bytes mean.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{fcntl, openat, renameat, AtFlags, FcntlArg, Flock, FlockArg, OFlag};
use nix::libc;
use nix::sys::stat::{fstatat, mkdirat, Mode};
use nix::unistd::{unlinkat, UnlinkatFlags};

use super::replay::{fill, Source};
use crate::shared::lock_order::LeafMutex;
use crate::shared::system::O_LARGEFILE;

/// A file of the log that is open for writing. Writes and syncs may come from different threads at a time.
pub trait LogFile: Send + Sync {
    /// Writes all of the bytes at this place, growing the file if need be.
    fn write_at(&self, place: u64, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the file to this length.
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Returns when everything written before the call is on the disk permanently.
    fn sync(&self) -> io::Result<()>;
}

pub trait Storage: Send + Sync {
    /// Takes the folder for this process alone; the error names the holder. If it is taken already and another folder
    /// has replaced it, takes that one, which must be empty.
    fn lock(&self) -> io::Result<()>;
    /// Returns `false` if the locked folder was removed, renamed or replaced.
    fn is_in_place(&self) -> io::Result<bool> {
        Ok(true)
    }
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// The names of all files, or `None` if certainly none has come or gone since the last call.
    fn list_if_changed(&self) -> io::Result<Option<Vec<String>>> {
        self.list().map(Some)
    }
    fn length(&self, name: &str) -> io::Result<u64>;
    /// Fills `bytes` from this place of a file on, and returns how many there were: fewer only at the end of the file.
    fn read_at(&self, name: &str, place: u64, bytes: &mut [u8]) -> io::Result<usize>;
    /// Creates a file of this many zero bytes, with space for all of them, permanently.
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn LogFile>>;
    /// Opens a file for writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>>;
    /// Gives a file another name, which may be in a subfolder, or one like it if there is such a file already,
    /// permanently.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file, so that it stays away after a power cut.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// How many syncs may be under way at a time. If several may, each returns after those that began before it, and
    /// after a failure the server stops.
    fn syncs_at_once(&self) -> usize {
        1
    }
    /// Called before the log is declared failed, whatever the reason. A storage that is shared with other servers stops
    /// this server from answering.
    fn give_up(&self, _error: &io::Error) {}
    /// A random number, which identifies a new log or the server process that writes it.
    fn random_number(&self) -> u64 {
        RandomState::new().hash_one(0)
    }
    /// The clock that measures whether the disk is slow. A simulated disk has its own.
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// A file of a folder, to be read by its name: whatever has become of it meanwhile.
pub struct StoredFile<'a>(pub &'a dyn Storage, pub &'a str);

impl Source for StoredFile<'_> {
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(self.1, at, bytes)
    }
}

/// A folder on a real disk. It is opened once, and its files are reached through that descriptor, so that all of them
/// are in one folder whatever becomes of the path.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    opened: LeafMutex<Option<Arc<Opened>>>,
}

#[derive(Debug)]
struct Opened {
    folder: File,
    /// Held until the process ends.
    locks: Option<Locks>,
    /// When files came or went last, as of the last complete list; `None` if a later change may have the same time.
    listed: LeafMutex<Option<SystemTime>>,
}

/// The lock of the folder, which a file system may lack, and that of the file in it.
#[derive(Debug)]
struct Locks {
    _folder: Option<Flock<File>>,
    _file: Option<File>,
}

/// The name of the file that is locked as well, as beanstalkd does, and that tells whose process has the folder.
const LOCK: &str = "lock";

/// The number of zeros written by one call.
const ZEROS: usize = 64 * 1024;

/// Changes of a folder that are closer together than this may have the same time: clocks of file systems are coarse.
const COARSE: Duration = Duration::from_millis(100);

impl Folder {
    /// The folder at `path`, which must exist when it is first used.
    pub fn new(path: impl Into<PathBuf>) -> Folder {
        Folder { path: path.into(), opened: LeafMutex::default() }
    }

    fn opened(&self) -> io::Result<Arc<Opened>> {
        let mut opened = self.opened.lock();
        if let Some(opened) = &*opened {
            return Ok(opened.clone());
        }
        let new = Arc::new(Opened::at(&self.path)?);
        *opened = Some(new.clone());
        Ok(new)
    }

    /// Whether the path leads to this folder.
    fn leads_to(&self, opened: &Opened) -> io::Result<bool> {
        let ours = opened.folder.metadata()?;
        match fs::metadata(&self.path) {
            Ok(found) => Ok((found.dev(), found.ino()) == (ours.dev(), ours.ino())),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Opened {
    fn at(path: &PathBuf) -> io::Result<Opened> {
        Ok(Opened { folder: File::open(path)?, locks: None, listed: LeafMutex::default() })
    }

    /// Opens a file of the folder.
    fn file(&self, name: &str, flags: OFlag) -> io::Result<File> {
        open_in(&self.folder, name, flags)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut entries = uninterrupted(|| Dir::openat(&self.folder, ".", flags, Mode::empty()))?;
        let mut names = Vec::new();
        for entry in entries.iter() {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn lock(&self) -> io::Result<Locks> {
        // The folder itself, since a file in it can be removed.
        let folder = match lock_folder(&self.folder) {
            Err(Errno::EWOULDBLOCK) => return Err(busy(&holder(self.file(LOCK, OFlag::O_RDONLY).ok()))),
            result => result,
        };
        // What root writes there must not be another file's content.
        Locks::of(folder, || self.file(LOCK, OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW))
    }
}

impl Locks {
    /// One of the two locks is enough, since all servers try both; no lock may be held by somebody else.
    fn of(folder: Result<Flock<File>, Errno>, file: impl FnOnce() -> io::Result<File>) -> io::Result<Locks> {
        let folder = match folder {
            Ok(folder) => Some(folder),
            Err(error) if has_no_locks(error) => None,
            Err(error) => return Err(error.into()),
        };
        let file = match file() {
            Ok(file) => Some(lock_against_beanstalkd(file)?),
            // Where no file can be made, no beanstalkd makes one either.
            Err(error) if is_no_room(&error) && folder.is_some() => None,
            Err(error) => return Err(error),
        };
        Ok(Locks { _folder: folder, _file: file })
    }
}

impl Storage for Folder {
    fn lock(&self) -> io::Result<()> {
        let before = self.opened.lock().clone().filter(|opened| opened.locks.is_some());
        if let Some(before) = &before {
            if self.leads_to(before)? {
                return Ok(());
            }
        }
        let mut opened = Opened::at(&self.path)?;
        opened.locks = Some(opened.lock()?);
        if before.is_some() {
            let others = opened.names()?.into_iter().filter(|name| name != LOCK);
            if let Some(name) = others.into_iter().next() {
                let problem = format!("another directory with files ('{name}') has replaced the log's");
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
            }
        }
        *self.opened.lock() = Some(Arc::new(opened));
        Ok(())
    }

    fn is_in_place(&self) -> io::Result<bool> {
        self.leads_to(&*self.opened()?)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.opened()?.names()
    }

    fn list_if_changed(&self) -> io::Result<Option<Vec<String>>> {
        let opened = self.opened()?;
        let changed = opened.folder.metadata()?.modified()?;
        let mut listed = opened.listed.lock();
        if *listed == Some(changed) {
            return Ok(None);
        }
        let age = SystemTime::now().duration_since(changed).unwrap_or_default();
        let names = opened.names()?;
        *listed = (age > COARSE).then_some(changed);
        Ok(Some(names))
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        Ok(self.opened()?.file(name, OFlag::O_RDONLY)?.metadata()?.len())
    }

    fn read_at(&self, name: &str, place: u64, bytes: &mut [u8]) -> io::Result<usize> {
        fill(&self.opened()?.file(name, OFlag::O_RDONLY)?, place, bytes)
    }

    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn LogFile>> {
        let opened = self.opened()?;
        let file = opened.file(name, OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL)?;
        let filled = fill_with_zeros(&file, size).and_then(|()| file.sync_all());
        if let Err(error) = filled.and_then(|()| opened.folder.sync_all()) {
            // A file that could not be filled would only take space from the next try.
            let _ = unlinkat(&opened.folder, name, UnlinkatFlags::NoRemoveDir);
            return Err(error);
        }
        Ok(Arc::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        Ok(Arc::new(self.opened()?.file(name, OFlag::O_RDWR)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let opened = self.opened()?;
        let (subfolder, to) = match to.split_once('/') {
            Some((subfolder, name)) => (Some(subfolder_of(&opened.folder, subfolder)?), name),
            None => (None, to),
        };
        let target = subfolder.as_ref().unwrap_or(&opened.folder);
        // What is kept aside is evidence, or an original: never overwritten.
        let mut name = to.to_owned();
        for number in 2.. {
            match fstatat(target, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(_) => name = format!("{to}.{number}"),
                Err(Errno::ENOENT) => break,
                Err(error) => return Err(error.into()),
            }
        }
        renameat(&opened.folder, from, target, name.as_str())?;
        if let Some(subfolder) = &subfolder {
            subfolder.sync_all()?;
        }
        opened.folder.sync_all()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let opened = self.opened()?;
        unlinkat(&opened.folder, name, UnlinkatFlags::NoRemoveDir)?;
        // Segments must go in order, even through a power cut.
        opened.folder.sync_all()
    }
}

/// Opens a file, which only its owner may read if it is new.
fn open_in(folder: &File, name: &str, flags: OFlag) -> io::Result<File> {
    let flags = flags | OFlag::O_CLOEXEC | O_LARGEFILE;
    Ok(uninterrupted(|| openat(folder, name, flags, Mode::S_IRUSR | Mode::S_IWUSR))?.into())
}

fn subfolder_of(folder: &File, name: &str) -> io::Result<File> {
    match mkdirat(folder, name, Mode::S_IRWXU | Mode::S_IRWXG | Mode::S_IRWXO) {
        Ok(()) | Err(Errno::EEXIST) => open_in(folder, name, OFlag::O_RDONLY | OFlag::O_DIRECTORY),
        Err(error) => Err(error.into()),
    }
}

/// Repeats a call that a signal has interrupted.
fn uninterrupted<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            result => return result,
        }
    }
}

fn lock_folder(folder: &File) -> Result<Flock<File>, Errno> {
    let mut folder = folder.try_clone().map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))?;
    loop {
        match Flock::lock(folder, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((again, Errno::EINTR)) => folder = again,
            Err((_, error)) => return Err(error),
        }
    }
}

/// Whether a file system refuses every lock of a folder. The lock of the file in it must do then.
fn has_no_locks(error: Errno) -> bool {
    use Errno::{EBADF, EINVAL, ENOLCK, ENOSYS};
    matches!(error, EBADF | EINVAL | ENOLCK | ENOSYS | Errno::EOPNOTSUPP)
}

/// Whether no file can be made here, for now or at all.
fn is_no_room(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), QuotaExceeded | ReadOnlyFilesystem | StorageFull)
}

fn busy(holder: &str) -> io::Error {
    let who = if holder.is_empty() { String::new() } else { format!(", process {holder}") };
    io::Error::new(io::ErrorKind::ResourceBusy, format!("it is in use by another server{who}"))
}

/// The digits in a lock file, whatever else is in it.
fn holder(file: Option<File>) -> String {
    let mut bytes = [0; 20];
    let count = file.map_or(0, |file| fill(&file, 0, &mut bytes).unwrap_or(0));
    bytes[..count].iter().take_while(|byte| byte.is_ascii_digit()).map(|&byte| char::from(byte)).collect()
}

/// beanstalkd takes a lock of another kind, on a file.
fn lock_against_beanstalkd(file: File) -> io::Result<File> {
    if let Some(process) = held_by_beanstalkd(&file)? {
        return Err(busy(&process.to_string()));
    }
    uninterrupted(|| fcntl(&file, FcntlArg::F_SETLK(&whole_file())))?;
    // Only a hint for people: a full disk does not matter.
    let _ = file.set_len(0).and_then(|()| file.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0));
    Ok(file)
}

/// A write lock on a whole file.
fn whole_file() -> libc::flock {
    // SAFETY: numbers, all of which may be zero. Some processors' have more fields, which have no names here.
    #[allow(unsafe_code)]
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (libc::F_WRLCK as i16, libc::SEEK_SET as i16);
    lock
}

fn held_by_beanstalkd(file: &File) -> io::Result<Option<i32>> {
    let mut lock = whole_file();
    uninterrupted(|| fcntl(file, FcntlArg::F_GETLK(&mut lock)))?;
    Ok((lock.l_type != libc::F_UNLCK as i16).then_some(lock.l_pid))
}

fn fill_with_zeros(file: &File, size: u64) -> io::Result<()> {
    let zeros = vec![0; ZEROS.min(size as usize)];
    let mut place = 0;
    while place < size {
        let count = (size - place).min(zeros.len() as u64);
        file.write_all_at(&zeros[..count as usize], place)?;
        place += count;
    }
    Ok(())
}

impl Source for File {
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        FileExt::read_at(self, bytes, at)
    }
}

impl LogFile for File {
    fn write_at(&self, place: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, place)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use super::*;

    /// A folder of a test's own, which goes with it.
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
        fs::create_dir_all(&path).expect("a folder");
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
    fn a_new_file_has_just_its_size_and_zeros() {
        let (folder, _temporary) = temporary("new");
        for size in [0, 1, ZEROS as u64 - 1, ZEROS as u64, ZEROS as u64 + 1, 2 * ZEROS as u64 + 77] {
            let name = format!("file.{size}");
            folder.create(&name, size).expect("a file");
            assert_eq!(folder.length(&name).expect("a length"), size);
        }
        let file = File::create_new(folder.path.join("filled")).expect("a file");
        fill_with_zeros(&file, ZEROS as u64 + 77).expect("space");
        assert_eq!(folder.length("filled").expect("a length"), ZEROS as u64 + 77);
        let mut bytes = [1; 100];
        assert_eq!(folder.read_at("filled", ZEROS as u64, &mut bytes).expect("bytes"), 77);
        assert!(bytes[..77].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_file_that_is_cut_keeps_what_is_before_the_cut() {
        let (folder, _temporary) = temporary("cut");
        let file = folder.create("file", 100).expect("a file");
        file.write_at(5, b"inside").expect("space");
        file.truncate(8).expect("a cut");
        assert_eq!(fs::read(folder.path.join("file")).expect("a file"), b"\0\0\0\0\0ins");
    }

    #[test]
    fn what_is_set_aside_never_takes_the_place_of_what_was_before() {
        let (folder, _temporary) = temporary("aside");
        for text in ["one", "two", "three"] {
            fs::write(folder.path.join("segment"), text).expect("a file");
            folder.rename("segment", "aside/segment").expect("a place");
        }
        let kept = |name: &str| fs::read_to_string(folder.path.join("aside").join(name)).expect("a file");
        assert_eq!([kept("segment"), kept("segment.2"), kept("segment.3")], ["one", "two", "three"]);
        assert!(folder.length("segment").is_err());
    }

    #[test]
    fn each_log_has_a_number_of_its_own() {
        let (folder, _temporary) = temporary("number");
        assert_ne!(folder.random_number(), folder.random_number());
    }

    #[test]
    fn one_lock_is_enough_where_the_other_cannot_be_had() {
        let (folder, temporary) = temporary("locks");
        let opened = folder.opened().expect("a folder");
        let file = || opened.file(LOCK, OFlag::O_RDWR | OFlag::O_CREAT);
        let fail = |error: Errno| move || Err(io::Error::from(error));
        // No inode, no quota, and a disk that is only read: the folder is locked.
        for error in [Errno::ENOSPC, Errno::EDQUOT, Errno::EROFS] {
            let _locks = Locks::of(lock_folder(&opened.folder), fail(error)).expect("a lock");
            assert!(Folder::new(temporary.path()).lock().is_err(), "a second server");
        }
        // A file system that locks no folders: the file is locked.
        for error in [Errno::ENOLCK, Errno::EOPNOTSUPP] {
            assert!(Locks::of(Err(error), file).is_ok(), "{error}");
            assert!(Locks::of(Err(error), fail(Errno::ENOSPC)).is_err(), "no lock at all");
        }
        assert!(Locks::of(Err(Errno::EIO), file).is_err());
    }

    #[test]
    fn a_list_is_only_left_out_if_nothing_has_come_or_gone() {
        let (folder, temporary) = temporary("changes");
        for name in ["one", "two"] {
            fs::write(temporary.path().join(name), "").expect("a file");
            let mut names = folder.list_if_changed().expect("a folder").expect("a list");
            names.sort_unstable();
            assert_eq!(names, if name == "one" { vec!["one"] } else { vec!["one", "two"] });
        }
        let end = Instant::now() + Duration::from_secs(60);
        while folder.list_if_changed().expect("a folder").is_some() {
            assert!(Instant::now() < end, "nothing comes or goes");
            std::thread::sleep(COARSE / 4);
        }
        fs::remove_file(temporary.path().join("one")).expect("a file");
        assert_eq!(folder.list_if_changed().expect("a folder"), Some(vec!["two".to_owned()]));
    }

    #[test]
    fn files_stay_in_the_folder_that_was_opened_until_another_is_taken() {
        let (folder, temporary) = temporary("replaced");
        let (old, new) = (temporary.path().join("old"), temporary.path().join("log"));
        drop(folder);
        fs::create_dir(&new).expect("a folder");
        let folder = Folder::new(&new);
        folder.lock().expect("a lock");
        assert!(folder.is_in_place().expect("a look"));
        fs::rename(&new, &old).expect("another name");
        assert!(!folder.is_in_place().expect("a look"));
        folder.create("first", 1).expect("a file");
        assert!(old.join("first").exists());
        assert!(folder.lock().is_err(), "there is none");
        // Another server's, another log's, and an empty one.
        fs::create_dir(&new).expect("a folder");
        let other = Folder::new(&new);
        other.lock().expect("a lock");
        assert_eq!(folder.lock().expect_err("it is taken").kind(), io::ErrorKind::ResourceBusy);
        drop(other);
        fs::write(new.join("file"), "").expect("a file");
        assert_eq!(folder.lock().expect_err("it has a file").kind(), io::ErrorKind::AlreadyExists);
        assert!(Folder::new(&old).lock().is_err(), "the old one stays locked");
        fs::remove_file(new.join("file")).expect("a file");
        folder.lock().expect("a lock");
        folder.create("second", 1).expect("a file");
        assert!(new.join("second").exists() && folder.is_in_place().expect("a look"));
    }
}

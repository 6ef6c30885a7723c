//! Access to the disk.
//!
//! Owns every access to a file. The log sees a directory of named files that can be listed, read, created at full size,
//! written, truncated, synced, renamed and removed; tests replace it with a faulty one in memory. Must not know what
//! the bytes mean.

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

/// An open file of the log. Different threads may write and sync it at the same time.
pub trait LogFile: Send + Sync {
    /// Writes all bytes at this offset, extending the file if necessary.
    fn write_at(&self, place: u64, bytes: &[u8]) -> io::Result<()>;
    /// Truncates the file to this length.
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Returns when everything that was written before the call is durable.
    fn sync(&self) -> io::Result<()>;
}

pub trait Storage: Send + Sync {
    /// Locks the directory for this process; the error names the process that has it. If the locked directory was
    /// replaced, locks the new one, which must be empty.
    fn lock(&self) -> io::Result<()>;
    /// Returns `false` if the locked directory was removed, renamed or replaced.
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
    /// Fills `bytes` from this offset of a file on. Returns their number, which is smaller only at the end of the file.
    fn read_at(&self, name: &str, place: u64, bytes: &mut [u8]) -> io::Result<usize>;
    /// Creates a file of this many zero bytes, allocated and durable.
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn LogFile>>;
    /// Opens a file for writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>>;
    /// Renames a file durably. `to` may be in a subdirectory. If the name exists, a number is appended.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file so that it stays away after a power failure.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// The maximum number of concurrent syncs. If more than one, each returns after those that began before it, and
    /// the server stops after a failure.
    fn syncs_at_once(&self) -> usize {
        1
    }
    /// Called before the log is declared failed. A storage that is shared with other servers prevents further replies.
    fn give_up(&self, _error: &io::Error) {}
    /// A random number, which identifies a new log or the server process that writes it.
    fn random_number(&self) -> u64 {
        RandomState::new().hash_one(0)
    }
    /// The clock that measures whether the disk is slow; a simulated disk has its own.
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// A file of the log, opened by name for each read.
pub struct StoredFile<'a>(pub &'a dyn Storage, pub &'a str);

impl Source for StoredFile<'_> {
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(self.1, at, bytes)
    }
}

/// A directory on a real disk. It is opened once, and its files are accessed through the descriptor, so that all of
/// them are in one directory even if the path changes.
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
    /// The modification time of the last complete list; `None` if a later change may have the same time.
    listed: LeafMutex<Option<SystemTime>>,
}

/// The lock of the directory, which a file system may not support, and that of the file in it.
#[derive(Debug)]
struct Locks {
    _folder: Option<Flock<File>>,
    _file: Option<File>,
}

/// The name of the file that is locked as well, as beanstalkd does, and that contains the ID of the process.
const LOCK: &str = "lock";

/// The number of zero bytes written per call.
const ZEROS: usize = 64 * 1024;

/// Changes of a directory within this time may have the same modification time, since file systems use coarse clocks.
const COARSE: Duration = Duration::from_millis(100);

impl Folder {
    /// Creates an accessor for the directory at `path`, which must exist when it is first used.
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

    /// Returns `true` if the path still refers to this directory.
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

    /// Opens a file of the directory.
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
        // The directory itself, since a file in it can be removed.
        let folder = match lock_folder(&self.folder) {
            Err(Errno::EWOULDBLOCK) => return Err(busy(&holder(self.file(LOCK, OFlag::O_RDONLY).ok()))),
            result => result,
        };
        // Root must not overwrite another file through a link.
        Locks::of(folder, || self.file(LOCK, OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW))
    }
}

impl Locks {
    /// Takes both locks. One of them suffices, since all servers try both; another process must hold neither.
    fn of(folder: Result<Flock<File>, Errno>, file: impl FnOnce() -> io::Result<File>) -> io::Result<Locks> {
        let folder = match folder {
            Ok(folder) => Some(folder),
            Err(error) if has_no_locks(error) => None,
            Err(error) => return Err(error.into()),
        };
        let file = match file() {
            Ok(file) => Some(lock_against_beanstalkd(file)?),
            // Where no file can be created, beanstalkd cannot create one either.
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
            // The incomplete file would take space from the next attempt.
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
        // Files that are set aside are evidence or originals, and are never overwritten.
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
        // Segments must be removed in order, even if power fails.
        opened.folder.sync_all()
    }
}

/// Opens a file; a new one is readable only by its owner.
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

/// Repeats a call that a signal interrupts.
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

/// Returns `true` if the file system does not support locking a directory.
fn has_no_locks(error: Errno) -> bool {
    use Errno::{EBADF, EINVAL, ENOLCK, ENOSYS};
    matches!(error, EBADF | EINVAL | ENOLCK | ENOSYS | Errno::EOPNOTSUPP)
}

/// Returns `true` if no file can be created here.
fn is_no_room(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), QuotaExceeded | ReadOnlyFilesystem | StorageFull)
}

fn busy(holder: &str) -> io::Error {
    let who = if holder.is_empty() { String::new() } else { format!(", process {holder}") };
    io::Error::new(io::ErrorKind::ResourceBusy, format!("it is in use by another server{who}"))
}

/// Returns the digits at the beginning of a lock file.
fn holder(file: Option<File>) -> String {
    let mut bytes = [0; 20];
    let count = file.map_or(0, |file| fill(&file, 0, &mut bytes).unwrap_or(0));
    bytes[..count].iter().take_while(|byte| byte.is_ascii_digit()).map(|&byte| char::from(byte)).collect()
}

/// Takes beanstalkd's kind of lock, which is a lock of a file.
fn lock_against_beanstalkd(file: File) -> io::Result<File> {
    if let Some(process) = held_by_beanstalkd(&file)? {
        return Err(busy(&process.to_string()));
    }
    uninterrupted(|| fcntl(&file, FcntlArg::F_SETLK(&whole_file())))?;
    // Only for users to see, so a full disk does not matter.
    let _ = file.set_len(0).and_then(|()| file.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0));
    Ok(file)
}

/// A write lock on a whole file.
fn whole_file() -> libc::flock {
    // SAFETY: numbers, all of which may be zero. On some processors there are more fields, which have no names here.
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
#[path = "tests/storage.rs"]
pub(super) mod tests;

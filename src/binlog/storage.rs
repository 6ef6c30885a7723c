//! Access to the files of a log. A [`Storage`] is a directory of named files: [`Folder`] is a directory on a real disk,
//! and tests use a simulated disk. Must not interpret the contents of files.

use std::fs::{self, File, Metadata};
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant, SystemTime};
use std::{collections::HashMap, fmt, io, path::Path, path::PathBuf, sync::Arc};

use nix::errno::Errno;
use nix::fcntl::{fcntl, openat, renameat, AtFlags, FcntlArg, Flock, FlockArg, OFlag};
use nix::libc::{self, S_IFMT, S_IFREG};
use nix::sys::stat::{mkdirat, Mode};
use nix::unistd::{unlinkat, UnlinkatFlags};

use super::replay::fill;
use super::segment::{ASIDE, VERSION};
use crate::shared::atomic::{AtomicU64, Ordering};
use crate::shared::files;
use crate::shared::lock_order::LeafMutex;
use crate::shared::system::{self, fstatat, uninterrupted, O_LARGEFILE, O_PATH};

/// Several threads can write to and sync a file concurrently.
pub trait LogFile: Send + Sync {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// All data written before the call is durable afterwards.
    fn sync(&self) -> io::Result<()>;
}

pub trait Storage: Send + Sync {
    /// If another process holds the lock, the error names that process. If the locked directory was replaced, locks the
    /// new directory, which must be empty.
    fn lock(&self) -> io::Result<()>;
    /// Returns `false` if the locked directory was removed, renamed or replaced.
    fn is_in_place(&self) -> io::Result<bool> {
        Ok(true)
    }
    /// Omits files that another program has replaced or truncated since they were first opened or created.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Returns all names, or `None` if the list is unchanged. May overlook truncated files until one of the next calls.
    fn list_if_changed(&self) -> io::Result<Option<Vec<String>>> {
        self.list().map(Some)
    }
    /// If the file is not a regular file, the error has the kind `InvalidInput` and no number.
    fn length(&self, name: &str) -> io::Result<u64>;
    /// Reads until the end of `bytes` or of the file. Returns the number of bytes read.
    fn read_at(&self, name: &str, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;
    /// Creates a durable file of `size` zero bytes.
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn LogFile>>;
    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>>;
    /// The renaming is durable. `to` can include a subdirectory. If `to` exists, a number is added to the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// The removal of the file is durable. A file that [`Storage::list`] omits is moved to `damaged` instead.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Returns the maximum number of concurrent syncs. If this number exceeds 1, syncs end in the order in which they
    /// began, and the server stops after a failed sync.
    fn syncs_at_once(&self) -> usize {
        1
    }
    /// Returns `true` if `body` must be passed to [`Storage::stage`] before a record with this body is written.
    fn must_stage(&self, _body: &Arc<Box<[u8]>>) -> bool {
        false
    }
    /// Stores a large body early, so that it does not delay later records. Stops when `is_wanted` returns `false`.
    fn stage(&self, _body: &Arc<Box<[u8]>>, _is_wanted: &dyn Fn() -> bool) {}
    /// Called before the log enters the failing state, for example after a failed write or sync. A storage shared with
    /// other servers must prevent all later replies.
    fn give_up(&self, _error: &io::Error) {}
    fn random_number(&self) -> u64 {
        RandomState::new().hash_one(0)
    }
    /// Returns the current time, which is used to detect slow disks. A simulated disk has its own clock.
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// Files are accessed through a descriptor of the directory, so all stay in one directory even if it is renamed.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    opened: LeafMutex<Option<Arc<Opened>>>,
}

#[derive(Debug)]
struct Opened {
    folder: File,
    locks: Option<Locks>,
    /// The directory's modification time at the last listing, or `None` if a later change could get the same time.
    listed: LeafMutex<Option<SystemTime>>,
    files: LeafMutex<Files>,
}

#[derive(Debug, Default)]
struct Files {
    /// The files that were opened for writing or created. Another file with such a name is not part of the log.
    originals: HashMap<String, Arc<Original>>,
    /// The files that the next checks for truncated files will include.
    unchecked: Vec<String>,
    checked: Option<Instant>,
}

#[derive(Debug)]
struct Original {
    /// The device number, the inode number and, where known, the time of creation. Many file systems give the inode
    /// number of a removed file to the next new file.
    identity: (u64, u64, Option<(i64, u32)>),
    /// If the file is shorter, another program has truncated it.
    length: AtomicU64,
}

struct TrackedFile {
    file: File,
    original: Arc<Original>,
}

/// A file system may support only one of these locks.
#[derive(Debug)]
struct Locks {
    _folder: Option<Flock<File>>,
    _file: Option<File>,
}

/// Contains the process ID. beanstalkd locks a file of the same name.
const LOCK: &str = "lock";
const ZEROS: usize = 64 * 1024;
/// The minimum time between two checks for truncated files, and the maximum number of files in a check.
const PAUSE: Duration = Duration::from_millis(250);
const AT_ONCE: usize = 500;
/// File systems use coarse clocks, so changes within this time may get the same modification time.
const COARSE: Duration = Duration::from_millis(100);

impl Folder {
    pub fn new(path: impl Into<PathBuf>) -> Folder {
        Folder { path: path.into(), opened: LeafMutex::default() }
    }

    fn opened(&self) -> io::Result<Arc<Opened>> {
        let mut opened = self.opened.lock();
        if let Some(opened) = &*opened {
            return Ok(opened.clone());
        }
        Ok(opened.insert(Arc::new(Opened::at(&self.path)?)).clone())
    }

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
    fn at(path: &Path) -> io::Result<Opened> {
        let folder = files::open_folder(path)?;
        Ok(Opened { folder, locks: None, listed: LeafMutex::default(), files: LeafMutex::default() })
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = system::names(open_in(&self.folder, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY)?)?;
        names.retain(|name| name != "." && name != ".." && !self.is_replaced(name));
        Ok(names)
    }

    fn is_replaced(&self, name: &str) -> bool {
        let Some(ours) = self.files.lock().originals.get(name).cloned() else { return false };
        let before = ours.length.load(Ordering::SeqCst);
        let found = open_in(&self.folder, name, O_PATH | OFlag::O_NONBLOCK).and_then(|file| Original::of(&file));
        match found {
            Ok((other, found)) => other.identity != ours.identity || !found.is_file() || ours.is_longer(&found, before),
            // For example a link that leads nowhere. A missing file is not a replaced one.
            Err(_) => fstatat(&self.folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)
                .is_ok_and(|found| found.st_mode & S_IFMT != S_IFREG),
        }
    }

    /// Truncating a file does not change the directory, so checks some of the files in turn.
    fn finds_truncated(&self) -> bool {
        let mut files = self.files.lock();
        if files.checked.is_some_and(|last| last.elapsed() < PAUSE) {
            return false;
        }
        files.checked = Some(Instant::now());
        if files.unchecked.is_empty() {
            files.unchecked = files.originals.keys().cloned().collect();
        }
        let rest = files.unchecked.len().saturating_sub(AT_ONCE);
        let names = files.unchecked.split_off(rest);
        drop(files);
        names.iter().any(|name| self.is_replaced(name))
    }

    /// Keeps an earlier entry, so that a replaced file stays known as such.
    fn track(&self, name: &str, file: File) -> io::Result<Arc<dyn LogFile>> {
        let found = Original::of(&file)?.0;
        let mut files = self.files.lock();
        let original = files.originals.entry(name.to_owned()).or_insert_with(|| Arc::new(found));
        Ok(Arc::new(TrackedFile { file, original: original.clone() }))
    }

    fn lock(&self) -> io::Result<Locks> {
        // The lock file can be removed, so lock the directory itself.
        let folder = match lock_folder(&self.folder) {
            Err(Errno::EWOULDBLOCK) => return Err(busy(&holder(open_in(&self.folder, LOCK, OFlag::O_RDONLY).ok()))),
            result => result,
        };
        // A process that runs as root must not overwrite another file through a symbolic link.
        Locks::of(folder, || open_in(&self.folder, LOCK, OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW))
    }
}

impl Locks {
    /// Fails if another process holds a lock. Either lock is sufficient, because every server tries to acquire both.
    fn of(folder: Result<Flock<File>, Errno>, file: impl FnOnce() -> io::Result<File>) -> io::Result<Locks> {
        let folder = match folder {
            Ok(folder) => Some(folder),
            // The file system cannot lock a directory.
            Err(Errno::EBADF | Errno::EINVAL | Errno::ENOLCK | Errno::ENOSYS | Errno::EOPNOTSUPP) => None,
            Err(error) => return Err(error.into()),
        };
        let file = match file() {
            Ok(file) => Some(lock_against_beanstalkd(file)?),
            // On a full or read-only disk, beanstalkd cannot create the file either, so the directory's lock suffices.
            Err(error) if folder.is_some() && (is_no_space(&error) || is_read_only(&error)) => None,
            Err(error) => return Err(error),
        };
        Ok(Locks { _folder: folder, _file: file })
    }
}

impl Storage for Folder {
    fn lock(&self) -> io::Result<()> {
        let before = self.opened.lock().clone().filter(|opened| opened.locks.is_some());
        if before.as_ref().map_or(Ok(false), |before| self.leads_to(before))? {
            return Ok(());
        }
        let mut opened = Opened::at(&self.path)?;
        opened.locks = Some(opened.lock()?);
        if before.is_some() {
            if let Some(name) = opened.names()?.into_iter().find(|name| name != LOCK) {
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
        let is_same = *opened.listed.lock() == Some(changed);
        if is_same && !opened.finds_truncated() {
            return Ok(None);
        }
        let age = SystemTime::now().duration_since(changed).unwrap_or_default();
        let names = opened.names()?;
        *opened.listed.lock() = (age > COARSE).then_some(changed);
        Ok(Some(names))
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        Ok(open_file(&self.opened()?.folder, name)?.metadata()?.len())
    }

    fn read_at(&self, name: &str, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let file = open_file(&self.opened()?.folder, name)?;
        fill(&|at, bytes| file.read_at(bytes, at), offset, bytes)
    }

    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn LogFile>> {
        let opened = self.opened()?;
        let file = open_in(&opened.folder, name, OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL)?;
        let filled = fill_with_zeros(&file, size).and_then(|()| file.sync_all());
        if let Err(error) = filled.and_then(|()| opened.folder.sync_all()) {
            // The incomplete file would use space that the next attempt needs.
            let _ = unlinkat(&opened.folder, name, UnlinkatFlags::NoRemoveDir);
            return Err(error);
        }
        opened.files.lock().originals.remove(name);
        opened.track(name, file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let opened = self.opened()?;
        let file = open_in(&opened.folder, name, OFlag::O_RDWR)?;
        opened.track(name, file)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let opened = self.opened()?;
        let (subfolder, to) = to.split_once('/').unwrap_or((".", to));
        match uninterrupted(|| mkdirat(&opened.folder, subfolder, Mode::S_IRWXU | Mode::S_IRWXG | Mode::S_IRWXO)) {
            Ok(()) | Err(Errno::EEXIST | Errno::EISDIR) => {}
            Err(error) => return Err(error.into()),
        }
        let target = open_in(&opened.folder, subfolder, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
        // Keep an earlier file, which may be evidence of damage or an original file of beanstalkd.
        let mut name = to.to_owned();
        for number in 2.. {
            match fstatat(&target, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(_) => name = format!("{to}.{number}"),
                Err(Errno::ENOENT) => break,
                Err(error) => return Err(error.into()),
            }
        }
        uninterrupted(|| renameat(&opened.folder, from, &target, name.as_str()))?;
        opened.files.lock().originals.remove(from);
        target.sync_all()?;
        opened.folder.sync_all()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let opened = self.opened()?;
        if opened.is_replaced(name) {
            return self.rename(name, &format!("{ASIDE}/{name}"));
        }
        uninterrupted(|| unlinkat(&opened.folder, name, UnlinkatFlags::NoRemoveDir))?;
        opened.files.lock().originals.remove(name);
        // Without this sync, a power failure could undo this removal although a later removal survives.
        opened.folder.sync_all()
    }
}

fn open_in(folder: &File, name: &str, flags: OFlag) -> io::Result<File> {
    let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOCTTY | OFlag::O_NONBLOCK | O_LARGEFILE;
    Ok(uninterrupted(|| openat(folder, name, flags, Mode::S_IRUSR | Mode::S_IWUSR))?.into())
}

/// A file of another type, or a link to such a file or to no file, is not part of the log. It could be endless.
fn open_file(folder: &File, name: &str) -> io::Result<File> {
    let file = open_in(folder, name, OFlag::O_RDONLY);
    let is_other = match &file {
        Ok(file) => !file.metadata()?.is_file(),
        Err(error) => {
            let fails = matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENOENT | libc::ENXIO));
            let found = || fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW);
            fails && found().is_ok_and(|found| found.st_mode & libc::S_IFMT != libc::S_IFREG)
        }
    };
    ensure!(!is_other, io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    file
}

fn lock_folder(folder: &File) -> Result<Flock<File>, Errno> {
    let copy = || folder.try_clone().map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()));
    uninterrupted(|| Flock::lock(copy()?, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error))
}

/// Returns `true` for an exhausted disk, quota or file size limit.
pub fn is_no_space(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// Returns `true` for a broken, full or read-only disk, but not for a wrong configuration.
pub fn is_bad_disk(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EIO) || is_no_space(error) || is_read_only(error)
}

fn is_read_only(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ReadOnlyFilesystem
}

fn busy(holder: &str) -> io::Error {
    let who = if holder.is_empty() { String::new() } else { format!(", process {holder}") };
    io::Error::new(io::ErrorKind::ResourceBusy, format!("it is in use by another server{who}"))
}

fn holder(file: Option<File>) -> String {
    let mut bytes = [0; 20];
    let count = file.map_or(0, |file| fill(&|at, bytes| file.read_at(bytes, at), 0, &mut bytes).unwrap_or(0));
    bytes[..count].iter().take_while(|byte| byte.is_ascii_digit()).map(|&byte| char::from(byte)).collect()
}

fn lock_against_beanstalkd(file: File) -> io::Result<File> {
    let mut held = whole_file();
    uninterrupted(|| fcntl(&file, FcntlArg::F_GETLK(&mut held)))?;
    ensure!(held.l_type == libc::F_UNLCK as i16, busy(&held.l_pid.to_string()));
    uninterrupted(|| fcntl(&file, FcntlArg::F_SETLK(&whole_file())))?;
    // The process ID is only informational, so ignore errors. With another name, the file may be another program's.
    if file.metadata().is_ok_and(|found| found.nlink() == 1) {
        let _ = file.set_len(0).and_then(|()| file.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0));
    }
    Ok(file)
}

fn whole_file() -> libc::flock {
    // SAFETY: all fields are integers, for which zero is valid. The fields differ between processors, so a struct
    // literal would not compile on all of them.
    #[allow(unsafe_code)]
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (libc::F_WRLCK as i16, libc::SEEK_SET as i16);
    lock
}

fn fill_with_zeros(file: &File, size: u64) -> io::Result<()> {
    let zeros = vec![0; ZEROS.min(size as usize)];
    let count = |offset: u64| (size - offset).min(ZEROS as u64) as usize;
    (0..size).step_by(ZEROS).try_for_each(|offset| file.write_all_at(&zeros[..count(offset)], offset))
}

impl Original {
    fn of(file: &File) -> io::Result<(Original, Metadata)> {
        let found = file.metadata()?;
        let identity = (found.dev(), found.ino(), system::created(file));
        Ok((Original { identity, length: AtomicU64::new(found.len()) }, found))
    }

    /// `before` is the length before the file was examined, because the server also extends and truncates its files.
    fn is_longer(&self, found: &Metadata, before: u64) -> bool {
        found.len() < before.min(self.length.load(Ordering::SeqCst))
    }
}

impl LogFile for TrackedFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)?;
        let end = offset + bytes.len() as u64;
        if end > self.original.length.load(Ordering::Relaxed) {
            self.original.length.fetch_max(end, Ordering::SeqCst);
        }
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        // If another program has truncated the file, `set_len` could extend it and thus hide the loss.
        let is_truncated = self.original.is_longer(&self.file.metadata()?, u64::MAX);
        ensure!(!is_truncated, io::Error::other("another program has truncated a segment"));
        self.original.length.store(length, Ordering::SeqCst);
        self.file.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[derive(Debug)]
pub enum OpenError {
    Folder(io::Error),
    File(String, io::Error),
    Damaged(Vec<String>),
    Version(String, u32),
    /// Two segments: different servers continued copies of one log, so the first segment does not follow the second.
    Mixed(String, String),
}

pub fn in_file<T>(name: &str, result: io::Result<T>) -> Result<T, OpenError> {
    result.map_err(|error| OpenError::File(name.to_owned(), error))
}

impl fmt::Display for OpenError {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            OpenError::Folder(error) => error.fmt(out),
            OpenError::File(name, error) => write!(out, "{name}: {error}"),
            OpenError::Damaged(lines) => write!(out, "it is damaged, and --strict was given: {}", lines.join("; ")),
            OpenError::Mixed(name, before) => {
                write!(out, "{name} does not continue {before}: the files of two servers that started from ")?;
                out.write_str("copies of one directory are mixed; keep only those of one server")
            }
            OpenError::Version(name, version) => {
                let age = if *version > VERSION { "newer" } else { "older" };
                write!(out, "{name}: its format {version} is {age} than this program, which reads {VERSION}")
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/storage.rs"]
pub(super) mod tests;

//! Files outside of the binlog. The program creates log files, process ID files, port files, socket files, and the
//! directory of the binlog; it reads files of settings, also while it serves.
//!
//! Owns one rule: what runs as root acts only on the entry that the administrator named. The directory of that entry
//! may belong to another user, who can replace the entry at any time. Therefore each path is resolved once, to an open
//! directory; links are followed only in directories that nobody but root can change; and owners, modes and contents
//! are changed through open files. Must not know what the files contain.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{openat, readlinkat, renameat, AtFlags, OFlag, AT_FDCWD};
use nix::libc::{dev_t, ino_t, mode_t};
use nix::sys::stat::{fstat, fstatat, mkdirat, umask, FileStat, Mode, SFlag};
use nix::unistd::{fchown, geteuid, unlinkat, Uid, UnlinkatFlags};

use super::lock_order::LeafMutex;
use super::system::{is_proc, O_PATH};

/// Links that are followed on the way to one entry, as in the kernel.
const MAX_LINKS: usize = 40;

/// An entry of an open directory, whether the entry exists or not.
#[derive(Debug)]
pub struct FilePlace {
    folder: OwnedFd,
    name: OsString,
    /// Following a link here gains this process nothing: it is not root, or only root can change the directory.
    is_safe: bool,
}

/// A file at its path, identified by its inode, because another file may replace it.
#[derive(Debug)]
pub struct FileEntry {
    place: FilePlace,
    device: dev_t,
    inode: ino_t,
}

impl FilePlace {
    /// Opens the directory of `path`. If the entry is a link, it is not followed.
    pub fn find(path: &Path) -> io::Result<FilePlace> {
        FilePlace::resolve(path, false)
    }

    fn resolve(path: &Path, follows: bool) -> io::Result<FilePlace> {
        if !geteuid().is_root() {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let name = path.file_name().ok_or(Errno::EISDIR)?.to_owned();
            let folder = openat(AT_FDCWD, parent, O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
            return Ok(FilePlace { folder, name, is_safe: true });
        }
        let mut folder = openat(AT_FDCWD, start_of(path), O_PATH | FOLDER, Mode::empty())?;
        let mut rest = parts(path);
        let mut links = 0;
        loop {
            let is_safe = is_only_root_s(&fstat(&folder)?);
            let name = rest.pop().ok_or(Errno::EISDIR)?;
            // Links to open files, such as /dev/stdout, have no path that could be walked.
            let is_last = rest.is_empty() && (!follows || is_proc(&folder)?);
            match readlinkat(&folder, name.as_os_str()) {
                _ if is_last => return Ok(FilePlace { folder, name, is_safe }),
                Ok(target) if is_safe && links < MAX_LINKS => {
                    links += 1;
                    let target = PathBuf::from(target);
                    if target.is_absolute() {
                        folder = openat(AT_FDCWD, start_of(&target), O_PATH | FOLDER, Mode::empty())?;
                    }
                    rest.extend(parts(&target));
                }
                Ok(_) => return Err(planted()),
                Err(_) if rest.is_empty() => return Ok(FilePlace { folder, name, is_safe }),
                Err(_) => folder = openat(&folder, name.as_os_str(), O_PATH | FOLDER, Mode::empty())?,
            }
        }
    }

    /// Returns what the entry is now, without following a link, or `None` if it does not exist.
    pub fn status(&self) -> io::Result<Option<FileStat>> {
        match fstatat(&self.folder, self.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(status) => Ok(Some(status)),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the entry, which is not a directory.
    pub fn remove(&self) -> io::Result<()> {
        Ok(unlinkat(&self.folder, self.name.as_os_str(), UnlinkatFlags::NoRemoveDir)?)
    }

    /// Opens the directory itself, for locking or syncing.
    pub fn open_folder(&self) -> io::Result<File> {
        Ok(File::from(openat(&self.folder, ".", OFlag::O_RDONLY | FOLDER, Mode::empty())?))
    }

    /// Identifies the file that is currently at this place.
    pub fn into_entry(self) -> io::Result<FileEntry> {
        let status = self.status()?.ok_or(Errno::ENOENT)?;
        Ok(self.entry_of(&status))
    }

    fn entry_of(self, status: &FileStat) -> FileEntry {
        FileEntry { device: status.st_dev, inode: status.st_ino, place: self }
    }

    fn create(&self, name: &OsString, flags: OFlag) -> nix::Result<File> {
        let flags = flags | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        openat(&self.folder, name.as_os_str(), flags, Mode::from_bits_truncate(0o666)).map(File::from)
    }

    /// Opens a file that exists. Where others can place files, it must be one that root could not reach otherwise than
    /// by this name: a second name is refused like a link, and so is anything that may block.
    fn open_existing(&self, flags: OFlag) -> io::Result<File> {
        let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
        if self.is_safe {
            let mode = Mode::from_bits_truncate(0o666);
            return Ok(File::from(openat(&self.folder, self.name.as_os_str(), flags | OFlag::O_CREAT, mode)?));
        }
        let careful = flags | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = openat(&self.folder, self.name.as_os_str(), careful, Mode::empty());
        let file = file.map_err(|error| if error == Errno::ELOOP { planted() } else { error.into() })?;
        let status = fstat(&file)?;
        if kind(&status) == SFlag::S_IFREG && status.st_nlink == 1 {
            Ok(File::from(file))
        } else {
            Err(planted())
        }
    }

    /// Atomically replaces the entry with a new file with these bytes.
    pub fn replace(self, bytes: &[u8]) -> io::Result<FileEntry> {
        let mut fresh = self.name.clone();
        fresh.push(format!(".{}", std::process::id()));
        let unlink = || unlinkat(&self.folder, fresh.as_os_str(), UnlinkatFlags::NoRemoveDir);
        let file = match self.create(&fresh, OFlag::O_WRONLY) {
            // Left behind by an earlier process with this ID.
            Err(Errno::EEXIST) => unlink().and_then(|()| self.create(&fresh, OFlag::O_WRONLY)),
            created => created,
        };
        let mut file = file?;
        let status = fstat(&file)?;
        let written = file
            .write_all(bytes)
            .and_then(|()| Ok(renameat(&self.folder, fresh.as_os_str(), &self.folder, self.name.as_os_str())?));
        if written.is_err() {
            let _ = unlink();
        }
        written.map(|()| self.entry_of(&status))
    }

    /// Creates a directory for its owner alone, who is this user or `owner`, and syncs its entry. Returns `false` if
    /// something exists already.
    pub fn make_folder(&self, owner: Option<(u32, u32)>) -> io::Result<bool> {
        match mkdirat(&self.folder, self.name.as_os_str(), Mode::S_IRWXU) {
            Ok(()) => {}
            Err(Errno::EEXIST) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        if let Some((user, group)) = owner {
            let made = openat(&self.folder, self.name.as_os_str(), FOLDER | OFlag::O_RDONLY, Mode::empty())?;
            // Another directory may have replaced it; one that does not belong to root needs no new owner.
            if Uid::from_raw(fstat(&made)?.st_uid) == geteuid() {
                fchown(&made, Some(user.into()), Some(group.into()))?;
            }
        }
        if let Err(error) = self.open_folder().and_then(|parent| parent.sync_all()) {
            log::warn!("cannot sync the folder above {}: {error}", self.name.to_string_lossy());
        }
        Ok(true)
    }

    /// Opens the file at `path`, and creates it if it does not exist. Returns whether it was created, and its entry.
    pub fn open(path: &Path, flags: OFlag) -> io::Result<(File, bool, FileEntry)> {
        let place = FilePlace::resolve(path, true)?;
        let (file, is_new) = match place.create(&place.name, flags) {
            Ok(file) => (file, true),
            Err(Errno::EEXIST) => (place.open_existing(flags)?, false),
            Err(error) => return Err(error.into()),
        };
        let status = fstat(&file)?;
        Ok((file, is_new, place.entry_of(&status)))
    }
}

impl FileEntry {
    /// Removes the file, unless another file has taken its place.
    pub fn remove(&self) -> io::Result<()> {
        match self.place.status()? {
            Some(now) if (now.st_dev, now.st_ino) == (self.device, self.inode) => self.place.remove(),
            _ => Ok(()),
        }
    }
}

/// The largest file that is read as a whole, in bytes.
const MOST: u64 = 64 << 20;

/// Reads a file of settings. It must be a regular file: a pipe without a writer would block the caller, who handles
/// signals as well.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MOST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST {
        return Err(io::Error::other(format!("larger than {MOST} bytes")));
    }
    Ok(bytes)
}

/// Opens a log file for appending. A file that root creates belongs to `owner`, who must be able to open it again.
pub fn open_log(path: &Path, owner: Option<u32>) -> io::Result<File> {
    let (file, is_new, _) = FilePlace::open(path, OFlag::O_WRONLY | OFlag::O_APPEND)?;
    match owner {
        Some(owner) if is_new && geteuid().is_root() => fchown(&file, Some(owner.into()), None)?,
        _ => {}
    }
    Ok(file)
}

/// Calls `bind`, which creates a socket file with this mode. Meanwhile, the umask of all threads differs.
pub fn with_mode(mode: u32, bind: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    // Two threads at once could leave the umask of one of them behind.
    static TURN: LeafMutex<()> = LeafMutex::new(());
    let _turn = TURN.lock();
    let before = umask(Mode::from_bits_truncate((!mode & 0o777) as mode_t));
    let bound = bind();
    umask(before);
    bound
}

/// Logs a warning if users other than the owner and the group can read this file, which contains a secret. A group may
/// exist for this purpose.
pub fn check_secret(path: &Path) {
    let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.mode());
    if Mode::from_bits_truncate(mode as mode_t).contains(Mode::S_IROTH) {
        let path = path.display();
        log::warn!("all users can read {path}, which contains a secret: chmod o= {path}");
    }
}

/// Flags for a directory that is not a link.
const FOLDER: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Returns `true` if only root can change the contents of this directory.
fn is_only_root_s(folder: &FileStat) -> bool {
    folder.st_uid == 0 && !Mode::from_bits_truncate(folder.st_mode).intersects(Mode::S_IWGRP | Mode::S_IWOTH)
}

fn kind(status: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT
}

/// Returns where a path starts.
fn start_of(path: &Path) -> &'static str {
    if path.is_absolute() {
        "/"
    } else {
        "."
    }
}

/// Returns the names of the entries on the path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let named = path.components().rev().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    named.map(|part| part.as_os_str().to_owned()).collect()
}

fn planted() -> io::Error {
    let reason = "root follows no link in a folder that another user can change";
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

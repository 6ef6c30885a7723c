//! Files other than the binlog's: log files, PID files, port files, socket files, the binlog directory, and settings.
//! Protects a root process against users who can replace entries of their own directories at any time: a path is
//! resolved once, to an open directory, and links are followed only in directories that only root can change.

use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::{ffi::OsString, fs::File, fs::Permissions, os::fd::AsRawFd, os::fd::OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{fcntl, openat, readlinkat, renameat, AtFlags, FcntlArg, OFlag, AT_FDCWD};
use nix::libc::{mode_t, S_IFMT, S_IFREG, S_IFSOCK};
use nix::sys::stat::{mkdirat, umask, Mode};
use nix::unistd::{fchown, geteuid, unlinkat, Uid, UnlinkatFlags};

use super::lock_order::LeafMutex;
use super::system::{fstat, fstatat, is_proc, FileStat, OPEN_FILES, O_LARGEFILE, O_PATH};

#[derive(Debug)]
pub struct FilePlace {
    folder: OwnedFd,
    name: OsString,
    /// `true` if links are safe: the process is not root, or only root can change the directory.
    is_safe: bool,
    /// `true` if the same path always leads to this directory, because links are safe in all directories above it.
    is_fixed: bool,
}

/// Identifies a file by its path and its inode, because another file may later have the same path.
#[derive(Debug)]
pub struct FileEntry {
    place: FilePlace,
    /// Contains the device and inode numbers, whose types differ between processors.
    status: Box<FileStat>,
    /// The file that [`FilePlace::replace`] created, which stays open so that no later file gets the same inode.
    _file: Option<File>,
}

impl FilePlace {
    pub fn find(path: &Path) -> io::Result<FilePlace> {
        FilePlace::resolve(path, false)
    }

    fn resolve(path: &Path, follows: bool) -> io::Result<FilePlace> {
        if !geteuid().is_root() {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let name = path.file_name().ok_or(Errno::EISDIR)?.to_owned();
            let folder = openat(AT_FDCWD, parent, FOLLOWED, Mode::empty())?;
            return Ok(FilePlace { folder, name, is_safe: true, is_fixed: true });
        }
        let mut folder = open_start(path)?;
        let mut rest = parts(path);
        let (mut links, mut is_fixed) = (0, true);
        loop {
            let FileStat { st_uid, st_mode, .. } = fstat(&folder)?;
            let is_safe = st_uid == 0 && !Mode::from_bits_truncate(st_mode).intersects(Mode::S_IWGRP | Mode::S_IWOTH);
            let name = rest.pop().ok_or(Errno::EISDIR)?;
            // Let the kernel follow links in /proc: the link behind /dev/stdout, for example, might not contain a path.
            let is_in_proc = is_proc(&folder)?;
            let is_last = rest.is_empty() && (!follows || is_in_proc);
            is_fixed &= is_safe || rest.is_empty();
            match readlinkat(&folder, name.as_os_str()) {
                _ if is_last => return Ok(FilePlace { folder, name, is_safe, is_fixed }),
                Ok(_) if is_safe && is_in_proc => folder = openat(&folder, name.as_os_str(), FOLLOWED, Mode::empty())?,
                // The kernel also follows at most 40 links.
                Ok(target) if is_safe && links < 40 => {
                    links += 1;
                    let target = PathBuf::from(target);
                    if target.is_absolute() {
                        folder = open_start(&target)?;
                    }
                    rest.extend(parts(&target));
                }
                Ok(_) => return Err(planted()),
                Err(_) if rest.is_empty() => return Ok(FilePlace { folder, name, is_safe, is_fixed }),
                Err(_) => folder = openat(&folder, name.as_os_str(), O_PATH | FOLDER, Mode::empty())?,
            }
        }
    }

    /// Returns a path to the entry for system calls that accept only a path. Even a user who can replace a directory in
    /// `path` cannot redirect the result, unless /proc is missing.
    pub fn fixed_path(&self, path: &Path) -> PathBuf {
        match OPEN_FILES.filter(|open| !self.is_fixed && Path::new(open).exists()) {
            Some(open) => Path::new(open).join(self.folder.as_raw_fd().to_string()).join(&self.name),
            None => path.to_owned(),
        }
    }

    pub fn status(&self) -> nix::Result<Box<FileStat>> {
        fstatat(&self.folder, self.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW).map(Box::new)
    }

    pub fn remove(&self) -> io::Result<()> {
        Ok(unlinkat(&self.folder, self.name.as_os_str(), UnlinkatFlags::NoRemoveDir)?)
    }

    pub fn open_folder(&self) -> io::Result<File> {
        Ok(File::from(openat(&self.folder, ".", OFlag::O_RDONLY | FOLDER, Mode::empty())?))
    }

    pub fn into_entry(self) -> io::Result<FileEntry> {
        Ok(FileEntry { status: self.status()?, place: self, _file: None })
    }

    fn create(&self, name: &OsString, flags: OFlag) -> nix::Result<File> {
        let flags = flags | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC | O_LARGEFILE;
        openat(&self.folder, name.as_os_str(), flags, Mode::from_bits_truncate(0o666)).map(File::from)
    }

    /// In a directory that other users can change, the file must be regular and have a single name. A link or a second
    /// name could lead to a file that only root can access. A pipe without a reader would block, so opening it fails.
    fn open_existing(&self, flags: OFlag) -> io::Result<File> {
        let careful = flags | OFlag::O_CLOEXEC | OFlag::O_NOCTTY | OFlag::O_NONBLOCK | O_LARGEFILE;
        if self.is_safe {
            let mode = Mode::from_bits_truncate(0o666);
            let file = openat(&self.folder, self.name.as_os_str(), careful | OFlag::O_CREAT, mode)?;
            fcntl(&file, FcntlArg::F_SETFL(flags))?;
            return Ok(file.into());
        }
        let careful = careful | OFlag::O_NOFOLLOW;
        let file = openat(&self.folder, self.name.as_os_str(), careful, Mode::empty());
        let file = file.map_err(|error| if error == Errno::ELOOP { planted() } else { error.into() })?;
        let status = fstat(&file)?;
        (status.st_mode & S_IFMT == S_IFREG && status.st_nlink == 1).then(|| File::from(file)).ok_or_else(planted)
    }

    pub fn replace(self, bytes: &[u8]) -> io::Result<FileEntry> {
        let found = fstatat(&self.folder, self.name.as_os_str(), AtFlags::empty());
        let is_other = found.is_ok_and(|found| found.st_mode & S_IFMT != S_IFREG);
        ensure!(!is_other, io::Error::new(io::ErrorKind::AlreadyExists, "a file that is not regular is in the way"));
        let mut fresh = self.name.clone();
        fresh.push(format!(".{}", std::process::id()));
        let unlink = || unlinkat(&self.folder, fresh.as_os_str(), UnlinkatFlags::NoRemoveDir);
        let mut file = match self.create(&fresh, OFlag::O_WRONLY) {
            // The file is from an earlier process with the same ID.
            Err(Errno::EEXIST) => unlink().and_then(|()| self.create(&fresh, OFlag::O_WRONLY)),
            created => created,
        }?;
        let status = Box::new(fstat(&file)?);
        let written = file
            .write_all(bytes)
            .and_then(|()| Ok(renameat(&self.folder, fresh.as_os_str(), &self.folder, self.name.as_os_str())?));
        if written.is_err() {
            let _ = unlink();
        }
        written.map(|()| FileEntry { place: self, status, _file: Some(file) })
    }

    /// Creates a directory that only `owner`, or by default the current user, can access. Returns `false` if it exists.
    pub fn make_folder(&self, owner: Option<(u32, u32)>) -> io::Result<bool> {
        match mkdirat(&self.folder, self.name.as_os_str(), Mode::S_IRWXU) {
            Ok(()) => {}
            Err(Errno::EEXIST) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        if let Some((user, group)) = owner {
            let made = openat(&self.folder, self.name.as_os_str(), FOLDER | OFlag::O_RDONLY, Mode::empty())?;
            // Another user may have replaced the directory, so only a directory that belongs to root gets a new owner.
            if Uid::from_raw(fstat(&made)?.st_uid) == geteuid() {
                fchown(&made, Some(user.into()), Some(group.into()))?;
            }
        }
        if let Err(error) = self.open_folder().and_then(|parent| parent.sync_all()) {
            log::warn!("cannot sync the folder above {}: {error}", self.name.to_string_lossy());
        }
        Ok(true)
    }

    /// Opens a file, and creates it if it is missing. The returned `bool` is `true` if the file is new.
    pub fn open(path: &Path, flags: OFlag) -> io::Result<(File, bool, FileEntry)> {
        let place = FilePlace::resolve(path, true)?;
        let (file, is_new) = match place.create(&place.name, flags) {
            Ok(file) => (file, true),
            Err(Errno::EEXIST) => (place.open_existing(flags)?, false),
            Err(error) => return Err(error.into()),
        };
        let status = Box::new(fstat(&file)?);
        Ok((file, is_new, FileEntry { place, status, _file: None }))
    }
}

impl FileEntry {
    pub fn remove(&self) -> io::Result<()> {
        match self.place.status() {
            // Devices and pipes existed before the process opened them.
            Ok(now) if ![S_IFREG, S_IFSOCK].contains(&(now.st_mode & S_IFMT)) => Ok(()),
            Ok(now) if (now.st_dev, now.st_ino) == (self.status.st_dev, self.status.st_ino) => self.place.remove(),
            Ok(_) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Opens a directory. As root, follows links only in directories that other users cannot change.
pub fn open_folder(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    if !geteuid().is_root() || parts(path).is_empty() {
        return Ok(openat(AT_FDCWD, path, flags, Mode::empty())?.into());
    }
    let place = FilePlace::resolve(path, true)?;
    let last = if place.is_safe { OFlag::empty() } else { OFlag::O_NOFOLLOW };
    Ok(openat(&place.folder, place.name.as_os_str(), flags | last, Mode::empty())?.into())
}

/// The maximum size of a file with settings, in bytes.
const MAX_SIZE: u64 = 64 << 20;

/// Fails unless the file is regular, because a pipe without a writer would block the thread that handles signals.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    ensure!(file.metadata()?.is_file(), io::Error::other("not a regular file"));
    let mut bytes = Vec::new();
    file.take(MAX_SIZE + 1).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 <= MAX_SIZE, io::Error::other(format!("larger than {MAX_SIZE} bytes")));
    Ok(bytes)
}

/// If root creates the file, the file belongs to `owner`, who must be able to reopen it.
pub fn open_log(path: &Path, owner: Option<u32>) -> io::Result<File> {
    let (file, is_new, _) = FilePlace::open(path, OFlag::O_WRONLY | OFlag::O_APPEND)?;
    if let Some(owner) = owner.filter(|_| is_new && geteuid().is_root()) {
        fchown(&file, Some(owner.into()), None)?;
    }
    Ok(file)
}

/// Calls `bind`, which creates the socket file `path`, and gives the file the mode `mode`. As root, changes the umask
/// instead, because the path could already lead to another file when `bind` returns.
pub fn bind_with_mode(path: &Path, mode: u32, bind: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    if !geteuid().is_root() {
        return bind().and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(mode)));
    }
    // Concurrent calls could restore the wrong umask.
    static UMASK_LOCK: LeafMutex<()> = LeafMutex::new(());
    let _guard = UMASK_LOCK.lock();
    let before = umask(Mode::from_bits_truncate((!mode & 0o777) as mode_t));
    let bound = bind();
    umask(before);
    bound
}

pub fn check_secret(path: &Path) {
    let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.mode());
    if Mode::from_bits_truncate(mode as mode_t).contains(Mode::S_IROTH) {
        let path = path.display();
        log::warn!("all users can read {path}, which contains a secret: chmod o= {path}");
    }
}

const FOLLOWED: OFlag = O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);
const FOLDER: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

fn open_start(path: &Path) -> nix::Result<OwnedFd> {
    let start = if path.is_absolute() { "/" } else { "." };
    openat(AT_FDCWD, start, O_PATH | FOLDER, Mode::empty())
}

fn parts(path: &Path) -> Vec<OsString> {
    let named = path.components().rev().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    named.map(|part| part.as_os_str().to_owned()).collect()
}

fn planted() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "root follows no link in a folder that another user can change")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Creates the directory `top/place`, and calls `test` with `top`. Other users can write to the parent of `top`.
    fn with_folder(name: &str, test: impl FnOnce(&Path)) {
        if !geteuid().is_root() {
            println!("skipped: only root can do this");
            return;
        }
        let top = std::env::temp_dir().join(format!("beanpole-{name}-{}", std::process::id()));
        fs::create_dir_all(top.join("place")).expect("a directory");
        test(&top);
        fs::remove_dir_all(&top).expect("a directory");
    }

    /// Another user, who owns the directory, replaces the socket file with a link immediately after its creation.
    #[test]
    fn root_sets_the_mode_of_no_other_file() {
        with_folder("mode", |top| {
            let (path, moved, target) = (top.join("s"), top.join("moved"), top.join("target"));
            fs::write(&target, "precious").expect("a file");
            fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).expect("a file");
            bind_with_mode(&path, 0o666, || {
                drop(UnixListener::bind(&path)?);
                fs::rename(&path, &moved)?;
                symlink(&target, &path)
            })
            .expect("a socket file");
            let mode = |path: &Path| fs::metadata(path).expect("a file").permissions().mode() & 0o777;
            assert_eq!((mode(&moved), mode(&target)), (0o666, 0o600));
        });
    }

    /// Another user, who owns the parent of the socket's directory, replaces the socket's directory with a link.
    #[test]
    fn root_creates_a_socket_only_in_the_directory_that_it_has_checked() {
        with_folder("fixed", |top| {
            let (path, moved, private) = (top.join("place/s"), top.join("moved"), top.join("private"));
            fs::create_dir(&private).expect("a directory");
            let place = FilePlace::find(&path).expect("a place");
            fs::rename(top.join("place"), &moved).expect("a directory");
            symlink(&private, top.join("place")).expect("a link");
            let fixed = place.fixed_path(&path);
            drop(UnixListener::bind(&fixed).expect("a socket"));
            assert!(moved.join("s").exists() && !private.join("s").exists(), "{}", fixed.display());
            // In directories that only root can change, the path itself is stable.
            let system = Path::new("/etc/passwd");
            assert_eq!(FilePlace::find(system).expect("a place").fixed_path(system), system);
        });
    }
}

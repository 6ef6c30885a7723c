//! The seam between the log and the disk.
//!
//! Owns every touch of a file. The log above it sees a folder of named files that can be listed, read, created at full
//! size, written at a place, cut, synced, renamed and removed; tests put a faulty memory in its place. Must not know
//! what the bytes mean.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use nix::fcntl::{fcntl, FcntlArg, Flock, FlockArg};
use nix::libc;

use super::replay::Source;

/// A file of the log that is open for writing. Writes and syncs may come from different threads at a time.
pub trait LogFile: Send + Sync {
    /// Writes all of the bytes at this place, growing the file if need be.
    fn write_at(&self, place: u64, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the file to this length.
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Returns when everything written before the call is on the disk for good.
    fn sync(&self) -> io::Result<()>;
    /// Whether it is still in the folder.
    fn is_linked(&self) -> io::Result<bool> {
        Ok(true)
    }
}

pub trait Storage: Send + Sync {
    /// Takes the folder for this process alone; the error names the holder.
    fn lock(&self) -> io::Result<()>;
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    fn length(&self, name: &str) -> io::Result<u64>;
    /// Fills `bytes` from this place of a file on, or a part of them; tells how many, none only at its end.
    fn read_at(&self, name: &str, place: u64, bytes: &mut [u8]) -> io::Result<usize>;
    /// Makes a new file of so many zero bytes, with space for all of them, on the disk for good.
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn LogFile>>;
    /// Opens a file for writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>>;
    /// Gives a file another name, which may be in a subfolder, or one like it if there is such a file already; for
    /// good.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file, so that it stays away after a power cut.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// A number that no other log has, for a new log.
    fn new_log(&self) -> u64 {
        RandomState::new().hash_one(0)
    }
    /// The clock by which it is told whether the disk is slow; a simulated disk has its own.
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

/// A folder on a real disk.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Held for life: the folder's lock, and that of the file in it.
    lock: parking_lot::Mutex<Option<(Flock<File>, Option<File>)>>,
}

/// The name of the file that is locked as well, as beanstalkd does, and that tells whose process has the folder.
const LOCK: &str = "lock";

/// Zero bytes written at a time.
const ZEROS: usize = 64 * 1024;

impl Folder {
    /// The folder at `path`, which must exist.
    pub fn new(path: impl Into<PathBuf>) -> Folder {
        Folder { path: path.into(), lock: parking_lot::Mutex::new(None) }
    }

    fn sync_entries(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

impl Storage for Folder {
    fn lock(&self) -> io::Result<()> {
        // The folder itself, since a file in it can be removed.
        let path = self.path.join(LOCK);
        let folder = match Flock::lock(File::open(&self.path)?, FlockArg::LockExclusiveNonblock) {
            Ok(folder) => folder,
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => return Err(busy(&holder(File::open(path).ok()))),
            Err((_, error)) => return Err(error.into()),
        };
        // What root writes there must not be another file's content.
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(path);
        *self.lock.lock() = match file {
            Ok(file) => Some((folder, Some(lock_against_beanstalkd(file)?))),
            // Where nothing can be written, no beanstalkd writes either.
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Some((folder, None)),
            Err(error) => return Err(error),
        };
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(&self.path)?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        Ok(fs::metadata(self.path.join(name))?.len())
    }

    fn read_at(&self, name: &str, place: u64, bytes: &mut [u8]) -> io::Result<usize> {
        File::open(self.path.join(name))?.read_at(bytes, place)
    }

    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn LogFile>> {
        let path = self.path.join(name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        let filled = fill(&file, size).and_then(|()| file.sync_all()).and_then(|()| self.sync_entries());
        if let Err(error) = filled {
            // A file that could not be filled would only take space from the next try.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(Arc::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        Ok(Arc::new(OpenOptions::new().read(true).write(true).open(self.path.join(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut target = self.path.join(to);
        // What is kept aside is evidence, or an original: never overwritten.
        for number in 2.. {
            if !target.exists() {
                break;
            }
            target = self.path.join(format!("{to}.{number}"));
        }
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
            fs::rename(self.path.join(from), &target)?;
            File::open(parent)?.sync_all()?;
        }
        self.sync_entries()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))?;
        // Segments must go in order, even through a power cut.
        self.sync_entries()
    }
}

fn busy(holder: &str) -> io::Error {
    let who = if holder.is_empty() { String::new() } else { format!(", process {holder}") };
    io::Error::new(io::ErrorKind::ResourceBusy, format!("it is in use by another server{who}"))
}

/// The digits in a lock file, whatever else is in it.
fn holder(file: Option<File>) -> String {
    let mut bytes = [0; 20];
    let count = file.map_or(0, |file| file.read_at(&mut bytes, 0).unwrap_or(0));
    bytes[..count].iter().take_while(|byte| byte.is_ascii_digit()).map(|&byte| char::from(byte)).collect()
}

/// beanstalkd takes a lock of another kind, on a file.
fn lock_against_beanstalkd(file: File) -> io::Result<File> {
    if let Some(process) = held_by_beanstalkd(&file)? {
        return Err(busy(&process.to_string()));
    }
    fcntl(&file, FcntlArg::F_SETLK(&whole_file()))?;
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
    fcntl(file, FcntlArg::F_GETLK(&mut lock))?;
    Ok((lock.l_type != libc::F_UNLCK as i16).then_some(lock.l_pid))
}

fn fill(file: &File, size: u64) -> io::Result<()> {
    let zeros = vec![0; ZEROS.min(size as usize)];
    let mut place = 0;
    while place < size {
        let count = (size - place).min(zeros.len() as u64);
        file.write_all_at(&zeros[..count as usize], place)?;
        place += count;
    }
    Ok(())
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

    fn is_linked(&self) -> io::Result<bool> {
        Ok(self.metadata()?.nlink() > 0)
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
        fill(&file, ZEROS as u64 + 77).expect("space");
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
        assert_ne!(folder.new_log(), folder.new_log());
    }

    #[test]
    fn a_file_tells_when_it_is_in_the_folder_no_more() {
        let (folder, _temporary) = temporary("linked");
        let file = folder.create("file", 10).expect("a file");
        assert!(file.is_linked().expect("a look"));
        folder.remove("file").expect("a file");
        assert!(!file.is_linked().expect("a look"));
    }
}

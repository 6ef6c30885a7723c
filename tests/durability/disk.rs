//! A layer that can delay, count and reject the server's operations on a real directory.
//!
//! Owns no data. An operation that is not rejected is executed on the real directory.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use beanpole::internals::binlog::{Folder, LogFile, Storage};

/// Forwards operations to a directory. The [`Controls`] can delay or reject operations.
pub struct Disk {
    folder: Folder,
    controls: Arc<Controls>,
}

/// The behavior of the disk, and a record of its operations.
#[derive(Default)]
pub struct Controls {
    /// The delay of each sync and each creation of a file, in milliseconds.
    pub sync_millis: AtomicU64,
    /// `true` to block syncs and the creation of files, `false` to release the blocked operations.
    pub stuck: AtomicBool,
    waiting: AtomicUsize,
    /// `true` to make writes to a file wait for a sync in progress, as the kernel does when the disk is busy.
    pub writes_wait: AtomicBool,
    /// The error numbers with which syncs, writes and creations of files fail, or 0 if they succeed.
    pub sync_error: AtomicI32,
    pub write_error: AtomicI32,
    pub create_error: AtomicI32,
    syncs: AtomicUsize,
    /// The start and end times of the successful syncs.
    times: Mutex<Vec<(Instant, Instant)>>,
    last_write: Mutex<Option<Instant>>,
    syncing: Mutex<()>,
}

struct File {
    file: Arc<dyn LogFile>,
    controls: Arc<Controls>,
}

impl Disk {
    pub fn new(path: &Path) -> (Arc<Disk>, Arc<Controls>) {
        let controls = Arc::<Controls>::default();
        (Arc::new(Disk { folder: Folder::new(path), controls: controls.clone() }), controls)
    }

    fn wrap(&self, file: Arc<dyn LogFile>) -> Arc<dyn LogFile> {
        Arc::new(File { file, controls: self.controls.clone() })
    }
}

fn fail(error: &AtomicI32) -> io::Result<()> {
    match error.load(Ordering::SeqCst) {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

impl Controls {
    /// Makes later syncs, writes and creations of files fail with the error number `error`. 0 ends the failures.
    pub fn fail_all(&self, error: i32) {
        for control in [&self.sync_error, &self.write_error, &self.create_error] {
            control.store(error, Ordering::SeqCst);
        }
    }

    /// Returns the number of syncs of files, including failed syncs.
    pub fn syncs(&self) -> usize {
        self.syncs.load(Ordering::SeqCst)
    }

    pub fn times(&self) -> Vec<(Instant, Instant)> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn last_write(&self) -> Option<Instant> {
        *self.last_write.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    fn linger(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while self.stuck.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        match self.sync_millis.load(Ordering::SeqCst) {
            0 => {}
            millis => std::thread::sleep(Duration::from_millis(millis)),
        }
    }
}

impl Storage for Disk {
    fn lock(&self) -> io::Result<()> {
        self.folder.lock()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.folder.list()
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        self.folder.length(name)
    }

    fn read_at(&self, name: &str, place: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.folder.read_at(name, place, bytes)
    }

    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn LogFile>> {
        self.controls.linger();
        fail(&self.controls.create_error)?;
        Ok(self.wrap(self.folder.create(name, size)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        Ok(self.wrap(self.folder.open(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.folder.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.folder.remove(name)
    }
}

impl LogFile for File {
    fn write_at(&self, place: u64, bytes: &[u8]) -> io::Result<()> {
        if self.controls.writes_wait.load(Ordering::SeqCst) {
            drop(self.controls.syncing.lock());
        }
        fail(&self.controls.write_error)?;
        self.file.write_at(place, bytes)?;
        *self.controls.last_write.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)
    }

    fn sync(&self) -> io::Result<()> {
        let start = Instant::now();
        self.controls.syncs.fetch_add(1, Ordering::SeqCst);
        let syncing = self.controls.syncing.lock();
        self.controls.linger();
        drop(syncing);
        fail(&self.controls.sync_error)?;
        self.file.sync()?;
        self.controls.times.lock().unwrap_or_else(PoisonError::into_inner).push((start, Instant::now()));
        Ok(())
    }
}

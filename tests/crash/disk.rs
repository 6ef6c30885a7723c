//! A simulated disk in memory, with the faults of real disks.
//!
//! Owns the durable and the unsynced contents of each file. On request, the disk loses or tears writes, or returns
//! errors. The same seed always causes the same losses. The creation, renaming and removal of files are durable
//! immediately, as the `Storage` trait requires. Must not depend on the meaning of the bytes.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use beanpole::internals::binlog::{LogFile, Storage};
use parking_lot::Mutex;

use crate::random::Random;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Read,
    Create,
    Open,
    Rename,
    Remove,
    Write,
    Cut,
    Sync,
}

pub const ENOSPC: i32 = 28;

pub const EIO: i32 = 5;
pub const EPERM: i32 = 1;

/// The size of a sector in bytes. A real disk writes a sector completely or not at all.
const SECTOR: usize = 512;

/// A nondurable change to a file.
#[derive(Clone, Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Cut(usize),
}

#[derive(Clone, Debug, Default)]
struct File {
    /// The contents that survive a power failure.
    durable: Vec<u8>,
    /// The contents that programs read.
    current: Vec<u8>,
    /// The changes between `durable` and `current`, in order.
    pending: Vec<Change>,
}

#[derive(Clone, Debug)]
struct Fault {
    operation: Operation,
    error: i32,
    /// The number of further operations that fail.
    times: u64,
}

#[derive(Clone, Debug)]
struct State {
    names: BTreeMap<String, u64>,
    files: HashMap<u64, File>,
    next: u64,
    /// The name and the ID of the most recently removed file.
    removed: Option<(String, u64)>,
    /// The maximum total size of all files in bytes.
    capacity: u64,
    faults: Vec<Fault>,
    /// The file that can be neither opened for writing nor removed.
    immutable: Vec<String>,
    /// Files that another program has replaced since the process started.
    replaced: Vec<String>,
    operations: u64,
    /// The number of the operation at which the disk stops.
    crash_at: u64,
    crashed: bool,
    random: Random,
    /// The total number of bytes read, and the size of the largest read in bytes.
    reads: (u64, usize),
    /// The disk's own clock, and the time by which each write and sync advances the clock.
    clock: (Instant, Duration),
}

/// A disk. Clones refer to the same disk.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Mutex<State>>);

/// The unsynced changes that survive a power failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    Nothing,
    All,
    /// A prefix of the changes. The last change of the prefix can be incomplete.
    Prefix,
    /// A random set of sectors.
    Sectors,
    /// A random set of sectors, some of which are incomplete.
    Torn,
}

impl File {
    fn apply(bytes: &mut Vec<u8>, change: &Change) {
        match change {
            Change::Cut(length) => bytes.resize(*length, 0),
            Change::Write(place, written) => {
                let end = place + written.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*place..end].copy_from_slice(written);
            }
        }
    }

    fn change(&mut self, change: Change) {
        File::apply(&mut self.current, &change);
        self.pending.push(change);
    }

    fn settle(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        pending.iter().for_each(|change| File::apply(&mut self.durable, change));
    }

    /// Simulates a power failure: keeps a part of the file's unsynced changes.
    fn cut(&mut self, cut: Cut, random: &mut Random) {
        let pending = std::mem::take(&mut self.pending);
        let kept = match cut {
            Cut::Nothing => 0,
            Cut::Prefix => random.below(pending.len() as u64 + 1) as usize,
            _ => pending.len(),
        };
        for (place, change) in pending[..kept].iter().enumerate() {
            match change {
                Change::Write(at, bytes) => match cut {
                    Cut::Prefix if place + 1 == kept => {
                        let length = random.below(bytes.len() as u64 + 1) as usize;
                        File::apply(&mut self.durable, &Change::Write(*at, bytes[..length].to_vec()));
                    }
                    Cut::Sectors | Cut::Torn => self.keep_sectors(*at, bytes, cut == Cut::Torn, random),
                    _ => File::apply(&mut self.durable, change),
                },
                Change::Cut(_) if cut == Cut::All || cut == Cut::Prefix || random.once_in(2) => {
                    File::apply(&mut self.durable, change);
                }
                Change::Cut(_) => {}
            }
        }
        self.current.clone_from(&self.durable);
    }

    fn keep_sectors(&mut self, at: usize, bytes: &[u8], torn: bool, random: &mut Random) {
        let mut from = 0;
        while from < bytes.len() {
            let to = bytes.len().min(from + SECTOR - (at + from) % SECTOR);
            if random.once_in(2) {
                let length = if torn { random.below((to - from) as u64 + 1) as usize } else { to - from };
                File::apply(&mut self.durable, &Change::Write(at + from, bytes[from..from + length].to_vec()));
            }
            from = to;
        }
    }
}

impl Disk {
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let state = self.0.lock();
        state.files[&state.names[name]].current.clone()
    }

    pub fn new(seed: u64) -> Disk {
        Disk(Arc::new(Mutex::new(State {
            names: BTreeMap::new(),
            files: HashMap::new(),
            next: 0,
            removed: None,
            capacity: u64::MAX,
            faults: Vec::new(),
            immutable: Vec::new(),
            replaced: Vec::new(),
            operations: 0,
            crash_at: u64::MAX,
            crashed: false,
            random: Random::new(seed),
            reads: (0, 0),
            clock: (Instant::now(), Duration::ZERO),
        })))
    }

    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// Like [`Disk::crash_at`], but `operations` counts from now.
    #[allow(dead_code)] // used only by tests of long commands
    pub fn crash_in(&self, operations: u64) {
        let mut state = self.0.lock();
        state.crash_at = state.operations + operations;
    }

    /// Makes the disk stop at operation number `operation`, which is executed partly or not at all. All later
    /// operations fail.
    pub fn crash_at(&self, operation: u64) {
        self.0.lock().crash_at = operation;
    }

    pub fn stop(&self) {
        self.0.lock().crashed = true;
    }

    pub fn has_crashed(&self) -> bool {
        self.0.lock().crashed
    }

    /// Returns a copy of the disk after a power failure.
    pub fn power_cut(&self, seed: u64) -> Disk {
        let mut state = self.0.lock().clone();
        let mut random = Random::new(seed);
        let modes = [Cut::Nothing, Cut::All, Cut::Prefix, Cut::Sectors, Cut::Torn];
        let cut = random.pick(&modes);
        let mut numbers: Vec<u64> = state.files.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            state.files.get_mut(&number).expect("a file").cut(cut, &mut random);
        }
        state.revive(seed);
        Disk(Arc::new(Mutex::new(state)))
    }

    /// Returns a copy of the disk with the most recently removed file, as if the removal had been lost.
    #[allow(dead_code)] // used only by tests/crash.rs
    pub fn without_last_removal(&self) -> Disk {
        let mut state = self.0.lock().clone();
        if let Some((name, number)) = state.removed.take() {
            state.names.insert(name, number);
        }
        Disk(Arc::new(Mutex::new(state)))
    }

    /// Returns a copy of the disk as if the process had been killed. Written bytes survive, but remain unsynced until
    /// the next sync.
    pub fn kill(&self, seed: u64) -> Disk {
        let mut state = self.0.lock().clone();
        state.revive(seed);
        Disk(Arc::new(Mutex::new(state)))
    }

    /// Returns the total number of bytes read, and the size of the largest read in bytes.
    #[allow(dead_code)] // used only by tests of damaged directories
    pub fn reads(&self) -> (u64, usize) {
        self.0.lock().reads
    }

    pub fn fail(&self, operation: Operation, error: i32, times: u64) {
        self.0.lock().faults.push(Fault { operation, error, times });
    }

    /// Makes each later write and sync take `length`. Nothing else advances the disk's own clock.
    #[allow(dead_code)] // used only by the simulation
    pub fn slow_down(&self, length: Duration) {
        self.0.lock().clock.1 = length;
    }

    /// Makes the file `name` immutable: it can be read, but neither opened for writing nor renamed nor removed.
    #[allow(dead_code)] // used only by tests/crash.rs
    pub fn keep(&self, name: &str) {
        self.0.lock().immutable.push(name.to_owned());
    }

    /// Replaces the file `name` with a copy, as another program would do. Open files still refer to the original.
    #[allow(dead_code)] // used only by tests/crash.rs
    pub fn replace(&self, name: &str) {
        self.put_file(name, self.bytes(name));
        self.0.lock().replaced.push(name.to_owned());
    }

    pub fn heal(&self) {
        let mut state = self.0.lock();
        state.faults.clear();
        state.immutable.clear();
    }

    pub fn set_capacity(&self, capacity: u64) {
        self.0.lock().capacity = capacity;
    }

    /// Returns the total size, in bytes, of the files whose names start with `prefix`.
    pub fn used(&self, prefix: &str) -> u64 {
        let state = self.0.lock();
        let files = state.names.iter().filter(|(name, _)| name.starts_with(prefix));
        files.map(|(_, number)| state.files[number].current.len() as u64).sum()
    }

    /// Returns the names of all files, including those in subdirectories.
    pub fn names(&self) -> Vec<String> {
        self.0.lock().names.keys().cloned().collect()
    }

    pub fn alter(&self, name: &str, alter: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.0.lock();
        let number = state.names[name];
        let file = state.files.get_mut(&number).expect("a file");
        alter(&mut file.current);
        file.pending.clear();
        file.durable.clone_from(&file.current);
    }

    pub fn put_file(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.0.lock();
        let number = state.next;
        state.next += 1;
        state.names.insert(name.to_owned(), number);
        state.files.insert(number, File { durable: bytes.clone(), current: bytes, pending: Vec::new() });
    }
}

fn missing() -> io::Error {
    io::Error::from_raw_os_error(2)
}

impl State {
    fn revive(&mut self, seed: u64) {
        let named: std::collections::HashSet<u64> = self.names.values().copied().collect();
        self.files.retain(|number, _| named.contains(number));
        self.replaced.clear();
        (self.crashed, self.crash_at, self.operations) = (false, u64::MAX, 0);
        self.random = Random::new(seed ^ 0xabcd);
    }

    /// Counts an operation, and applies faults. The `bool` in an error is `true` if the disk stops at this operation.
    fn operation(&mut self, operation: Operation) -> Result<(), (io::Error, bool)> {
        let stops = !self.crashed && self.operations >= self.crash_at;
        self.crashed |= stops;
        if self.crashed {
            return Err((io::Error::other("the power is off"), stops));
        }
        self.operations += 1;
        if matches!(operation, Operation::Write | Operation::Sync) {
            self.clock.0 += self.clock.1;
        }
        if let Some(fault) = self.faults.iter_mut().find(|fault| fault.operation == operation && fault.times > 0) {
            fault.times -= 1;
            return Err((io::Error::from_raw_os_error(fault.error), false));
        }
        Ok(())
    }

    fn check_immutable(&self, name: &str) -> io::Result<()> {
        if self.immutable.iter().any(|immutable| immutable == name) {
            return Err(io::Error::from_raw_os_error(EPERM));
        }
        Ok(())
    }

    fn used(&self) -> u64 {
        self.names.values().map(|number| self.files[number].current.len() as u64).sum()
    }

    fn create(&mut self, name: &str, size: u64) -> io::Result<u64> {
        let done = self.operation(Operation::Create);
        let mut bytes = vec![0; size as usize];
        let number = self.next;
        match done {
            Ok(()) => {
                if self.names.contains_key(name) {
                    return Err(io::Error::from_raw_os_error(17));
                }
                if self.used() + size > self.capacity {
                    return Err(io::Error::from_raw_os_error(ENOSPC));
                }
            }
            // The disk stopped while it was filling the new file with zeros.
            Err((_, true)) if self.random.once_in(2) => bytes.truncate(self.random.below(size + 1) as usize),
            Err((error, _)) => return Err(error),
        }
        self.next += 1;
        self.names.insert(name.to_owned(), number);
        self.files.insert(number, File { durable: bytes.clone(), current: bytes, pending: Vec::new() });
        if self.crashed {
            return Err(io::Error::other("the power is off"));
        }
        Ok(number)
    }

    fn write(&mut self, number: u64, place: u64, bytes: &[u8]) -> io::Result<()> {
        let place = place as usize;
        let mut error = None;
        let mut length = bytes.len();
        match self.operation(Operation::Write) {
            Ok(()) => {}
            Err((failed, stops)) => {
                length = if !self.crashed || stops { self.random.below(length as u64 + 1) as usize } else { 0 };
                error = Some(failed);
            }
        }
        let used = self.used();
        let Some(file) = self.files.get_mut(&number) else { return Err(missing()) };
        let grown = ((place + length) as u64).saturating_sub(file.current.len() as u64);
        if used + grown > self.capacity {
            length =
                length.min((self.capacity.saturating_sub(used) as usize + file.current.len()).saturating_sub(place));
            error = Some(io::Error::from_raw_os_error(ENOSPC));
        }
        if length > 0 {
            file.change(Change::Write(place, bytes[..length].to_vec()));
        }
        error.map_or(Ok(()), Err)
    }

    fn sync(&mut self, number: u64) -> io::Result<()> {
        match self.operation(Operation::Sync) {
            Ok(()) => {
                let Some(file) = self.files.get_mut(&number) else { return Err(missing()) };
                file.settle();
                Ok(())
            }
            Err((error, _)) if self.crashed => Err(error),
            Err((error, _)) => {
                // Loses a part of the unsynced data. Without `forget`, reads still return the data, as on Linux.
                let (forget, cut) = (self.random.once_in(2), self.random.pick(&[Cut::Nothing, Cut::Sectors]));
                let Some(file) = self.files.get_mut(&number) else { return Err(missing()) };
                let current = file.current.clone();
                file.cut(cut, &mut self.random);
                if !forget {
                    file.current = current;
                }
                Err(error)
            }
        }
    }
}

struct Handle {
    disk: Disk,
    number: u64,
}

impl LogFile for Handle {
    fn write_at(&self, place: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.0.lock().write(self.number, place, bytes)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        state.operation(Operation::Cut).map_err(|(error, _)| error)?;
        let Some(file) = state.files.get_mut(&self.number) else { return Err(missing()) };
        file.change(Change::Cut(length as usize));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.0.lock().sync(self.number)
    }
}

impl Storage for Disk {
    fn lock(&self) -> io::Result<()> {
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.0.lock();
        Ok(state.names.keys().filter(|name| !name.contains('/') && !state.replaced.contains(name)).cloned().collect())
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        let state = self.0.lock();
        let number = *state.names.get(name).ok_or_else(missing)?;
        Ok(state.files[&number].current.len() as u64)
    }

    fn read_at(&self, name: &str, place: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.lock();
        state.operation(Operation::Read).map_err(|(error, _)| error)?;
        let number = *state.names.get(name).ok_or_else(missing)?;
        let rest = state.files[&number].current.get(place as usize..).unwrap_or_default();
        let count = rest.len().min(bytes.len());
        bytes[..count].copy_from_slice(&rest[..count]);
        state.reads = (state.reads.0 + count as u64, state.reads.1.max(bytes.len()));
        Ok(count)
    }

    fn random_number(&self) -> u64 {
        self.0.lock().random.below(u64::MAX)
    }

    fn now(&self) -> Instant {
        self.0.lock().clock.0
    }

    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn LogFile>> {
        let number = self.0.lock().create(name, size)?;
        Ok(Arc::new(Handle { disk: self.clone(), number }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let mut state = self.0.lock();
        state.operation(Operation::Open).map_err(|(error, _)| error)?;
        state.check_immutable(name)?;
        let number = *state.names.get(name).ok_or_else(missing)?;
        Ok(Arc::new(Handle { disk: self.clone(), number }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.operation(Operation::Rename).map_err(|(error, _)| error)?;
        state.check_immutable(from)?;
        let number = state.names.remove(from).ok_or_else(missing)?;
        let replaced = state.names.insert(to.to_owned(), number);
        assert_eq!(replaced, None, "{to} already exists");
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        if self.0.lock().replaced.iter().any(|replaced| replaced == name) {
            return self.rename(name, &format!("damaged/{name}"));
        }
        let mut state = self.0.lock();
        state.operation(Operation::Remove).map_err(|(error, _)| error)?;
        state.check_immutable(name)?;
        let number = state.names.remove(name).ok_or_else(missing)?;
        if let Some((_, before)) = state.removed.replace((name.to_owned(), number)) {
            state.files.remove(&before);
        }
        Ok(())
    }
}

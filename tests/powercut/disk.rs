//! Replays a trace on a simulated disk, and computes the data that can remain after a power failure.
//!
//! Owns the rules for data that was not synced. Unsynced bytes and the length of a file can survive completely, partly
//! or not at all, independently of each other. Until a directory is synced, each addition, renaming or removal of an
//! entry may or may not survive. A file whose entry is durable can lack its contents. A failed sync loses some of the
//! data and makes the rest durable. Must not interpret the contents.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use nix::libc;

use crate::random::Random;
use crate::trace::Event;

/// The size of a sector in bytes. A disk writes a sector completely or not at all.
const SECTOR: usize = 512;
const PAGE: usize = 4096;

/// The only file in the directory that is not part of the log.
const LOCK: &str = "lock";

type Number = usize;

#[derive(Clone, Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
    /// Increases the length to at least this number of bytes.
    Grow(usize),
}

#[derive(Clone, Default)]
struct Object {
    /// The contents that survive a power failure.
    durable: Vec<u8>,
    /// The contents that programs read.
    current: Vec<u8>,
    /// The changes that lead from `durable` to `current`, each with the index of the event that made it.
    pending: Vec<(usize, Change)>,
    /// The event indexes of the writes that a failed sync has lost.
    lost: Vec<usize>,
}

#[derive(Clone, Debug)]
enum Entry {
    Add(String, Number),
    Remove(String, Number),
    /// Renames a file within a directory. After a power failure, the file has either the old or the new name.
    Rename(String, String, Number),
    AddFolder(String),
    RemoveFolder(String),
}

#[derive(Clone, Default)]
struct Names {
    files: BTreeMap<String, Number>,
    folders: BTreeSet<String>,
}

#[derive(Clone)]
enum Opened {
    File(Number, i32),
    Folder(String),
}

/// The rule that decides which unsynced changes survive a power failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mood {
    Nothing,
    All,
    /// The changes before a random moment survive.
    Moment,
    /// Each change survives completely or not at all. On average, one in this many changes is lost.
    Whole(u64),
    /// Each sector survives independently.
    Sectors,
    /// Each page survives independently.
    Pages,
    /// A prefix of each write survives. All other changes survive completely.
    Torn,
    /// All changes to directory entries survive, but no changes to contents.
    Entries,
    /// All changes to contents survive, but no changes to directory entries.
    Bytes,
    /// All changes except one survive.
    Missing,
    /// Only one change survives.
    Alone,
}

pub const MOODS: [Mood; 13] = [
    Mood::Nothing,
    Mood::All,
    Mood::Moment,
    Mood::Moment,
    Mood::Whole(2),
    Mood::Whole(10),
    Mood::Sectors,
    Mood::Pages,
    Mood::Torn,
    Mood::Entries,
    Mood::Bytes,
    Mood::Missing,
    Mood::Alone,
];

#[derive(Clone)]
pub struct Disk {
    objects: Vec<Object>,
    current: Names,
    durable: Names,
    pending: Vec<(usize, Entry)>,
    handles: HashMap<u64, Opened>,
    /// The syncs in progress, by sync number: the file or directory, and the event index at which the sync began.
    syncs: HashMap<u64, (Opened, usize)>,
    /// For each removed file with writes that were not durable: the event indexes of the first such write and of the
    /// removal. The file affects [`Disk::first_unsynced`] until all writes that precede the removal are durable in the
    /// remaining files, because these files may contain the removed file's data.
    orphans: Vec<(usize, usize)>,
    /// Determines which data a failed sync loses.
    random: Random,
    /// The event index of the first failed sync.
    pub failed: Option<usize>,
    /// The event index of the first write of nonzero bytes to a file whose allocation of disk space was not durable.
    pub unfilled: Option<usize>,
}

impl Change {
    /// Returns `true` if the change writes nonzero bytes.
    fn writes(&self) -> bool {
        matches!(self, Change::Write(_, bytes) if bytes.iter().any(|byte| *byte != 0))
    }

    /// Returns `true` if the change may allocate disk space. A write of zeros can also have other purposes.
    fn fills(&self) -> bool {
        match self {
            Change::Write(_, bytes) => bytes.len() >= SECTOR && !self.writes(),
            Change::Grow(_) => true,
            Change::Length(_) => false,
        }
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Length(length) => bytes.resize(*length, 0),
        Change::Grow(length) => bytes.resize(bytes.len().max(*length), 0),
        Change::Write(place, written) => {
            let end = place + written.len();
            bytes.resize(bytes.len().max(end), 0);
            bytes[*place..end].copy_from_slice(written);
        }
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

impl Names {
    fn apply(&mut self, entry: &Entry) {
        match entry {
            Entry::Add(path, number) => drop(self.files.insert(path.clone(), *number)),
            Entry::Remove(path, number) => {
                if self.files.get(path) == Some(number) {
                    self.files.remove(path);
                }
            }
            Entry::Rename(from, to, number) => {
                if self.files.get(from) == Some(number) {
                    self.files.remove(from);
                }
                self.files.insert(to.clone(), *number);
            }
            Entry::AddFolder(path) => drop(self.folders.insert(path.clone())),
            Entry::RemoveFolder(path) => drop(self.folders.remove(path)),
        }
    }

    fn is_folder(&self, path: &str) -> bool {
        path.is_empty() || self.folders.contains(path)
    }

    fn is_reachable(&self, path: &str) -> bool {
        let above = parent(path);
        above.is_empty() || (self.folders.contains(above) && self.is_reachable(above))
    }
}

impl Entry {
    fn folder(&self) -> &str {
        match self {
            Entry::Add(path, _) | Entry::Remove(path, _) | Entry::Rename(path, _, _) => parent(path),
            Entry::AddFolder(path) | Entry::RemoveFolder(path) => parent(path),
        }
    }
}

impl Object {
    fn change(&mut self, place: usize, change: Change, at_once: bool) {
        apply(&mut self.current, &change);
        if at_once {
            apply(&mut self.durable, &change);
        } else {
            self.pending.push((place, change));
        }
    }

    /// Returns the event index of the first write that is not durable. Ignores pending writes of zeros.
    fn first_unsynced(&self) -> Option<usize> {
        let written = self.pending.iter().filter(|(_, change)| change.writes()).map(|(place, _)| *place);
        written.chain(self.lost.iter().copied()).min()
    }

    /// Makes the changes before the event index `place` durable.
    fn settle(&mut self, place: usize) {
        let behind = self.pending.partition_point(|(at, _)| *at < place);
        self.pending.drain(..behind).for_each(|(_, change)| apply(&mut self.durable, &change));
    }

    /// Simulates a failed sync: the changes before the event index `place` are no longer pending, although some of them
    /// are lost.
    fn lose(&mut self, place: usize, random: &mut Random) {
        let behind = self.pending.partition_point(|(at, _)| *at < place);
        for (at, change) in self.pending.drain(..behind) {
            match change {
                Change::Write(..) if random.once_in(2) => self.lost.push(at),
                change => apply(&mut self.durable, &change),
            }
        }
    }
}

impl Disk {
    /// Returns the disk after the first `count` events. `seed` determines which data is lost in failed syncs.
    pub fn replay(events: &[Event], count: usize, seed: u64) -> Disk {
        let mut disk = Disk {
            objects: Vec::new(),
            current: Names::default(),
            durable: Names::default(),
            pending: Vec::new(),
            handles: HashMap::new(),
            syncs: HashMap::new(),
            orphans: Vec::new(),
            random: Random::new(seed),
            failed: None,
            unfilled: None,
        };
        events[..count].iter().enumerate().for_each(|(place, event)| disk.happen(place, event));
        disk
    }

    fn happen(&mut self, place: usize, event: &Event) {
        match event {
            Event::Began => {
                self.handles.clear();
                self.syncs.clear();
            }
            Event::Found { path, bytes } => self.find(path, bytes),
            Event::Open { handle, flags, path } => self.open(place, *handle, *flags, path),
            Event::Close { handle } => drop(self.handles.remove(handle)),
            Event::Write { handle, place: at, bytes } => {
                self.change(place, *handle, Change::Write(*at as usize, bytes.clone()));
            }
            Event::Zeros { handle, place: at, length } => {
                self.change(place, *handle, Change::Write(*at as usize, vec![0; *length as usize]));
            }
            Event::Truncate { handle, length } => self.change(place, *handle, Change::Length(*length as usize)),
            Event::Allocate { handle, mode, place: at, length } => {
                assert!([0, libc::FALLOC_FL_KEEP_SIZE].contains(mode), "fallocate with mode {mode} is not replayed");
                if *mode == 0 {
                    self.change(place, *handle, Change::Grow((at + length) as usize));
                }
            }
            Event::SyncBegin { handle, number } => {
                let opened = self.handles.get(handle).expect("an open file").clone();
                self.syncs.insert(*number, (opened, place));
            }
            Event::SyncEnd { number, failed } => self.sync(place, *number, *failed),
            Event::Unlink { path } => {
                let number = self.current.files[path];
                self.enter(place, Entry::Remove(path.clone(), number));
                self.orphans.extend(self.objects[number].first_unsynced().map(|first| (first, place)));
            }
            Event::MakeFolder { path } => self.enter(place, Entry::AddFolder(path.clone())),
            Event::RemoveFolder { path } => self.enter(place, Entry::RemoveFolder(path.clone())),
            Event::Rename { from, to } => self.rename(place, from, to),
            Event::Link { from, to } => {
                let number = self.current.files[from];
                self.enter(place, Entry::Add(to.clone(), number));
            }
            Event::Mark(_) => {}
        }
    }

    fn find(&mut self, path: &str, bytes: &[u8]) {
        let mut above = parent(path);
        while !above.is_empty() {
            self.current.folders.insert(above.to_owned());
            self.durable.folders.insert(above.to_owned());
            above = parent(above);
        }
        // A path that ends with a slash is an empty directory.
        if !path.ends_with('/') {
            let number = self.objects.len();
            self.objects.push(Object { durable: bytes.to_vec(), current: bytes.to_vec(), ..Object::default() });
            self.current.files.insert(path.to_owned(), number);
            self.durable.files.insert(path.to_owned(), number);
        }
    }

    fn open(&mut self, place: usize, handle: u64, flags: i32, path: &str) {
        if self.current.is_folder(path) {
            assert!(flags & libc::O_TMPFILE != libc::O_TMPFILE, "files without a name are not replayed");
            self.handles.insert(handle, Opened::Folder(path.to_owned()));
            return;
        }
        let number = match self.current.files.get(path) {
            Some(number) => *number,
            None => {
                assert!(flags & libc::O_CREAT != 0, "{path} was opened, but does not exist");
                self.objects.push(Object::default());
                let number = self.objects.len() - 1;
                self.enter(place, Entry::Add(path.to_owned(), number));
                number
            }
        };
        self.handles.insert(handle, Opened::File(number, flags));
        if flags & libc::O_TRUNC != 0 {
            self.change(place, handle, Change::Length(0));
        }
    }

    fn change(&mut self, place: usize, handle: u64, change: Change) {
        let Opened::File(number, flags) = self.handles[&handle] else { panic!("a directory was written to") };
        if change.writes() && self.objects[number].pending.iter().any(|(_, change)| change.fills()) {
            self.unfilled = self.unfilled.or(Some(place));
        }
        self.objects[number].change(place, change, flags & libc::O_DSYNC != 0);
    }

    fn enter(&mut self, place: usize, entry: Entry) {
        self.current.apply(&entry);
        self.pending.push((place, entry));
    }

    fn rename(&mut self, place: usize, from: &str, to: &str) {
        assert!(!self.current.is_folder(from), "renamed directories are not replayed");
        let number = self.current.files[from];
        if parent(from) == parent(to) {
            self.enter(place, Entry::Rename(from.to_owned(), to.to_owned(), number));
        } else {
            self.enter(place, Entry::Add(to.to_owned(), number));
            self.enter(place, Entry::Remove(from.to_owned(), number));
        }
    }

    fn sync(&mut self, place: usize, number: u64, failed: bool) {
        let (opened, began) = self.syncs.remove(&number).expect("a sync in progress");
        if failed {
            self.failed = self.failed.or(Some(place));
        }
        match opened {
            Opened::File(number, _) if failed => self.objects[number].lose(began, &mut self.random),
            Opened::File(number, _) => self.objects[number].settle(began),
            Opened::Folder(folder) => self.sync_folder(&folder, began),
        }
    }

    fn sync_folder(&mut self, folder: &str, began: usize) {
        let mut rest = Vec::new();
        let settled = |place: &usize, entry: &Entry| *place < began && entry.folder() == folder;
        let is_removal = |entry: &Entry| matches!(entry, Entry::Remove(..));
        let gone = self.pending.iter().filter(|(at, entry)| settled(at, entry) && is_removal(entry));
        let gone: BTreeSet<usize> = gone.map(|(at, _)| *at).collect();
        for (place, entry) in std::mem::take(&mut self.pending) {
            // When a sync of the old directory makes the removal of a moved entry durable, the addition to the new
            // directory also becomes durable.
            if settled(&place, &entry) || (gone.contains(&place) && !is_removal(&entry)) {
                self.durable.apply(&entry);
            } else {
                rest.push((place, entry));
            }
        }
        self.pending = rest;
    }

    /// Returns the event index of the first write that might not be durable, or the maximum value if there is none.
    pub fn first_unsynced(&self) -> usize {
        let logs = self.current.files.iter().filter(|(path, _)| *path != LOCK);
        let first = logs.filter_map(|(_, number)| self.objects[*number].first_unsynced()).min().unwrap_or(usize::MAX);
        let orphans = self.orphans.iter().filter(|(_, removed)| first < *removed);
        orphans.map(|(orphan, _)| *orphan).min().unwrap_or(usize::MAX).min(first)
    }

    /// Returns the files as programs see them. A kill leaves the same files.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        self.with_folders(&self.current, |number| self.objects[number].current.clone())
    }

    /// Returns the contents of files by path. A path that ends with a slash is a directory.
    fn with_folders(&self, names: &Names, bytes: impl Fn(Number) -> Vec<u8>) -> BTreeMap<String, Vec<u8>> {
        let reachable = |path: &&String| names.is_reachable(path);
        let folders = names.folders.iter().filter(reachable).map(|path| (format!("{path}/"), Vec::new()));
        let files = names.files.iter().filter(|(path, _)| names.is_reachable(path));
        files.map(|(path, number)| (path.clone(), bytes(*number))).chain(folders).collect()
    }

    pub fn cut(&self, mood: Mood, random: &mut Random) -> BTreeMap<String, Vec<u8>> {
        let places: BTreeSet<usize> = (self.pending.iter().map(|(place, _)| *place))
            .chain(self.objects.iter().flat_map(|object| object.pending.iter().map(|(place, _)| *place)))
            .collect();
        // The change that `Moment`, `Missing` or `Alone` selects.
        let chosen = places.iter().nth(random.below(places.len().max(1) as u64) as usize).copied().unwrap_or(0);
        let is_kept = |place: usize, random: &mut Random| match mood {
            Mood::Nothing => false,
            Mood::All | Mood::Torn => true,
            Mood::Moment => place <= chosen,
            Mood::Whole(share) => !random.once_in(share),
            Mood::Sectors | Mood::Pages => random.once_in(2),
            Mood::Entries | Mood::Bytes => unreachable!("handled below"),
            Mood::Missing => place != chosen,
            Mood::Alone => place == chosen,
        };
        let mut names = self.durable.clone();
        let mut kept = BTreeMap::<usize, bool>::new();
        for (place, entry) in &self.pending {
            let keep = match mood {
                Mood::Entries => true,
                Mood::Bytes => false,
                // A rename across directories changes two entries with the same event index. Both changes share one
                // decision, so that the old entry is not lost before the new entry exists.
                _ => *kept.entry(*place).or_insert_with(|| is_kept(*place, random)),
            };
            // After the power failure, both the old and the new entry may exist.
            let stays = matches!(entry, Entry::Remove(path, number) if self.is_elsewhere(path, *number, *place));
            if keep && !(stays && random.once_in(3)) {
                names.apply(entry);
            }
        }
        let mut bytes = BTreeMap::new();
        for (number, object) in self.objects.iter().enumerate() {
            let mut left = object.durable.clone();
            for (place, change) in &object.pending {
                match (mood, change) {
                    (Mood::Bytes, _) => apply(&mut left, change),
                    (Mood::Entries, _) => {}
                    (Mood::Sectors, Change::Write(at, bytes)) => keep_some(&mut left, *at, bytes, SECTOR, random),
                    (Mood::Pages, Change::Write(at, bytes)) => keep_some(&mut left, *at, bytes, PAGE, random),
                    (Mood::Torn, Change::Write(at, bytes)) => keep_beginning(&mut left, *at, bytes, random),
                    _ if is_kept(*place, random) => apply(&mut left, change),
                    _ => {}
                }
            }
            bytes.insert(number, left);
        }
        self.with_folders(&names, |number| bytes[&number].clone())
    }

    /// Returns `true` if the event that removed this entry also added the file to another directory.
    fn is_elsewhere(&self, path: &str, number: Number, place: usize) -> bool {
        self.pending
            .iter()
            .any(|(at, entry)| *at == place && matches!(entry, Entry::Add(to, it) if to != path && *it == number))
    }
}

/// Splits a write into parts that a disk writes atomically. Returns the range of each part within the written bytes.
fn pieces(at: usize, length: usize, unit: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let to = length.min(from + unit - (at + from) % unit);
        let piece = (from < length).then_some((from, to));
        from = to;
        piece
    })
}

fn keep_some(left: &mut Vec<u8>, at: usize, bytes: &[u8], unit: usize, random: &mut Random) {
    for (from, to) in pieces(at, bytes.len(), unit) {
        if random.once_in(2) {
            apply(left, &Change::Write(at + from, bytes[from..to].to_vec()));
        }
    }
}

fn keep_beginning(left: &mut Vec<u8>, at: usize, bytes: &[u8], random: &mut Random) {
    let unit = random.pick(&[SECTOR, PAGE]);
    let all: Vec<(usize, usize)> = pieces(at, bytes.len(), unit).collect();
    let count = random.below(all.len() as u64 + 1) as usize;
    if let Some((_, to)) = all[..count].last() {
        apply(left, &Change::Write(at, bytes[..*to].to_vec()));
    }
}

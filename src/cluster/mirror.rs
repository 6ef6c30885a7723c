//! A standby's copy of the active server's binlog, in an ordinary folder.
//!
//! Owns the folder's files while this server stands by, and the note of how far it has come. The note is written behind
//! the files, so what it says is there; operations may be done again. A server that was active and did not end in order
//! may have written what the shared log never held: then the copy is made again from nothing.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::entry::{is_segment, note_created, Operation};
use super::shared_log::Seq;

/// The file with the position: the last entry that is done on the first line, then a line for each file with the entry
/// that made it.
const POSITION: &str = "journal.position";

/// It is there while this server is active.
const ACTIVE: &str = "journal.active";

pub struct Mirror {
    folder: PathBuf,
    /// The last entry that was applied.
    pub done: Seq,
    /// In which entry each file was made.
    pub created: BTreeMap<String, Seq>,
    /// The folder holds a binlog that never was in a shared log.
    pub is_foreign: bool,
    dirty: BTreeMap<String, File>,
}

impl Mirror {
    /// The copy in this folder, which this process has locked. It is emptied if it cannot be relied on.
    pub fn open(folder: &Path) -> io::Result<Mirror> {
        let mut mirror = Mirror {
            folder: folder.to_owned(),
            done: 0,
            created: BTreeMap::new(),
            is_foreign: false,
            dirty: BTreeMap::new(),
        };
        if folder.join(ACTIVE).exists() {
            mirror.start_over(0)?;
            fs::remove_file(folder.join(ACTIVE))?;
        } else if let Ok(text) = fs::read_to_string(folder.join(POSITION)) {
            match read_position(&text) {
                Some((done, created)) => (mirror.done, mirror.created) = (done, created),
                None => mirror.start_over(0)?,
            }
        } else if mirror.segments()?.is_empty() {
            mirror.save()?;
        } else {
            mirror.is_foreign = true;
        }
        Ok(mirror)
    }

    fn segments(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(&self.folder)?;
        let names: io::Result<Vec<_>> =
            entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect();
        Ok(names?.into_iter().filter(|name| is_segment(name)).collect())
    }

    /// Empties the copy; the next entry is the one behind `done`.
    #[inline(never)]
    pub fn start_over(&mut self, done: Seq) -> io::Result<()> {
        self.dirty.clear();
        self.created.clear();
        self.done = done;
        // First of all: what is left of the files is known to be a copy.
        write_position(&self.folder, 0, &self.created)?;
        for name in self.segments()? {
            fs::remove_file(self.folder.join(name))?;
        }
        File::open(&self.folder)?.sync_all()
    }

    /// Does the operations of the entry `seq`. What concerns a file that is not there is left out: the file is gone by
    /// the end, or its making was purged with it.
    pub fn apply(&mut self, seq: Seq, operations: &[u8]) -> io::Result<()> {
        let mut rest = operations;
        while let Some(operation) = Operation::decode(&mut rest) {
            self.carry_out(&operation)?;
        }
        note_created(&mut self.created, operations, seq);
        self.done = seq;
        Ok(())
    }

    fn carry_out(&mut self, operation: &Operation) -> io::Result<()> {
        match *operation {
            Operation::Create(name, size) => {
                let path = self.folder.join(name);
                let mut options = OpenOptions::new();
                let file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
                file.set_len(size)?;
                self.dirty.insert(name.to_owned(), file);
            }
            Operation::Write(name, place, bytes) => {
                if let Some(file) = self.file(name)? {
                    file.write_all_at(bytes, place)?;
                }
            }
            Operation::Truncate(name, length) => {
                if let Some(file) = self.file(name)? {
                    file.set_len(length)?;
                }
            }
            Operation::Rename(name, to) => {
                self.dirty.remove(name);
                let target = self.folder.join(to);
                if let Some(parent) = target.parent() {
                    fs::create_dir_all(parent)?;
                }
                allow_missing(fs::rename(self.folder.join(name), target))?;
            }
            Operation::Remove(name) => {
                self.dirty.remove(name);
                allow_missing(fs::remove_file(self.folder.join(name)))?;
            }
        }
        Ok(())
    }

    fn file(&mut self, name: &str) -> io::Result<Option<&File>> {
        if !self.dirty.contains_key(name) {
            match OpenOptions::new().write(true).open(self.folder.join(name)) {
                Ok(file) => drop(self.dirty.insert(name.to_owned(), file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(self.dirty.get(name))
    }

    /// Brings what was applied to the disk, then notes how far that is.
    #[inline(never)]
    pub fn save(&mut self) -> io::Result<()> {
        for file in std::mem::take(&mut self.dirty).into_values() {
            file.sync_all()?;
        }
        write_position(&self.folder, self.done, &self.created)
    }

    /// This server is active from now on.
    pub fn note_active(&self) -> io::Result<()> {
        File::create(self.folder.join(ACTIVE))?.sync_all()?;
        File::open(&self.folder)?.sync_all()
    }
}

/// A server without a shared log has taken the folder: what it writes is in no shared log, so the folder is no copy.
pub fn go_alone(folder: &Path) -> io::Result<()> {
    let known = [POSITION, ACTIVE].map(|name| folder.join(name));
    if known.iter().any(|path| path.exists()) {
        log::info!("the binlog of {} goes on without the journal", folder.display());
        for path in known {
            allow_missing(fs::remove_file(path))?;
        }
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// This server has ended in order, and the shared log holds everything in the folder up to this entry.
pub fn note_ended(folder: &Path, done: Seq, created: &BTreeMap<String, Seq>) -> io::Result<()> {
    for name in created.keys() {
        allow_missing(File::open(folder.join(name)).and_then(|file| file.sync_all()))?;
    }
    write_position(folder, done, created)?;
    allow_missing(fs::remove_file(folder.join(ACTIVE)))?;
    File::open(folder)?.sync_all()
}

fn allow_missing(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[inline(never)]
fn write_position(folder: &Path, done: Seq, created: &BTreeMap<String, Seq>) -> io::Result<()> {
    let mut text = format!("{done}\n");
    created.iter().for_each(|(name, seq)| text += &format!("{seq} {name}\n"));
    text += "end\n";
    let new = folder.join(format!("{POSITION}.new"));
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(new, folder.join(POSITION))?;
    File::open(folder)?.sync_all()
}

fn read_position(text: &str) -> Option<(Seq, BTreeMap<String, Seq>)> {
    let (done, rest) = text.strip_suffix("end\n")?.split_once('\n')?;
    let created = rest.lines().map(|line| {
        let (seq, name) = line.split_once(' ')?;
        Some((name.to_owned(), seq.parse().ok()?))
    });
    Some((done.parse().ok()?, created.collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_reads_back_and_half_of_one_is_none() {
        let folder = std::env::temp_dir().join(format!("mirror-position-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let created = BTreeMap::from([("segment.1".to_owned(), 4), ("segment.2".to_owned(), 9)]);
        write_position(&folder, 12, &created).expect("a position");
        let text = fs::read_to_string(folder.join(POSITION)).expect("a position");
        assert_eq!(read_position(&text), Some((12, created)));
        assert!((0..text.len()).all(|length| read_position(&text[..length]).is_none()));
        fs::remove_dir_all(folder).expect("a folder");
    }
}

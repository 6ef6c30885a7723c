//! CRC-32 checksums of a standby's binlog files, to detect disk errors.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crc32fast::Hasher;

use super::entry::{note_file, Operation};

const CHUNK: usize = 64 * 1024;

/// The CRC-32 of a file's first `length` bytes. All later bytes are zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Checksum {
    pub length: u64,
    pub crc: u32,
}

impl Checksum {
    /// `offset` must be at least `self.length`.
    fn extend(&mut self, offset: u64, bytes: &[u8]) {
        let Some(last) = bytes.iter().rposition(|byte| *byte != 0) else { return };
        let mut hasher = Hasher::new_with_initial(self.crc);
        let mut gap = offset.saturating_sub(self.length);
        while gap > 0 {
            let count = gap.min(CHUNK as u64);
            hasher.update(&[0; CHUNK][..count as usize]);
            gap -= count;
        }
        hasher.update(&bytes[..=last]);
        *self = Checksum { length: offset + last as u64 + 1, crc: hasher.finalize() };
    }

    fn of(path: &Path, length: u64) -> io::Result<Checksum> {
        let (file, mut sum, mut offset) = (File::open(path)?, Checksum::default(), 0);
        let mut bytes = vec![0; CHUNK];
        while offset < length {
            let size = (length - offset).min(CHUNK as u64) as usize;
            match file.read_at(&mut bytes[..size], offset)? {
                0 => break,
                count => {
                    sum.extend(offset, &bytes[..count]);
                    offset += count as u64;
                }
            }
        }
        Ok(sum)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checksums {
    /// By file name. `None` means that earlier bytes were overwritten, so the checksum must be recomputed.
    files: BTreeMap<String, Option<Checksum>>,
}

impl Checksums {
    pub fn of<'a>(folder: &Path, names: impl Iterator<Item = &'a String>) -> Checksums {
        let sum = |name: &String| Some((name.clone(), Some(Checksum::of(&folder.join(name), u64::MAX).ok()?)));
        let mut files = BTreeMap::new();
        files.extend(names.filter_map(sum));
        Checksums { files }
    }

    pub fn insert(&mut self, name: &str, sum: Checksum) {
        self.files.insert(name.to_owned(), Some(sum));
    }

    pub fn get(&self, name: &str) -> Option<Checksum> {
        self.files.get(name).copied().flatten()
    }

    /// Returns the total bytes without trailing zeros.
    pub fn size(&self) -> u64 {
        self.files.values().flatten().map(|sum| sum.length).sum()
    }

    pub fn note(&mut self, operation: &Operation) {
        match *operation {
            Operation::Write(name, offset, bytes) => self.change(name, |sum| {
                let follows = offset >= sum.length;
                if follows {
                    sum.extend(offset, bytes);
                }
                follows
            }),
            Operation::Truncate(name, length) => self.change(name, |sum| length >= sum.length),
            _ => note_file(&mut self.files, operation, Some(Checksum::default())),
        }
    }

    /// Changes the checksum of a file. `change` returns `false` if the checksum must be recomputed.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut Checksum) -> bool) {
        if let Some(slot) = self.files.get_mut(name) {
            *slot = slot.take().and_then(|mut sum| change(&mut sum).then_some(sum));
        }
    }

    pub fn complete(&mut self, folder: &Path) {
        for (name, slot) in self.files.iter_mut().filter(|(_, slot)| slot.is_none()) {
            *slot = Checksum::of(&folder.join(name), u64::MAX).ok();
        }
    }

    pub fn damaged(&mut self, folder: &Path) -> Option<String> {
        self.complete(folder);
        let is_intact = |name: &str, sum: &Option<Checksum>| {
            sum.is_some_and(|sum| Checksum::of(&folder.join(name), sum.length).is_ok_and(|found| found == sum))
        };
        self.files.iter().find(|(name, sum)| !is_intact(name, sum)).map(|(name, _)| name.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};

    use super::*;

    #[test]
    fn a_checksum_that_grows_is_that_of_the_whole_file_and_every_damage_shows() {
        let folder = std::env::temp_dir().join(format!("checksums-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("segment.1");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).expect("a file");
        file.set_len(300_000).expect("a file");
        let mut sums = Checksums::default();
        sums.note(&Operation::Create("segment.1", 300_000));
        // Covers appends, a gap, trailing zeros, a write of zeros only, an overwrite, and a subsequent append.
        let pieces: [(u64, &[u8]); 6] =
            [(0, b"head"), (4, b"more"), (200_000, b"gap\0\0"), (200_005, &[0; 9]), (2, b"middle"), (200_020, b"end")];
        for (offset, bytes) in pieces {
            file.write_all_at(bytes, offset).expect("a write");
            sums.note(&Operation::Write("segment.1", offset, bytes));
            assert_eq!(sums.get("segment.1").is_none(), offset == 2, "{offset}");
            sums.complete(&folder);
            assert_eq!(sums, Checksums::of(&folder, ["segment.1".to_owned()].iter()), "{offset}");
        }
        assert_eq!(sums.damaged(&folder), None);
        let good = fs::read(&path).expect("a file");
        let mut bad = [good[..200_021].to_vec(), good.clone(), good.clone(), good.clone()];
        bad[1][5] ^= 1;
        bad[2][100_000] = 1;
        bad[3][..8].fill(0);
        for (number, bytes) in bad.iter().enumerate() {
            fs::write(&path, bytes).expect("a file");
            assert_eq!(sums.damaged(&folder).as_deref(), Some("segment.1"), "{number}");
        }
        fs::write(&path, &good[..200_023]).expect("a file");
        assert_eq!(sums.damaged(&folder), None);
        fs::remove_file(&path).expect("a file");
        assert_eq!(sums.damaged(&folder).as_deref(), Some("segment.1"));
        // The queue itself renamed or removed this file, so the file is not missing.
        sums.note(&Operation::Rename("segment.1", "old/segment.1"));
        assert_eq!(sums.damaged(&folder), None);
        fs::remove_dir_all(folder).expect("a folder");
    }
}

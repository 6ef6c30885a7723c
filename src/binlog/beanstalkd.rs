//! The format of beanstalkd's binlog: version 7 (beanstalkd 1.5 and later) and version 5 (beanstalkd 1.4).
//! Must not trust the input, because records have no checksums.
//!
//! A file consists of a version number of four bytes, followed by records:
//!
//! ```text
//! full   length of the tube name (1 to 200) · tube name · job (80 bytes, 77 in version 5) · body with CR LF
//! short  0                                              · job (80 bytes, 77 in version 5)
//! ```
//!
//! A full record contains a whole job. A short record updates a job that was buried, kicked, delayed or deleted.
//! Numbers are little-endian. The rest of a file is filled with zero bytes.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use crate::engine::{is_tube_name_byte, History};

const MAX_NAME: u64 = 200;
/// The maximum size of a body with CR LF, in bytes. beanstalkd's option `-z` accepts no larger limit.
const MAX_SIZE: i64 = (1 << 30) + 2;
/// beanstalkd reaches this ID after two thousand years at a million jobs per second.
const MAX_ID: i64 = 1 << 56;
const MAX_SPAN: i64 = u32::MAX as i64 * 1_000_000_000;
/// The minimum size of a full record: name length, one-byte name, job, and CR LF.
const MIN_FULL: usize = 4 + 1 + 80 + 2;

// The states as the files store them. Ready is 1, and reserved is 2.
pub const DELETED: u8 = 0;
pub const BURIED: u8 = 3;
pub const DELAYED: u8 = 4;
pub const LOSS: &str = "so jobs may be missing, and deleted ones back";
const TORN: &str = "a record that is cut short";

#[derive(Debug)]
pub struct ForeignEntry<'a> {
    pub job: ForeignRecord,
    pub full: Option<Full<'a>>,
}

/// All records contain these fields. Times are in nanoseconds. `created` and `deadline` are times since 1970.
#[derive(Clone, Debug)]
pub struct ForeignRecord {
    pub id: u64,
    pub pri: u32,
    pub delay: i64,
    pub ttr: i64,
    /// The size of the body with CR LF, in bytes.
    pub size: i32,
    pub created: i64,
    /// The time at which a delayed job's delay expires. Meaningless in other states.
    pub deadline: i64,
    pub history: History,
    pub state: u8,
}

#[derive(Clone, Copy, Debug)]
pub struct Full<'a> {
    pub tube: &'a [u8],
    /// Does not contain the final CR LF.
    pub body: &'a [u8],
}

/// Calls `visit` with the offset of each record, and with the record or, if it is invalid, the error. `last_id` is the
/// largest ID in earlier files. Returns the largest ID so far, or a larger number if a part of the file was not read.
/// Decoding stops where no record can start, because the following bytes may be part of a body.
pub fn read<'a>(bytes: &'a [u8], last_id: u64, mut visit: impl FnMut(usize, Result<ForeignEntry<'a>, String>)) -> u64 {
    let mut reader = Reader { format: &VERSION_7, bytes, at: 0, last_id };
    let mut at = 0;
    let what = match reader.version() {
        Err(what) => what,
        Ok(()) => loop {
            at = reader.at;
            let record = match reader.record() {
                Ok(record) => record,
                Err(what) => break what,
            };
            match record.fault() {
                None => visit(at, Ok(record)),
                Some(what) if record.full.is_none() => break what,
                Some(what) => {
                    reader.last_id += 1;
                    visit(at, Err(format!("{what}; left out")));
                }
            }
        },
    };
    let rest = bytes.get(at..).unwrap_or_default();
    #[cfg(test)]
    samples::look(rest.len());
    if at > 0 && rest.iter().all(|&byte| byte == 0) {
        return reader.last_id;
    }
    visit(at, Err(format!("{what}; the last {} bytes of the file were not read, {LOSS}", rest.len())));
    // The unread bytes contain at most one ID per full record. These IDs must not be assigned to new jobs.
    reader.last_id + (rest.len() / MIN_FULL) as u64 + 1
}

#[derive(Debug)]
struct Format {
    length_size: usize,
    /// The size of a job without its body, in bytes. In version 7, the last three bytes are padding.
    job_size: usize,
    /// The unit of times, in nanoseconds.
    unit: i64,
}

const VERSION_5: Format = Format { length_size: 8, job_size: 77, unit: 1000 };
const VERSION_7: Format = Format { length_size: 4, job_size: 80, unit: 1 };

#[derive(Debug)]
struct Reader<'a> {
    format: &'static Format,
    bytes: &'a [u8],
    at: usize,
    last_id: u64,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..count)).ok_or(TORN)?;
        #[cfg(test)]
        samples::look(count);
        self.at += count;
        Ok(taken)
    }

    fn version(&mut self) -> Result<(), String> {
        self.format = match u32::from_le_bytes(array(self.take(4)?, 0)) {
            5 => &VERSION_5,
            7 => &VERSION_7,
            version => return Err(format!("version {version} is not known")),
        };
        Ok(())
    }

    fn record(&mut self) -> Result<ForeignEntry<'a>, String> {
        let length = self.take(self.format.length_size)?;
        let length = length.iter().rev().fold(0, |length, byte| length << 8 | u64::from(*byte));
        ensure!(length <= MAX_NAME, format!("a tube name of {length} bytes"));
        let tube = self.take(length as usize)?;
        let job = ForeignRecord::read(self.take(self.format.job_size)?, self.format.unit);
        if job.fault().is_none() {
            // Even if the body is incomplete, this ID must not be assigned to a new job.
            self.last_id = self.last_id.max(job.id);
        }
        if tube.is_empty() {
            return Ok(ForeignEntry { job, full: None });
        }
        let size =
            usize::try_from(job.size).map_err(|_| format!("job {} with a body of {} bytes", job.id, job.size))?;
        let body = self.take(size)?.strip_suffix(b"\r\n");
        let body = body.ok_or_else(|| format!("job {} with a body that does not end in CR LF", job.id))?;
        Ok(ForeignEntry { job, full: Some(Full { tube, body }) })
    }
}

impl ForeignEntry<'_> {
    fn fault(&self) -> Option<String> {
        match self.full {
            None if self.job.id == 0 => Some("zeros in the middle".to_owned()),
            Some(full) if !is_tube_name(full.tube) => Some(format!("job {} with an impossible tube name", self.job.id)),
            _ => self.job.fault(),
        }
    }
}

impl ForeignRecord {
    fn read(bytes: &[u8], unit: i64) -> ForeignRecord {
        let count = |at| u32::from_le_bytes(array(bytes, at));
        let nanos = |at| i64::from_le_bytes(array(bytes, at)).saturating_mul(unit);
        let [reserves, timeouts, releases, buries, kicks] = [56, 60, 64, 68, 72].map(count);
        ForeignRecord {
            id: u64::from_le_bytes(array(bytes, 0)),
            pri: count(8),
            delay: nanos(16),
            ttr: nanos(24),
            size: i32::from_le_bytes(array(bytes, 32)),
            created: nanos(40),
            deadline: nanos(48),
            history: History { reserves, timeouts, releases, buries, kicks },
            state: bytes.get(76).copied().unwrap_or(u8::MAX),
        }
    }

    fn fault(&self) -> Option<String> {
        let deadline = if self.state == DELAYED { self.deadline } else { 0 };
        let fields = [
            ("number", self.id.try_into().unwrap_or(i64::MAX), 1, MAX_ID),
            ("state", self.state.into(), 0, DELAYED.into()),
            ("size", self.size.into(), 2, MAX_SIZE),
            ("delay", self.delay, 0, MAX_SPAN),
            ("time to run", self.ttr, 0, MAX_SPAN),
            ("time of birth", self.created, 0, i64::MAX),
            ("deadline", deadline, 0, i64::MAX),
        ];
        let (name, ..) = fields.iter().find(|(_, value, min, max)| !(min..=max).contains(&value))?;
        Some(format!("job {} with an impossible {name}", self.id))
    }
}

// Every caller passes an offset `at` from which the slice contains at least `SIZE` bytes.
#[allow(clippy::expect_used, clippy::indexing_slicing)]
fn array<const SIZE: usize>(bytes: &[u8], at: usize) -> [u8; SIZE] {
    bytes[at..at + SIZE].try_into().expect("SIZE bytes")
}

fn is_tube_name(name: &[u8]) -> bool {
    name.first() != Some(&b'-') && name.iter().all(|byte| is_tube_name_byte(*byte))
}

#[cfg(test)]
#[path = "tests/beanstalkd_samples.rs"]
pub mod samples;

#[cfg(test)]
mod tests {
    use super::samples::*;
    use super::*;

    /// Reads a file that follows files with IDs up to 5. Returns a line for each record or problem, and the largest ID.
    fn described(bytes: &[u8]) -> (Vec<String>, u64) {
        let mut lines = Vec::new();
        let last_id = read(bytes, 5, |at, found| {
            lines.push(match found {
                Ok(record) => format!("{at}: {record:?}"),
                Err(what) => format!("{at}: problem: {what}"),
            });
        });
        (lines, last_id)
    }

    fn problems(bytes: &[u8]) -> Vec<String> {
        described(bytes).0.into_iter().filter(|line| line.contains("problem: ")).collect()
    }

    /// Returns the offset of each record, followed by the offset of the end.
    fn offsets(records: &[Vec<u8>]) -> Vec<usize> {
        let mut offsets = vec![4];
        offsets.extend(records.iter().scan(4, |at, record| {
            *at += record.len();
            Some(*at)
        }));
        offsets
    }

    #[test]
    fn every_field_of_both_versions_is_read() {
        for version in [V5, V7] {
            let sample_job = SampleJob {
                id: 258,
                pri: u32::MAX - 1,
                delay: 90 * SECOND,
                ttr: 120 * SECOND,
                size: 9,
                created: BORN,
                deadline: BORN + 90 * SECOND,
                counts: [10, 20, 30, 40, 50],
                state: DELAYED,
            };
            let records =
                [full(version, "a.tube", &sample_job, b"hello\r\n"), short(version, &sample_job), vec![0; 500]];
            let mut found = Vec::new();
            let last_id = read(&file(version, &records), 5, |_, record| found.push(record.expect("a record").job));
            assert_eq!((found.len(), last_id), (2, 258));
            for job in found {
                assert_eq!((job.id, job.pri, job.size, job.state), (258, u32::MAX - 1, 9, DELAYED));
                assert_eq!((job.delay, job.ttr), (90 * SECOND, 120 * SECOND));
                assert_eq!((job.created, job.deadline), (BORN, BORN + 90 * SECOND));
                let history = History { reserves: 10, timeouts: 20, releases: 30, buries: 40, kicks: 50 };
                assert_eq!(job.history, history);
            }
            let mut parts = Vec::new();
            read(&file(version, &records), 0, |at, record| {
                parts.push((at, record.expect("a record").full.map(|full| (full.tube.to_vec(), full.body.to_vec()))));
            });
            let first = (4, Some((b"a.tube".to_vec(), b"hello\r\n".to_vec())));
            assert_eq!(parts, [first, (4 + records[0].len(), None)]);
        }
    }

    #[test]
    fn bodies_of_any_size_are_read() {
        for size in [0, 1, 65_533, 65_534, 65_535, 65_536, 300_000] {
            let bytes = file(V7, &[ready(1, &vec![b'x'; size]), ready(2, b"")]);
            let mut sizes = Vec::new();
            read(&bytes, 0, |_, record| sizes.push(record.expect("a record").full.expect("a full record").body.len()));
            assert_eq!(sizes, [size, 0]);
        }
    }

    #[test]
    fn a_body_full_of_records_is_a_body() {
        let inner = [ready(5, b"five"), later(1, DELETED, b""), vec![0; 100], ready(6, b"six")].concat();
        let (lines, last_id) = described(&file(V7, &[ready(1, b""), ready(2, &inner), ready(3, b"")]));
        assert_eq!((lines.len(), last_id), (3, 5));
    }

    /// Valid fields include the zero times of an unset clock, maximums and, unless the job is delayed, any deadline.
    #[test]
    fn unusual_fields_are_accepted() {
        let good = sample_job(1, DELAYED, b"");
        for unlikely in [
            SampleJob { created: 0, deadline: 0, ..good.clone() },
            SampleJob { ttr: 0, ..good.clone() },
            SampleJob { delay: MAX_SPAN, ttr: MAX_SPAN, ..good.clone() },
            SampleJob { state: READY, deadline: -1, ..good.clone() },
            SampleJob { id: MAX_ID as u64, pri: u32::MAX, counts: [u32::MAX; 5], ..good.clone() },
        ] {
            for version in [V5, V7] {
                let bytes = file(version, &[full(version, "Az09-+/;.$_()", &unlikely, b""), short(version, &unlikely)]);
                assert_eq!(problems(&bytes), [""; 0]);
            }
        }
    }

    #[test]
    fn a_full_record_with_an_impossible_field_is_left_out_alone() {
        let good = sample_job(8, DELAYED, b"eight");
        let cases = [
            ("impossible number", "t", SampleJob { id: 0, ..good.clone() }),
            ("impossible number", "t", SampleJob { id: (1 << 56) + 1, ..good.clone() }),
            ("impossible number", "t", SampleJob { id: u64::MAX, ..good.clone() }),
            ("impossible state", "t", SampleJob { state: 5, ..good.clone() }),
            ("impossible delay", "t", SampleJob { delay: -1000, ..good.clone() }),
            ("impossible delay", "t", SampleJob { delay: i64::MAX / 1000 * 1000, ..good.clone() }),
            ("impossible time to run", "t", SampleJob { ttr: -1000, ..good.clone() }),
            ("impossible time to run", "t", SampleJob { ttr: MAX_SPAN + 1000, ..good.clone() }),
            ("impossible time of birth", "t", SampleJob { created: -5000, ..good.clone() }),
            ("impossible deadline", "t", SampleJob { deadline: -5000, ..good.clone() }),
            ("impossible tube name", "de\x01au lt", good.clone()),
            ("impossible tube name", "-t", good.clone()),
        ];
        for version in [V5, V7] {
            for (what, tube, bad) in &cases {
                let first = full(version, "t", &sample_job(1, READY, b"one"), b"one");
                let last = full(version, "t", &sample_job(7, READY, b"seven"), b"seven");
                let at = 4 + first.len();
                let (lines, last_id) = described(&file(version, &[first, full(version, tube, bad, b"eight"), last]));
                assert_eq!(lines.len(), 3, "{lines:?}");
                assert!(lines[1].starts_with(&format!("{at}: problem: job ")) && lines[1].contains(what), "{lines:?}");
                assert!(lines[1].ends_with("; left out") && lines[2].contains("id: 7"), "{lines:?}");
                // ID 8 is valid even in a record with an invalid tube name, and is not assigned again.
                assert_eq!(last_id, if what.contains("tube") { 9 } else { 7 });
            }
        }
    }

    #[test]
    fn reading_ends_where_no_record_can_be() {
        let records = [ready(1, b"one"), ready(8, b"eight"), ready(9, b"nine"), vec![0; 99]];
        let (good, offsets) = (file(V7, &records), offsets(&records));
        let (start, job) = (offsets[1], offsets[1] + 4 + 7);
        let cases: [(&str, usize, &[u8]); 9] = [
            ("a tube name of 201 bytes", start, &[201]),
            ("a tube name of 4294967295 bytes", start, &[255; 4]),
            ("a record that is cut short", job + 32, &[1, 0, 0, 63]),
            ("job 8 with a body of -1 bytes", job + 32, &[255; 4]),
            ("job 8 with a body that does not end in CR LF", job + 32, &[8]),
            ("job 8 with a body that does not end in CR LF", job + 32, &[6]),
            ("job 8 with a body that does not end in CR LF", job + 32, &[0]),
            ("job 8 with a body that does not end in CR LF", offsets[2] - 1, b"?"),
            (
                "a record that is cut short",
                start,
                b"\x07\0\0\0default\x08\0\0\0\0\0\0\0\xff\xff\xff\xff junk, and junk, and junk",
            ),
        ];
        for (what, at, bytes) in cases {
            let mut damaged = good.clone();
            damaged[at..at + bytes.len()].copy_from_slice(bytes);
            let (lines, last_id) = described(&damaged);
            let left = good.len() - start;
            let line = format!("{start}: problem: {what}; the last {left} bytes of the file were not read, {LOSS}");
            assert!(lines.len() == 2 && lines[1] == line, "{lines:?} {line}");
            assert!((6..20).contains(&last_id), "{last_id}");
        }
        let records = [ready(1, b"one"), later(1, 5, b"one"), ready(9, b"nine")];
        assert!(problems(&file(V7, &records))[0].contains("job 1 with an impossible state; the last "));
    }

    #[test]
    fn a_truncated_file_is_read_to_its_end() {
        for version in [V5, V7] {
            let records = mixture(version, 5, &mut Random(3));
            let (bytes, offsets) = (file(version, &records), offsets(&records));
            let whole = described(&bytes).0;
            assert!(whole.len() == records.len() && records.len() > 8);
            for end in 4..bytes.len() {
                let count = offsets.iter().filter(|&&offset| offset <= end).count() - 1;
                let (lines, last_id) = described(&bytes[..end]);
                assert_eq!(lines[..count], whole[..count]);
                // Zero bytes at the end are padding, not an incomplete record.
                let torn = bytes[offsets[count]..end].iter().any(|&byte| byte != 0);
                assert_eq!(lines.len(), count + usize::from(torn), "{end}: {lines:?}");
                assert!(!torn || lines[count].contains("problem: a record that is cut short; "), "{end}: {lines:?}");
                assert!((5..20).contains(&last_id));
                // A torn full record must not be accepted when zero bytes follow it.
                let (lines, _) = described(&[&bytes[..end], &[0; 300]].concat());
                assert!(lines[..count] == whole[..count] && lines.len() <= count + 1, "{end}: {lines:?}");
                let is_full = records[count][0] != 0;
                assert!(!torn || !is_full || lines[count].contains("problem"), "{end}: {lines:?}");
            }
        }
    }

    #[test]
    fn zeros_in_the_middle_are_reported_and_those_at_the_end_are_not() {
        let mut records = mixture(V7, 6, &mut Random(9));
        records.push(ready(7, b""));
        let (good, offsets) = (file(V7, &records), offsets(&records));
        let whole = described(&good).0;
        for (index, &from) in offsets.iter().enumerate().take(records.len()) {
            for to in [from + 12, from + 84, from + 300].map(|to| to.min(good.len() - 1)) {
                let mut holed = good.clone();
                holed[from..to].fill(0);
                let (lines, _) = described(&holed);
                assert!(lines[..index] == whole[..index] && lines.len() == index + 1, "{from} to {to}: {lines:?}");
                assert!(lines[index].starts_with(&format!("{from}: problem: zeros in the middle; ")), "{lines:?}");
            }
            let cut = [&good[..from], &vec![0; 4096]].concat();
            assert_eq!(described(&cut).0, whole[..index]);
        }
    }

    #[test]
    fn files_of_unknown_versions_are_not_read() {
        for version in [0, 1, 6, 8, u32::MAX, 7 << 24, u32::from_le_bytes(*b"bean")] {
            let bytes = file(version, &[ready(1, b"x")]);
            let line =
                format!("0: problem: version {version} is not known; the last {} bytes of the file", bytes.len());
            let (lines, last_id) = described(&bytes);
            assert!(lines.len() == 1 && lines[0].starts_with(&line), "{lines:?}");
            assert_eq!(last_id, 7);
        }
        for bytes in [&b""[..], b"\x07", b"\x07\0\0"] {
            assert!(problems(bytes)[0].starts_with("0: problem: a record that is cut short; the last "));
        }
        assert!(problems(&[0; 4096])[0].starts_with("0: problem: version 0 is not known; the last 4096 bytes"));
        assert_eq!(problems(&file(V7, &[])), [""; 0]);
    }

    /// IDs of unread records are not assigned again: the returned ID is not less than the last ID in the file.
    #[test]
    fn ids_of_unread_records_are_not_reused() {
        let records: Vec<_> = (1..=1000).map(|id| full(V7, "t", &sample_job(id, READY, b""), b"")).collect();
        let good = file(V7, &records);
        for at in offsets(&records) {
            let mut damaged = good.clone();
            damaged[at.min(good.len() - 1)..].iter_mut().take(4).for_each(|byte| *byte = 0xEE);
            let last_id = read(&damaged, 0, |_, _| ());
            assert!((1000..=1002).contains(&last_id), "{at}: {last_id}");
        }
        assert_eq!(read(&good, 0, |_, _| ()), 1000);
    }

    #[test]
    fn one_wrong_bit_changes_nothing_before_it() {
        for (version, format) in [(V5, VERSION_5), (V7, VERSION_7)] {
            let records = mixture(version, 5, &mut Random(5));
            let (good, offsets) = (file(version, &records), offsets(&records));
            let whole = described(&good).0;
            for bit in 4 * 8..good.len() * 8 {
                let mut bytes = good.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let before = offsets.iter().filter(|&&offset| offset <= bit / 8).count() - 1;
                let lines = described(&bytes).0;
                assert_eq!(lines[..before], whole[..before]);
                // Either the flipped bit is in padding, or the change is visible in the output.
                let tube = records[before][0] as usize;
                let job = offsets[before] + format.length_size + tube;
                let in_gap = (bit / 8)
                    .checked_sub(job)
                    .is_some_and(|at| matches!(at, 12..16 | 36..40 | 77..80 if at < format.job_size));
                assert_eq!(lines == whole, in_gap, "bit {bit}");
            }
        }
    }

    #[test]
    fn each_byte_is_read_at_most_twice() {
        let bad = full(V7, "-", &sample_job(1, READY, b"body"), b"body");
        let huge = |size: i32| full(V7, "t", &SampleJob { size, ..sample_job(1, READY, b"body") }, b"body");
        let noise: Vec<u8> = (0..100_000)
            .map({
                let mut random = Random(1);
                move |_| random.roll(256) as u8
            })
            .collect();
        let cases = [
            vec![vec![0; 1_000_000]],
            vec![vec![0; 1_000_000], vec![1]],
            vec![[&[0; 500][..], &[1; 500]].concat(); 1000],
            vec![ready(1, &vec![b'x'; 1_000_000])],
            vec![ready(1, b""); 10_000],
            vec![later(1, DELETED, b""); 10_000],
            vec![bad; 10_000],
            vec![huge(1 << 20); 10_000],
            vec![huge(1 << 30); 10_000],
            vec![huge(3); 10_000],
            vec![b"\r\n".to_vec(); 100_000],
            vec![noise],
        ];
        for records in cases {
            for version in [0, V5, V7] {
                let bytes = file(version, &records);
                let mut visits = 0;
                let looked = looked(|| assert!(read(&bytes, 0, |_, _| visits += 1) < 1 << 57));
                assert!(looked <= 2 * bytes.len(), "{looked} of {}", bytes.len());
                assert!(visits <= bytes.len() / 84 + 1, "{visits} in {}", bytes.len());
            }
        }
    }
}

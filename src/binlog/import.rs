//! The binlogs that beanstalkd left behind, read into jobs.
//!
//! Owns the two foreign formats: version 7, of beanstalkd 1.5 and later, and version 5, of 1.4. Must not touch files or
//! a clock, and must not trust a byte: neither format has a checksum or a length in front of its records.
//!
//! A file is its version, four bytes, and then records, one right behind the other:
//!
//! ```text
//! full   length of the tube's name, 1 to 200 · name · job, 80 bytes (77 in version 5) · body with its CR LF
//! short  zero                                · job, as above
//! ```
//!
//! A full record has all of a job, a short one what became of it: buried, kicked, delayed or deleted. All numbers are
//! little-endian, as on every machine that beanstalkd is common on. Zeros fill the rest of a file.
//!
//! What cannot be read is passed over: the next place that is *surely* a record goes on, and the [`Imported::problems`]
//! say so. Reading in order, a record is taken if it can be one; searching, only if everything about it is as
//! beanstalkd writes it, since the bytes in which it is searched for may be the body of a job.

use std::collections::BTreeMap;

use crate::engine::{Body, History, Span, State, Time};

/// The longest name of a tube.
const MAX_NAME: usize = 200;

/// The largest body, beanstalkd's ceiling for its option `-z`, and the CR LF behind it. The limit that a beanstalkd ran
/// with does not matter: it took bodies that it refused to read back.
const MAX_BODY: i32 = (1 << 30) + 2;

/// No beanstalkd gets to larger numbers: a million jobs a second take two thousand years.
const MAX_ID: u64 = 1 << 56;

/// A second, in nanoseconds.
const SECOND: i64 = 1_000_000_000;

/// The longest delay or time to run that the protocol can express, in nanoseconds.
const MAX_SPAN: i64 = u32::MAX as i64 * SECOND;

/// Moments between September 2001 and 2099. Only a search needs them: a job of a machine whose clock was never set is
/// read in order.
const LIKELY_TIMES: std::ops::Range<i64> = 1_000_000_000 * SECOND..4_100_000_000 * SECOND;

/// Problems told in full; of further ones only their number is.
const MAX_PROBLEMS: usize = 1000;

/// More zeros than this begin no record: at most eight bytes of a name's length and seven of a job's number are zero.
const MAX_LEADING_ZEROS: usize = 15;

/// The states as the files number them; 1 is ready, 2 reserved.
const DELETED: u8 = 0;
const BURIED: u8 = 3;
const DELAYED: u8 = 4;

/// One job as beanstalkd wrote it down. What beanstalkd does not write is lost: everything that happened since the last
/// put, bury, kick, delayed release or move to another file.
#[derive(Debug)]
pub struct ImportedJob {
    /// Its number.
    pub id: u64,
    /// The tube it is in.
    pub tube: Box<[u8]>,
    /// Smaller is served first.
    pub pri: u32,
    /// The delay it was last given.
    pub delay: Span,
    /// Its time to run.
    pub ttr: Span,
    /// When it was put.
    pub created: Time,
    /// When its delay ends, perhaps long ago. Zero unless it is delayed.
    pub due: Time,
    /// Ready, delayed or buried. A reserved job lost its holder, so it is ready.
    pub state: State,
    /// What happened to it; to be read back does not count.
    pub history: History,
    /// Its bytes, without the CR LF behind them.
    pub body: Body,
    /// Buried jobs: a larger number was buried later, as far as records tell; a copy of a buried job whose first file
    /// is gone counts as buried when it was copied. Zero unless it is buried.
    pub order: u64,
}

/// What came of some files.
#[derive(Debug, Default)]
pub struct Imported {
    /// By their numbers.
    pub jobs: Vec<ImportedJob>,
    /// The largest number seen, of deleted and damaged jobs too; the next job must get a larger one.
    pub last_id: u64,
    /// One line each: name of the file, offset, what is wrong there.
    pub problems: Vec<String>,
    /// Records that were not used, or stretches of bytes that hide an unknown number of them.
    pub skipped: u64,
}

/// Reads files one by one. Memory is bounded by the size of all files, whatever is in them.
#[derive(Debug, Default)]
pub struct Importer {
    jobs: BTreeMap<u64, ImportedJob>,
    last_id: u64,
    records: u64,
    problems: Vec<String>,
    untold: u64,
    skipped: u64,
}

impl Importer {
    /// Nothing read yet.
    pub fn new() -> Importer {
        Importer::default()
    }

    /// Reads the next file, in the order of the numbers in their names; `name` is for the problems.
    pub fn file(&mut self, name: &str, bytes: &[u8]) {
        let Some(version) = number(bytes, 0).map(u32::from_le_bytes) else {
            return self.problem(name, 0, "too short for a binlog");
        };
        let format = match version {
            5 => &VERSION_5,
            7 => &VERSION_7,
            // The first block of a file that was never written or got lost; what is behind it may be there.
            0 => {
                self.problem(name, 0, "no version");
                &VERSION_7
            }
            _ => return self.problem(name, 0, &format!("unknown version {version}, file not read")),
        };
        let file = File { format, bytes };
        let mut at = VERSION_SIZE;
        while at < bytes.len() {
            at = match file.record(at) {
                Ok(record) => {
                    if let Some(count) = file.records_in_body(&record) {
                        self.problem(name, at, &format!("job {} may hide {count} records in its body", record.job.id));
                    }
                    self.take(name, at, &record);
                    record.end
                }
                Err(fault) => self.pass_over(name, &file, at, &fault),
            };
        }
    }

    /// The jobs that are left.
    pub fn finish(mut self) -> Imported {
        if self.untold > 0 {
            self.problems.push(format!("and {} problems more", self.untold));
        }
        let jobs = self.jobs.into_values().collect();
        Imported { jobs, last_id: self.last_id, problems: self.problems, skipped: self.skipped }
    }

    fn problem(&mut self, name: &str, at: usize, what: &str) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(format!("{name}:{at}: {what}"));
        } else {
            self.untold += 1;
        }
    }

    /// Goes on behind a place that cannot be read: returns where. The zeros at the end of a file are no problem.
    fn pass_over(&mut self, name: &str, file: &File, at: usize, fault: &Fault) -> usize {
        // The number of a job was given even if the job itself was torn.
        if let Some(job) = file.header(at).ok().map(|header| header.job).filter(JobRecord::is_sound) {
            self.last_id = self.last_id.max(job.id);
        }
        let found = file.search(at + 1);
        let end = found.unwrap_or(file.bytes.len());
        if found.is_none() && leading_zeros(&file.bytes[at..]) == end - at {
            return end;
        }
        self.skipped += 1;
        let next = if found.is_some() { "the next record follows" } else { "nothing readable follows" };
        self.problem(name, at, &format!("{fault}; {next} after {} bytes", end - at));
        end
    }

    fn take(&mut self, name: &str, at: usize, record: &Record) {
        let job = &record.job;
        self.records += 1;
        self.last_id = self.last_id.max(job.id);
        match record.full {
            None => self.update(name, at, job),
            Some(_) if job.state == DELETED => drop(self.jobs.remove(&job.id)),
            Some(full) => self.put(name, at, job, full),
        }
    }

    /// A full record: a job that is new, or a copy from an older file, with all that happened since its last record.
    fn put(&mut self, name: &str, at: usize, job: &JobRecord, full: Full) {
        let old = self.jobs.remove(&job.id);
        if old.as_ref().is_some_and(|old| !job.is_of(old)) {
            let line = format!("job {} was there, with another birth or size; this one replaces it", job.id);
            self.problem(name, at, &line);
        }
        if !full.is_ended {
            self.problem(name, at, &format!("the body of job {} does not end in CR LF", job.id));
        }
        if !is_tube_name(full.tube) {
            self.problem(name, at, &format!("the tube of job {} has no proper name, mended", job.id));
        }
        let mut new = ImportedJob {
            id: job.id,
            tube: mended_name(full.tube),
            pri: 0,
            delay: Span::ZERO,
            ttr: Span::ZERO,
            created: moment(job.created),
            due: Time::default(),
            state: State::Ready,
            history: History::default(),
            body: Body::from(full.body),
            order: 0,
        };
        if job.created < 0 {
            self.problem(name, at, &format!("job {} was made before 1970, taken as then", job.id));
        }
        self.change(name, at, &mut new, job);
        // A copy changes nothing about when the job was buried.
        if let Some(old) = old.filter(|old| old.state == State::Buried && new.state == State::Buried) {
            new.order = old.order;
        }
        self.jobs.insert(new.id, new);
    }

    /// A short record. The full one of an unknown job was in a file that was removed, or is behind a delete.
    fn update(&mut self, name: &str, at: usize, job: &JobRecord) {
        let Some(mut old) = self.jobs.remove(&job.id) else { return };
        if !job.is_of(&old) {
            // If its number is what is damaged, it must not end the wrong job.
            self.skipped += 1;
            self.problem(name, at, &format!("an update of job {} has another birth or size, not used", job.id));
        } else if job.state == DELETED {
            return;
        } else {
            self.change(name, at, &mut old, job);
        }
        self.jobs.insert(old.id, old);
    }

    /// Gives a job what a record says of it, whichever kind it is.
    fn change(&mut self, name: &str, at: usize, job: &mut ImportedJob, record: &JobRecord) {
        let mut bounded = |what, nanos: i64, least, most| {
            let taken = nanos.clamp(least, most);
            if taken != nanos {
                let line = format!("job {} has {what} of {nanos} ns, taken as {taken}", record.id);
                self.problem(name, at, &line);
            }
            taken.unsigned_abs()
        };
        job.delay = Span::from_nanos(bounded("a delay", record.delay, 0, MAX_SPAN));
        // beanstalkd gives at least a second; less than that, but something, is what somebody wanted.
        let least_ttr = if record.ttr > 0 { 1 } else { SECOND };
        job.ttr = Span::from_nanos(bounded("a time to run", record.ttr, least_ttr, MAX_SPAN));
        job.pri = record.pri;
        job.history = record.history;
        (job.state, job.due, job.order) = match record.state {
            DELAYED => {
                let due = bounded("a deadline", record.deadline, 0, i64::MAX);
                (State::Delayed, Time::from_nanos(due), 0)
            }
            BURIED => (State::Buried, Time::default(), self.records),
            _ => (State::Ready, Time::default(), 0),
        };
    }
}

/// Bytes of the version in front of the records.
const VERSION_SIZE: usize = 4;

/// Where the versions differ.
#[derive(Debug)]
struct Format {
    /// Bytes of the length of a tube's name.
    length_size: usize,
    /// Bytes of a job without its body. What version 7 has more is padding.
    job_size: usize,
    /// Nanoseconds in a unit of time.
    unit: i64,
    /// The gaps between fields are zeros, and not whatever was in memory.
    pads_with_zeros: bool,
}

const VERSION_5: Format = Format { length_size: 8, job_size: 77, unit: 1000, pads_with_zeros: false };
const VERSION_7: Format = Format { length_size: 4, job_size: 80, unit: 1, pads_with_zeros: true };

/// What is wrong with a place that should be a record.
#[derive(Debug)]
enum Fault {
    /// Zeros, or a name without a job behind it.
    Nothing,
    /// The file ends first.
    Torn,
    /// A name of this length.
    Name(u64),
    /// No job gets this number.
    Id(u64),
    /// A state that does not exist.
    State(u64, u8),
    /// A body of this size.
    Size(u64, i32),
    /// No CR LF, so the size is wrong or the body is.
    Body(u64),
    /// A name that no tube has, and fields that beanstalkd does not write.
    Doubt(u64),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Fault::Nothing => write!(f, "a hole"),
            Fault::Torn => write!(f, "a record that is torn off"),
            Fault::Name(length) => write!(f, "a tube name of {length} bytes"),
            Fault::Id(id) => write!(f, "an impossible job number, {id}"),
            Fault::State(id, state) => write!(f, "an unknown state of job {id}, {state}"),
            Fault::Size(id, size) => write!(f, "a body of job {id} with {size} bytes"),
            Fault::Body(id) => write!(f, "a body of job {id} that does not end in CR LF"),
            Fault::Doubt(id) => write!(f, "something like job {id}, too damaged to trust"),
        }
    }
}

/// The part of a record that all of them have.
#[derive(Debug)]
struct JobRecord {
    id: u64,
    pri: u32,
    /// In nanoseconds, as are all times here, and as wrong as they are in the file.
    delay: i64,
    ttr: i64,
    /// Of the body, with its CR LF.
    size: i32,
    created: i64,
    deadline: i64,
    history: History,
    state: u8,
    is_padded: bool,
}

/// The part that only a full record has.
#[derive(Clone, Copy, Debug)]
struct Full<'a> {
    tube: &'a [u8],
    body: &'a [u8],
    /// The CR LF is there, both of it.
    is_ended: bool,
}

#[derive(Debug)]
struct Record<'a> {
    job: JobRecord,
    full: Option<Full<'a>>,
    /// Where the next one should be.
    end: usize,
}

/// A record up to the body, which is not looked at yet.
struct Header<'a> {
    tube: &'a [u8],
    job: JobRecord,
    end: usize,
}

impl JobRecord {
    /// Reads the fields; none is judged.
    fn read(bytes: &[u8], format: &Format) -> Option<JobRecord> {
        let bytes = bytes.get(..format.job_size)?;
        let nanos = |at| Some(i64::from_le_bytes(number(bytes, at)?).saturating_mul(format.unit));
        let count = |at| Some(u32::from_le_bytes(number(bytes, at)?));
        let is_zero = |range: std::ops::Range<usize>| bytes[range].iter().all(|&byte| byte == 0);
        Some(JobRecord {
            id: u64::from_le_bytes(number(bytes, 0)?),
            pri: count(8)?,
            delay: nanos(16)?,
            ttr: nanos(24)?,
            size: i32::from_le_bytes(number(bytes, 32)?),
            created: nanos(40)?,
            deadline: nanos(48)?,
            history: History {
                reserves: count(56)?,
                timeouts: count(60)?,
                releases: count(64)?,
                buries: count(68)?,
                kicks: count(72)?,
            },
            state: bytes[76],
            is_padded: !format.pads_with_zeros || is_zero(12..16) && is_zero(36..40) && is_zero(77..80),
        })
    }

    fn has_id(&self) -> bool {
        (1..=MAX_ID).contains(&self.id)
    }

    fn has_size(&self) -> bool {
        (2..=MAX_BODY).contains(&self.size)
    }

    fn has_state(&self) -> bool {
        self.state <= DELAYED
    }

    /// Every field is as beanstalkd writes it. Whole seconds in two places, a date and several small numbers are far
    /// more than chance can bring together.
    fn is_sound(&self) -> bool {
        let is_span = |nanos: i64, least| (least..=MAX_SPAN).contains(&nanos) && nanos % SECOND == 0;
        self.is_padded
            && self.has_id()
            && self.has_size()
            && self.has_state()
            && is_span(self.delay, 0)
            && is_span(self.ttr, SECOND)
            && LIKELY_TIMES.contains(&self.created)
            && self.deadline >= 0
    }

    /// Whether what never changes in the life of a job is the same.
    fn is_of(&self, job: &ImportedJob) -> bool {
        moment(self.created) == job.created && usize::try_from(self.size) == Ok(job.body.len() + 2)
    }
}

#[derive(Debug)]
struct File<'a> {
    format: &'static Format,
    bytes: &'a [u8],
}

impl<'a> File<'a> {
    fn header(&self, at: usize) -> Result<Header<'a>, Fault> {
        let rest = self.bytes.get(at..).ok_or(Fault::Torn)?;
        let format = self.format;
        let length = match format.length_size {
            8 => number(rest, 0).map(u64::from_le_bytes),
            _ => number(rest, 0).map(|bytes| u32::from_le_bytes(bytes).into()),
        };
        let length = length.ok_or(Fault::Torn)?;
        let name_size = usize::try_from(length).ok().filter(|&size| size <= MAX_NAME).ok_or(Fault::Name(length))?;
        let name_end = format.length_size + name_size;
        let tube = rest.get(format.length_size..name_end).ok_or(Fault::Torn)?;
        let job = JobRecord::read(&rest[name_end..], format).ok_or(Fault::Torn)?;
        Ok(Header { tube, job, end: at + name_end + format.job_size })
    }

    /// The record that should be here.
    fn record(&self, at: usize) -> Result<Record<'a>, Fault> {
        let Header { tube, job, end } = self.header(at)?;
        match job.id {
            0 => return Err(Fault::Nothing),
            id if !job.has_id() => return Err(Fault::Id(id)),
            id if !job.has_state() => return Err(Fault::State(id, job.state)),
            _ => {}
        }
        if tube.is_empty() {
            return Ok(Record { job, full: None, end });
        }
        let size = usize::try_from(job.size).ok().filter(|_| job.has_size()).ok_or(Fault::Size(job.id, job.size))?;
        let with_end = self.bytes[end..].get(..size).ok_or(Fault::Torn)?;
        let end = end + size;
        let (body, line_end) = with_end.split_at(size - 2);
        let is_ended = line_end == b"\r\n";
        // Half of it may be damage to the body; without any of it, the size is wrong or the body was never written.
        let is_half_ended = line_end[0] == b'\r' || line_end[1] == b'\n';
        let can_end = is_ended || is_half_ended && self.is_boundary(end);
        if !can_end {
            return Err(Fault::Body(job.id));
        }
        if !is_tube_name(tube) && !job.is_sound() {
            return Err(Fault::Doubt(job.id));
        }
        Ok(Record { job, full: Some(Full { tube, body, is_ended }), end })
    }

    /// Whether a record may end here: another one follows surely, or zeros do, or nothing.
    fn is_boundary(&self, at: usize) -> bool {
        let rest = &self.bytes[at..];
        let window = &rest[..rest.len().min(self.format.length_size + self.format.job_size)];
        leading_zeros(window) == window.len() || self.is_surely_record(at)
    }

    /// Whether everything about this place is as in a record, not only what is needed to read it.
    fn is_surely_record(&self, at: usize) -> bool {
        let Ok(Header { tube, job, end }) = self.header(at) else { return false };
        if !job.is_sound() {
            return false;
        }
        let body = || self.bytes[end..].get(..usize::try_from(job.size).ok()?);
        tube.is_empty() || is_tube_name(tube) && body().is_some_and(|body| body.ends_with(b"\r\n"))
    }

    /// How many records make up the end of a body. Such a body is allowed, but unlikely: a size that became too large
    /// by chance may end where a later record does.
    fn records_in_body(&self, record: &Record) -> Option<usize> {
        let body_size = record.full?.body.len() + 2;
        let within = File { format: self.format, bytes: &self.bytes[..record.end] };
        let mut at = within.search(record.end - body_size)?;
        let mut count = 0;
        while let Ok(inner) = within.record(at) {
            at = inner.end;
            count += 1;
        }
        (at == record.end).then_some(count)
    }

    /// The next place at or behind this one that is surely a record.
    fn search(&self, from: usize) -> Option<usize> {
        let mut at = from;
        // Of the length of a name, only the first byte can be something.
        while let Some([_, zeros @ ..]) = number::<4>(self.bytes, at) {
            if let Some(last) = zeros.iter().rposition(|&byte| byte != 0) {
                at += last + 1;
                continue;
            }
            at += leading_zeros(&self.bytes[at..]).saturating_sub(MAX_LEADING_ZEROS);
            if self.is_surely_record(at) {
                // A short record with zeros in front may look like one a few bytes earlier, with a number 256 times as
                // large. Later it cannot: its date would be in the seventies.
                let last = at + self.format.length_size + size_of::<u64>();
                return (at..last).rev().find(|&at| self.is_surely_record(at));
            }
            at += 1;
        }
        None
    }
}

/// The bytes of a number.
fn number<const SIZE: usize>(bytes: &[u8], at: usize) -> Option<[u8; SIZE]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// How many zeros the bytes begin with.
fn leading_zeros(bytes: &[u8]) -> usize {
    let blocks = bytes.chunks_exact(16).take_while(|block| *block == [0; 16]).count() * 16;
    blocks + bytes[blocks..].iter().take_while(|&&byte| byte == 0).count()
}

/// Nanoseconds since 1970, which is before any job.
fn moment(nanos: i64) -> Time {
    Time::from_nanos(nanos.max(0).unsigned_abs())
}

/// Whether a tube may be called so.
fn is_tube_name(name: &[u8]) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name[0] != b'-' && name.iter().all(is_name_byte)
}

fn is_name_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-+/;.$_()".contains(byte)
}

/// The name with an underscore for what cannot be in one. Its job can be found then, if not by the right workers.
fn mended_name(name: &[u8]) -> Box<[u8]> {
    let mut mended: Box<[u8]> = name.iter().map(|byte| if is_name_byte(byte) { *byte } else { b'_' }).collect();
    if let Some(first) = mended.first_mut().filter(|first| **first == b'-') {
        *first = b'_';
    }
    mended
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2023, in nanoseconds.
    const BORN: i64 = 1_700_000_000_123_456_000;

    const V7: u32 = 7;
    const V5: u32 = 5;
    const READY: u8 = 1;

    /// What a record says, in nanoseconds.
    #[derive(Clone)]
    struct Said {
        id: u64,
        pri: u32,
        delay: i64,
        ttr: i64,
        size: i32,
        created: i64,
        deadline: i64,
        counts: [u32; 5],
        state: u8,
    }

    fn said(id: u64, state: u8, body: &[u8]) -> Said {
        let size = body.len() as i32 + 2;
        let created = BORN + id as i64 * 1000;
        Said {
            id,
            pri: 7,
            delay: 0,
            ttr: 60 * SECOND,
            size,
            created,
            deadline: created,
            counts: [1, 2, 3, 4, 5],
            state,
        }
    }

    fn short(version: u32, said: &Said) -> Vec<u8> {
        record(version, b"", said)
    }

    fn full(version: u32, tube: &str, said: &Said, body: &[u8]) -> Vec<u8> {
        [&record(version, tube.as_bytes(), said)[..], body, b"\r\n"].concat()
    }

    /// Everything but the body.
    fn record(version: u32, tube: &[u8], said: &Said) -> Vec<u8> {
        let unit = if version == V5 { 1000 } else { 1 };
        let mut out = (tube.len() as u64).to_le_bytes()[..if version == V5 { 8 } else { 4 }].to_vec();
        out.extend(tube);
        out.extend(said.id.to_le_bytes());
        out.extend(u64::from(said.pri).to_le_bytes());
        out.extend((said.delay / unit).to_le_bytes());
        out.extend((said.ttr / unit).to_le_bytes());
        out.extend(said.size.to_le_bytes());
        out.extend([0; 4]);
        out.extend((said.created / unit).to_le_bytes());
        out.extend((said.deadline / unit).to_le_bytes());
        out.extend(said.counts.iter().flat_map(|count| count.to_le_bytes()));
        out.push(said.state);
        out.extend(&[0; 3][..if version == V5 { 0 } else { 3 }]);
        out
    }

    fn ready(id: u64, body: &[u8]) -> Vec<u8> {
        full(V7, "default", &said(id, READY, body), body)
    }

    /// What becomes of the job that [`ready`] makes.
    fn later(id: u64, state: u8, body: &[u8]) -> Vec<u8> {
        short(V7, &said(id, state, body))
    }

    fn file(version: u32, records: &[Vec<u8>]) -> Vec<u8> {
        [&version.to_le_bytes()[..], &records.concat()].concat()
    }

    fn read(bytes: &[u8]) -> Imported {
        read_all(&[bytes])
    }

    fn read_all(files: &[&[u8]]) -> Imported {
        let mut importer = Importer::new();
        for (index, bytes) in files.iter().enumerate() {
            importer.file(&format!("binlog.{}", index + 1), bytes);
        }
        importer.finish()
    }

    fn bodies(imported: &Imported) -> Vec<(u64, String)> {
        let text = |job: &ImportedJob| String::from_utf8_lossy(job.body.bytes()).into_owned();
        imported.jobs.iter().map(|job| (job.id, text(job))).collect()
    }

    fn ids(imported: &Imported) -> Vec<u64> {
        imported.jobs.iter().map(|job| job.id).collect()
    }

    /// Without a word of complaint.
    fn read_clean(bytes: &[u8]) -> Imported {
        let imported = read(bytes);
        assert_eq!((imported.problems.as_slice(), imported.skipped), (&[][..], 0));
        imported
    }

    /// With one complaint, which says this.
    fn read_with(problem: &str, skipped: u64, bytes: &[u8]) -> Imported {
        let imported = read(bytes);
        assert!(imported.problems.len() == 1 && imported.problems[0].contains(problem), "{:?}", imported.problems);
        assert_eq!(imported.skipped, skipped);
        imported
    }

    #[test]
    fn every_field_of_both_versions_is_read() {
        for version in [V5, V7] {
            let due = BORN + 90 * SECOND;
            let mut said = said(258, DELAYED, b"hello\r\n");
            (said.pri, said.delay, said.deadline) = (u32::MAX, 90 * SECOND, due);
            let imported = read_clean(&file(version, &[full(version, "a.tube", &said, b"hello\r\n"), vec![0; 500]]));
            let [job] = &imported.jobs[..] else { panic!("one job") };
            assert_eq!((job.id, &*job.tube, job.pri, imported.last_id), (258, b"a.tube".as_slice(), u32::MAX, 258));
            assert_eq!((job.delay, job.ttr), (Span::from_secs(90), Span::from_secs(60)));
            assert_eq!((job.created.nanos(), job.due.nanos()), (said.created as u64, due as u64));
            assert_eq!((job.state, job.body.bytes(), job.order), (State::Delayed, b"hello\r\n".as_slice(), 0));
            let history = History { reserves: 1, timeouts: 2, releases: 3, buries: 4, kicks: 5 };
            assert_eq!(job.history, history);
        }
    }

    #[test]
    fn updates_change_and_delete_and_are_ignored_for_unknown_jobs() {
        for version in [V5, V7] {
            let mut records: Vec<_> = (1..=4).map(|id| full(version, "t", &said(id, READY, b"x"), b"x")).collect();
            let mut delayed = said(2, DELAYED, b"x");
            (delayed.pri, delayed.delay, delayed.deadline, delayed.counts[2]) = (9, SECOND, BORN + SECOND, 77);
            records.push(short(version, &said(1, DELETED, b"x")));
            records.push(short(version, &delayed));
            records.push(short(version, &said(3, BURIED, b"x")));
            records.extend([3, 1, 2, 0].map(|state| short(version, &said(90, state, b"never seen"))));
            // Nothing brings a deleted job back; a reserved one lost its holder.
            records.push(short(version, &said(1, BURIED, b"x")));
            records.push(short(version, &said(4, 2, b"x")));
            let imported = read_clean(&file(version, &records));
            assert_eq!((ids(&imported), imported.last_id), (vec![2, 3, 4], 90));
            let [two, three, four] = &imported.jobs[..] else { panic!("three jobs") };
            assert_eq!((two.state, two.pri, two.delay), (State::Delayed, 9, Span::from_secs(1)));
            assert_eq!((two.due.nanos(), two.history.releases), ((BORN + SECOND) as u64, 77));
            assert_eq!((three.state, three.history.buries), (State::Buried, 4));
            assert_eq!(four.state, State::Ready);
        }
    }

    #[test]
    fn buried_jobs_keep_the_order_in_which_they_were_buried() {
        let first = file(V7, &(1..=5).map(|id| ready(id, b"")).collect::<Vec<_>>());
        let bury = |ids: &[u64]| ids.iter().map(|&id| later(id, BURIED, b"")).collect::<Vec<_>>();
        let second = file(V7, &bury(&[4, 2, 5, 1, 3]));
        // 2 is kicked and buried again, 5 is taken by its number and buried again, 4 is only copied.
        let copy = full(V7, "default", &said(4, BURIED, b""), b"");
        let third = file(V7, &[vec![later(2, READY, b""), copy], bury(&[2, 5])].concat());
        let mut jobs = read_all(&[&first, &second, &third]).jobs;
        jobs.sort_by_key(|job| job.order);
        assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [4, 1, 3, 2, 5]);
    }

    #[test]
    fn copies_in_later_files_replace_jobs() {
        let mut newer = said(1, READY, b"longer than before");
        newer.created = BORN + 1000;
        let copy = full(V7, "other", &newer, b"longer than before");
        let first = file(V7, &[ready(1, b"short"), ready(2, b"same"), copy, ready(3, b"")]);
        let imported = read_with("job 1 was there", 0, &first);
        assert_eq!(bodies(&imported)[0], (1, "longer than before".to_owned()));
        assert_eq!((&*imported.jobs[0].tube, imported.jobs.len()), (b"other".as_slice(), 3));
        // A copy as beanstalkd makes it is no problem, also if the first one is gone.
        let copies = file(V7, &[ready(2, b"same"), later(2, DELETED, b"same"), ready(7, b"moved")]);
        let imported = read_all(&[&file(V7, &[ready(2, b"same")]), &copies]);
        assert_eq!((imported.problems.len(), ids(&imported)), (0, vec![7]));
    }

    #[test]
    fn a_full_record_of_a_deleted_job_has_a_body_too() {
        let gone = full(V7, "default", &said(1, DELETED, b"body"), b"body");
        let imported = read_clean(&file(V7, &[ready(1, b"body"), gone, ready(2, b"")]));
        assert_eq!(ids(&imported), [2]);
    }

    #[test]
    fn bodies_of_any_size_are_taken() {
        let sizes = [0, 1, 65_533, 65_534, 65_535, 65_536, 300_000];
        let job = |(index, size): (usize, &usize)| ready(index as u64 + 1, &vec![b'x'; *size]);
        let imported = read_clean(&file(V7, &sizes.iter().enumerate().map(job).collect::<Vec<_>>()));
        assert_eq!(imported.jobs.iter().map(|job| job.body.len()).collect::<Vec<_>>(), sizes);
    }

    #[test]
    fn files_without_a_known_version_are_not_read() {
        for version in [1, 6, 8, u32::MAX, 7 << 24] {
            let imported = read_with("unknown version", 0, &file(version, &[ready(1, b"x")]));
            assert_eq!(imported.jobs.len(), 0);
        }
        for short in [&b""[..], b"\x07", b"\x07\0\0"] {
            read_with("too short", 0, short);
        }
        read_clean(&file(V7, &[]));
        read_with("no version", 0, &[0; 4096]);
    }

    #[test]
    fn a_lost_first_block_hides_no_other() {
        let mut bytes = file(V7, &(1..=99).map(|id| ready(id, b"some body")).collect::<Vec<_>>());
        bytes[..512].fill(0);
        let imported = read(&bytes);
        assert_eq!(ids(&imported), (6..=99).collect::<Vec<_>>());
        assert!(imported.skipped == 1 && imported.problems.len() == 2, "{:?}", imported.problems);
    }

    #[test]
    fn damage_costs_the_damaged_record_and_no_other() {
        let good = file(V7, &[ready(1, b"one"), ready(2, b"two"), ready(3, b"three")]);
        let start = 4 + ready(1, b"one").len();
        let job = start + 4 + 7;
        let cases: [(&str, usize, &[u8]); 10] = [
            ("a tube name of 201 bytes", start, &[201]),
            ("a tube name of 4294967295 bytes", start, &[255; 4]),
            ("a record that is torn off", job + 32, &[1, 0, 0, 63]),
            ("with 1073741827 bytes", job + 32, &[3, 0, 0, 64]),
            ("with 1 bytes", job + 32, &[1]),
            ("with -1 bytes", job + 32, &[255; 4]),
            ("does not end in CR LF", job + 32, &[4]),
            ("does not end in CR LF", job + 32, &[6]),
            ("an unknown state of job 2, 5", job + 76, &[5]),
            ("an impossible job number", job + 7, &[255]),
        ];
        for (problem, at, bytes) in cases {
            let mut damaged = good.clone();
            damaged[at..at + bytes.len()].copy_from_slice(bytes);
            let imported = read_with(problem, 1, &damaged);
            let end = start + ready(2, b"two").len();
            assert!(imported.problems[0].starts_with(&format!("binlog.1:{start}: ")));
            assert!(imported.problems[0].ends_with(&format!("follows after {} bytes", end - start)));
            assert_eq!(bodies(&imported), [(1, "one".to_owned()), (3, "three".to_owned())], "{problem}");
        }
    }

    #[test]
    fn a_torn_tail_is_told_and_its_number_not_given_again() {
        let good = [file(V7, &[ready(1, b"one"), later(1, BURIED, b"one")]), ready(9, b"a body")].concat();
        let tail = ready(9, b"a body").len();
        for cut in 1..tail {
            let bytes = &good[..good.len() - cut];
            for bytes in [bytes.to_vec(), [bytes, &[0; 4000]].concat()] {
                let imported = read(&bytes);
                // With zeros behind, a torn line end is mended.
                if ids(&imported) == [1, 9] {
                    assert!(cut == 1 && bytes.len() > 4000 && imported.problems.len() == 1);
                    continue;
                }
                assert_eq!((ids(&imported), imported.problems.len(), imported.skipped), (vec![1], 1, 1), "{cut}");
                let is_whole = cut <= "a body\r\n".len();
                assert!(imported.last_id == if is_whole { 9 } else { 1 } || bytes.len() > 4000 && !is_whole, "{cut}");
            }
        }
    }

    #[test]
    fn holes_end_nothing() {
        let records: Vec<_> = (1..=40).map(|id| [ready(id, b"text"), later(id, BURIED, b"text")].concat()).collect();
        let good = file(V7, &records);
        let size = records[0].len();
        for (from, to) in [(4, 4 + size), (1000, 1512), (1000, 1001 + size * 3), (4 + size, 4 + size * 2)] {
            let mut holed = good.clone();
            holed[from..to].fill(0);
            let imported = read(&holed);
            let touched = (from - 4) / size..(to - 4).div_ceil(size);
            let rest: Vec<_> = (1..=40).filter(|id| !touched.contains(&(*id as usize - 1))).collect();
            let whole: Vec<_> =
                imported.jobs.iter().filter(|job| job.state == State::Buried).map(|job| job.id).collect();
            assert!(rest.iter().all(|id| whole.contains(id)), "{from} to {to}: {whole:?}");
            assert!(!imported.problems.is_empty() && imported.skipped > 0);
        }
    }

    #[test]
    fn an_update_behind_a_hole_is_found_at_the_right_byte() {
        // Zeros in front make the number of a job look 256 times as large from one byte earlier.
        for id in [1, 256, 65_536, 1 << 24] {
            let records = [ready(id, b"x"), vec![0; 99], later(id, DELETED, b"x"), ready(77, b"")];
            let imported = read_with("a hole", 1, &file(V7, &records));
            assert_eq!((ids(&imported), imported.last_id), (vec![77], id.max(77)));
        }
    }

    #[test]
    fn damage_at_the_end_of_a_body_keeps_the_job() {
        let at = 4 + ready(1, b"one").len() - 1;
        for behind in [vec![], ready(2, b"two"), later(1, BURIED, b"one"), vec![0; 2], vec![0; 300]] {
            let mut bytes = file(V7, &[ready(1, b"one"), behind]);
            bytes[at] = b'?';
            let imported = read_with("the body of job 1 does not end in CR LF", 0, &bytes);
            assert_eq!(bodies(&imported)[0], (1, "one".to_owned()));
        }
    }

    #[test]
    fn a_body_full_of_records_is_a_body() {
        let inner = [ready(5, b"five"), later(1, DELETED, b""), vec![0; 100], ready(6, b"six")].concat();
        let good = file(V7, &[ready(1, b""), ready(2, &inner), ready(3, b"")]);
        assert_eq!(ids(&read_clean(&good)), [1, 2, 3]);
        // Where it ends just as a record does, it is still taken for what it says it is.
        let swallowed = [ready(5, b"five"), ready(6, b"six")].concat();
        let bytes = file(V7, &[ready(1, b""), ready(2, &swallowed[..swallowed.len() - 2]), ready(3, b"")]);
        assert_eq!(ids(&read_with("job 2 may hide 2 records", 0, &bytes)), [1, 2, 3]);
    }

    #[test]
    fn an_update_that_contradicts_its_job_is_not_used() {
        for wrong in [
            Said { created: BORN, ..said(1, DELETED, b"body") },
            Said { size: 9, ..said(1, BURIED, b"body") },
            Said { size: -9, ..said(1, BURIED, b"body") },
        ] {
            let imported = read_with("not used", 1, &file(V7, &[ready(1, b"body"), short(V7, &wrong)]));
            assert_eq!(imported.jobs[0].state, State::Ready);
        }
    }

    #[test]
    fn absurd_times_are_bounded() {
        let good = said(1, DELAYED, b"");
        let taken = |said: Said| {
            let imported = read_with("taken as", 0, &file(V7, &[full(V7, "default", &said, b"")]));
            let job = &imported.jobs[0];
            (job.delay.nanos(), job.ttr.nanos(), job.created.nanos(), job.due.nanos())
        };
        let (ttr, born) = (good.ttr as u64, good.created as u64);
        let most = MAX_SPAN as u64;
        assert_eq!(taken(Said { delay: -1, ..good.clone() }), (0, ttr, born, born));
        assert_eq!(taken(Said { delay: i64::MAX, ..good.clone() }), (most, ttr, born, born));
        assert_eq!(taken(Said { ttr: 0, ..good.clone() }), (0, SECOND as u64, born, born));
        assert_eq!(taken(Said { ttr: i64::MIN, ..good.clone() }), (0, SECOND as u64, born, born));
        assert_eq!(taken(Said { ttr: MAX_SPAN + 1, ..good.clone() }), (0, most, born, born));
        assert_eq!(taken(Said { created: -5, ..good.clone() }), (0, ttr, 0, born));
        assert_eq!(taken(Said { deadline: -5, ..good.clone() }), (0, ttr, born, 0));
        let mut micros = full(V5, "default", &good, b"");
        micros[8 + 7 + 24..][..8].fill(255);
        let imported = read_with("taken as", 0, &file(V5, &[micros]));
        assert_eq!(imported.jobs[0].ttr, Span::from_secs(1));
    }

    #[test]
    fn a_clock_that_was_never_set_is_no_damage() {
        let young = |state| Said { created: 5_000_000, deadline: 0, ..said(1, state, b"x") };
        let records = [full(V7, "default", &young(READY), b"x"), short(V7, &young(BURIED)), ready(2, b"")];
        let imported = read_clean(&file(V7, &records));
        assert_eq!((imported.jobs[0].state, imported.jobs.len()), (State::Buried, 2));
    }

    #[test]
    fn jobs_of_tubes_without_a_proper_name_are_kept() {
        for (name, mended) in [("de\x01au lt", "de_au_lt"), ("-x", "_x"), ("Az09-+/;.$_()", "")] {
            let bytes = file(V7, &[full(V7, name, &said(1, READY, b""), b"")]);
            let imported = if mended.is_empty() { read_clean(&bytes) } else { read_with("mended", 0, &bytes) };
            let expected = if mended.is_empty() { name } else { mended };
            assert_eq!(&*imported.jobs[0].tube, expected.as_bytes());
        }
    }

    #[test]
    fn a_wrong_name_in_front_of_wrong_fields_is_no_job() {
        let bad = full(V7, "default\0", &Said { ttr: 1, ..said(1, READY, b"") }, b"");
        let imported = read_with("too damaged to trust", 1, &file(V7, &[bad, ready(2, b"")]));
        assert_eq!(ids(&imported), [2]);
    }

    #[test]
    fn problems_are_told_up_to_a_limit() {
        let bad = |id| full(V7, "default", &Said { ttr: 0, ..said(id, READY, b"") }, b"");
        let imported = read(&file(V7, &(1..=1500).map(bad).collect::<Vec<_>>()));
        assert_eq!((imported.jobs.len(), imported.problems.len()), (1500, MAX_PROBLEMS + 1));
        assert_eq!(imported.problems.last().map(String::as_str), Some("and 500 problems more"));
    }

    /// Numbers that are the same on every run.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % sides
        }
    }

    /// A file with all kinds of records, and of each the job and the offset. Any two of the numbers of the jobs differ
    /// in two bits, so that one wrong bit makes no other job of them.
    fn sample(version: u32, jobs: u64, dice: &mut Dice) -> (Vec<u8>, Vec<(u64, usize)>) {
        let (mut bytes, mut starts) = (file(version, &[]), Vec::new());
        for id in (1..2 * jobs).filter(|id| id.count_ones() % 2 == 0) {
            let body: Vec<u8> = (0..dice.roll(90)).map(|_| dice.roll(256) as u8).collect();
            let tube = ["default", "a", "mail.out"][dice.roll(3)];
            starts.push((id, bytes.len()));
            bytes.extend(full(version, tube, &said(id, [READY, BURIED, DELAYED][dice.roll(3)], &body), &body));
            for _ in 0..dice.roll(3) {
                starts.push((id, bytes.len()));
                bytes.extend(short(version, &said(id, [DELETED, READY, BURIED, DELAYED][dice.roll(4)], &body)));
            }
        }
        (bytes, starts)
    }

    #[test]
    fn nothing_but_a_record_is_surely_one() {
        for (version, format) in [(V5, &VERSION_5), (V7, &VERSION_7)] {
            let (bytes, starts) = sample(version, 100, &mut Dice(3));
            let file = File { format, bytes: &bytes };
            let sure: Vec<usize> = std::iter::successors(file.search(4), |at| file.search(at + 1)).collect();
            assert_eq!(sure, starts.iter().map(|(_, at)| *at).collect::<Vec<_>>());
        }
    }

    #[test]
    fn one_wrong_bit_harms_one_job() {
        for version in [V5, V7] {
            let (good, starts) = sample(version, 5, &mut Dice(5));
            let told = |bytes: &[u8], but: u64| {
                let imported = read(bytes);
                if imported.problems.iter().any(|problem| problem.contains("may hide")) {
                    return None;
                }
                // Of the number that one wrong bit made, nothing can be known; nor does the order matter here.
                let jobs = imported.jobs.into_iter().filter(|job| job.id != but && job.id.count_ones() % 2 == 0);
                Some(jobs.map(|job| format!("{:?}", ImportedJob { order: 0, ..job })).collect::<Vec<_>>())
            };
            for (index, &(id, start)) in starts.iter().enumerate() {
                let end = starts.get(index + 1).map_or(good.len(), |(_, at)| *at);
                let expected = told(&good, id).expect("no doubt about good bytes");
                for bit in start * 8..end * 8 {
                    let mut bytes = good.clone();
                    bytes[bit / 8] ^= 1 << (bit % 8);
                    let is_same = told(&bytes, id).is_none_or(|jobs| jobs == expected);
                    assert!(is_same, "bit {} of byte {} of job {id}", bit % 8, bit / 8 - start);
                }
            }
        }
    }

    #[test]
    fn no_bytes_bring_the_reader_down() {
        let mut dice = Dice(7);
        for round in 0..1000 {
            let version = [V5, V7][round % 2];
            let mut bytes = sample(version, 30, &mut dice).0;
            for _ in 0..dice.roll(30) {
                let (at, other) = (4 + dice.roll(bytes.len() - 4), 4 + dice.roll(bytes.len() - 4));
                let length = dice.roll(300).min(bytes.len() - at.max(other));
                match dice.roll(5) {
                    0 => bytes[at] = dice.roll(256) as u8,
                    1 => bytes[at] ^= 1 << dice.roll(8),
                    2 => bytes[at..at + length].fill([0, 255, b'\n'][dice.roll(3)]),
                    3 => bytes.copy_within(other..other + length, at),
                    _ => drop(bytes.drain(at..at + length.min(bytes.len() - at - 1))),
                }
                bytes.extend([0; 8]);
            }
            bytes.truncate(4 + dice.roll(bytes.len() * 2));
            let imported = read(&bytes);
            let taken: usize = imported.jobs.iter().map(|job| job.body.len() + 84).sum();
            assert!(taken <= bytes.len() && imported.jobs.iter().all(|job| job.id <= imported.last_id));
        }
        for size in (0..2000).step_by(7) {
            let noise: Vec<u8> = (0..size).map(|_| dice.roll(256) as u8).collect();
            for version in [V5, V7] {
                read(&file(version, std::slice::from_ref(&noise)));
            }
        }
    }
}

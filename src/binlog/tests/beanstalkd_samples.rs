//! Sample files in beanstalkd's format, for tests.
//!
//! Owns an encoder of the format, and a count of the bytes that were read.

use std::cell::Cell;

pub const V7: u32 = 7;
pub const V5: u32 = 5;
pub const READY: u8 = 1;

pub const SECOND: i64 = 1_000_000_000;

/// A time in 2023, in nanoseconds since 1970.
pub const BORN: i64 = 1_700_000_000_123_456_000;

thread_local! {
    static LOOKED: Cell<usize> = const { Cell::new(0) };
}

pub fn look(count: usize) {
    LOOKED.set(LOOKED.get() + count);
}

/// Returns the number of bytes that `work` reads.
pub fn looked(work: impl FnOnce()) -> usize {
    let before = LOOKED.get();
    work();
    LOOKED.get() - before
}

/// The fields of a record. Times are in nanoseconds.
#[derive(Clone)]
pub struct SampleJob {
    pub id: u64,
    pub pri: u32,
    pub delay: i64,
    pub ttr: i64,
    pub size: i32,
    pub created: i64,
    pub deadline: i64,
    pub counts: [u32; 5],
    pub state: u8,
}

pub fn sample_job(id: u64, state: u8, body: &[u8]) -> SampleJob {
    let created = BORN + id as i64 * 1000;
    SampleJob {
        id,
        pri: 7,
        delay: 0,
        ttr: 60 * SECOND,
        size: body.len() as i32 + 2,
        created,
        deadline: created,
        counts: [1, 2, 3, 4, 5],
        state,
    }
}

pub fn short(version: u32, sample_job: &SampleJob) -> Vec<u8> {
    record(version, b"", sample_job)
}

pub fn full(version: u32, tube: &str, sample_job: &SampleJob, body: &[u8]) -> Vec<u8> {
    [&record(version, tube.as_bytes(), sample_job)[..], body, b"\r\n"].concat()
}

fn record(version: u32, tube: &[u8], sample_job: &SampleJob) -> Vec<u8> {
    let unit = if version == V5 { 1000 } else { 1 };
    let mut out = (tube.len() as u64).to_le_bytes()[..if version == V5 { 8 } else { 4 }].to_vec();
    out.extend(tube);
    out.extend(sample_job.id.to_le_bytes());
    out.extend(u64::from(sample_job.pri).to_le_bytes());
    out.extend((sample_job.delay / unit).to_le_bytes());
    out.extend((sample_job.ttr / unit).to_le_bytes());
    out.extend(sample_job.size.to_le_bytes());
    // The padding between the fields is arbitrary: beanstalkd 1.4 writes uninitialized memory.
    out.extend([0xA5; 4]);
    out.extend((sample_job.created / unit).to_le_bytes());
    out.extend((sample_job.deadline / unit).to_le_bytes());
    out.extend(sample_job.counts.iter().flat_map(|count| count.to_le_bytes()));
    out.push(sample_job.state);
    out.extend(&[0; 3][..if version == V5 { 0 } else { 3 }]);
    out
}

/// Returns a full record of a ready job, in version 7.
pub fn ready(id: u64, body: &[u8]) -> Vec<u8> {
    full(V7, "default", &sample_job(id, READY, body), body)
}

pub fn later(id: u64, state: u8, body: &[u8]) -> Vec<u8> {
    short(V7, &sample_job(id, state, body))
}

pub fn file(version: u32, records: &[Vec<u8>]) -> Vec<u8> {
    [&version.to_le_bytes()[..], &records.concat()].concat()
}

/// A generator of pseudorandom numbers, which are the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % sides
    }
}

pub fn mixture(version: u32, jobs: u64, random: &mut Random) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    for id in 1..=jobs {
        let body: Vec<u8> = (0..random.roll(90)).map(|_| random.roll(256) as u8).collect();
        let tube = ["default", "a", "mail.out"][random.roll(3)];
        records.push(full(version, tube, &sample_job(id, [1, 2, 3, 4][random.roll(4)], &body), &body));
        for _ in 0..random.roll(3) {
            records.push(short(version, &sample_job(id, [0, 1, 3, 4][random.roll(4)], &body)));
        }
    }
    records
}

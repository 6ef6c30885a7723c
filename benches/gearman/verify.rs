//! Verifies the server's replies.
//!
//! Owns the data of all jobs, each of which contains a number, the results, which are derived from the data, and the
//! ledger of handles by number and of jobs that were taken. A job that arrives twice, a result of another job, or one
//! changed byte ends the benchmark.

/// Bytes of data that contain the number.
const NUMBER: usize = 8;

/// Bytes of data.
pub const LENGTH: usize = 64;

/// Returns the data of a job.
pub fn data(number: usize) -> [u8; LENGTH] {
    let mut data = std::array::from_fn(|place| b'a' + (place % 26) as u8);
    data[..NUMBER].copy_from_slice(&(number as u64).to_le_bytes());
    data
}

/// Returns the number of the job with this data.
pub fn number(bytes: &[u8]) -> Result<usize, String> {
    let number = bytes.first_chunk::<NUMBER>().map_or(0, |number| u64::from_le_bytes(*number) as usize);
    match bytes == data(number) {
        true => Ok(number),
        false => Err(format!("data of {} bytes came back changed", bytes.len())),
    }
}

/// Returns a worker's result for some data.
pub fn result(data: &[u8]) -> Vec<u8> {
    data.iter().rev().copied().collect()
}

/// Returns the unique ID of a job, which is as long as libgearman's.
pub fn unique(number: usize) -> String {
    format!("{:08x}-4c1f-4b6e-9d21-{number:012x}", number.wrapping_mul(0x9e37_79b9) as u32)
}

/// Returns the number after the last colon of a handle.
fn handle_number(handle: &[u8]) -> Option<u64> {
    let digits = handle.rsplit(|byte| *byte == b':').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The jobs of one server, by number.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The number in the handle, once it is known, and whether the job was assigned.
    jobs: Vec<(u64, bool)>,
    taken: usize,
}

impl Ledger {
    /// Returns a new job's number.
    pub fn next(&mut self) -> usize {
        self.jobs.push((0, false));
        self.jobs.len() - 1
    }

    /// Returns the number of jobs so far.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Returns the number of assigned jobs.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Enters the handle of a job.
    pub fn has_handle(&mut self, number: usize, handle: &[u8]) -> Result<(), String> {
        let told = handle_number(handle).ok_or_else(|| format!("a handle is {}", handle.escape_ascii()))?;
        let known = std::mem::replace(&mut self.jobs[number].0, told);
        if known != 0 && known != told {
            return Err(format!("job number {number} has the handles {known} and {told}"));
        }
        if number > 0 && self.jobs[number - 1].0 == told {
            return Err(format!("handle {told} was given twice"));
        }
        Ok(())
    }

    /// Enters the assignment of a job.
    pub fn assigned(&mut self, number: usize, handle: &[u8]) -> Result<(), String> {
        if number >= self.jobs.len() || std::mem::replace(&mut self.jobs[number].1, true) {
            return Err(format!("job number {number} was never submitted, or is given out twice"));
        }
        self.taken += 1;
        self.has_handle(number, handle)
    }
}

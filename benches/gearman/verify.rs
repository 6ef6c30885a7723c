//! Verifies the replies of the server.
//!
//! Owns the numbered data of jobs, the results computed from the data, and the ledger of handles and assigned jobs. A
//! job that is assigned twice, a wrong result or a changed byte aborts the benchmark.

/// The size of the number at the beginning of the data, in bytes.
const NUMBER: usize = 8;

/// The size of the data of a job, in bytes.
pub const LENGTH: usize = 64;

pub fn data(number: usize) -> [u8; LENGTH] {
    let mut data = std::array::from_fn(|place| b'a' + (place % 26) as u8);
    data[..NUMBER].copy_from_slice(&(number as u64).to_le_bytes());
    data
}

/// Returns the number in the data of a job, or an error if the data was changed.
pub fn number(bytes: &[u8]) -> Result<usize, String> {
    let number = bytes.first_chunk::<NUMBER>().map_or(0, |number| u64::from_le_bytes(*number) as usize);
    match bytes == data(number) {
        true => Ok(number),
        false => Err(format!("data of {} bytes was changed", bytes.len())),
    }
}

pub fn result(data: &[u8]) -> Vec<u8> {
    data.iter().rev().copied().collect()
}

/// Returns a unique ID with the format and length of libgearman's IDs.
pub fn unique(number: usize) -> String {
    format!("{:08x}-4c1f-4b6e-9d21-{number:012x}", number.wrapping_mul(0x9e37_79b9) as u32)
}

fn handle_number(handle: &[u8]) -> Option<u64> {
    let digits = handle.rsplit(|byte| *byte == b':').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The jobs of one server, indexed by job number.
#[derive(Debug, Default)]
pub struct Ledger {
    /// For each job, the number in its handle (0 if unknown), and `true` if the job was assigned.
    jobs: Vec<(u64, bool)>,
    taken: usize,
}

impl Ledger {
    pub fn next(&mut self) -> usize {
        self.jobs.push((0, false));
        self.jobs.len() - 1
    }

    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    pub fn taken(&self) -> usize {
        self.taken
    }

    pub fn has_handle(&mut self, number: usize, handle: &[u8]) -> Result<(), String> {
        let new = handle_number(handle).ok_or_else(|| format!("an invalid handle: {}", handle.escape_ascii()))?;
        let known = std::mem::replace(&mut self.jobs[number].0, new);
        if known != 0 && known != new {
            return Err(format!("job number {number} has the handles {known} and {new}"));
        }
        if number > 0 && self.jobs[number - 1].0 == new {
            return Err(format!("handle {new} was assigned twice"));
        }
        Ok(())
    }

    pub fn assigned(&mut self, number: usize, handle: &[u8]) -> Result<(), String> {
        if number >= self.jobs.len() || std::mem::replace(&mut self.jobs[number].1, true) {
            return Err(format!("job number {number} was never submitted, or was assigned twice"));
        }
        self.taken += 1;
        self.has_handle(number, handle)
    }
}

//! Verifies the server's replies.
//!
//! Owns the bodies of all jobs, each of which contains a number, and the ledger of IDs by number and of jobs that were
//! taken. A job that arrives twice, under another ID, or with one changed byte ends the benchmark.

/// Bytes of a body that contain its number.
const NUMBER: usize = 8;

/// Marks a number whose job was handed out.
const TAKEN: u64 = 1 << 63;

/// Puts of one size into the used tube.
#[derive(Debug)]
pub struct Bodies {
    /// A complete put, with a body of number zero.
    template: Vec<u8>,
    /// The offset of the body.
    head: usize,
    length: usize,
    /// The offset of the number in a tag, in digits.
    digits: Option<usize>,
}

/// The placeholder of the job's number in a tag.
const DIGITS: &str = "##########";

impl Bodies {
    /// Bodies of `length` bytes, at least 8, in jobs without urgency.
    pub fn new(length: usize) -> Bodies {
        Bodies::with(length, 0, 0)
    }

    /// The same with a priority and a delay in seconds.
    pub fn with(length: usize, pri: u32, delay: u32) -> Bodies {
        Bodies::of(length, &format!("put {pri} {delay} 600 {length}"))
    }

    /// The same with tags, each of which is preceded by a space; ten `#` in one become the number.
    pub fn tagged(length: usize, tags: &str) -> Bodies {
        Bodies::of(length, &format!("put 0 0 600 {length}{tags}"))
    }

    fn of(length: usize, line: &str) -> Bodies {
        assert!(length >= NUMBER, "a body has room for its number");
        let digits = line.find(DIGITS);
        let mut template = format!("{line}\r\n").into_bytes();
        let head = template.len();
        template.extend([0; NUMBER]);
        template.extend((NUMBER..length).map(|place| b'a' + (place % 26) as u8));
        template.extend(b"\r\n");
        Bodies { template, head, length, digits }
    }

    /// Returns the size of a put in bytes.
    pub fn put_length(&self) -> usize {
        self.template.len()
    }

    /// Appends a put of job number `number`.
    pub fn put(&self, number: usize, out: &mut super::wire::Out) {
        let at = out.bytes.len() + self.head;
        out.bytes.extend_from_slice(&self.template);
        out.bytes[at..at + NUMBER].copy_from_slice(&(number as u64).to_le_bytes());
        if let Some(digits) = self.digits {
            let (mut left, first) = (number, at - self.head + digits);
            for place in (first..first + DIGITS.len()).rev() {
                out.bytes[place] = b'0' + (left % 10) as u8;
                left /= 10;
            }
        }
        out.replies += 1;
    }

    /// Returns the number in a body, if the rest of it is unchanged.
    pub fn number(&self, body: &[u8]) -> Result<usize, String> {
        let filler = &self.template[self.head + NUMBER..self.head + self.length];
        match body.split_first_chunk::<NUMBER>() {
            Some((number, rest)) if rest == filler => Ok(u64::from_le_bytes(*number) as usize),
            _ => Err(format!("a body of {} bytes came back changed", body.len())),
        }
    }
}

/// The jobs of one server, by number.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The ID, once it is known, and [`TAKEN`].
    ids: Vec<u64>,
    /// Jobs taken.
    taken: usize,
    /// IDs mean nothing; the replies do not come from a queue.
    echo: bool,
}

impl Ledger {
    /// Creates a ledger for a server that only echoes.
    pub fn of_echo() -> Ledger {
        Ledger { echo: true, ..Ledger::default() }
    }

    /// Reserves memory for this many jobs, so that growing the ledger does not count as a slow reply.
    pub fn expect(&mut self, count: usize) {
        self.ids.reserve_exact(count);
    }

    /// Returns a new job's number.
    pub fn next(&mut self) -> usize {
        self.ids.push(0);
        self.ids.len() - 1
    }

    /// Returns the number of jobs so far.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns the ID of a job, once the server has reported it.
    pub fn id(&self, number: usize) -> u64 {
        self.ids[number] & !TAKEN
    }

    /// Returns the number of jobs that were handed out.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Enters the ID of a job.
    pub fn inserted(&mut self, number: usize, id: u64) -> Result<(), String> {
        let entry = &mut self.ids[number];
        let known = *entry & !TAKEN;
        if id == 0 || (known != 0 && known != id) {
            return Err(format!("job number {number} was given out as {known} and inserted as {id}"));
        }
        *entry |= id;
        // A cheap check for an ID that was assigned twice; taking all jobs finds the rest.
        if !self.echo && number > 0 && self.ids[number - 1] & !TAKEN == id {
            return Err(format!("id {id} was given twice"));
        }
        Ok(())
    }

    /// Enters that the server has handed out the job under this ID.
    pub fn reserved(&mut self, number: usize, id: u64) -> Result<(), String> {
        let entry = self.ids.get_mut(number).ok_or_else(|| format!("job number {number} was never put"))?;
        let known = *entry & !TAKEN;
        if *entry & TAKEN != 0 {
            return Err(format!("job number {number} was given out twice"));
        }
        if known != 0 && known != id {
            return Err(format!("job number {number} was inserted as {known} and given out as {id}"));
        }
        *entry = id | TAKEN;
        self.taken += 1;
        Ok(())
    }
}

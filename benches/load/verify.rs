//! Verifies the replies of the server.
//!
//! Owns the numbered bodies of jobs, and the ledger of IDs and delivered jobs. A job that is delivered twice, a wrong
//! ID or a changed byte aborts the benchmark.

/// The size of the number at the beginning of a body, in bytes.
const NUMBER: usize = 8;

/// Marks a job as delivered.
const TAKEN: u64 = 1 << 63;

/// Encodes puts. All bodies have the same size.
#[derive(Debug)]
pub struct Bodies {
    /// A complete put whose body contains the number 0.
    template: Vec<u8>,
    /// The offset of the body in the template.
    head: usize,
    length: usize,
    /// The offset of the tags' placeholder in the template, if any.
    digits: Option<usize>,
}

/// The placeholder that the job's number replaces in a tag.
const DIGITS: &str = "##########";

impl Bodies {
    /// Creates bodies of `length` bytes, at least 8, for jobs with priority 0.
    pub fn new(length: usize) -> Bodies {
        Bodies::with(length, 0, 0)
    }

    /// Like [`Bodies::new`], with a priority and a delay in seconds.
    pub fn with(length: usize, pri: u32, delay: u32) -> Bodies {
        Bodies::of(length, &format!("put {pri} {delay} 600 {length}"))
    }

    /// Like [`Bodies::new`], with tags. `tags` contains a space before each tag. The number of the job replaces ten `#`
    /// characters in `tags`.
    pub fn tagged(length: usize, tags: &str) -> Bodies {
        Bodies::of(length, &format!("put 0 0 600 {length}{tags}"))
    }

    fn of(length: usize, line: &str) -> Bodies {
        assert!(length >= NUMBER, "a body must have space for its number");
        let digits = line.find(DIGITS);
        let mut template = format!("{line}\r\n").into_bytes();
        let head = template.len();
        template.extend([0; NUMBER]);
        template.extend((NUMBER..length).map(|place| b'a' + (place % 26) as u8));
        template.extend(b"\r\n");
        Bodies { template, head, length, digits }
    }

    pub fn put_length(&self) -> usize {
        self.template.len()
    }

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

    /// Returns the number in a body, or an error if the body was changed.
    pub fn number(&self, body: &[u8]) -> Result<usize, String> {
        let filler = &self.template[self.head + NUMBER..self.head + self.length];
        match body.split_first_chunk::<NUMBER>() {
            Some((number, rest)) if rest == filler => Ok(u64::from_le_bytes(*number) as usize),
            _ => Err(format!("a body of {} bytes was changed", body.len())),
        }
    }
}

/// The jobs of one server, indexed by job number.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The ID of each job, or 0 if the ID is unknown. [`TAKEN`] is added when the job is delivered.
    ids: Vec<u64>,
    taken: usize,
    /// `true` for the echo server, whose replies contain meaningless IDs.
    echo: bool,
}

impl Ledger {
    pub fn of_echo() -> Ledger {
        Ledger { echo: true, ..Ledger::default() }
    }

    /// Reserves memory for `count` jobs, because growing the ledger during a measurement would delay requests.
    pub fn expect(&mut self, count: usize) {
        self.ids.reserve_exact(count);
    }

    pub fn next(&mut self) -> usize {
        self.ids.push(0);
        self.ids.len() - 1
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns the ID of a job, or 0 if the ID is unknown.
    pub fn id(&self, number: usize) -> u64 {
        self.ids[number] & !TAKEN
    }

    pub fn taken(&self) -> usize {
        self.taken
    }

    pub fn inserted(&mut self, number: usize, id: u64) -> Result<(), String> {
        let entry = &mut self.ids[number];
        let known = *entry & !TAKEN;
        if id == 0 || (known != 0 && known != id) {
            return Err(format!("job number {number} was reserved as {known} and inserted as {id}"));
        }
        *entry |= id;
        // Detects an ID that the server has assigned twice in succession. Draining the queue detects other duplicates.
        if !self.echo && number > 0 && self.ids[number - 1] & !TAKEN == id {
            return Err(format!("ID {id} was assigned twice"));
        }
        Ok(())
    }

    pub fn reserved(&mut self, number: usize, id: u64) -> Result<(), String> {
        let entry = self.ids.get_mut(number).ok_or_else(|| format!("job number {number} was never put"))?;
        let known = *entry & !TAKEN;
        if *entry & TAKEN != 0 {
            return Err(format!("job number {number} was reserved twice"));
        }
        if known != 0 && known != id {
            return Err(format!("job number {number} was inserted as {known} and reserved as {id}"));
        }
        *entry = id | TAKEN;
        self.taken += 1;
        Ok(())
    }
}

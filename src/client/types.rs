//! What the client takes and returns, as plain data.
//!
//! Owns the checks that keep an argument from becoming another argument or command. Must not touch a connection.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// A reply as it came: its first line without CR LF, and the bytes behind it if it announces some.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Reply {
    /// What came before the CR LF, for example `INSERTED 7`.
    pub line: String,
    /// For example the bytes of the job that `FOUND 7 5` announces; empty if it announces none.
    pub body: Vec<u8>,
}

impl Reply {
    /// The number behind this word, if the line begins with it.
    pub fn number(&self, word: &str) -> Option<u64> {
        let rest = self.line.strip_prefix(word)?.strip_prefix(' ')?;
        rest.split(' ').next()?.parse().ok()
    }
}

/// Why a command was not carried out.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The connection failed; what was asked may or may not have been done.
    Io(io::Error),
    /// The server said something else than what was hoped for, for example `NOT_FOUND`.
    Refused(String),
    /// An argument that the protocol cannot express, for example a tube name with a line break. Nothing was sent.
    Invalid(String),
}

impl fmt::Display for ClientError {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            ClientError::Io(error) => error.fmt(formatter),
            ClientError::Refused(reply) => write!(formatter, "the server answered {reply}"),
            ClientError::Invalid(argument) => write!(formatter, "invalid argument: {argument:?}"),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> ClientError {
        ClientError::Io(error)
    }
}

/// A job in this client's hands, or one that it looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ReservedJob {
    /// The id that the server gave it at `put`.
    pub id: u64,
    /// The body, byte for byte, without the CR LF behind it.
    pub body: Vec<u8>,
}

/// What a job may have that beanstalkd does not know; the server must offer the extensions. Names follow the rules of
/// names of tubes. beanpole-beanstalk(7) says what each means.
///
/// ```
/// let tags = beanpole::PutTags::default().with(|tags| {
///     tags.unique = Some(("order-17".to_owned(), 60));
///     tags.tries = Some((5, 2));
/// });
/// assert_eq!(tags.to_string(), " idp:order-17:60 try:5:2");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PutTags {
    /// No other job with this key is put while it lives, and so many seconds longer.
    pub unique: Option<(String, u32)>,
    /// It is put into this tube, instead of the used one.
    pub tube: Option<String>,
    /// It is buried after so many lost or released reservations; each lost one is followed by a delay that begins with
    /// so many seconds and doubles.
    pub tries: Option<(u8, u32)>,
    /// It is deleted after so many seconds if it is ready or delayed then.
    pub ttl: Option<u32>,
    /// Of the jobs with this key, so many may be reserved at a time.
    pub concurrency: Option<(String, u32)>,
    /// It is a member of these groups.
    pub groups: Vec<String>,
    /// It recurs at the times of cron's five fields with blanks between them, in UTC, or of a name such as `@daily`.
    /// Its key is the name of the schedule.
    pub cron: Option<String>,
    /// It recurs after so many seconds each. Its key is the name of the schedule.
    pub every: Option<u32>,
    /// It is held until so many members of each of these groups have ended; `None`: all that there are.
    pub after: Vec<(String, Option<u32>)>,
}

impl PutTags {
    /// Returns these tags after a change to some of them.
    pub fn with(mut self, change: impl FnOnce(&mut PutTags)) -> PutTags {
        change(&mut self);
        self
    }

    /// Checks that no name or key would be read as another tag or command.
    pub(super) fn check(&self) -> Result<()> {
        let keys = [&self.unique, &self.concurrency].into_iter().flatten().map(|(key, _)| key);
        let groups = self.groups.iter().chain(self.after.iter().map(|(group, _)| group));
        let is_plain = |cron: &String| cron.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' || byte == b' ');
        if let Some(cron) = self.cron.as_ref().filter(|cron| !is_plain(cron)) {
            return Err(ClientError::Invalid(cron.clone()));
        }
        keys.chain(&self.tube).chain(groups).try_for_each(|name| checked(name).map(drop))
    }
}

impl fmt::Display for PutTags {
    /// As they stand behind the numbers of a put, each with a space before it.
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let PutTags { unique, tube, tries, ttl, concurrency, groups, cron, every, after } = self;
        if let Some((key, seconds)) = unique {
            write!(formatter, " idp:{key}:{seconds}")?;
        }
        if let Some(tube) = tube {
            write!(formatter, " tub:{tube}")?;
        }
        if let Some((count, seconds)) = tries {
            write!(formatter, " try:{count}:{seconds}")?;
        }
        if let Some(seconds) = ttl {
            write!(formatter, " ttl:{seconds}")?;
        }
        if let Some((key, most)) = concurrency {
            write!(formatter, " con:{key}:{most}")?;
        }
        if let Some(fields) = cron {
            write!(formatter, " cron:\"{fields}\"")?;
        }
        if let Some(seconds) = every {
            write!(formatter, " every:{seconds}")?;
        }
        for group in groups {
            write!(formatter, " grp:{group}")?;
        }
        for (group, count) in after {
            match count {
                None => write!(formatter, " aft:{group}")?,
                Some(count) => write!(formatter, " aft:{group}:{count}")?,
            }
        }
        Ok(())
    }
}

/// What became of a put with tags.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PutResult {
    /// The ID of the new job or schedule.
    New(u64),
    /// The ID of the schedule, which has replaced one with the same name.
    Replaced(u64),
    /// A job with the key is there, or was there a short time ago.
    Duplicate {
        /// The number of the job that is there, or was.
        id: u64,
        /// `READY`, `RESERVED`, `DELAYED`, `BURIED` or `DELETED`.
        state: String,
    },
}

impl PutResult {
    /// The ID of the new job, or of the earlier one with the same key.
    pub fn id(&self) -> u64 {
        match self {
            PutResult::New(id) | PutResult::Replaced(id) | PutResult::Duplicate { id, .. } => *id,
        }
    }
}

/// Files of PEM that a client needs to reach a server with TLS.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ClientTlsFiles {
    /// The authorities that may have signed the server's certificate; those of the system if there are none.
    pub authority: Option<PathBuf>,
    /// What the client shows of itself, if the server wants that: a certificate, with those up to its authority.
    pub certificate: Option<PathBuf>,
    /// The key of that; in the same file if there is none.
    pub key: Option<PathBuf>,
}

/// How a wait for a job has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WaitResult {
    /// The job is gone: done, or deleted.
    Deleted,
    /// It is set aside, and may be kicked.
    Buried,
    /// Neither has happened in the given time.
    TimedOut,
}

type Result<T> = std::result::Result<T, ClientError>;

/// Returns the name unless it is empty or has a control character, which would end the command, or a space, which would
/// begin another argument. A name in quotes may have spaces, and ends with its first quote that is not escaped.
pub(super) fn checked(name: &str) -> Result<&str> {
    let mut rest = name.strip_prefix('"').map(str::bytes);
    let ends_with_quote = rest.as_mut().is_none_or(|rest| {
        while let Some(byte) = rest.next() {
            match byte {
                b'"' => return rest.len() == 0,
                b'\\' => drop(rest.next()),
                _ => {}
            }
        }
        false
    });
    let is_bad = |byte: u8| byte.is_ascii_control() || byte == b' ' && rest.is_none();
    if name.is_empty() || !ends_with_quote || name.bytes().any(is_bad) {
        return Err(ClientError::Invalid(name.to_owned()));
    }
    Ok(name)
}

/// Fails if the command has a line break, behind which another command would begin.
pub(super) fn one_line(command: &[u8]) -> Result<()> {
    if command.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
        return Err(ClientError::Invalid(String::from_utf8_lossy(command).into_owned()));
    }
    Ok(())
}

//! Arguments and results of the client. The checks prevent an argument from being interpreted as another one.

use std::{fmt, io, path::PathBuf};

/// A reply, which consists of a line and, for some commands, a body.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Reply {
    /// The first line without CR LF, for example `INSERTED 7`.
    pub line: String,
    /// The body, for example the job's body in the reply `FOUND 7 5`. Empty if the reply has no body.
    pub body: Vec<u8>,
}

impl Reply {
    /// Returns the number after `word`, if the line begins with `word`.
    pub fn number(&self, word: &str) -> Option<u64> {
        self.line.strip_prefix(word)?.strip_prefix(' ')?.split(' ').next()?.parse().ok()
    }
}

/// The reason why a command failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The connection failed, or a reply was malformed. The server may or may not have executed the command.
    Io(io::Error),
    /// The server sent an unexpected reply, for example `NOT_FOUND`.
    Refused(String),
    /// The protocol cannot express an argument, for example a tube name with a line break. Nothing was sent.
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

/// A job that this client has reserved or peeked at.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ReservedJob {
    /// The ID that [`Client::put`](super::Client::put) returned.
    pub id: u64,
    /// The body, without the CR LF after it.
    pub body: Vec<u8>,
}

/// Tags of a job, which are an extension of the beanstalk protocol. Names and keys follow the rules for tube names.
/// Times are in seconds. beanpole-beanstalk(7) describes each tag.
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
    /// A deduplication key and a number of seconds. While this job exists, and for this number of seconds after it has
    /// ended, the tube accepts no other job with the same key.
    pub unique: Option<(String, u32)>,
    /// The tube into which the job is put, instead of the used tube.
    pub tube: Option<String>,
    /// The number of tries after which the job is buried, and the delay in seconds after the first failed try. The
    /// delay doubles after each later failed try.
    pub tries: Option<(u8, u32)>,
    /// The number of seconds after which the job is deleted if it is ready, delayed or held.
    pub ttl: Option<u32>,
    /// A key, and the maximum number of jobs with this key that may be reserved at the same time.
    pub concurrency: Option<(String, u32)>,
    /// The groups of which the job is a member.
    pub groups: Vec<String>,
    /// The times at which the job recurs, in UTC: the five fields of cron, separated by spaces, or a name such as
    /// `@daily`. `unique` must contain the name of the schedule.
    pub cron: Option<String>,
    /// The number of seconds between two recurrences of the job. `unique` must contain the name of the schedule.
    pub every: Option<u32>,
    /// The groups for which the job waits, each with the number of members that must end first; `None` means all.
    pub after: Vec<(String, Option<u32>)>,
}

impl PutTags {
    /// Applies `change` to the tags, and returns the tags.
    pub fn with(mut self, change: impl FnOnce(&mut PutTags)) -> PutTags {
        change(&mut self);
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        let keys = [&self.unique, &self.concurrency].into_iter().flatten().map(|(key, _)| key);
        let groups = self.groups.iter().chain(self.after.iter().map(|(group, _)| group));
        let is_plain = |cron: &String| cron.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' || byte == b' ');
        let invalid = self.cron.as_ref().filter(|cron| !is_plain(cron));
        invalid.map_or(Ok(()), |cron| Err(ClientError::Invalid(cron.clone())))?;
        keys.chain(&self.tube).chain(groups).try_for_each(|name| checked(name).map(drop))
    }
}

impl fmt::Display for PutTags {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let PutTags { unique, tube, tries, ttl, concurrency, groups, cron, every, after } = self;
        let tags = [
            unique.as_ref().map(|(key, seconds)| format!("idp:{key}:{seconds}")),
            tube.as_ref().map(|tube| format!("tub:{tube}")),
            tries.map(|(count, seconds)| format!("try:{count}:{seconds}")),
            ttl.map(|seconds| format!("ttl:{seconds}")),
            concurrency.as_ref().map(|(key, most)| format!("con:{key}:{most}")),
            cron.as_ref().map(|fields| format!("cron:\"{fields}\"")),
            every.map(|seconds| format!("every:{seconds}")),
        ];
        let groups = groups.iter().map(|group| format!("grp:{group}"));
        let after = after.iter().map(|(group, count)| match count {
            None => format!("aft:{group}"),
            Some(count) => format!("aft:{group}:{count}"),
        });
        tags.into_iter().flatten().chain(groups).chain(after).try_for_each(|tag| write!(formatter, " {tag}"))
    }
}

/// The result of a put with tags.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PutResult {
    /// The ID of the new job or schedule.
    New(u64),
    /// The ID of an existing schedule with the same name, which the put has updated.
    Replaced(u64),
    /// A job with the same key exists, or ended recently.
    Duplicate {
        /// The ID of the job with the same key.
        id: u64,
        /// The state of job `id`: `READY`, `RESERVED`, `DELAYED` (delayed or held), `BURIED` or `DELETED`.
        state: String,
    },
}

impl PutResult {
    /// Returns the ID of the new job or schedule, or of the existing job or schedule with the same key.
    pub fn id(&self) -> u64 {
        match self {
            PutResult::New(id) | PutResult::Replaced(id) | PutResult::Duplicate { id, .. } => *id,
        }
    }
}

/// The PEM files that a client needs for TLS.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ClientTlsFiles {
    /// The file with the authorities that may sign the server's certificate. `None` means the system's authorities.
    pub authority: Option<PathBuf>,
    /// The file with the client's certificate chain, if the server requires a certificate.
    pub certificate: Option<PathBuf>,
    /// The file with the private key. `None` means that the certificate file contains the key.
    pub key: Option<PathBuf>,
}

/// The result of a wait for a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WaitResult {
    /// The job was completed, was deleted, or expired.
    Deleted,
    /// The job was buried, and can be kicked.
    Buried,
    /// The time limit expired before the job was deleted or buried.
    TimedOut,
}

pub(super) type Result<T> = std::result::Result<T, ClientError>;

/// Returns `name` if it is a single argument: not empty, without control characters, and without spaces outside quotes.
/// A quoted name ends with its first unescaped quote.
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
    let is_valid = !name.is_empty() && ends_with_quote && !name.bytes().any(is_bad);
    is_valid.then_some(name).ok_or_else(|| ClientError::Invalid(name.to_owned()))
}

/// Rejects a line break, which would begin a second command.
pub(super) fn one_line(command: &[u8]) -> Result<()> {
    let is_line = !command.iter().any(|byte| matches!(byte, b'\r' | b'\n'));
    is_line.then_some(()).ok_or_else(|| ClientError::Invalid(String::from_utf8_lossy(command).into_owned()))
}

//! Parsed Workq requests, the table of commands, and the parsers. The first failed check determines the error, so the
//! checks run in the original server's order: flag syntax, command, argument count, size, data, flag count, fields.

use super::fields::{self, find};
use super::reply::{self, Words};
use super::Uuid;
use crate::access::{Denied, Need};
use crate::engine::{Body, JobPage, NamePage, Priority, Span, State, WantedTubes};
use crate::protocol::guard::Subject;
use crate::protocol::{Context, Flow, Output, ProtocolCommand};

#[derive(Debug)]
pub enum Command {
    Add(Box<Submission>),
    Run { id: Uuid, name: Box<[u8]>, ttr: Span, pri: Priority, wait: Span },
    // The second field is the maximum wait.
    Result(Uuid, Span),
    Lease(WantedTubes, Span),
    // `complete` if `true`, and `fail` if `false`.
    Complete(Uuid, bool),
    Delete(Uuid),
    InspectServer,
    InspectQueues(Box<NamePage>),
    InspectQueue(Box<[u8]>),
    InspectJobs(Box<[u8]>, Box<JobPage>),
    InspectJob(Uuid),
    Refused(Words),
    // The start of the next command is unknown, so the connection closes after the reply, if any.
    Close(Option<Words>),
}

#[derive(Debug)]
pub struct Submission {
    pub id: Uuid,
    pub name: Box<[u8]>,
    pub ttr: Span,
    /// After this time, the job or its outcome is deleted.
    pub ttl: Span,
    /// Nanoseconds since the Unix epoch; `None` for `add`.
    pub time: Option<i128>,
    /// The priority in the engine: jobs with small numbers are served first.
    pub pri: Priority,
    /// The maximum number of leases. 0 means unlimited.
    pub max_attempts: u8,
    /// A job fails permanently after this many failures. 0 means 1.
    pub max_fails: u8,
}

#[derive(Debug)]
pub struct Request {
    pub command: Command,
    /// The payload or result; can be empty.
    pub data: Body,
}

impl ProtocolCommand for Request {
    fn subject(&self, context: &Context) -> Subject<'_> {
        match &self.command {
            Command::Add(submission) => Subject::Tube(&submission.name),
            Command::Run { name, .. } | Command::InspectQueue(name) => Subject::Tube(name),
            Command::InspectJobs(name, _) => Subject::Tube(name),
            Command::Lease(names, _) => Subject::Tubes(&names.names),
            Command::Result(id, _) | Command::Complete(id, _) | Command::Delete(id) | Command::InspectJob(id) => {
                Subject::Job(find(context.engine, id))
            }
            _ => Subject::Nothing,
        }
    }

    fn deny(&self, denied: Denied, out: &mut Output) -> Flow {
        reply::words(out, if denied == Denied::Unknown { reply::UNAUTHORIZED } else { reply::FORBIDDEN });
        Flow::denied(denied)
    }

    fn is_logged(&self) -> bool {
        matches!(self.command, Command::Add(_) | Command::Complete(..) | Command::Delete(_))
    }

    fn job_body(&self) -> Option<&Body> {
        matches!(self.command, Command::Add(_)).then_some(&self.data)
    }

    fn footprint(&self) -> u64 {
        (size_of::<Request>() + self.command.heap_size() + self.data.len()) as u64
    }
}

impl Command {
    pub fn heap_size(&self) -> usize {
        match self {
            Command::Add(submission) => size_of::<Submission>() + submission.name.len(),
            Command::Lease(names, _) => names.names.len(),
            Command::Run { name, .. } | Command::InspectQueue(name) => name.len(),
            Command::InspectJobs(name, page) => size_of::<JobPage>() + name.len() + page.footprint() as usize,
            Command::InspectQueues(page) => size_of::<NamePage>() + page.footprint() as usize,
            _ => 0,
        }
    }
}

pub struct CommandRow {
    pub name: CommandName,
    pub need: Need,
    pub word: &'static str,
    /// The second word of the name, or empty. Not an argument.
    pub object: &'static str,
    pub arguments: &'static str,
    min_arguments: usize,
    max_arguments: usize,
    flags: usize,
    /// The error for an invalid size (the last argument) or a missing CR LF. `None` if the command has no data.
    pub data: Option<Words>,
    parse: fn(&Line) -> Result<Command, Words>,
}

/// The maximum number of stored arguments. `lease` can have more, which would need 16 times the memory of the line.
const STORED_ARGUMENTS: usize = 7;
/// The maximum number of flags in a line, valid or not.
const MAX_FLAGS: usize = 64;

#[derive(Debug, Default)]
pub struct Line<'a> {
    pub arguments: Vec<&'a [u8]>,
    count: usize,
    text: &'a [u8],
    /// Keys without the hyphen, and values.
    pub flags: Vec<(&'a [u8], &'a [u8])>,
}

const fn row(
    name: CommandName,
    need: Need,
    (word, object): (&'static str, &'static str),
    arguments: &'static str,
    (min_arguments, max_arguments, flags): (usize, usize, usize),
    data: Option<Words>,
    parse: fn(&Line) -> Result<Command, Words>,
) -> CommandRow {
    CommandRow { name, need, word, object, arguments, min_arguments, max_arguments, flags, data, parse }
}

const PAYLOAD: Option<Words> = Some(reply::INVALID_PAYLOAD);
const RESULT: Option<Words> = Some(reply::INVALID_RESULT);

table! {
    enum CommandName = 0;
    /// As in the original server, `complete` (unlike `fail`) reports an invalid result size as an invalid payload size.
    static COMMANDS: [CommandRow] = row;
    Add(Need::PUT_NAMED, ("add", ""), "<id> <name> <ttr> <ttl> <payload-size> [-priority=] [-max-attempts=] [-max-fails=]", (5, 5, 3), PAYLOAD, |line| add(line, false)),
    Schedule(Need::PUT_NAMED, ("schedule", ""), "<id> <name> <ttr> <ttl> <time> <payload-size> [-priority=] [-max-attempts=] [-max-fails=]", (6, 6, 3), PAYLOAD, |line| add(line, true)),
    Run(Need::PUT_NAMED, ("run", ""), "<id> <name> <ttr> <wait-timeout> <payload-size> [-priority=]", (5, 5, 1), PAYLOAD, run),
    Result(Need::FOLLOW_JOB, ("result", ""), "<id> <wait-timeout>", (2, 2, 0), None, |line| Ok(Command::Result(line.id()?, fields::wait(line.argument(1))?))),
    Lease(Need::TAKE_NAMED, ("lease", ""), "<name>... <wait-timeout>", (2, usize::MAX, 0), None, lease),
    Complete(Need::TAKE_JOB, ("complete", ""), "<id> <result-size>", (2, 2, 0), PAYLOAD, |line| Ok(Command::Complete(line.id()?, true))),
    Fail(Need::TAKE_JOB, ("fail", ""), "<id> <result-size>", (2, 2, 0), RESULT, |line| Ok(Command::Complete(line.id()?, false))),
    Delete(Need::ADMIN_JOB, ("delete", ""), "<id>", (1, 1, 0), None, |line| line.id().map(Command::Delete)),
    InspectServer(Need::LOOK_ANY, ("inspect", "server"), "", (0, 0, 0), None, |_| Ok(Command::InspectServer)),
    InspectQueues(Need::LOOK_ANY, ("inspect", "queues"), "<cursor-offset> <limit>", (2, 2, 0), None, |line| Ok(Command::InspectQueues(NamePage::new(fields::offset(line.argument(0))? as usize, fields::limit(line.argument(1))?).into()))),
    InspectQueue(Need::LOOK_NAMED, ("inspect", "queue"), "<name>", (1, 1, 0), None, |line| Ok(Command::InspectQueue(fields::name(line.argument(0))?.into()))),
    InspectJobs(Need::LOOK_NAMED, ("inspect", "jobs"), "<name> <cursor-offset> <limit>", (3, 3, 0), None, |line| inspect_jobs(line, State::Ready)),
    InspectScheduledJobs(Need::LOOK_NAMED, ("inspect", "scheduled-jobs"), "<name> <cursor-offset> <limit>", (3, 3, 0), None, |line| inspect_jobs(line, State::Delayed)),
    // UUIDs of any version are accepted, unlike in other commands.
    InspectJob(Need::LOOK_JOB, ("inspect", "job"), "<id>", (1, 1, 0), None, |line| fields::id(line.argument(0)).map(Command::InspectJob)),
}

impl CommandRow {
    pub fn parse(&self, line: &Line) -> Result<Command, Words> {
        ensure!(line.flags.len() <= self.flags, reply::INVALID_ARGS);
        (self.parse)(line)
    }
}

/// `line` has no CR LF. Checks the number of arguments, but not the command's limit on flags.
pub fn read(line: &[u8]) -> Result<(&'static CommandRow, Line<'_>), Words> {
    // Spaces separate words, but cannot start a line.
    let (word, text) = line.split_at(line.iter().position(|byte| *byte == b' ').unwrap_or(line.len()));
    let mut taken = Line { text, ..Line::default() };
    for word in words(text) {
        match flag(word) {
            None => {
                taken.count += 1;
                if taken.count <= STORED_ARGUMENTS {
                    taken.arguments.push(word);
                }
            }
            Some(_) if taken.flags.len() == MAX_FLAGS => return Err(reply::INVALID_FLAGS),
            Some(flag) => taken.flags.push(flag),
        }
    }
    // As in the original server, a first word in the form of a flag is checked like a flag.
    let is_incomplete = |(key, value): (&[u8], &[u8])| key.is_empty() || value.is_empty();
    // Quadratic time is acceptable for at most `MAX_FLAGS` flags.
    let flags = &taken.flags;
    let is_repeated = |(index, (key, _)): (usize, &(&[u8], _))| flags.iter().take(index).any(|(other, _)| other == key);
    if flag(word).is_some_and(is_incomplete)
        || flags.iter().copied().any(is_incomplete)
        || flags.iter().enumerate().any(is_repeated)
    {
        return Err(reply::INVALID_FLAGS);
    }
    let mut rows = COMMANDS.iter().filter(|row| row.word.as_bytes() == word).peekable();
    let first = *rows.peek().ok_or(reply::UNKNOWN_COMMAND)?;
    let row = match first.object {
        "" => first,
        _ if taken.arguments.is_empty() => return Err(reply::INVALID_ARGS),
        _ => {
            let object = taken.arguments.remove(0);
            taken.count -= 1;
            rows.find(|row| row.object.as_bytes() == object).ok_or(reply::UNKNOWN_COMMAND)?
        }
    };
    (row.min_arguments..=row.max_arguments).contains(&taken.count).then_some((row, taken)).ok_or(reply::INVALID_ARGS)
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b' ').filter(|word| !word.is_empty())
}

/// Splits `-key=value`. A second equals sign ends the value. Returns `None` for other words.
fn flag(word: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = word.strip_prefix(b"-")?.split(|byte| *byte == b'=');
    Some((parts.next()?, parts.next()?))
}

impl<'a> Line<'a> {
    fn argument(&self, index: usize) -> &'a [u8] {
        self.arguments.get(index).copied().unwrap_or_default()
    }

    fn take<const N: usize>(&self) -> [&'a [u8]; N] {
        std::array::from_fn(|index| self.argument(index))
    }

    fn id(&self) -> Result<Uuid, Words> {
        fields::id(self.argument(0)).and_then(fields::id_version)
    }

    fn flag(&self, key: &str) -> Option<&'a [u8]> {
        self.flags.iter().find(|(found, _)| *found == key.as_bytes()).map(|(_, value)| *value)
    }
}

fn add(line: &Line, scheduled: bool) -> Result<Command, Words> {
    // The fifth argument is the time for `schedule`, but the size for `add`.
    let [id, name, ttr, ttl, time] = line.take();
    let (id, ttr, ttl) =
        (fields::id(id)?, fields::time(ttr, reply::INVALID_TTR)?, fields::time(ttl, reply::INVALID_TTL)?);
    let time = if scheduled { Some(fields::parse_time(time).ok_or(reply::INVALID_TIME)?) } else { None };
    let max_attempts = fields::count(line.flag("max-attempts"), reply::INVALID_MAX_ATTEMPTS)?;
    let max_fails = fields::count(line.flag("max-fails"), reply::INVALID_MAX_FAILS)?;
    let pri = fields::priority(line.flag("priority"))?;
    fields::new_id_version(id)?;
    let name = fields::name(name)?.into();
    let (ttr, ttl) = (fields::ttr_range(ttr)?, fields::ttl_range(ttl)?);
    Ok(Command::Add(Box::new(Submission { id, name, ttr, ttl, time, pri, max_attempts, max_fails })))
}

fn run(line: &Line) -> Result<Command, Words> {
    let [id, name, ttr, wait, _size] = line.take();
    let (id, ttr) = (fields::id(id)?, fields::time(ttr, reply::INVALID_TTR)?);
    let pri = fields::priority(line.flag("priority"))?;
    let wait = fields::wait(wait)?;
    fields::new_id_version(id)?;
    Ok(Command::Run { id, name: fields::name(name)?.into(), ttr: fields::ttr_range(ttr)?, pri, wait })
}

fn lease(line: &Line) -> Result<Command, Words> {
    let arguments = || words(line.text).filter(|word| flag(word).is_none());
    let wait = fields::wait(arguments().last().unwrap_or_default())?;
    // A line can contain half a million names, so the names are stored in one string.
    let mut names = Vec::new();
    names.try_reserve_exact(line.text.len()).map_err(|_| reply::OUT_OF_MEMORY)?;
    for word in arguments().take(line.count - 1) {
        if !names.is_empty() {
            names.push(b' ');
        }
        names.extend_from_slice(fields::name(word)?);
    }
    Ok(Command::Lease(WantedTubes::new(names.into()), wait))
}

fn inspect_jobs(line: &Line, state: State) -> Result<Command, Words> {
    let [name, offset, limit] = line.take();
    let name = fields::name(name)?.into();
    Ok(Command::InspectJobs(name, JobPage::new(state, fields::offset(offset)? as usize, fields::limit(limit)?).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(line: &str) -> Result<CommandName, &'static str> {
        read(line.as_bytes()).map(|(row, _)| row.name).map_err(|error| std::str::from_utf8(error).unwrap().trim_end())
    }

    #[test]
    fn numbers_of_arguments_agree_with_the_table() {
        for row in &COMMANDS {
            let named = row.arguments.matches('<').count();
            assert!((row.min_arguments..=row.max_arguments).contains(&named), "{:?}", row.name);
            assert_eq!(row.arguments.contains("-size>"), row.data.is_some(), "{:?}", row.name);
            assert_eq!(row.arguments.matches('[').count(), row.flags, "{:?}", row.name);
        }
    }

    #[test]
    fn only_the_first_arguments_are_stored() {
        let max_arguments =
            COMMANDS.iter().filter(|row| row.max_arguments != usize::MAX).map(|row| row.max_arguments).max();
        assert!(max_arguments < Some(STORED_ARGUMENTS));
        let names = "q ".repeat(500_000);
        let line = format!("lease -a=b {names} 10");
        let (row, line) = read(line.as_bytes()).expect("a command");
        assert_eq!((line.count, line.arguments.len(), line.arguments.capacity()), (500_001, STORED_ARGUMENTS, 8));
        let Ok(Command::Lease(found, wait)) = (row.parse)(&line) else { panic!("no lease") };
        assert_eq!((&*found.names, wait), (names.trim_end().as_bytes(), crate::engine::Span::from_millis(10)));
        let flags = |count: usize| (0..count).map(|flag| format!(" -{flag}=x")).collect::<String>();
        assert_eq!(name(&format!("delete x{}", flags(MAX_FLAGS))), Ok(CommandName::Delete));
        assert!(name(&format!("delete x{}", flags(MAX_FLAGS + 1))).is_err());
    }

    #[test]
    fn flags_are_separated_from_arguments() {
        let line = b"add  -priority=4  a b -x -8 -max-fails=3=9 c ";
        let (row, line) = read(line).expect("a command");
        assert_eq!(row.name, CommandName::Add);
        assert_eq!(line.arguments, [b"a".as_slice(), b"b", b"-x", b"-8", b"c"]);
        assert_eq!(line.flags, [(b"priority".as_slice(), b"4".as_slice()), (b"max-fails", b"3")]);
        assert_eq!(line.flag("max-fails"), Some(b"3".as_slice()));
        assert_eq!(line.flag("Max-Fails"), None);
    }

    #[test]
    fn the_first_failed_check_decides_the_error() {
        const FLAGS: &str = "-CLIENT-ERROR Invalid command flags";
        const UNKNOWN: &str = "-CLIENT-ERROR Unknown command";
        const ARGS: &str = "-CLIENT-ERROR Invalid command args";
        for (line, expected) in [
            ("delete x", Ok(CommandName::Delete)),
            ("delete x -a=b", Ok(CommandName::Delete)),
            ("inspect -a=b job x", Ok(CommandName::InspectJob)),
            ("foo -a=", Err(FLAGS)),
            ("delete -=b", Err(FLAGS)),
            ("delete -a==b", Err(FLAGS)),
            ("delete -a=1 -a=2", Err(FLAGS)),
            ("-a=b delete x", Err(UNKNOWN)),
            ("-a=", Err(FLAGS)),
            ("", Err(UNKNOWN)),
            (" delete x", Err(UNKNOWN)),
            ("delete\tx", Err(UNKNOWN)),
            ("DELETE x", Err(UNKNOWN)),
            ("inspect foo", Err(UNKNOWN)),
            ("inspect Server", Err(UNKNOWN)),
            ("inspect", Err(ARGS)),
            ("inspect -a=b", Err(ARGS)),
            ("inspect server x", Err(ARGS)),
            ("delete", Err(ARGS)),
            ("delete a b", Err(ARGS)),
            ("lease q", Err(ARGS)),
        ] {
            assert_eq!(name(line), expected, "{line:?}");
        }
    }
}

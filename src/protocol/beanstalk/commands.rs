//! THE table of beanstalk commands: what they are called, how their arguments are read, and where they are counted.
//!
//! Owns the words. A line belongs to the first row that it begins with, in this order, which is beanstalkd's: it
//! decides what the odd ones mean ("statsx" is a malformed `stats`, "putx" is unknown). Parsing, statistics and tests
//! walk it.

use hmac_sha256::Hash;

use super::command::Command;
use crate::access::Need;
use crate::engine::{JobId, Span, State};
use crate::protocol::text::{is_tube_name, name_run, number, number32, strtoul32};

/// A command, by its place in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // they are the protocol's words; the table says what each does
pub enum CommandName {
    Put,
    Peek,
    PeekReady,
    PeekDelayed,
    PeekBuried,
    ReserveWithTimeout,
    ReserveJob,
    Reserve,
    Delete,
    Release,
    Bury,
    Kick,
    KickJob,
    Touch,
    StatsJob,
    StatsTube,
    Stats,
    Use,
    Watch,
    Ignore,
    ListTubesWatched,
    ListTubeUsed,
    ListTubes,
    Quit,
    PauseTube,
    Auth,
}

impl CommandName {
    /// Its name on the wire, without the space that may follow.
    pub fn name(self) -> &'static str {
        COMMANDS[self as usize].word.trim_end()
    }
}

pub struct CommandRow {
    pub name: CommandName,
    /// What a client must be allowed to do.
    pub need: Need,
    /// What a line must begin with.
    pub word: &'static str,
    pub arguments: &'static str,
    /// Reads the rest of the line; none if it is malformed, and then the command is not counted.
    pub parse: fn(&[u8]) -> Option<Command>,
    /// What it does, in one line.
    pub summary: &'static str,
}

const fn row(
    name: CommandName,
    need: Need,
    word: &'static str,
    arguments: &'static str,
    parse: fn(&[u8]) -> Option<Command>,
    summary: &'static str,
) -> CommandRow {
    CommandRow { name, need, word, arguments, parse, summary }
}

#[rustfmt::skip]
pub const COMMANDS: [CommandRow; 26] = [
    row(CommandName::Put, Need::PUT_USED, "put ", "<pri> <delay> <ttr> <bytes>", put, "put a job, whose body follows, into the used tube"),
    row(CommandName::Peek, Need::LOOK_JOB, "peek ", "<id>", |args| only_id(args).map(Command::Peek), "show a job"),
    row(CommandName::PeekReady, Need::LOOK_USED, "peek-ready", "", |args| alone(args, Command::PeekNext(State::Ready)), "show the next ready job of the used tube"),
    row(CommandName::PeekDelayed, Need::LOOK_USED, "peek-delayed", "", |args| alone(args, Command::PeekNext(State::Delayed)), "show its delayed job that is due next"),
    row(CommandName::PeekBuried, Need::LOOK_USED, "peek-buried", "", |args| alone(args, Command::PeekNext(State::Buried)), "show its longest buried job"),
    row(CommandName::ReserveWithTimeout, Need::TAKE_WATCHED, "reserve-with-timeout ", "<seconds>", reserve_with_timeout, "reserve a job, waiting so long at most"),
    row(CommandName::ReserveJob, Need::TAKE_JOB, "reserve-job ", "<id>", |args| only_id(args).map(Command::ReserveJob), "reserve the job with this id"),
    row(CommandName::Reserve, Need::TAKE_WATCHED, "reserve", "", |args| alone(args, Command::Reserve(None)), "reserve a job of the watched tubes"),
    row(CommandName::Delete, Need::DELETE_JOB, "delete ", "<id>", |args| only_id(args).map(Command::Delete), "delete a job"),
    row(CommandName::Release, Need::TAKE_JOB, "release ", "<id> <pri> <delay>", release, "give a reserved job back"),
    row(CommandName::Bury, Need::TAKE_JOB, "bury ", "<id> <pri>", bury, "set a reserved job aside"),
    row(CommandName::Kick, Need::ADMIN_USED, "kick ", "<bound>", |args| strtoul32(args).map(Command::Kick), "make so many buried, or delayed, jobs ready"),
    row(CommandName::KickJob, Need::ADMIN_JOB, "kick-job ", "<id>", |args| only_id(args).map(Command::KickJob), "make this buried, delayed or leased job ready"),
    row(CommandName::Touch, Need::TAKE_JOB, "touch ", "<id>", |args| only_id(args).map(Command::Touch), "start the time to run of a reserved job again"),
    row(CommandName::StatsJob, Need::LOOK_JOB, "stats-job ", "<id>", |args| only_id(args).map(Command::StatsJob), "statistics of a job"),
    row(CommandName::StatsTube, Need::LOOK_NAMED, "stats-tube ", "<tube>", |args| tube(args).map(Command::StatsTube), "statistics of a tube"),
    row(CommandName::Stats, Need::LOOK_ANY, "stats", "", |args| alone(args, Command::Stats), "statistics of the server"),
    row(CommandName::Use, Need::USE_NAMED, "use ", "<tube>", |args| tube(args).map(Command::Use), "choose the tube that jobs are put into"),
    row(CommandName::Watch, Need::TAKE_NAMED, "watch ", "<tube>", |args| tube(args).map(Command::Watch), "add a tube to those that jobs are reserved from"),
    row(CommandName::Ignore, Need::OPEN, "ignore ", "<tube>", |args| tube(args).map(Command::Ignore), "take a tube from those"),
    row(CommandName::ListTubesWatched, Need::OPEN, "list-tubes-watched", "", |args| alone(args, Command::ListTubesWatched), "name the tubes that are watched"),
    row(CommandName::ListTubeUsed, Need::OPEN, "list-tube-used", "", |args| alone(args, Command::ListTubeUsed), "name the tube that is used"),
    row(CommandName::ListTubes, Need::LOOK_ANY, "list-tubes", "", |args| alone(args, Command::ListTubes), "name all tubes"),
    row(CommandName::Quit, Need::OPEN, "quit", "", |_| Some(Command::Quit), "close the connection"),
    row(CommandName::PauseTube, Need::ADMIN_NAMED, "pause-tube", " <tube> <seconds>", pause_tube, "give out no job of a tube for so long"),
    row(CommandName::Auth, Need::OPEN, "auth ", "<token>", |token| Some(Command::Auth(Hash::hash(token))), "prove with a token who one is, under --access"),
];

/// How often each command was given.
#[derive(Clone, Debug)]
pub struct CommandCounters([u64; COMMANDS.len()]);

impl Default for CommandCounters {
    fn default() -> CommandCounters {
        CommandCounters([0; COMMANDS.len()])
    }
}

impl CommandCounters {
    pub fn count(&mut self, name: CommandName) {
        self.0[name as usize] += 1;
    }

    pub fn of(&self, name: CommandName) -> u64 {
        self.0[name as usize]
    }
}

fn alone(args: &[u8], command: Command) -> Option<Command> {
    args.is_empty().then_some(command)
}

/// The last argument must end the line.
fn last<T>((value, rest): (T, &[u8])) -> Option<T> {
    rest.is_empty().then_some(value)
}

fn only_id(args: &[u8]) -> Option<JobId> {
    number(args).and_then(last).map(JobId)
}

fn secs(count: u32) -> Span {
    Span::from_secs(count.into())
}

fn tube(args: &[u8]) -> Option<Box<[u8]>> {
    is_tube_name(args).then(|| args.into())
}

fn put(args: &[u8]) -> Option<Command> {
    let (pri, args) = number32(args)?;
    let (delay, args) = number32(args)?;
    let (ttr, args) = number32(args)?;
    let (size, rest) = number32(args)?;
    // The protocol's shortest time to run is one second.
    Some(Command::PutLine { pri, delay: secs(delay), ttr: secs(ttr.max(1)), size, garbage: !rest.is_empty() })
}

fn reserve_with_timeout(args: &[u8]) -> Option<Command> {
    // beanstalkd ignores what follows the number.
    let (timeout, _) = number32(args)?;
    (timeout <= i32::MAX as u32).then(|| Command::Reserve(Some(secs(timeout))))
}

fn release(args: &[u8]) -> Option<Command> {
    let (id, args) = number(args)?;
    let (pri, args) = number32(args)?;
    let delay = number32(args).and_then(last)?;
    Some(Command::Release { id: JobId(id), pri, delay: secs(delay) })
}

fn bury(args: &[u8]) -> Option<Command> {
    let (id, args) = number(args)?;
    let pri = number32(args).and_then(last)?;
    Some(Command::Bury { id: JobId(id), pri })
}

fn pause_tube(args: &[u8]) -> Option<Command> {
    let start = args.iter().position(|&byte| byte != b' ')?;
    let (name, args) = name_run(&args[start..]);
    let length = number32(args).and_then(last)?;
    match name {
        [] => None,
        name if is_tube_name(name) => Some(Command::PauseTube { tube: name.into(), length: secs(length) }),
        // Counted as a pause-tube, unlike every other malformed line.
        _ => Some(Command::BadFormat),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_has_its_row() {
        for (place, row) in COMMANDS.iter().enumerate() {
            assert_eq!(row.name as usize, place, "{:?}", row.name);
            assert!(!row.summary.is_empty());
        }
    }

    #[test]
    fn a_word_that_begins_another_stands_behind_it() {
        for (place, row) in COMMANDS.iter().enumerate() {
            let hidden = COMMANDS[..place].iter().find(|before| row.word.starts_with(before.word));
            assert!(hidden.is_none(), "{:?} can never be reached", row.word);
        }
    }
}

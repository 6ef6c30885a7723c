//! The table of beanstalk commands: names, parsers of arguments, and counters.
//!
//! Owns the words. A line belongs to the first row whose word it starts with, in beanstalkd's order, which decides the
//! meaning of odd lines ("statsx" is a malformed `stats`, "putx" is unknown). The parser, the statistics and the tests
//! use it.

use super::command::Command;
use super::extensions::{Extension, Extensions};
use super::long::{Long, PartialList};
use super::tube_settings;
use crate::access::{Digest, Need};
use crate::engine::{
    FindOldest, FindReserved, Flush, IdPage, JobId, Kick, MoveJobs, ReserveMode, Span, State, LONGEST_REASON, MOST_TIES,
};
use crate::protocol::connections::ConnectionPage;
use crate::protocol::history::HistoryWalk;
use crate::protocol::text::{
    is_tube_name, name_run, next_word, number, number32, past, strtoul32, unquote_name, MAX_QUOTED_NAME,
};

/// Maximum length of a line with its CR LF; enough for `pause-tube` with the longest name and number.
pub const MAX_LINE: usize = 224;

/// Maximum length of a put line with tags: a key and a tube in quotes, another key and some numbers, the groups, each
/// with a name of 200 bytes, and a reason in quotes.
pub const MAX_PUT_LINE: usize = 1024 + 2 * 4 * MAX_QUOTED_NAME + 256 * MOST_TIES + 4 * LONGEST_REASON;

/// Maximum length of a connection's name, which the memory accounted for each connection covers.
const MAX_CLIENT_NAME: usize = 200;

/// Maximum length of the list of IDs of a batch delete: a thousand IDs of twenty digits, and more.
const MAX_BATCH_LINE: usize = 24 * 1024;

/// A command, identified by its index in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // they are the protocol's words; the table says what each does
pub enum CommandName {
    Put,
    Peek,
    PeekReady,
    PeekDelayed,
    PeekBuried,
    PeekReserved,
    ReserveWithTimeout,
    ReserveJob,
    ReserveBatch,
    ReserveMode,
    ReserveWithAbort,
    Reserve,
    DeleteBatch,
    Delete,
    Release,
    Bury,
    Kick,
    KickJob,
    TouchAll,
    Touch,
    Wait,
    FlushTube,
    FlushBuried,
    Drain,
    Undrain,
    ListJobs,
    ListKeys,
    ListConnections,
    ListHistory,
    Name,
    Revoke,
    MoveJob,
    MoveTube,
    LimitTube,
    SetTube,
    Fail,
    StatsJob,
    StatsGroup,
    StatsTubes,
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

/// The table at a fixed address, for references that never expire.
static ROWS: [CommandRow; COMMANDS.len()] = COMMANDS;

impl CommandName {
    #[expect(clippy::indexing_slicing, reason = "names stand in the order of the rows, which a test checks")]
    pub fn row(self) -> &'static CommandRow {
        &ROWS[self as usize]
    }

    /// Returns the command's name on the wire, without the space that may follow.
    pub fn name(self) -> &'static str {
        self.row().word.trim_end()
    }
}

/// Parses the part of a line after the command's word.
type Parse = fn(&[u8], Extensions) -> Option<Command>;

pub struct CommandRow {
    pub name: CommandName,
    /// The rights that the command requires.
    pub need: Need,
    /// The beginning of a line of this command.
    pub word: &'static str,
    pub arguments: &'static str,
    /// Parses the rest of the line; returns `None` if it is malformed, and then the command is not counted. Commands
    /// with a body have no parser here: the decoder handles both.
    pub parse: Option<Parse>,
    /// A description of the command in one line.
    pub summary: &'static str,
    /// The required extension; `None` for beanstalkd's own commands.
    pub extension: Option<Extension>,
}

const fn row(
    name: CommandName,
    need: Need,
    word: &'static str,
    arguments: &'static str,
    parse: Parse,
    summary: &'static str,
) -> CommandRow {
    CommandRow { name, need, word, arguments, parse: Some(parse), summary, extension: None }
}

/// Returns the row of a command that beanstalkd does not have.
const fn ours(extension: Extension, row: CommandRow) -> CommandRow {
    CommandRow { extension: Some(extension), ..row }
}

#[rustfmt::skip]
pub const COMMANDS: [CommandRow; 50] = [
    CommandRow { name: CommandName::Put, need: Need::PUT_USED, word: "put ", arguments: "<pri> <delay> <ttr> <bytes>", parse: None, summary: "put a job, whose body follows, into the used tube", extension: None },
    row(CommandName::Peek, Need::LOOK_JOB, "peek ", "<id>", |args, _| only_id(args).map(Command::Peek), "show a job"),
    row(CommandName::PeekReady, Need::LOOK_USED, "peek-ready", "", |args, _| alone(args, Command::PeekNext(State::Ready)), "show the next ready job of the used tube"),
    row(CommandName::PeekDelayed, Need::LOOK_USED, "peek-delayed", "", |args, _| alone(args, Command::PeekNext(State::Delayed)), "show its delayed job that is due next"),
    row(CommandName::PeekBuried, Need::LOOK_USED, "peek-buried", "", |args, _| alone(args, Command::PeekNext(State::Buried)), "show its longest buried job"),
    ours(Extension::PeekReserved, row(CommandName::PeekReserved, Need::LOOK_USED, "peek-reserved", "", |args, _| alone(args, Long::PeekReserved(FindReserved::default())), "show its reserved job whose time to run ends first")),
    row(CommandName::ReserveWithTimeout, Need::TAKE_WATCHED, "reserve-with-timeout ", "<seconds>", reserve_with_timeout, "reserve a job, waiting at most this long"),
    row(CommandName::ReserveJob, Need::TAKE_JOB, "reserve-job ", "<id>", |args, _| only_id(args).map(Command::ReserveJob), "reserve the job with this id"),
    ours(Extension::Batch, row(CommandName::ReserveBatch, Need::TAKE_WATCHED, "reserve-batch ", "<count> [<seconds>]", reserve_batch, "reserve up to this many jobs")),
    ours(Extension::Weight, row(CommandName::ReserveMode, Need::OPEN, "reserve-mode ", "<mode>", reserve_mode, "reserve the most urgent job of all watched tubes, or from tubes by their weights")),
    ours(Extension::Abort, row(CommandName::ReserveWithAbort, Need::TAKE_WATCHED, "reserve-with-abort", " [<seconds>]", reserve_with_abort, "reserve a job, waiting until the client sends something")),
    row(CommandName::Reserve, Need::TAKE_WATCHED, "reserve", "", |args, _| alone(args, Command::Reserve(None)), "reserve a job of the watched tubes"),
    ours(Extension::Batch, row(CommandName::DeleteBatch, Need::DELETE_JOB, "delete-batch ", "<ids>", delete_batch, "delete many jobs")),
    row(CommandName::Delete, Need::DELETE_JOB, "delete ", "<id>", |args, _| only_id(args).map(Command::Delete), "delete a job"),
    row(CommandName::Release, Need::TAKE_JOB, "release ", "<id> <pri> <delay>", release, "give a reserved job back"),
    row(CommandName::Bury, Need::TAKE_JOB, "bury ", "<id> <pri> [from:<tube>]", bury, "set a reserved job aside"),
    row(CommandName::Kick, Need::ADMIN_USED, "kick ", "<bound>", |args, _| strtoul32(args).map(|bound| Command::from(Long::Kick(Kick::new(bound.into())))), "make so many buried, or delayed, jobs ready"),
    row(CommandName::KickJob, Need::ADMIN_JOB, "kick-job ", "<id>", |args, _| only_id(args).map(Command::KickJob), "make this buried, delayed or leased job ready"),
    ours(Extension::Batch, row(CommandName::TouchAll, Need::TAKE_ANY, "touch-all", "", |args, _| alone(args, Long::TouchAll(None)), "start the times to run of all reserved jobs again")),
    row(CommandName::Touch, Need::TAKE_JOB, "touch ", "<id> [<n/m>]", touch, "start the time to run of a reserved job again, and say how far it is"),
    ours(Extension::Wait, row(CommandName::Wait, Need::FOLLOW_JOB, "wait ", "<id> <seconds>", wait, "wait until a job is gone or set aside")),
    ours(Extension::Flush, row(CommandName::FlushTube, Need::ADMIN_NAMED, "flush-tube ", "<tube>", |args, on| flush(args, on, &State::UNFINISHED), "delete all jobs of a tube")),
    ours(Extension::Flush, row(CommandName::FlushBuried, Need::ADMIN_NAMED, "flush-buried ", "<tube>", |args, on| flush(args, on, &[State::Buried]), "delete the buried jobs of a tube")),
    ours(Extension::Drain, row(CommandName::Drain, Need::ADMIN_ALL, "drain", "", |args, _| alone(args, Command::Drain(true)), "take no more jobs in")),
    ours(Extension::Drain, row(CommandName::Undrain, Need::ADMIN_ALL, "undrain", "", |args, _| alone(args, Command::Drain(false)), "take jobs in again")),
    ours(Extension::ListJobs, row(CommandName::ListJobs, Need::LOOK_NAMED, "list-jobs ", "<tube> <state> [<above>] [<count>]", list_jobs, "list ids of jobs of a tube")),
    ours(Extension::Export, row(CommandName::ListKeys, Need::LOOK_ANY, "list-keys", " [<from>]", list_keys, "list keys that outlive their jobs")),
    ours(Extension::Connections, row(CommandName::ListConnections, Need::LOOK_ANY, "list-connections", " [<above>] [<count>]", list_connections, "list connections, and what they do")),
    ours(Extension::History, row(CommandName::ListHistory, Need::LOOK_ANY, "list-history", " [<below>] [<count>]", list_history, "list the jobs that ended or were buried last")),
    ours(Extension::Connections, row(CommandName::Name, Need::OPEN, "name ", "<tube>", |args, on| tube(args, on).filter(|name| name.len() <= MAX_CLIENT_NAME).map(Command::Name), "name the connection, for others to see")),
    ours(Extension::Revoke, row(CommandName::Revoke, Need::ADMIN_JOB, "revoke ", "<id> <pri>", revoke, "take a reserved job from its holder, and bury it")),
    ours(Extension::Move, row(CommandName::MoveJob, Need::ADMIN_JOB, "move-job ", "<id> <tube> <pri> <delay>", move_job, "put a job into another tube")),
    ours(Extension::Move, row(CommandName::MoveTube, Need::ADMIN_NAMED, "move-tube ", "<tube> <tube> <state> <bound>", move_tube, "put up to this many jobs into another tube")),
    ours(Extension::Limit, row(CommandName::LimitTube, Need::ADMIN_NAMED, "limit-tube ", "<tube> <count> [<normal> <low>]", limit_tube, "bound how many jobs a tube may have")),
    ours(Extension::SetTube, row(CommandName::SetTube, Need::ADMIN_NAMED, "set-tube ", "<tube> [try:<count>:<seconds>] [ttl:<seconds>] [dead:<tube>] [max:<count>] [rate:<count>/<seconds>] [limit:<count>:<normal>:<low>]", set_tube, "give a tube its settings, and take away those that are not named")),
    CommandRow { name: CommandName::Fail, need: Need::TAKE_JOB, word: "fail ", arguments: "<id> <pri> <bytes>", parse: None, summary: "try a reserved job again later, or bury it; the reason follows", extension: Some(Extension::Fail) },
    row(CommandName::StatsJob, Need::LOOK_OWN_JOB, "stats-job ", "<id>", |args, _| only_id(args).map(Command::StatsJob), "statistics of a job"),
    ours(Extension::Grp, row(CommandName::StatsGroup, Need::LOOK_NAMED, "stats-group ", "<group>", |args, _| is_tube_name(args).then(|| Command::StatsGroup(args.into())), "statistics of a group of jobs")),
    ours(Extension::StatsTubes, row(CommandName::StatsTubes, Need::LOOK_ANY, "stats-tubes", "", |args, _| alone(args, Long::StatsTubes(PartialList::new(0))), "statistics of all tubes")),
    row(CommandName::StatsTube, Need::LOOK_NAMED, "stats-tube ", "<tube>", |args, on| tube(args, on).map(|tube| Command::from(Long::StatsTube(FindOldest::new(tube)))), "statistics of a tube"),
    row(CommandName::Stats, Need::LOOK_ANY, "stats", "", |args, _| alone(args, Command::Stats), "statistics of the server"),
    row(CommandName::Use, Need::USE_NAMED, "use ", "<tube>", |args, on| tube(args, on).map(Command::Use), "choose the tube that jobs are put into"),
    row(CommandName::Watch, Need::TAKE_NAMED, "watch ", "<tube> [<weight>]", watch, "add a tube to those that jobs are reserved from"),
    row(CommandName::Ignore, Need::OPEN, "ignore ", "<tube>", |args, on| tube(args, on).map(Command::Ignore), "take a tube from those"),
    row(CommandName::ListTubesWatched, Need::OPEN, "list-tubes-watched", "", |args, _| alone(args, Long::ListTubesWatched(PartialList::new(0))), "name the tubes that are watched"),
    row(CommandName::ListTubeUsed, Need::OPEN, "list-tube-used", "", |args, _| alone(args, Command::ListTubeUsed), "name the tube that is used"),
    row(CommandName::ListTubes, Need::LOOK_ANY, "list-tubes", "", |args, _| alone(args, Long::ListTubes(None)), "name all tubes"),
    row(CommandName::Quit, Need::OPEN, "quit", "", |_, _| Some(Command::Quit), "close the connection"),
    row(CommandName::PauseTube, Need::ADMIN_NAMED, "pause-tube", " <tube> <seconds>", pause_tube, "give out no job of a tube for so long"),
    row(CommandName::Auth, Need::OPEN, "auth ", "<token>", |token, _| Some(Command::Auth(Digest::of(token))), "prove with a token who one is, under --access"),
];

/// The end of a chain of rows.
const NO_ROW: u8 = u8::MAX;

/// For each lowercase letter, the first row whose word begins with it, and for each row the next one with the same
/// first letter: so a line is compared with a few words instead of all.
#[expect(clippy::indexing_slicing, reason = "the compiler works it out, and checks each place")]
const CHAINS: ([u8; 26], [u8; COMMANDS.len()]) = {
    let (mut first, mut next) = ([NO_ROW; 26], [NO_ROW; COMMANDS.len()]);
    let mut row = COMMANDS.len();
    while row > 0 {
        row -= 1;
        let letter = (COMMANDS[row].word.as_bytes()[0] - b'a') as usize;
        next[row] = first[letter];
        first[letter] = row as u8;
    }
    (first, next)
};

/// Returns the row of a line, for a server with these extensions.
pub fn row_of(line: &[u8], extensions: Extensions) -> Option<&'static CommandRow> {
    let letter = usize::from(line.first()?.wrapping_sub(b'a'));
    let mut place = *CHAINS.0.get(letter)?;
    while let Some(row) = ROWS.get(usize::from(place)) {
        if line.starts_with(row.word.as_bytes()) && row.extension.is_none_or(|extension| extensions.has(extension)) {
            return Some(row);
        }
        place = *CHAINS.1.get(usize::from(place))?;
    }
    None
}

/// The maximum length of a line of each row with its CR LF, computed from the arguments in the table, with every name
/// in quotes.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which checks each index")]
const LONGEST: [usize; COMMANDS.len()] = {
    let mut longest = [0; COMMANDS.len()];
    let mut row = 0;
    while row < COMMANDS.len() {
        longest[row] = longest_line(&COMMANDS[row]);
        row += 1;
    }
    longest
};

/// At least `MAX_LINE`, because beanstalkd allows additional spaces.
const fn longest_line(row: &CommandRow) -> usize {
    let mut length = row.word.len() + 2;
    let mut arguments = row.arguments.as_bytes();
    while let [first, rest @ ..] = arguments {
        arguments = rest;
        if *first == b'<' {
            length += match rest {
                [b't', b'u', b'b', b'e', b'>', ..] => 1 + 2 + 4 * MAX_QUOTED_NAME,
                [b'i', b'd', b's', b'>', ..] => MAX_BATCH_LINE,
                // A 64-bit number, or a shorter word.
                _ => 1 + 20,
            };
        }
    }
    if length < MAX_LINE {
        MAX_LINE
    } else {
        length
    }
}

impl CommandRow {
    /// Returns the maximum length of a line of this command with its CR LF. Lines of beanstalkd's own commands are
    /// longer than in beanstalkd only where a name may be quoted.
    #[expect(clippy::indexing_slicing, reason = "names are in the order of the rows")]
    pub fn longest(&self, extensions: Extensions) -> usize {
        if self.name == CommandName::Put {
            return if extensions == Extensions::NONE { MAX_LINE } else { MAX_PUT_LINE };
        }
        if self.extension.is_some() || extensions.has(Extension::Quote) {
            return LONGEST[self.name as usize];
        }
        MAX_LINE
    }

    /// Returns `true` if a line of this command with these arguments may be longer than in beanstalkd.
    pub fn may_be_long(&self, args: &[u8]) -> bool {
        self.extension.is_some() || args.contains(&b'"')
    }
}

fn alone(args: &[u8], command: impl Into<Command>) -> Option<Command> {
    args.is_empty().then(|| command.into())
}

impl From<Long> for Command {
    fn from(long: Long) -> Command {
        Command::Long(Box::new(long))
    }
}

/// Returns the last argument, which must end the line.
fn last<T>((value, rest): (T, &[u8])) -> Option<T> {
    rest.is_empty().then_some(value)
}

fn only_id(args: &[u8]) -> Option<JobId> {
    number(args).and_then(last).map(JobId)
}

pub fn secs(count: u32) -> Span {
    Span::from_secs(count.into())
}

/// Parses the last argument, a tube name.
fn tube(args: &[u8], extensions: Extensions) -> Option<Box<[u8]>> {
    next_tube(args, extensions).and_then(last)
}

/// Parses a quoted tube name. Returns the name and the text after it.
fn quoted_tube(args: &[u8], extensions: Extensions) -> Option<(Box<[u8]>, &[u8])> {
    let (name, rest) = unquote_name(args).filter(|_| extensions.has(Extension::Quote))?;
    (rest.is_empty() || rest.starts_with(b" ")).then(|| (name.into(), rest))
}

/// The maximum number of jobs of a batch.
const BATCH: u32 = 1000;

fn reserve_batch(args: &[u8], _: Extensions) -> Option<Command> {
    let (count, rest) = number32(args)?;
    let timeout = if rest.is_empty() { None } else { Some(spaced(rest).and_then(number32).and_then(last)?) };
    (1..=BATCH).contains(&count).then(|| Command::ReserveBatch(count as usize, timeout.map(secs)))
}

fn delete_batch(args: &[u8], _: Extensions) -> Option<Command> {
    let (mut ids, mut rest) = (Vec::new(), args);
    while !rest.is_empty() && ids.len() <= BATCH as usize {
        let (id, behind) = number(rest)?;
        ids.push(JobId(id));
        rest = if behind.is_empty() { behind } else { spaced(behind).filter(|next| !next.is_empty())? };
    }
    (1..=BATCH as usize)
        .contains(&ids.len())
        .then(|| Command::from(Long::DeleteBatch { ids: ids.into(), at: 0, deleted: 0 }))
}

/// Returns the text after one space, which is required.
fn spaced(args: &[u8]) -> Option<&[u8]> {
    args.strip_prefix(b" ")
}

/// Parses a tube name, which ends at the next space or is in quotes.
fn next_tube(args: &[u8], extensions: Extensions) -> Option<(Box<[u8]>, &[u8])> {
    if args.starts_with(b"\"") {
        return quoted_tube(args, extensions);
    }
    let (name, rest) = args.split_at(args.iter().position(|&byte| byte == b' ').unwrap_or(args.len()));
    is_tube_name(name).then(|| (name.into(), rest))
}

/// Like [`next_tube`], but skips any number of spaces first.
fn next_tube_word(args: &[u8], extensions: Extensions) -> Option<(Box<[u8]>, &[u8])> {
    next_tube(past(args, args.iter().position(|&byte| byte != b' ')?), extensions)
}

fn next_state(args: &[u8]) -> Option<(State, &[u8])> {
    let (state, rest) = next_word(args)?;
    Some((State::named(state)?, rest))
}

fn wait(args: &[u8], _: Extensions) -> Option<Command> {
    let (id, args) = number(args)?;
    number32(args).and_then(last).map(|timeout| Command::Wait(JobId(id), secs(timeout)))
}

fn flush(args: &[u8], extensions: Extensions, states: &'static [State]) -> Option<Command> {
    tube(args, extensions).map(|tube| Command::from(Long::Flush(Flush::new(tube, states))))
}

fn list_jobs(args: &[u8], extensions: Extensions) -> Option<Command> {
    let (tube, args) = next_tube_word(args, extensions)?;
    let (state, args) = next_state(args)?;
    let (above, args) = if args.is_empty() { (0, args) } else { number(args)? };
    let limit = if args.is_empty() { BATCH } else { number32(args).and_then(last)? };
    let limit = (1..=BATCH).contains(&limit).then_some(limit as usize)?;
    Some(Command::from(Long::ListJobs(IdPage::new(tube, state, above, limit))))
}

fn list_keys(args: &[u8], _: Extensions) -> Option<Command> {
    let from = if args.is_empty() { 0 } else { spaced(args).and_then(number32).and_then(last)? };
    Some(Command::from(Long::ListKeys(PartialList::new(from))))
}

fn list_connections(args: &[u8], _: Extensions) -> Option<Command> {
    let (above, args) = if args.is_empty() { (0, args) } else { spaced(args).and_then(number32)? };
    let limit = if args.is_empty() { BATCH } else { number32(args).and_then(last)? };
    let page = || ConnectionPage::new(above, limit as usize, PartialList::new(0).text);
    (1..=BATCH).contains(&limit).then(|| Command::from(Long::ListConnections(page().into())))
}

fn list_history(args: &[u8], _: Extensions) -> Option<Command> {
    let (below, args) = if args.is_empty() { (u64::MAX, args) } else { spaced(args).and_then(number)? };
    let limit = if args.is_empty() { BATCH } else { number32(args).and_then(last)? };
    (1..=BATCH)
        .contains(&limit)
        .then(|| Command::from(Long::ListHistory(HistoryWalk::new(below, limit as usize, false), PartialList::new(0))))
}

fn revoke(args: &[u8], _: Extensions) -> Option<Command> {
    let (id, args) = number(args)?;
    number32(args).and_then(last).map(|pri| Command::Revoke(JobId(id), pri))
}

/// Progress consists of two numbers separated by a slash, the second at least 1 and not less than the first.
fn touch(args: &[u8], extensions: Extensions) -> Option<Command> {
    let (id, rest) = number(args)?;
    if rest.is_empty() || !extensions.has(Extension::Progress) {
        return last((id, rest)).map(|id| Command::Touch(JobId(id), None));
    }
    let (done, rest) = spaced(rest).and_then(number32)?;
    let total = rest.strip_prefix(b"/").and_then(number32).and_then(last)?;
    (total > 0 && done <= total).then_some(Command::Touch(JobId(id), Some((done, total))))
}

fn move_job(args: &[u8], extensions: Extensions) -> Option<Command> {
    let (id, args) = number(args)?;
    let (tube, args) = next_tube_word(args, extensions)?;
    let (pri, args) = number32(args)?;
    let delay = number32(args).and_then(last)?;
    Some(Command::MoveJob { id: JobId(id), tube, pri, delay: secs(delay) })
}

fn move_tube(args: &[u8], extensions: Extensions) -> Option<Command> {
    let (from, args) = next_tube_word(args, extensions)?;
    let (to, args) = next_tube_word(args, extensions)?;
    let (state, args) = next_state(args)?;
    let bound = number(args).and_then(last)?;
    let moves = matches!(state, State::Ready | State::Delayed | State::Buried);
    moves.then(|| Command::from(Long::MoveTube(MoveJobs::new(from, to, state, bound))))
}

fn limit_tube(args: &[u8], extensions: Extensions) -> Option<Command> {
    let (tube, args) = next_tube_word(args, extensions)?;
    let (most, rest) = number32(args)?;
    let most = if rest.is_empty() || !extensions.has(Extension::Export) {
        last((most, rest)).map(|most| [most; 3])?
    } else {
        let (normal, rest) = number32(rest)?;
        [most, normal, number32(rest).and_then(last)?]
    };
    Some(Command::LimitTube { tube, most: most.map(|most| Some(most).filter(|most| *most > 0)) })
}

/// The text after the tube name begins with a space.
fn set_tube(args: &[u8], extensions: Extensions) -> Option<Command> {
    let (tube, rest) = next_tube_word(args, extensions)?;
    let settings = tube_settings::read(rest).filter(|_| rest.is_empty() || rest.starts_with(b" "))?;
    Some(Command::SetTube { tube, settings: Box::new(settings) })
}

fn watch(args: &[u8], extensions: Extensions) -> Option<Command> {
    let (tube, args) = next_tube(args, extensions)?;
    if args.is_empty() {
        return Some(Command::Watch(tube, None));
    }
    let weight = number32(args).and_then(last).filter(|weight| (1..=9999).contains(weight))?;
    extensions.has(Extension::Weight).then_some(Command::Watch(tube, Some(weight as u16)))
}

fn reserve_mode(args: &[u8], _: Extensions) -> Option<Command> {
    match args {
        b"fifo" => Some(Command::ReserveMode(ReserveMode::Urgent)),
        b"weighted" => Some(Command::ReserveMode(ReserveMode::Weighted)),
        b"weighted-fair" => Some(Command::ReserveMode(ReserveMode::Fair)),
        _ => None,
    }
}

fn reserve_with_abort(args: &[u8], _: Extensions) -> Option<Command> {
    if args.is_empty() {
        return Some(Command::ReserveWithAbort(None));
    }
    let seconds = super::tags::whole(args.strip_prefix(b" ")?)?;
    Some(Command::ReserveWithAbort(Some(Span::from_secs(seconds.into()))))
}

fn reserve_with_timeout(args: &[u8], _: Extensions) -> Option<Command> {
    // beanstalkd ignores the text after the number.
    let (timeout, _) = number32(args)?;
    (timeout <= i32::MAX as u32).then(|| Command::Reserve(Some(secs(timeout))))
}

fn release(args: &[u8], _: Extensions) -> Option<Command> {
    let (id, args) = number(args)?;
    let (pri, args) = number32(args)?;
    let delay = number32(args).and_then(last)?;
    Some(Command::Release { id: JobId(id), pri, delay: secs(delay) })
}

fn bury(args: &[u8], extensions: Extensions) -> Option<Command> {
    let (id, args) = number(args)?;
    let (pri, args) = number32(args)?;
    let dead_from = if args.is_empty() || !extensions.has(Extension::Export) {
        args.is_empty().then_some(None)?
    } else {
        Some(next_tube(spaced(args)?.strip_prefix(b"from:")?, extensions).and_then(last)?)
    };
    Some(Command::Bury { id: JobId(id), pri, dead_from })
}

fn pause_tube(args: &[u8], extensions: Extensions) -> Option<Command> {
    let start = args.iter().position(|&byte| byte != b' ')?;
    if let Some((tube, args)) = quoted_tube(past(args, start), extensions) {
        return number32(args).and_then(last).map(|length| Command::PauseTube { tube, length: secs(length) });
    }
    let (name, args) = name_run(past(args, start));
    let length = number32(args).and_then(last)?;
    match name {
        [] => None,
        name if is_tube_name(name) => Some(Command::PauseTube { tube: name.into(), length: secs(length) }),
        // Counted as a `pause-tube`, unlike every other malformed line.
        _ => Some(Command::BadFormat),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Promises: P22.
    #[test]
    fn every_verb_has_its_row() {
        for (place, row) in COMMANDS.iter().enumerate() {
            assert_eq!(row.name as usize, place, "{:?}", row.name);
            assert!(!row.summary.is_empty());
        }
    }

    #[test]
    fn a_line_belongs_to_the_first_row_that_it_begins_with() {
        let lines = COMMANDS.iter().flat_map(|row| {
            let word = row.word.trim_end();
            [
                word.to_owned(),
                format!("{word} "),
                format!("{word} x"),
                format!("{word}x"),
                word[..word.len() - 1].to_owned(),
            ]
        });
        let odd = ["", " put ", "PUT ", "~", "{", "`", "x"].map(str::to_owned);
        for line in lines.chain(odd) {
            for extensions in [Extensions::ALL, Extensions::NONE] {
                let has = |row: &&CommandRow| row.extension.is_none_or(|extension| extensions.has(extension));
                let first = COMMANDS.iter().filter(has).find(|row| line.starts_with(row.word));
                let found = row_of(line.as_bytes(), extensions);
                assert_eq!(found.map(|row| row.name), first.map(|row| row.name), "{line:?}");
            }
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

//! The table of beanstalk commands, and the parsers of their arguments. A line belongs to the first row whose word is a
//! prefix of the line. As in beanstalkd, `statsx` is therefore a malformed `stats`. `putx` is unknown, because the word
//! of `put` ends with a space.

use super::command::{Command, Long, PartialList};
use super::extensions::{read_settings, Extension, Extensions};
use crate::access::{Digest, Need};
use crate::engine::{
    FindOldest, FindReserved, Flush, IdPage, JobId, Kick, MoveJobs, ReserveMode, Span, State, MAX_REASON, MAX_TIES,
};
use crate::protocol::connections::ConnectionPage;
use crate::protocol::pages::HistoryWalk;
use crate::protocol::text::{
    is_tube_name, name_run, next_word, number, number32, past, strtoul32, unquote_name, MAX_QUOTED_NAME,
};

/// beanstalkd's maximum length of a line in bytes, including CR LF.
pub const MAX_LINE: usize = 224;
/// The maximum length of a put line in bytes: a quoted key and tube, all groups, a quoted reason, and 1,024 more bytes.
pub const MAX_PUT_LINE: usize = 1024 + 2 * 4 * MAX_QUOTED_NAME + 256 * MAX_TIES + 4 * MAX_REASON;
/// A longer client name would need more memory than the server charges for a connection.
const MAX_CLIENT_NAME: usize = 200;
/// The maximum length of a batch command in bytes, sufficient for 1,000 IDs of 20 digits.
const MAX_BATCH_LINE: usize = 24 * 1024;
const MAX_BATCH: u32 = 1000;

pub const RESERVE_MODES: [(ReserveMode, &[u8]); 3] =
    [(ReserveMode::Urgent, b"fifo"), (ReserveMode::Weighted, b"weighted"), (ReserveMode::Fair, b"weighted-fair")];

pub struct CommandRow {
    pub name: CommandName,
    pub need: Need,
    /// The extension to which the command belongs, or `None` if beanstalkd has the command.
    pub extension: Option<Extension>,
    /// The start of every line with this command, such as `put `.
    pub word: &'static str,
    pub arguments: &'static str,
    /// The length of the longest line in bytes, including CR LF and quotes around all names.
    longest: usize,
    /// Parses a command without a body. Returns `None` for a malformed line that the statistics must not count.
    parse: fn(&mut Args) -> Option<Command>,
}

const fn row(
    name: CommandName,
    need: Need,
    extension: Option<Extension>,
    word: &'static str,
    arguments: &'static str,
    parse: fn(&mut Args) -> Option<Command>,
) -> CommandRow {
    CommandRow { name, need, extension, word, arguments, longest: longest_line(word, arguments), parse }
}

table! {
    enum CommandName = 0;
    static COMMANDS: [CommandRow] = row;
    Put(Need::PUT_USED, None, "put ", "<pri> <delay> <ttr> <bytes>", |_| None),
    Peek(Need::LOOK_JOB, None, "peek ", "<id>", |args| args.id().map(Command::Peek)),
    PeekReady(Need::LOOK_USED, None, "peek-ready", "", |_| Some(Command::PeekNext(State::Ready))),
    PeekDelayed(Need::LOOK_USED, None, "peek-delayed", "", |_| Some(Command::PeekNext(State::Delayed))),
    PeekBuried(Need::LOOK_USED, None, "peek-buried", "", |_| Some(Command::PeekNext(State::Buried))),
    PeekReserved(Need::LOOK_USED, Some(Extension::PeekReserved), "peek-reserved", "", |_| long(Long::PeekReserved(FindReserved::default()))),
    ReserveWithTimeout(Need::TAKE_WATCHED, None, "reserve-with-timeout ", "<seconds>", reserve_with_timeout),
    ReserveJob(Need::TAKE_JOB, None, "reserve-job ", "<id>", |args| args.id().map(Command::ReserveJob)),
    ReserveBatch(Need::TAKE_WATCHED, Some(Extension::Batch), "reserve-batch ", "<count> [<seconds>]", reserve_batch),
    ReserveMode(Need::OPEN, Some(Extension::Weight), "reserve-mode ", "<mode>", |args| { let word = args.all(); RESERVE_MODES.iter().find(|(_, name)| *name == word).map(|(mode, _)| Command::ReserveMode(*mode)) }),
    ReserveWithAbort(Need::TAKE_WATCHED, Some(Extension::Abort), "reserve-with-abort", " [<seconds>]", |args| args.first_or(None, |args| args.secs().map(Some)).map(Command::ReserveWithAbort)),
    Reserve(Need::TAKE_WATCHED, None, "reserve", "", |_| Some(Command::Reserve(None))),
    DeleteBatch(Need::DELETE_JOB, Some(Extension::Batch), "delete-batch ", "<ids>", delete_batch),
    Delete(Need::DELETE_JOB, None, "delete ", "<id>", |args| args.id().map(Command::Delete)),
    Release(Need::TAKE_JOB, None, "release ", "<id> <pri> <delay>", |args| Some(Command::Release { id: args.id()?, pri: args.number32()?, delay: args.secs()? })),
    Bury(Need::TAKE_JOB, None, "bury ", "<id> <pri> [delay:<seconds>] [from:<tube>]", bury),
    Kick(Need::ADMIN_USED, None, "kick ", "<bound>", |args| strtoul32(args.all()).and_then(|bound| long(Long::Kick(Kick::new(bound.into()))))),
    KickJob(Need::ADMIN_JOB, None, "kick-job ", "<id>", |args| args.id().map(Command::KickJob)),
    TouchAll(Need::TAKE_ANY, Some(Extension::Batch), "touch-all", "", |_| long(Long::TouchAll(None))),
    Touch(Need::TAKE_JOB, None, "touch ", "<id> [<n/m>]", touch),
    Wait(Need::FOLLOW_JOB, Some(Extension::Wait), "wait ", "<id> <seconds>", |args| Some(Command::Wait(args.id()?, args.secs()?))),
    FlushTube(Need::ADMIN_NAMED, Some(Extension::Flush), "flush-tube ", "<tube>", |args| long(Long::Flush(Flush::new(args.tube()?, &State::UNFINISHED)))),
    FlushBuried(Need::ADMIN_NAMED, Some(Extension::Flush), "flush-buried ", "<tube>", |args| long(Long::Flush(Flush::new(args.tube()?, &[State::Buried])))),
    Drain(Need::ADMIN_ALL, Some(Extension::Drain), "drain", "", |_| Some(Command::Drain(true))),
    Undrain(Need::ADMIN_ALL, Some(Extension::Drain), "undrain", "", |_| Some(Command::Drain(false))),
    ListJobs(Need::LOOK_NAMED, Some(Extension::ListJobs), "list-jobs ", "<tube> <state> [<above>] [<count>]", list_jobs),
    ListKeys(Need::LOOK_ANY, Some(Extension::Export), "list-keys", " [<from>]", |args| long(Long::ListKeys(PartialList::new(args.first_or(0, Args::number32)?)))),
    ListConnections(Need::LOOK_ANY, Some(Extension::Connections), "list-connections", " [<above>] [<count>]", list_connections),
    ListHistory(Need::LOOK_ANY, Some(Extension::History), "list-history", " [<below>] [<count>]", list_history),
    Name(Need::OPEN, Some(Extension::Connections), "name ", "<tube>", |args| args.tube().filter(|name| name.len() <= MAX_CLIENT_NAME).map(Command::Name)),
    Revoke(Need::ADMIN_JOB, Some(Extension::Revoke), "revoke ", "<id> <pri>", |args| Some(Command::Revoke(args.id()?, args.number32()?))),
    MoveJob(Need::ADMIN_JOB, Some(Extension::Move), "move-job ", "<id> <tube> <pri> <delay>", |args| Some(Command::MoveJob { id: args.id()?, tube: args.next_tube()?, pri: args.number32()?, delay: args.secs()? })),
    MoveTube(Need::ADMIN_NAMED, Some(Extension::Move), "move-tube ", "<tube> <tube> <state> <bound>", move_tube),
    LimitTube(Need::ADMIN_NAMED, Some(Extension::Limit), "limit-tube ", "<tube> <count> [<normal> <low>]", limit_tube),
    SetTube(Need::ADMIN_NAMED, Some(Extension::SetTube), "set-tube ", "<tube> [try:<count>:<seconds>] [ttl:<seconds>] [dead:<tube>] [max:<count>] [rate:<count>/<seconds>] [limit:<count>:<normal>:<low>]", |args| Some(Command::SetTube { tube: args.next_tube()?, settings: Box::new(read_settings(args.all())?) })),
    Fail(Need::TAKE_JOB, Some(Extension::Fail), "fail ", "<id> <pri> <bytes>", |_| None),
    StatsJob(Need::LOOK_OWN_JOB, None, "stats-job ", "<id>", |args| args.id().map(Command::StatsJob)),
    StatsGroup(Need::LOOK_NAMED, Some(Extension::Grp), "stats-group ", "<group>", |args| Some(Command::StatsGroup(Some(args.all()).filter(|group| is_tube_name(group))?.into()))),
    StatsTubes(Need::LOOK_ANY, Some(Extension::StatsTubes), "stats-tubes", "", |_| long(Long::StatsTubes(PartialList::new(0)))),
    StatsTube(Need::LOOK_NAMED, None, "stats-tube ", "<tube>", |args| long(Long::StatsTube(FindOldest::new(args.tube()?)))),
    Stats(Need::LOOK_ANY, None, "stats", "", |_| Some(Command::Stats)),
    Use(Need::USE_NAMED, None, "use ", "<tube>", |args| args.tube().map(Command::Use)),
    Watch(Need::TAKE_NAMED, None, "watch ", "<tube> [<weight>]", watch),
    Ignore(Need::OPEN, None, "ignore ", "<tube>", |args| args.tube().map(Command::Ignore)),
    ListTubesWatched(Need::OPEN, None, "list-tubes-watched", "", |_| long(Long::ListTubesWatched(PartialList::new(0)))),
    ListTubeUsed(Need::OPEN, None, "list-tube-used", "", |_| Some(Command::ListTubeUsed)),
    ListTubes(Need::LOOK_ANY, None, "list-tubes", "", |_| long(Long::ListTubes(None))),
    Quit(Need::OPEN, None, "quit", "", |args| { args.all(); Some(Command::Quit) }),
    PauseTube(Need::ADMIN_NAMED, None, "pause-tube", " <tube> <seconds>", pause_tube),
    Auth(Need::OPEN, None, "auth ", "<token>", |args| Some(Command::Auth(Digest::of(args.all())))),
}

const NO_ROW: u8 = u8::MAX;

/// Linked lists of the rows with the same first letter: the first row of each list, and the next row after each row.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which checks each index")]
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

pub fn row_of(line: &[u8], extensions: Extensions) -> Option<&'static CommandRow> {
    let letter = usize::from(line.first()?.wrapping_sub(b'a'));
    let mut index = *CHAINS.0.get(letter)?;
    while let Some(row) = COMMANDS.get(usize::from(index)) {
        if line.starts_with(row.word.as_bytes()) && row.extension.is_none_or(|extension| extensions.has(extension)) {
            return Some(row);
        }
        index = *CHAINS.1.get(usize::from(index))?;
    }
    None
}

/// Returns the length of the longest line, but at least `MAX_LINE`, because beanstalkd allows additional spaces.
const fn longest_line(word: &str, arguments: &str) -> usize {
    let mut length = word.len() + 2;
    let mut arguments = arguments.as_bytes();
    while let [first, rest @ ..] = arguments {
        arguments = rest;
        if *first == b'<' {
            length += match rest {
                [b't', b'u', b'b', b'e', b'>', ..] => 1 + 2 + 4 * MAX_QUOTED_NAME,
                [b'i', b'd', b's', b'>', ..] => MAX_BATCH_LINE,
                // Numbers of at most 64 bits, or shorter words.
                _ => 1 + 20,
            };
        }
    }
    if length < MAX_LINE {
        length = MAX_LINE;
    }
    length
}

impl CommandRow {
    /// Returns the length limit in bytes with CR LF. beanstalkd's commands exceed `MAX_LINE` only with tags or quotes.
    pub fn longest(&self, extensions: Extensions) -> usize {
        match self.name {
            CommandName::Put if extensions != Extensions::NONE => MAX_PUT_LINE,
            CommandName::Put => MAX_LINE,
            _ if self.extension.is_some() || extensions.has(Extension::Quote) => self.longest,
            _ => MAX_LINE,
        }
    }

    /// `is_long` is `true` if the line is longer than `MAX_LINE`.
    pub fn parse(&self, text: &[u8], is_long: bool, extensions: Extensions) -> Option<Command> {
        let mut args = Args { rest: text, extensions };
        let command = (self.parse)(&mut args).filter(|_| args.rest.is_empty());
        command.filter(|_| !is_long || self.extension.is_some() || text.contains(&b'"'))
    }
}

fn long(long: Long) -> Option<Command> {
    Some(Command::Long(Box::new(long)))
}

fn reserve_with_timeout(args: &mut Args) -> Option<Command> {
    let timeout = args.secs().filter(|timeout| timeout.secs() <= i32::MAX as u64)?;
    // beanstalkd ignores text after the timeout.
    args.all();
    Some(Command::Reserve(Some(timeout)))
}

fn reserve_batch(args: &mut Args) -> Option<Command> {
    let count = args.number32().filter(|count| (1..=MAX_BATCH).contains(count))?;
    Some(Command::ReserveBatch(count as usize, args.or(None, |args| args.secs().map(Some))?))
}

fn delete_batch(args: &mut Args) -> Option<Command> {
    let mut ids = vec![args.id()?];
    while !args.rest.is_empty() && ids.len() <= MAX_BATCH as usize {
        ids.push(args.id()?);
    }
    let ids = Some(ids).filter(|ids| ids.len() <= MAX_BATCH as usize)?;
    long(Long::DeleteBatch { ids: ids.into(), at: 0, deleted: 0 })
}

fn bury(args: &mut Args) -> Option<Command> {
    let (id, pri, imports) = (args.id()?, args.number32()?, args.extensions.has(Extension::Export));
    let delay = if imports && args.literal(b" delay:").is_some() { Some(args.number32()?) } else { None };
    let tube = |args: &mut Args| args.literal(b" from:").filter(|()| imports).and_then(|()| args.tube());
    let dead_from = args.or(None, |args| tube(args).map(Some))?;
    Some(Command::Bury { id, pri, delay, dead_from })
}

fn touch(args: &mut Args) -> Option<Command> {
    let id = args.id()?;
    let progress = args.or(None, |args| {
        let done = args.number32().filter(|_| args.extensions.has(Extension::Progress))?;
        args.literal(b"/")?;
        args.number32().filter(|total| *total > 0 && done <= *total).map(|total| Some((done, total)))
    })?;
    Some(Command::Touch(id, progress))
}

fn limit(args: &mut Args) -> Option<usize> {
    let limit = args.or(MAX_BATCH, Args::number32)?;
    (1..=MAX_BATCH).contains(&limit).then_some(limit as usize)
}

fn list_jobs(args: &mut Args) -> Option<Command> {
    args.spaces()?;
    // The empty name stands for all tubes that the client may see.
    let tube = args.literal(b"* ").map_or_else(|| args.tube(), |()| Some(Box::default()))?;
    let (state, above) = (args.state()?, args.or(0, Args::number)?);
    long(Long::ListJobs(IdPage::new(tube, state, above, limit(args)?)))
}

fn list_connections(args: &mut Args) -> Option<Command> {
    let (above, limit) = (args.first_or(0, Args::number32)?, limit(args)?);
    long(Long::ListConnections(ConnectionPage::new(above, limit, PartialList::new(0).text).into()))
}

fn list_history(args: &mut Args) -> Option<Command> {
    let (below, limit) = (args.first_or(u64::MAX, Args::number)?, limit(args)?);
    long(Long::ListHistory(HistoryWalk::new(below, limit, false), PartialList::new(0)))
}

fn move_tube(args: &mut Args) -> Option<Command> {
    let (from, to, state, bound) = (args.next_tube()?, args.next_tube()?, args.state()?, args.number()?);
    let is_movable = matches!(state, State::Ready | State::Delayed | State::Buried);
    long(Long::MoveTube(MoveJobs::new(from, to, Some(state).filter(|_| is_movable)?, bound)))
}

fn limit_tube(args: &mut Args) -> Option<Command> {
    let (tube, high) = (args.next_tube()?, args.number32()?);
    let limits = args.or([high; 3], |args| {
        let lower = (args.number32()?, args.number32()?);
        args.extensions.has(Extension::Export).then_some([high, lower.0, lower.1])
    })?;
    Some(Command::LimitTube { tube, limits: limits.map(|limit| Some(limit).filter(|limit| *limit > 0)) })
}

fn watch(args: &mut Args) -> Option<Command> {
    let tube = args.tube()?;
    let weight = args.or(None, |args| {
        let weight = args.number32().filter(|weight| (1..=9999).contains(weight))?;
        args.extensions.has(Extension::Weight).then_some(Some(weight as u16))
    })?;
    Some(Command::Watch(tube, weight))
}

fn pause_tube(args: &mut Args) -> Option<Command> {
    args.spaces()?;
    if let Some(tube) = args.quoted_tube() {
        return Some(Command::PauseTube { tube, length: args.secs()? });
    }
    let (name, rest) = name_run(args.rest);
    args.rest = rest;
    let length = args.secs()?;
    match name {
        [] => None,
        name if is_tube_name(name) => Some(Command::PauseTube { tube: name.into(), length }),
        // As in beanstalkd, the statistics count this error, but no other malformed line of a command without a body.
        _ => Some(Command::BadFormat),
    }
}

pub struct Args<'a> {
    pub rest: &'a [u8],
    pub extensions: Extensions,
}

impl<'a> Args<'a> {
    fn took<T>(&mut self, (value, rest): (T, &'a [u8])) -> T {
        self.rest = rest;
        value
    }

    pub fn number(&mut self) -> Option<u64> {
        number(self.rest).map(|found| self.took(found))
    }

    pub fn number32(&mut self) -> Option<u32> {
        number32(self.rest).map(|found| self.took(found))
    }

    pub fn id(&mut self) -> Option<JobId> {
        self.number().map(JobId)
    }

    pub fn secs(&mut self) -> Option<Span> {
        self.number32().map(|count| Span::from_secs(count.into()))
    }

    pub fn state(&mut self) -> Option<State> {
        next_word(self.rest).and_then(|found| State::named(self.took(found)))
    }

    /// Parses a name that is quoted or ends at the next space. Does not skip spaces.
    pub fn tube(&mut self) -> Option<Box<[u8]>> {
        if self.rest.starts_with(b"\"") {
            return self.quoted_tube();
        }
        let end = self.rest.iter().position(|&byte| byte == b' ').unwrap_or(self.rest.len());
        let name = self.took(self.rest.split_at(end));
        is_tube_name(name).then(|| name.into())
    }

    pub fn quoted_tube(&mut self) -> Option<Box<[u8]>> {
        let (name, rest) = unquote_name(self.rest).filter(|_| self.extensions.has(Extension::Quote))?;
        (rest.is_empty() || rest.starts_with(b" ")).then(|| self.took((name.into(), rest)))
    }

    pub fn next_tube(&mut self) -> Option<Box<[u8]>> {
        self.spaces()?;
        self.tube()
    }

    pub fn spaces(&mut self) -> Option<()> {
        self.rest = past(self.rest, self.rest.iter().position(|&byte| byte != b' ')?);
        Some(())
    }

    pub fn literal(&mut self, text: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }

    pub fn all(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Returns `absent` if the line has ended.
    pub fn or<T>(&mut self, absent: T, parse: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.rest.is_empty().then_some(absent).or_else(|| parse(self))
    }

    /// Like [`Args::or`], but requires a space before the argument, because the command word does not end with a space.
    pub fn first_or<T>(&mut self, absent: T, parse: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.or(absent, |args| args.literal(b" ").and_then(|()| parse(args)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_belongs_to_the_first_row_whose_word_it_begins_with() {
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
    fn word_that_begins_another_comes_after_it() {
        for (index, row) in COMMANDS.iter().enumerate() {
            let hidden = COMMANDS[..index].iter().find(|before| row.word.starts_with(before.word));
            assert!(hidden.is_none(), "{:?} is unreachable", row.word);
        }
    }
}

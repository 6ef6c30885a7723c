//! The table of Gearman packets: their numbers, names, arguments, and parsers.
//!
//! Owns the words. The decoder, the man page and the tests use it. Numbers and arguments follow the protocol document,
//! and from 37 on gearmand's `libgearman/command.hpp`.

use std::num::NonZeroU64;

use super::command::{Command, Submission, When, Work};
use super::kind::Kind;
use super::names::{MAX_CLIENT_ID, MAX_FUNCTION, MAX_UNIQUE};
use super::reply::{self, Fault};
use super::schedule;
use crate::access::Need;
use crate::engine::{Body, DedupKey, Priority, Span, Time, PRIORITY_CLASSES};
use crate::protocol::text::{strtoll, upto};

pub type Parse = fn(&[&[u8]]) -> Result<Command, Fault>;

pub struct Packet {
    /// The packet; rows are in the order of their numbers.
    pub kind: Kind,
    pub need: Need,
    /// The packet's name in the protocol document.
    pub name: &'static str,
    /// The arguments of a request. Each ends with a NUL, except the last one, which ends with the body, unless data
    /// follow.
    pub arguments: &'static [&'static str],
    /// The rest of the body, after the arguments, is opaque data.
    pub data: bool,
    /// Parses the arguments, whose number was checked; the data are added later. `None`: the server does not accept the
    /// packet.
    pub parse: Option<Parse>,
    pub summary: &'static str,
}

const HIGH: Priority = PRIORITY_CLASSES[0];
const NORMAL: Priority = PRIORITY_CLASSES[1];
const LOW: Priority = PRIORITY_CLASSES[2];

const fn takes(
    kind: Kind,
    need: Need,
    name: &'static str,
    arguments: &'static [&'static str],
    parse: Parse,
    summary: &'static str,
) -> Packet {
    Packet { kind, need, name, arguments, data: false, parse: Some(parse), summary }
}

/// Returns the packet with data after the arguments.
const fn with_data(packet: Packet) -> Packet {
    Packet { data: true, ..packet }
}

const fn sends(kind: Kind, name: &'static str, summary: &'static str) -> Packet {
    Packet { kind, need: Need::OPEN, name, arguments: &[], data: false, parse: None, summary }
}

const SUBMIT: &[&str] = &["function", "unique"];
const REDUCE: &[&str] = &["function", "unique", "reducer", "aggregator"];
const SCHED: &[&str] = &["function", "unique", "minute", "hour", "day-of-month", "month", "day-of-week"];
const HANDLE: &[&str] = &["handle"];

#[rustfmt::skip]
pub const PACKETS: [Packet; 42] = [
    takes(Kind::CanDo, Need::TAKE_NAMED, "CAN_DO", &["function"], |args| can_do(arg(args, 0), None), "register a function that the worker can execute"),
    takes(Kind::CantDo, Need::OPEN, "CANT_DO", &["function"], |args| function(arg(args, 0)).map(Command::CantDo), "unregister a function"),
    takes(Kind::ResetAbilities, Need::OPEN, "RESET_ABILITIES", &[], |_| Ok(Command::ResetAbilities), "unregister all functions"),
    takes(Kind::PreSleep, Need::TAKE_ANY, "PRE_SLEEP", &[], |_| Ok(Command::PreSleep), "wake the worker when there is a job for it"),
    sends(Kind::Unused, "UNUSED", "nothing"),
    sends(Kind::Noop, "NOOP", "there may be a job for the worker"),
    with_data(takes(Kind::SubmitJob, Need::PUT_NAMED, "SUBMIT_JOB", SUBMIT, |args| submit(args, NORMAL, false), "submit a job and wait for its result")),
    sends(Kind::JobCreated, "JOB_CREATED", "the handle of the submitted job"),
    takes(Kind::GrabJob, Need::TAKE_ANY, "GRAB_JOB", &[], |_| Ok(Command::Grab(Kind::JobAssign)), "request a job"),
    sends(Kind::NoJob, "NO_JOB", "no job is available"),
    sends(Kind::JobAssign, "JOB_ASSIGN", "handle, function and data of a job"),
    takes(Kind::WorkStatus, Need::TAKE_JOB, "WORK_STATUS", &["handle", "numerator", "denominator"], work_status, "report the progress of a job"),
    with_data(takes(Kind::WorkComplete, Need::TAKE_JOB, "WORK_COMPLETE", HANDLE, |args| work(args, Kind::WorkComplete), "report that a job has succeeded, with its result")),
    takes(Kind::WorkFail, Need::TAKE_JOB, "WORK_FAIL", HANDLE, |args| work(args, Kind::WorkFail), "report that a job has failed"),
    takes(Kind::GetStatus, Need::FOLLOW_JOB, "GET_STATUS", HANDLE, |args| Ok(Command::GetStatus(last(args).into())), "request the status of a job"),
    with_data(takes(Kind::EchoReq, Need::OPEN, "ECHO_REQ", &[], |_| Ok(Command::Echo(Body::default())), "request the same data back")),
    sends(Kind::EchoRes, "ECHO_RES", "the data of ECHO_REQ"),
    with_data(takes(Kind::SubmitJobBg, Need::PUT_NAMED, "SUBMIT_JOB_BG", SUBMIT, |args| submit(args, NORMAL, true), "submit a background job, whose result no client waits for")),
    sends(Kind::Error, "ERROR", "code and text of an error"),
    sends(Kind::StatusRes, "STATUS_RES", "handle, known, running, numerator and denominator"),
    with_data(takes(Kind::SubmitJobHigh, Need::PUT_NAMED, "SUBMIT_JOB_HIGH", SUBMIT, |args| submit(args, HIGH, false), "SUBMIT_JOB with high priority")),
    takes(Kind::SetClientId, Need::OPEN, "SET_CLIENT_ID", &["id"], |args| Ok(Command::SetClientId(client_id(args))), "set the name of the connection in the text command workers"),
    takes(Kind::CanDoTimeout, Need::TAKE_NAMED, "CAN_DO_TIMEOUT", &["function", "timeout"], |args| can_do(arg(args, 0), limit(arg(args, 1))), "CAN_DO with a timeout for each job"),
    sends(Kind::AllYours, "ALL_YOURS", "nothing; no server has ever taken it"),
    with_data(takes(Kind::WorkException, Need::TAKE_JOB, "WORK_EXCEPTION", HANDLE, |args| work(args, Kind::WorkException), "report that a job has failed, with the reason")),
    takes(Kind::OptionReq, Need::OPEN, "OPTION_REQ", &["option"], |args| Ok(Command::Option(last(args).into())), "set an option of the connection; the only option is exceptions"),
    sends(Kind::OptionRes, "OPTION_RES", "the option that was set"),
    with_data(takes(Kind::WorkData, Need::TAKE_JOB, "WORK_DATA", HANDLE, |args| work(args, Kind::WorkData), "send a part of the result")),
    with_data(takes(Kind::WorkWarning, Need::TAKE_JOB, "WORK_WARNING", HANDLE, |args| work(args, Kind::WorkWarning), "send a warning about the job")),
    takes(Kind::GrabJobUniq, Need::TAKE_ANY, "GRAB_JOB_UNIQ", &[], |_| Ok(Command::Grab(Kind::JobAssignUniq)), "request a job with its unique ID"),
    sends(Kind::JobAssignUniq, "JOB_ASSIGN_UNIQ", "handle, function, unique ID and data of a job"),
    with_data(takes(Kind::SubmitJobHighBg, Need::PUT_NAMED, "SUBMIT_JOB_HIGH_BG", SUBMIT, |args| submit(args, HIGH, true), "SUBMIT_JOB_BG with high priority")),
    with_data(takes(Kind::SubmitJobLow, Need::PUT_NAMED, "SUBMIT_JOB_LOW", SUBMIT, |args| submit(args, LOW, false), "SUBMIT_JOB with low priority")),
    with_data(takes(Kind::SubmitJobLowBg, Need::PUT_NAMED, "SUBMIT_JOB_LOW_BG", SUBMIT, |args| submit(args, LOW, true), "SUBMIT_JOB_BG with low priority")),
    with_data(takes(Kind::SubmitJobSched, Need::PUT_NAMED, "SUBMIT_JOB_SCHED", SCHED, scheduled, "SUBMIT_JOB_BG for the next matching minute")),
    with_data(takes(Kind::SubmitJobEpoch, Need::PUT_NAMED, "SUBMIT_JOB_EPOCH", &["function", "unique", "time"], epoch, "SUBMIT_JOB_BG for a Unix time in seconds")),
    with_data(takes(Kind::SubmitReduceJob, Need::PUT_NAMED, "SUBMIT_REDUCE_JOB", REDUCE, |args| reduce(args, false), "SUBMIT_JOB with a reducer")),
    with_data(takes(Kind::SubmitReduceJobBackground, Need::PUT_NAMED, "SUBMIT_REDUCE_JOB_BACKGROUND", REDUCE, |args| reduce(args, true), "SUBMIT_JOB_BG with a reducer")),
    takes(Kind::GrabJobAll, Need::TAKE_ANY, "GRAB_JOB_ALL", &[], |_| Ok(Command::Grab(Kind::JobAssignAll)), "request a job with its unique ID and its reducer, if any"),
    sends(Kind::JobAssignAll, "JOB_ASSIGN_ALL", "handle, function, unique ID, reducer and data of a job"),
    takes(Kind::GetStatusUnique, Need::FOLLOW_JOB, "GET_STATUS_UNIQUE", &["unique"], |args| Ok(Command::GetStatusUnique(last(args).into())), "request the status of the job with this unique ID"),
    sends(Kind::StatusResUnique, "STATUS_RES_UNIQUE", "unique ID, known, running, numerator, denominator and number of waiting clients"),
];

/// Returns the row of a number on the wire.
pub fn packet(number: u32) -> Option<&'static Packet> {
    PACKETS.get((number as usize).wrapping_sub(1))
}

/// Returns an argument; the row defines how many there are.
fn arg<'a>(args: &[&'a [u8]], place: usize) -> &'a [u8] {
    args.get(place).copied().unwrap_or_default()
}

/// Returns the last argument, which some clients end with a NUL although the body's length determines its end.
fn last<'a>(args: &[&'a [u8]]) -> &'a [u8] {
    let last = args.last().copied().unwrap_or_default();
    last.strip_suffix(b"\0").unwrap_or(last)
}

fn function(name: &[u8]) -> Result<Box<[u8]>, Fault> {
    let name = name.strip_suffix(b"\0").unwrap_or(name);
    match name {
        name if name.is_empty() || name.contains(&0) => Err(reply::WRONG_FUNCTION),
        name if name.len() > MAX_FUNCTION => Err(reply::LARGE_FUNCTION),
        name => Ok(name.into()),
    }
}

fn can_do(name: &[u8], limit: Option<NonZeroU64>) -> Result<Command, Fault> {
    Ok(Command::CanDo { function: function(name)?, limit })
}

/// Invalid numbers, zero and negative numbers mean no limit.
fn limit(text: &[u8]) -> Option<NonZeroU64> {
    strtoll(text).filter(|number| *number > 0).and_then(|number| NonZeroU64::new(number as u64))
}

fn submission(args: &[&[u8]], pri: Priority, background: bool) -> Result<Submission, Fault> {
    let unique = match arg(args, 1) {
        b"" => DedupKey::None,
        b"-" => DedupKey::Body(None),
        name if name.len() > MAX_UNIQUE => return Err(reply::LARGE_UNIQUE),
        name => DedupKey::Name(name.into()),
    };
    let (function, body) = (function(arg(args, 0))?, Body::default());
    Ok(Submission { function, unique, pri, background, when: When::Now, reducer: None, body })
}

fn submit(args: &[&[u8]], pri: Priority, background: bool) -> Result<Command, Fault> {
    Ok(Command::Submit(Box::new(submission(args, pri, background)?)))
}

/// A time that is past or invalid means now.
fn epoch(args: &[&[u8]]) -> Result<Command, Fault> {
    let mut submission = submission(args, NORMAL, true)?;
    if let Some(secs) = strtoll(arg(args, 2)).filter(|secs| *secs > 0) {
        submission.when = When::At(Time::from_nanos(0) + Span::from_secs(secs as u64));
    }
    Ok(Command::Submit(Box::new(submission)))
}

fn scheduled(args: &[&[u8]]) -> Result<Command, Fault> {
    let mut submission = submission(args, NORMAL, true)?;
    let fields = [2, 3, 4, 5, 6].map(|place| arg(args, place));
    submission.when = When::On(schedule::parse(fields).ok_or(reply::WRONG_SCHEDULE)?);
    Ok(Command::Submit(Box::new(submission)))
}

/// The aggregator is ignored, as by every other server.
fn reduce(args: &[&[u8]], background: bool) -> Result<Command, Fault> {
    let mut submission = submission(args, NORMAL, background)?;
    if arg(args, 2).len() > MAX_FUNCTION {
        return Err(reply::LARGE_REDUCER);
    }
    submission.reducer = Some(arg(args, 2).into());
    Ok(Command::Submit(Box::new(submission)))
}

fn work(args: &[&[u8]], kind: Kind) -> Result<Command, Fault> {
    Ok(Command::Work(Work { kind, handle: last(args).into(), body: Body::default() }))
}

/// The two numbers are forwarded unchanged, with the NUL between them.
fn work_status(args: &[&[u8]]) -> Result<Command, Fault> {
    let text = [arg(args, 1), last(args)].join(&0);
    Ok(Command::Work(Work { kind: Kind::WorkStatus, handle: arg(args, 0).into(), body: Body::from(text) }))
}

fn client_id(args: &[&[u8]]) -> Box<[u8]> {
    let id = last(args);
    upto(id, MAX_CLIENT_ID).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_the_order_of_their_numbers() {
        for (place, row) in PACKETS.iter().enumerate() {
            assert_eq!(row.kind as usize, place + 1, "{}", row.name);
            assert!(!row.summary.is_empty());
            assert!(row.parse.is_some() || (row.arguments.is_empty() && !row.data), "{}", row.name);
        }
        assert!(packet(0).is_none() && packet(43).is_none() && packet(u32::MAX).is_none());
        assert_eq!(packet(42).map(|row| row.kind), Some(Kind::StatusResUnique));
    }

    #[test]
    fn no_arguments_make_a_parser_panic() {
        let odd: [&[u8]; 6] = [b"", b"\0", b"a", b"-1", b"99999999999999999999", &[b'x'; 9000]];
        for row in &PACKETS {
            let Some(parse) = row.parse else { continue };
            for text in odd {
                drop(parse(&vec![text; row.arguments.len()]));
            }
        }
    }

    #[test]
    fn a_limit_is_a_number_above_zero() {
        for (text, number) in [("5", 5), ("1500", 1500), ("1500\0", 1500), ("99999999999999999999", i64::MAX as u64)] {
            assert_eq!(limit(text.as_bytes()), NonZeroU64::new(number), "{text:?}");
        }
        for none in ["0", "-1", "x", ""] {
            assert_eq!(limit(none.as_bytes()), None, "{none:?}");
        }
    }

    #[test]
    fn names_have_their_bounds() {
        assert!(function(&[b'f'; MAX_FUNCTION]).is_ok());
        assert_eq!(function(&[b'f'; MAX_FUNCTION + 1]), Err(reply::LARGE_FUNCTION));
        assert_eq!(function(b""), Err(reply::WRONG_FUNCTION));
        assert_eq!(function(b"a\0b"), Err(reply::WRONG_FUNCTION));
        assert_eq!(function(b"a\0").as_deref(), Ok(b"a".as_slice()));
        let unique = |length| submission(&[b"f", &vec![b'u'; length]], NORMAL, false).map(|it| it.unique);
        assert!(matches!(unique(64), Ok(DedupKey::Name(name)) if name.length() == 64));
        assert_eq!(unique(65), Err(reply::LARGE_UNIQUE));
    }
}

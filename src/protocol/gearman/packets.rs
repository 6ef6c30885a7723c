//! The table of Gearman packets: numbers, names, arguments and parsers.
//!
//! Owns the names and arguments of packets. Packets up to number 36 follow the protocol document, and later packets
//! follow gearmand's `libgearman/command.hpp`. Must not execute packets.

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
    pub kind: Kind,
    pub need: Need,
    pub name: &'static str,
    /// The arguments of a request, separated by NUL bytes. If data follow, the last argument also ends with a NUL byte.
    pub arguments: &'static [&'static str],
    /// `true` if opaque data follow the arguments.
    pub data: bool,
    /// Parses the arguments, after the decoder has checked their number. `None` for packets that only the server sends.
    pub parse: Option<Parse>,
    pub summary: &'static str,
}

const HIGH: Priority = PRIORITY_CLASSES[0];
const NORMAL: Priority = PRIORITY_CLASSES[1];
const LOW: Priority = PRIORITY_CLASSES[2];

/// The required rights, `true` if data follow the arguments, and the parser. The parser is `None` if clients cannot
/// send the packet.
type Accepted = (Need, bool, Option<Parse>);

const fn accepted(need: Need, parse: Parse) -> Accepted {
    (need, false, Some(parse))
}

const fn with_data(need: Need, parse: Parse) -> Accepted {
    (need, true, Some(parse))
}

/// A packet that only the server sends.
const SENT: Accepted = (Need::OPEN, false, None);

const fn row(
    kind: Kind,
    name: &'static str,
    (need, data, parse): Accepted,
    arguments: &'static [&'static str],
    summary: &'static str,
) -> Packet {
    Packet { kind, need, name, arguments, data, parse, summary }
}

const SUBMIT: &[&str] = &["function", "unique"];
const REDUCE: &[&str] = &["function", "unique", "reducer", "aggregator"];
const SCHED: &[&str] = &["function", "unique", "minute", "hour", "day-of-month", "month", "day-of-week"];
const HANDLE: &[&str] = &["handle"];

#[rustfmt::skip]
pub const PACKETS: [Packet; 42] = [
    row(Kind::CanDo, "CAN_DO", accepted(Need::TAKE_NAMED, |args| can_do(arg(args, 0), None)), &["function"], "register a function that the worker can execute"),
    row(Kind::CantDo, "CANT_DO", accepted(Need::OPEN, |args| function(arg(args, 0)).map(Command::CantDo)), &["function"], "unregister a function"),
    row(Kind::ResetAbilities, "RESET_ABILITIES", accepted(Need::OPEN, |_| Ok(Command::ResetAbilities)), &[], "unregister all functions"),
    row(Kind::PreSleep, "PRE_SLEEP", accepted(Need::TAKE_ANY, |_| Ok(Command::PreSleep)), &[], "wake the worker when there is a job for it"),
    row(Kind::Unused, "UNUSED", SENT, &[], "nothing"),
    row(Kind::Noop, "NOOP", SENT, &[], "there may be a job for the worker"),
    row(Kind::SubmitJob, "SUBMIT_JOB", with_data(Need::PUT_NAMED, |args| submit(args, NORMAL, false)), SUBMIT, "submit a job and wait for its result"),
    row(Kind::JobCreated, "JOB_CREATED", SENT, &[], "the handle of the submitted job"),
    row(Kind::GrabJob, "GRAB_JOB", accepted(Need::TAKE_ANY, |_| Ok(Command::Grab(Kind::JobAssign))), &[], "request a job"),
    row(Kind::NoJob, "NO_JOB", SENT, &[], "no job is available"),
    row(Kind::JobAssign, "JOB_ASSIGN", SENT, &[], "handle, function and data of a job"),
    row(Kind::WorkStatus, "WORK_STATUS", accepted(Need::TAKE_JOB, work_status), &["handle", "numerator", "denominator"], "report the progress of a job"),
    row(Kind::WorkComplete, "WORK_COMPLETE", with_data(Need::TAKE_JOB, |args| work(args, Kind::WorkComplete)), HANDLE, "report that a job has succeeded, with its result"),
    row(Kind::WorkFail, "WORK_FAIL", accepted(Need::TAKE_JOB, |args| work(args, Kind::WorkFail)), HANDLE, "report that a job has failed"),
    row(Kind::GetStatus, "GET_STATUS", accepted(Need::FOLLOW_JOB, |args| Ok(Command::GetStatus(last(args).into()))), HANDLE, "request the status of a job"),
    row(Kind::EchoReq, "ECHO_REQ", with_data(Need::OPEN, |_| Ok(Command::Echo(Body::default()))), &[], "request the same data back"),
    row(Kind::EchoRes, "ECHO_RES", SENT, &[], "the data of ECHO_REQ"),
    row(Kind::SubmitJobBg, "SUBMIT_JOB_BG", with_data(Need::PUT_NAMED, |args| submit(args, NORMAL, true)), SUBMIT, "submit a background job, whose result no client waits for"),
    row(Kind::Error, "ERROR", SENT, &[], "code and text of an error"),
    row(Kind::StatusRes, "STATUS_RES", SENT, &[], "handle, known, running, numerator and denominator"),
    row(Kind::SubmitJobHigh, "SUBMIT_JOB_HIGH", with_data(Need::PUT_NAMED, |args| submit(args, HIGH, false)), SUBMIT, "SUBMIT_JOB with high priority"),
    row(Kind::SetClientId, "SET_CLIENT_ID", accepted(Need::OPEN, |args| Ok(Command::SetClientId(client_id(args)))), &["id"], "set the name of the connection in the text command workers"),
    row(Kind::CanDoTimeout, "CAN_DO_TIMEOUT", accepted(Need::TAKE_NAMED, |args| can_do(arg(args, 0), limit(arg(args, 1)))), &["function", "timeout"], "CAN_DO with a timeout for each job"),
    row(Kind::AllYours, "ALL_YOURS", SENT, &[], "nothing; no server has ever taken it"),
    row(Kind::WorkException, "WORK_EXCEPTION", with_data(Need::TAKE_JOB, |args| work(args, Kind::WorkException)), HANDLE, "report that a job has failed, with the reason"),
    row(Kind::OptionReq, "OPTION_REQ", accepted(Need::OPEN, |args| Ok(Command::Option(last(args).into()))), &["option"], "set an option of the connection; the only option is exceptions"),
    row(Kind::OptionRes, "OPTION_RES", SENT, &[], "the option that was set"),
    row(Kind::WorkData, "WORK_DATA", with_data(Need::TAKE_JOB, |args| work(args, Kind::WorkData)), HANDLE, "send a part of the result"),
    row(Kind::WorkWarning, "WORK_WARNING", with_data(Need::TAKE_JOB, |args| work(args, Kind::WorkWarning)), HANDLE, "send a warning about the job"),
    row(Kind::GrabJobUniq, "GRAB_JOB_UNIQ", accepted(Need::TAKE_ANY, |_| Ok(Command::Grab(Kind::JobAssignUniq))), &[], "request a job with its unique ID"),
    row(Kind::JobAssignUniq, "JOB_ASSIGN_UNIQ", SENT, &[], "handle, function, unique ID and data of a job"),
    row(Kind::SubmitJobHighBg, "SUBMIT_JOB_HIGH_BG", with_data(Need::PUT_NAMED, |args| submit(args, HIGH, true)), SUBMIT, "SUBMIT_JOB_BG with high priority"),
    row(Kind::SubmitJobLow, "SUBMIT_JOB_LOW", with_data(Need::PUT_NAMED, |args| submit(args, LOW, false)), SUBMIT, "SUBMIT_JOB with low priority"),
    row(Kind::SubmitJobLowBg, "SUBMIT_JOB_LOW_BG", with_data(Need::PUT_NAMED, |args| submit(args, LOW, true)), SUBMIT, "SUBMIT_JOB_BG with low priority"),
    row(Kind::SubmitJobSched, "SUBMIT_JOB_SCHED", with_data(Need::PUT_NAMED, scheduled), SCHED, "SUBMIT_JOB_BG for the next matching minute"),
    row(Kind::SubmitJobEpoch, "SUBMIT_JOB_EPOCH", with_data(Need::PUT_NAMED, epoch), &["function", "unique", "time"], "SUBMIT_JOB_BG for a Unix time in seconds"),
    row(Kind::SubmitReduceJob, "SUBMIT_REDUCE_JOB", with_data(Need::PUT_NAMED, |args| reduce(args, false)), REDUCE, "SUBMIT_JOB with a reducer"),
    row(Kind::SubmitReduceJobBackground, "SUBMIT_REDUCE_JOB_BACKGROUND", with_data(Need::PUT_NAMED, |args| reduce(args, true)), REDUCE, "SUBMIT_JOB_BG with a reducer"),
    row(Kind::GrabJobAll, "GRAB_JOB_ALL", accepted(Need::TAKE_ANY, |_| Ok(Command::Grab(Kind::JobAssignAll))), &[], "request a job with its unique ID and its reducer, if any"),
    row(Kind::JobAssignAll, "JOB_ASSIGN_ALL", SENT, &[], "handle, function, unique ID, reducer and data of a job"),
    row(Kind::GetStatusUnique, "GET_STATUS_UNIQUE", accepted(Need::FOLLOW_JOB, |args| Ok(Command::GetStatusUnique(last(args).into()))), &["unique"], "request the status of the job with this unique ID"),
    row(Kind::StatusResUnique, "STATUS_RES_UNIQUE", SENT, &[], "unique ID, known, running, numerator, denominator and number of waiting clients"),
];

pub fn packet(number: u32) -> Option<&'static Packet> {
    PACKETS.get((number as usize).wrapping_sub(1))
}

fn arg<'a>(args: &[&'a [u8]], index: usize) -> &'a [u8] {
    args.get(index).copied().unwrap_or_default()
}

/// Returns the last argument without a trailing NUL byte, which some clients add.
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

/// Parses a time limit. Returns `None`, which means no limit, unless the number is positive.
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

/// Parses SUBMIT_JOB_EPOCH. A job with an invalid time starts immediately.
fn epoch(args: &[&[u8]]) -> Result<Command, Fault> {
    let mut submission = submission(args, NORMAL, true)?;
    if let Some(secs) = strtoll(arg(args, 2)).filter(|secs| *secs > 0) {
        submission.when = When::At(Time::from_nanos(0) + Span::from_secs(secs as u64));
    }
    Ok(Command::Submit(Box::new(submission)))
}

fn scheduled(args: &[&[u8]]) -> Result<Command, Fault> {
    let mut submission = submission(args, NORMAL, true)?;
    let fields = [2, 3, 4, 5, 6].map(|index| arg(args, index));
    submission.when = When::On(schedule::parse(fields).ok_or(reply::WRONG_SCHEDULE)?);
    Ok(Command::Submit(Box::new(submission)))
}

/// Parses SUBMIT_REDUCE_JOB and SUBMIT_REDUCE_JOB_BACKGROUND. The aggregator is ignored.
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

/// Parses WORK_STATUS. The body keeps the two numbers as sent, separated by a NUL byte.
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
    fn packets_are_found_by_their_numbers() {
        for row in &PACKETS {
            assert_eq!(packet(row.kind as u32).map(|row| row.name), Some(row.name));
            assert!(!row.summary.is_empty());
            assert!(row.parse.is_some() || (row.arguments.is_empty() && !row.data), "{}", row.name);
        }
        assert!(packet(0).is_none() && packet(43).is_none() && packet(u32::MAX).is_none());
        assert_eq!(packet(42).map(|row| row.kind), Some(Kind::StatusResUnique));
    }

    #[test]
    fn parsers_do_not_panic_on_any_arguments() {
        let odd: [&[u8]; 6] = [b"", b"\0", b"a", b"-1", b"99999999999999999999", &[b'x'; 9000]];
        for row in &PACKETS {
            let Some(parse) = row.parse else { continue };
            for text in odd {
                drop(parse(&vec![text; row.arguments.len()]));
            }
        }
    }

    #[test]
    fn limit_is_a_positive_number() {
        for (text, number) in [("5", 5), ("1500", 1500), ("1500\0", 1500), ("99999999999999999999", i64::MAX as u64)] {
            assert_eq!(limit(text.as_bytes()), NonZeroU64::new(number), "{text:?}");
        }
        for none in ["0", "-1", "x", ""] {
            assert_eq!(limit(none.as_bytes()), None, "{none:?}");
        }
    }

    #[test]
    fn lengths_of_names_are_limited() {
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

//! The parsers of Gearman packets.

use std::num::NonZeroU64;

use super::command::{Command, Submission, When, Work};
use super::kind::Kind;
use super::names::{MAX_CLIENT_ID, MAX_FUNCTION, MAX_UNIQUE};
use super::reply::{self, Fault};
use super::schedule;
use crate::engine::{Body, DedupKey, NameSearch, Priority, Span, Time, PRIORITY_CLASSES};
use crate::protocol::text::{strtoll, upto};

const HIGH: Priority = PRIORITY_CLASSES[0];
const NORMAL: Priority = PRIORITY_CLASSES[1];
const LOW: Priority = PRIORITY_CLASSES[2];

/// The decoder has checked the number of arguments, and adds the data later.
pub fn parse(kind: Kind, args: &[&[u8]]) -> Result<Command, Fault> {
    match kind {
        Kind::CanDo => can_do(arg(args, 0), None),
        Kind::CantDo => function(arg(args, 0)).map(Command::CantDo),
        Kind::ResetAbilities => Ok(Command::ResetAbilities),
        Kind::PreSleep => Ok(Command::PreSleep),
        Kind::SubmitJob => submit(args, NORMAL, false),
        Kind::GrabJob => Ok(Command::Grab(Kind::JobAssign)),
        Kind::WorkStatus => work_status(args),
        Kind::WorkComplete | Kind::WorkFail | Kind::WorkException | Kind::WorkData | Kind::WorkWarning => {
            work(args, kind)
        }
        Kind::GetStatus => Ok(Command::GetStatus(last(args).into())),
        Kind::EchoReq => Ok(Command::Echo(Body::default())),
        Kind::SubmitJobBg => submit(args, NORMAL, true),
        Kind::SubmitJobHigh => submit(args, HIGH, false),
        Kind::SetClientId => Ok(Command::SetClientId(upto(last(args), MAX_CLIENT_ID).into())),
        Kind::CanDoTimeout => can_do(arg(args, 0), limit(arg(args, 1))),
        Kind::OptionReq => Ok(Command::Option(last(args).into())),
        Kind::GrabJobUniq => Ok(Command::Grab(Kind::JobAssignUniq)),
        Kind::SubmitJobHighBg => submit(args, HIGH, true),
        Kind::SubmitJobLow => submit(args, LOW, false),
        Kind::SubmitJobLowBg => submit(args, LOW, true),
        Kind::SubmitJobSched => scheduled(args),
        Kind::SubmitJobEpoch => epoch(args),
        Kind::SubmitReduceJob => reduce(args, false),
        Kind::SubmitReduceJobBackground => reduce(args, true),
        Kind::GrabJobAll => Ok(Command::Grab(Kind::JobAssignAll)),
        Kind::GetStatusUnique => Ok(Command::GetStatusUnique(last(args).into(), NameSearch::default())),
        _ => Err(reply::NOT_A_REQUEST),
    }
}

fn arg<'a>(args: &[&'a [u8]], index: usize) -> &'a [u8] {
    args.get(index).copied().unwrap_or_default()
}

/// Omits a trailing NUL byte, which some clients add.
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

/// `None` means no time limit: the number is 0, negative or invalid.
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

/// A job with an invalid time starts immediately.
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

/// Ignores the aggregator of the packet.
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

/// The body contains both numbers as sent, separated by a NUL byte.
fn work_status(args: &[&[u8]]) -> Result<Command, Fault> {
    let text = [arg(args, 1), last(args)].join(&0);
    Ok(Command::Work(Work { kind: Kind::WorkStatus, handle: arg(args, 0).into(), body: Body::from(text) }))
}

#[cfg(test)]
mod tests {
    use super::super::kind::PACKETS;
    use super::*;

    #[test]
    fn parsers_do_not_panic_on_any_arguments() {
        let odd: [&[u8]; 6] = [b"", b"\0", b"a", b"-1", b"99999999999999999999", &[b'x'; 9000]];
        for row in &PACKETS {
            for text in odd {
                let parsed = parse(row.kind, &vec![text; row.arguments.len()]);
                let is_response = matches!(parsed, Err(reply::NOT_A_REQUEST));
                assert_eq!(is_response, !row.is_request, "{}", row.name);
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

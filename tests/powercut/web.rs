//! Commands that clients send over HTTP.
//!
//! Owns the requests, and the conversion of responses into the replies to the corresponding beanstalk commands. Must
//! not choose commands.

use std::io::Result;

use crate::act::{Act, Reply, LONG};
use crate::book::Book;
use crate::change::{Body, Change};
use crate::talk::Talk;

/// The largest body of a job that is put over HTTP.
pub const LARGEST: usize = 3000;

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn text(body: &Body) -> String {
    String::from_utf8(body.bytes()).expect("an ASCII body")
}

pub fn bytes(act: &Act) -> Vec<u8> {
    let tubes = |tube: &str, word: &str| format!("/api/tubes/{tube}/{word}");
    let jobs = |key: &str, word: &str| format!("/api/jobs/{key}/{word}");
    let (path, object) = match act {
        Act::Put { tube, pri, delay, body, tags } => {
            let (body, tags) = (quoted(&text(body)), quoted(tags));
            let terms = format!("\"pri\":{pri},\"delay\":{delay},\"ttr\":{LONG}");
            (tubes(tube, "put"), format!("\"body\":{body},{terms},\"tags\":{tags}"))
        }
        Act::Kick { tube, bound } => (tubes(tube, "kick"), format!("\"count\":{bound}")),
        Act::Pause { tube, seconds } => (tubes(tube, "pause"), format!("\"seconds\":{seconds}")),
        Act::Set { tube, settings } => (tubes(tube, "settings"), format!("\"settings\":{}", quoted(settings))),
        Act::Flush { tube, states } if states == "free" => (tubes(tube, "clear"), String::new()),
        Act::Flush { tube, states } => (tubes(tube, "clear"), format!("\"state\":{}", quoted(states))),
        Act::MoveTube { from, to, state, bound } => {
            (tubes(from, "move"), format!("\"to\":{},\"state\":{},\"count\":{bound}", quoted(to), quoted(state)))
        }
        Act::Sweep { tube, reason, remedy, to } => {
            let to = if to.is_empty() { String::new() } else { format!(",\"to\":{}", quoted(to)) };
            (tubes(tube, &format!("failed/{remedy}")), format!("\"reason\":{}{to}", quoted(reason)))
        }
        Act::Delete(key) => (jobs(key, "delete"), String::new()),
        Act::KickJob(key) => (jobs(key, "kick"), String::new()),
        Act::Revoke { key, .. } => (jobs(key, "revoke"), String::new()),
        Act::BuryFree(key) => (jobs(key, "bury"), String::new()),
        Act::Shift { key, tube } => (jobs(key, "move"), format!("\"to\":{}", quoted(tube))),
        _ => unreachable!("not an HTTP command: {act:?}"),
    };
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nX-Beanpole: 1\r\nContent-Type: application/json");
    format!("{head}\r\nContent-Length: {}\r\n\r\n{{{object}}}", object.len() + 2).into_bytes()
}

/// Converts a response into the reply to the corresponding beanstalk command.
pub fn read(act: &Act, talk: &mut Talk) -> Result<Reply> {
    let (status, body) = talk.response()?;
    let number = |key: &&str| {
        let rest = body.split(&format!("\"{key}\":")).nth(1)?;
        Some(rest.chars().take_while(char::is_ascii_digit).collect::<String>())
    };
    let found = ["id", "kicked", "deleted", "moved"].iter().find_map(number);
    let word = act.word().trim_end();
    let line = match &found {
        _ if status != 200 => format!("HTTP {status} {body}"),
        Some(number) => format!("{word} {number}"),
        None => word.to_owned(),
    };
    let key = found.filter(|_| matches!(act, Act::Put { .. })).unwrap_or_default();
    Ok(Reply { line, key })
}

/// Returns the changes that a command without a beanstalk form makes.
pub fn expected(act: &Act, book: &Book) -> Vec<Change> {
    match act {
        Act::BuryFree(key) => {
            vec![Change::Reserve { key: key.clone() }, Change::Bury { key: key.clone(), pri: book.terms(key).0 }]
        }
        Act::Shift { key, tube } => vec![Change::Shift { key: key.clone(), tube: tube.clone() }],
        Act::Sweep { tube, reason, remedy, to } => swept(book, tube, reason, remedy, to),
        _ => Vec::new(),
    }
}

/// Buried jobs that must not enter the other tube are not moved.
fn swept(book: &Book, tube: &str, reason: &str, remedy: &str, to: &str) -> Vec<Change> {
    let (mut book, mut changes) = (book.clone(), Vec::new());
    for key in book.buried(tube).into_iter().filter(|key| book.reason(key) == reason).collect::<Vec<_>>() {
        let change = match remedy {
            "kick" => Change::Kick { key },
            "delete" => Change::Delete { key },
            _ if book.is_taken(&key, to) => continue,
            _ => Change::Shift { key, tube: to.to_owned() },
        };
        book.apply(&change);
        changes.push(change);
    }
    changes
}

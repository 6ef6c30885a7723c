//! Reduces a failing history to the relevant actions.
//!
//! Owns the order in which parts are removed and the limit on the effort. Must not depend on how actions are replayed.

use std::cell::Cell;

use beanpole::internals::protocol::Wire;

use crate::action::Action;
use crate::shortening::shortened;

/// The maximum number of actions to replay in a reduction. A time limit would make the result depend on the machine.
const EFFORT: usize = 3_000_000;

/// The cost of starting and ending a replay, expressed as a number of actions.
const REPLAY: usize = 50;

/// The reduction first replays suffixes of the history. The shortest suffix has this number of actions.
const TAIL: usize = 64;

pub struct Reduced {
    pub actions: Vec<Action>,
    pub replays: usize,
    pub effort: usize,
}

/// Runs replays and counts their costs. Refuses replays after the costs have reached [`EFFORT`].
struct Replays<F> {
    fails: F,
    count: Cell<usize>,
    effort: Cell<usize>,
}

impl<F: Fn(&[Action]) -> bool> Replays<F> {
    fn may_go_on(&self) -> bool {
        self.effort.get() < EFFORT
    }

    fn fails(&self, actions: &[Action]) -> bool {
        if !self.may_go_on() {
            return false;
        }
        self.count.set(self.count.get() + 1);
        self.effort.set(self.effort.get() + actions.len() + REPLAY);
        (self.fails)(actions)
    }

    fn shortened(&self, actions: Vec<Action>) -> Vec<Action> {
        shortened(actions, || self.may_go_on(), |fewer| self.fails(fewer))
    }
}

/// Removes actions that are not needed for the failure.
pub fn reduced(mut actions: Vec<Action>, clients: usize, fails: impl Fn(&[Action]) -> bool) -> Reduced {
    let replays = Replays { fails, count: Cell::new(0), effort: Cell::new(0) };
    // Most failures depend only on the last few actions.
    let lengths = std::iter::successors(Some(TAIL), |length| Some(length * 2));
    let mut tails = lengths.take_while(|length| *length < actions.len()).map(|length| tail(&actions, length));
    if let Some(shorter) = tails.find(|tail| replays.fails(tail)) {
        actions = shorter;
    }
    for who in 0..clients {
        let others: Vec<Action> = actions.iter().filter(|action| action.client() != Some(who)).cloned().collect();
        if others.len() < actions.len() && replays.fails(&others) {
            actions = others;
        }
    }
    actions = replays.shortened(actions);
    let plain = plainer(&actions);
    if replays.fails(&plain) {
        actions = replays.shortened(plain);
    }
    Reduced { actions, replays: replays.count.get(), effort: replays.effort.get() }
}

/// Returns the last `length` actions, preceded by actions that recreate their initial state: connecting the clients
/// that were connected, and starting a drain if one was in progress.
fn tail(actions: &[Action], length: usize) -> Vec<Action> {
    let (front, tail) = actions.split_at(actions.len() - length);
    let mut kept: Vec<&Action> = Vec::new();
    for action in front {
        match action {
            Action::Connect(who, _) if kept.iter().any(|other| other.client() == Some(*who)) => {}
            Action::Drain if kept.iter().any(|other| matches!(other, Action::Drain)) => {}
            Action::Connect(..) | Action::Drain => kept.push(action),
            Action::Undrain => kept.retain(|other| !matches!(other, Action::Drain)),
            Action::Close(who) => kept.retain(|other| other.client() != Some(*who)),
            Action::Crash(_) => kept.clear(),
            _ => {}
        }
    }
    kept.into_iter().chain(tail).cloned().collect()
}

/// Returns a simpler history, in which each action gives a client only one beanstalk command to send, and each `Send`
/// transmits all of the client's pending input. Unlike `actions`, this history might not fail.
fn plainer(actions: &[Action]) -> Vec<Action> {
    let each = actions.iter().flat_map(|action| match action {
        Action::Say(who, Wire::Beanstalk, words) => {
            commands(words).into_iter().map(|words| Action::Say(*who, Wire::Beanstalk, words)).collect()
        }
        Action::Send(who, _) => vec![Action::Send(*who, usize::MAX)],
        other => vec![other.clone()],
    });
    each.collect()
}

fn commands(words: &[u8]) -> Vec<Vec<u8>> {
    let mut commands: Vec<Vec<u8>> = Vec::new();
    let mut has_body = false;
    for line in words.split_inclusive(|&byte| byte == b'\n') {
        match commands.last_mut().filter(|_| std::mem::take(&mut has_body)) {
            Some(command) => command.extend_from_slice(line),
            None => {
                has_body = line.starts_with(b"put ");
                commands.push(line.to_vec());
            }
        }
    }
    commands
}

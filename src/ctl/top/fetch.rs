//! The background thread of `top`, which queries the server so that `top` stays responsive while the server hangs. With
//! many tubes, a poll queries only some of the tubes.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use parking_lot::{Condvar, Mutex};

use super::board::{Board, BoardRow, Boards};
use super::model::{Listing, Poll};
use crate::ctl::lists::name_holder;
use crate::ctl::prelude::*;

pub const AT_ONCE: usize = 500;

pub enum FetchRequest {
    Poll(Option<DetailTarget>, Option<Board>),
    Kick(String, u64),
    KickJobs(Vec<u64>),
    /// The tube, and the duration of its pause in seconds. 0 ends a pause.
    Pause(String, u64),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DetailTarget {
    pub tube: String,
    pub job: Option<u64>,
}

pub struct Detail {
    pub of: DetailTarget,
    pub stats: Option<StatsReply>,
    pub next: Vec<(&'static str, Option<IdAndBody>)>,
}

impl Detail {
    pub fn new(of: DetailTarget) -> Detail {
        Detail { of, stats: Some(StatsReply::default()), next: Vec::new() }
    }

    pub fn jobs(&self) -> Vec<u64> {
        match self.of.job {
            None => self.next.iter().filter_map(|(_, job)| job.as_ref().map(|(id, _)| *id)).collect(),
            Some(_) => self.stats.iter().filter_map(|stats| stats.text("blocked-by").parse().ok()).collect(),
        }
    }

    pub fn is_loading(&self) -> bool {
        self.stats.is_some() && self.next.is_empty()
    }
}

pub enum FetchEvent {
    Poll(Poll, Option<Box<Detail>>, Option<(Board, Vec<BoardRow>, Listing)>),
    Done(String),
    Lost(String),
}

struct Fetcher {
    target: ServerTarget,
    only: Vec<String>,
    link: Option<Link>,
    next: usize,
    board: Option<Board>,
    is_whole: bool,
    boards: Boards,
}

/// Channels of these types would make the program considerably larger.
#[derive(Default)]
pub struct Queues {
    requests: Mutex<VecDeque<FetchRequest>>,
    events: Mutex<VecDeque<FetchEvent>>,
    wake: Condvar,
}

impl Queues {
    pub fn send(&self, request: FetchRequest) {
        self.requests.lock().push_back(request);
        self.wake.notify_one();
    }

    pub fn receive(&self) -> Option<FetchEvent> {
        self.events.lock().pop_front()
    }
}

/// Starts the thread. If `only` is empty, the thread queries all tubes.
pub fn start(target: ServerTarget, link: Link, only: Vec<String>) -> std::io::Result<Arc<Queues>> {
    let queues = Arc::new(Queues::default());
    let own = queues.clone();
    let (board, boards) = (None, Boards::default());
    let mut fetcher = Fetcher { target, only, link: Some(link), next: 0, board, is_whole: false, boards };
    std::thread::Builder::new().name("fetch".to_owned()).spawn(move || loop {
        let mut requests = own.requests.lock();
        own.wake.wait_while(&mut requests, |requests| requests.is_empty());
        let request = requests.pop_front().expect("a request");
        drop(requests);
        let answer = fetcher.execute(request).unwrap_or_else(|problem| match problem.code {
            NO_CONNECTION => FetchEvent::Lost(problem.text),
            _ => FetchEvent::Done(problem.text),
        });
        own.events.lock().push_back(answer);
    })?;
    Ok(queues)
}

impl Fetcher {
    fn execute(&mut self, request: FetchRequest) -> Result<FetchEvent> {
        // After an error, the next request opens a new link, because this one may have unread replies.
        let mut link = self.link.take().map_or_else(|| self.target.connect(), Ok)?;
        let answer = match request {
            FetchRequest::Poll(open, board) => {
                if self.board != board {
                    (self.board, self.next, self.is_whole) = (board, 0, false);
                }
                let mut poll = poll(&mut link, &self.only, &mut self.next)?;
                self.is_whole |= board == Some(Board::Workers) || self.next >= poll.names.len();
                let listing = if self.is_whole { Listing::Loaded } else { Listing::Loading };
                let detail = open.map(|of| detail(&mut link, of).map(Box::new)).transpose()?;
                let workers = self.boards.workers(&mut link, (&poll.names, &poll.tubes));
                let longest = workers.iter().flatten().max_by_key(|row| row.rank);
                let longest = longest.filter(|row| row.is_highlighted && row.job.is_some());
                poll.longest = longest.map(|row| (row.tube.clone(), row.cells[2].clone()));
                let rows = board.map(|board| self.boards.poll(&mut link, board, (&poll.names, &poll.tubes), workers));
                let (rows, listing) = match rows.transpose() {
                    // The command is unknown or forbidden.
                    Err(problem) if problem.code == REFUSED => {
                        poll.refused.insert(0, problem.text.clone());
                        (None, Listing::Refused)
                    }
                    rows => (rows?, listing),
                };
                FetchEvent::Poll(poll, detail, board.map(|board| (board, rows.unwrap_or_default(), listing)))
            }
            FetchRequest::Kick(tube, count) => {
                link.use_tube(&tube)?;
                let reply = link.expect(&format!("kick {count}"), "KICKED")?;
                FetchEvent::Done(format!("{tube}: {} kicked", job_count(reply.number("KICKED").unwrap_or(0))))
            }
            FetchRequest::KickJobs(ids) => {
                let mut kicked = 0;
                ask_each(&mut link, "kick-job", &mut ids.iter().map(u64::to_string), &mut |_, reply| {
                    kicked += u64::from(reply.line == "KICKED");
                    Ok(())
                })?;
                let done = if kicked == 0 { "not kicked: its state does not allow this" } else { "kicked" };
                FetchEvent::Done(match ids[..] {
                    [id] => format!("job {id} {done}"),
                    _ => format!("{kicked} of {} kicked", job_count(ids.len() as u64)),
                })
            }
            FetchRequest::Pause(tube, seconds) => {
                link.expect(&format!("pause-tube {tube} {seconds}"), "PAUSED")?;
                FetchEvent::Done(match seconds {
                    0 => format!("{tube}: resumed"),
                    _ => format!("{tube}: paused for {seconds} s"),
                })
            }
        };
        self.link = Some(link);
        Ok(answer)
    }
}

/// Queries the server and some of its tubes, starting at index `next`.
pub fn poll(link: &mut Link, only: &[String], next: &mut usize) -> Result<Poll> {
    let server = link.stats()?;
    let mut names = link.tubes()?;
    names.retain(|name| only.is_empty() || only.contains(name));
    let from = if *next < names.len() { *next } else { 0 };
    let to = (from + AT_ONCE).min(names.len());
    *next = to;
    let at = Instant::now();
    let mut tubes = Vec::new();
    let refused = each_tube(link, &names[from..to], &mut |name, stats| {
        // The tube may have disappeared since the tubes were listed.
        tubes.extend(stats.map(|stats| (name.to_owned(), stats)));
        Ok(())
    })?;
    Ok(Poll { at, server, names, tubes, refused, longest: None })
}

fn detail(link: &mut Link, of: DetailTarget) -> Result<Detail> {
    let mut next = Vec::new();
    let mut peek = |link: &mut Link, state: &'static str, command: &str| -> Result {
        let reply = link.ask(command)?;
        next.push((state, reply.number("FOUND").map(|id| (id, reply.body))));
        Ok(())
    };
    let command = of.job.map_or_else(|| format!("stats-tube {}", of.tube), |id| format!("stats-job {id}"));
    let mut stats = link.query(&command)?;
    stats.iter_mut().try_for_each(|stats| name_holder(link, stats))?;
    match of.job {
        Some(id) => peek(link, "body", &format!("peek {id}"))?,
        // If the tube no longer exists, `use` would create it.
        None if stats.is_some() => {
            link.use_tube(&of.tube)?;
            ["ready", "delayed", "buried"].into_iter().try_for_each(|it| peek(link, it, &format!("peek-{it}")))?;
            link.use_tube("default")?;
        }
        None => {}
    }
    Ok(Detail { of, stats, next })
}

//! The background thread of `top` that queries the server.
//!
//! Owns the connection, and reconnects after an error. Must not draw or read keys: the separate thread keeps `top`
//! responsive while the server hangs. With many tubes, a poll queries only some of the tubes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::board::{Board, BoardRow, Boards};
use super::model::Look;
use crate::ctl::link::{IdAndBody, Link, Reach};
use crate::ctl::problem::{Problem, NO_CONNECTION, REFUSED};
use crate::ctl::tubes::each_tube;
use crate::ctl::yaml::Figures;

/// The maximum number of tubes that one poll queries.
pub const AT_ONCE: usize = 500;

#[derive(Debug)]
pub enum Ask {
    /// Polls the server, the named open tube, and a list.
    Look(Option<String>, Option<Board>),
    /// Kicks the given number of jobs in a tube.
    Kick(String, u64),
    /// Pauses a tube for a number of seconds. 0 resumes the tube.
    Pause(String, u64),
}

#[derive(Debug)]
pub struct Detail {
    pub name: String,
    /// The statistics of the tube, or `None` if the tube no longer exists.
    pub figures: Option<Figures>,
    /// For each state, the ID and the body of the next job.
    pub next: Vec<(&'static str, Option<IdAndBody>)>,
}

#[derive(Debug)]
pub enum Told {
    Look(Look, Option<Detail>, Option<(Board, Vec<BoardRow>)>),
    /// The result of a command, or an error message.
    Done(String),
    Lost(String),
}

struct Fetcher {
    reach: Reach,
    only: Vec<String>,
    link: Option<Link>,
    /// The index of the next tube to query.
    next: usize,
    boards: Boards,
}

/// The queues between the two threads.
#[derive(Debug, Default)]
pub struct Desk {
    papers: Mutex<(VecDeque<Ask>, VecDeque<Told>)>,
    bell: Condvar,
}

impl Desk {
    pub fn ask(&self, wish: Ask) {
        self.papers.lock().0.push_back(wish);
        self.bell.notify_one();
    }

    pub fn told(&self) -> Option<Told> {
        self.papers.lock().1.pop_front()
    }

    fn next_wish(&self) -> Ask {
        let mut papers = self.papers.lock();
        loop {
            if let Some(wish) = papers.0.pop_front() {
                return wish;
            }
            self.bell.wait(&mut papers);
        }
    }
}

/// Starts the thread, which runs until the program exits. `only` contains the tubes to query, or is empty for all
/// tubes.
pub fn start(reach: Reach, link: Link, only: Vec<String>) -> std::io::Result<Arc<Desk>> {
    let desk = Arc::new(Desk::default());
    let own = desk.clone();
    let mut fetcher = Fetcher { reach, only, link: Some(link), next: 0, boards: Boards::default() };
    std::thread::Builder::new().name("fetch".to_owned()).spawn(move || loop {
        let answer = fetcher.carry_out(own.next_wish()).unwrap_or_else(|problem| {
            if problem.code != NO_CONNECTION {
                return Told::Done(problem.text.clone());
            }
            fetcher.link = None;
            Told::Lost(problem.text.clone())
        });
        own.papers.lock().1.push_back(answer);
    })?;
    Ok(desk)
}

impl Fetcher {
    fn carry_out(&mut self, wish: Ask) -> Result<Told, Problem> {
        let mut link = match self.link.take() {
            Some(link) => link,
            None => self.reach.connect()?,
        };
        let answer = match wish {
            Ask::Look(open, board) => {
                let mut look = look(&mut link, &self.only, &mut self.next)?;
                let detail = open.map(|name| detail(&mut link, name)).transpose()?;
                let rows = board.map(|board| self.boards.look(&mut link, board, &look.names, &look.tubes));
                let rows = match rows.transpose() {
                    // The server does not support or permit the command.
                    Err(problem) if problem.code == REFUSED => {
                        look.refused.insert(0, problem.text.clone());
                        None
                    }
                    rows => rows?,
                };
                Told::Look(look, detail, board.map(|board| (board, rows.unwrap_or_default())))
            }
            Ask::Kick(tube, count) => {
                link.expect(&format!("use {tube}"), "USING")?;
                let reply = link.expect(&format!("kick {count}"), "KICKED")?;
                Told::Done(format!("{tube}: {} jobs kicked", reply.number("KICKED").unwrap_or(0)))
            }
            Ask::Pause(tube, seconds) => {
                link.expect(&format!("pause-tube {tube} {seconds}"), "PAUSED")?;
                Told::Done(match seconds {
                    0 => format!("{tube}: resumed"),
                    _ => format!("{tube}: paused for {seconds} s"),
                })
            }
        };
        self.link = Some(link);
        Ok(answer)
    }
}

/// Polls the server and at most [`AT_ONCE`] tubes, starting with the index `next`.
pub fn look(link: &mut Link, only: &[String], next: &mut usize) -> Result<Look, Problem> {
    let server = link.stats()?;
    let mut names = link.tubes()?;
    if !only.is_empty() {
        names.retain(|name| only.contains(name));
    }
    let from = if *next < names.len() { *next } else { 0 };
    let to = (from + AT_ONCE).min(names.len());
    *next = to;
    let at = Instant::now();
    let mut tubes = Vec::new();
    let refused = each_tube(link, &names[from..to], &mut |name, figures| {
        // The tube can disappear between the two queries.
        tubes.extend(figures.map(|figures| (name.to_owned(), figures)));
        Ok(())
    })?;
    Ok(Look { at, server, names, tubes, refused })
}

fn detail(link: &mut Link, name: String) -> Result<Detail, Problem> {
    let figures = link.figures(&format!("stats-tube {name}"))?;
    let mut next = Vec::new();
    // `use` would recreate a tube that no longer exists.
    if figures.is_some() {
        link.expect(&format!("use {name}"), "USING")?;
        for state in ["ready", "delayed", "buried"] {
            let reply = link.ask(&format!("peek-{state}"))?;
            next.push((state, reply.number("FOUND").map(|id| (id, reply.body))));
        }
        link.expect("use default", "USING")?;
    }
    Ok(Detail { name, figures, next })
}

//! The subcommand `top`, which displays the server and its tubes, and must not block while the server hangs.

mod board;
mod fetch;
mod model;
mod screen;
mod terminal;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io::IsTerminal, sync::Arc};

use nix::sys::signal::{raise, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};

use super::prelude::*;
use board::Board;
use fetch::{Detail, DetailTarget, FetchEvent, FetchRequest, Queues};
use model::{Listing, Model, COLUMNS};
use screen::View;
use terminal::{Key, Terminal};

const MAX_INTERVAL: u64 = 3600;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Question {
    Filter,
    Kick(String),
    KickJobs(Vec<u64>),
    Pause(String),
}

struct Top {
    model: Model,
    view: View,
    queues: Arc<Queues>,
    question: Option<(Question, String)>,
    next: Instant,
    is_waiting: bool,
    /// `true` if the selection follows the selected object when rows move. Otherwise, it stays on the first row.
    has_chosen: bool,
}

pub fn run(call: &Call, out: &mut Out) -> Result<u8> {
    let only: Vec<String> = call.tubes()?;
    let interval = call.number(&INTERVAL, 1, MAX_INTERVAL)?.unwrap_or(1);
    let rounds = call.number(&ROUNDS, 1, u64::MAX)?;
    let mut model = Model { filter: call.value(&FILTER).unwrap_or_default(), ..Model::default() };
    if let Some(name) = call.value(&SORT) {
        let index = COLUMNS.iter().position(|column| column.head.eq_ignore_ascii_case(&name));
        let names = COLUMNS.map(|column| column.head.to_ascii_lowercase()).join(", ");
        model.sort = index.ok_or_else(|| Problem::usage(format!("--sort: {name}; it must be one of {names}")))?;
    }
    let target = ServerTarget::of(call)?;
    if call.has(&BATCH) {
        return batch(out, model, &target, &only, (interval, rounds));
    }
    let has_terminal = std::io::stdin().is_terminal() && out.is_terminal;
    Problem::check_usage(has_terminal, "top: stdin or stdout is not a terminal; use -b to print tables")?;
    Problem::check_usage(rounds.is_none(), "top: --count requires --batch")?;
    let (columns, lines) = terminal::size();
    let (min_columns, min_lines) = screen::MIN_SIZE;
    if columns < min_columns || lines < min_lines {
        let text = format!("top: the terminal has {columns}x{lines}; it must have {min_columns}x{min_lines}");
        return Err(Problem::refused(text));
    }
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default().to_ascii_lowercase();
    let view = View {
        server: target.server.name(),
        interval,
        colors: set("NO_COLOR").is_none(),
        unicode: locale.contains("utf-8") || locale.contains("utf8"),
        ..View::default()
    };
    let link = target.connect()?;
    let fail = |error: std::io::Error| Problem::refused(format!("top: {}", plain(&error)));
    let queues = fetch::start(target, link, only).map_err(fail)?;
    let end = signal_flag(&[SIGHUP, SIGINT, SIGQUIT, SIGTERM]).map_err(fail)?;
    let suspend = signal_flag(&[SIGTSTP]).map_err(fail)?;
    let mut top =
        Top { model, view, queues, question: None, next: Instant::now(), is_waiting: false, has_chosen: false };
    top.watch(&end, &suspend).map_err(fail)?;
    Ok(DONE)
}

fn signal_flag(signals: &[i32]) -> std::io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    signals.iter().try_for_each(|signal| signal_hook::flag::register(*signal, flag.clone()).map(drop))?;
    Ok(flag)
}

impl Top {
    fn watch(&mut self, end: &AtomicBool, suspend: &AtomicBool) -> std::io::Result<()> {
        let mut terminal = Terminal::enter()?;
        let mut is_new = true;
        loop {
            if end.load(Ordering::Relaxed) {
                return Ok(());
            }
            if suspend.swap(false, Ordering::Relaxed) {
                drop(terminal);
                // SIGSTOP suspends the program until SIGCONT arrives.
                raise(Signal::SIGSTOP)?;
                terminal = Terminal::enter()?;
                is_new = true;
            }
            let size = terminal::size();
            is_new |= size != self.view.size;
            self.view.size = size;
            is_new |= self.receive_events();
            if is_new {
                self.scroll();
                terminal::show(&screen::frame(&self.model, &self.view))?;
            }
            is_new = false;
            // Wait for keys for at most 50 ms, so that new data is displayed soon.
            for key in terminal::keys(&terminal.typed(50)?) {
                is_new = true;
                let is_plain = self.question.is_none() && self.view.detail.is_none() && !self.view.shows_help;
                match key {
                    Key::Interrupt => return Ok(()),
                    Key::Suspend => suspend.store(true, Ordering::Relaxed),
                    Key::Char('q') if is_plain => return Ok(()),
                    Key::Redraw => terminal::show(b"\x1b[2J")?,
                    key => self.handle_key(key),
                }
            }
        }
    }

    /// Returns `true` if there is new data.
    fn receive_events(&mut self) -> bool {
        let mut is_new = false;
        while let Some(event) = self.queues.receive() {
            self.take(event);
            is_new = true;
        }
        // A list or tube that has not been shown yet is loaded even if the screen is frozen.
        let is_loading = self.model.is_loading() || self.view.detail.as_ref().is_some_and(Detail::is_loading);
        if !self.is_waiting && (!self.view.is_frozen || is_loading) && Instant::now() >= self.next {
            self.next = Instant::now() + Duration::from_secs(self.view.interval);
            self.is_waiting = true;
            let open = self.view.detail.as_ref().map(|detail| detail.of.clone());
            self.queues.send(FetchRequest::Poll(open, self.model.board));
        }
        is_new
    }

    fn take(&mut self, event: FetchEvent) {
        self.is_waiting = false;
        match event {
            FetchEvent::Poll(poll, detail, list) => {
                self.view.lost = None;
                if let Some(text) = poll.refused.first().filter(|_| self.question.is_none()) {
                    self.view.status.clone_from(text);
                }
                self.change(|model| {
                    model.take(poll);
                    if let Some((_, lines, listing)) = list.filter(|(board, ..)| model.board == Some(*board)) {
                        (model.lines, model.listing) = (lines, listing);
                    }
                });
                if let (Some(open), Some(detail)) = (&mut self.view.detail, detail) {
                    // Another tube or job may be open by now.
                    if open.of == detail.of {
                        *open = *detail;
                    }
                }
            }
            FetchEvent::Lost(problem) => self.view.lost = Some(problem),
            FetchEvent::Done(what) => {
                self.view.status = what;
                self.next = Instant::now();
            }
        }
    }

    fn selected(&self) -> Option<DetailTarget> {
        let keys = self.model.keys();
        let (_, tube, job) = keys.get(self.view.selected).filter(|(_, tube, _)| !tube.is_empty())?;
        Some(DetailTarget { tube: (*tube).to_owned(), job: *job })
    }

    fn change(&mut self, change: impl FnOnce(&mut Model)) {
        let key = self.model.keys().get(self.view.selected).map(|(key, ..)| (*key).to_owned());
        let key = key.filter(|_| self.has_chosen);
        change(&mut self.model);
        let keys = self.model.keys();
        let index = key.and_then(|key| keys.iter().position(|(other, ..)| *other == key));
        let last = keys.len().saturating_sub(1);
        self.view.selected = index.unwrap_or(self.view.selected).min(last);
    }

    fn turn_to(&mut self, board: Option<Board>) {
        (self.model.board, self.view.detail) = (board, None);
        self.model.lines.clear();
        self.model.listing = Listing::Loading;
        (self.view.selected, self.has_chosen) = (0, false);
        self.next = Instant::now();
    }

    fn scroll(&mut self) {
        let rows = self.model.keys().len();
        let visible_rows = screen::capacity(&self.model, self.view.size);
        let view = &mut self.view;
        view.selected = view.selected.min(rows.saturating_sub(1));
        view.first = view.first.min(view.selected).max((view.selected + 1).saturating_sub(visible_rows));
    }

    fn handle_key(&mut self, key: Key) {
        if self.question.is_some() {
            return self.handle_prompt_key(key);
        }
        self.view.status.clear();
        if std::mem::take(&mut self.view.shows_help) {
            return;
        }
        let selected = self.view.selected;
        let page = screen::capacity(&self.model, self.view.size);
        let moves = [Key::Up, Key::Down, Key::PageUp, Key::PageDown, Key::End, Key::Enter];
        self.has_chosen |= moves.contains(&key) || matches!(key, Key::Char('j' | 'k' | 'K' | 'p'));
        if let Some(detail) = &self.view.detail {
            let is_group = !self.view.group.is_empty();
            let jobs = if is_group { self.view.group.clone() } else { detail.jobs() };
            let last = jobs.len().saturating_sub(1);
            let chosen = self.view.chosen.min(last);
            let moved = match key {
                Key::Enter => return self.open_job(jobs.get(chosen).copied()),
                Key::Up | Key::Char('k') => Some(chosen.saturating_sub(1)),
                Key::Down | Key::Char('j') => Some(last.min(chosen + 1)),
                _ => None,
            };
            if let Some(moved) = moved {
                self.view.chosen = moved;
                return self.open_job(jobs.get(moved).copied().filter(|_| is_group));
            }
        }
        match key {
            Key::Up | Key::Char('k') => self.view.selected = selected.saturating_sub(1),
            Key::Down | Key::Char('j') => self.view.selected = selected + 1,
            Key::PageUp => self.view.selected = selected.saturating_sub(page),
            Key::PageDown => self.view.selected = selected + page,
            Key::Home => (self.view.selected, self.has_chosen) = (0, false),
            Key::End => self.view.selected = usize::MAX - 1,
            Key::Enter => {
                let group = self.model.board.and_then(|_| Some(self.model.listed().get(selected)?.group.clone()));
                (self.view.group, self.view.chosen) = (group.unwrap_or_default(), 0);
                self.show(self.selected());
            }
            Key::Escape | Key::Back | Key::Char('q') => self.close(),
            Key::Char('?') => self.view.shows_help = true,
            Key::Char(' ') => self.view.is_frozen = !self.view.is_frozen,
            Key::Char('+') => self.view.interval = (self.view.interval + 1).min(MAX_INTERVAL),
            Key::Char('-') => self.view.interval = (self.view.interval - 1).max(1),
            Key::Char('/') => self.prompt(Question::Filter),
            Key::Char(key @ ('K' | 'p')) => self.prompt_for(key),
            Key::Char(letter) => {
                let boards = [None, Some(Board::Workers), Some(Board::Failed), Some(Board::Schedules)];
                if let Some((board, _)) = boards.into_iter().zip('1'..).find(|(_, key)| *key == letter) {
                    self.turn_to(board);
                } else if let Some(index) = COLUMNS.iter().position(|column| column.key == letter) {
                    self.change(|model| model.sort_by(index));
                }
            }
            Key::Interrupt | Key::Suspend | Key::Redraw => {}
        }
    }

    fn show(&mut self, opened: Option<DetailTarget>) {
        self.view.detail = opened.map(Detail::new);
        self.next = Instant::now();
    }

    fn open_job(&mut self, job: Option<u64>) {
        if let (Some(detail), Some(_)) = (&self.view.detail, job) {
            self.show(Some(DetailTarget { tube: detail.of.tube.clone(), job }));
        }
    }

    /// Closes the open object, or clears the filter if none is open. If a job was opened from a tube, reopens the tube.
    fn close(&mut self) {
        match self.view.detail.take() {
            Some(Detail { of: DetailTarget { tube, job: Some(_) }, .. }) if self.model.board.is_none() => {
                self.show(Some(DetailTarget { tube, job: None }));
            }
            Some(_) => {}
            None => self.change(|model| model.filter.clear()),
        }
    }

    /// Opens the prompt for a pause or a kick. A kick applies to a job, to all jobs of the selected line, or to a tube.
    fn prompt_for(&mut self, key: char) {
        let opened = self.view.detail.as_ref().map(|detail| detail.of.clone());
        let board = self.model.board.filter(|_| opened.is_none());
        let Some(target) = opened.or_else(|| self.selected()) else { return };
        let question = match (key, target.job, board) {
            ('p', ..) => Question::Pause(target.tube),
            (_, None, _) => Question::Kick(target.tube),
            (_, _, Some(Board::Workers)) => {
                self.view.status = "a reserved job cannot be kicked".to_owned();
                return;
            }
            (_, Some(_), Some(Board::Failed)) => {
                Question::KickJobs(self.model.listed()[self.view.selected].group.clone())
            }
            (_, Some(id), _) => Question::KickJobs(vec![id]),
        };
        self.prompt(question);
    }

    fn prompt(&mut self, question: Question) {
        let typed = match &question {
            Question::Filter => self.model.filter.clone(),
            Question::Kick(_) => "1".to_owned(),
            Question::KickJobs(_) => String::new(),
            Question::Pause(_) => "60".to_owned(),
        };
        self.question = Some((question, typed));
        self.show_prompt();
    }

    fn show_prompt(&mut self) {
        self.view.is_prompting = self.question.is_some();
        self.view.status = match &self.question {
            None => String::new(),
            Some((Question::Filter, typed)) => format!("only lines with: {typed}"),
            Some((Question::Kick(tube), typed)) => format!("kick how many jobs of {tube}? {typed}"),
            Some((Question::KickJobs(ids), _)) => match ids[..] {
                [id] => format!("kick job {id}? Enter: yes, Escape: no "),
                _ => format!("kick the {} jobs of this line? Enter: yes, Escape: no ", ids.len()),
            },
            Some((Question::Pause(tube), typed)) => format!("pause {tube} for how many seconds (0: resume)? {typed}"),
        };
    }

    fn handle_prompt_key(&mut self, key: Key) {
        let Some((question, mut typed)) = self.question.take() else { return };
        match key {
            Key::Enter => {
                self.view.is_prompting = false;
                self.view.status.clear();
                return self.execute(question, &typed);
            }
            Key::Escape => return self.show_prompt(),
            Key::Back => drop(typed.pop()),
            Key::Char(letter) if question == Question::Filter || letter.is_ascii_digit() => typed.push(letter),
            _ => {}
        }
        self.question = Some((question, typed));
        self.show_prompt();
    }

    fn execute(&mut self, question: Question, typed: &str) {
        let number = typed.parse::<u32>().map(u64::from);
        let request = match (question, number) {
            (Question::Filter, _) => return self.change(|model| model.filter = typed.to_owned()),
            (Question::Kick(tube), Ok(count)) if count > 0 => FetchRequest::Kick(tube, count),
            (Question::KickJobs(ids), _) => FetchRequest::KickJobs(ids),
            (Question::Pause(tube), Ok(seconds)) => FetchRequest::Pause(tube, seconds),
            _ => {
                self.view.status = format!("{typed}: no such number; nothing done");
                return;
            }
        };
        self.queues.send(request);
        self.is_waiting = true;
    }
}

/// Prints the tables as plain text. After a connection error, prints a message and reconnects.
fn batch(
    out: &mut Out,
    mut model: Model,
    target: &ServerTarget,
    only: &[String],
    (interval, rounds): (u64, Option<u64>),
) -> Result<u8> {
    let mut link = Some(target.connect()?);
    let (mut next, mut printed, mut is_first, mut code) = (0, 0, true, DONE);
    loop {
        let seen = match &mut link {
            Some(link) => fetch::poll(link, only, &mut next),
            None => target.connect().and_then(|fresh| fetch::poll(link.insert(fresh), only, &mut next)),
        };
        match seen {
            Ok(poll) => {
                code = code.max(report_refused(&poll.refused));
                model.take(poll);
            }
            Err(problem) if problem.code == NO_CONNECTION && rounds.is_none() => {
                tell(&problem.text);
                link = None;
            }
            Err(problem) => return Err(problem),
        }
        if !std::mem::take(&mut is_first) && link.is_some() {
            print(out, &model, &target.server.name())?;
            printed += 1;
        }
        if rounds.is_some_and(|rounds| printed >= rounds) {
            return Ok(code);
        }
        std::thread::sleep(Duration::from_secs(interval));
    }
}

fn print(out: &mut Out, model: &Model, server: &str) -> Result {
    let (stats, done) = (&model.summary.stats, model.summary.done);
    let put = model.summary.puts.back().copied().unwrap_or(0);
    let stats = ["ready", "reserved", "delayed", "buried", "held", "scheduled"]
        .map(|state| format!("{state} {}", stats.number(&format!("current-jobs-{state}"))));
    let tubes = model.tubes.len();
    out.line(&format!("{server}  tubes {tubes}  {}  put/s {put}  done/s {done}", stats.join("  ")))?;
    let headings = COLUMNS.map(|column| column.head.to_ascii_lowercase());
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let rows = model.rows().into_iter().map(|tube| {
        let numbers = tube.cells.iter().map(u64::to_string);
        [tube.name.clone()].into_iter().chain(numbers).collect()
    });
    out.table(&headings, &rows.collect::<Vec<_>>())?;
    if out.is_terminal {
        out.line("")?;
    }
    out.flush()
}

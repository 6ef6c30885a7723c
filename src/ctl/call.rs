//! The options of all subcommands, and the parser for their command lines.

use std::io::{BufRead, IsTerminal, Write};
use std::ops::RangeInclusive;

use getopts::{Fail, HasArg, Matches, Occur, Options};

use super::prelude::*;
use crate::protocol::text::is_tube_name;
use crate::settings::options;
use crate::settings::words::flag;
pub use crate::settings::words::Flag;

pub static HELP: Flag = flag("h,help", "", "print this help and exit", ());
pub static SERVER: Flag =
    flag("s,server", "SERVER", "HOST:PORT, unix:PATH or beanstalks://HOST (default 127.0.0.1:11300)", ());
pub static TIMEOUT: Flag =
    flag("timeout", "SECONDS", "fail when the server is silent for SECONDS; 0: never (default 5)", ());
pub static AUTHORITY: Flag = flag("cacert", "FILE", "certificate authorities for TLS (default: the system's)", ());
pub static CERTIFICATE: Flag = flag("cert", "FILE", "client certificate for TLS", ());
pub static KEY: Flag = flag("key", "FILE", "private key of the certificate (default: in the same file)", ());
pub static TOKEN: Flag = flag("token-file", "FILE", "authenticate with the token in FILE", ());
pub static CONNECTION_OPTIONS: [&Flag; 4] = [&AUTHORITY, &CERTIFICATE, &KEY, &TOKEN];
pub static JSON: Flag = flag("json", "", "print one JSON object per line", ());
pub static YES: Flag = flag("y,yes", "", "do not ask for confirmation", ());
pub static NONE: Flag = flag("none", "", "remove all settings", ());
pub static TUBE: Flag = flag("t,tube", "TUBE", "name of the tube (default: default)", ());
pub static OF_TUBE: Flag = flag("t,tube", "TUBE", "select jobs of this tube instead of IDs", ());
pub static ONLY_TUBE: Flag = flag("t,tube", "TUBE", "only jobs of this tube", ());
pub static INTO_TUBE: Flag = flag("t,tube", "TUBE", "put all jobs into this tube", ());
pub static JOB: Flag = flag("i,job", "ID", "show the statistics of this job; repeatable", ());
pub static PRI: Flag = flag("p,pri", "PRI", "priority; 0 is the most urgent (default 1024)", ());
pub static FAILED: Flag = flag("failed", "", "only jobs that failed or were buried", ());
pub static NEW_PRI: Flag = flag("p,pri", "PRI", "new priority (default: unchanged)", ());
pub static DELAY: Flag = flag("d,delay", "SECONDS", "delay before the job is ready (default 0)", ());
pub static TTR: Flag = flag("r,ttr", "SECONDS", "time to run (default 60)", ());
pub static UNIQUE: Flag = flag("unique", "KEY", "idempotency key; KEY:SECONDS keeps the key after the job ends", ());
pub static CON: Flag = flag("con", "KEY", "concurrency key: one reserved job at a time; KEY:N: at most N", ());
pub static GROUP: Flag = flag("group", "GROUP", "make the job a member of GROUP; repeatable", ());
pub static AFTER: Flag = flag("after", "GROUP", "hold the job until all jobs of GROUP have ended; GROUP:N: N jobs", ());
pub static CRON: Flag = flag("cron", "FIELDS", "put a copy of the job when cron's five FIELDS match, in UTC", ());
pub static EVERY: Flag = flag("every", "SECONDS", "put a copy of the job every SECONDS", ());
pub static OF_GROUP: Flag = flag("group", "GROUP", "select this group of jobs; repeatable", ());
pub static TTL: Flag = flag("ttl", "SECONDS", "delete the job after SECONDS unless it is reserved", ());
pub static TRY: Flag = flag("try", "N", "bury the job after N failed tries; N:SECONDS: delay the next try", ());
pub static UNTIL: Flag = flag("w,wait", "SECONDS", "wait at most SECONDS (default: no limit)", ());
pub static LINES: Flag = flag("l,lines", "", "put each input line as a job", ());
pub static FILE: Flag = flag("f,file", "FILE", "read FILE instead of stdin; repeatable", ());
pub static WAIT: Flag = flag("w,wait", "SECONDS", "wait at most SECONDS for a job (default: no limit)", ());
pub static DELETE: Flag = flag("delete", "", "delete the job after printing it", ());
pub static BURY: Flag = flag("bury", "", "bury the job after printing it", ());
pub static STATE: Flag = flag("state", "STATE", "select ready, delayed or buried jobs (default ready)", ());
pub static STATES: Flag = flag("state", "STATE", "select jobs in this state; repeatable", ());
pub static COUNT: Flag = flag("n,count", "N", "at most N jobs (default 1)", ());
pub static SHOWN: Flag = flag("n,count", "N", "at most N jobs; 0: all (default 100)", ());
pub static MOVED: Flag = flag("n,count", "N", "at most N jobs (default: all)", ());
pub static ENOUGH: Flag = flag("n,count", "N", "exit after N jobs", ());
pub static FROM: Flag = flag("from", "ID", "select jobs with larger IDs", ());
pub static BINLOG: Flag = flag("b,binlog", "DIR", "read the binlog in DIR, which no server may be using", ());
pub static SKIP: Flag = flag("skip", "N", "skip the first N lines", ());
pub static INTERVAL: Flag = flag("interval", "SECONDS", "refresh interval (default 1)", ());
pub static JOBS: Flag = flag("j,jobs", "N", "process N jobs at a time (default 1, at most 256)", ());
pub static ONCE: Flag = flag("once", "", "exit after one job", ());
pub static RETRIES: Flag = flag("retries", "N", "bury a job after N retries, unless tries are limited (default 3)", ());
pub static BACKOFF: Flag = flag("backoff", "SECONDS", "delay of the first retry, doubled each time (default 1)", ());
pub static MAX_TIME: Flag = flag("max-time", "SECONDS", "abort a job after SECONDS; the job fails", ());
pub static TO_URL: Flag = flag("url", "URL", "send each job to URL with POST instead of running a command", ());
pub static QUIET: Flag = flag("q,quiet", "", "log only errors", ());
pub static BATCH: Flag = flag("b,batch", "", "print tables instead of using the terminal", ());
pub static ROUNDS: Flag = flag("n,count", "N", "exit after N refreshes", ());
pub static SORT: Flag = flag("sort", "COLUMN", "column to sort by (default: tube)", ());
pub static FILTER: Flag = flag("filter", "TEXT", "show only tubes whose names contain TEXT", ());

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperandKind {
    Tube,
    Settings,
    Job,
    File,
    Folder,
    /// Tube names, then `--` and another program's command line.
    Command,
    Shell,
    Text,
}

pub struct Subcommand {
    pub name: &'static str,
    pub operands: &'static str,
    pub help: &'static str,
    pub(super) options: &'static [&'static Flag],
    pub takes: OperandKind,
    pub count: RangeInclusive<usize>,
    pub(super) run: fn(&Call, &mut Out) -> Result<u8>,
}

impl Subcommand {
    pub fn options(&self) -> Vec<&'static Flag> {
        let connection: &[&Flag] =
            if self.options.iter().any(|opt| opt.long == SERVER.long) { &CONNECTION_OPTIONS } else { &[] };
        self.options.iter().chain(connection).copied().collect()
    }
}

pub struct Call {
    matches: Matches,
    pub operands: Vec<String>,
    pub command: Vec<String>,
}

impl Call {
    pub fn parse(row: &Subcommand, arguments: &[String]) -> Result<Option<Call>> {
        let mut parser = Options::new();
        for opt in row.options().into_iter().chain([&HELP]) {
            let short = opt.short.map_or(String::new(), |letter| letter.to_string());
            let has = if opt.value.is_some() { HasArg::Yes } else { HasArg::No };
            parser.opt(&short, opt.long, "", "", has, Occur::Multi);
        }
        let own = match arguments.iter().position(|word| word == "--") {
            Some(index) if row.takes == OperandKind::Command => &arguments[..index],
            _ => arguments,
        };
        let command = arguments[(own.len() + 1).min(arguments.len())..].to_vec();
        let name = row.name;
        let invalid = |fail| Problem::usage(format!("{name}: {} (see beanpole {name} -h)", message(fail)));
        let matches = parser.parse(own).map_err(invalid)?;
        if matches.opt_present(HELP.long) {
            return Ok(None);
        }
        let operands = matches.free.clone();
        let usage = format!("usage: beanpole {name} [OPTIONS] {}", row.operands);
        let problem = format!("{} (see beanpole {name} -h)", usage.trim_end());
        Problem::check_usage(row.count.contains(&operands.len()), &problem)?;
        Ok(Some(Call { matches, operands, command }))
    }

    /// Adds a hint if the connection failed without the option `-s` and an operand looks like a server's address.
    pub fn explain(&self, problem: Box<Problem>) -> Box<Problem> {
        let is_address = |word: &&String| word.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        match self.operands.iter().find(is_address) {
            Some(word) if problem.code == NO_CONNECTION && !self.has(&SERVER) => {
                Problem::new(problem.code, format!("{}; to select a server, use -s {word}", problem.text))
            }
            _ => problem,
        }
    }

    pub fn has(&self, opt: &Flag) -> bool {
        self.matches.opt_present(opt.long)
    }

    pub fn value(&self, opt: &Flag) -> Option<String> {
        self.values(opt).pop()
    }

    pub fn values(&self, opt: &Flag) -> Vec<String> {
        // `opt_strs` panics for undefined options.
        let defined = Some(opt.long).filter(|long| self.matches.opt_defined(long));
        defined.map_or(Vec::new(), |long| self.matches.opt_strs(long))
    }

    pub fn number(&self, opt: &Flag, min: u64, max: u64) -> Result<Option<u64>> {
        self.value(opt).map(|text| number(&format!("--{}", opt.long), &text, min, max)).transpose()
    }

    pub fn short_number(&self, opt: &Flag) -> Result<Option<u32>> {
        Ok(self.number(opt, 0, u32::MAX.into())?.map(|number| number as u32))
    }

    pub fn tubes(&self) -> Result<Vec<String>> {
        self.operands.iter().map(|name| tube(name)).collect()
    }

    pub fn groups(&self) -> Result<Vec<String>> {
        let groups = self.values(&OF_GROUP);
        match groups.iter().find(|name| !is_tube_name(name.as_bytes())) {
            Some(name) => Err(Problem::usage(format!("--group: invalid name: {}", name.escape_debug()))),
            None => Ok(groups),
        }
    }

    pub fn ids(&self) -> Result<Vec<u64>> {
        self.operands.iter().map(|text| number("job ID", text, 1, u64::MAX)).collect()
    }
}

fn message(fail: Fail) -> String {
    let dashed = |name: &str| if name.chars().count() == 1 { format!("-{name}") } else { format!("--{name}") };
    match fail {
        Fail::ArgumentMissing(name) => format!("flag requires an argument: {}", dashed(&name)),
        Fail::UnrecognizedOption(name) => format!("unknown flag: {}", dashed(&name)),
        Fail::UnexpectedArgument(name) => format!("flag takes no argument: {}", dashed(&name)),
        other => other.to_string(),
    }
}

pub fn number(what: &str, text: &str, min: u64, max: u64) -> Result<u64> {
    options::number(text, min, max).map_err(|problem| Problem::usage(format!("{what}: {problem}")))
}

pub fn tube(name: &str) -> Result<String> {
    let written = yaml::read_name(name.as_bytes());
    let invalid = || Problem::usage(format!("invalid tube name: {}", name.escape_debug()));
    yaml::is_legal_name(&written).then_some(written).ok_or_else(invalid)
}

pub fn confirm(question: &str, is_confirmed: bool) -> Result {
    if is_confirmed {
        return Ok(());
    }
    let mut stderr = std::io::stderr();
    let has_terminal = std::io::stdin().is_terminal() && stderr.is_terminal();
    Problem::check_usage(has_terminal, &format!("{question} Confirm with --yes"))?;
    let _ = write!(stderr, "{question} [y/N] ");
    let mut answer = String::new();
    let _ = std::io::stdin().lock().read_line(&mut answer);
    ["y", "Y", "yes"].contains(&answer.trim()).then_some(()).ok_or_else(|| Problem::refused("canceled"))
}

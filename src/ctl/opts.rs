//! The options of subcommands, each once, whichever of them take it.
//!
//! Owns their names and one line of help for each. Must not know who takes them.

/// An option of one or several subcommands.
#[derive(Debug)]
pub struct Flag {
    /// Its letter, if it has one.
    pub short: Option<char>,
    pub long: &'static str,
    /// What its value is called, if it takes one.
    pub value: Option<&'static str>,
    /// What it does, in one line.
    pub help: &'static str,
}

impl Flag {
    /// `-s` and `--server`, or the second alone.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let short = self.short.map(|letter| format!("-{letter}"));
        short.into_iter().chain([format!("--{}", self.long)])
    }
}

const fn flag(short: Option<char>, long: &'static str, help: &'static str) -> Flag {
    Flag { short, long, value: None, help }
}

const fn value(short: Option<char>, long: &'static str, value: &'static str, help: &'static str) -> Flag {
    Flag { short, long, value: Some(value), help }
}

pub static HELP: Flag = flag(Some('h'), "help", "print this and end");
pub static SERVER: Flag =
    value(Some('s'), "server", "SERVER", "HOST:PORT, unix:PATH or beanstalks://HOST (default 127.0.0.1:11300)");
pub static TIMEOUT: Flag =
    value(None, "timeout", "SECONDS", "give up a server that is silent for so long (default 5; 0: never)");
pub static AUTHORITY: Flag =
    value(None, "cacert", "FILE", "authorities that vouch for a server with TLS (default: the system's)");
pub static CERTIFICATE: Flag = value(None, "cert", "FILE", "show the certificate in FILE to a server with TLS");
pub static KEY: Flag = value(None, "key", "FILE", "the key of that certificate (default: in the same file)");
pub static TOKEN: Flag = value(None, "token-file", "FILE", "prove by the token in FILE who one is, with auth");
/// What everybody takes beside the server's name: how to reach it, and who one is there.
pub static REACH: [&Flag; 4] = [&AUTHORITY, &CERTIFICATE, &KEY, &TOKEN];
pub static JSON: Flag = flag(None, "json", "print objects of JSON, one a line");
pub static YES: Flag = flag(Some('y'), "yes", "do not ask first");
pub static NONE: Flag = flag(None, "none", "take all settings away");
pub static TUBE: Flag = value(Some('t'), "tube", "TUBE", "the tube (default: default)");
pub static OF_TUBE: Flag = value(Some('t'), "tube", "TUBE", "jobs of this tube instead of ids");
pub static INTO_TUBE: Flag = value(Some('t'), "tube", "TUBE", "put all jobs into this tube");
pub static JOB: Flag = value(Some('i'), "job", "ID", "the figures of this job; may be repeated");
pub static PRI: Flag = value(Some('p'), "pri", "PRI", "priority, 0 is the most urgent (default 1024)");
pub static NEW_PRI: Flag = value(Some('p'), "pri", "PRI", "a new priority (default: as it is)");
pub static DELAY: Flag = value(Some('d'), "delay", "SECONDS", "ready only after so long (default 0)");
pub static TTR: Flag = value(Some('r'), "ttr", "SECONDS", "time to run (default 60)");
pub static UNIQUE: Flag =
    value(None, "unique", "KEY", "no second job with this key; KEY:SECONDS: and none so long after");
pub static CON: Flag = value(None, "con", "KEY", "reserve one job with this key at a time; KEY:N: at most N of them");
pub static TTL: Flag = value(None, "ttl", "SECONDS", "delete a job that nobody has after so long");
pub static TRY: Flag = value(None, "try", "N", "bury what was lost or released so often; N:SECONDS: delay it first");
pub static UNTIL: Flag = value(Some('w'), "wait", "SECONDS", "wait for so long (default: without end)");
pub static LINES: Flag = flag(Some('l'), "lines", "each line of the input is a job");
pub static FILE: Flag = value(Some('f'), "file", "FILE", "read this file instead of stdin; may be repeated");
pub static WAIT: Flag = value(Some('w'), "wait", "SECONDS", "wait for a job for so long (default: without end)");
pub static DELETE: Flag = flag(None, "delete", "delete the job when it is printed");
pub static BURY: Flag = flag(None, "bury", "bury the job when it is printed");
pub static STATE: Flag = value(None, "state", "STATE", "jobs that are ready, delayed or buried (default ready)");
pub static STATES: Flag = value(None, "state", "STATE", "only jobs in this state; may be repeated");
pub static COUNT: Flag = value(Some('n'), "count", "N", "at most so many jobs (default 1)");
pub static SHOWN: Flag = value(Some('n'), "count", "N", "at most so many jobs (default 100; 0: all)");
pub static MOVED: Flag = value(Some('n'), "count", "N", "at most so many jobs (default: all)");
pub static ENOUGH: Flag = value(Some('n'), "count", "N", "end after so many jobs");
pub static FROM: Flag = value(None, "from", "ID", "only jobs whose ids are above this one");
pub static BINLOG: Flag = value(Some('b'), "binlog", "DIR", "read a binlog that no server uses, not a server");
pub static SKIP: Flag = value(None, "skip", "N", "leave out the first N lines");
pub static INTERVAL: Flag = value(None, "interval", "SECONDS", "look so often (default 1)");
pub static JOBS: Flag = value(Some('j'), "jobs", "N", "run so many at a time (default 1, at most 256)");
pub static ONCE: Flag = flag(None, "once", "end after one job");
pub static RETRIES: Flag = value(None, "retries", "N", "bury a job that fails once more than this (default 3)");
pub static BACKOFF: Flag =
    value(None, "backoff", "SECONDS", "wait before the first retry, then twice as long (default 1)");
pub static MAX_TIME: Flag = value(None, "max-time", "SECONDS", "kill a command that takes longer: it has failed");
pub static QUIET: Flag = flag(Some('q'), "quiet", "log only what goes wrong");
pub static BATCH: Flag = flag(Some('b'), "batch", "print tables instead of taking the terminal");
pub static ROUNDS: Flag = value(Some('n'), "count", "N", "end after so many looks");
pub static SORT: Flag = value(None, "sort", "COLUMN", "sort by this column (default: tube)");
pub static FILTER: Flag = value(None, "filter", "TEXT", "only tubes whose names have this in them");

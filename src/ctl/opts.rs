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

pub static HELP: Flag = flag(Some('h'), "help", "print this help and exit");
pub static SERVER: Flag =
    value(Some('s'), "server", "SERVER", "HOST:PORT, unix:PATH or beanstalks://HOST (default 127.0.0.1:11300)");
pub static TIMEOUT: Flag =
    value(None, "timeout", "SECONDS", "give up when the server is silent for SECONDS; 0: never (default 5)");
pub static AUTHORITY: Flag = value(None, "cacert", "FILE", "certificate authorities for TLS (default: the system's)");
pub static CERTIFICATE: Flag = value(None, "cert", "FILE", "client certificate for TLS");
pub static KEY: Flag = value(None, "key", "FILE", "private key of the certificate (default: in the same file)");
pub static TOKEN: Flag = value(None, "token-file", "FILE", "authenticate with the token in FILE");
/// What everybody takes beside the server's name: how to reach it, and who one is there.
pub static REACH: [&Flag; 4] = [&AUTHORITY, &CERTIFICATE, &KEY, &TOKEN];
pub static JSON: Flag = flag(None, "json", "print one JSON object per line");
pub static YES: Flag = flag(Some('y'), "yes", "do not ask for confirmation");
pub static NONE: Flag = flag(None, "none", "remove all settings");
pub static TUBE: Flag = value(Some('t'), "tube", "TUBE", "name of the tube (default: default)");
pub static OF_TUBE: Flag = value(Some('t'), "tube", "TUBE", "select jobs of this tube instead of IDs");
pub static INTO_TUBE: Flag = value(Some('t'), "tube", "TUBE", "put all jobs into this tube");
pub static JOB: Flag = value(Some('i'), "job", "ID", "show the statistics of this job; repeatable");
pub static PRI: Flag = value(Some('p'), "pri", "PRI", "priority; 0 is the most urgent (default 1024)");
pub static NEW_PRI: Flag = value(Some('p'), "pri", "PRI", "new priority (default: unchanged)");
pub static DELAY: Flag = value(Some('d'), "delay", "SECONDS", "delay before the job is ready (default 0)");
pub static TTR: Flag = value(Some('r'), "ttr", "SECONDS", "time to run (default 60)");
pub static UNIQUE: Flag = value(None, "unique", "KEY", "idempotency key; KEY:SECONDS keeps the key after the job ends");
pub static CON: Flag = value(None, "con", "KEY", "reserve one job with this key at a time; KEY:N: at most N");
pub static GROUP: Flag = value(None, "group", "GROUP", "make the job a member of GROUP; repeatable");
pub static AFTER: Flag =
    value(None, "after", "GROUP", "hold the job until all members of GROUP, or N (GROUP:N), are deleted");
pub static CRON: Flag =
    value(None, "cron", "FIELDS", "put a copy of the job whenever cron's five FIELDS match, in UTC");
pub static EVERY: Flag = value(None, "every", "SECONDS", "put a copy of the job every SECONDS");
pub static OF_GROUP: Flag = value(None, "group", "GROUP", "wait until all members of GROUP are deleted");
pub static TTL: Flag = value(None, "ttl", "SECONDS", "delete the job after SECONDS unless it is reserved");
pub static TRY: Flag = value(None, "try", "N", "bury the job after N failed tries; N:SECONDS: with a growing delay");
pub static UNTIL: Flag = value(Some('w'), "wait", "SECONDS", "wait at most SECONDS (default: no limit)");
pub static LINES: Flag = flag(Some('l'), "lines", "put each input line as a job");
pub static FILE: Flag = value(Some('f'), "file", "FILE", "read FILE instead of stdin; repeatable");
pub static WAIT: Flag = value(Some('w'), "wait", "SECONDS", "wait at most SECONDS for a job (default: no limit)");
pub static DELETE: Flag = flag(None, "delete", "delete the job after printing it");
pub static BURY: Flag = flag(None, "bury", "bury the job after printing it");
pub static STATE: Flag = value(None, "state", "STATE", "select ready, delayed or buried jobs (default ready)");
pub static STATES: Flag = value(None, "state", "STATE", "select jobs in this state; repeatable");
pub static COUNT: Flag = value(Some('n'), "count", "N", "at most N jobs (default 1)");
pub static SHOWN: Flag = value(Some('n'), "count", "N", "at most N jobs; 0: all (default 100)");
pub static MOVED: Flag = value(Some('n'), "count", "N", "at most N jobs (default: all)");
pub static ENOUGH: Flag = value(Some('n'), "count", "N", "exit after N jobs");
pub static FROM: Flag = value(None, "from", "ID", "select jobs with larger IDs");
pub static BINLOG: Flag = value(Some('b'), "binlog", "DIR", "read the binlog in DIR, which no server may be using");
pub static SKIP: Flag = value(None, "skip", "N", "skip the first N lines");
pub static INTERVAL: Flag = value(None, "interval", "SECONDS", "refresh interval (default 1)");
pub static JOBS: Flag = value(Some('j'), "jobs", "N", "run N commands at a time (default 1, at most 256)");
pub static ONCE: Flag = flag(None, "once", "exit after one job");
pub static RETRIES: Flag = value(None, "retries", "N", "bury a job after N retries (default 3)");
pub static BACKOFF: Flag =
    value(None, "backoff", "SECONDS", "delay before the first retry, doubled each time (default 1)");
pub static MAX_TIME: Flag = value(None, "max-time", "SECONDS", "kill a command after SECONDS; its job has failed");
pub static QUIET: Flag = flag(Some('q'), "quiet", "log only errors");
pub static BATCH: Flag = flag(Some('b'), "batch", "print tables instead of using the terminal");
pub static ROUNDS: Flag = value(Some('n'), "count", "N", "exit after N refreshes");
pub static SORT: Flag = value(None, "sort", "COLUMN", "column to sort by (default: tube)");
pub static FILTER: Flag = value(None, "filter", "TEXT", "show only tubes whose names contain TEXT");

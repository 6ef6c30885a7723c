//! The command line of the benchmark.
//!
//! Owns the options and their help. Must not run anything.

use std::path::PathBuf;
use std::time::Duration;

use super::catalogue::{BENCH, PEER, SCENARIOS};
use super::measure::Scale;
use super::scenario::{Kind, Scenario};

#[derive(Debug)]
pub struct Args {
    /// `true` to shorten the runs and to run fewer scenarios.
    pub quick: bool,
    /// `true` to run the server and the client on one CPU.
    pub pin: bool,
    pub runs: usize,
    /// The path of the peer, if any.
    pub peer: Option<PathBuf>,
    pub ours: PathBuf,
    /// The path of the static program, for the scenarios of [`Kind::Static`].
    pub static_program: Option<PathBuf>,
    /// The scenarios to run, or empty for the default scenarios.
    pub names: Vec<String>,
    /// A file with earlier results. Their ratios are compared with the new ratios.
    pub compare: Option<PathBuf>,
}

#[derive(Debug)]
pub enum Parsed {
    Run(Args),
    Print(String),
}

/// Parses the command line. If the arguments are invalid, the error is a one-line message.
pub fn parse(arguments: &[String], ours: &str) -> Result<Parsed, String> {
    let mut options = getopts::Options::new();
    options.optflag("", "quick", "at most a minute: short runs of the most telling scenarios");
    options.optmulti("", "scenario", "run only these", "NAME,...");
    options.optflag("", "list", "list the scenarios");
    options.optflag("", "pin", "run servers and clients on one CPU (with taskset)");
    options.optopt("", "runs", "repetitions, of which the medians count (default 3)", "N");
    if let Some([variable, usual]) = PEER {
        options.optopt("", "peer", &format!("the server to compare with (default ${variable} or {usual})"), "PATH");
    }
    options.optopt("", "beanpole", "the server under test (default: the one built with this)", "PATH");
    options.optopt("", "static", "the static program, for restart-static", "PATH");
    options.optopt("", "compare", "warn where a ratio is 15 % worse than in these results", "FILE");
    options.optflag("", "bench", "ignored; cargo adds it");
    options.optflag("h", "help", "print this help");
    let matches = options.parse(arguments).map_err(|fail| fail.to_string())?;
    // `cargo test` runs benchmarks without arguments, and must not start any scenario.
    if matches.opt_present("help") || arguments.is_empty() {
        return Ok(Parsed::Print(options.usage(&format!("Usage: cargo bench --bench {BENCH} -- [OPTIONS]"))));
    }
    if matches.opt_present("list") {
        return Ok(Parsed::Print(list()));
    }
    let runs = matches.opt_get_default("runs", 3).map_err(|_| "--runs takes a number".to_owned())?;
    let names = matches.opt_strs("scenario").iter().flat_map(|names| names.split(',')).map(str::to_owned).collect();
    let peer = PEER.map(|[variable, usual]| {
        let named = matches.opt_str("peer").or_else(|| std::env::var(variable).ok());
        PathBuf::from(named.unwrap_or_else(|| usual.to_owned()))
    });
    let args = Args {
        quick: matches.opt_present("quick"),
        pin: matches.opt_present("pin"),
        runs: if (1..=99).contains(&runs) { runs } else { return Err("--runs takes 1 to 99".to_owned()) },
        peer,
        ours: PathBuf::from(matches.opt_str("beanpole").unwrap_or_else(|| ours.to_owned())),
        static_program: matches.opt_str("static").map(PathBuf::from),
        names,
        compare: matches.opt_str("compare").map(PathBuf::from),
    };
    let known = |name: &str| SCENARIOS.iter().any(|scenario| scenario.name == name);
    match args.names.iter().find(|name| !known(name)) {
        Some(name) => Err(format!("no scenario is called {name}; --list prints the names")),
        None => Ok(Parsed::Run(args)),
    }
}

fn list() -> String {
    let rows = SCENARIOS.iter().map(|row| {
        let quick = if row.kind == Kind::Quick { "quick" } else { "" };
        format!("{:14} {quick:6} {}\n", row.name, row.about)
    });
    rows.collect()
}

impl Args {
    pub fn scenarios(&self) -> impl Iterator<Item = &'static Scenario> + '_ {
        let runs = |row: &&Scenario| row.kind != Kind::Static || self.static_program.is_some();
        SCENARIOS.iter().filter(runs).filter(|row| match self.names.as_slice() {
            [] => row.kind == Kind::Quick || !self.quick,
            names => names.iter().any(|name| name == row.name),
        })
    }

    pub fn scale(&self) -> Scale {
        let millis = Duration::from_millis;
        match self.quick {
            true => Scale { time: millis(150), warm_up: millis(30), divide: 10 },
            false => Scale { time: millis(1000), warm_up: millis(200), divide: 1 },
        }
    }
}

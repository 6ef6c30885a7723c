//! The command line of the benchmark.
//!
//! Owns the options and their names. Must not run anything.

use std::path::PathBuf;
use std::time::Duration;

use super::catalogue::{BENCH, PEER, SCENARIOS};
use super::measure::Scale;
use super::scenario::{Kind, Scenario};

/// What to run.
#[derive(Debug)]
pub struct Args {
    /// Short runs of few scenarios.
    pub quick: bool,
    /// Everything on one CPU.
    pub pin: bool,
    /// Repetitions.
    pub runs: usize,
    /// The server to compare with, if there is one.
    pub peer: Option<PathBuf>,
    /// The server under test.
    pub ours: PathBuf,
    /// The scenarios, if not the default ones.
    pub names: Vec<String>,
    /// Earlier results to compare the ratios with.
    pub compare: Option<PathBuf>,
}

/// The command-line arguments.
#[derive(Debug)]
pub enum Wish {
    /// Run the benchmark.
    Run(Args),
    /// Print this text.
    Print(String),
}

/// Parses a command line without the program's name. The error is one line.
pub fn parse(arguments: &[String], ours: &str) -> Result<Wish, String> {
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
    options.optopt("", "compare", "warn where a ratio is 15 % worse than in these results", "FILE");
    options.optflag("", "bench", "ignored; cargo says it");
    options.optflag("h", "help", "print this");
    let matches = options.parse(arguments).map_err(|fail| fail.to_string())?;
    // Without any argument, it was started as a test, which it is not.
    if matches.opt_present("help") || arguments.is_empty() {
        return Ok(Wish::Print(options.usage(&format!("Usage: cargo bench --bench {BENCH} -- [OPTIONS]"))));
    }
    if matches.opt_present("list") {
        return Ok(Wish::Print(list()));
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
        names,
        compare: matches.opt_str("compare").map(PathBuf::from),
    };
    let known = |name: &str| SCENARIOS.iter().any(|scenario| scenario.name == name);
    match args.names.iter().find(|name| !known(name)) {
        Some(name) => Err(format!("no scenario is called {name}; --list tells their names")),
        None => Ok(Wish::Run(args)),
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
    /// Returns the scenarios to run, in the order of the catalogue.
    pub fn scenarios(&self) -> impl Iterator<Item = &'static Scenario> + '_ {
        SCENARIOS.iter().filter(|row| match self.names.as_slice() {
            [] => row.kind == Kind::Quick || !self.quick,
            names => names.iter().any(|name| name == row.name),
        })
    }

    /// Returns how much to do in each.
    pub fn scale(&self) -> Scale {
        let millis = Duration::from_millis;
        match self.quick {
            true => Scale { time: millis(150), warm_up: millis(30), divide: 10 },
            false => Scale { time: millis(1000), warm_up: millis(200), divide: 1 },
        }
    }
}

//! Recovery of the queue from the log at startup, with reports to the operator. Must not decode the log.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::binlog::{self, OpenError, Opened, RecoveryProgress, Storage};
use crate::engine::{Engine, Time};
use crate::settings::config::Config;

const EVERY: Duration = Duration::from_secs(1);

pub fn recover(log: Arc<dyn Storage>, config: &Config, engine: &mut Engine, now: Time) -> Result<Opened, OpenError> {
    let start = Instant::now();
    let mut last = start;
    let mut watch = |progress: RecoveryProgress| {
        if last.elapsed() >= EVERY {
            last = Instant::now();
            log::info!("binlog: {}", describe(&progress, start.elapsed()));
        }
    };
    let opened = binlog::open(log, config.log, engine, now, &mut watch)?;
    for problem in &opened.report.problems {
        log::warn!("binlog: {problem}");
    }
    if let Some(count) = opened.report.imported {
        log::info!("binlog: {count} jobs were imported from beanstalkd; its files are kept in the folder beanstalkd");
    }
    log::info!("binlog: {}", describe(&opened.report.progress, start.elapsed()));
    if let Some(error) = &opened.failure {
        log::error!("binlog: the disk fails: {error}; new jobs are refused until it is back");
    }
    Ok(opened)
}

fn describe(progress: &RecoveryProgress, taken: Duration) -> String {
    let percent = (progress.done * 100).checked_div(progress.segments).unwrap_or(100);
    let rate = progress.bytes as f64 / 1e6 / taken.as_secs_f64().max(1e-6);
    format!("{percent} % read, {} jobs, {:.1} MB at {rate:.0} MB/s", progress.jobs, progress.bytes as f64 / 1e6)
}

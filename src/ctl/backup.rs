//! `beanpole backup DIR DEST`: a consistent, verified copy of a binlog, even while a server writes it.
//!
//! Owns the directory of the copy. Does not change or lock the source.

use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::call::Call;
use super::out::Out;
use super::problem::{Problem, DONE, REFUSED};
use crate::binlog::{back_up, inspect, Folder};
use crate::engine::{Engine, Limits};

pub fn run(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let (from, to) = (Path::new(&call.operands[0]), Path::new(&call.operands[1]));
    let there = |error: &dyn std::fmt::Display| Problem::empty(format!("{}: {error}", from.display()));
    let here = |error: &dyn std::fmt::Display| Problem::empty(format!("{}: {error}", to.display()));
    fs::read_dir(from).map_err(|error| there(&error))?;
    match DirBuilder::new().mode(0o700).create(to) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let mut entries = fs::read_dir(to).map_err(|error| here(&error))?;
            if entries.next().is_some() {
                return Err(here(&"it is not empty"));
            }
        }
        Err(error) => return Err(here(&error)),
    }
    let copy = Folder::new(to);
    back_up(&Folder::new(from), &copy).map_err(|error| there(&error))?;
    // The entry of the new directory itself.
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(|error| here(&error))?;
    let found = inspect(&copy, &mut Engine::new(Limits::NONE)).map_err(|error| here(&error))?;
    let progress = found.report.progress;
    // The reader of the output may be gone.
    let _ = out.line(&format!("{} jobs in {} segments, {} bytes", progress.jobs, progress.segments, progress.bytes));
    for problem in &found.report.problems {
        let _ = out.line(&format!("damaged: {problem}"));
    }
    Ok(if found.report.problems.is_empty() { DONE } else { REFUSED })
}

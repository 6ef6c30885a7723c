//! The input of subcommands: files, or stdin.
//!
//! Owns the open file and its progress bar. Must not interpret the contents.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;

use super::problem::Problem;
use super::progress::ProgressBar;

pub struct Input<'a> {
    name: &'a str,
    reader: BufReader<File>,
    /// The size in bytes, if this is a regular file.
    size: Option<u64>,
    read: u64,
    progress: ProgressBar,
}

/// Calls `each` with each of these files, or with stdin if there are none.
pub fn each_input(names: &[String], each: &mut dyn FnMut(Input) -> Result<(), Problem>) -> Result<(), Problem> {
    if names.is_empty() {
        return each(Input::of("stdin", io::stdin().as_fd().try_clone_to_owned().map(File::from))?);
    }
    names.iter().try_for_each(|name| each(Input::of(name, File::open(name))?))
}

impl Input<'_> {
    fn of(name: &str, file: io::Result<File>) -> Result<Input<'_>, Problem> {
        let file = file.map_err(|error| Problem::file(name, &error))?;
        let size = file.metadata().ok().filter(|about| about.is_file()).map(|about| about.len());
        let reader = BufReader::with_capacity(64 * 1024, file);
        Ok(Input { name, reader, size, read: 0, progress: ProgressBar::new("jobs") })
    }

    pub fn rest(&mut self) -> Result<Vec<u8>, Problem> {
        let mut bytes = Vec::new();
        self.reader.read_to_end(&mut bytes).map_err(|error| Problem::file(self.name, &error))?;
        Ok(bytes)
    }

    /// Reads the next line with its line feed, up to `most` bytes. Returns `false` at the end. The progress bar shows
    /// `done` jobs.
    pub fn line(&mut self, line: &mut Vec<u8>, most: u64, done: u64) -> Result<bool, Problem> {
        self.progress.update(done, self.size.map(|size| (self.read, size)));
        line.clear();
        let length = (&mut self.reader).take(most).read_until(b'\n', line);
        let length = length.map_err(|error| Problem::file(self.name, &error))?;
        self.read += length as u64;
        Ok(length > 0)
    }
}

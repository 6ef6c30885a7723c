//! What a subcommand reads: files, or stdin.
//!
//! Owns their opening, and the line that tells how far they are read. Must not know what is in them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;

use super::problem::Problem;
use super::progress::ProgressBar;

pub struct Input<'a> {
    name: &'a str,
    reader: BufReader<File>,
    /// In bytes, if it is a file that has one.
    size: Option<u64>,
    /// Bytes that were read as lines.
    read: u64,
    progress: ProgressBar,
}

/// Hands on each of these files when its turn has come, or stdin if there are none.
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

    /// All bytes that were not read as lines.
    pub fn rest(&mut self) -> Result<Vec<u8>, Problem> {
        let mut bytes = Vec::new();
        self.reader.read_to_end(&mut bytes).map_err(|error| Problem::file(self.name, &error))?;
        Ok(bytes)
    }

    /// Reads the next line, of at most so many bytes, with its end; false if there is none. So many jobs are `done`.
    pub fn line(&mut self, line: &mut Vec<u8>, most: u64, done: u64) -> Result<bool, Problem> {
        self.progress.tell(done, self.size.map(|size| (self.read, size)));
        line.clear();
        let length = (&mut self.reader).take(most).read_until(b'\n', line);
        let length = length.map_err(|error| Problem::file(self.name, &error))?;
        self.read += length as u64;
        Ok(length > 0)
    }
}

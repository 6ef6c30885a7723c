//! Log targets other than stderr: a file that can be reopened, and syslog.
//!
//! Owns the log targets, and the time and level of a line. Must not decide what is logged.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use log::Level;

use crate::engine::push_moment;
use crate::shared::files;
use crate::shared::lock_order::{Mutex, LOG_LINES};

const SYSLOG: &str = "/dev/log";

/// RFC 5424, section 6.2.1: daemons.
const DAEMONS: u8 = 3;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A file. If root creates the file, this user becomes its owner.
    File(PathBuf, Option<u32>),
    Syslog(String),
    Nowhere,
}

#[derive(Debug)]
enum OpenTarget {
    File { path: PathBuf, file: File },
    Syslog { name: String, socket: Option<UnixDatagram> },
    Nowhere,
}

#[derive(Debug)]
pub struct Elsewhere(Mutex<OpenTarget, LOG_LINES>);

static LOG: OnceLock<Elsewhere> = OnceLock::new();

pub fn open(target: Target) -> io::Result<&'static Elsewhere> {
    let target = match target {
        Target::File(path, owner) => OpenTarget::File { file: open_file(&path, owner)?, path },
        Target::Syslog(name) => OpenTarget::Syslog { name, socket: None },
        Target::Nowhere => OpenTarget::Nowhere,
    };
    Ok(LOG.get_or_init(|| Elsewhere(Mutex::new(target))))
}

/// If reopening a renamed file fails, the old file stays open.
pub fn reopen() -> io::Result<()> {
    if let Some(OpenTarget::File { path, file }) = LOG.get().map(|log| log.0.lock()).as_deref_mut() {
        *file = open_file(path, None)?;
    }
    Ok(())
}

fn open_file(path: &Path, owner: Option<u32>) -> io::Result<File> {
    let opened = files::open_log(path, owner);
    opened.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

impl Elsewhere {
    // An error of the log cannot be logged.
    pub(super) fn write(&self, level: Level, text: &str) {
        match &mut *self.0.lock() {
            OpenTarget::File { file, .. } => {
                let _ = file.write_all(text_line(level, text, SystemTime::now()).as_bytes());
            }
            OpenTarget::Syslog { name, socket } => {
                let line = format!("<{}>{name}[{}]: {text}", DAEMONS << 3 | severity(level), std::process::id());
                let sent = socket.as_ref().is_some_and(|socket| socket.send(line.as_bytes()).is_ok());
                if !sent {
                    // The syslog daemon may have been restarted. If its socket is full, the line is lost.
                    *socket = connect().ok();
                    let _ = socket.as_ref().map(|socket| socket.send(line.as_bytes()));
                }
            }
            OpenTarget::Nowhere => {}
        }
    }
}

pub(super) fn text_line(level: Level, text: &str, now: SystemTime) -> String {
    format!("{} {level:5} {text}\n", timestamp(now))
}

pub(super) fn timestamp(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut moment = Vec::with_capacity(24);
    push_moment(&mut moment, since.as_secs());
    format!("{}.{:03}Z", String::from_utf8_lossy(&moment), since.subsec_millis())
}

pub(super) fn severity(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

fn connect() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect(SYSLOG)?;
    Ok(socket)
}

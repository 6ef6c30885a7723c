//! The log. Each event is one line, written to stderr, a file that can be reopened, or syslog. If nobody reads stderr,
//! lines are dropped and counted, so that no thread blocks for long.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs::File, os::fd::AsFd, os::unix::net::UnixDatagram, sync::OnceLock};

use log::kv::{Key, Value, VisitSource};
use log::{Level, LevelFilter, Log, Metadata, Record};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

use crate::engine::push_moment;
use crate::settings::config::LogTarget;
use crate::shared::files;
use crate::shared::json;
use crate::shared::lock_order::{Mutex, LOG_LINES};
use crate::shared::system;

/// The maximum wait for stderr in milliseconds before lines are dropped. Short, because the pool threads also log.
const PATIENCE: u16 = 250;

/// The facility of system daemons (RFC 5424, section 6.2.1).
const DAEMONS: u8 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogForm {
    Text,
    Json,
    Journal,
}

enum OpenTarget {
    // `lost` lines were dropped since the last written line.
    Stderr { form: LogForm, lost: u64 },
    File { path: PathBuf, file: File },
    Syslog(Option<UnixDatagram>),
    Nowhere,
}

struct Logger(Mutex<OpenTarget, LOG_LINES>);

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// `verbosity` counts the `-V` options: 0 logs problems and rare events, 1 adds connections, and 2 adds commands.
pub fn level(verbosity: u32) -> LevelFilter {
    match verbosity {
        0 => LevelFilter::Info,
        1 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    }
}

/// `owner` is the ID of the user who becomes the owner of a log file if root creates it.
pub fn start(level: LevelFilter, form: LogForm, target: LogTarget, owner: Option<u32>) -> io::Result<()> {
    let form = if form == LogForm::Text && is_journal() { LogForm::Journal } else { form };
    let target = match target {
        LogTarget::Stderr => OpenTarget::Stderr { form, lost: 0 },
        LogTarget::File(path) => OpenTarget::File { file: open_file(&path, owner)?, path },
        LogTarget::Syslog => OpenTarget::Syslog(None),
        LogTarget::Nowhere => OpenTarget::Nowhere,
    };
    // Fails only if the process already has a logger.
    if log::set_logger(LOGGER.get_or_init(|| Logger(Mutex::new(target)))).is_ok() {
        log::set_max_level(level);
    }
    Ok(())
}

fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let Ok(stderr) = nix::sys::stat::fstat(io::stderr()) else { return false };
    stream == format!("{}:{}", stderr.st_dev, stderr.st_ino)
}

impl Log for Logger {
    /// Returns `false` for the log records of libraries.
    fn enabled(&self, metadata: &Metadata) -> bool {
        metadata.target().starts_with("beanpole")
    }

    fn log(&self, record: &Record) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let now = SystemTime::now();
        // An error in writing the log cannot be logged.
        let _ = match &mut *self.0.lock() {
            OpenTarget::Stderr { form, lost } => write_to_stderr(record, *form, lost, now),
            OpenTarget::File { file, .. } => file.write_all(line(record, LogForm::Text, SystemTime::now()).as_bytes()),
            OpenTarget::Syslog(socket) => {
                let (text, severity) = (text(record), severity(record.level()));
                let line = format!("<{}>gearmand[{}]: {text}", DAEMONS << 3 | severity, std::process::id());
                let sent = socket.as_ref().is_some_and(|socket| socket.send(line.as_bytes()).is_ok());
                if !sent {
                    // The syslog daemon may have been restarted. If its socket is full, the line is lost.
                    *socket = connect().ok();
                    let _ = socket.as_ref().map(|socket| socket.send(line.as_bytes()));
                }
                Ok(())
            }
            OpenTarget::Nowhere => Ok(()),
        };
    }

    fn flush(&self) {}
}

fn write_to_stderr(record: &Record, form: LogForm, lost: &mut u64, now: SystemTime) -> io::Result<()> {
    if !is_writable(if *lost == 0 { PATIENCE } else { 0 }) {
        *lost += 1;
        return Ok(());
    }
    let mut lines = line(record, form, now);
    if *lost > 0 {
        // Write only once, because the pipe may lack space for a second write.
        let notice = format!("lines of this log that were lost, since nobody read them: {lost}");
        let mut warning = Record::builder();
        warning.level(Level::Warn);
        lines.insert_str(0, &line(&warning.args(format_args!("{notice}")).build(), form, now));
        *lost = 0;
    }
    io::stderr().lock().write_all(lines.as_bytes())
}

fn is_writable(patience: u16) -> bool {
    let stderr = std::io::stderr();
    let mut file = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    system::uninterrupted(|| poll(&mut file, PollTimeout::from(patience))) != Ok(0)
}

fn line(record: &Record, form: LogForm, now: SystemTime) -> String {
    let (level, text) = (record.level(), text(record));
    match form {
        LogForm::Text => format!("{} {level:5} {text}\n", timestamp(now)),
        LogForm::Journal => format!("<{}>{text}\n", severity(level)),
        LogForm::Json => {
            let line = json::object(|members| {
                members.text("time", timestamp(now).as_bytes());
                members.text("level", level.as_str().to_ascii_lowercase().as_bytes());
                members.text("text", record.args().to_string().as_bytes());
                let _ = record.key_values().visit(&mut Each(|key: Key, value: Value| {
                    match value.to_u64().map(|number| number.to_string()).or_else(|| Some(value.to_f64()?.to_string()))
                    {
                        Some(number) => members.raw(key.as_str(), &number),
                        None => members.text(key.as_str(), value.to_string().as_bytes()),
                    }
                }));
            });
            line + "\n"
        }
    }
}

fn text(record: &Record) -> String {
    let mut text = record.args().to_string();
    let _ = record.key_values().visit(&mut Each(|key: Key, value: Value| {
        let value = value.to_string();
        let plain = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
        text += &if plain { format!(" {key}={value}") } else { format!(" {key}={value:?}") };
    }));
    text
}

/// Calls a function with each key and value of a record.
struct Each<F>(F);

impl<'kvs, F: FnMut(Key<'kvs>, Value<'kvs>)> VisitSource<'kvs> for Each<F> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), log::kv::Error> {
        (self.0)(key, value);
        Ok(())
    }
}

pub fn reopen() -> io::Result<()> {
    if let Some(OpenTarget::File { path, file }) = LOGGER.get().map(|log| log.0.lock()).as_deref_mut() {
        *file = open_file(path, None)?;
    }
    Ok(())
}

fn open_file(path: &Path, owner: Option<u32>) -> io::Result<File> {
    let opened = files::open_log(path, owner);
    opened.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn timestamp(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut moment = Vec::with_capacity(24);
    push_moment(&mut moment, since.as_secs());
    format!("{}.{:03}Z", String::from_utf8_lossy(&moment), since.subsec_millis())
}

fn severity(level: Level) -> u8 {
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
    socket.connect("/dev/log")?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_requested_form() {
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_700_000_000_123);
        let fields = [("client", Value::from(3_u64)), ("reply", Value::from("OK \"x\"\n")), ("ms", Value::from(1.5))];
        let fields = &fields[..];
        let args = format_args!("put");
        let record = Record::builder().level(Level::Warn).args(args).key_values(&fields).build();
        let words = r#"put client=3 reply="OK \"x\"\n" ms=1.5"#;
        assert_eq!(line(&record, LogForm::Text, now), format!("2023-11-14T22:13:20.123Z WARN  {words}\n"));
        assert_eq!(line(&record, LogForm::Journal, now), format!("<4>{words}\n"));
        let json = r#"{"time":"2023-11-14T22:13:20.123Z","level":"warn","text":"put","client":3,"reply":"OK \"x\"\n","ms":1.5}"#;
        assert_eq!(line(&record, LogForm::Json, now), format!("{json}\n"));
    }
}

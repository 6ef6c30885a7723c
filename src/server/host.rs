//! The server process: statistics, identity and user.

use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};
use std::{io, path::Path, sync::Arc};

use crate::shared::atomic::{AtomicU64, Ordering};
use log::Level;
use nix::sys::resource::{getrusage, UsageWho};
use nix::sys::stat::{umask, Mode};
use nix::sys::time::TimeValLike;
use nix::unistd::{getegid, geteuid, setgid, setuid, Gid, Uid, User};

use super::gate::LogLimit;
use super::socket::PeerAddress;
use crate::engine::{Histogram, Time};
use crate::protocol::gearman::handle_prefix;
use crate::protocol::{Facts, Host, Latencies, Usage};
use crate::settings::config::Config;
use crate::shared::files::FilePlace;
use crate::shared::lock_order::LeafMutex;
use crate::shared::role::{RoleBoard, RoleFigures};
use crate::shared::system;

pub struct Process {
    facts: Facts,
    pub rejected: AtomicU64,
    failed_auths: AtomicU64,
    pub dropped: AtomicU64,
    resident: AtomicU64,
    open_files: AtomicU64,
    refreshed: LeafMutex<Option<Instant>>,
    /// The durations for which threads held the engine's lock; `None` if not recorded.
    pub turns: Option<LeafMutex<Histogram>>,
    pub syncs: Option<Arc<LeafMutex<Histogram>>>,
    role: Option<Arc<RoleBoard>>,
}

/// The upper bounds of the buckets of the histogram `turns`, in nanoseconds.
const TURN_BOUNDS: [u64; 10] =
    [1_000, 4_000, 16_000, 64_000, 256_000, 1_024_000, 4_096_000, 16_384_000, 65_536_000, 262_144_000];

/// The minimum interval between measurements of memory and open files. Counting many open files is slow.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

impl Process {
    pub fn new(config: &Config, started: Time) -> Process {
        let name = nix::sys::utsname::uname();
        let text = |part: fn(&nix::sys::utsname::UtsName) -> &std::ffi::OsStr| {
            name.as_ref().map_or(String::new(), |name| part(name).to_string_lossy().into_owned())
        };
        let hostname = text(|name| name.nodename());
        let facts = Facts {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            id: identity(),
            handle_prefix: handle_prefix(config.handle_prefix.as_deref(), &hostname),
            hostname,
            os: text(|name| name.version()),
            platform: text(|name| name.machine()),
            started,
            max_job_size: config.max_job_size,
            max_connections: config.max_connections,
            max_files: system::file_limit(),
        };
        let turns = (!config.http.is_empty()).then(|| LeafMutex::new(Histogram::new(&TURN_BOUNDS)));
        let (rejected, failed_auths, dropped, resident, open_files) = Default::default();
        let refreshed = LeafMutex::new(None);
        let (syncs, role) = (None, config.role.clone());
        Process { facts, rejected, failed_auths, dropped, resident, open_files, refreshed, turns, syncs, role }
    }

    pub fn record_wrong_token(&self, peer: PeerAddress) {
        self.failed_auths.fetch_add(1, Ordering::Relaxed);
        static WRONG_TOKENS: LogLimit = LogLimit::new();
        WRONG_TOKENS.log(Level::Warn, format_args!("{peer}: its token was refused"));
    }

    /// Reads files, so the caller must not hold a lock.
    pub fn refresh(&self) {
        let now = Instant::now();
        let Some(mut refreshed) = self.refreshed.try_lock() else { return };
        if refreshed.is_some_and(|refreshed| now.duration_since(refreshed) < REFRESH_INTERVAL) {
            return;
        }
        *refreshed = Some(now);
        self.resident.store(system::resident_memory(), Ordering::Relaxed);
        self.open_files.store(system::open_files(), Ordering::Relaxed);
    }
}

impl Host for Process {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn usage(&self) -> Usage {
        let times = getrusage(UsageWho::RUSAGE_SELF).ok();
        let micros = |time: nix::sys::time::TimeVal| time.num_microseconds().unsigned_abs();
        Usage {
            user_micros: times.map_or(0, |times| micros(times.user_time())),
            system_micros: times.map_or(0, |times| micros(times.system_time())),
            rejected_connections: self.rejected.load(Ordering::Relaxed),
            failed_auths: self.failed_auths.load(Ordering::Relaxed),
            dropped_connections: self.dropped.load(Ordering::Relaxed),
            resident: self.resident.load(Ordering::Relaxed),
            open_files: self.open_files.load(Ordering::Relaxed),
        }
    }

    fn latencies(&self) -> Latencies {
        let copy = |times: &LeafMutex<Histogram>| times.lock().clone();
        Latencies { turns: self.turns.as_ref().map(copy), syncs: self.syncs.as_deref().map(copy) }
    }

    fn role(&self) -> Option<RoleFigures> {
        self.role.as_ref().map(|board| board.figures())
    }
}

/// Returns an unpredictable number, which comes from the random keys of the standard library's hash tables.
pub fn random() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}

/// Returns hexadecimal digits with a letter other than "e", because YAML parsers can read digits and "e" as a number.
fn identity() -> String {
    loop {
        let id = format!("{:016x}", random());
        if id.bytes().any(|byte| byte.is_ascii_lowercase() && byte != b'e') {
            return id;
        }
    }
}

/// The exit code, as in beanstalkd, and the reason why the process could not create its directory or change its user.
pub type UserError = (u8, String);

/// Restricts the process before threads exist: programs that it executes cannot gain privileges, and its umask denies
/// all access to others and write access to the group. A program that embeds the server can set its own restrictions.
pub fn harden() {
    if let Err(error) = system::forbid_privileges() {
        log::warn!("privileges of other programs cannot be given up: {error}");
    }
    let strict = Mode::S_IWGRP | Mode::S_IRWXO;
    umask(umask(strict) | strict);
}

pub fn settle(user: Option<&str>, folder: Option<&Path>) -> Result<(), UserError> {
    let identity = user.map(identify).transpose()?;
    if let Some(folder) = folder {
        make_folder(folder, identity)
            .map_err(|error| (10, format!("cannot make the folder {} (-b): {error}", folder.display())))?;
    }
    user.zip(identity).map_or(Ok(()), |(name, identity)| become_user(name, identity))
}

/// A missing parent is not created, because it indicates a typo or an unmounted disk.
fn make_folder(path: &Path, owner: Option<(Uid, Gid)>) -> io::Result<()> {
    let owner = owner.filter(|_| geteuid().is_root()).map(|(user, group)| (user.as_raw(), group.as_raw()));
    match FilePlace::find(path).and_then(|place| place.make_folder(owner)) {
        Ok(true) => log::info!("made the folder {}", path.display()),
        Ok(false) => {}
        // Opening the binlog reports problems with an existing directory in more detail.
        Err(_) if path.is_dir() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

pub fn user_id(name: Option<&str>) -> Option<u32> {
    name.and_then(|name| identify(name).ok()).map(|(user, _)| user.as_raw())
}

/// `name` is a user name, a user ID, or `UID:GID`. Numeric IDs work without a user database.
fn identify(name: &str) -> Result<(Uid, Gid), UserError> {
    let number = |text: &str| text.parse::<u32>().ok().filter(|id| *id != u32::MAX);
    if let Some((user, group)) = name.split_once(':') {
        let numbers = number(user).zip(number(group));
        let (user, group) = numbers.ok_or_else(|| (33, format!("no such user: {name} (-u); UID:GID takes numbers")))?;
        return Ok((Uid::from_raw(user), Gid::from_raw(group)));
    }
    let found = User::from_name(name);
    if let Ok(Some(user)) = &found {
        return Ok((user.uid, user.gid));
    }
    if let Some(id) = number(name) {
        let known = User::from_uid(Uid::from_raw(id)).ok().flatten();
        return Ok((Uid::from_raw(id), known.map_or(Gid::from_raw(id), |user| user.gid)));
    }
    match found {
        // ENOENT means that no user database exists.
        Err(nix::Error::ENOENT) | Ok(_) => Err((33, format!("no such user: {name} (-u)"))),
        Err(error) => Err((32, format!("looking up user {name} (-u): {error}"))),
    }
}

/// Switches to the user and its group, and drops supplementary groups. Unless the user is root, drops all capabilities.
fn become_user(name: &str, (user, group): (Uid, Gid)) -> Result<(), UserError> {
    if !geteuid().is_root() && (user, group) == (geteuid(), getegid()) {
        // The process already runs as this user, and may lack the permission to switch.
        return system::drop_capabilities().map_err(|error| (34, format!("giving up capabilities: {error}")));
    }
    let fail = |what: &str, error: nix::Error| (34, format!("{what} of user {name} (-u): {error}"));
    system::set_groups(group).map_err(|error| fail("taking the groups", error))?;
    setgid(group).map_err(|error| fail("taking the group", error))?;
    setuid(user).map_err(|error| fail("taking the id", error))?;
    if user.is_root() {
        return Ok(());
    }
    system::drop_capabilities().map_err(|error| fail("giving up the capabilities", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_never_a_yaml_number() {
        for _ in 0..1000 {
            let id = identity();
            assert_eq!(id.len(), 16);
            assert!(id.parse::<f64>().is_err(), "{id}");
        }
    }
}

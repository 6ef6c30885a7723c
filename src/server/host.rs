//! The machine and the process: limits, figures and identity.
//!
//! Owns every question to the operating system that has nothing to do with sockets or time.

use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::resource::{getrlimit, setrlimit, Resource};
use nix::sys::resource::{getrusage, UsageWho};
use nix::sys::time::TimeValLike;
use nix::unistd::{setgid, setgroups, setuid, User};

use crate::config::Config;
use crate::engine::Time;
use crate::protocol::{Facts, Host, Usage};

/// This process, as clients see it.
#[derive(Debug)]
pub struct Process {
    facts: Facts,
    rejected: AtomicU64,
}

impl Process {
    /// Reads what never changes.
    pub fn new(config: &Config, started: Time) -> Process {
        let name = nix::sys::utsname::uname();
        let text = |part: fn(&nix::sys::utsname::UtsName) -> &std::ffi::OsStr| {
            name.as_ref().map_or(String::new(), |name| part(name).to_string_lossy().into_owned())
        };
        let facts = Facts {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            id: identity(),
            hostname: text(|name| name.nodename()),
            os: text(|name| name.version()),
            platform: text(|name| name.machine()),
            started,
            max_job_size: config.max_job_size,
            max_connections: config.max_connections,
        };
        Process { facts, rejected: AtomicU64::new(0) }
    }

    /// One connection was turned away.
    pub fn count_rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
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
        }
    }
}

/// A number that nobody outside can guess, from the seeds that std draws from the system for its hash tables.
pub fn random() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}

/// Sixteen hexadecimal digits, one of them a letter other than "e": what looks like a number reads as one in YAML, and
/// clients that expect text break.
fn identity() -> String {
    loop {
        let id = format!("{:016x}", random());
        if id.bytes().any(|byte| byte.is_ascii_lowercase() && byte != b'e') {
            return id;
        }
    }
}

/// Raises the limit of open files as far as this process may.
pub fn raise_file_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        if soft < hard {
            if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
                log::warn!("the limit of open files stays at {soft}: {error}");
            }
        }
    }
}

/// How many files this process may have open.
pub fn file_limit() -> usize {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| usize::try_from(soft).unwrap_or(usize::MAX))
}

/// Bytes of memory that this process may hope for: the machine's, or its control group's if that is less.
pub fn memory() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo_total(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = group_limit_files(&groups).into_iter().filter_map(|path| {
        // "max" is no number, and so no limit.
        fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
    });
    limits.chain(machine).min().unwrap_or(u64::MAX)
}

fn meminfo_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// The files that limit the memory of the groups in `/proc/self/cgroup`, in version 2 those of all groups above as well.
fn group_limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let relative = Path::new(path.trim_start_matches('/'));
        if controllers.is_empty() {
            files.extend(relative.ancestors().map(|group| Path::new("/sys/fs/cgroup").join(group).join("memory.max")));
        } else if controllers.split(',').any(|controller| controller == "memory") {
            let root = Path::new("/sys/fs/cgroup/memory");
            files.extend(relative.ancestors().map(|group| root.join(group).join("memory.limit_in_bytes")));
        }
    }
    files
}

/// CPUs that this process may use.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Why the process could not become another user: beanstalkd's exit code for it, and the reason.
pub type UserError = (u8, String);

/// Becomes another user for good: its group, no other groups, then itself.
pub fn become_user(name: &str) -> Result<(), UserError> {
    let user = User::from_name(name).map_err(|error| (32, format!("looking up user {name}: {error}")))?;
    let user = user.ok_or_else(|| (33, format!("no such user: {name}")))?;
    let fail = |what: &str, error: nix::Error| (34, format!("{what} of user {name}: {error}"));
    setgroups(&[user.gid]).map_err(|error| fail("taking the groups", error))?;
    setgid(user.gid).map_err(|error| fail("taking the group", error))?;
    setuid(user.uid).map_err(|error| fail("taking the id", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_never_looks_like_a_number() {
        for _ in 0..1000 {
            let id = identity();
            assert_eq!(id.len(), 16);
            assert!(id.parse::<f64>().is_err(), "{id}");
        }
    }

    #[test]
    fn memory_limits_of_both_kinds_of_groups_are_found() {
        assert_eq!(meminfo_total("MemTotal:        2048 kB\nMemFree: 1 kB\n"), Some(2048 * 1024));
        let names = |groups| -> Vec<String> {
            group_limit_files(groups).iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(
            names("0::/a/b\n"),
            ["/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max", "/sys/fs/cgroup/memory.max",]
        );
        assert_eq!(
            names("5:memory:/x\n4:cpu,cpuacct:/\n"),
            ["/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.limit_in_bytes",]
        );
        assert!(memory() > 1 << 20);
    }
}

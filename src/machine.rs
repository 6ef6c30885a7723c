//! What the machine allows this process: files, memory, CPUs.
//!
//! Owns the questions to the operating system that the defaults of the limits depend on.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::resource::{getrlimit, setrlimit, Resource};

/// Raises the limit of open files as far as this process may. Where it may not, the number of connections is what the old
/// limit allows.
pub fn raise_file_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        if soft < hard {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
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

#[cfg(test)]
mod tests {
    use super::*;

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

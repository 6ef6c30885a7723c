//! Information about the process and the machine in /proc. Without /proc, most values are unknown.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::sysinfo::sysinfo;
use nix::unistd::{sysconf, SysconfVar};

/// The path stays valid if the program's file is replaced or removed.
pub fn own_program() -> PathBuf {
    "/proc/self/exe".into()
}

/// Returns 0 if the number is unknown. Since Linux 6.2, the number is the size of the directory /proc/self/fd; older
/// kernels require reading the directory.
pub fn open_files() -> u64 {
    const FOLDER: &str = "/proc/self/fd";
    let size = fs::metadata(FOLDER).map_or(0, |folder| folder.len());
    if size > 0 {
        return size;
    }
    // One entry is the open directory itself.
    fs::read_dir(FOLDER).map_or(0, |files| files.count().saturating_sub(1) as u64)
}

pub fn group_memory_limits() -> Vec<u64> {
    let own_groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let files = group_limit_files(&own_groups, &mounts);
    // "max" means that there is no limit.
    files.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok()).collect()
}

pub fn machine_memory() -> Option<u64> {
    let known = fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo_total(&text));
    known.or_else(|| sysinfo().ok().map(|info| info.ram_total()))
}

fn meminfo_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Returns the memory limits of the control groups in `/proc/self/cgroup` and of their parents, as far as the mounts in
/// `/proc/self/mountinfo` show them. In a container, the mount may start at the container's own group, whose path is
/// then not part of the file names.
fn group_limit_files(groups: &str, mounts: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    if mounts.is_empty() {
        // Without /proc, try the usual paths of containers.
        files.extend(["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"].map(PathBuf::from));
    }
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (kind, file) = match controllers {
            "" => ("cgroup2", "memory.max"),
            _ if has_word(controllers, "memory") => ("cgroup", "memory.limit_in_bytes"),
            _ => continue,
        };
        let mounted = mounts.lines().filter_map(mount).filter(|mount| mount.kind == kind);
        for mount in mounted.filter(|mount| kind == "cgroup2" || has_word(mount.options, "memory")) {
            let below = Path::new(path).strip_prefix(mount.root).unwrap_or(Path::new(""));
            // ".." leads out of the container's own hierarchy.
            let below = if below.iter().any(|name| name == "..") { Path::new("") } else { below };
            files.extend(below.ancestors().map(|group| Path::new(mount.point).join(group).join(file)));
        }
    }
    files
}

struct Mount<'a> {
    /// The mounted part of the file system.
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    /// Names of controllers in version 1 of control groups.
    options: &'a str,
}

fn mount(line: &str) -> Option<Mount<'_>> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let mut file_system = file_system.split(' ');
    let (root, point) = (mount.next()?, mount.next()?);
    Some(Mount { root, point, kind: file_system.next()?, options: file_system.nth(1)? })
}

fn has_word(list: &str, word: &str) -> bool {
    list.split(',').any(|one| one == word)
}

pub fn resident_memory() -> u64 {
    let page_size = || sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|size| u64::try_from(size).ok());
    let pages = || fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse::<u64>().ok();
    pages().zip(page_size()).map_or(0, |(pages, size)| pages * size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(groups: &str, mounts: &str) -> Vec<String> {
        group_limit_files(groups, mounts).iter().map(|path| path.display().to_string()).collect()
    }

    const VERSION_2: &str = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const VERSION_1: &str = "33 32 0:29 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
        34 32 0:30 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory\n";

    #[test]
    fn the_memory_of_the_machine_is_read() {
        assert_eq!(meminfo_total("MemTotal:        2048 kB\nMemFree: 1 kB\n"), Some(2048 * 1024));
        assert_eq!(meminfo_total("MemFree: 1 kB\n"), None);
        assert!(
            sysinfo().is_ok_and(|info| machine_memory().is_some_and(|known| known.abs_diff(info.ram_total()) < 4096))
        );
    }

    #[test]
    fn memory_limits_of_both_kinds_of_groups_are_found() {
        assert_eq!(
            names("0::/a/b\n", VERSION_2),
            ["/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max", "/sys/fs/cgroup/memory.max"]
        );
        assert_eq!(
            names("5:memory:/x\n4:cpu,cpuacct:/\n0::/x\n", VERSION_1),
            ["/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        );
        let usual = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
        assert_eq!(names("", ""), usual);
    }

    #[test]
    fn a_container_s_own_group_is_found_where_it_is_mounted() {
        // With version 1 of control groups, Docker mounts the container's own group as the root.
        let mounts = "9 8 0:30 /docker/12 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let own = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        assert_eq!(names("5:memory:/docker/12\n", mounts), [own]);
        let below = "/sys/fs/cgroup/memory/sub/memory.limit_in_bytes";
        assert_eq!(names("5:memory:/docker/12/sub\n", mounts), [below, own]);
        // The path belongs to another container or to the host.
        assert_eq!(names("5:memory:/elsewhere\n", mounts), [own]);
        assert_eq!(names("0::/../other\n", VERSION_2), ["/sys/fs/cgroup/memory.max"]);
    }
}

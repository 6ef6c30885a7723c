//! Linux features and the files in /proc, with fallbacks for older kernels. Without /proc, most values are unknown.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::{io, mem::MaybeUninit, os::linux::net::SocketAddrExt, os::unix::net::SocketAddr, time::Duration};

use mio::Interest;
use nix::libc::{self, c_long};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::statfs::{fstatfs, PROC_SUPER_MAGIC};
use nix::time::{clock_gettime, ClockId};
use nix::unistd::{setgroups, sysconf, Gid, Pid, SysconfVar};
use nix::{errno::Errno, fcntl::AtFlags, fcntl::OFlag, sys::resource::Resource, sys::sysinfo::sysinfo, NixPath};
use socket2::SockRef;

pub const O_PATH: OFlag = OFlag::O_PATH;
pub const OPEN_FILES: Option<&str> = Some("/proc/self/fd");
/// Permits files of more than 2 GiB on 32-bit systems.
pub const O_LARGEFILE: OFlag = OFlag::O_LARGEFILE;
pub const ADDRESS_SPACE: Resource = Resource::RLIMIT_AS;
/// Readiness for urgent data, which is polled because a read stops at the urgent mark even if more data follows.
pub const URGENT: Option<Interest> = Some(Interest::PRIORITY);

/// Returns the time since the machine started. Unlike `CLOCK_MONOTONIC`, includes time while the machine was suspended.
pub fn boot_time() -> Duration {
    // Available since Linux 2.6.39.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

pub fn is_proc(folder: impl AsFd) -> nix::Result<bool> {
    Ok(fstatfs(folder)?.filesystem_type() == PROC_SUPER_MAGIC)
}

/// The C library's `stat` has 32-bit fields on 32-bit systems, and fails if a size or an inode number does not fit.
pub type FileStat = libc::stat64;

pub fn fstat(file: impl AsFd) -> nix::Result<FileStat> {
    fstatat(file, "", AtFlags::AT_EMPTY_PATH)
}

#[allow(unsafe_code)]
pub fn fstatat<P: ?Sized + NixPath>(folder: impl AsFd, name: &P, flags: AtFlags) -> nix::Result<FileStat> {
    let (folder, mut status) = (folder.as_fd().as_raw_fd(), MaybeUninit::uninit());
    // SAFETY: the descriptor is borrowed and therefore open, and a successful call initializes `status`.
    name.with_nix_path(|name| unsafe {
        let result = libc::fstatat64(folder, name.as_ptr(), status.as_mut_ptr(), flags.bits());
        Errno::result(result).map(|_| status.assume_init())
    })?
}

/// Returns the time of a file's creation in seconds and nanoseconds, or `None` if it is unknown. In a program that is
/// linked with musl, `Metadata::created` always fails.
#[allow(unsafe_code)]
pub fn created(file: impl AsFd) -> Option<(i64, u32)> {
    // SAFETY: the descriptor is borrowed and therefore open. A failed call leaves the zeros, which are a valid `statx`.
    let status = unsafe {
        let mut status: libc::statx = std::mem::zeroed();
        libc::statx(file.as_fd().as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_BTIME, &mut status);
        status
    };
    (status.stx_mask & libc::STATX_BTIME != 0).then_some((status.stx_btime.tv_sec, status.stx_btime.tv_nsec))
}

/// Returns the names in a directory. Calls the kernel, because the C library's `readdir` also has 32-bit fields.
#[allow(unsafe_code)]
pub fn names(folder: File) -> io::Result<Vec<String>> {
    let (mut names, mut buffer) = (Vec::new(), vec![0; 32 * 1024]);
    loop {
        let (folder, size) = (folder.as_raw_fd(), buffer.len());
        // SAFETY: the descriptor is open, and the kernel writes at most `size` bytes.
        let mut list = || unsafe { libc::syscall(libc::SYS_getdents64, folder, buffer.as_mut_ptr(), size) };
        let length: c_long = super::uninterrupted(|| Errno::result(list()))?;
        let mut entries = &buffer[..length as usize];
        if entries.is_empty() {
            return Ok(names);
        }
        // The name follows an inode number, an offset, the length of the entry, and a type.
        while let Some((head, _)) = entries.split_first_chunk::<19>() {
            let (entry, rest) = entries.split_at(u16::from_ne_bytes([head[16], head[17]]).into());
            let name = entry[19..].split(|byte| *byte == 0).next();
            names.extend(name.map(|name| String::from_utf8_lossy(name).into_owned()));
            entries = rest;
        }
    }
}

pub fn nameless_file() -> io::Result<File> {
    Ok(memfd_create(c"beanpole", MFdFlags::MFD_CLOEXEC)?.into())
}

/// Returns the user and the groups of the peer process at the time when it connected.
pub fn peer(socket: impl AsFd) -> io::Result<(u32, Vec<u32>)> {
    let mut process = [0; 3];
    super::option(&socket, libc::SO_PEERCRED, &mut process)?;
    let [_, user, group] = process;
    let mut groups = vec![0; 32];
    let count = super::option(&socket, libc::SO_PEERGROUPS, &mut groups).or_else(|error| {
        ensure!(error.raw_os_error() == Some(libc::ERANGE), error);
        // The maximum number of groups of a process.
        groups.resize(65_536, 0);
        super::option(&socket, libc::SO_PEERGROUPS, &mut groups)
    });
    // Kernels before 4.13 report only the primary group.
    groups.truncate(count.unwrap_or(0));
    groups.push(group);
    Ok((user, groups))
}

pub fn limit_unacknowledged(socket: &SockRef, time: Duration) -> io::Result<()> {
    socket.set_tcp_user_timeout(Some(time))
}

pub fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

pub fn set_groups(group: Gid) -> nix::Result<()> {
    setgroups(&[group])
}

/// Prevents programs that this process executes from gaining privileges.
pub fn forbid_privileges() -> nix::Result<()> {
    nix::sys::prctl::set_no_new_privs()
}

/// Drops all capabilities. A root process loses them when it changes its user ID, but other processes do not.
#[allow(unsafe_code)]
pub fn drop_capabilities() -> nix::Result<()> {
    /// Version 3 of the kernel's interface, and 0 for the current thread.
    const HEADER: [u32; 2] = [0x2008_0522, 0];
    /// Effective, permitted and inheritable sets of two words each, all empty.
    const NONE: [u32; 6] = [0; 6];
    let mut present = NONE;
    // SAFETY: the calls access only memory that is valid and large enough until they return.
    let result = unsafe {
        // Kernels before 4.3 have no ambient capabilities.
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        // A service manager that dropped all capabilities may also block capset(2).
        if libc::syscall(libc::SYS_capget, HEADER.as_ptr(), present.as_mut_ptr()) == 0 && present == NONE {
            return Ok(());
        }
        libc::syscall(libc::SYS_capset, HEADER.as_ptr(), NONE.as_ptr())
    };
    Errno::result(result).map(drop)
}

/// Returns a descriptor that becomes readable when the process ends. Requires Linux 5.3.
#[allow(unsafe_code)]
pub fn end_of(process: Pid) -> Option<OwnedFd> {
    // SAFETY: the system call takes two numbers and returns a new file descriptor, which nothing else uses.
    unsafe {
        let file: c_long = libc::syscall(libc::SYS_pidfd_open, process.as_raw(), 0);
        RawFd::try_from(file).ok().filter(|file| *file >= 0).map(|file| OwnedFd::from_raw_fd(file))
    }
}

/// The path stays valid if the program's file is replaced or removed.
pub fn own_program() -> PathBuf {
    "/proc/self/exe".into()
}

/// Returns 0 if the number is unknown. Since Linux 6.2, it is the size of the directory; older kernels require a list.
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

/// Returns the files with the memory limits of the cgroups in `/proc/self/cgroup` and of their parents, if a mount in
/// `/proc/self/mountinfo` makes them visible. In a container, the root of the mount may be the container's own cgroup,
/// whose path is then not part of the file names.
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
        let is_meant =
            |[.., found, options]: &[&str; 4]| *found == kind && (kind == "cgroup2" || has_word(options, "memory"));
        for [root, point, ..] in mounts.lines().filter_map(mount).filter(is_meant) {
            let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
            // ".." leads out of the container's own hierarchy.
            let below = if below.iter().any(|name| name == "..") { Path::new("") } else { below };
            files.extend(below.ancestors().map(|group| Path::new(point).join(group).join(file)));
        }
    }
    files
}

/// Returns the mounted part of the file system, the mount point, the type, and the options. With cgroup v1, the
/// options name the controllers.
fn mount(line: &str) -> Option<[&str; 4]> {
    let (mount, file_system) = line.split_once(" - ")?;
    let (mut mount, mut file_system) = (mount.split(' ').skip(3), file_system.split(' '));
    Some([mount.next()?, mount.next()?, file_system.next()?, file_system.nth(1)?])
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
        // With cgroup v1, Docker mounts the container's own cgroup as the root.
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

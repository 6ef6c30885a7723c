//! The machine's limits for this process: files, memory, CPUs.
//!
//! Owns the queries to the operating system on which the defaults of the limits depend.

use nix::sys::resource::{getrlimit, setrlimit, Resource, RLIM_INFINITY};

use super::system;

/// The usable part of a 32-bit address space of 4 GiB, in bytes: the kernel reserves one or two GiB, and the rest has
/// gaps.
const ADDRESS_SPACE: Option<u64> = if usize::BITS < 64 { Some(2 << 30) } else { None };

/// Raises the limit of open files as far as possible. If this is not allowed, the old limit bounds the number of
/// connections.
pub fn raise_file_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        if soft < hard {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        }
    }
}

/// Returns the number of a user of this system.
pub fn user_number(name: &str) -> Option<u32> {
    nix::unistd::User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
}

/// Returns the number of a group.
pub fn group_number(name: &str) -> Option<u32> {
    nix::unistd::Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
}

/// Returns how many files this process may have open.
pub fn file_limit() -> usize {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| usize::try_from(soft).unwrap_or(usize::MAX))
}

/// Returns the memory in bytes that this process may use: the minimum of the machine's memory, the limits of its
/// control groups, its own limits of address space and data, and what a pointer can reach. `u64::MAX` if nothing is
/// known.
pub fn memory() -> u64 {
    let limits = [system::ADDRESS_SPACE, Resource::RLIMIT_DATA].into_iter().filter_map(resource_limit);
    let of_system = system::group_memory_limits().into_iter().chain(system::machine_memory());
    of_system.chain(limits).chain(ADDRESS_SPACE).min().unwrap_or(u64::MAX)
}

/// Returns `true` if the address space of this process is limited, where reserved memory counts as well.
pub fn is_address_space_limited() -> bool {
    ADDRESS_SPACE.is_some() || resource_limit(system::ADDRESS_SPACE).is_some()
}

fn resource_limit(resource: Resource) -> Option<u64> {
    // A limit has 32 bits or a sign on some systems.
    #[allow(clippy::unnecessary_cast)]
    getrlimit(resource).ok().map(|(soft, _)| soft).filter(|soft| *soft != RLIM_INFINITY).map(|soft| soft as u64)
}

/// Returns the number of CPUs that this process may use.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_may_have_no_more_than_the_machine_has() {
        assert!(memory() > 1 << 20 && Some(memory()) <= system::machine_memory());
    }
}

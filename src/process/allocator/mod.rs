//! The program's allocator on Linux. Must not depend on other parts of the program.

#[cfg(all(target_arch = "x86_64", any(target_env = "musl", all(target_env = "gnu", test))))]
#[allow(unsafe_code)]
mod copies;
#[cfg(any(target_env = "gnu", target_env = "musl"))]
#[allow(unsafe_code)]
mod heap;

#[cfg(any(target_env = "gnu", target_env = "musl"))]
#[global_allocator]
static HEAP: heap::ProgramHeap = heap::ProgramHeap::new();

/// Returns some free memory to the system, or `true` if no more can be returned.
#[cfg(any(target_env = "gnu", target_env = "musl"))]
pub const GIVE_BACK: Option<fn() -> bool> = Some(|| HEAP.give_back());

#[cfg(not(any(target_env = "gnu", target_env = "musl")))]
pub const GIVE_BACK: Option<fn() -> bool> = None;

/// Must be called before threads exist. Only the C library itself uses malloc, which would reserve 64 MiB of addresses
/// for each thread.
#[allow(unsafe_code)]
pub fn configure() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call sets a parameter of malloc.
    unsafe {
        nix::libc::mallopt(nix::libc::M_ARENA_MAX, 1);
    }
}

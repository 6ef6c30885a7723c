//! The settings of glibc's malloc, and our own allocator for programs with musl, whose malloc is slow. By default,
//! glibc raises its mmap threshold when a large block is freed, and then allocates large blocks from a heap. A heap by
//! itself returns no memory below a live block, so the memory of a queue with many jobs would not return to the system.

#[cfg(all(target_arch = "x86_64", any(target_env = "musl", all(target_env = "gnu", test))))]
#[allow(unsafe_code)]
mod copies;
#[cfg(any(target_env = "musl", test))]
#[allow(unsafe_code)]
mod heap;

#[cfg(target_env = "musl")]
#[global_allocator]
static HEAP: heap::ProgramHeap = heap::ProgramHeap::new();

/// Free bytes that every heap keeps at its end. malloc uses them before it maps a block, so a few bodies above the mmap
/// threshold need no mapping, which would cost several times as much as processing a job.
#[cfg(target_env = "gnu")]
const TOP_PAD: i32 = 768 * 1024;

/// Must be called before threads exist. If the address space is limited, malloc uses a single heap, because every
/// additional heap reserves 64 MiB of addresses.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
pub fn configure(is_limited: bool) {
    use nix::libc::{mallopt, M_ARENA_MAX, M_MMAP_THRESHOLD, M_MXFAST, M_TOP_PAD, M_TRIM_THRESHOLD};
    // SAFETY: the calls set parameters of malloc, under its own lock. Unknown or invalid values are ignored.
    unsafe {
        // Larger blocks are mapped separately, and return to the system when freed. The threshold is below the usual
        // size of growing tables and buffers, but above the default limit on body sizes, because mapping bodies would
        // be slow. Setting a threshold also disables its automatic adjustment.
        mallopt(M_MMAP_THRESHOLD, 64 * 1024);
        // If a heap has more free bytes than this at its end, malloc returns them to the system. With a smaller
        // threshold, malloc would return memory and request it again every few bodies.
        mallopt(M_TRIM_THRESHOLD, 2 * 1024 * 1024);
        mallopt(M_TOP_PAD, TOP_PAD);
        // Merge freed small blocks immediately: if `malloc_trim` has to merge them, it does not return memory at the
        // end of a thread's heap.
        mallopt(M_MXFAST, 0);
        if is_limited {
            mallopt(M_ARENA_MAX, 1);
        }
    }
}

#[cfg(not(target_env = "gnu"))]
pub fn configure(_is_limited: bool) {}

/// Returns free memory below live blocks to the system. Delays other allocations by a few milliseconds per 100 MB.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
pub const GIVE_BACK: Option<fn()> = Some(|| {
    // SAFETY: the call touches only free memory, under malloc's own locks.
    unsafe { nix::libc::malloc_trim(TOP_PAD as usize) };
});

#[cfg(target_env = "musl")]
pub const GIVE_BACK: Option<fn()> = Some(|| HEAP.give_back());

#[cfg(not(any(target_env = "gnu", target_env = "musl")))]
pub const GIVE_BACK: Option<fn()> = None;

//! The memory allocator: that of the C library, configured once, or with musl our own.
//!
//! Owns the settings of glibc's malloc for this program, and which allocator is used. By default, glibc's malloc raises
//! its threshold with each large piece that is freed, so that such pieces come from its heaps. A heap returns no memory
//! below a piece in use, so the memory of a queue that was once long would never return to the system. musl's malloc
//! returns everything, which is slow; `heap` replaces it. Other C libraries are not configured.

#[cfg(all(target_arch = "x86_64", any(target_env = "musl", all(target_env = "gnu", test))))]
#[allow(unsafe_code)]
mod copies;
#[cfg(any(target_env = "musl", test))]
mod heap;

#[cfg(target_env = "musl")]
#[global_allocator]
static HEAP: heap::ProgramHeap = heap::ProgramHeap::new();

/// The size in bytes above which a piece of memory is mapped separately, and returns to the system when it is freed.
/// The engine's tables and the buffers of replies grow in pieces of at least this size; bodies of the default size
/// limit are smaller, because mapping them would cost too much.
#[cfg(target_env = "gnu")]
const MMAP_THRESHOLD: i32 = 64 * 1024;

/// The number of bytes that may be free at the end of a heap before they return to the system. With less, memory would
/// be returned and requested again with every few bodies.
#[cfg(target_env = "gnu")]
const TRIM_THRESHOLD: i32 = 2 * 1024 * 1024;

/// The number of bytes that each heap keeps at its end: bodies above the threshold find memory there while there are
/// few of them. Mapping each of them would cost several times what is done with it.
#[cfg(target_env = "gnu")]
const TOP_PAD: i32 = 768 * 1024;

/// Call this before there are threads. `is_limited`: the address space is limited. Then only the first heap is used,
/// because each other heap reserves 64 MiB of address space.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
pub fn configure(is_limited: bool) {
    use nix::libc::{mallopt, M_ARENA_MAX, M_MMAP_THRESHOLD, M_MXFAST, M_TOP_PAD, M_TRIM_THRESHOLD};
    // SAFETY: the calls set numbers inside malloc, under its own lock. Unknown or invalid values are ignored.
    unsafe {
        // Setting either threshold also disables its adjustment.
        mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD);
        mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD);
        mallopt(M_TOP_PAD, TOP_PAD);
        // A freed small piece joins its free neighbors at once. If it did so only in `malloc_trim`, and the result were
        // at the end of a thread's heap, that would not return it.
        mallopt(M_MXFAST, 0);
        if is_limited {
            mallopt(M_ARENA_MAX, 1);
        }
    }
}

/// This C library needs no settings.
#[cfg(not(target_env = "gnu"))]
pub fn configure(_is_limited: bool) {}

/// Returns the function that returns free memory below pieces in use to the system, if this C library does not do so by
/// itself. It blocks concurrent allocations, for a few milliseconds per 100 MB.
#[cfg(target_env = "gnu")]
pub const GIVE_BACK: Option<fn()> = Some(trim);

/// Returns unused segments of the heap that replaces musl's malloc.
#[cfg(target_env = "musl")]
pub const GIVE_BACK: Option<fn()> = Some(|| HEAP.give_back());

/// Other C libraries need nothing.
#[cfg(not(any(target_env = "gnu", target_env = "musl")))]
pub const GIVE_BACK: Option<fn()> = None;

#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
fn trim() {
    // SAFETY: the call touches only free memory, under malloc's own locks.
    unsafe {
        nix::libc::malloc_trim(TOP_PAD as usize);
    }
}

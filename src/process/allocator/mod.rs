//! The memory allocator: that of the C library, told once how to behave, or with musl one of our own.
//!
//! Owns the settings of glibc's malloc for this program, and which allocator is used. With its own, glibc's malloc
//! learns from each large piece that is freed to cut pieces of that size from its heaps, and a heap gives nothing back
//! to the system that lies below a piece in use: a queue that was once long, or clients that once did not read, would
//! take their memory for ever. musl's malloc gives everything back, and pays for that with every few bodies; `heap`
//! takes its place. Other C libraries are left alone.

#[cfg(all(target_arch = "x86_64", any(target_env = "musl", all(target_env = "gnu", test))))]
#[allow(unsafe_code)]
mod copies;
#[cfg(any(target_env = "musl", test))]
mod heap;

#[cfg(target_env = "musl")]
#[global_allocator]
static HEAP: heap::ProgramHeap = heap::ProgramHeap::new();

/// Bytes from which on a piece of memory is mapped by itself, and goes back to the system when it is freed. The
/// engine's tables and the buffers of replies grow in pieces of at least this size; bodies of the default size limit
/// are below it, for which mapping would cost too much.
#[cfg(target_env = "gnu")]
const MMAP_THRESHOLD: i32 = 64 * 1024;

/// Bytes that may be free at the end of a heap before they go back to the system. Fewer would go back and forth with
/// every few bodies.
#[cfg(target_env = "gnu")]
const TRIM_THRESHOLD: i32 = 2 * 1024 * 1024;

/// Bytes that each heap keeps at its end, whatever is given back: bodies above the threshold find room there while
/// there are few of them. To have the system map each anew costs several times what is done with it.
#[cfg(target_env = "gnu")]
const TOP_PAD: i32 = 768 * 1024;

/// To be called before there are threads. `is_limited`: the address space is, of which each heap but the first reserves
/// 64 MiB; then there is only the first.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
pub fn configure(is_limited: bool) {
    use nix::libc::{mallopt, M_ARENA_MAX, M_MMAP_THRESHOLD, M_MXFAST, M_TOP_PAD, M_TRIM_THRESHOLD};
    // SAFETY: these set numbers inside malloc, under its own lock. What it does not know or take, it leaves as it was.
    unsafe {
        // Setting either one also ends the learning.
        mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD);
        mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD);
        mallopt(M_TOP_PAD, TOP_PAD);
        // A small piece that is freed joins its free neighbours at once. If it did so in `malloc_trim` only, and what
        // they become lies at the end of a thread's heap, that would not give it back.
        mallopt(M_MXFAST, 0);
        if is_limited {
            mallopt(M_ARENA_MAX, 1);
        }
    }
}

/// Nothing to tell this C library.
#[cfg(not(target_env = "gnu"))]
pub fn configure(_is_limited: bool) {}

/// What gives free memory back to the system that lies below pieces in use, if this C library does not do so by itself.
/// It holds up whoever allocates meanwhile, a few milliseconds for 100 MB.
#[cfg(target_env = "gnu")]
pub const GIVE_BACK: Option<fn()> = Some(trim);

/// The same for the heap that takes the place of musl's malloc.
#[cfg(target_env = "musl")]
pub const GIVE_BACK: Option<fn()> = Some(|| HEAP.give_back());

/// Other C libraries are left alone.
#[cfg(not(any(target_env = "gnu", target_env = "musl")))]
pub const GIVE_BACK: Option<fn()> = None;

#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
fn trim() {
    // SAFETY: it touches nothing but free memory, under malloc's own locks.
    unsafe {
        nix::libc::malloc_trim(TOP_PAD as usize);
    }
}

//! An allocator for static programs, in place of musl's, with which queues with bodies of some hundred bytes take twice
//! the CPU time, because it maps and unmaps memory so often.
//!
//! Owns the choice between two kinds of pieces: large ones are mapped separately and return to the system when they are
//! freed; small ones come from dlmalloc, whose segments return when they are unused. Must not allocate through itself.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ptr::{copy_nonoverlapping, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dlmalloc::{Allocator, Dlmalloc};
use nix::libc;

/// The size in bytes above which a piece is mapped separately. Bodies of the default size limit are smaller; growing
/// tables and buffers are mostly larger.
const LARGE: usize = 128 * 1024;

/// The size of a segment in bytes: the maximum that one piece in use keeps from the system. Smaller ones would be
/// mapped and unmapped too often.
const SEGMENT: usize = 1 << 20;

/// Unused bytes after each segment, so that it is not adjacent to the next: dlmalloc joins adjacent segments, and
/// returns only whole ones.
const GAP: usize = 64 * 1024;

/// The largest page size; mapped pieces are aligned to the smallest, which is 4096.
const PAGE: usize = 64 * 1024;
const ALIGNED: usize = 4096;

/// All pieces of the program.
pub struct ProgramHeap(Mutex<Dlmalloc<Segments>>);

impl ProgramHeap {
    /// Creates a heap that maps nothing before it is used.
    pub const fn new() -> ProgramHeap {
        let mut small = Dlmalloc::new_with_allocator(Segments { mapped: Cell::new(0) });
        assert!(small.set_granularity(SEGMENT));
        ProgramHeap(Mutex::new(small))
    }

    /// Returns every unused segment to the system.
    #[allow(unsafe_code)]
    pub fn give_back(&self) {
        // SAFETY: the call touches free memory, and no other thread is in the heap.
        unsafe {
            self.small().trim(0);
        }
    }

    fn small(&self) -> MutexGuard<'_, Dlmalloc<Segments>> {
        // No code under the lock panics. The standard library's lock does not allocate.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= ALIGNED
}

// The functions are not inlined, because there are hundreds of calls. SAFETY: the layout determines the kind of a
// piece, and callers pass the same layout when they free it. Each kind is freed by its source, dlmalloc under the lock.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for ProgramHeap {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return map(layout.size());
        }
        unsafe { self.small().malloc(layout.size(), layout.align()) }
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            // The system's pages are zeroed.
            return map(layout.size());
        }
        unsafe { self.small().calloc(layout.size(), layout.align()) }
    }

    #[inline(never)]
    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        if is_large(layout) {
            return unmap(piece, layout.size());
        }
        unsafe { self.small().free(piece, layout.size(), layout.align()) }
    }

    #[inline(never)]
    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return null_mut() };
        match (is_large(layout), is_large(wanted)) {
            (true, true) => remap(piece, layout.size(), size, true),
            (false, false) => unsafe { self.small().realloc(piece, layout.size(), layout.align(), size) },
            _ => unsafe {
                let moved = self.alloc(wanted);
                if !moved.is_null() {
                    copy_nonoverlapping(piece, moved, layout.size().min(size));
                    self.dealloc(piece, layout);
                }
                moved
            },
        }
    }
}

/// The source of dlmalloc's segments.
pub struct Segments {
    /// The total size of the segments in bytes.
    mapped: Cell<usize>,
}

// SAFETY: returned memory is mapped exclusively until it is freed.
#[allow(unsafe_code)]
unsafe impl Allocator for Segments {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let segment = size.checked_add(GAP).map_or(null_mut(), map);
        let size = if segment.is_null() { 0 } else { size };
        self.mapped.set(self.mapped.get() + size);
        (segment, size, 0)
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        null_mut()
    }

    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }

    fn free(&self, segment: *mut u8, size: usize) -> bool {
        unmap(segment, size + GAP);
        self.mapped.set(self.mapped.get() - size);
        true
    }

    fn can_release_part(&self, _: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}

#[allow(unsafe_code)]
fn map(size: usize) -> *mut u8 {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at any address.
    let place = unsafe { libc::mmap(null_mut(), size, access, kind, -1, 0) };
    if place == libc::MAP_FAILED {
        null_mut()
    } else {
        place.cast()
    }
}

#[allow(unsafe_code)]
fn unmap(place: *mut u8, size: usize) {
    // SAFETY: it was mapped here with this size, and is not used any more. If the system refuses, it leaks.
    unsafe {
        libc::munmap(place.cast(), size);
    }
}

#[allow(unsafe_code)]
fn remap(place: *mut u8, size: usize, wanted: usize, may_move: bool) -> *mut u8 {
    let flags = if may_move { libc::MREMAP_MAYMOVE } else { 0 };
    // SAFETY: it was mapped here with this size; nothing uses the old address any more.
    let moved = unsafe { libc::mremap(place.cast(), size, wanted, flags) };
    if moved == libc::MAP_FAILED {
        null_mut()
    } else {
        moved.cast()
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
#[path = "tests/heap.rs"]
mod tests;

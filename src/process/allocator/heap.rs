//! An allocator for static programs. It maps large blocks separately, and allocates small blocks with dlmalloc, which
//! returns unused segments to the system. With musl's allocator, which often maps and unmaps memory, queues with bodies
//! of several hundred bytes use twice the CPU time.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ptr::{copy_nonoverlapping, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dlmalloc::{Allocator, Dlmalloc};
use nix::libc;

/// Blocks of at least this many bytes are mapped separately. Bodies within the default size limit are smaller, and
/// growing tables and buffers are usually larger.
const LARGE: usize = 64 * 1024;

/// The segment size in bytes. One live block keeps at most one segment from being returned. Smaller segments would be
/// mapped and unmapped too often.
const SEGMENT: usize = 1 << 20;

/// Unused bytes after each segment. Without a gap, dlmalloc would merge adjacent segments and return only all of them.
const GAP: usize = 64 * 1024;
/// The smallest page size of a supported system. Mapped blocks have at least this alignment.
const ALIGNED: usize = 4096;

pub struct ProgramHeap(Mutex<Dlmalloc<Segments>>);

impl ProgramHeap {
    pub const fn new() -> ProgramHeap {
        let mut small = Dlmalloc::new_with_allocator(Segments { mapped: Cell::new(0) });
        assert!(small.set_granularity(SEGMENT));
        ProgramHeap(Mutex::new(small))
    }

    pub fn give_back(&self) {
        // SAFETY: the call touches only free memory, and the lock keeps other threads out of the heap.
        unsafe { self.small().trim(0) };
    }

    fn small(&self) -> MutexGuard<'_, Dlmalloc<Segments>> {
        // Code under the lock does not panic, so a poisoned lock can be used.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= ALIGNED
}

// SAFETY: the layout determines whether a block has its own mapping. Callers free a block with the layout of its
// allocation, so mapped blocks are unmapped, and dlmalloc frees only its own blocks. The lock protects dlmalloc.
unsafe impl GlobalAlloc for ProgramHeap {
    #[inline(never)] // called in hundreds of places
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return map(layout.size());
        }
        unsafe { self.small().malloc(layout.size(), layout.align()) }
    }

    #[inline(never)] // called in hundreds of places
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            // New pages from the system are zeroed.
            return map(layout.size());
        }
        unsafe { self.small().calloc(layout.size(), layout.align()) }
    }

    #[inline(never)] // called in hundreds of places
    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        if is_large(layout) {
            return unmap(piece, layout.size());
        }
        unsafe { self.small().free(piece, layout.size(), layout.align()) }
    }

    #[inline(never)] // called in hundreds of places
    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return null_mut() };
        match (is_large(layout), is_large(wanted)) {
            (true, true) => remap(piece, layout.size(), size),
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

pub struct Segments {
    mapped: Cell<usize>,
}

// SAFETY: each returned segment is a new mapping, which stays valid until the segment is freed.
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
        // No supported system has larger pages.
        64 * 1024
    }
}

fn map(size: usize) -> *mut u8 {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the call creates a new mapping at an unused address.
    mapped(unsafe { libc::mmap(null_mut(), size, access, kind, -1, 0) })
}

fn mapped(address: *mut libc::c_void) -> *mut u8 {
    (if address == libc::MAP_FAILED { null_mut() } else { address }).cast()
}

fn unmap(address: *mut u8, size: usize) {
    // SAFETY: the block was mapped with this size and is no longer used. If the system refuses, the memory leaks.
    unsafe { libc::munmap(address.cast(), size) };
}

fn remap(address: *mut u8, size: usize, wanted: usize) -> *mut u8 {
    // SAFETY: the block was mapped with this size, and the old address is no longer used.
    mapped(unsafe { libc::mremap(address.cast(), size, wanted, libc::MREMAP_MAYMOVE) })
}

#[cfg(test)]
#[path = "tests/heap.rs"]
mod tests;

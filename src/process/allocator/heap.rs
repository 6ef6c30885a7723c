//! The allocator of programs for Linux. It maps large blocks separately, and allocates small blocks with dlmalloc. Owns
//! the return of free memory to the system, in steps that discard pages without blocking other threads. glibc's
//! allocator can block them for tens of milliseconds. musl's allocator often maps and unmaps memory, so queues with
//! bodies of several hundred bytes would use twice the CPU time.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ptr::{copy_nonoverlapping, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dlmalloc::{Allocator, Dlmalloc};
use nix::libc;

/// Blocks of at least this many bytes are mapped separately. The kernel moves a growing table without copying, and
/// leaves no pages behind. Bodies within the default size limit are smaller.
const LARGE: usize = 64 * 1024;

/// The smallest segment in bytes. Smaller segments would be mapped and unmapped too often.
const SEGMENT: usize = 1 << 20;

/// Unused bytes after each segment. Without a gap, dlmalloc would merge adjacent segments and return only all of them.
const GAP: usize = 64 * 1024;
/// The smallest page size of a supported system. Mapped blocks have at least this alignment.
const ALIGNED: usize = 4096;

/// The largest and the smallest block that `give_back` takes. A block of the smallest size contains a whole page of the
/// usual size.
const TAKEN: [usize; 2] = [256 * 1024, 2 * ALIGNED];

/// The number of steps in one call of `give_back`, which should take about a millisecond. One step can unmap as many
/// segments, because dlmalloc goes through all segments in each step.
const STEPS: usize = 64;
/// dlmalloc goes through all segments whenever it needs a new one, so each is at least this fraction of all.
const FRACTION: usize = 64;

pub struct ProgramHeap {
    small: Mutex<Dlmalloc<Segments>>,
    taken: Mutex<Taken>,
}

/// Free memory on its way to the system.
struct Taken {
    /// Free blocks whose pages were discarded. Each begins with the address of the next one.
    blocks: *mut u8,
    /// The size of the next block to take, or a smaller number if all were taken.
    size: usize,
}

// SAFETY: only the list refers to its blocks.
unsafe impl Send for Taken {}

impl ProgramHeap {
    pub const fn new() -> ProgramHeap {
        let (mapped, can_map, returnable) = (Cell::new(0), Cell::new(true), Cell::new(0));
        let mut small = Dlmalloc::new_with_allocator(Segments { mapped, can_map, returnable });
        assert!(small.set_granularity(SEGMENT));
        small.set_max_release_check_rate(0); // `give_back` returns segments.
        let taken = Taken { blocks: null_mut(), size: TAKEN[0] };
        ProgramHeap { small: Mutex::new(small), taken: Mutex::new(taken) }
    }

    /// Returns some free memory to the system, or `true` if no more can be returned. The first calls take all free
    /// blocks that contain whole pages, from the largest to the smallest, and discard these pages. Further calls free
    /// the blocks and unmap unused segments.
    pub fn give_back(&self) -> bool {
        let mut taken = lock(&self.taken);
        for _ in 0..STEPS {
            if taken.size >= TAKEN[1] {
                taken.take(&self.small);
            } else if !taken.blocks.is_null() {
                taken.free_one(&mut lock(&self.small));
            } else if !self.unmap_segments(STEPS) {
                taken.size = TAKEN[0];
                return true;
            }
        }
        false
    }

    /// Unmaps all unused segments and repeats an allocation if it fails, for example because addresses are limited.
    fn allocate(&self, allocate: impl Fn() -> *mut u8) -> *mut u8 {
        let block = allocate();
        if !block.is_null() {
            return block;
        }
        let mut taken = lock(&self.taken);
        while !taken.blocks.is_null() {
            taken.free_one(&mut lock(&self.small));
        }
        self.unmap_segments(usize::MAX);
        drop(taken);
        allocate()
    }

    /// Unmaps up to `count` unused segments. Returns `true` if it has unmapped any.
    fn unmap_segments(&self, count: usize) -> bool {
        let mut small = lock(&self.small);
        small.allocator().returnable.set(count);
        // SAFETY: the call touches only free memory, and the lock keeps other threads out of the heap.
        unsafe { small.trim(0) }
    }
}

impl Taken {
    fn take(&mut self, small: &Mutex<Dlmalloc<Segments>>) {
        let mut small = lock(small);
        small.allocator().can_map.set(false);
        // SAFETY: the size is valid, and the lock keeps other threads out of the heap.
        let block = unsafe { small.c_malloc(self.size) };
        small.allocator().can_map.set(true);
        drop(small);
        if block.is_null() {
            self.size -= self.size / 16;
            return;
        }
        // SAFETY: nothing else uses the block, which has at least this size.
        unsafe {
            block.cast::<*mut u8>().write(self.blocks);
            discard(block.add(size_of::<*mut u8>()), block.add(self.size));
        }
        self.blocks = block;
    }

    fn free_one(&mut self, small: &mut Dlmalloc<Segments>) {
        // SAFETY: the list contains the block, which begins with the address of the next one.
        unsafe {
            let next = self.blocks.cast::<*mut u8>().read();
            small.c_free(self.blocks);
            self.blocks = next;
        }
    }
}

/// Code under the locks does not panic, so a poisoned lock can be used.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            return self.allocate(|| map(layout.size()));
        }
        self.allocate(|| unsafe { lock(&self.small).malloc(layout.size(), layout.align()) })
    }

    #[inline(never)] // called in hundreds of places
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            // New pages from the system are zeroed.
            return self.allocate(|| map(layout.size()));
        }
        self.allocate(|| unsafe { lock(&self.small).calloc(layout.size(), layout.align()) })
    }

    #[inline(never)] // called in hundreds of places
    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        if is_large(layout) {
            return unmap(piece, layout.size());
        }
        unsafe { lock(&self.small).free(piece, layout.size(), layout.align()) }
    }

    #[inline(never)] // called in hundreds of places
    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return null_mut() };
        match (is_large(layout), is_large(wanted)) {
            (true, true) => self.allocate(|| remap(piece, layout.size(), size)),
            (false, false) => {
                self.allocate(|| unsafe { lock(&self.small).realloc(piece, layout.size(), layout.align(), size) })
            }
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
    can_map: Cell<bool>,
    returnable: Cell<usize>,
}

// SAFETY: each returned segment is a new mapping, which stays valid until the segment is freed.
unsafe impl Allocator for Segments {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let larger = size.max(self.mapped.get() / FRACTION / SEGMENT * SEGMENT);
        // The larger segment may not fit into limited addresses.
        let sizes = [larger, size].into_iter().filter(|_| self.can_map.get());
        let mut segments = sizes.map(|size| (size.checked_add(GAP).map_or(null_mut(), map), size));
        let (segment, size) = segments.find(|(segment, _)| !segment.is_null()).unwrap_or((null_mut(), 0));
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
        let Some(rest) = self.returnable.get().checked_sub(1) else { return false };
        self.returnable.set(rest);
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

/// Discards the contents of the whole pages in a range of addresses.
fn discard(begin: *mut u8, end: *mut u8) {
    // SAFETY: the call reads a constant.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let begin = begin.wrapping_add(begin.align_offset(page));
    let size = (end as usize).saturating_sub(begin as usize) / page * page;
    // SAFETY: nothing uses the range.
    unsafe { libc::madvise(begin.cast(), size, libc::MADV_DONTNEED) };
}

fn remap(address: *mut u8, size: usize, wanted: usize) -> *mut u8 {
    // SAFETY: the block was mapped with this size, and the old address is no longer used.
    mapped(unsafe { libc::mremap(address.cast(), size, wanted, libc::MREMAP_MAYMOVE) })
}

#[cfg(test)]
#[path = "tests/heap.rs"]
mod tests;

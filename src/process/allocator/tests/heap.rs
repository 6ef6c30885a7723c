//! Tests of the program's heap.
//!
//! Defines the sizes of the tested blocks. Must not depend on the allocator of the test program.

use super::*;

fn filled(piece: *const u8, size: usize, byte: u8) -> bool {
    unsafe { std::slice::from_raw_parts(piece, size) }.iter().all(|found| *found == byte)
}

/// Blocks of all sizes keep their contents when resized, and do not overlap.
#[test]
fn allocations_keep_their_contents() {
    let heap = ProgramHeap::new();
    let sizes = [1, 16, 500, 4096, 60_000, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE, SEGMENT, 3 * SEGMENT];
    let mut pieces = Vec::new();
    for (number, size) in sizes.into_iter().cycle().take(500).enumerate() {
        let layout = Layout::from_size_align(size, [1, 8, 64, 4096][number % 4]).unwrap();
        let piece = unsafe {
            if number % 3 == 0 {
                heap.alloc_zeroed(layout)
            } else {
                heap.alloc(layout)
            }
        };
        assert!(!piece.is_null() && piece as usize % layout.align() == 0);
        assert!(number % 3 != 0 || filled(piece, size, 0), "{size} bytes are not zero");
        unsafe { piece.write_bytes(number as u8, size) };
        pieces.push((piece, layout, number as u8));
        if number % 5 == 4 {
            let (piece, layout, byte) = pieces.swap_remove(number * 7 % pieces.len());
            assert!(filled(piece, layout.size(), byte));
            let wanted = sizes[number * 3 % sizes.len()];
            let moved = unsafe { heap.realloc(piece, layout, wanted) };
            assert!(filled(moved, layout.size().min(wanted), byte));
            unsafe { moved.write_bytes(byte, wanted) };
            pieces.push((moved, Layout::from_size_align(wanted, layout.align()).unwrap(), byte));
        }
    }
    for (piece, layout, byte) in pieces {
        assert!(filled(piece, layout.size(), byte));
        unsafe { heap.dealloc(piece, layout) };
    }
}

#[test]
fn freed_memory_returns_to_the_system() {
    let heap = ProgramHeap::new();
    let layout = Layout::from_size_align(1000, 8).unwrap();
    let pieces: Vec<_> = (0..50_000).map(|_| unsafe { heap.alloc(layout) }).collect();
    assert!(lock(&heap.small).allocator().mapped.get() >= 50_000 * 1000);
    // A single block in the middle stays allocated, so its segment cannot be unmapped.
    let kept = pieces[pieces.len() / 2];
    pieces.iter().filter(|piece| **piece != kept).for_each(|piece| unsafe { heap.dealloc(*piece, layout) });
    while !heap.give_back() {}
    // dlmalloc also keeps the segment from which it allocates.
    assert!(lock(&heap.small).allocator().mapped.get() <= 2 * SEGMENT);
    unsafe { heap.dealloc(kept, layout) };
    while !heap.give_back() {}
    assert!(lock(&heap.small).allocator().mapped.get() <= SEGMENT);
}

fn is_resident(page: *mut u8) -> bool {
    let mut state = 0;
    let page = page.map_addr(|address| address / ALIGNED * ALIGNED);
    assert_eq!(unsafe { libc::mincore(page.cast(), 1, &raw mut state) }, 0);
    state & 1 == 1
}

#[test]
fn free_pages_between_live_blocks_return_to_the_system() {
    let heap = ProgramHeap::new();
    let layout = Layout::from_size_align(6000, 8).unwrap();
    let pieces: Vec<_> = (0..20_000).map(|_| unsafe { heap.alloc(layout) }).collect();
    pieces.iter().for_each(|piece| unsafe { piece.write_bytes(7, layout.size()) });
    let is_live = |number: usize| number % 100 == 0;
    let resident = || pieces.iter().filter(|piece| is_resident(**piece)).count();
    assert_eq!(resident(), pieces.len());
    for (_, piece) in pieces.iter().enumerate().filter(|(number, _)| !is_live(*number)) {
        unsafe { heap.dealloc(*piece, layout) };
    }
    while !heap.give_back() {}
    assert!(resident() < pieces.len() / 20, "{} pages are resident", resident());
    assert!((0..200).all(|number| filled(pieces[number * 100], layout.size(), 7)));
    // New blocks use the returned pages.
    let mapped = lock(&heap.small).allocator().mapped.get();
    let again: Vec<_> = (0..10_000).map(|_| unsafe { heap.alloc_zeroed(layout) }).collect();
    assert!(again.iter().all(|piece| filled(*piece, layout.size(), 0)));
    assert_eq!(lock(&heap.small).allocator().mapped.get(), mapped);
    assert!((0..200).all(|number| filled(pieces[number * 100], layout.size(), 7)));
}

#[test]
fn allocations_can_use_the_blocks_that_are_being_returned() {
    let heap = ProgramHeap::new();
    let layout = Layout::from_size_align(60_000, 8).unwrap();
    let pieces: Vec<_> = (0..1000).map(|_| unsafe { heap.alloc(layout) }).collect();
    let kept = pieces.iter().step_by(10).count();
    for (_, piece) in pieces.iter().enumerate().filter(|(number, _)| number % 10 > 0) {
        unsafe { heap.dealloc(*piece, layout) };
    }
    while lock(&heap.taken).size >= TAKEN[1] || lock(&heap.taken).blocks.is_null() {
        assert!(!heap.give_back());
    }
    lock(&heap.small).allocator().can_map.set(false);
    let again = (kept..pieces.len()).filter(|_| !unsafe { heap.alloc(layout) }.is_null()).count();
    assert_eq!(again, pieces.len() - kept);
}

#[test]
fn without_addresses_for_a_larger_segment_a_small_one_is_mapped() {
    let heap = ProgramHeap::new();
    lock(&heap.small).allocator().mapped.set(usize::MAX / 2);
    assert!(!unsafe { heap.alloc(Layout::new::<u64>()) }.is_null());
    assert_eq!(lock(&heap.small).allocator().mapped.get(), usize::MAX / 2 + SEGMENT);
}

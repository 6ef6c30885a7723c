//! Tests of the heap for static programs.
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
    assert!(heap.small().allocator().mapped.get() >= 50_000 * 1000);
    // A single block in the middle stays allocated, so its segment cannot be unmapped.
    let kept = pieces[pieces.len() / 2];
    pieces.iter().filter(|piece| **piece != kept).for_each(|piece| unsafe { heap.dealloc(*piece, layout) });
    heap.give_back();
    // dlmalloc also keeps the segment from which it allocates.
    assert!(heap.small().allocator().mapped.get() <= 2 * SEGMENT);
    unsafe { heap.dealloc(kept, layout) };
    heap.give_back();
    assert!(heap.small().allocator().mapped.get() <= SEGMENT);
}

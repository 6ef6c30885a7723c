//! Tests of the memory copies for static programs.
//!
//! Owns a byte-by-byte definition of a copy.

extern "C" {
    fn beanpole_copy(to: *mut u8, from: *const u8, length: usize) -> *mut u8;
}

/// The longest tested copy in bytes. Longer copies only take more iterations.
const MAX_LENGTH: usize = 4096 + 64;

fn byte(place: usize) -> u8 {
    (place ^ ((place >> 8) * 7)) as u8
}

/// Copies `length` bytes within `buffer`, and compares the result with the definition.
fn copy(buffer: &mut [u8], to: usize, from: usize, length: usize) {
    let buffer = &mut buffer[..to.max(from) + length + 32];
    buffer.iter_mut().enumerate().for_each(|(place, it)| *it = byte(place));
    let start = buffer.as_mut_ptr();
    // SAFETY: the source and the destination are within the buffer.
    let returned = unsafe { beanpole_copy(start.add(to), start.add(from), length) };
    assert_eq!(returned, start.wrapping_add(to));
    let wrong = buffer.iter().enumerate().find(|(place, it)| {
        let origin = if (to..to + length).contains(place) { place - to + from } else { *place };
        **it != byte(origin)
    });
    assert_eq!(wrong, None, "{length} bytes from {from} to {to}");
}

#[test]
fn each_length_is_copied_at_each_alignment() {
    let mut buffer = vec![0; 3 * MAX_LENGTH];
    for length in 0..=MAX_LENGTH {
        // Test short copies with all alignments of source and destination, and long copies with a single alignment.
        let pairs = if length < 300 { 0..256 } else { length % 256..length % 256 + 1 };
        for (to, from) in pairs.map(|pair| (pair / 16, pair % 16)) {
            copy(&mut buffer, 32 + to, 32 + 32 + length + from, length);
            copy(&mut buffer, 32 + 32 + length + to, 32 + from, length);
        }
    }
}

#[test]
fn each_length_is_moved_over_itself() {
    let mut buffer = vec![0; 3 * MAX_LENGTH];
    for length in 0..=MAX_LENGTH {
        let distances = [0, 1, 7, 8, 15, 16, 17, 63, 64, 65, length / 2, length.saturating_sub(1), length];
        let step = if length < 300 { 1 } else { 4 };
        for distance in distances.into_iter().step_by(step) {
            let place = 32 + length % 16;
            copy(&mut buffer, place, place + distance, length);
            copy(&mut buffer, place + distance, place, length);
        }
    }
}

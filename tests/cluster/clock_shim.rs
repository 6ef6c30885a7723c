//! A shared library for `LD_PRELOAD` that lets a test set the clocks of a running program.
//!
//! The test compiles this file separately; it is not part of any crate. Overrides `clock_gettime`. The file that the
//! environment variable `CLOCK_SHIM` names contains two 64-bit numbers in nanoseconds: the offset of the wall clock,
//! and the time for which the machine was suspended. `CLOCK_MONOTONIC` does not include suspended time.

use std::ffi::{c_int, c_long, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::OnceLock;

extern "C" {
    fn syscall(number: c_long, clock: c_long, time: *mut Time) -> c_long;
    fn mmap(at: *mut c_void, length: usize, access: c_int, flags: c_int, file: c_int, place: i64) -> *mut c_void;
}

#[cfg(target_arch = "x86_64")]
const CLOCK_GETTIME: c_long = 228;
#[cfg(target_arch = "aarch64")]
const CLOCK_GETTIME: c_long = 113;

const REALTIME: c_int = 0;
const MONOTONIC: c_int = 1;
const READ: c_int = 1;
const SHARED: c_int = 1;
const SECOND: i64 = 1_000_000_000;

#[repr(C)]
pub struct Time {
    seconds: i64,
    nanos: i64,
}

static NUMBERS: OnceLock<Option<&'static [AtomicI64; 2]>> = OnceLock::new();

fn numbers() -> Option<&'static [AtomicI64; 2]> {
    *NUMBERS.get_or_init(|| {
        let file = File::open(std::env::var_os("CLOCK_SHIM")?).ok()?;
        let place = unsafe { mmap(std::ptr::null_mut(), 16, READ, SHARED, file.as_raw_fd(), 0) };
        (place as isize != -1).then(|| unsafe { &*place.cast() })
    })
}

/// Shifts the result of the system call by the test's offset for the clock.
///
/// # Safety
/// `time` must point to a writable [`Time`], as in C.
#[no_mangle]
pub unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut Time) -> c_int {
    let done = syscall(CLOCK_GETTIME, clock.into(), time) as c_int;
    let shift = match (clock, numbers()) {
        (REALTIME, Some(numbers)) => numbers[0].load(Ordering::Relaxed),
        (MONOTONIC, Some(numbers)) => -numbers[1].load(Ordering::Relaxed),
        _ => 0,
    };
    if done == 0 && shift != 0 {
        let sum = (*time).seconds * SECOND + (*time).nanos + shift;
        (*time).seconds = sum.div_euclid(SECOND);
        (*time).nanos = sum.rem_euclid(SECOND);
    }
    done
}

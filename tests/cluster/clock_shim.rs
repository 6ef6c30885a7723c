//! A shared library for `LD_PRELOAD` that lets a test set the clocks of a running program, and change its disk.
//!
//! The test compiles this file separately; it is not part of any crate. The file that the environment variable
//! `CLOCK_SHIM` names contains four 64-bit numbers: the offset of the wall clock, the time for which the machine was
//! suspended, the duration of each `fsync`, all in nanoseconds, and the error number with which the creation of a file
//! fails, or 0. `CLOCK_MONOTONIC` does not include suspended time.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn __errno_location() -> *mut c_int;
    fn mmap(at: *mut c_void, length: usize, access: c_int, flags: c_int, file: c_int, place: i64) -> *mut c_void;
}

#[cfg(target_arch = "x86_64")]
const CALLS: [c_long; 3] = [228, 74, 257];
#[cfg(target_arch = "aarch64")]
const CALLS: [c_long; 3] = [113, 82, 56];
const CLOCK_GETTIME: c_long = CALLS[0];
const FSYNC: c_long = CALLS[1];
const OPENAT: c_long = CALLS[2];

const REALTIME: c_int = 0;
const MONOTONIC: c_int = 1;
const READ: c_int = 1;
const SHARED: c_int = 1;
const CREATE: c_int = 0o100;
const THIS_FOLDER: c_int = -100;
const SECOND: i64 = 1_000_000_000;

#[repr(C)]
pub struct Time {
    seconds: i64,
    nanos: i64,
}

static NUMBERS: OnceLock<Option<&'static [AtomicI64; 4]>> = OnceLock::new();

fn numbers() -> Option<&'static [AtomicI64; 4]> {
    *NUMBERS.get_or_init(|| {
        let file = File::open(std::env::var_os("CLOCK_SHIM")?).ok()?;
        let place = unsafe { mmap(std::ptr::null_mut(), 32, READ, SHARED, file.as_raw_fd(), 0) };
        (place as isize != -1).then(|| unsafe { &*place.cast() })
    })
}

/// Shifts the result of the system call by the test's offset for the clock.
///
/// # Safety
/// `time` must point to a writable [`Time`], as in C.
#[no_mangle]
pub unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut Time) -> c_int {
    let done = syscall(CLOCK_GETTIME, c_long::from(clock), time) as c_int;
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

/// Delays the system call by the test's duration.
#[no_mangle]
pub extern "C" fn fsync(file: c_int) -> c_int {
    let delay = numbers().map_or(0, |numbers| numbers[2].load(Ordering::Relaxed));
    std::thread::sleep(Duration::from_nanos(delay as u64));
    unsafe { syscall(FSYNC, c_long::from(file)) as c_int }
}

/// Fails with the test's error number if the file may have to be created.
///
/// # Safety
/// `path` must be a string, as in C.
#[no_mangle]
pub unsafe extern "C" fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // This function itself is called when the numbers are read for the first time.
    let error = NUMBERS.get().copied().flatten().map_or(0, |numbers| numbers[3].load(Ordering::Relaxed));
    if flags & CREATE != 0 && error != 0 {
        *__errno_location() = error as c_int;
        return -1;
    }
    syscall(OPENAT, c_long::from(folder), path, c_long::from(flags), c_long::from(mode)) as c_int
}

/// # Safety
/// As for [`openat`].
#[no_mangle]
pub unsafe extern "C" fn openat64(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    openat(folder, path, flags, mode)
}

/// # Safety
/// As for [`openat`].
#[no_mangle]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    openat(THIS_FOLDER, path, flags, mode)
}

/// # Safety
/// As for [`openat`].
#[no_mangle]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    openat(THIS_FOLDER, path, flags, mode)
}

//! A shared library for `LD_PRELOAD` that makes a program's file operations fail in ways that a kernel permits.
//!
//! The test compiles this file separately; it is not part of any crate. In the directory that the environment variable
//! `FAULT_CALLS` names, every second call fails with EINTR, and reads and writes that do not fail transfer only half of
//! the bytes. The names of failed calls are appended to the file `FAULT_CALLS`.calls. Syncs of the directory that
//! `FAULT_SYNC` names fail.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::sync::Mutex;

extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn __errno_location() -> *mut c_int;
}

/// A pseudo-handle with which dlsym(3) finds the next definition of a name after this library.
const RTLD_NEXT: *mut c_void = -1_isize as *mut c_void;
/// The number of the system call getdents64(2).
const LIST: c_long = if cfg!(target_arch = "x86") {
    220
} else if cfg!(any(target_arch = "x86_64", target_arch = "arm")) {
    217
} else {
    61
};
const EINTR: c_int = 4;
const EIO: c_int = 5;

/// Looks up a function of the C library.
macro_rules! real {
    ($name:literal, ($($type:ty),*) -> $result:ty) => {
        // SAFETY: the C library's function has this signature.
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>(
            dlsym(RTLD_NEXT, concat!($name, "\0").as_ptr().cast()),
        )
    };
}

/// Returns the path of an open file, relative to the directory that the environment variable `variable` names. Returns
/// `None` if the file is not in this directory.
fn below(variable: &str, file: c_int) -> Option<Vec<u8>> {
    let path = std::fs::read_link(format!("/proc/self/fd/{file}")).ok()?;
    Some(path.as_os_str().as_bytes().strip_prefix(std::env::var_os(variable)?.as_bytes())?.to_vec())
}

fn fail(error: c_int) -> c_int {
    unsafe { *__errno_location() = error };
    -1
}

fn is_interrupted(name: &str, file: c_int) -> bool {
    static CALLS: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());
    if below("FAULT_CALLS", file).is_none() {
        return false;
    }
    let mut calls = CALLS.lock().unwrap();
    let count = calls.entry(name.to_owned()).or_default();
    *count += 1;
    if *count == 1 {
        let path = std::env::var("FAULT_CALLS").unwrap() + ".calls";
        let log = std::fs::OpenOptions::new().create(true).append(true).open(path);
        writeln!(log.unwrap(), "{name}").unwrap();
    }
    *count % 2 == 1
}

fn interruptible(name: &str, file: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if is_interrupted(name, file) {
        return fail(EINTR);
    }
    call()
}

fn partial(name: &str, file: c_int, count: usize, call: impl FnOnce(usize) -> isize) -> isize {
    if is_interrupted(name, file) {
        return fail(EINTR) as isize;
    }
    call(below("FAULT_CALLS", file).map_or(count, |_| count.div_ceil(2)))
}

#[no_mangle]
pub unsafe extern "C" fn openat(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    interruptible("openat", at, || real!("openat", (c_int, *const c_char, c_int, c_uint) -> c_int)(at, path, flags, mode))
}

#[no_mangle]
pub unsafe extern "C" fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    interruptible("openat64", at, || real!("openat64", (c_int, *const c_char, c_int, c_uint) -> c_int)(at, path, flags, mode))
}

#[no_mangle]
pub unsafe extern "C" fn flock(file: c_int, operation: c_int) -> c_int {
    interruptible("flock", file, || real!("flock", (c_int, c_int) -> c_int)(file, operation))
}

#[no_mangle]
pub unsafe extern "C" fn pread64(file: c_int, bytes: *mut c_void, count: usize, place: i64) -> isize {
    let real = real!("pread64", (c_int, *mut c_void, usize, i64) -> isize);
    partial("pread64", file, count, |count| real(file, bytes, count, place))
}

#[no_mangle]
pub unsafe extern "C" fn pwrite64(file: c_int, bytes: *const c_void, count: usize, place: i64) -> isize {
    let real = real!("pwrite64", (c_int, *const c_void, usize, i64) -> isize);
    partial("pwrite64", file, count, |count| real(file, bytes, count, place))
}

#[no_mangle]
pub unsafe extern "C" fn fsync(file: c_int) -> c_int {
    if below("FAULT_SYNC", file).is_some_and(|rest| rest.is_empty()) {
        return fail(EIO);
    }
    interruptible("fsync", file, || real!("fsync", (c_int) -> c_int)(file))
}

#[no_mangle]
pub unsafe extern "C" fn fdatasync(file: c_int) -> c_int {
    interruptible("fdatasync", file, || real!("fdatasync", (c_int) -> c_int)(file))
}

#[no_mangle]
pub unsafe extern "C" fn mkdirat(at: c_int, path: *const c_char, mode: c_uint) -> c_int {
    interruptible("mkdirat", at, || real!("mkdirat", (c_int, *const c_char, c_uint) -> c_int)(at, path, mode))
}

#[no_mangle]
pub unsafe extern "C" fn unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int {
    interruptible("unlinkat", at, || real!("unlinkat", (c_int, *const c_char, c_int) -> c_int)(at, path, flags))
}

#[no_mangle]
pub unsafe extern "C" fn renameat(from: c_int, old: *const c_char, to: c_int, new: *const c_char) -> c_int {
    let real = real!("renameat", (c_int, *const c_char, c_int, *const c_char) -> c_int);
    interruptible("renameat", from, || real(from, old, to, new))
}

#[no_mangle]
pub unsafe extern "C" fn syscall(
    number: c_long,
    file: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    if number == LIST && is_interrupted("getdents64", file as c_int) {
        return fail(EINTR) as c_long;
    }
    real!("syscall", (c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long)(number, file, b, c, d, e, f)
}

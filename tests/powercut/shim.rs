//! A shared library for `LD_PRELOAD` that records the program's calls on the files of its log.
//!
//! The test compiles this file separately; it is not part of any crate. The library forwards each call to the C library
//! and appends a record to the trace. The test appends to the same file, so the file contains all events in one order.
//! `trace.rs` parses the records. The library does not forward syncs, because `disk.rs` simulates their effects. Syncs
//! wait or fail as the test requests. Must not change the results of other calls.
//!
//! `POWERCUT_FOLDER` is the watched directory, `POWERCUT_TRACE` is the trace, and `POWERCUT_CONTROL` is a file of
//! numbers that control the library. Without these variables, the library only forwards calls.

use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dirfd(folder: *mut c_void) -> c_int;
    fn lseek64(file: c_int, place: i64, whence: c_int) -> i64;
    fn mmap(at: *mut c_void, length: usize, access: c_int, flags: c_int, file: c_int, place: i64) -> *mut c_void;
    fn __errno_location() -> *mut c_int;
}

/// A pseudo-handle with which dlsym(3) finds the next definition of a name after this library.
const RTLD_NEXT: *mut c_void = -1_isize as *mut c_void;
const AT_FDCWD: c_int = -100;
const AT_REMOVEDIR: c_int = 0x200;
const O_ACCESS: c_int = 3;
const O_RDWR: c_int = 2;
const O_APPEND: c_int = 0o2000;
const O_CLOEXEC: c_int = 0o2000000;
const F_DUPFD: c_int = 0;
const F_DUPFD_CLOEXEC: c_int = 1030;
const SEEK_CUR: c_int = 1;
const EIO: c_int = 5;

const FILES: usize = 1 << 16;

const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// Indexes of the numbers in the control file.
const HOLD_SYNCS: usize = 0;
const SYNC_MICROS: usize = 1;
const FAIL_SYNCS: usize = 2;
const FREEZE: usize = 3;
/// The number of calls in progress.
const BUSY: usize = 4;
const HELD: usize = 5;
const NUMBERS: usize = 6;

/// For a descriptor of a watched file, twice the number of the `open` call, plus 1 for a writable file. Otherwise, 0.
static HANDLES: [AtomicU64; FILES] = [const { AtomicU64::new(0) }; FILES];
static NEXT: AtomicU64 = AtomicU64::new(1);
static STATE: OnceLock<Option<State>> = OnceLock::new();
/// This lock is held during opens, changes to directory entries, truncations, allocations, and writes at a file's
/// current position. It keeps the records in the order of the calls.
static ORDER: Mutex<()> = Mutex::new(());

struct State {
    folder: Vec<u8>,
    trace: c_int,
    control: &'static [AtomicU32; NUMBERS],
}

/// Looks up a function of the C library.
macro_rules! real {
    ($name:literal, ($($type:ty),*) -> $result:ty) => {{
        static PLACE: AtomicUsize = AtomicUsize::new(0);
        let mut place = PLACE.load(Ordering::Relaxed);
        if place == 0 {
            place = unsafe { dlsym(RTLD_NEXT, concat!($name, "\0").as_ptr().cast()) } as usize;
            PLACE.store(place, Ordering::Relaxed);
        }
        // SAFETY: the C library's function has this signature.
        unsafe { std::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> $result>(place) }
    }};
}

fn state() -> Option<&'static State> {
    STATE.get_or_init(begin).as_ref()
}

fn begin() -> Option<State> {
    let path = |name| Some(std::env::var_os(name)?.into_vec());
    let (folder, trace, control) = (path("POWERCUT_FOLDER")?, path("POWERCUT_TRACE")?, path("POWERCUT_CONTROL")?);
    let open = real!("open64", (*const c_char, c_int, c_uint) -> c_int);
    let open = |path: Vec<u8>| {
        let path = [&path[..], b"\0"].concat();
        unsafe { open(path.as_ptr().cast(), O_RDWR | O_APPEND | O_CLOEXEC, 0) }
    };
    let (trace, control) = (open(trace), open(control));
    let shared = unsafe { mmap(std::ptr::null_mut(), NUMBERS * 4, 3, 1, control, 0) };
    if trace < 0 || control < 0 || shared as isize == -1 {
        std::process::abort();
    }
    let state = State { folder, trace, control: unsafe { &*shared.cast() } };
    state.record(b'P', u64::from(std::process::id()), 0, &[]);
    Some(state)
}

impl State {
    /// Appends a record in a single write.
    fn record(&self, kind: u8, first: u64, second: u64, rest: &[&[u8]]) {
        let length: usize = 17 + rest.iter().map(|part| part.len()).sum::<usize>();
        let mut bytes = Vec::with_capacity(4 + length);
        bytes.extend_from_slice(&(length as u32).to_le_bytes());
        bytes.push(kind);
        bytes.extend_from_slice(&first.to_le_bytes());
        bytes.extend_from_slice(&second.to_le_bytes());
        rest.iter().for_each(|part| bytes.extend_from_slice(part));
        let write = real!("write", (c_int, *const c_void, usize) -> isize);
        let written = unsafe { write(self.trace, bytes.as_ptr().cast(), bytes.len()) };
        if written != bytes.len() as isize {
            std::process::abort();
        }
    }

    /// Returns the path relative to the watched directory, whose own path is empty, or `None` for paths outside.
    fn below(&self, at: c_int, path: *const c_char) -> Option<Vec<u8>> {
        let mut path = unsafe { CStr::from_ptr(path) }.to_bytes().to_vec();
        if !path.starts_with(b"/") {
            let base = match at {
                AT_FDCWD => std::env::current_dir().ok()?,
                at => std::fs::read_link(format!("/proc/self/fd/{at}")).ok()?,
            };
            path = [&base.into_os_string().into_vec()[..], b"/", &path[..]].concat();
        }
        let rest = path.strip_prefix(&self.folder[..])?;
        if !rest.is_empty() && !rest.starts_with(b"/") {
            return None;
        }
        let parts: Vec<&[u8]> =
            rest.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
        Some(parts.join(&b'/'))
    }

    fn number(&self, which: usize) -> &AtomicU32 {
        &self.control[which]
    }

    /// Counts a call as in progress until the returned guard is dropped. Waits while the test has frozen the program.
    fn enter(&self) -> Busy<'_> {
        loop {
            while self.number(FREEZE).load(Ordering::SeqCst) != 0 {
                std::thread::sleep(POLL_INTERVAL);
            }
            self.number(BUSY).fetch_add(1, Ordering::SeqCst);
            let busy = Busy(self);
            if self.number(FREEZE).load(Ordering::SeqCst) == 0 {
                return busy;
            }
        }
    }
}

struct Busy<'a>(&'a State);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.number(BUSY).fetch_sub(1, Ordering::SeqCst);
    }
}

fn in_order() -> MutexGuard<'static, ()> {
    ORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn handle(file: c_int) -> Option<u64> {
    let handle = HANDLES.get(usize::try_from(file).ok()?)?.load(Ordering::Acquire);
    (handle != 0).then_some(handle)
}

/// Runs code, and then restores the value of `errno` that the program sees.
fn unseen(work: impl FnOnce()) {
    let error = unsafe { *__errno_location() };
    work();
    unsafe { *__errno_location() = error };
}

fn opened(at: c_int, path: *const c_char, flags: c_int, open: impl FnOnce() -> c_int) -> c_int {
    let found = state().and_then(|state| Some((state, state.below(at, path)?)));
    let Some((state, below)) = found else { return open() };
    let _busy = state.enter();
    let _order = in_order();
    let file = open();
    if file >= 0 {
        unseen(|| {
            let handle = NEXT.fetch_add(1, Ordering::Relaxed) * 2 + u64::from(flags & O_ACCESS != 0);
            if file as usize >= FILES {
                std::process::abort();
            }
            HANDLES[file as usize].store(handle, Ordering::Release);
            state.record(b'O', handle, flags as u64, &[&below]);
        });
    }
    file
}

// If the caller passes no mode, the value of the argument `mode` is undefined, but the C library ignores it.

#[no_mangle]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    let real = real!("open", (*const c_char, c_int, c_uint) -> c_int);
    opened(AT_FDCWD, path, flags, || real(path, flags, mode))
}

#[no_mangle]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    let real = real!("open64", (*const c_char, c_int, c_uint) -> c_int);
    opened(AT_FDCWD, path, flags, || real(path, flags, mode))
}

#[no_mangle]
pub unsafe extern "C" fn openat(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    let real = real!("openat", (c_int, *const c_char, c_int, c_uint) -> c_int);
    opened(at, path, flags, || real(at, path, flags, mode))
}

#[no_mangle]
pub unsafe extern "C" fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    let real = real!("openat64", (c_int, *const c_char, c_int, c_uint) -> c_int);
    opened(at, path, flags, || real(at, path, flags, mode))
}

#[no_mangle]
pub unsafe extern "C" fn close(file: c_int) -> c_int {
    let real = real!("close", (c_int) -> c_int);
    if let (Some(state), Some(handle)) = (state(), handle(file)) {
        let _busy = state.enter();
        HANDLES[file as usize].store(0, Ordering::Release);
        state.record(b'C', handle, 0, &[]);
        return real(file);
    }
    real(file)
}

/// Clears the handle: the C library closes the descriptor without calling this file's `close`, and a socket can
/// then reuse the descriptor's number.
#[no_mangle]
pub unsafe extern "C" fn closedir(folder: *mut c_void) -> c_int {
    let file = dirfd(folder);
    if handle(file).is_some() {
        HANDLES[file as usize].store(0, Ordering::Release);
    }
    real!("closedir", (*mut c_void) -> c_int)(folder)
}

fn doubled(file: c_int, double: c_int) -> c_int {
    if let (Some(handle), true) = (handle(file), double >= 0 && (double as usize) < FILES) {
        HANDLES[double as usize].store(handle, Ordering::Release);
    }
    double
}

#[no_mangle]
pub unsafe extern "C" fn dup(file: c_int) -> c_int {
    doubled(file, real!("dup", (c_int) -> c_int)(file))
}

#[no_mangle]
pub unsafe extern "C" fn fcntl(file: c_int, command: c_int, argument: usize) -> c_int {
    let result = real!("fcntl", (c_int, c_int, usize) -> c_int)(file, command, argument);
    if matches!(command, F_DUPFD | F_DUPFD_CLOEXEC) {
        doubled(file, result)
    } else {
        result
    }
}

#[no_mangle]
pub unsafe extern "C" fn fcntl64(file: c_int, command: c_int, argument: usize) -> c_int {
    let result = real!("fcntl64", (c_int, c_int, usize) -> c_int)(file, command, argument);
    if matches!(command, F_DUPFD | F_DUPFD_CLOEXEC) {
        doubled(file, result)
    } else {
        result
    }
}

fn wrote(state: &State, handle: u64, place: i64, bytes: &[u8]) {
    unseen(|| {
        if bytes.iter().all(|byte| *byte == 0) {
            state.record(b'0', handle, place as u64, &[&(bytes.len() as u64).to_le_bytes()]);
        } else {
            state.record(b'W', handle, place as u64, &[bytes]);
        }
    });
}

#[no_mangle]
pub unsafe extern "C" fn write(file: c_int, bytes: *const c_void, count: usize) -> isize {
    let real = real!("write", (c_int, *const c_void, usize) -> isize);
    let (Some(state), Some(handle)) = (state(), handle(file)) else { return real(file, bytes, count) };
    let _busy = state.enter();
    let _order = in_order();
    let written = real(file, bytes, count);
    if written > 0 {
        let place = lseek64(file, 0, SEEK_CUR) - written as i64;
        wrote(state, handle, place, std::slice::from_raw_parts(bytes.cast(), written as usize));
    }
    written
}

/// A `struct iovec` as in the C library.
#[repr(C)]
pub struct Piece {
    start: *const u8,
    length: usize,
}

/// Returns the first `count` bytes of the buffers.
unsafe fn gathered(pieces: *const Piece, number: c_int, count: isize) -> Vec<u8> {
    let pieces = unsafe { std::slice::from_raw_parts(pieces, number as usize) };
    let piece = |piece: &Piece| unsafe { std::slice::from_raw_parts(piece.start, piece.length) }.to_vec();
    let mut bytes: Vec<u8> = pieces.iter().filter(|piece| piece.length > 0).flat_map(piece).collect();
    bytes.truncate(count as usize);
    bytes
}

#[no_mangle]
pub unsafe extern "C" fn writev(file: c_int, pieces: *const Piece, number: c_int) -> isize {
    let real = real!("writev", (c_int, *const Piece, c_int) -> isize);
    let (Some(state), Some(handle)) = (state(), handle(file)) else { return real(file, pieces, number) };
    let _busy = state.enter();
    let _order = in_order();
    let written = real(file, pieces, number);
    if written > 0 {
        let place = lseek64(file, 0, SEEK_CUR) - written as i64;
        wrote(state, handle, place, &gathered(pieces, number, written));
    }
    written
}

fn wrote_at(file: c_int, bytes: *const c_void, place: i64, write: impl FnOnce() -> isize) -> isize {
    let (Some(state), Some(handle)) = (state(), handle(file)) else { return write() };
    let _busy = state.enter();
    let written = write();
    if written > 0 {
        wrote(state, handle, place, unsafe { std::slice::from_raw_parts(bytes.cast(), written as usize) });
    }
    written
}

#[no_mangle]
pub unsafe extern "C" fn pwrite(file: c_int, bytes: *const c_void, count: usize, place: i64) -> isize {
    let real = real!("pwrite", (c_int, *const c_void, usize, i64) -> isize);
    wrote_at(file, bytes, place, || real(file, bytes, count, place))
}

#[no_mangle]
pub unsafe extern "C" fn pwrite64(file: c_int, bytes: *const c_void, count: usize, place: i64) -> isize {
    let real = real!("pwrite64", (c_int, *const c_void, usize, i64) -> isize);
    wrote_at(file, bytes, place, || real(file, bytes, count, place))
}

fn wrote_pieces_at(
    file: c_int,
    pieces: *const Piece,
    number: c_int,
    place: i64,
    write: impl FnOnce() -> isize,
) -> isize {
    let (Some(state), Some(handle)) = (state(), handle(file)) else { return write() };
    let _busy = state.enter();
    let written = write();
    if written > 0 {
        wrote(state, handle, place, &unsafe { gathered(pieces, number, written) });
    }
    written
}

#[no_mangle]
pub unsafe extern "C" fn pwritev(file: c_int, pieces: *const Piece, number: c_int, place: i64) -> isize {
    let real = real!("pwritev", (c_int, *const Piece, c_int, i64) -> isize);
    wrote_pieces_at(file, pieces, number, place, || real(file, pieces, number, place))
}

#[no_mangle]
pub unsafe extern "C" fn pwritev64(file: c_int, pieces: *const Piece, number: c_int, place: i64) -> isize {
    let real = real!("pwritev64", (c_int, *const Piece, c_int, i64) -> isize);
    wrote_pieces_at(file, pieces, number, place, || real(file, pieces, number, place))
}

/// Runs a call that returns 0 on success. Records its effect on an open file.
fn changed(file: c_int, kind: u8, first: u64, rest: &[&[u8]], change: impl FnOnce() -> c_int) -> c_int {
    let (Some(state), Some(handle)) = (state(), handle(file)) else { return change() };
    let _busy = state.enter();
    let _order = in_order();
    let result = change();
    if result == 0 {
        unseen(|| state.record(kind, handle, first, rest));
    }
    result
}

#[no_mangle]
pub unsafe extern "C" fn ftruncate(file: c_int, length: i64) -> c_int {
    let real = real!("ftruncate", (c_int, i64) -> c_int);
    changed(file, b'T', length as u64, &[], || real(file, length))
}

#[no_mangle]
pub unsafe extern "C" fn ftruncate64(file: c_int, length: i64) -> c_int {
    let real = real!("ftruncate64", (c_int, i64) -> c_int);
    changed(file, b'T', length as u64, &[], || real(file, length))
}

fn allocated(file: c_int, mode: c_int, place: i64, length: i64, allocate: impl FnOnce() -> c_int) -> c_int {
    changed(file, b'A', mode as u64, &[&place.to_le_bytes(), &length.to_le_bytes()], allocate)
}

#[no_mangle]
pub unsafe extern "C" fn fallocate(file: c_int, mode: c_int, place: i64, length: i64) -> c_int {
    let real = real!("fallocate", (c_int, c_int, i64, i64) -> c_int);
    allocated(file, mode, place, length, || real(file, mode, place, length))
}

#[no_mangle]
pub unsafe extern "C" fn fallocate64(file: c_int, mode: c_int, place: i64, length: i64) -> c_int {
    let real = real!("fallocate64", (c_int, c_int, i64, i64) -> c_int);
    allocated(file, mode, place, length, || real(file, mode, place, length))
}

#[no_mangle]
pub unsafe extern "C" fn posix_fallocate(file: c_int, place: i64, length: i64) -> c_int {
    let real = real!("posix_fallocate", (c_int, i64, i64) -> c_int);
    allocated(file, 0, place, length, || real(file, place, length))
}

#[no_mangle]
pub unsafe extern "C" fn posix_fallocate64(file: c_int, place: i64, length: i64) -> c_int {
    let real = real!("posix_fallocate64", (c_int, i64, i64) -> c_int);
    allocated(file, 0, place, length, || real(file, place, length))
}

/// Simulates and records a sync. If the sync succeeds, all changes to the file or directory that were recorded before
/// the sync began are durable.
fn synced(file: c_int, sync: impl FnOnce() -> c_int) -> c_int {
    let (Some(state), Some(handle)) = (state(), handle(file)) else { return sync() };
    let _busy = state.enter();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    state.record(b'B', handle, number, &[]);
    state.number(HELD).fetch_add(1, Ordering::SeqCst);
    while state.number(HOLD_SYNCS).load(Ordering::SeqCst) != 0 {
        std::thread::sleep(POLL_INTERVAL);
    }
    state.number(HELD).fetch_sub(1, Ordering::SeqCst);
    match state.number(SYNC_MICROS).load(Ordering::SeqCst) {
        0 => {}
        micros => std::thread::sleep(Duration::from_micros(u64::from(micros))),
    }
    let fewer = |left: u32| left.checked_sub(1);
    // Only syncs of writable files fail. Syncs of directories never fail.
    let fails =
        handle % 2 == 1 && state.number(FAIL_SYNCS).fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_ok();
    state.record(if fails { b'X' } else { b'E' }, handle, number, &[]);
    if fails {
        unsafe { *__errno_location() = EIO };
        return -1;
    }
    0
}

#[no_mangle]
pub unsafe extern "C" fn fsync(file: c_int) -> c_int {
    synced(file, || real!("fsync", (c_int) -> c_int)(file))
}

#[no_mangle]
pub unsafe extern "C" fn fdatasync(file: c_int) -> c_int {
    synced(file, || real!("fdatasync", (c_int) -> c_int)(file))
}

/// Runs a call that changes a directory entry. Records the change.
fn entry(at: c_int, path: *const c_char, kind: u8, change: impl FnOnce() -> c_int) -> c_int {
    let found = state().and_then(|state| Some((state, state.below(at, path)?)));
    let Some((state, below)) = found else { return change() };
    let _busy = state.enter();
    let _order = in_order();
    let result = change();
    if result == 0 {
        unseen(|| state.record(kind, 0, 0, &[&below]));
    }
    result
}

#[no_mangle]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    entry(AT_FDCWD, path, b'U', || real!("unlink", (*const c_char) -> c_int)(path))
}

#[no_mangle]
pub unsafe extern "C" fn unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int {
    let kind = if flags & AT_REMOVEDIR == 0 { b'U' } else { b'R' };
    entry(at, path, kind, || real!("unlinkat", (c_int, *const c_char, c_int) -> c_int)(at, path, flags))
}

#[no_mangle]
pub unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    entry(AT_FDCWD, path, b'R', || real!("rmdir", (*const c_char) -> c_int)(path))
}

#[no_mangle]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: c_uint) -> c_int {
    entry(AT_FDCWD, path, b'D', || real!("mkdir", (*const c_char, c_uint) -> c_int)(path, mode))
}

#[no_mangle]
pub unsafe extern "C" fn mkdirat(at: c_int, path: *const c_char, mode: c_uint) -> c_int {
    entry(at, path, b'D', || real!("mkdirat", (c_int, *const c_char, c_uint) -> c_int)(at, path, mode))
}

/// Runs a call that changes two directory entries. If one of them is inside the watched directory, both must be inside,
/// because the test cannot replay other changes.
fn entries(
    kind: u8,
    from: (c_int, *const c_char),
    to: (c_int, *const c_char),
    change: impl FnOnce() -> c_int,
) -> c_int {
    let Some(state) = state() else { return change() };
    let (from, to) = (state.below(from.0, from.1), state.below(to.0, to.1));
    if from.is_none() && to.is_none() {
        return change();
    }
    let _busy = state.enter();
    let _order = in_order();
    let result = change();
    if result == 0 {
        unseen(|| match (from, to) {
            (Some(from), Some(to)) => state.record(kind, 0, 0, &[&from, b"\0", &to]),
            _ => std::process::abort(),
        });
    }
    result
}

#[no_mangle]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    let real = real!("rename", (*const c_char, *const c_char) -> c_int);
    entries(b'N', (AT_FDCWD, from), (AT_FDCWD, to), || real(from, to))
}

#[no_mangle]
pub unsafe extern "C" fn renameat(at: c_int, from: *const c_char, there: c_int, to: *const c_char) -> c_int {
    let real = real!("renameat", (c_int, *const c_char, c_int, *const c_char) -> c_int);
    entries(b'N', (at, from), (there, to), || real(at, from, there, to))
}

#[no_mangle]
pub unsafe extern "C" fn renameat2(
    at: c_int,
    from: *const c_char,
    there: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    // The trace cannot represent an exchange of two files (RENAME_EXCHANGE, 2).
    if flags & 2 != 0 && state().is_some() {
        std::process::abort();
    }
    let real = real!("renameat2", (c_int, *const c_char, c_int, *const c_char, c_uint) -> c_int);
    entries(b'N', (at, from), (there, to), || real(at, from, there, to, flags))
}

#[no_mangle]
pub unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    let real = real!("link", (*const c_char, *const c_char) -> c_int);
    entries(b'L', (AT_FDCWD, from), (AT_FDCWD, to), || real(from, to))
}

#[no_mangle]
pub unsafe extern "C" fn linkat(
    at: c_int,
    from: *const c_char,
    there: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    let real = real!("linkat", (c_int, *const c_char, c_int, *const c_char, c_int) -> c_int);
    entries(b'L', (at, from), (there, to), || real(at, from, there, to, flags))
}

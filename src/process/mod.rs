//! The program's process, outside the library: memory, standard streams, parent, background mode and role in a cluster.

pub mod allocator;
pub mod parent;
pub mod standby;

#[cfg(target_os = "linux")]
use nix::libc::{c_char, fcntl, open, F_GETFD, O_RDONLY, O_RDWR, O_WRONLY, STDERR_FILENO, STDIN_FILENO};

/// The C library calls this function before it starts Rust's runtime, which aborts if a standard stream is closed and
/// /dev/null is missing, as in a minimal container. If a standard stream stayed closed, the first socket or binlog file
/// would get the descriptor number of that stream, and would receive log lines.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
#[used]
#[link_section = ".init_array"]
static BEFORE_MAIN: extern "C" fn() = fill;

/// Replaces each closed standard stream. Reading a closed stdin and writing to a closed stdout still fail, so that a
/// subcommand does not put an empty job, and does not delete a job that it could not print.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
extern "C" fn fill() {
    for file in STDIN_FILENO..=STDERR_FILENO {
        let mode = [O_WRONLY, O_RDONLY, O_RDWR][file as usize];
        // SAFETY: the arguments are constants, and the paths end with a zero byte. Rust's runtime is not used, because
        // it has not started yet. The new file gets the number `file`, which is the lowest free number.
        unsafe {
            if fcntl(file, F_GETFD) < 0 && open(c"/dev/null".as_ptr().cast::<c_char>(), mode) < 0 {
                open(c"/".as_ptr().cast::<c_char>(), O_RDONLY);
            }
        }
    }
}

//! Standard input, output and error, if the program was started without some of them.
//!
//! Owns the code before `main`. Rust's runtime opens /dev/null in place of closed ones, and aborts without /dev/null,
//! as in a bare container. So closed ones are replaced before that; otherwise the first socket or binlog file would get
//! one of their numbers, and log lines would be written to it.

use nix::libc::{c_char, fcntl, open, F_GETFD, O_RDONLY, O_RDWR, STDERR_FILENO, STDIN_FILENO};

/// A function that the C library calls before `main`, and so before Rust's runtime starts.
#[allow(unsafe_code)]
#[used]
#[link_section = ".init_array"]
static BEFORE_MAIN: extern "C" fn() = fill;

/// Opens a file in place of each closed standard file.
#[allow(unsafe_code)]
extern "C" fn fill() {
    for file in STDIN_FILENO..=STDERR_FILENO {
        // SAFETY: system calls with constant arguments; paths end with a zero byte. Nothing of Rust's runtime is used,
        // which is not started yet. An open file gets the lowest free number, and those below `file` are in use.
        unsafe {
            if fcntl(file, F_GETFD) < 0 && open(c"/dev/null".as_ptr().cast::<c_char>(), O_RDWR) < 0 {
                open(c"/".as_ptr().cast::<c_char>(), O_RDONLY);
            }
        }
    }
}

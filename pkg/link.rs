//! The build script, which sets linker options for the release program on Linux.
//!
//! Discards the unwind tables, which are 7 % of the file and never used, because the release program aborts on a panic.
//! Packs the relocations, which saves 3 % of the file. Must not affect other profiles, which unwind.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// A linker script that GNU ld and lld combine with their own scripts. The unwind tables of the C library's startup
/// files are kept, because these files refer to their tables.
const SCRIPT: &str = "SECTIONS
{
  /DISCARD/ : { *(EXCLUDE_FILE(*crtbegin*.o *crtend*.o) .eh_frame) *(.gcc_except_table .gcc_except_table.*) }
}
INSERT AFTER .text;
";

/// The minor version of the first Rust release that contains musl 1.2.5, which supports packed relocations.
const PACKS_FROM: u32 = 93;
/// The minor version of the first glibc that supports packed relocations. Earlier versions refuse to start the program.
const GLIBC_PACKS_FROM: u32 = 36;

/// Returns the minor version that `program` prints, for example `36` from `glibc 2.36`.
fn minor(program: impl AsRef<OsStr>, argument: &str) -> Option<u32> {
    let version = Command::new(program).arg(argument).output().ok()?;
    String::from_utf8(version.stdout).ok()?.split(['.', '\n']).nth(1)?.trim().parse().ok()
}

/// Returns `true` if the C library supports packed relocations. This is rustc's own musl, or this machine's glibc if the
/// program is built for this machine.
fn packs_relocations() -> bool {
    let is = |name, value| env::var(name).is_ok_and(|found| found == value);
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let has_own_musl = is("CARGO_CFG_TARGET_ENV", "musl") && !flags.contains("link-self-contained=no");
    let is_native = is("CARGO_CFG_TARGET_ENV", "gnu") && env::var_os("HOST") == env::var_os("TARGET");
    let rustc = env::var_os("RUSTC").unwrap_or_default();
    is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && (has_own_musl && minor(rustc, "-V") >= Some(PACKS_FROM)
            || is_native && minor("getconf", "GNU_LIBC_VERSION") >= Some(GLIBC_PACKS_FROM))
}

fn main() {
    println!("cargo:rerun-if-changed=pkg/link.rs");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    // `PROFILE` is also `release` in profiles that inherit from `release`. The name of the actual profile is the first
    // component of the path PROFILE/build/PACKAGE/out.
    let is_release = folder.ancestors().nth(3).and_then(Path::file_name).is_some_and(|name| name == "release");
    let is_linux = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    if is_release && is_linux {
        let script = folder.join("discard.ld");
        fs::write(&script, SCRIPT).expect("cargo created the folder");
        println!("cargo:rustc-link-arg-bin=beanpole=-Wl,-T,{}", script.display());
        println!("cargo:rustc-link-arg-bin=beanpole=-Wl,--no-eh-frame-hdr");
        if packs_relocations() {
            println!("cargo:rustc-link-arg-bin=beanpole=-Wl,-z,pack-relative-relocs");
        }
    }
}

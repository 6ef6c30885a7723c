//! The build script: how the release program is linked on Linux.
//!
//! Owns the linker script that discards the unwind tables, 7 % of the file. A panic aborts the release program, so
//! nothing unwinds. Must not affect other profiles, which unwind.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// GNU ld and lld insert this into their own scripts. The C library's start and end files refer to their own tables.
const SCRIPT: &str = "SECTIONS
{
  /DISCARD/ : { *(EXCLUDE_FILE(*crtbegin*.o *crtend*.o) .eh_frame) *(.gcc_except_table .gcc_except_table.*) }
}
INSERT AFTER .text;
";

fn main() {
    println!("cargo:rerun-if-changed=pkg/link.rs");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    // `PROFILE` is also `release` in profiles that inherit from it. The folder is PROFILE/build/PACKAGE/out.
    let is_release = folder.ancestors().nth(3).and_then(Path::file_name).is_some_and(|name| name == "release");
    let is_linux = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    if is_release && is_linux {
        let script = folder.join("discard.ld");
        fs::write(&script, SCRIPT).expect("cargo created the folder");
        println!("cargo:rustc-link-arg-bin=beanpole=-Wl,-T,{}", script.display());
        println!("cargo:rustc-link-arg-bin=beanpole=-Wl,--no-eh-frame-hdr");
    }
}

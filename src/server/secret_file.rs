//! Files with secret contents: tokens and private keys.
//!
//! Owns the warning about permissions that expose the secret. Must not read the files.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Read permission for users who are neither the owner nor in the group of a file.
const OTHERS_READ: u32 = 0o004;

/// Logs a warning if all users can read the file. A group may exist for this purpose.
pub fn check(path: &Path) {
    let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.mode());
    if mode & OTHERS_READ != 0 {
        let path = path.display();
        log::warn!("all users can read {path}, which contains a secret: chmod o= {path}");
    }
}

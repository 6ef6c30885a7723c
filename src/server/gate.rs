//! Who a client is, as far as its connection shows, and the access file as it is now.
//!
//! Owns the reading of the file, at the start and again when it is asked for, what the kernel says about who is at the
//! other end of a Unix socket, and what is logged of tokens that are wrong. Must not decide who may do what: that is
//! the business of `access`.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::libc;
use parking_lot::{Mutex, RwLock};

use super::socket::{PeerAddress, Stream};
use crate::access::{self, AccessTable, Accounts, ClientAccess, Proof};
use crate::shared::machine;

/// Clients at a time that have not proven who they are. Beyond them, listeners wait a moment before they accept, then
/// turn clients away.
pub const MAX_STRANGERS: usize = 1024;

/// How long a client may take to prove who it is, the handshake of TLS included.
pub const PROVE_WITHIN: Duration = Duration::from_secs(10);

/// How long a client waits for the answer to a wrong token.
pub const PENALTY: Duration = Duration::from_secs(1);

/// The least time between two lines of the log about wrong tokens.
const QUIET: Duration = Duration::from_secs(1);

/// Errors of the file that are told in one line.
const TOLD: usize = 5;

/// Groups that a process is asked for first, and at most; the kernel's limit.
const GROUPS: usize = 32;
const MAX_GROUPS: usize = 65_536;

#[derive(Debug)]
pub struct Gate {
    path: PathBuf,
    table: RwLock<Arc<AccessTable>>,
    /// When a wrong token was last logged, and how many were not since.
    told: Mutex<(Option<Instant>, u64)>,
}

impl Gate {
    /// Reads the file. The error is one line.
    pub fn open(path: &Path) -> Result<Gate, String> {
        let table = RwLock::new(Arc::new(read(path)?));
        Ok(Gate { path: path.to_owned(), table, told: Mutex::default() })
    }

    /// Reads it again; if that fails, what it said before counts. The error is one line.
    pub fn reload(&self) -> Result<Arc<AccessTable>, String> {
        let table = Arc::new(read(&self.path)?);
        *self.table.write() = table.clone();
        Ok(table)
    }

    /// Whether everybody is let in, if only to do little.
    pub fn admits_strangers(&self) -> bool {
        self.table.read().prove(&[Proof::Nothing]).is_some()
    }

    /// The client at the other end of a connection. `proofs`: what it has proven beside what the kernel knows.
    /// `is_private`: nobody on the way can read what it says.
    pub fn client(&self, stream: &Stream, mut proofs: Vec<Proof>, is_private: bool) -> ClientAccess {
        let is_unix = matches!(stream, Stream::Unix(_));
        if is_unix {
            proofs.extend(process_of(stream));
        }
        ClientAccess::new(self.table.read().clone(), &proofs, is_private || is_unix)
    }

    /// A client has given a wrong token, or one where none are taken.
    pub fn log_failure(&self, peer: PeerAddress) {
        let mut told = self.told.lock();
        let (at, silent) = &mut *told;
        if at.is_some_and(|at| at.elapsed() < QUIET) {
            *silent += 1;
            return;
        }
        *at = Some(Instant::now());
        let silent = std::mem::take(silent);
        drop(told);
        match silent {
            0 => log::warn!("{peer}: its token was refused"),
            more => log::warn!("{peer}: its token was refused, as were {more} others before"),
        }
    }
}

fn read(path: &Path) -> Result<AccessTable, String> {
    let name = path.display();
    let unreadable = |error: io::Error| format!("the access file {name} cannot be read: {error}");
    // A pipe without a writer would hold up signals for as long as nobody writes.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(format!("the access file {name} is not a regular file"));
    }
    let mut bytes = Vec::new();
    (&file).read_to_end(&mut bytes).map_err(unreadable)?;
    let accounts = Accounts { user: &machine::user_number, group: &machine::group_number };
    let (mut told, mut more) = (Vec::new(), 0);
    let table = access::parse(&bytes, &accounts, |error| {
        if told.len() < TOLD {
            told.push(error.to_string());
        } else {
            more += 1;
        }
    });
    let Some(table) = table else {
        let more = if more == 0 { String::new() } else { format!("; and {more} more lines are wrong") };
        return Err(format!("the access file {name} is wrong: {}{more}", told.join("; ")));
    };
    Ok(table)
}

/// User and groups of the process that connected a Unix socket, as they were then.
fn process_of(stream: &Stream) -> Vec<Proof> {
    let mut process = [0; 3];
    let mut proofs = Vec::new();
    match option(stream, libc::SO_PEERCRED, &mut process) {
        // Its number, its user, its group.
        Ok(3) => proofs.extend([Proof::User(process[1]), Proof::Group(process[2])]),
        other => {
            log::warn!("who is at a Unix socket cannot be told: {other:?}");
            return proofs;
        }
    }
    let mut groups = vec![0; GROUPS];
    let count = option(stream, libc::SO_PEERGROUPS, &mut groups).or_else(|error| {
        if error.raw_os_error() != Some(libc::ERANGE) {
            return Err(error);
        }
        groups.resize(MAX_GROUPS, 0);
        option(stream, libc::SO_PEERGROUPS, &mut groups)
    });
    // Kernels before 4.13 know the first group only.
    proofs.extend(groups.into_iter().take(count.unwrap_or(0)).map(Proof::Group));
    proofs
}

/// A socket option that is a list of numbers; tells how many.
#[allow(unsafe_code)]
fn option(stream: &Stream, name: libc::c_int, numbers: &mut [u32]) -> io::Result<usize> {
    let mut length = size_of_val(numbers) as libc::socklen_t;
    // SAFETY: the descriptor is open as long as `stream` is there, and the kernel writes no more than `length` bytes.
    let result = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, name, numbers.as_mut_ptr().cast(), &mut length)
    };
    if result == 0 {
        Ok(length as usize / size_of::<u32>())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The place of a client among those that have not proven who they are; given back when it is dropped.
#[derive(Debug)]
pub struct Stranger(Arc<AtomicUsize>);

impl Stranger {
    pub fn enter(count: &Arc<AtomicUsize>) -> Stranger {
        count.fetch_add(1, Ordering::Relaxed);
        Stranger(count.clone())
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

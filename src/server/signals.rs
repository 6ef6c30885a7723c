//! Signals that control a running server. SIGTERM and SIGINT stop the server. SIGHUP reopens the log and reloads files;
//! if there is nothing to reopen or reload, it stops a server that has no service manager. SIGUSR1 starts drain mode.

use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, sync::Arc};

use nix::libc::{sigaction, SIG_IGN};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;

/// With `reopens`, catches SIGHUP even if this signal was ignored when the process started.
pub fn catch(reopens: bool) -> io::Result<Signals> {
    // SIGXFSZ would otherwise end the process at the file size limit. With a handler, only the write fails.
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    let wanted = |signal: &i32| !is_ignored(*signal) || *signal == SIGHUP && reopens;
    let optional = [SIGINT, SIGHUP].into_iter().filter(wanted);
    Signals::new([SIGTERM, SIGUSR1].into_iter().chain(optional))
}

/// Stop signals. A process must check for them before it replaces its program: the new program does not get them.
#[derive(Default)]
pub struct StopRequests {
    received: Arc<AtomicBool>,
    replacing: Arc<AtomicBool>,
}

impl StopRequests {
    pub fn watch() -> io::Result<StopRequests> {
        let requests = StopRequests::default();
        for signal in [SIGTERM, SIGINT].into_iter().filter(|signal| !is_ignored(*signal)) {
            // One handler sets a flag. After `last_check`, the other handler ends the process, so no signal is lost.
            signal_hook::flag::register(signal, requests.received.clone())?;
            signal_hook::flag::register_conditional_default(signal, requests.replacing.clone())?;
        }
        Ok(requests)
    }

    /// Returns `true` if the process must end. Any later stop signal ends it immediately.
    pub fn last_check(&self) -> bool {
        self.replacing.store(true, Ordering::SeqCst);
        self.received.load(Ordering::SeqCst)
    }
}

/// `true` if the process was started with the signal ignored, for example by nohup.
#[allow(unsafe_code)]
fn is_ignored(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<sigaction>::zeroed();
    // SAFETY: the call changes nothing and writes one `sigaction`, a type for which all zeros are also valid.
    unsafe {
        sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0 && action.assume_init().sa_sigaction == SIG_IGN
    }
}

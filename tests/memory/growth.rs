//! How much the real program grows while clients hold something unfinished, compared with its account.
//!
//! Owns the measurement. Must not know what the clients send.

use std::net::TcpStream;

use beanpole::Client;

use crate::daemon::{wait_until, Daemon};

/// Bytes by which resident memory may grow beyond the account: pages that are touched for the first time, buffers of
/// the threads, and gaps between pieces of memory.
pub const BEYOND: u64 = 4 << 20;

/// Bytes that may stay after all clients have left: the allocator is not asked to return less than eight megabytes.
const STAYS: u64 = BEYOND + (9 << 20);

/// How often in a row a figure must be equal before nothing more is expected.
const LOOKS: usize = 10;

/// An idle program: its resident memory, and the account at that time.
pub struct Growth<'a> {
    daemon: &'a Daemon,
    observer: Client,
    resident: u64,
    account: u64,
}

impl Growth<'_> {
    pub fn begin(daemon: &Daemon) -> Growth<'_> {
        let mut observer = daemon.client();
        let account = settled(daemon, &mut observer);
        Growth { daemon, observer, resident: daemon.rss(), account }
    }

    /// Checks the program while these connections hold what they sent, at least `least` bytes of account, and after
    /// they are gone.
    pub fn check(mut self, what: &str, connections: Vec<TcpStream>, least: u64) {
        let observer = &mut self.observer;
        wait_until(what, || figure(observer, "current-memory").saturating_sub(self.account) >= least);
        if least == 0 {
            settled(self.daemon, &mut self.observer);
        }
        // In this order: what arrives meanwhile is only in the account.
        let resident = self.daemon.rss().saturating_sub(self.resident);
        let account = figure(&mut self.observer, "current-memory").saturating_sub(self.account);
        println!("{what}: {} connections, account +{account}, resident +{resident}", connections.len());
        assert!(resident <= account + BEYOND, "{what}: resident +{resident}, account +{account}");
        drop(connections);
        let observer = &mut self.observer;
        wait_until("the others are gone", || figure(observer, "current-connections") == 1);
        wait_until("their memory is given back", || self.daemon.rss() <= self.resident + STAYS);
    }

    // The TLS tests do not use it.
    #[allow(dead_code)]
    /// Checks the maximum memory of the program, none of which remains.
    pub fn check_peak(self, what: &str) {
        let peak = self.daemon.peak_rss().saturating_sub(self.resident);
        println!("{what}: at most +{peak}");
        assert!(peak <= BEYOND, "{what}: at most +{peak}");
    }
}

/// Returns a figure of `stats`.
pub fn figure(client: &mut Client, key: &str) -> u64 {
    client.figure("stats", key).expect("a reply").parse().expect("a number")
}

/// Returns the account when it is constant and the program has executed everything that was sent.
fn settled(daemon: &Daemon, observer: &mut Client) -> u64 {
    let (mut last, mut same) = ((0, 0), 0);
    wait_until("the account is the same several times", || {
        let now = (figure(observer, "current-memory"), daemon.rss() >> 16);
        same = if now == last { same + 1 } else { 0 };
        last = now;
        std::thread::sleep(std::time::Duration::from_millis(10));
        same == LOOKS
    });
    last.0
}

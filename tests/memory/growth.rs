//! How much the real program grows while clients hold something half finished, beside what its account shows.
//!
//! Owns the measurement. Must not know what the clients send.

use std::net::TcpStream;

use beanpole::Client;

use crate::daemon::{wait_until, Daemon};

/// Bytes by which resident memory may grow beyond the account: pages that are touched for the first time, buffers of
/// the threads, and holes between pieces of memory.
pub const BEYOND: u64 = 4 << 20;

/// Bytes that may stay after everybody has left: the allocator is not asked to give back less than eight megabytes.
const STAYS: u64 = BEYOND + (9 << 20);

/// How often in a row a figure must be the same before nothing more is expected to come.
const LOOKS: usize = 10;

/// A program at rest: its resident memory, and what its account showed then.
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
        // In this order: what comes meanwhile is in the account alone.
        let resident = self.daemon.rss().saturating_sub(self.resident);
        let account = figure(&mut self.observer, "current-memory").saturating_sub(self.account);
        println!("{what}: {} connections, account +{account}, resident +{resident}", connections.len());
        assert!(resident <= account + BEYOND, "{what}: resident +{resident}, account +{account}");
        drop(connections);
        let observer = &mut self.observer;
        wait_until("the others are gone", || figure(observer, "current-connections") == 1);
        wait_until("their memory is given back", || self.daemon.rss() <= self.resident + STAYS);
    }

    // The tests of TLS have no use for it.
    #[allow(dead_code)]
    /// Checks the most that the program had, which nothing stays of.
    pub fn check_peak(self, what: &str) {
        let peak = self.daemon.peak_rss().saturating_sub(self.resident);
        println!("{what}: at most +{peak}");
        assert!(peak <= BEYOND, "{what}: at most +{peak}");
    }
}

/// A figure of `stats`.
pub fn figure(client: &mut Client, key: &str) -> u64 {
    client.figure("stats", key).expect("a reply").parse().expect("a number")
}

/// What the account shows when it no longer changes and the program has done all that it was sent.
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

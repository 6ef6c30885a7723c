//! Measures the growth of the real program's memory while clients hold incomplete input, and compares it with the
//! memory account.
//!
//! Must not depend on the clients' input.

use std::net::TcpStream;

use beanpole::Client;

use crate::daemon::{wait_until, Daemon};

/// Maximum difference between the growth of resident memory and the growth of the memory account, in bytes. Newly
/// touched pages, thread buffers and fragmentation cause the difference.
pub const BEYOND: u64 = 4 << 20;

/// Maximum difference between the resident memory after all clients have disconnected and the initial resident memory,
/// in bytes. The allocator keeps up to eight megabytes.
const STAYS: u64 = BEYOND + (9 << 20);

/// The number of consecutive equal samples after which a value is considered constant.
const CHECKS: usize = 10;

/// The resident memory and the memory account of an idle program, in bytes.
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

    /// Checks the memory while the connections hold their input, and again after the connections are closed. `least` is
    /// the minimum growth of the memory account in bytes.
    pub fn check(mut self, what: &str, connections: Vec<TcpStream>, least: u64) {
        let observer = &mut self.observer;
        wait_until(what, || figure(observer, "current-memory").saturating_sub(self.account) >= least);
        if least == 0 {
            settled(self.daemon, &mut self.observer);
        }
        // Reads the account last, so that input that arrives between the two reads can only increase the account.
        let resident = self.daemon.rss().saturating_sub(self.resident);
        let account = figure(&mut self.observer, "current-memory").saturating_sub(self.account);
        println!("{what}: {} connections, account +{account}, resident +{resident}", connections.len());
        assert!(resident <= account + BEYOND, "{what}: resident +{resident}, account +{account}");
        drop(connections);
        let observer = &mut self.observer;
        wait_until("the other connections are closed", || figure(observer, "current-connections") == 1);
        wait_until("their memory is released", || self.daemon.rss() <= self.resident + STAYS);
    }

    // The TLS tests include this file, but do not use this method.
    #[allow(dead_code)]
    /// Checks that resident memory has never exceeded its initial value by more than [`BEYOND`].
    pub fn check_peak(self, what: &str) {
        let peak = self.daemon.peak_rss().saturating_sub(self.resident);
        println!("{what}: at most +{peak}");
        assert!(peak <= BEYOND, "{what}: at most +{peak}");
    }
}

pub fn figure(client: &mut Client, key: &str) -> u64 {
    client.figure("stats", key).expect("a reply").parse().expect("a number")
}

/// Waits until the memory account and the resident memory are constant. Returns the account.
fn settled(daemon: &Daemon, observer: &mut Client) -> u64 {
    let (mut last, mut same) = ((0, 0), 0);
    wait_until("the memory usage is constant", || {
        let now = (figure(observer, "current-memory"), daemon.rss() >> 16);
        same = if now == last { same + 1 } else { 0 };
        last = now;
        std::thread::sleep(std::time::Duration::from_millis(10));
        same == CHECKS
    });
    last.0
}

//! Identification of clients, the current access file, and the rate limit on log lines. Must not decide what a client
//! may do, because the module `access` decides this.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::Level;

use super::socket::{PeerAddress, Stream};
use crate::access::{self, AccessTable, Accounts, ClientAccess, Credential};
use crate::shared::files;
use crate::shared::lock_order::LeafMutex;
use crate::shared::system;

/// The limit on unauthenticated clients. Beyond the limit, pool threads close the oldest clients of the largest group.
pub const MAX_UNAUTHENTICATED: usize = 1024;

/// The time limit for authentication, including the TLS handshake.
pub const AUTH_TIMEOUT: Duration = Duration::from_secs(10);

pub const FAILED_AUTH_DELAY: Duration = Duration::from_secs(1);

/// Minimum time between two lines of a [`LogLimit`].
const QUIET: Duration = Duration::from_secs(1);

/// Maximum number of errors in one message.
const MAX_ERRORS: usize = 5;

pub struct Gate {
    path: PathBuf,
    table: LeafMutex<Arc<AccessTable>>,
}

impl Gate {
    pub fn open(path: &Path) -> Result<Gate, String> {
        let table = LeafMutex::new(Arc::new(read(path)?));
        Ok(Gate { path: path.to_owned(), table })
    }

    /// Reads the access file again. Returns the old and the new table. After an error, the old table stays in force.
    pub fn reload(&self) -> Result<[Arc<AccessTable>; 2], String> {
        let table = Arc::new(read(&self.path)?);
        let old = std::mem::replace(&mut *self.table.lock(), table.clone());
        Ok([old, table])
    }

    /// Returns the access rights of the peer. For a Unix peer, adds the user and the groups to `credentials`.
    pub fn client(&self, (stream, peer): (&Stream, PeerAddress), mut credentials: Vec<Credential>) -> ClientAccess {
        let is_unix = peer.ip().is_none();
        if is_unix {
            match system::peer(stream) {
                Ok((user, groups)) => {
                    credentials.push(Credential::User(user));
                    credentials.extend(groups.into_iter().map(Credential::Group));
                }
                Err(error) => log::warn!("cannot read the credentials of a client on a Unix socket: {error}"),
            }
        }
        ClientAccess::new(self.table.lock().clone(), &credentials, peer.is_tls || is_unix)
    }
}

/// Limits how often clients can cause a log line. Contains the time of the last line, and the number of events since.
pub struct LogLimit(LeafMutex<(Option<Instant>, u64)>);

impl LogLimit {
    pub const fn new() -> LogLimit {
        LogLimit(LeafMutex::new((None, 0)))
    }

    pub fn log(&self, level: Level, event: fmt::Arguments) {
        let mut logged = self.0.lock();
        if logged.0.is_some_and(|at| at.elapsed() < QUIET) {
            logged.1 += 1;
            return;
        }
        let more = std::mem::replace(&mut *logged, (Some(Instant::now()), 0)).1;
        drop(logged);
        match more {
            0 => log::log!(level, "{event}"),
            more => log::log!(level, "{event} ({more} more since the last such line)"),
        }
    }
}

fn read(path: &Path) -> Result<AccessTable, String> {
    let name = path.display();
    let bytes = files::read(path).map_err(|error| format!("the access file {name} cannot be read: {error}"))?;
    let accounts = Accounts { user: &system::user_number, group: &system::group_number };
    let (mut errors, mut more) = (Vec::new(), 0);
    let table = access::parse(&bytes, &accounts, |line, column, problem| {
        if errors.len() < MAX_ERRORS {
            errors.push(format!("line {line}, column {column}: {problem}"));
        } else {
            more += 1;
        }
    });
    let Some(table) = table else {
        let more = if more == 0 { String::new() } else { format!("; and {more} more lines are wrong") };
        return Err(format!("the access file {name} is wrong: {}{more}", errors.join("; ")));
    };
    Ok(table)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};

    use super::*;
    use crate::server::Server;
    use crate::settings::config::Config;

    /// Otherwise, a pool thread could free a large table, and its clients would wait.
    #[test]
    fn no_client_refers_to_the_old_table_after_a_reload() {
        let path = std::env::temp_dir().join(format!("beanpole-gate-{}", std::process::id()));
        std::fs::write(&path, "* none all\n").unwrap();
        let config = Config { access: Some(path.clone()), ..Config::embedded() };
        let server = Server::with(config).unwrap();
        let clients = (0..100).map(|_| {
            let mut client = std::net::TcpStream::connect(server.address()).unwrap();
            client.write_all(b"put 0 0 60 1\r\nx\r\n").unwrap();
            let mut reader = BufReader::new(client);
            reader.read_line(&mut String::new()).unwrap();
            reader
        });
        let clients: Vec<_> = clients.collect();
        for _ in 0..20 {
            let old = Arc::downgrade(&server.hub.gate.as_ref().unwrap().table.lock());
            server.reload().unwrap();
            assert_eq!(old.strong_count(), 0);
        }
        drop(clients);
        std::fs::remove_file(path).unwrap();
    }
}

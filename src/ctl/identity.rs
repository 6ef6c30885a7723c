//! The client's identity for a server: a token, or a TLS certificate.
//!
//! Owns the options for the identity, and the first command of a connection. A token is sent only to the server, and
//! not over plain TCP, where others may listen.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::call::Call;
use super::opts::{Flag, AUTHORITY, CERTIFICATE, KEY, REACH, TOKEN, TO_URL};
use super::problem::Problem;
use super::server::ServerName;
use crate::client::{Client, ClientError};
#[cfg(feature = "tls")]
use crate::client::{ClientTls, ClientTlsFiles};

/// Maximum length of a token in the `auth` command.
const MAX_TOKEN: usize = 217;

/// The time limit for each step of a handshake if there is no other limit.
#[cfg(feature = "tls")]
const HANDSHAKE: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub struct Identity {
    token: Option<String>,
    #[cfg(feature = "tls")]
    tls: Option<ClientTls>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        // The token is secret.
        out.debug_struct("Identity").field("token", &self.token.is_some()).finish_non_exhaustive()
    }
}

impl Identity {
    /// Returns the identity of the command line, for this server.
    pub fn of(call: &Call, server: &ServerName) -> Result<Identity, Problem> {
        let is_tls = matches!(server, ServerName::Tls(..));
        let has_https = call.value(&TO_URL).is_some_and(|url| url.starts_with("https://"));
        let files = [&AUTHORITY, &CERTIFICATE, &KEY].map(|opt| call.value(opt).map(PathBuf::from));
        let is_useless = |opt: &Flag| !(is_tls || has_https && opt.long == AUTHORITY.long);
        if let Some((opt, _)) = REACH.iter().zip(&files).find(|(opt, file)| file.is_some() && is_useless(opt)) {
            return Err(Problem::usage(format!("--{} needs a server with TLS: -s beanstalks://HOST:PORT", opt.long)));
        }
        if files[2].is_some() && files[1].is_none() {
            return Err(Problem::usage("--key needs --cert"));
        }
        let token = call.value(&TOKEN).map(|path| read_token(&path)).transpose()?;
        if token.is_some() && matches!(server, ServerName::Tcp(..)) {
            let advice = "a token goes over TLS (-s beanstalks://HOST:PORT) or a Unix socket only";
            return Err(Problem::usage(format!("--{}: {advice}", TOKEN.long)));
        }
        Ok(Identity {
            token,
            #[cfg(feature = "tls")]
            tls: if is_tls { Some(load(files)?) } else { None },
        })
    }

    /// Authenticates with the token, if there is one.
    pub fn prove(&self, client: &mut Client) -> Result<(), ClientError> {
        self.token.as_ref().map_or(Ok(()), |token| client.authenticate(token.as_bytes()))
    }

    /// Connects with TLS, and presents the certificate if the server requests it.
    #[cfg(feature = "tls")]
    pub fn connect(&self, host: &str, port: u16, limit: Option<Duration>) -> std::io::Result<Client> {
        let tls = self.tls.as_ref().ok_or(std::io::ErrorKind::Unsupported)?;
        Client::connect_tls(host, port, tls, limit.unwrap_or(HANDSHAKE))
    }

    /// Replaces the TLS connection in a program without TLS, where no server name requires it.
    #[cfg(not(feature = "tls"))]
    pub fn connect(&self, _: &str, _: u16, _: Option<Duration>) -> std::io::Result<Client> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

#[cfg(feature = "tls")]
fn load([authority, certificate, key]: [Option<PathBuf>; 3]) -> Result<ClientTls, Problem> {
    ClientTls::load(&ClientTlsFiles { authority, certificate, key }).map_err(Problem::refused)
}

/// Returns the first line of a file.
fn read_token(path: &str) -> Result<String, Problem> {
    let text = std::fs::read_to_string(path).map_err(|error| Problem::file(path, &error))?;
    let token = text.lines().next().unwrap_or_default();
    if token.is_empty() || token.len() > MAX_TOKEN {
        return Err(Problem::refused(format!("{path}: the first line must be a token of 1 to {MAX_TOKEN} bytes")));
    }
    Ok(token.to_owned())
}

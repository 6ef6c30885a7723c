//! The identity that a client proves to a server: a token, or a TLS certificate.
//!
//! Owns the options for the identity, and the first command of a connection. A token is never sent over plain TCP,
//! where others may eavesdrop.

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

/// The maximum length of a token in the `auth` command.
const MAX_TOKEN: usize = 217;

/// The default time limit for each step of a handshake.
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
    /// Returns the identity that the command line specifies for this server.
    pub fn of(call: &Call, server: &ServerName) -> Result<Identity, Problem> {
        let is_tls = matches!(server, ServerName::Tls(..));
        let has_https = call.value(&TO_URL).is_some_and(|url| url.starts_with("https://"));
        let files = [&AUTHORITY, &CERTIFICATE, &KEY].map(|opt| call.value(opt).map(PathBuf::from));
        let is_useless = |opt: &Flag| !(is_tls || has_https && opt.long == AUTHORITY.long);
        if let Some((opt, _)) = REACH.iter().zip(&files).find(|(opt, file)| file.is_some() && is_useless(opt)) {
            return Err(Problem::usage(format!(
                "--{} requires a server with TLS: -s beanstalks://HOST:PORT",
                opt.long
            )));
        }
        if files[2].is_some() && files[1].is_none() {
            return Err(Problem::usage("--key requires --cert"));
        }
        let token = call.value(&TOKEN).map(|path| read_token(&path)).transpose()?;
        if token.is_some() && matches!(server, ServerName::Tcp(..)) {
            let advice = "requires TLS (-s beanstalks://HOST:PORT) or a Unix socket";
            return Err(Problem::usage(format!("--{} {advice}", TOKEN.long)));
        }
        Ok(Identity {
            token,
            #[cfg(feature = "tls")]
            tls: is_tls.then(|| load(files)).transpose()?,
        })
    }

    pub fn prove(&self, client: &mut Client) -> Result<(), ClientError> {
        self.token.as_ref().map_or(Ok(()), |token| client.authenticate(token.as_bytes()))
    }

    #[cfg(feature = "tls")]
    pub fn connect(&self, host: &str, port: u16, limit: Option<Duration>) -> std::io::Result<Client> {
        let tls = self.tls.as_ref().ok_or(std::io::ErrorKind::Unsupported)?;
        Client::connect_tls(host, port, tls, limit.unwrap_or(HANDSHAKE))
    }

    /// Never called: in a program without TLS, the name of such a server is an error.
    #[cfg(not(feature = "tls"))]
    pub fn connect(&self, _: &str, _: u16, _: Option<Duration>) -> std::io::Result<Client> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

#[cfg(feature = "tls")]
fn load([authority, certificate, key]: [Option<PathBuf>; 3]) -> Result<ClientTls, Problem> {
    ClientTls::load(&ClientTlsFiles { authority, certificate, key }).map_err(Problem::refused)
}

fn read_token(path: &str) -> Result<String, Problem> {
    let text = std::fs::read_to_string(path).map_err(|error| Problem::file(path, &error))?;
    let token = text.lines().next().unwrap_or_default();
    if token.is_empty() || token.len() > MAX_TOKEN {
        return Err(Problem::refused(format!(
            "{path}: invalid token; the first line must have 1 to {MAX_TOKEN} bytes"
        )));
    }
    Ok(token.to_owned())
}

//! Startup checks for HTTP.
//!
//! Owns reading the token file, and the rule that HTTP for other machines requires a token. Must not handle requests.

use std::fs;
use std::net::SocketAddr;

use super::StartError;
use crate::access::Digest;
use crate::protocol::Wire;
use crate::settings::config::Config;
use crate::shared::files;

const SHORTEST: usize = 16;

/// Also tells HTTP which protocols are enabled. Must precede the switch to another user.
pub fn prepare(config: &mut Config) -> Result<(), StartError> {
    config.protocols.http.spoken = vec![Wire::Beanstalk];
    let others = [(Wire::Gearman, &config.gearman), (Wire::Workq, &config.workq), (Wire::Http, &config.http)];
    let others = others.into_iter().filter(|(_, addresses)| !addresses.is_empty());
    config.protocols.http.spoken.extend(others.map(|(wire, _)| wire));
    if config.access.is_some() && config.http_token.is_some() {
        let message = "--http-token cannot be used with --access, whose file has the tokens";
        return Err(StartError::settings(message.to_owned()));
    }
    let Some(path) = &config.http_token else { return Ok(()) };
    files::check_secret(path);
    let fail = |problem: String| StartError::settings(format!("{}: {problem}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| fail(format!("cannot read the token: {error}")))?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.len() < SHORTEST || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(fail(format!("the first line must be a token of at least {SHORTEST} visible letters of ASCII")));
    }
    config.protocols.http.token = Some(Digest::of(token.as_bytes()));
    Ok(())
}

pub fn check(wire: Wire, name: &str, address: Option<SocketAddr>, config: &Config) -> Result<(), StartError> {
    let is_open = address.is_some_and(|address| !address.ip().is_loopback());
    let is_guarded = config.protocols.http.token.is_some() || config.access.is_some();
    if wire == Wire::Http && is_open && !is_guarded {
        let message = format!("HTTP on {name} needs a token, since others can reach it: --http-token FILE");
        return Err(StartError::settings(message));
    }
    Ok(())
}

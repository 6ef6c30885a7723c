//! Execution of HTTP requests. Long commands are interrupted to serve other clients.

use core::net::IpAddr;

use super::commands::STANDING_BY;
use super::reply::{self, Failure};
use super::request::{Decoder, Request};
use super::HttpSettings;
use crate::protocol::dialogue::Command as AnyCommand;
use crate::protocol::{Context, Flow, Output, ProtocolCommand};
use crate::shared::role::Role;

pub fn execute(mut request: Request, decoder: &mut Decoder, context: &mut Context, out: &mut Output) -> Flow {
    // A request that cannot be decoded already contains an error, so it needs no check.
    let allowed = if request.is_last { Ok(()) } else { check(&request, &context.settings.http) };
    // A standby serves only health checks and metrics.
    let is_own = request.route().is_some_and(|route| matches!(route.word, "healthz" | "readyz" | "metrics"));
    let is_standby = !is_own && context.host.role().is_some_and(|figures| figures.role == Role::Standby);
    let action = match allowed.and(std::mem::replace(&mut request.action, Ok(None))) {
        Ok(_) if is_standby => Err(Failure::new(503, STANDING_BY)),
        action => action,
    };
    if request.awaits_body {
        decoder.accept_body(action.is_ok());
    }
    let answer = match action {
        Err(failure) => Err(failure),
        Ok(None) => {
            if request.head.expects_continue {
                out.text().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            }
            return Flow::Next;
        }
        Ok(Some(mut action)) => match action.advance(context) {
            Some(answer) => answer,
            None if context.engine.has_memory(action.footprint()) => {
                request.action = Ok(Some(action));
                return Flow::resume(AnyCommand::Http(request.into()));
            }
            None => Err(Failure::new(503, "there is no memory for this")),
        },
    };
    match answer {
        Ok((kind, body)) => reply::whole(out, 200, kind, body, &request.head),
        Err(failure) if failure.status == 401 && request.head.token.is_some() => {
            request.head.close = true;
            reply::failure(out, &failure, &request.head);
            Flow::WrongToken
        }
        Err(failure) => reply::failure(out, &failure, &request.head),
    }
}

/// Authenticates only this request, because a proxy may use one connection for several users.
pub fn authenticate(request: &Request, context: &mut Context) {
    let Some(access) = &mut context.access else { return };
    match request.head.token {
        _ if request.allows_anonymous() => {}
        Some(token) => _ = access.authenticate(token),
        None => access.withdraw_token(),
    }
}

pub fn check(request: &Request, settings: &HttpSettings) -> Result<(), Failure> {
    let head = &request.head;
    let (host, is_change) = (head.host.as_deref().unwrap_or_default(), request.changes());
    let is_known = is_known_host(host, &settings.hosts);
    let has_token = settings.token.is_none() || head.token == settings.token || request.allows_anonymous();
    let checks = [
        (head.host.is_some(), 400, "there is no Host, or more than one"),
        (is_known, 421, "the Host is none of this server's: call it by an address, or name it with --http-host"),
        (head.origin.as_deref().is_none_or(|origin| is_same(origin, host)), 403, "the Origin is another site"),
        (has_token, 401, "the bearer token is missing or wrong"),
        (!is_change || settings.admin, 403, "this server is read-only here: --http-admin allows changes"),
        (!is_change || head.is_marked, 403, "the header X-Beanpole is missing"),
        (!is_change || head.is_json, 415, "the Content-Type must be application/json"),
    ];
    checks.into_iter().try_for_each(|(is_met, status, text)| Failure::check(is_met, status, text))
}

fn is_known_host(host: &str, names: &[String]) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        // A `]` at the end means that the last colon is part of an IPv6 address without a port.
        Some((name, port)) if !port.ends_with(']') => (name, port),
        _ => (host, ""),
    };
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let known = |known: &String| known.eq_ignore_ascii_case(name);
    bare.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost") || names.iter().any(known)
}

fn is_same(origin: &str, host: &str) -> bool {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_addresses_or_configured_names() {
        let names = ["queue.example".to_owned()];
        for known in [
            "127.0.0.1",
            "127.0.0.1:11380",
            "[::1]",
            "[::1]:80",
            "10.1.2.3:9",
            "localhost",
            "LOCALHOST:1",
            "queue.example:7",
        ] {
            assert!(is_known_host(known, &names), "{known}");
        }
        for other in [
            "",
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:80",
            "queue.example.",
            "a:b",
            "[::1]x",
        ] {
            assert!(!is_known_host(other, &names), "{other}");
        }
    }

    #[test]
    fn origin_is_the_host_with_a_scheme() {
        assert!(is_same("http://127.0.0.1:11380", "127.0.0.1:11380") && is_same("https://Queue", "queue"));
        for other in
            ["null", "http://127.0.0.1", "127.0.0.1:11380", "ftp://127.0.0.1:11380", "http://127.0.0.1:11380.evil"]
        {
            assert!(!is_same(other, "127.0.0.1:11380"), "{other}");
        }
    }
}

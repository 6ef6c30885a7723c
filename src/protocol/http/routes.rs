//! The HTTP routes, with the method, the path, the arguments and the required right of each route.

use super::action::Method::{self, Get, Post};
use super::action::{once, wrong, Arguments, HttpAction, HttpTarget, Parsed, RequestTarget};
use super::failed::{self, Remedy};
use super::page::PAGE;
use super::reply::{bytes, Failure, HTML};
use super::{commands, lists, metrics};
use crate::access::{Need, Scope};
use crate::engine::{ClientId, Handle, JobId};
use crate::protocol::text::whole_number;
use crate::protocol::DecodeLimits;
use crate::shared::json::{Object, Strays};

pub struct Route {
    /// The route's name in the log and in metrics.
    pub word: &'static str,
    pub method: Method,
    /// A part in braces is a placeholder for any text that is not empty.
    pub path: &'static str,
    /// Keys in the query of a GET, or in the JSON object of a POST.
    pub arguments: &'static [&'static str],
    pub need: Need,
    parse: fn(&mut Arguments) -> Parsed,
}

impl Route {
    pub fn name(&self) -> String {
        let method = if self.method == Get { "GET" } else { "POST" };
        format!("{method} {}", self.path)
    }
}

const fn row(
    (word, method, path): (&'static str, Method, &'static str),
    arguments: &'static [&'static str],
    need: Need,
    parse: fn(&mut Arguments) -> Parsed,
) -> Route {
    Route { word, method, path, arguments, need, parse }
}

#[rustfmt::skip]
pub const ROUTES: [Route; 33] = [
    row(("page", Get, "/"), &[], Need::OPEN, |_| once(|_| Ok(bytes(HTML, PAGE)))),
    row(("healthz", Get, "/healthz"), &[], Need::OPEN, commands::health),
    row(("readyz", Get, "/readyz"), &[], Need::OPEN, commands::readiness),
    row(("metrics", Get, "/metrics"), &["tube", "filter", "state"], Need::LOOK_ANY, metrics::scrape),
    row(("server", Get, "/api/server"), &[], Need::LOOK_ANY, commands::server),
    row(("tubes", Get, "/api/tubes"), &["sort", "order", "filter", "limit", "after", "name"], Need::LOOK_ANY, lists::tubes),
    row(("tube", Get, "/api/tubes/{tube}"), &[], Need::LOOK_NAMED, commands::tube),
    row(("jobs", Get, "/api/tubes/{tube}/jobs"), &["state", "limit", "from"], Need::LOOK_NAMED, lists::jobs),
    row(("find-job", Get, "/api/jobs"), &["id"], Need::LOOK_JOB, lists::find_job),
    row(("peek", Get, "/api/tubes/{tube}/peek/{state}"), &[], Need::LOOK_NAMED, commands::peek),
    row(("job", Get, "/api/jobs/{id}"), &[], Need::LOOK_JOB, commands::job),
    row(("body", Get, "/api/jobs/{id}/body"), &[], Need::LOOK_JOB, commands::body),
    row(("put", Post, "/api/tubes/{tube}/put"), &["body", "body-base64", "pri", "delay", "ttr", "tags"], Need::PUT_NAMED, commands::put),
    row(("kick", Post, "/api/tubes/{tube}/kick"), &["count"], Need::ADMIN_NAMED, commands::kick),
    row(("pause", Post, "/api/tubes/{tube}/pause"), &["seconds"], Need::ADMIN_NAMED, commands::pause),
    row(("settings", Post, "/api/tubes/{tube}/settings"), &["settings"], Need::ADMIN_NAMED, commands::settings),
    row(("clear", Post, "/api/tubes/{tube}/clear"), &["state"], Need::ADMIN_NAMED, commands::clear),
    row(("move", Post, "/api/tubes/{tube}/move"), &["to", "state", "count"], Need::ADMIN_NAMED, commands::move_jobs),
    row(("connections", Get, "/api/connections"), &["sort", "order", "filter", "limit", "after"], Need::LOOK_ANY, |it| lists::sorted::<Handle<ClientId>>(it, "number")),
    row(("history", Get, "/api/history"), &["tube", "id", "filter", "failed", "limit", "before"], Need::LOOK_ANY, lists::history),
    row(("overview", Get, "/api/overview"), &[], Need::LOOK_ALL, commands::overview),
    row(("schedules", Get, "/api/schedules"), &["sort", "order", "filter", "limit", "after"], Need::LOOK_ANY, |it| lists::sorted::<JobId>(it, "time-left")),
    row(("failed", Get, "/api/failed"), &["filter"], Need::LOOK_ANY, failed::groups),
    row(("failed-jobs", Get, "/api/tubes/{tube}/failed"), &["reason", "limit", "before"], Need::LOOK_NAMED, failed::jobs),
    row(("kick-failed", Post, "/api/tubes/{tube}/failed/kick"), &["reason", "reason-base64"], Need::ADMIN_NAMED, |it| failed::sweep(it, Remedy::Kick)),
    row(("delete-failed", Post, "/api/tubes/{tube}/failed/delete"), &["reason", "reason-base64"], Need::ADMIN_NAMED, |it| failed::sweep(it, Remedy::Delete)),
    row(("move-failed", Post, "/api/tubes/{tube}/failed/move"), &["reason", "reason-base64", "to"], Need::ADMIN_NAMED, |it| it.destination().and_then(|to| failed::sweep(it, Remedy::Move(to)))),
    row(("kick-job", Post, "/api/jobs/{id}/kick"), &[], Need::ADMIN_JOB, commands::kick_job),
    row(("move-job", Post, "/api/jobs/{id}/move"), &["to"], Need::ADMIN_JOB, commands::move_job),
    row(("delete", Post, "/api/jobs/{id}/delete"), &[], Need::ADMIN_JOB, commands::delete_job),
    row(("revoke", Post, "/api/jobs/{id}/revoke"), &[], Need::ADMIN_JOB, commands::revoke_job),
    row(("bury", Post, "/api/jobs/{id}/bury"), &[], Need::ADMIN_JOB, commands::bury_job),
    // Browsers request the icon automatically.
    row(("favicon", Get, "/favicon.ico"), &[], Need::OPEN, |_| Err(Failure::new(404, "there is no icon"))),
];

fn parts_of<'a>(path: &str, target: &'a RequestTarget) -> Option<Vec<&'a [u8]>> {
    let mut parts = Vec::new();
    let mut given = target.parts.iter();
    for part in path[1..].split('/') {
        let found = given.next()?;
        match part.starts_with('{') {
            true if !found.is_empty() => parts.push(&**found),
            true => return None,
            false if **found != *part.as_bytes() => return None,
            false => {}
        }
    }
    given.next().is_none().then_some(parts)
}

pub struct Routed {
    pub route: usize,
    pub target: HttpTarget,
    pub need: Need,
    /// `None` if the body has not been read.
    pub action: Option<Box<dyn HttpAction>>,
}

/// `body` is `None` if the body has not been read, and empty if the request has no body.
pub fn parse(request: &RequestTarget, body: Option<&[u8]>, limits: &DecodeLimits) -> Result<Routed, Failure> {
    let rows = ROUTES.iter().enumerate();
    let mut rows = rows.filter_map(|(index, route)| Some((index, route, parts_of(route.path, request)?))).peekable();
    let is_known = rows.peek().is_some();
    let Some((index, route, parts)) = rows.find(|(_, route, _)| route.method == request.method) else {
        let (status, text) = if is_known { (405, "not with this method") } else { (404, "there is no such path") };
        return Err(Failure::new(status, text));
    };
    let mut target = HttpTarget::default();
    if let Some(first) = parts.first() {
        match route.need.scope {
            Scope::Job => target.id = Some(whole_number(first).map(JobId).ok_or_else(|| wrong("id"))?),
            _ => target.tube = Some((*first).into()),
        }
    }
    let known = |key: &[u8]| route.method == Get && route.arguments.iter().any(|name| name.as_bytes() == key);
    if let Some((key, _)) = request.query.iter().find(|(key, _)| !known(key)) {
        return Err(Failure::new(400, format!("unknown in the query: {}", String::from_utf8_lossy(key))));
    }
    let Some(body) = body else { return Ok(Routed { route: index, target, need: route.need, action: None }) };
    let object = match body {
        [] => Ok(Object::default()),
        _ if body.len() as u64 > limits.room => return Err(Failure::new(503, "there is no memory for this")),
        _ => Object::parse(body, route.arguments, Strays::Refused),
    };
    let object = object.map_err(|wrong| Failure::new(400, wrong))?;
    let mut arguments = Arguments { parts, query: &request.query, object, limits, target, need: route.need };
    let action = (route.parse)(&mut arguments)?;
    Ok(Routed { route: index, target: arguments.target, need: arguments.need, action: Some(action) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::tests::pieces::LIMITS;

    fn read(method: Method, path: &str, body: &str) -> Result<Routed, u16> {
        let target = RequestTarget::parse(method, path).ok_or(0_u16)?;
        parse(&target, Some(body.as_bytes()), &LIMITS).map_err(|failure| failure.status)
    }

    #[test]
    fn paths_are_decoded_part_by_part() {
        let tube = read(Method::Get, "/api/tubes/a%2Fb+c%00", "{}").ok().and_then(|found| found.target.tube);
        assert_eq!(tube.as_deref(), Some(b"a/b+c\0".as_slice()));
        let tube = read(Method::Get, "/metrics?tube=a+b%2B", "{}").ok().and_then(|found| found.target.tube);
        assert_eq!(tube.as_deref(), Some(b"a b+".as_slice()));
        for wrong in
            ["/api/tubes/%", "/api/tubes/%2", "/api/tubes/%+1", "/api/tubes/%zz", "api/tubes", "http://x/", "*"]
        {
            assert!(matches!(read(Method::Get, wrong, "{}"), Err(0)), "{wrong}");
        }
    }

    #[test]
    fn unknown_and_invalid_arguments_are_refused() {
        for (method, path, body, status) in [
            (Method::Get, "/nothing", "", 404),
            (Method::Get, "/api/tubes/", "", 404),
            (Method::Get, "/api/tubes/a/put", "{}", 405),
            (Method::Post, "/", "{}", 405),
            (Method::Get, "/metrics?name=x", "{}", 400),
            (Method::Get, "/metrics?names=x", "{}", 400),
            (Method::Get, "/api/tubes/a/peek/reserved", "{}", 400),
            (Method::Get, "/api/tubes?sort=", "", 400),
            (Method::Get, "/api/tubes?sort=put", "", 400),
            (Method::Get, "/api/tubes?sort=name&order=up", "", 400),
            (Method::Get, "/api/tubes?sort=name&after=5", "", 400),
            (Method::Get, "/api/tubes?after=0-61", "", 400),
            (Method::Get, "/api/tubes?limit=-1", "", 400),
            (Method::Get, "/api/tubes/a/jobs?state=finished", "", 400),
            (Method::Get, "/api/tubes/a/jobs?from=18446744073709551616", "", 400),
            (Method::Get, "/api/jobs", "", 400),
            (Method::Get, "/api/jobs?id=", "", 400),
            (Method::Get, "/api/jobs/x", "{}", 400),
            (Method::Get, "/api/jobs/18446744073709551616", "{}", 400),
            (Method::Post, "/api/tubes/a/put", "{}", 400),
            (Method::Post, "/api/tubes/a/put", r#"{"body":"x","body-base64":"eA=="}"#, 400),
            (Method::Post, "/api/tubes/a/put", r#"{"body":"x","bogus":1}"#, 400),
            (Method::Post, "/api/tubes/a/put", r#"{"body":"x","pri":-1}"#, 400),
            (Method::Post, "/api/tubes/a/put", r#"{"body":"x","delay":4294967296}"#, 400),
            (Method::Post, "/api/tubes/a/put", r#"{"body":"12345678901"}"#, 413),
            (Method::Post, "/api/tubes/%00/put", r#"{"body":"x"}"#, 400),
            (Method::Post, "/api/tubes/a/move", r#"{"to":"a","state":"ready"}"#, 400),
            (Method::Post, "/api/tubes/a/clear?state=ready", "{}", 400),
            (Method::Post, "/api/tubes/a/clear", r#"{"state":["ready"]}"#, 400),
        ] {
            assert_eq!(read(method, path, body).err(), Some(status), "{path} {body}");
        }
    }
}

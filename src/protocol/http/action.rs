//! An HTTP command and its arguments: the path, the query, and the JSON object in the body. A command stores its own
//! progress, and can be interrupted to serve other clients.

use std::fmt;

use super::reply::{Failure, HttpAnswer};
use crate::access::Need;
use crate::engine::{Body, JobId, LongCommand, Span, State, Tags};
use crate::protocol::guard::Subject;
use crate::protocol::text::{hex_pair, is_any_name, past, whole_number, MAX_QUOTED_NAME};
use crate::protocol::{Context, DecodeLimits};
use crate::shared::base64;
use crate::shared::json::Object;

pub trait HttpAction: Send {
    /// Returns `None` if the step budget is used up.
    fn advance(&mut self, context: &mut Context) -> Option<HttpAnswer>;

    /// Returns the size on the heap in bytes, excluding the request's arguments.
    fn footprint(&self) -> u64 {
        0
    }

    fn job_body(&self) -> Option<&Body> {
        None
    }

    fn tags(&self) -> Option<&Tags> {
        None
    }

    fn into_operation(self: Box<Self>) -> Option<LongCommand> {
        None
    }

    fn name(&self) -> &'static str {
        std::any::type_name::<Self>()
    }
}

impl fmt::Debug for dyn HttpAction {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

pub type Parsed = Result<Box<dyn HttpAction>, Failure>;

struct Turns<F>(F);

impl<F: FnMut(&mut Context) -> Option<HttpAnswer> + Send> HttpAction for Turns<F> {
    fn advance(&mut self, context: &mut Context) -> Option<HttpAnswer> {
        (self.0)(context)
    }
}

/// Returns an action that calls `advance` until the reply is complete. Other clients are served between the calls.
pub fn turns(advance: impl FnMut(&mut Context) -> Option<HttpAnswer> + Send + 'static) -> Parsed {
    Ok(Box::new(Turns(advance)))
}

pub fn once(execute: impl FnOnce(&mut Context) -> HttpAnswer + Send + 'static) -> Parsed {
    let mut execute = Some(execute);
    turns(move |context| execute.take().map(|execute| execute(context)))
}

#[derive(Debug, Default)]
pub struct HttpTarget {
    pub id: Option<JobId>,
    pub tube: Option<Box<[u8]>>,
    /// The tube to which the command moves jobs, or to which the new settings of `tube` move dead letters.
    pub to: Option<Box<[u8]>>,
}

impl HttpTarget {
    pub fn subject(&self) -> Subject<'_> {
        match (self.id, &self.tube, &self.to) {
            (Some(id), _, Some(to)) => Subject::JobAndTube(id, to),
            (Some(id), _, None) => Subject::Job(Some(id)),
            (None, Some(tube), Some(to)) => Subject::TwoTubes(tube, to),
            (None, Some(tube), None) => Subject::Tube(tube),
            (None, None, _) => Subject::Nothing,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Method {
    #[default]
    Get,
    Post,
}

type Pair = (Box<[u8]>, Box<[u8]>);

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RequestTarget {
    pub method: Method,
    pub parts: Vec<Box<[u8]>>,
    pub query: Vec<Pair>,
}

impl RequestTarget {
    pub fn parse(method: Method, text: &str) -> Option<RequestTarget> {
        let text = text.split('#').next()?;
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let parts = path.strip_prefix('/')?.split('/').map(|part| decode(part, false));
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(key, true)?, decode(value, true)?))
        };
        let query = query.split('&').filter(|pair| !pair.is_empty()).map(pair);
        Some(RequestTarget { method, parts: parts.collect::<Option<_>>()?, query: query.collect::<Option<_>>()? })
    }
}

fn decode(text: &str, is_query: bool) -> Option<Box<[u8]>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'%' => {
                bytes.push(hex_pair(rest)?);
                rest = past(rest, 2);
            }
            b'+' if is_query => bytes.push(b' '),
            byte => bytes.push(byte),
        }
    }
    Some(bytes.into())
}

/// A route's parser can also change `target` and `need`.
pub struct Arguments<'a> {
    /// The values of placeholders in the route, such as `{tube}`.
    pub parts: Vec<&'a [u8]>,
    pub query: &'a [Pair],
    pub object: Object<'a>,
    pub limits: &'a DecodeLimits,
    pub target: HttpTarget,
    pub need: Need,
}

pub fn wrong(what: &str) -> Failure {
    Failure::new(400, format!("wrong or missing: {what}"))
}

pub fn state(text: &[u8]) -> Result<State, Failure> {
    State::named(text).ok_or_else(|| wrong("state"))
}

pub fn queued(text: &[u8]) -> Result<State, Failure> {
    let states = [State::Ready, State::Delayed, State::Buried];
    state(text).ok().filter(|state| states.contains(state)).ok_or_else(|| wrong("state"))
}

/// The tube need not exist. Fails if no protocol allows the name.
pub fn new_tube(name: &[u8]) -> Result<Box<[u8]>, Failure> {
    let problem = || format!("invalid tube name: it must have 1 to {MAX_QUOTED_NAME} bytes, none of them 0");
    is_any_name(name).then(|| name.into()).ok_or_else(|| Failure::new(400, problem()))
}

impl Arguments<'_> {
    pub fn part(&self, index: usize) -> Box<[u8]> {
        self.parts.get(index).copied().unwrap_or_default().into()
    }

    pub fn id(&self) -> JobId {
        self.target.id.unwrap_or(JobId(0))
    }

    pub fn query(&self, key: &str) -> Option<&[u8]> {
        self.query.iter().find(|(found, _)| **found == *key.as_bytes()).map(|(_, value)| &**value)
    }

    pub fn filter(&self) -> Box<[u8]> {
        self.query("filter").unwrap_or_default().into()
    }

    pub fn query_number(&self, key: &str, default: u64) -> Result<u64, Failure> {
        let Some(text) = self.query(key) else { return Ok(default) };
        whole_number(text).ok_or_else(|| wrong(key))
    }

    pub fn limit(&self, default: u64, max: u64) -> Result<usize, Failure> {
        self.query_number("limit", default).map(|limit| limit.clamp(1, max) as usize)
    }

    pub fn number(&self, key: &str, default: u64) -> Result<u64, Failure> {
        Ok(self.object.number(key).map_err(|()| wrong(key))?.unwrap_or(default))
    }

    pub fn text(&self, key: &str) -> Result<Option<&str>, Failure> {
        self.object.text(key).map_err(|()| wrong(key))
    }

    /// Returns the text of `key`, or the decoded base64 text of `encoded`. Fails if both exist.
    pub fn bytes(&mut self, key: &'static str, encoded: &'static str) -> Result<Option<Vec<u8>>, Failure> {
        let mut text = |key| self.object.take_text(key).map_err(|()| wrong(key));
        match (text(key)?, text(encoded)?) {
            (None, None) => Ok(None),
            (Some(text), None) => Ok(Some(text.into_owned().into_bytes())),
            (None, Some(text)) => base64::decode(text.as_bytes()).map(Some).ok_or_else(|| wrong(encoded)),
            (Some(_), Some(_)) => Err(wrong(key)),
        }
    }

    pub fn seconds(&self, key: &str, default: u64) -> Result<Span, Failure> {
        let seconds = self.number(key, default)?;
        u32::try_from(seconds).map(|seconds| Span::from_secs(seconds.into())).map_err(|_| wrong(key))
    }

    /// Parses `to`, the tube to which jobs are moved, and adds it to the target of the permission check.
    pub fn destination(&mut self) -> Result<Box<[u8]>, Failure> {
        let to = new_tube(self.text("to")?.ok_or_else(|| wrong("to"))?.as_bytes())?;
        Failure::check(self.target.tube.as_ref() != Some(&to), 400, "a tube cannot be moved to itself")?;
        self.target.to = Some(to.clone());
        Ok(to)
    }
}

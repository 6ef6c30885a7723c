//! A command in an HTTP request. It stores its own progress, and can be interrupted to serve other clients.

use std::fmt;

use super::reply::HttpAnswer;
use super::types::Failure;
use crate::engine::{Body, JobId, LongCommand, Tags};
use crate::protocol::guard::Subject;
use crate::protocol::Context;

pub trait HttpAction: Send {
    /// Returns `None` if the step budget is used up.
    fn advance(&mut self, context: &mut Context) -> Option<HttpAnswer>;

    /// Returns heap bytes, excluding the request's arguments.
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

/// `advance` is called until it returns the reply. Other clients are served between calls.
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
    /// The tube for moved jobs or dead letters.
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

//! The execution of a request, in one turn or in several.
//!
//! Owns the interface between the table of routes and the execution. A command carries its own progress. Must not know
//! any command.

use std::fmt;

use super::reply::HttpAnswer;
use super::types::Failure;
use crate::engine::{JobId, LongCommand, Tags};
use crate::protocol::guard::Subject;
use crate::protocol::Context;

/// A command, and its progress.
pub trait HttpAction: Send {
    /// Continues, and returns the reply when the command is complete.
    fn advance(&mut self, context: &mut Context) -> Option<HttpAnswer>;

    /// Returns the memory in use besides the value itself and the arguments of the request, in bytes.
    fn footprint(&self) -> u64 {
        0
    }

    /// Returns the size of the body of the job to put, if there is one.
    fn job_size(&self) -> Option<usize> {
        None
    }

    /// Returns the tags of the job to put, if it has any.
    fn tags(&self) -> Option<&Tags> {
        None
    }

    /// Returns the command to complete even if the client has disconnected, if there is one.
    fn into_operation(self: Box<Self>) -> Option<LongCommand> {
        None
    }

    /// Returns the name of the type, for debug output.
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

/// Returns a command that may take several turns.
pub fn turns(advance: impl FnMut(&mut Context) -> Option<HttpAnswer> + Send + 'static) -> Parsed {
    Ok(Box::new(Turns(advance)))
}

/// Returns a command that takes one turn.
pub fn once(execute: impl FnOnce(&mut Context) -> HttpAnswer + Send + 'static) -> Parsed {
    let mut execute = Some(execute);
    turns(move |context| execute.take().map(|execute| execute(context)))
}

#[derive(Debug, Default)]
pub struct HttpTarget {
    pub id: Option<JobId>,
    pub tube: Option<Box<[u8]>>,
    /// The tube to which jobs are moved.
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

//! Execution of HTTP requests. Long commands are interrupted to serve other clients.

use super::commands::STANDING_BY;
use super::reply;
use super::request::{Decoder, Request};
use super::same_site;
use super::types::Failure;
use crate::protocol::dialogue::Command as AnyCommand;
use crate::protocol::{Context, Flow, Output};
use crate::shared::role::Role;

pub fn execute(mut request: Request, decoder: &mut Decoder, context: &mut Context, out: &mut Output) -> Flow {
    // A request that cannot be decoded has an error, and nothing to check.
    let allowed = if request.is_last { Ok(()) } else { same_site::check(&request, &context.settings.http) };
    let action = match allowed.and(std::mem::replace(&mut request.action, Ok(None))) {
        Ok(_) if is_standby(&request, context) => Err(Failure::new(503, STANDING_BY)),
        action => action,
    };
    if request.awaits_body {
        decoder.accept_body(action.is_ok());
    }
    let answer = match action {
        Err(failure) => Err(failure),
        Ok(None) => {
            if request.head.expects_continue {
                reply::go_ahead(out);
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

/// `true` if the request concerns the queue of another server.
fn is_standby(request: &Request, context: &Context) -> bool {
    let is_own = request.route().is_some_and(|route| matches!(route.word, "healthz" | "readyz" | "metrics"));
    !is_own && context.host.role().is_some_and(|figures| figures.role == Role::Standby)
}

//! Requests to the HTTP gateway of one of several etcd servers.
//!
//! Owns the connection, which is kept for the next request. After an incomplete response, it is closed, so that no late
//! response is mistaken for that of another request, and the next request goes to the next server. Also owns the check
//! that all servers of a URL belong to one etcd cluster: with two clusters, there would be two queues.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::{Exchange, Keep, Response, Security, Transport};
use crate::shared::json::{self, Document};
use crate::shared::lock_order::LeafMutex;

/// The maximum size of a response in bytes. It may contain many entries of half a megabyte, in base64.
const LARGEST: usize = 64 << 20;

const CONNECT: Duration = Duration::from_millis(300);

/// The time limit of a login, which is rare, and which etcd makes slow on purpose.
const LOGIN: Duration = Duration::from_secs(3);

/// The time limit of a socket cannot be zero.
const LEAST: Duration = Duration::from_millis(1);

pub struct Gateway {
    endpoints: Vec<String>,
    security: Security,
    login: Option<(String, String)>,
    token: Option<String>,
    timeout: Duration,
    current: usize,
    connection: Option<Transport>,
    cluster: Arc<ClusterId>,
    /// The server of this connection was found to belong to the cluster.
    is_checked: bool,
}

impl Gateway {
    /// Creates a gateway to these servers, each with host and port, without sending a request. `timeout` applies to a
    /// whole request.
    pub fn new(
        endpoints: Vec<String>,
        security: Security,
        login: Option<(String, String)>,
        timeout: Duration,
        cluster: Arc<ClusterId>,
    ) -> Gateway {
        let (token, connection) = (None, None);
        Gateway { endpoints, security, login, token, timeout, current: 0, connection, cluster, is_checked: false }
    }

    /// Sends a request and reads the response. After an error, it is unknown whether the request was executed.
    pub fn ask(&mut self, path: &str, body: &str) -> io::Result<Response> {
        self.cluster.check()?;
        self.log_in(Instant::now() + self.timeout.max(LOGIN))?;
        let end = Instant::now() + self.timeout;
        let response = self.ask_by(path, body, end)?;
        match response.status {
            // The token has expired.
            401 => self.token = None,
            // The server has no leader, or is shutting down.
            500.. => self.leave(),
            _ => {}
        }
        Ok(response)
    }

    pub fn servers(&self) -> usize {
        self.endpoints.len()
    }

    fn log_in(&mut self, end: Instant) -> io::Result<()> {
        let (None, Some((user, password))) = (&self.token, &self.login) else { return Ok(()) };
        let body = json::object(|members| {
            members.text("name", user.as_bytes());
            members.text("password", password.as_bytes());
        });
        let response = self.ask_by("/v3/auth/authenticate", &body, end)?;
        let document = Document::read(&response.body);
        let token = document.get("token").text();
        let refused = || io::Error::new(ErrorKind::PermissionDenied, "etcd refuses user and password");
        self.token = Some(token.ok_or_else(refused)?.to_owned());
        Ok(())
    }

    fn ask_by(&mut self, path: &str, body: &str, end: Instant) -> io::Result<Response> {
        let response = self.try_ask(path, body, end).map_err(|error| {
            let endpoint = self.endpoints[self.current].clone();
            self.leave();
            let text = match error.kind() {
                ErrorKind::TimedOut => format!("etcd at {endpoint} timed out"),
                _ => format!("etcd at {endpoint}: {error}"),
            };
            io::Error::new(error.kind(), text)
        })?;
        if !self.is_checked {
            self.is_checked = self.cluster.check_response(&self.endpoints[self.current], &response.body)?;
        }
        Ok(response)
    }

    pub fn leave(&mut self) {
        self.connection = None;
        self.current = (self.current + 1) % self.endpoints.len();
    }

    /// Returns the connection, or a new one to the first server that accepts it.
    fn connected(&mut self, end: Instant) -> io::Result<Transport> {
        if let Some(stream) = self.connection.take() {
            return Ok(stream);
        }
        self.is_checked = false;
        let mut tries = 1;
        loop {
            let left = end.saturating_duration_since(Instant::now()).max(LEAST);
            match self.security.connect(&self.endpoints[self.current], CONNECT, left) {
                Err(_) if tries < self.endpoints.len() && Instant::now() < end => self.leave(),
                connected => return connected,
            }
            tries += 1;
        }
    }

    fn try_ask(&mut self, path: &str, body: &str, end: Instant) -> io::Result<Response> {
        let stream = self.connected(end)?;
        let endpoint = &self.endpoints[self.current];
        let token = self.token.as_ref().map_or(String::new(), |token| format!("Authorization: {token}\r\n"));
        let head = format!("POST {path} HTTP/1.1\r\nHost: {endpoint}\r\n{token}Content-Length: {}\r\n\r\n", body.len());
        let mut exchange = Exchange::new(stream, end);
        let response = exchange.run(&head, body.as_bytes(), Keep::All(LARGEST))?;
        self.connection = exchange.into_stream();
        Ok(response)
    }
}

#[derive(Default)]
pub struct ClusterId {
    state: LeafMutex<State>,
}

#[derive(Default)]
struct State {
    /// The first identifier, and the server that sent it.
    first: Option<(String, String)>,
    /// The error after two servers have sent different identifiers. It is permanent, because it is unknown which
    /// identifier is right.
    problem: Option<String>,
}

impl ClusterId {
    /// Fails if two servers belong to different clusters.
    pub fn check(&self) -> io::Result<()> {
        let problem = self.state.lock().problem.clone();
        problem.map_or(Ok(()), |problem| Err(io::Error::new(io::ErrorKind::InvalidInput, problem)))
    }

    /// Checks the identifier in the response of a server. Returns `false` if it contains none, as error responses do.
    pub fn check_response(&self, endpoint: &str, answer: &[u8]) -> io::Result<bool> {
        let Some(id) = find(answer) else { return Ok(false) };
        let mut state = self.state.lock();
        let (first, other) = state.first.get_or_insert_with(|| (id.to_owned(), endpoint.to_owned())).clone();
        if first != id && state.problem.is_none() {
            state.problem = Some(format!(
                "etcd at {other} and etcd at {endpoint} are different clusters ({first} and {id}): make them one cluster \
                 (see etcdctl member list), then restart beanpole"
            ));
        }
        drop(state);
        self.check().map(|()| true)
    }
}

/// Returns the identifier in the header of a response, which precedes everything that clients have stored.
fn find(answer: &[u8]) -> Option<&str> {
    let text = answer.get(..answer.len().min(200))?;
    let text = text.utf8_chunks().next()?.valid();
    let (_, rest) = text.split_once(r#""cluster_id":"#)?;
    rest.trim_start().strip_prefix('"')?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_two_clusters_are_told_apart() {
        let answer = |id: u64| format!(r#"{{"header":{{"cluster_id":"{id}","member_id":"1"}},"kvs":[]}}"#).into_bytes();
        let cluster = ClusterId::default();
        assert!(!cluster.check_response("a:2379", br#"{"error":"no leader"}"#).expect("no problem"));
        assert!(cluster.check_response("a:2379", &answer(7)).expect("no problem"));
        assert!(cluster.check_response("b:2379", &answer(7)).expect("no problem"));
        let problem = cluster.check_response("c:2379", &answer(8)).expect_err("another cluster").to_string();
        assert!(problem.starts_with("etcd at a:2379 and etcd at c:2379 are different clusters (7 and 8)"), "{problem}");
        assert!(cluster.check_response("a:2379", &answer(7)).is_err() && cluster.check().is_err());
    }
}

//! Requests to the HTTP gateway of one of several etcd servers.
//!
//! Owns the connection, which is kept for the next request. After an incomplete response, it is closed, so that no late
//! response is mistaken for that of another request, and the next request goes to the next server.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cluster_id::ClusterId;
use crate::client::{Exchange, Keep, Response, Security, Transport};
use crate::shared::json::{self, Document};

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

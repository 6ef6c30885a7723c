//! A client for the HTTP gateways of several etcd servers. After an error, the client moves to the next server.
//! Verifies that all servers belong to the same etcd cluster, because two clusters would contain two different queues.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::{connect_tcp, Exchange, Keep, Response, Security, Transport};
use crate::shared::json::{self, Document};
use crate::shared::lock_order::LeafMutex;

/// The maximum size of a response in bytes. A response can contain many entries of 512 KiB in base64.
const MAX_RESPONSE: usize = 64 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_millis(300);
/// The maximum number of connection attempts per server name, which can have several addresses.
const ATTEMPTS: usize = 3;
/// Long, because etcd's password hash is deliberately slow.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(3);
/// The standard library rejects a timeout of zero.
const MIN_TIMEOUT: Duration = Duration::from_millis(1);

pub struct Gateway {
    pub endpoints: Vec<String>,
    security: Security,
    login: Option<(String, String)>,
    token: Option<String>,
    timeout: Duration,
    /// Selects a server and, in each further round, the next one of the server's addresses.
    pub turn: usize,
    connection: Option<Transport>,
    cluster: Arc<ClusterId>,
    is_checked: bool,
}

impl Gateway {
    /// Each endpoint is `HOST:PORT`. `timeout` limits the time from the start of a request to the end of its response.
    pub fn new(
        endpoints: Vec<String>,
        security: Security,
        login: Option<(String, String)>,
        timeout: Duration,
        cluster: Arc<ClusterId>,
        turn: usize,
    ) -> Gateway {
        Gateway { endpoints, security, login, token: None, timeout, turn, connection: None, cluster, is_checked: false }
    }

    /// After an error, etcd may or may not have executed the request.
    pub fn request(&mut self, path: &str, body: &str) -> io::Result<Response> {
        self.cluster.check()?;
        self.log_in(Instant::now() + self.timeout.max(LOGIN_TIMEOUT))?;
        let response = self.request_until(path, body, Instant::now() + self.timeout)?;
        match response.status {
            // 401 reports an expired token, and 400 can report a JWT from before a change of etcd's users.
            400 | 401 => self.token = None,
            500.. if !String::from_utf8_lossy(&response.body).contains("permission denied") => self.leave(),
            _ => {}
        }
        Ok(response)
    }

    pub fn move_to(&mut self, turn: usize) {
        if self.turn != turn {
            (self.connection, self.turn) = (None, turn);
        }
    }

    fn endpoint(&self) -> &str {
        &self.endpoints[self.turn % self.endpoints.len()]
    }

    fn log_in(&mut self, end: Instant) -> io::Result<()> {
        let (None, Some((user, password))) = (&self.token, &self.login) else { return Ok(()) };
        let body = json::object(|members| {
            members.text("name", user.as_bytes());
            members.text("password", password.as_bytes());
        });
        let response = self.request_until("/v3/auth/authenticate", &body, end)?;
        let document = Document::read(&response.body);
        let refused = || io::Error::new(ErrorKind::PermissionDenied, "etcd refuses user and password");
        self.token = Some(document.get("token").text().ok_or_else(refused)?.to_owned());
        Ok(())
    }

    fn request_until(&mut self, path: &str, body: &str, end: Instant) -> io::Result<Response> {
        let response = self.try_request(path, body, end).map_err(|error| {
            let endpoint = self.endpoint().to_owned();
            self.leave();
            let text = match error.kind() {
                ErrorKind::TimedOut => format!("etcd at {endpoint} timed out"),
                _ => format!("etcd at {endpoint}: {error}"),
            };
            io::Error::new(error.kind(), text)
        })?;
        if !self.is_checked {
            self.is_checked = self.cluster.check_response(self.endpoint(), &response.body)?;
        }
        Ok(response)
    }

    pub fn leave(&mut self) {
        self.move_to(self.turn + 1);
    }

    fn connected(&mut self, end: Instant) -> io::Result<Transport> {
        if let Some(stream) = self.connection.take() {
            return Ok(stream);
        }
        self.is_checked = false;
        for _ in 1..self.endpoints.len() * ATTEMPTS {
            match self.connect(end) {
                Err(_) if Instant::now() < end => self.leave(),
                connected => return connected,
            }
        }
        self.connect(end)
    }

    fn connect(&self, end: Instant) -> io::Result<Transport> {
        let left = end.saturating_duration_since(Instant::now()).max(MIN_TIMEOUT);
        let mut addresses: Vec<SocketAddr> = self.endpoint().to_socket_addrs()?.collect();
        // Name servers return the addresses in a random order.
        addresses.sort_unstable();
        let round = self.turn / self.endpoints.len();
        let address = *addresses.get(round % addresses.len().max(1)).ok_or(ErrorKind::NotFound)?;
        self.security.secure(self.endpoint(), connect_tcp(address, CONNECT_TIMEOUT.min(left))?, left)
    }

    fn try_request(&mut self, path: &str, body: &str, end: Instant) -> io::Result<Response> {
        let stream = self.connected(end)?;
        let endpoint = self.endpoint();
        let token = self.token.as_ref().map_or(String::new(), |token| format!("Authorization: {token}\r\n"));
        let head = format!("POST {path} HTTP/1.1\r\nHost: {endpoint}\r\n{token}Content-Length: {}\r\n\r\n", body.len());
        let mut exchange = Exchange::new(stream, end);
        let response = exchange.run(&head, body.as_bytes(), Keep::All(MAX_RESPONSE))?;
        self.connection = exchange.into_stream();
        Ok(response)
    }
}

#[derive(Default)]
pub struct ClusterId(LeafMutex<State>);

#[derive(Default)]
struct State {
    first: Option<(String, String)>,
    /// The permanent error after two servers have sent different cluster IDs. The right cluster is unknown.
    problem: Option<String>,
}

impl ClusterId {
    pub fn check(&self) -> io::Result<()> {
        self.0.lock().problem.clone().map_or(Ok(()), |problem| Err(io::Error::new(ErrorKind::InvalidInput, problem)))
    }

    /// Returns `false` if the response has no cluster ID. Most error responses have none.
    pub fn check_response(&self, endpoint: &str, response: &[u8]) -> io::Result<bool> {
        let Some(id) = find(response) else { return Ok(false) };
        let mut state = self.0.lock();
        let (first, other) = state.first.get_or_insert_with(|| (id.to_owned(), endpoint.to_owned())).clone();
        if first != id && state.problem.is_none() {
            state.problem = Some(format!(
                "etcd at {other} and etcd at {endpoint} are different clusters ({first} and {id}): make them one \
                 cluster (see etcdctl member list), then restart beanpole"
            ));
        }
        drop(state);
        self.check().map(|()| true)
    }
}

/// Returns the cluster ID in the response header. Ignores the rest, in which client data could imitate a cluster ID.
fn find(response: &[u8]) -> Option<&str> {
    let text = response.get(..response.len().min(200))?.utf8_chunks().next()?.valid();
    let (_, rest) = text.split_once(r#""cluster_id":"#)?;
    rest.trim_start().strip_prefix('"')?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_different_clusters_are_detected() {
        let response =
            |id: u64| format!(r#"{{"header":{{"cluster_id":"{id}","member_id":"1"}},"kvs":[]}}"#).into_bytes();
        let cluster = ClusterId::default();
        assert!(!cluster.check_response("a:2379", br#"{"error":"no leader"}"#).expect("no problem"));
        assert!(cluster.check_response("a:2379", &response(7)).expect("no problem"));
        assert!(cluster.check_response("b:2379", &response(7)).expect("no problem"));
        let problem = cluster.check_response("c:2379", &response(8)).expect_err("another cluster").to_string();
        assert!(problem.starts_with("etcd at a:2379 and etcd at c:2379 are different clusters (7 and 8)"), "{problem}");
        assert!(cluster.check_response("a:2379", &response(7)).is_err() && cluster.check().is_err());
    }
}

//! A client for the HTTP gateways of several etcd servers. After an error, the client moves to the next server.
//! Verifies that all servers belong to the same etcd cluster, because two clusters would contain two different queues.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::client::{connect_tcp, ClientTlsFiles, Exchange, Keep, Response, Security, Transport};
use crate::shared::json::{self, Document};

/// The maximum size of a response in bytes. A response can contain many entries of 512 KiB in base64.
const MAX_RESPONSE: usize = 64 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_millis(300);
/// The maximum number of connection attempts per server name, which can have several addresses.
const ATTEMPTS: usize = 3;
pub const QUOTA: u64 = 2 << 30;
/// Long, because etcd's password hash is deliberately slow.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(3);

/// A parsed URL `etcd://[USER:PASSWORD@]HOST[:PORT],...[/NAME][?PARAMETER&...]`. The parameter `quota=BYTES` is
/// always allowed. The scheme `etcds` uses TLS, and permits the parameters `ca=FILE`, `cert=FILE` and `key=FILE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    pub endpoints: Vec<String>,
    pub name: String,
    pub login: Option<(String, String)>,
    /// The value of etcd's option `--quota-backend-bytes`.
    pub quota: u64,
    pub files: Option<ClientTlsFiles>,
}

impl Location {
    pub fn parse(text: &str) -> Result<Location, String> {
        let shown = without_login(text);
        let invalid = || format!("invalid journal: {shown}; must be etcd://HOST[:PORT],.../NAME");
        let (scheme, rest) = text.split_once("://").ok_or_else(invalid)?;
        let mut files = match scheme {
            "etcd" => None,
            "etcds" if cfg!(feature = "tls") => Some(ClientTlsFiles::default()),
            "etcds" => return Err("this program was built without TLS; build it with make TLS=1".to_owned()),
            _ => return Err(invalid()),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, name) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = hosts.rsplit_once('@').map_or((None, hosts), |(login, hosts)| (Some(login), hosts));
        let login = login.map(|login| login.split_once(':').ok_or_else(invalid)).transpose()?;
        let mut quota = QUOTA;
        for word in query.split('&').filter(|word| !word.is_empty()) {
            match (word.split_once('='), &mut files) {
                (Some(("quota", number)), _) => quota = number.parse().map_err(|_| invalid())?,
                (Some(("ca", path)), Some(files)) => files.authority = Some(path.into()),
                (Some(("cert", path)), Some(files)) => files.certificate = Some(path.into()),
                (Some(("key", path)), Some(files)) => files.key = Some(path.into()),
                // `word` can be part of a password that contains a question mark, so the message omits it.
                _ if query.contains('@') => return Err(invalid()),
                _ => return Err(format!("invalid journal: {shown}; unknown parameter {word}")),
            }
        }
        if files.as_ref().is_some_and(|files| files.key.is_some() && files.certificate.is_none()) {
            return Err(format!("invalid journal: {shown}; key requires cert"));
        }
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        ensure!(!hosts.split(',').any(str::is_empty) && is_plain(name), invalid());
        let with_port = |host: &str| match host.rsplit_once(':') {
            Some((_, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host.to_owned(),
            _ => format!("{host}:2379"),
        };
        let name = if name.is_empty() { "default" } else { name }.to_owned();
        let login = login.map(|(user, password)| (user.to_owned(), password.to_owned()));
        Ok(Location { endpoints: hosts.split(',').map(with_port).collect(), name, login, quota, files })
    }
}

fn without_login(text: &str) -> String {
    let Some((login, rest)) = text.rsplit_once('@') else { return text.to_owned() };
    let scheme = login.split_once("://").map_or(String::new(), |(scheme, _)| format!("{scheme}://"));
    format!("{scheme}...@{rest}")
}

pub struct Gateway {
    pub location: Location,
    security: Security,
    token: Option<String>,
    timeout: Duration,
    /// Selects a server and, in each further round, the next one of the server's addresses.
    pub turn: usize,
    connection: Option<Transport>,
    cluster: Arc<ClusterId>,
    is_checked: bool,
}

impl Gateway {
    /// `timeout` limits the time from the start of a request to the end of its response.
    pub fn new(at: &Location, security: &Security, timeout: Duration, id: &Arc<ClusterId>, turn: usize) -> Gateway {
        let (location, security, cluster) = (at.clone(), security.clone(), id.clone());
        Gateway { location, security, token: None, timeout, turn, connection: None, cluster, is_checked: false }
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
        &self.location.endpoints[self.turn % self.location.endpoints.len()]
    }

    fn log_in(&mut self, end: Instant) -> io::Result<()> {
        let (None, Some((user, password))) = (&self.token, &self.location.login) else { return Ok(()) };
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
            let text = match error.kind() {
                ErrorKind::TimedOut => format!("etcd at {} timed out", self.endpoint()),
                _ => format!("etcd at {}: {error}", self.endpoint()),
            };
            self.leave();
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
        for _ in 1..self.location.endpoints.len() * ATTEMPTS {
            match self.connect(end) {
                Err(_) if Instant::now() < end => self.leave(),
                connected => return connected,
            }
        }
        self.connect(end)
    }

    fn connect(&self, end: Instant) -> io::Result<Transport> {
        // The standard library rejects a timeout of zero.
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let mut addresses: Vec<SocketAddr> = self.endpoint().to_socket_addrs()?.collect();
        // Name servers return the addresses in a random order.
        addresses.sort_unstable();
        let round = self.turn / self.location.endpoints.len();
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
pub struct ClusterId {
    first: OnceLock<(String, String)>,
    /// The permanent error after two servers have sent different cluster IDs. The right cluster is unknown.
    problem: OnceLock<String>,
}

impl ClusterId {
    pub fn check(&self) -> io::Result<()> {
        self.problem.get().map_or(Ok(()), |problem| Err(io::Error::new(ErrorKind::InvalidInput, problem.clone())))
    }

    /// Returns `false` if the response has no cluster ID. Most error responses have none.
    pub fn check_response(&self, endpoint: &str, response: &[u8]) -> io::Result<bool> {
        let Some(id) = find(response) else { return Ok(false) };
        let (first, other) = self.first.get_or_init(|| (id.to_owned(), endpoint.to_owned()));
        if first != id {
            self.problem.get_or_init(|| {
                format!(
                    "etcd at {other} and etcd at {endpoint} are different clusters ({first} and {id}): make them one \
                     cluster (see etcdctl member list), then restart beanpole"
                )
            });
        }
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

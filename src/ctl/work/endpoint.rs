//! HTTP requests that send jobs to an endpoint, each in its own thread, because connecting cannot be interrupted.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{net::IpAddr, path::PathBuf, sync::Arc};

use crossbeam_channel::{bounded, Receiver};
use parking_lot::Mutex;

use super::attempt::{Attempt, Outcome, Spare, Task, KEPT, MAX_BACKOFF};
use crate::client::{ClientTlsFiles, Closer, Exchange, Keep, Response, Security, Transport};
use crate::ctl::prelude::*;
use crate::engine::day_of;
use crate::settings::options::needs_tls;

const CONNECT: Duration = Duration::from_secs(5);
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

pub struct Endpoint {
    url: String,
    authority: String,
    /// The host and the port, which is the scheme's port by default.
    address: String,
    path: String,
    security: Security,
}

impl Endpoint {
    /// `authority` is a file with trusted certificates, which replace the system's.
    pub fn parse(url: &str, authority: Option<PathBuf>) -> Result<Endpoint> {
        let wrong = |why: &str| Problem::usage(format!("--url: {url}: {why}"));
        let (rest, port, files) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (rest, 80, None),
            (None, Some(rest)) => (rest, 443, Some(ClientTlsFiles { authority, ..ClientTlsFiles::default() })),
            (None, None) => return Err(wrong("it must begin with http:// or https://")),
        };
        if files.is_some() {
            needs_tls().map_err(|why| wrong(&why))?;
        }
        if let Some(sign) = url.chars().find(|sign| !sign.is_ascii_graphic() || *sign == '#') {
            return Err(wrong(&format!("invalid character {sign:?}")));
        }
        let (host_and_port, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        ensure!(!host_and_port.contains('@'), wrong("user names and passwords are not supported"));
        let has_port = host_and_port.rfind(':').is_some_and(|colon| !host_and_port[colon..].contains(']'));
        let (host, port) = match host_and_port.rsplit_once(':').filter(|_| has_port) {
            Some((host, port)) => (host, port.parse().ok().filter(|port| *port > 0)),
            None => (host_and_port, Some(port)),
        };
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = address.map_or(!host.contains([':', '[', ']']), |host| host.parse::<IpAddr>().is_ok());
        let port: u16 = port.filter(|_| is_host && !host.is_empty()).ok_or_else(|| wrong("invalid host or port"))?;
        Ok(Endpoint {
            url: url.to_owned(),
            authority: host_and_port.to_owned(),
            address: format!("{host}:{port}"),
            path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") },
            security: Security::load(files.as_ref()).map_err(|why| Problem::refused(format!("{url}: {why}")))?,
        })
    }

    fn connect(&self, end: Instant) -> io::Result<Transport> {
        let limit = CONNECT.min(end.saturating_duration_since(Instant::now()));
        ensure!(!limit.is_zero(), ErrorKind::TimedOut);
        self.security.connect(&self.address, limit)
    }

    /// Connects, and then closes the connection. An open connection would block a single-threaded server.
    pub fn probe(&self) -> Result {
        let connected = self.connect(Instant::now() + CONNECT);
        connected.map(drop).map_err(|error| Problem::new(NO_CONNECTION, format!("{}: {}", self.url, plain(&error))))
    }

    fn head(&self, job: &Task, length: usize) -> String {
        let Endpoint { path, authority, .. } = self;
        let Task { id, tube, reserves, .. } = job;
        format!(
            "POST {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: beanpole/{}\r\nAccept: */*\r\n\
             Content-Type: application/octet-stream\r\nContent-Length: {length}\r\nBeanpole-Job-Id: {id}\r\n\
             Beanpole-Job-Tube: {tube}\r\nBeanpole-Job-Reserves: {reserves}\r\n\r\n",
            env!("CARGO_PKG_VERSION")
        )
    }

    /// Sends a request. If the server has closed a reused connection without a response, retries over a new connection.
    fn send(&self, head: &str, body: &[u8], spare: Option<Spare>, end: Instant, control: &Mutex<Control>) -> Answer {
        // Common servers close idle connections after 2 seconds or more.
        let is_usable = |(stream, since): &Spare| since.elapsed() < Duration::from_secs(1) && !stream.has_input();
        let mut kept = spare.filter(is_usable).map(|(stream, _)| stream);
        loop {
            let is_kept = kept.is_some();
            let stream = match kept.take().map_or_else(|| self.connect(end), Ok) {
                Ok(stream) => stream,
                Err(error) => return (Outcome::Unreachable(plain(&error)), Vec::new(), None),
            };
            {
                let mut control = control.lock();
                control.closer = stream.closer().ok();
                if control.is_aborted {
                    return (Outcome::Stopped, Vec::new(), None);
                }
            }
            let mut exchange = Exchange::new(stream, end);
            match exchange.run(head, body, Keep::Start(KEPT)) {
                Ok(response) => return (meaning(&response), response.body, exchange.into_stream()),
                Err(error) if is_kept && !exchange.has_begun && error.kind() != ErrorKind::TimedOut => {}
                Err(error) => return (Outcome::Failed(words(&error)), Vec::new(), None),
            }
        }
    }
}

#[derive(Default)]
struct Control {
    closer: Option<Closer>,
    is_aborted: bool,
}

type Answer = (Outcome, Vec<u8>, Option<Transport>);

pub struct Delivery {
    answers: Receiver<Answer>,
    control: Arc<Mutex<Control>>,
    body: Vec<u8>,
    spare: Option<Spare>,
}

impl Delivery {
    /// Uses `spare` if it is open and was used within the last second. Calls `ended` after the outcome is available.
    pub fn start(
        endpoint: Arc<Endpoint>,
        job: &Task,
        body: Arc<Vec<u8>>,
        spare: Option<Spare>,
        end: Instant,
        ended: impl FnOnce() + Send + 'static,
    ) -> io::Result<Delivery> {
        let (sender, answers) = bounded(1);
        let control = Arc::new(Mutex::new(Control::default()));
        let (head, own_control) = (endpoint.head(job, body.len()), control.clone());
        std::thread::Builder::new().stack_size(256 * 1024).spawn(move || {
            // Wait one second longer than the worker thread, which should be the first to detect a timeout.
            let _ = sender.send(endpoint.send(&head, &body, spare, end + Duration::from_secs(1), &own_control));
            ended();
        })?;
        Ok(Delivery { answers, control, body: Vec::new(), spare: None })
    }
}

impl Attempt for Delivery {
    fn outcome(&mut self) -> io::Result<Option<Outcome>> {
        if self.control.lock().is_aborted {
            return Ok(Some(Outcome::Stopped));
        }
        let Ok((outcome, body, stream)) = self.answers.try_recv() else { return Ok(None) };
        self.body = body;
        self.spare = stream.map(|stream| (stream, Instant::now()));
        Ok(Some(outcome))
    }

    fn abort(&mut self) {
        let mut control = self.control.lock();
        control.is_aborted = true;
        control.closer.iter().for_each(Closer::close);
    }

    fn output(&mut self, capacity: usize) -> Vec<u8> {
        let body = self.body.trim_ascii();
        body[..body.len().min(capacity)].to_vec()
    }

    fn spare(&mut self) -> Option<Spare> {
        self.spare.take()
    }
}

fn meaning(response: &Response) -> Outcome {
    let message = format!("HTTP {}", response.status);
    let wait = response.retry_after.as_deref().and_then(|text| seconds_until(text, SystemTime::now()));
    match (response.status, wait) {
        (200..=299, _) => Outcome::Done,
        (429 | 503, Some(seconds)) => Outcome::Busy(message, seconds.clamp(1, MAX_BACKOFF)),
        _ => Outcome::Failed(message),
    }
}

/// Parses a value of `Retry-After`: a number of seconds, or a date in lower case.
fn seconds_until(text: &str, now: SystemTime) -> Option<u64> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(text.parse().unwrap_or(u64::MAX));
    }
    let [_, day, month, year, time, "gmt"] = text.split(' ').collect::<Vec<_>>()[..] else { return None };
    let month = MONTHS.iter().position(|name| *name == month)? as i64 + 1;
    let number = |text: &str| text.parse::<u16>().ok().map(i64::from);
    let mut clock = time.split(':').map(number);
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let seconds = day_of(number(year)?, month, number(day)?) * 86_400 + hour * 3600 + minute * 60 + second;
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Some(u64::try_from(seconds).unwrap_or(0).saturating_sub(now))
}

fn words(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            "the connection was closed before the response was complete".to_owned()
        }
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "no response in time".to_owned(),
        _ => plain(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(url: &str) -> [String; 3] {
        let endpoint = Endpoint::parse(url, None).unwrap_or_else(|problem| panic!("{url}: {}", problem.text));
        [endpoint.authority, endpoint.address, endpoint.path]
    }

    #[test]
    fn urls_have_parts() {
        for (url, expected) in [
            ("http://app", ["app", "app:80", "/"]),
            ("http://app:8080/jobs?x=1", ["app:8080", "app:8080", "/jobs?x=1"]),
            ("http://10.0.0.1?x", ["10.0.0.1", "10.0.0.1:80", "/?x"]),
            ("http://[::1]:81/", ["[::1]:81", "[::1]:81", "/"]),
            ("http://[::1]", ["[::1]", "[::1]:80", "/"]),
        ] {
            assert_eq!(parts(url), expected, "{url}");
        }
        let wrong = [
            "app:80",
            "http://",
            "http:///x",
            "http://:80",
            "http://a:0",
            "http://a:x",
            "http://a:70000",
            "ftp://a",
            "http://u:p@a",
            "http://a/\r\nX: y",
            "http://a/ b",
            "http://a/#b",
            "http://\u{e4}",
            "http://::1",
            "http://[x]",
        ];
        for url in wrong {
            assert_eq!(Endpoint::parse(url, None).err().map(|problem| problem.code), Some(5), "{url}");
        }
    }

    #[test]
    fn retry_after_is_a_number_or_a_date() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777 - 60);
        for (text, expected) in [
            ("0", Some(0)),
            ("120", Some(120)),
            ("99999999999999999999", Some(u64::MAX)),
            ("sun, 06 nov 1994 08:49:37 gmt", Some(60)),
            ("sun, 06 nov 1993 08:49:37 gmt", Some(0)),
            ("sun, 06 nov 1994 08:49 gmt", None),
            ("sunday, 06-nov-94 08:49:37 gmt", None),
            ("-1", None),
            ("1.5", None),
            ("", None),
            ("soon", None),
        ] {
            assert_eq!(seconds_until(text, now), expected, "{text}");
        }
    }
}

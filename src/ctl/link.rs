//! The server address, credentials and connection of a subcommand. A token must not be sent over plain TCP,
//! where it could be intercepted. With pipelining, the client sends a batch of commands before it reads the replies to
//! the previous batch, so the server always has commands to execute.

use std::{collections::VecDeque, fs::File, io::Read, path::PathBuf, time::Duration};

use super::prelude::*;
use crate::client::{Client, ClientError, ClientTlsFiles, Closer, Reply, Security};
use crate::protocol::text::unquote;
use crate::settings::options::{host_and_port, host_port, needs_tls};
use crate::shared::system;

const TLS: &str = "beanstalks://";

/// A delay that prevents workers from reserving a job, for example until the job is buried.
pub const MAX_DELAY: u32 = u32::MAX;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerName {
    /// A host without brackets, and a port.
    Tcp(String, u16),
    Tls(String, u16),
    Unix(PathBuf),
}

impl ServerName {
    pub fn name(&self) -> String {
        match self {
            ServerName::Tcp(host, port) => host_and_port(host, *port),
            ServerName::Tls(host, port) => format!("{TLS}{}", host_and_port(host, *port)),
            ServerName::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// Accepts `HOST`, `HOST:PORT`, `:PORT`, `[ADDR]:PORT`, `unix:PATH`, and the URLs that client libraries accept.
    pub fn parse(text: &str) -> Result<ServerName> {
        let forms = format!("must be HOST, HOST:PORT, :PORT, unix:PATH or {TLS}HOST");
        let invalid = |reason: &str| Problem::usage(format!("invalid server: {text}; {reason}"));
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(ServerName::Unix(PathBuf::from(path)));
        }
        let secure = text.strip_prefix(TLS);
        if secure.is_some() {
            needs_tls().map_err(|reason| invalid(&reason))?;
        }
        let (host, port) = host_port(secure.unwrap_or(text), &forms).map_err(|reason| invalid(&reason))?;
        let host = if host.is_empty() { "127.0.0.1".to_owned() } else { host };
        match (port.unwrap_or(11_300), secure) {
            (0, _) => Err(invalid(&forms)),
            (port, None) => Ok(ServerName::Tcp(host, port)),
            (port, Some(rest)) if !rest.contains("://") => Ok(ServerName::Tls(host, port)),
            _ => Err(invalid(&forms)),
        }
    }

    /// An option has precedence over environment variables, which have precedence over the default.
    pub fn find(option: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Result<ServerName> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let in_variable = |problem: Box<Problem>, name: &str| Problem::usage(format!("{name}: {}", problem.text));
        if let Some(text) = option {
            return ServerName::parse(text);
        }
        for name in ["BEANPOLE_SERVER", "BEANSTALKD_URL"] {
            if let Some(text) = variable(name) {
                return ServerName::parse(&text).map_err(|problem| in_variable(problem, name));
            }
        }
        let host = variable("BEANSTALKD_HOST").unwrap_or_else(|| "127.0.0.1".to_owned());
        let host = if host.parse::<std::net::Ipv6Addr>().is_ok() { format!("[{host}]") } else { host };
        let text = match variable("BEANSTALKD_PORT") {
            // For a container link or service named `beanstalkd`, Docker or Kubernetes sets `BEANSTALKD_PORT` to a URL.
            Some(port) if port.contains("://") => port,
            Some(port) => format!("{host}:{port}"),
            None => host,
        };
        ServerName::parse(&text).map_err(|problem| in_variable(problem, "BEANSTALKD_HOST, BEANSTALKD_PORT"))
    }
}

const MAX_TOKEN: usize = 217;
/// Of a longer file, only this many bytes are read.
const MAX_TOKEN_FILE: u64 = 64 * 1024;

#[derive(Clone)]
pub struct ServerTarget {
    pub server: ServerName,
    timeout: Option<Duration>,
    token: Option<String>,
    security: Security,
}

impl ServerTarget {
    pub fn of(call: &Call) -> Result<ServerTarget> {
        let server = ServerName::find(call.value(&SERVER).as_deref(), |name| {
            Some(std::env::var_os(name)?.to_string_lossy().into_owned())
        })?;
        let timeout = call.number(&TIMEOUT, 0, 86_400)?.unwrap_or(5);
        let timeout = (timeout > 0).then(|| Duration::from_secs(timeout));
        let is_tls = matches!(server, ServerName::Tls(..));
        let has_https = call.value(&TO_URL).is_some_and(|url| url.starts_with("https://"));
        let files = [&AUTHORITY, &CERTIFICATE, &KEY].map(|opt| call.value(opt).map(PathBuf::from));
        let is_useless = |opt: &Flag| !(is_tls || has_https && opt.long == AUTHORITY.long);
        let useless = CONNECTION_OPTIONS.iter().zip(&files).find(|(opt, file)| file.is_some() && is_useless(opt));
        if let Some((Flag { long, .. }, _)) = useless {
            return Err(Problem::usage(format!("--{long} requires a server with TLS: -s beanstalks://HOST:PORT")));
        }
        Problem::check_usage(files[2].is_none() || files[1].is_some(), "--key requires --cert")?;
        let token = call.value(&TOKEN).map(|path| read_token(&path)).transpose()?;
        let is_safe = token.is_none() || !matches!(server, ServerName::Tcp(..));
        let problem = "--token-file requires TLS (-s beanstalks://HOST:PORT) or a Unix socket";
        Problem::check_usage(is_safe, problem)?;
        let [authority, certificate, key] = files;
        let files = is_tls.then_some(ClientTlsFiles { authority, certificate, key });
        Ok(ServerTarget { server, timeout, token, security: Security::load(files.as_ref()).map_err(Problem::refused)? })
    }

    pub fn connect(&self) -> Result<Link> {
        let limit = self.timeout;
        let connected = match &self.server {
            ServerName::Unix(path) => Client::connect_unix(path),
            ServerName::Tls(host, port) => {
                // Without a time limit, a handshake with a silent server would never end.
                let limit = limit.unwrap_or(Duration::from_secs(60));
                self.security.connect(&host_and_port(host, *port), limit).map(Client::over)
            }
            // The operating system also limits the time to connect.
            ServerName::Tcp(host, port) => {
                Client::connect_within((host.as_str(), *port), limit.unwrap_or(Duration::MAX))
            }
        };
        let connected = connected.and_then(|mut client| client.set_timeout(limit).map(|()| client));
        let mut client = connected.map_err(|error| self.failed(&error))?;
        let token = self.token.as_ref();
        token.map_or(Ok(()), |token| client.authenticate(token.as_bytes())).map_err(|error| match error {
            ClientError::Io(error) => self.failed(&error),
            ClientError::Refused(line) => refusal("auth", &line),
            error @ ClientError::Invalid(_) => Problem::refused(error.to_string()),
        })?;
        client.memory = system::memory();
        Ok(Link { client, target: self.clone(), unchecked: 0 })
    }

    fn failed(&self, error: &std::io::Error) -> Box<Problem> {
        Problem::connection(&self.server.name(), error, self.timeout)
    }
}

fn read_token(path: &str) -> Result<String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_TOKEN_FILE).read_to_end(&mut bytes));
    read.map_err(|error| Problem::file(path, &error))?;
    let text = String::from_utf8_lossy(&bytes);
    let token = text.lines().next().unwrap_or_default();
    if token.is_empty() || token.len() > MAX_TOKEN || token.contains('\u{fffd}') {
        let problem = format!("{path}: invalid token; the first line must have 1 to {MAX_TOKEN} bytes of UTF-8");
        return Err(Problem::refused(problem));
    }
    Ok(token.to_owned())
}

pub type IdAndBody = (u64, Vec<u8>);

pub struct Link {
    client: Client,
    target: ServerTarget,
    unchecked: usize,
}

/// The number of reply bytes between two checks of this process's memory usage.
const CHECKED: usize = 64 * 1024;

impl Link {
    pub fn open(call: &Call) -> Result<Link> {
        ServerTarget::of(call)?.connect()
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result {
        self.client.send(bytes).map_err(|error| self.problem(error))
    }

    fn problem(&self, error: ClientError) -> Box<Problem> {
        match error {
            ClientError::Io(error) => self.target.failed(&error),
            refused => Problem::refused(refused.to_string()),
        }
    }

    /// Fails if this process uses more than a third of all memory: a faulty server could send an endless list.
    pub fn reply(&mut self) -> Result<Reply> {
        let reply = self.client.reply().map_err(|error| self.target.failed(&error))?;
        self.unchecked += reply.line.len() + reply.body.len();
        let fits = self.unchecked <= CHECKED || system::resident_memory() <= self.client.memory / 3;
        ensure!(fits, self.target.failed(&std::io::ErrorKind::OutOfMemory.into()));
        self.unchecked %= CHECKED;
        Ok(reply)
    }

    /// Adds CR LF to `command`. Fails if `command` contains a line break, for example from a manipulated export.
    pub fn ask(&mut self, command: &str) -> Result<Reply> {
        self.client.command(command).map_err(|error| self.problem(error))?;
        self.reply()
    }

    /// Like [`Link::ask`], but the timeout is `seconds` longer, or there is no timeout if `seconds` is `None`.
    pub fn ask_within(&mut self, command: &str, seconds: Option<u64>) -> Result<Reply> {
        let limit = self.target.timeout.zip(seconds).map(|(limit, seconds)| limit + Duration::from_secs(seconds));
        self.client.set_timeout(limit).map_err(|error| self.target.failed(&error))?;
        let reply = self.ask(command)?;
        self.client.set_timeout(self.target.timeout).map_err(|error| self.target.failed(&error))?;
        Ok(reply)
    }

    pub fn expect(&mut self, command: &str, word: &str) -> Result<Reply> {
        let reply = self.ask(command)?;
        ensure!(first_word(&reply.line) == word, refusal(command, &reply.line));
        Ok(reply)
    }

    pub fn use_tube(&mut self, name: &str) -> Result {
        self.expect(&format!("use {name}"), "USING").map(drop)
    }

    /// Watches only `tubes`, or only `default` if `tubes` is empty.
    pub fn watch(&mut self, tubes: &[String]) -> Result {
        tubes.iter().try_for_each(|name| self.expect(&format!("watch {name}"), "WATCHING").map(drop))?;
        if !tubes.is_empty() && !tubes.contains(&"default".to_owned()) {
            self.expect("ignore default", "WATCHING")?;
        }
        Ok(())
    }

    pub fn reserve(&mut self, wait: Option<u64>) -> Result<Option<IdAndBody>> {
        let command = wait.map_or("reserve".to_owned(), |seconds| format!("reserve-with-timeout {seconds}"));
        job_of(&command, self.ask_within(&command, wait)?)
    }

    pub fn peek_next(&mut self, state: &str) -> Result<Option<IdAndBody>> {
        let command = format!("peek-{state}");
        job_of(&command, self.ask(&command)?)
    }

    /// Returns `false` if the server buried the job because the job had used all tries that its `try` tag permits.
    pub fn release(&mut self, id: u64, pri: u64, delay: u64) -> Result<bool> {
        let command = format!("release {id} {pri} {delay}");
        let reply = self.ask(&command)?;
        match first_word(&reply.line) {
            "RELEASED" => Ok(true),
            "BURIED" => Ok(false),
            _ => Err(refusal(&command, &reply.line)),
        }
    }

    pub fn query(&mut self, command: &str) -> Result<Option<StatsReply>> {
        stats_of(command, &self.ask(command)?)
    }

    pub fn existing(&mut self, command: &str) -> Result<StatsReply> {
        self.query(command)?.ok_or_else(|| refusal(command, "NOT_FOUND"))
    }

    /// Returns `None` if there is no such tube, and empty statistics for a hidden tube.
    pub fn visible_tube(&mut self, name: &str) -> Result<Option<StatsReply>> {
        let command = format!("stats-tube {name}");
        let reply = self.ask(&command)?;
        match reply.line.as_str() {
            "FORBIDDEN" => Ok(Some(StatsReply::default())),
            _ => stats_of(&command, &reply),
        }
    }

    pub fn stats(&mut self) -> Result<StatsReply> {
        self.existing("stats")
    }

    pub fn tubes(&mut self) -> Result<Vec<String>> {
        let mut tubes = yaml::list(&self.expect("list-tubes", "OK")?.body);
        let order = in_order(tubes.len(), &|left, right| tubes[left].cmp(&tubes[right]));
        Ok(order.into_iter().map(|index| std::mem::take(&mut tubes[index])).collect())
    }

    pub fn closer(&self) -> Result<Closer> {
        self.client.closer().map_err(|error| self.target.failed(&error))
    }
}

pub fn stats_of(command: &str, reply: &Reply) -> Result<Option<StatsReply>> {
    match first_word(&reply.line) {
        "OK" if reply.body.windows(2).any(|pair| pair == b": ") => {
            Ok(Some(StatsReply::parse(&String::from_utf8_lossy(&reply.body))))
        }
        "NOT_FOUND" => Ok(None),
        _ => Err(refusal(command, &reply.line)),
    }
}

pub fn job_of(command: &str, reply: Reply) -> Result<Option<IdAndBody>> {
    match (reply.line.as_str(), reply.number("FOUND").or(reply.number("RESERVED"))) {
        (_, Some(id)) => Ok(Some((id, reply.body))),
        ("NOT_FOUND" | "TIMED_OUT", None) => Ok(None),
        (line, None) => Err(refusal(command, line)),
    }
}

pub fn first_word(line: &str) -> &str {
    line.split(' ').next().unwrap_or_default()
}

pub fn refusal(command: &str, line: &str) -> Box<Problem> {
    let (verb, arguments) = command.split_once(' ').unwrap_or((command, ""));
    let (verb, object) = (verb.trim_end(), first_word(arguments));
    let tube = || match unquote(arguments.as_bytes()) {
        Some((name, _)) => yaml::quote_name(&name),
        None => object.to_owned(),
    };
    Problem::refused(match line {
        "NOT_FOUND" if verb.ends_with("-tube") => format!("there is no tube {}", tube()),
        "NOT_FOUND" if verb == "stats-group" => format!("group {object} has no members, and no job waits for it"),
        "NOT_FOUND" if object.is_empty() => format!("{verb}: nothing found"),
        "NOT_FOUND" if matches!(verb, "stats-job" | "peek") => {
            format!("job {object} does not exist; if it has ended, see beanpole history")
        }
        "NOT_FOUND" => format!("{verb}: job {object} does not exist, or its state does not allow this"),
        "FORBIDDEN" => format!("{verb}: permission denied by the server"),
        "UNAUTHORIZED" if verb == "auth" => "the server rejected the token".to_owned(),
        "UNAUTHORIZED" => "the server requires authentication; use --token-file or --cert".to_owned(),
        "UNKNOWN_COMMAND" if verb == "auth" => "the server has no access file, and accepts no token".to_owned(),
        "UNKNOWN_COMMAND" => format!("{verb}: the server does not know this command"),
        "BAD_FORMAT" if yaml::is_quoted_name(object) => {
            format!("{verb}: the server does not support quoted tube names: {}", tube())
        }
        "BAD_FORMAT" => format!("{verb}: the server answered BAD_FORMAT; it may be too old for this"),
        "JOB_TOO_BIG" => "the job exceeds the server's maximum size (max-job-size)".to_owned(),
        "DRAINING" => "the server accepts no new jobs, because it is draining".to_owned(),
        "OUT_OF_MEMORY" => format!("{verb}: the server is out of memory"),
        "TUBE_FULL" => "the tube is full".to_owned(),
        other => format!("{verb}: the server answered {}", other.escape_debug()),
    })
}

/// The maximum number of commands in a batch. Two batches must fit into the socket buffers, because a server stops
/// reading from a client that has too many unread replies.
pub const MAX_BATCH: usize = 512;

pub type OnReply<'a, T> = &'a mut dyn FnMut(T, Reply) -> Result;

/// Commands with unread replies. The note of each command lets the caller interpret the reply.
pub struct Pipeline<T> {
    bytes: Vec<u8>,
    unsent: VecDeque<T>,
    sent: VecDeque<T>,
}

impl<T> Pipeline<T> {
    pub fn new() -> Pipeline<T> {
        Pipeline { bytes: Vec::new(), unsent: VecDeque::new(), sent: VecDeque::new() }
    }

    /// The caller must append the command to the returned buffer.
    pub fn add(&mut self, note: T) -> &mut Vec<u8> {
        self.unsent.push_back(note);
        &mut self.bytes
    }

    pub fn send_full_batch(&mut self, link: &mut Link, each: OnReply<T>) -> Result {
        if self.bytes.len() < 64 * 1024 && self.unsent.len() < MAX_BATCH {
            return Ok(());
        }
        self.push(link, each)
    }

    pub fn finish(&mut self, link: &mut Link, each: OnReply<T>) -> Result {
        self.push(link, each)?;
        self.push(link, each)
    }

    fn push(&mut self, link: &mut Link, each: OnReply<T>) -> Result {
        if !self.bytes.is_empty() {
            link.send(&self.bytes)?;
            self.bytes.clear();
        }
        while let Some(note) = self.sent.pop_front() {
            each(note, link.reply()?)?;
        }
        std::mem::swap(&mut self.sent, &mut self.unsent);
        Ok(())
    }
}

pub fn ask_each(link: &mut Link, verb: &str, items: &mut dyn Iterator<Item = String>, each: OnReply<usize>) -> Result {
    let mut pipeline = Pipeline::new();
    for (index, item) in items.enumerate() {
        pipeline.add(index).extend_from_slice(format!("{verb} {item}\r\n").as_bytes());
        pipeline.send_full_batch(link, each)?;
    }
    pipeline.finish(link, each)
}

type OnTube<'a> = &'a mut dyn FnMut(&str, Option<StatsReply>) -> Result;

/// Queries each tube. `each` receives `None` for a missing tube. Returns a message for each rejected query.
pub fn each_tube(link: &mut Link, names: &[String], each: OnTube) -> Result<Vec<String>> {
    let mut refused = Vec::new();
    ask_each(link, "stats-tube", &mut names.iter().cloned(), &mut |index, reply| {
        match stats_of(&format!("stats-tube {}", names[index]), &reply) {
            Ok(stats) => return each(&names[index], stats),
            Err(problem) => refused.push(format!("{}: {}", names[index], problem.text)),
        }
        Ok(())
    })?;
    Ok(refused)
}

/// Returns `true` if the server supports the tag `word`. Sends a malformed tag, with a harmless command as the body: a
/// server without tags executes the body as a command, and therefore sends a second reply.
pub fn knows(link: &mut Link, word: &str) -> Result<bool> {
    const BODY: &str = "list-tube-used";
    link.send(format!("put 0 0 1 {} {word}:\r\n{BODY}\r\nno-such-command\r\n", BODY.len()).as_bytes())?;
    let mut replies = 1;
    while replies <= 3 && link.reply()?.line != "UNKNOWN_COMMAND" {
        replies += 1;
    }
    Ok(replies <= 2)
}

/// Each tag in `tags` starts with a space.
pub fn put(bytes: &mut Vec<u8>, (pri, delay, ttr): (u32, u32, u32), tags: &str, body: &[u8]) {
    bytes.extend_from_slice(format!("put {pri} {delay} {ttr} {}{tags}\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> ServerName {
        ServerName::Tcp(host.to_owned(), port)
    }

    #[test]
    fn a_server_s_name_has_many_forms() {
        for (text, expected) in [
            ("queue", tcp("queue", 11300)),
            ("queue:7", tcp("queue", 7)),
            (":7", tcp("127.0.0.1", 7)),
            ("::1", tcp("::1", 11300)),
            ("[::1]", tcp("::1", 11300)),
            ("[::1]:7", tcp("::1", 7)),
            ("beanstalk://queue:7", tcp("queue", 7)),
            ("beanstalkd://queue/", tcp("queue", 11300)),
            ("tcp://10.0.0.1:7", tcp("10.0.0.1", 7)),
            ("unix:/run/x", ServerName::Unix("/run/x".into())),
        ] {
            assert_eq!(ServerName::parse(text).expect(text), expected, "{text}");
        }
        for text in
            ["", "unix:", "queue:", "queue:0", "queue:70000", "queue:x", "http://queue:7", "beanstalks://unix:/x"]
        {
            assert_eq!(ServerName::parse(text).expect_err(text).code, 5, "{text}");
        }
        for text in ["24500", "tcp://24500"] {
            assert!(ServerName::parse(text).expect_err(text).text.ends_with("as in 127.0.0.1:24500"), "{text}");
        }
    }

    #[test]
    fn the_option_precedes_the_environment() {
        let find = |given: Option<&str>, set: &[(&str, &str)]| {
            let look = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            ServerName::find(given, look).expect("a server").name()
        };
        let all = [("BEANSTALKD_HOST", "h"), ("BEANSTALKD_PORT", "2"), ("BEANSTALKD_URL", "tcp://u:3")];
        assert_eq!(find(None, &[]), "127.0.0.1:11300");
        assert_eq!(find(None, &all[..1]), "h:11300");
        assert_eq!(find(None, &all[1..2]), "127.0.0.1:2");
        assert_eq!(find(None, &all[..2]), "h:2");
        assert_eq!(find(None, &all), "u:3");
        assert_eq!(find(None, &[("BEANPOLE_SERVER", "unix:/x"), all[2]]), "unix:/x");
        assert_eq!(find(Some(":9"), &all), "127.0.0.1:9");
        assert_eq!(find(None, &[("BEANSTALKD_PORT", "tcp://172.17.0.5:11300")]), "172.17.0.5:11300");
        assert_eq!(find(None, &[("BEANSTALKD_HOST", "::1"), ("BEANSTALKD_PORT", "2")]), "[::1]:2");
    }
}

//! A subcommand's connection to its server.
//!
//! Owns the time-out, the words for what goes wrong, and commands that are sent ahead of their replies. Must not know
//! which subcommand it serves.

use std::time::Duration;

use super::call::Call;
use super::identity::Identity;
use super::opts::{SERVER, TIMEOUT};
use super::out::in_order;
use super::problem::Problem;
use super::server::ServerName;
use super::yaml::Figures;
use crate::client::{Client, ClientError, Closer, Reply};

/// Commands of a batch; two batches are on their way at most. They fit into the system's buffers, should the server
/// stop reading for the sake of replies that are not read yet.
pub const AHEAD: usize = 512;

/// How to reach the server.
#[derive(Clone, Debug)]
pub struct Reach {
    server: ServerName,
    timeout: Option<u64>,
    identity: Identity,
}

#[derive(Debug)]
pub struct Link {
    client: Client,
    name: String,
    timeout: Option<u64>,
}

impl Reach {
    /// What the command line and the environment say.
    #[inline(never)]
    pub fn of(call: &Call) -> Result<Reach, Problem> {
        let server = ServerName::find(call.value(&SERVER).as_deref(), |name| std::env::var(name).ok())?;
        let timeout = call.number(&TIMEOUT, 0, 86_400)?.unwrap_or(5);
        let identity = Identity::of(call, &server)?;
        Ok(Reach { server, timeout: Some(timeout).filter(|timeout| *timeout > 0), identity })
    }

    pub fn name(&self) -> String {
        self.server.name()
    }

    #[inline(never)]
    pub fn connect(&self) -> Result<Link, Problem> {
        let limit = self.timeout.map(Duration::from_secs);
        let connected = match &self.server {
            ServerName::Unix(path) => Client::connect_unix(path),
            ServerName::Tls(host, port) => self.identity.connect(host, *port, limit),
            ServerName::Tcp(host, port) => match limit {
                Some(limit) => Client::connect_within((host.as_str(), *port), limit),
                None => Client::connect((host.as_str(), *port)),
            },
        };
        let connected = connected.and_then(|mut client| client.set_timeout(limit).map(|()| client));
        let name = self.name();
        let failed = |error| Problem::connection(&name, &error, self.timeout);
        let mut client = connected.map_err(failed)?;
        self.identity.prove(&mut client).map_err(|error| match error {
            ClientError::Io(error) => failed(error),
            ClientError::Refused(line) => refusal("auth", &line),
        })?;
        Ok(Link { client, name, timeout: self.timeout })
    }
}

impl Link {
    /// Connects to the server that the command line means.
    #[inline(never)]
    pub fn open(call: &Call) -> Result<Link, Problem> {
        Reach::of(call)?.connect()
    }

    /// Sends bytes: whole commands, whose replies are read later.
    #[inline(never)]
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        self.client.send(bytes).map_err(|error| match error {
            ClientError::Io(error) => self.failed(&error),
            refused => Problem::refused(refused.to_string()),
        })
    }

    #[inline(never)]
    pub fn reply(&mut self) -> Result<Reply, Problem> {
        self.client.reply().map_err(|error| self.failed(&error))
    }

    #[inline(never)]
    fn failed(&self, error: &std::io::Error) -> Problem {
        Problem::connection(&self.name, error, self.timeout)
    }

    /// Sends one command, without its CR LF, and reads its reply, whatever that is.
    #[inline(never)]
    pub fn ask(&mut self, command: &str) -> Result<Reply, Problem> {
        self.send(format!("{command}\r\n").as_bytes())?;
        self.reply()
    }

    /// The same; the server may take so many seconds, or as long as it likes, beside its time-out.
    #[inline(never)]
    pub fn ask_patiently(&mut self, command: &str, seconds: Option<u64>) -> Result<Reply, Problem> {
        let limit = self.timeout.zip(seconds).map(|(timeout, seconds)| Duration::from_secs(timeout + seconds));
        self.client.set_timeout(limit).map_err(|error| self.failed(&error))?;
        let reply = self.ask(command)?;
        self.client.set_timeout(self.timeout.map(Duration::from_secs)).map_err(|error| self.failed(&error))?;
        Ok(reply)
    }

    /// Sends one command, whose reply must begin with this word.
    #[inline(never)]
    pub fn expect(&mut self, command: &str, word: &str) -> Result<Reply, Problem> {
        let reply = self.ask(command)?;
        match first_word(&reply.line) == word {
            true => Ok(reply),
            false => Err(refusal(command, &reply.line)),
        }
    }

    /// Gives back a job that this connection has reserved. False if that was its last try, and it is buried now.
    #[inline(never)]
    pub fn release(&mut self, id: u64, pri: u64, delay: u64) -> Result<bool, Problem> {
        let command = format!("release {id} {pri} {delay}");
        let reply = self.ask(&command)?;
        match first_word(&reply.line) {
            "RELEASED" => Ok(true),
            "BURIED" => Ok(false),
            _ => Err(refusal(&command, &reply.line)),
        }
    }

    /// The figures that this command asks for; none if what they are about is not there.
    #[inline(never)]
    pub fn figures(&mut self, command: &str) -> Result<Option<Figures>, Problem> {
        let reply = self.ask(command)?;
        self.figures_of(command, reply)
    }

    /// The same from its reply.
    #[inline(never)]
    pub fn figures_of(&self, command: &str, reply: Reply) -> Result<Option<Figures>, Problem> {
        match first_word(&reply.line) {
            "OK" => Ok(Some(Figures::parse(&String::from_utf8_lossy(&reply.body)))),
            "NOT_FOUND" => Ok(None),
            _ => Err(refusal(command, &reply.line)),
        }
    }

    /// The figures of the server.
    #[inline(never)]
    pub fn stats(&mut self) -> Result<Figures, Problem> {
        self.figures("stats")?.ok_or_else(|| refusal("stats", "NOT_FOUND"))
    }

    /// The names of all tubes, sorted.
    #[inline(never)]
    pub fn tubes(&mut self) -> Result<Vec<String>, Problem> {
        let list = self.expect("list-tubes", "OK")?;
        let mut tubes = super::yaml::list(&String::from_utf8_lossy(&list.body));
        let order = in_order(tubes.len(), &|left, right| tubes[left].cmp(&tubes[right]));
        Ok(order.into_iter().map(|place| std::mem::take(&mut tubes[place])).collect())
    }

    /// Sends these commands some at a time and hands each reply on, with the place of its command.
    pub fn each(&mut self, commands: &[String], each: Each) -> Result<(), Problem> {
        let mut place = 0;
        let mut sent = 0;
        while place < commands.len() {
            // The next ones are there before the server has answered these, so that it need not wait.
            let most = (place + 2 * AHEAD).min(commands.len());
            if sent < most {
                self.send(commands[sent..most].concat().as_bytes())?;
                sent = most;
            }
            for _ in 0..AHEAD.min(sent - place) {
                let reply = self.reply()?;
                each(self, place, reply)?;
                place += 1;
            }
        }
        Ok(())
    }

    /// What ends this connection from another thread.
    pub fn closer(&self) -> Result<Closer, Problem> {
        self.client.closer().map_err(|error| self.failed(&error))
    }
}

/// What is done with each reply: it is told the place of its command.
pub type Each<'a> = &'a mut dyn FnMut(&Link, usize, Reply) -> Result<(), Problem>;

/// The first word of a line.
pub fn first_word(line: &str) -> &str {
    line.split(' ').next().unwrap_or_default()
}

/// What it means that the server answered this to a command.
#[inline(never)]
pub fn refusal(command: &str, line: &str) -> Problem {
    let verb = first_word(command);
    let object = command.split(' ').nth(1).unwrap_or_default();
    Problem::refused(match line {
        "NOT_FOUND" if verb.ends_with("-tube") => format!("there is no tube {object}"),
        "NOT_FOUND" if object.is_empty() => format!("{verb}: nothing found"),
        "NOT_FOUND" => format!("{verb}: job {object} is not there, or not in a state for that"),
        "FORBIDDEN" => format!("{verb}: the server does not allow that"),
        "UNAUTHORIZED" if verb == "auth" => "the server refused the token".to_owned(),
        "UNAUTHORIZED" => "the server must know first who you are (--token-file, or --cert)".to_owned(),
        "UNKNOWN_COMMAND" if verb == "auth" => "the server has no access file, and takes no token".to_owned(),
        "UNKNOWN_COMMAND" => format!("{verb}: the server does not know this command"),
        "BAD_FORMAT" => format!("{verb}: the server answered BAD_FORMAT; it may be too old for this"),
        "JOB_TOO_BIG" => "the job is larger than the server takes (max-job-size)".to_owned(),
        "DRAINING" => "the server takes no more jobs: it is being drained".to_owned(),
        "OUT_OF_MEMORY" => format!("{verb}: the server has no memory left for it"),
        "TUBE_FULL" => "the tube is full".to_owned(),
        other => format!("{verb}: the server answered {}", other.escape_debug()),
    })
}

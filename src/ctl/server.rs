//! The server address of a subcommand, and the client's credentials. A token must not be sent over plain TCP, where it
//! could be intercepted.

use std::path::PathBuf;
use std::time::Duration;

use super::prelude::*;
use crate::client::{Client, ClientError};
#[cfg(feature = "tls")]
use crate::client::{ClientTls, ClientTlsFiles};
use crate::settings::options::{host_and_port, host_port, needs_tls};

const PORT: u16 = 11_300;

const TLS: &str = "beanstalks://";

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

    /// Accepts `HOST`, `HOST:PORT`, `:PORT`, `[ADDR]:PORT`, `unix:PATH`, and URLs of client libraries.
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
        match (port.unwrap_or(PORT), secure) {
            (0, _) => Err(invalid(&forms)),
            (port, None) => Ok(ServerName::Tcp(host, port)),
            (port, Some(rest)) if !rest.contains("://") => Ok(ServerName::Tls(host, port)),
            _ => Err(invalid(&forms)),
        }
    }

    /// The option precedes the environment and the default.
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
            // For a linked container named `beanstalkd`, Docker and Kubernetes set `BEANSTALKD_PORT` to a URL.
            Some(port) if port.contains("://") => port,
            Some(port) => format!("{host}:{port}"),
            None => host,
        };
        ServerName::parse(&text).map_err(|problem| in_variable(problem, "BEANSTALKD_HOST, BEANSTALKD_PORT"))
    }
}

const MAX_TOKEN: usize = 217;

/// For each step of a TLS handshake.
#[cfg(feature = "tls")]
const HANDSHAKE: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub struct Identity {
    token: Option<String>,
    #[cfg(feature = "tls")]
    tls: Option<ClientTls>,
}

impl Identity {
    pub fn of(call: &Call, server: &ServerName) -> Result<Identity> {
        let is_tls = matches!(server, ServerName::Tls(..));
        let has_https = call.value(&TO_URL).is_some_and(|url| url.starts_with("https://"));
        let files = [&AUTHORITY, &CERTIFICATE, &KEY].map(|opt| call.value(opt).map(PathBuf::from));
        let is_useless = |opt: &Flag| !(is_tls || has_https && opt.long == AUTHORITY.long);
        if let Some((opt, _)) =
            CONNECTION_OPTIONS.iter().zip(&files).find(|(opt, file)| file.is_some() && is_useless(opt))
        {
            return Err(Problem::usage(format!(
                "--{} requires a server with TLS: -s beanstalks://HOST:PORT",
                opt.long
            )));
        }
        if files[2].is_some() && files[1].is_none() {
            return Err(Problem::usage("--key requires --cert"));
        }
        let token = call.value(&TOKEN).map(|path| read_token(&path)).transpose()?;
        if token.is_some() && matches!(server, ServerName::Tcp(..)) {
            let advice = "requires TLS (-s beanstalks://HOST:PORT) or a Unix socket";
            return Err(Problem::usage(format!("--{} {advice}", TOKEN.long)));
        }
        Ok(Identity {
            token,
            #[cfg(feature = "tls")]
            tls: is_tls.then(|| load(files)).transpose()?,
        })
    }

    pub fn prove(&self, client: &mut Client) -> Result<(), ClientError> {
        self.token.as_ref().map_or(Ok(()), |token| client.authenticate(token.as_bytes()))
    }

    #[cfg(feature = "tls")]
    pub fn connect(&self, host: &str, port: u16, limit: Option<Duration>) -> std::io::Result<Client> {
        let tls = self.tls.as_ref().ok_or(std::io::ErrorKind::Unsupported)?;
        Client::connect_tls(host, port, tls, limit.unwrap_or(HANDSHAKE))
    }

    /// The parser rejects TLS addresses in a program without TLS.
    #[cfg(not(feature = "tls"))]
    pub fn connect(&self, _: &str, _: u16, _: Option<Duration>) -> std::io::Result<Client> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

#[cfg(feature = "tls")]
fn load([authority, certificate, key]: [Option<PathBuf>; 3]) -> Result<ClientTls> {
    ClientTls::load(&ClientTlsFiles { authority, certificate, key }).map_err(Problem::refused)
}

fn read_token(path: &str) -> Result<String> {
    let text = std::fs::read_to_string(path).map_err(|error| Problem::file(path, &error))?;
    let token = text.lines().next().unwrap_or_default();
    if token.is_empty() || token.len() > MAX_TOKEN {
        return Err(Problem::refused(format!(
            "{path}: invalid token; the first line must have 1 to {MAX_TOKEN} bytes"
        )));
    }
    Ok(token.to_owned())
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

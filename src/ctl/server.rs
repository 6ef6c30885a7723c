//! The choice of the server: the option, otherwise the environment, otherwise the default address.
//!
//! Owns the syntax of a server's name. Must not connect to it.

use std::path::PathBuf;

use super::problem::Problem;
use crate::settings::options::{host_and_port, host_port, needs_tls};

const PORT: u16 = 11_300;

const TLS: &str = "beanstalks://";

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerName {
    /// A host name or address, without brackets, and a port.
    Tcp(String, u16),
    /// Like `Tcp`, but with TLS.
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

    /// Parses `HOST`, `HOST:PORT`, `:PORT`, `[ADDR]:PORT`, `unix:PATH`, or the URLs of client libraries.
    pub fn parse(text: &str) -> Result<ServerName, Problem> {
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

    /// Returns the server in the option's value, or else in the environment, whose variables `variable` returns.
    pub fn find(option: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Result<ServerName, Problem> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let in_variable = |problem: Problem, name: &str| Problem::usage(format!("{name}: {}", problem.text));
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
            // A container manager may have set it to an address.
            Some(port) if port.contains("://") => port,
            Some(port) => format!("{host}:{port}"),
            None => host,
        };
        ServerName::parse(&text).map_err(|problem| in_variable(problem, "BEANSTALKD_HOST, BEANSTALKD_PORT"))
    }
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

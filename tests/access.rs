//! Tests access control: the access file, rights by command and protocol, tokens, and the data shown to each client.
//!
//! Each subject has its own module. Servers run inside the test process, unless a test needs signals or the command
//! line.

mod daemon;

mod access {
    mod commands;
    mod http;
    mod program;
    mod shown;
    mod subcommands;
    mod tokens;

    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;
    use std::time::Duration;

    use beanpole::{Address, Config, Server};

    use super::daemon::{wait_until, Folder, PATIENCE};

    const OPERATOR: &str = "the operator's token";

    /// A server with an access file and a separate Unix socket for each protocol.
    struct Guarded {
        server: Server,
        folder: Folder,
    }

    fn digest(token: &str) -> String {
        hmac_sha256::Hash::hash(token.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn user() -> String {
        format!("user:{}", nix::unistd::getuid())
    }

    impl Guarded {
        /// Starts a server whose access file contains a line for the operator, followed by `lines`.
        fn start(lines: &str) -> Guarded {
            Guarded::start_by(lines, |config| Server::with(config).expect("a server"))
        }

        /// Like `start`, but with a manual clock, so that delayed jobs do not become ready.
        fn start_frozen(lines: &str) -> Guarded {
            Guarded::start_by(lines, |config| Server::with_manual_clock(config).expect("a server").0)
        }

        fn start_by(lines: &str, start: impl FnOnce(Config) -> Server) -> Guarded {
            let folder = Folder::new();
            let unix = |name| vec![Address::Unix(folder.file(name))];
            let mut config = Config::embedded().with(|config| {
                config.listen = unix("beanstalk");
                config.gearman = unix("gearman");
                config.workq = unix("workq");
                config.http = unix("http");
                config.access = Some(folder.file("access"));
                config.handle_prefix = Some("h".to_owned());
            });
            config.protocols.http.admin = true;
            write_file(&folder, lines);
            Guarded { server: start(config), folder }
        }

        fn change(&self, lines: &str) {
            write_file(&self.folder, lines);
            self.server.reload().expect("a valid access file");
        }

        fn file(&self) -> PathBuf {
            self.folder.file("access")
        }

        fn connect(&self, protocol: &str) -> Talk {
            Talk::new(UnixStream::connect(self.folder.file(protocol)).expect("a connection"))
        }

        fn operator(&self) -> Talk {
            let mut operator = self.connect("beanstalk");
            assert_eq!(operator.ask(&format!("auth {OPERATOR}")), "AUTHENTICATED");
            operator
        }
    }

    fn write_file(folder: &Folder, lines: &str) {
        let text = format!("operator token:sha256:{} all\n{lines}\n", digest(OPERATOR));
        std::fs::write(folder.file("access"), text).expect("a file");
    }

    struct Talk<S = UnixStream>(BufReader<S>);

    impl Talk {
        fn new(stream: UnixStream) -> Talk {
            stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
            Talk::over(stream)
        }

        fn is_silent_for(&self, time: Duration) -> bool {
            self.0.get_ref().set_read_timeout(Some(time)).expect("a socket option");
            let silent = self.0.buffer().is_empty() && self.0.get_ref().peek_one().is_none();
            self.0.get_ref().set_read_timeout(Some(PATIENCE)).expect("a socket option");
            silent
        }
    }

    impl<S: Read + Write> Talk<S> {
        fn over(stream: S) -> Talk<S> {
            Talk(BufReader::new(stream))
        }

        fn send(&mut self, bytes: &[u8]) {
            self.0.get_mut().write_all(bytes).expect("an open connection");
        }

        /// Reads a line. Returns the line without its line ending, or an empty string at the end of the stream.
        fn line(&mut self) -> String {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("a line");
            line.trim_end().to_owned()
        }

        fn take(&mut self, count: usize) -> Vec<u8> {
            let mut bytes = vec![0; count];
            self.0.read_exact(&mut bytes).expect("more bytes");
            bytes
        }

        fn ask(&mut self, line: &str) -> String {
            self.send(format!("{line}\r\n").as_bytes());
            self.line()
        }

        /// Sends `line`. Returns the body of the reply `OK <bytes>`, including the line ending after the body.
        fn body(&mut self, line: &str) -> String {
            let answer = self.ask(line);
            let size = answer.strip_prefix("OK ").unwrap_or_else(|| panic!("{line}: {answer}"));
            let body = self.take(size.parse::<usize>().expect("a length") + 2);
            String::from_utf8(body).expect("valid UTF-8")
        }

        /// Waits until the server, which closes connections asynchronously, has closed all other connections.
        fn wait_until_alone(&mut self) {
            wait_until("all others are closed", || self.body("stats").contains("\ncurrent-connections: 1\n"));
        }

        fn rest(mut self) -> String {
            let mut rest = String::new();
            self.0.read_to_string(&mut rest).expect("the end of the stream");
            rest
        }
    }

    trait PeekOne {
        fn peek_one(&self) -> Option<usize>;
    }

    impl PeekOne for UnixStream {
        /// Waits for input. Returns 1 for a byte, 0 at the end of the stream, or `None` if the read timeout expires.
        fn peek_one(&self) -> Option<usize> {
            let mut byte = [0];
            nix::sys::socket::recv(
                std::os::fd::AsRawFd::as_raw_fd(self),
                &mut byte,
                nix::sys::socket::MsgFlags::MSG_PEEK,
            )
            .ok()
        }
    }
}

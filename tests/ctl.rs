//! Tests the subcommands of the real program against a real beanpole and, if installed, beanstalkd.
//!
//! The environment variable `BEANSTALKD` contains the path of beanstalkd. If it is not set, the tests try the paths of
//! Debian and of `make compat`. If beanstalkd does not exist, the tests print a message and skip beanstalkd.

mod daemon;

mod ctl {
    pub mod bulk;
    pub mod changes;
    pub mod errors;
    pub mod import;
    pub mod names;
    pub mod push;
    pub mod queries;
    pub mod related;
    pub mod table;
    pub mod top;
    pub mod work;
}

mod support {
    //! Starts servers and runs the program as a shell would.

    use std::io::{BufRead, BufReader, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::daemon::{command, run_command, unassigned, Daemon, Ended};

    /// Usual paths of the beanstalkd executable.
    const PLACES: [&str; 2] = ["/usr/bin/beanstalkd", "target/compat/beanstalkd/usr/bin/beanstalkd"];

    pub struct Server {
        pub daemon: Daemon,
    }

    impl Server {
        pub fn beanpole(arguments: &[&str]) -> Server {
            Server { daemon: Daemon::start(arguments) }
        }

        /// Starts beanstalkd. Prints a message and returns `None` if beanstalkd is not installed.
        pub fn beanstalkd(arguments: &[&str]) -> Option<Server> {
            let configured = std::env::var("BEANSTALKD").ok();
            let found = PLACES.iter().map(|path| (*path).to_owned()).find(|path| Path::new(path).exists());
            let Some(path) = configured.or(found) else {
                println!("skipped: beanstalkd is not installed; make compat installs it");
                return None;
            };
            let address = unassigned("127.0.0.1");
            let mut command = Command::new(path);
            command.args(["-l", "127.0.0.1", "-p", &address.port().to_string()]).args(arguments).stdin(Stdio::null());
            Some(Server { daemon: Daemon::spawn_at(command, address) })
        }

        pub fn address(&self) -> SocketAddr {
            self.daemon.address()
        }

        pub fn command(&self, arguments: &[&str]) -> Command {
            ctl(&self.address().to_string(), arguments)
        }

        pub fn run(&self, arguments: &[&str]) -> Ended {
            run_command(self.command(arguments))
        }

        pub fn feed(&self, arguments: &[&str], input: &[u8]) -> Ended {
            feed(self.command(arguments), input)
        }

        pub fn ok(&self, arguments: &[&str]) -> String {
            let ended = self.run(arguments);
            assert_eq!(ended.code, 0, "{arguments:?}: {}{}", ended.out, ended.err);
            ended.out
        }

        pub fn figure(&self, command: &str, key: &str) -> String {
            self.daemon.client().figure(command, key).unwrap_or_else(|error| panic!("{command} {key}: {error}"))
        }

        pub fn count(&self, tube: &str, state: &str) -> u64 {
            let figure = self.daemon.client().figure(&format!("stats-tube {tube}"), &format!("current-jobs-{state}"));
            // If the tube has no jobs, the server may have deleted it.
            figure.map_or(0, |text| text.parse().expect("a number"))
        }
    }

    /// Returns a command that runs a subcommand on `server`, regardless of the tests' environment variables.
    pub fn ctl(server: &str, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        for name in ["BEANSTALKD_URL", "BEANSTALKD_HOST", "BEANSTALKD_PORT"] {
            command.env_remove(name);
        }
        command.env("BEANPOLE_SERVER", server);
        command
    }

    pub fn feed(mut command: Command, input: &[u8]) -> Ended {
        // Child processes must not inherit the write end of the pipe, or they would never see the end of their input.
        let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe");
        let mut writer = std::fs::File::from(writer);
        command.stdin(reader);
        let input = input.to_vec();
        let writing = std::thread::spawn(move || drop(writer.write_all(&input)));
        let ended = run_command(command);
        writing.join().expect("a writer");
        ended
    }

    pub fn with_both(mut each: impl FnMut(&Server)) {
        each(&Server::beanpole(&[]));
        Server::beanstalkd(&[]).iter().for_each(each);
    }

    /// Starts a fake server, which serves one connection at a time, and returns its address. `reply` returns the reply
    /// to each line, or `None` for no reply.
    pub fn pretender(reply: impl Fn(&str) -> Option<&'static str> + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut stream = BufReader::new(stream);
                let mut line = String::new();
                while matches!(stream.read_line(&mut line), Ok(1..)) {
                    if let Some(reply) = reply(line.trim_end()) {
                        if stream.get_mut().write_all(reply.as_bytes()).is_err() {
                            break;
                        }
                        // An incomplete reply simulates a broken connection.
                        if !reply.ends_with("\r\n") {
                            break;
                        }
                    }
                    line.clear();
                }
            }
        });
        address.to_string()
    }
}

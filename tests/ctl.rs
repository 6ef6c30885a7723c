//! The subcommands of the command line, as a user meets them: the real program against the real server, and against
//! beanstalkd where it is there.
//!
//! Owns the two servers that everything is tried on. `BEANSTALKD` names the other one, as `make compat` does; else
//! Debian's place and that of `make compat` are looked at. Without it, its half is left out, and that is said.

mod daemon;

mod ctl {
    pub mod bulk;
    pub mod errors;
    pub mod looks;
    pub mod names;
    pub mod related;
    pub mod steers;
    pub mod table;
    pub mod top;
    pub mod work;
}

mod support {
    //! Servers to try everything on, and the program as a shell would call it.

    use std::io::{BufRead, BufReader, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::daemon::{command, run_command, Daemon, Ended};

    /// Where beanstalkd may be.
    const PLACES: [&str; 2] = ["/usr/bin/beanstalkd", "target/compat/beanstalkd/usr/bin/beanstalkd"];

    /// A server that runs.
    pub struct Server {
        pub daemon: Daemon,
    }

    impl Server {
        pub fn beanpole(arguments: &[&str]) -> Server {
            Server { daemon: Daemon::start(arguments) }
        }

        /// None, said so, if it is not on this machine.
        pub fn beanstalkd(arguments: &[&str]) -> Option<Server> {
            let told = std::env::var("BEANSTALKD").ok();
            let found = PLACES.iter().map(|path| (*path).to_owned()).find(|path| Path::new(path).exists());
            let Some(path) = told.or(found) else {
                println!("left out: there is no beanstalkd here; make compat brings it");
                return None;
            };
            let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
            let mut command = Command::new(path);
            command.args(["-l", "127.0.0.1", "-p", &address.port().to_string()]).args(arguments).stdin(Stdio::null());
            Some(Server { daemon: Daemon::spawn_at(command, address) })
        }

        pub fn address(&self) -> SocketAddr {
            self.daemon.address()
        }

        /// A command line for it.
        pub fn command(&self, arguments: &[&str]) -> Command {
            ctl(&self.address().to_string(), arguments)
        }

        /// Runs a subcommand, which is to end by itself.
        pub fn run(&self, arguments: &[&str]) -> Ended {
            run_command(self.command(arguments))
        }

        /// The same with these bytes on its stdin.
        pub fn feed(&self, arguments: &[&str], input: &[u8]) -> Ended {
            feed(self.command(arguments), input)
        }

        /// Runs a subcommand that must do what it was told; what it printed.
        pub fn ok(&self, arguments: &[&str]) -> String {
            let ended = self.run(arguments);
            assert_eq!(ended.code, 0, "{arguments:?}: {}{}", ended.out, ended.err);
            ended.out
        }

        /// A figure of the server, a tube or a job.
        pub fn figure(&self, command: &str, key: &str) -> String {
            self.daemon.client().figure(command, key).unwrap_or_else(|error| panic!("{command} {key}: {error}"))
        }

        pub fn count(&self, tube: &str, state: &str) -> u64 {
            let figure = self.daemon.client().figure(&format!("stats-tube {tube}"), &format!("current-jobs-{state}"));
            // Without a job there may be no tube.
            figure.map_or(0, |text| text.parse().expect("a number"))
        }
    }

    /// The program with a subcommand, and nothing of this machine's settings.
    pub fn ctl(server: &str, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        for name in ["BEANSTALKD_URL", "BEANSTALKD_HOST", "BEANSTALKD_PORT"] {
            command.env_remove(name);
        }
        command.env("BEANPOLE_SERVER", server);
        command
    }

    /// Runs a command with these bytes on its stdin.
    pub fn feed(mut command: Command, input: &[u8]) -> Ended {
        // The program must not hold the end that is written to.
        let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe");
        let mut writer = std::fs::File::from(writer);
        command.stdin(reader);
        let input = input.to_vec();
        let writing = std::thread::spawn(move || drop(writer.write_all(&input)));
        let ended = run_command(command);
        writing.join().expect("a writer");
        ended
    }

    /// Does the same with each server that there is.
    pub fn with_both(mut each: impl FnMut(&Server)) {
        each(&Server::beanpole(&[]));
        Server::beanstalkd(&[]).iter().for_each(each);
    }

    /// A server that says to each line what it is told to say, and nothing if that is nothing; for one connection
    /// after the other.
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
                        // What ends in the middle, ends with the connection.
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

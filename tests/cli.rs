//! Tests the real program's command line, addresses, signals, service managers and log.

mod daemon;

mod cli {
    mod binlog;
    mod closed;
    mod gearmand;
    mod listening;
    mod log;
    mod memory;
    mod options;
    mod planted;
    mod signals;
    mod starter;
    mod stopping;
    mod systemd;
    mod unix;
    mod user;

    use std::io::Read;
    use std::net::{SocketAddr, TcpListener};
    use std::os::unix::fs::FileTypeExt;
    use std::path::Path;
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::daemon;
    use daemon::Ended;

    /// beanstalkd's exit code if an address or an inherited socket cannot be used.
    const NO_ADDRESS: i32 = 111;

    impl Ended {
        /// Checks the exit code, and that the only output is one line on stderr, which contains all of `words`.
        fn failed(&self, code: i32, words: &[&str]) {
            assert_eq!(self.code, code, "{self:?}");
            assert_eq!(self.out, "", "{self:?}");
            assert!(self.err.ends_with('\n') && self.err.lines().count() == 1, "not one line: {self:?}");
            for word in words {
                assert!(self.err.contains(word), "no \"{word}\": {self:?}");
            }
        }
    }

    /// Returns a loopback address that no other test uses.
    fn own_host() -> String {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let [_, _, high, low] = std::process::id().to_be_bytes();
        format!("127.{}.{high}.{low}", 100 + NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns a listener and its address. The address is in use until the listener is dropped.
    fn taken() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound listener");
        (listener, address)
    }

    fn is_socket(path: &Path) -> bool {
        std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
    }

    fn is_root() -> bool {
        let root = nix::unistd::geteuid().is_root();
        if !root {
            println!("skipped: only root can do this");
        }
        root
    }

    fn read_all(stream: &mut impl Read) -> Vec<u8> {
        let mut bytes = Vec::new();
        match stream.read_to_end(&mut bytes) {
            Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => panic!("reading: {error}"),
            _ => bytes,
        }
    }
}

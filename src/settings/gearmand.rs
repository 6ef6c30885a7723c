//! The options of gearmand on the command line and in the configuration file. They apply if the program is started
//! under the name gearmand. beanpole's long options are also valid. Must not act on the options.

use std::net::ToSocketAddrs;
use std::path::PathBuf;

use log::LevelFilter;

use crate::settings::config::{connection_limit, Address, LogTarget, GEARMAN_PORT};
use crate::settings::options::{self, number, Settings};
use crate::settings::words::{self, flag, Flag, Given};
use crate::shared::system;

pub const BAD_USAGE: u8 = 1;
pub const CONFIG_FILE: &str = "/etc/gearmand.conf";

#[derive(Debug)]
pub enum GearmandAction {
    Run(Box<Gearmand>),
    Checked,
    Version,
    Help,
}

#[derive(Debug)]
pub struct Gearmand {
    pub settings: Settings,
    pub log: LogTarget,
    pub level: LevelFilter,
    pub pid_file: Option<PathBuf>,
    pub daemon: bool,
    port: u16,
    hosts: Vec<String>,
    log_given: bool,
    ignored: Vec<&'static str>,
}

type Apply = fn(&mut Gearmand, &str) -> Result<(), String>;

#[rustfmt::skip]
pub const OPTIONS: [Flag<Apply>; 33] = [
    flag("b,backlog", "ARG", "no effect: the system's maximum is used", |it, _| it.ignore("--backlog")),
    flag("d,daemon", "", "run in the background", |it, _| { it.daemon = true; Ok(()) }),
    flag("exceptions", "", "send failure reasons to all clients", |it, _| it.settings.set("exceptions", "")),
    flag("f,file-descriptors", "ARG", "limit on open files; up to 64 are reserved", |it, text| number::<usize>(text, 0, u64::MAX).map(|n| it.settings.config.max_connections = connection_limit(n.min(system::file_limit())))),
    flag("h,help", "", "print this help and exit", |_, _| Ok(())),
    flag("j,job-retries", "ARG", "maximum tries of a job; 0 or -1: no limit (default 0)", |it, text| it.settings.set("job-retries", if text == "-1" { "0" } else { text })),
    flag("job-handle-prefix", "ARG", "prefix of job handles", |it, text| it.settings.set("job-handle-prefix", text)),
    flag("hashtable-buckets", "ARG", "no effect: tables grow automatically", |it, _| it.ignore("--hashtable-buckets")),
    flag("keepalive", "", "no effect: always enabled", |it, _| it.ignore("--keepalive")),
    flag("keepalive-idle", "ARG", "seconds of silence before a peer is probed (default 60)", |it, text| it.keepalive("keepalive-idle", text)),
    flag("keepalive-interval", "ARG", "seconds between unanswered probes (default 10)", |it, text| it.keepalive("keepalive-interval", text)),
    flag("keepalive-count", "ARG", "unanswered probes before a disconnect (default 3)", |it, text| it.keepalive("keepalive-count", text)),
    flag("l,log-file", "ARG", "log to this file, stderr or none; SIGHUP reopens it", log_file),
    flag("L,listen", "ARG", "listen on this address (default 127.0.0.1)", |it, text| { it.hosts.push(text.to_owned()); Ok(()) }),
    flag("p,port", "ARG", "listen on this port (default 4730)", |it, text| number(text, 0, 65_535).map(|n| it.port = n)),
    flag("P,pid-file", "ARG", "write the process ID to this file", |it, text| { it.pid_file = Some(PathBuf::from(text)); Ok(()) }),
    flag("r,protocol", "ARG", "rejected: only Gearman is supported", |_, text| Err(format!("protocol {text} is not supported, only Gearman"))),
    flag("http-port", "ARG", "no effect", |it, _| it.ignore("--http-port")),
    flag("R,round-robin", "", "no effect: functions always take turns", |_, _| Ok(())),
    flag("q,queue-type", "ARG", "must be builtin; to store jobs, use --binlog=DIR", |_, text| if text == "builtin" { Ok(()) } else { Err(format!("queue type {text} is not supported; to store background jobs, use --binlog=DIR")) }),
    flag("config-file", "ARG", "configuration file (default /etc/gearmand.conf, if it exists)", |_, _| Ok(())),
    flag("syslog", "", "log to syslog", |it, _| { (it.log, it.log_given) = (LogTarget::Syslog, true); Ok(()) }),
    flag("coredump", "", "no effect: the system controls core dumps", |it, _| it.ignore("--coredump")),
    flag("t,threads", "ARG", "number of threads; 0: half the CPUs, 1 to 4", |it, text| if text == "0" { Ok(()) } else { it.settings.set("threads", text) }),
    flag("u,user", "ARG", "run as this user after binding the addresses", |it, text| it.settings.set("user", text)),
    flag("v,verbose", "ARG", "log level, FATAL to DEBUG (default NOTICE); -v raises it", verbose),
    flag("V,version", "", "print the version and exit", |_, _| Ok(())),
    flag("w,worker-wakeup", "ARG", "sleeping workers to wake for each job; 0: all (default 1)", |it, text| it.settings.set("worker-wakeup", text)),
    flag("check-args", "", "check the options and exit", |_, _| Ok(())),
    flag("ssl", "", "rejected: use --gearman=tls:ADDR (requires a build with TLS)", |_, _| Err(NO_TLS.to_owned())),
    flag("ssl-ca-file", "ARG", "rejected", |_, _| Err(NO_TLS.to_owned())),
    flag("ssl-certificate", "ARG", "rejected", |_, _| Err(NO_TLS.to_owned())),
    flag("ssl-key", "ARG", "rejected", |_, _| Err(NO_TLS.to_owned())),
];

/// The error for TLS options. Ignoring these options would leave the connections unencrypted.
const NO_TLS: &str = "not supported; for TLS, use --gearman=tls:ADDR with --tls-cert and --tls-key";

pub fn is_gearmand(name: &std::ffi::OsStr) -> bool {
    std::path::Path::new(name).file_name().is_some_and(|name| name == "gearmand")
}

/// `port` is the value of the environment variable `GEARMAND_PORT`.
pub fn parse(arguments: &[String], port: Option<&str>) -> Result<GearmandAction, String> {
    let given = read(arguments.to_vec())?;
    let has = |long: &str| given.iter().any(|it| it.long == long);
    if has("help") || has("version") {
        return Ok(if has("help") { GearmandAction::Help } else { GearmandAction::Version });
    }
    let mut gearmand = Gearmand::new();
    if let Some(port) = port {
        gearmand.port = number(port, 0, 65_535).map_err(|problem| format!("GEARMAND_PORT: {problem}"))?;
    }
    let named = given.iter().rfind(|it| it.long == "config-file").map(|it| it.value.as_str());
    for option in read_file(named)? {
        gearmand.apply(&option).map_err(|problem| format!("{}: {problem}", named.unwrap_or(CONFIG_FILE)))?;
    }
    // Addresses on the command line replace the addresses in the file.
    if has("listen") {
        gearmand.hosts.clear();
    }
    given.iter().try_for_each(|option| gearmand.apply(option))?;
    gearmand.finish()?;
    Ok(if has("check-args") { GearmandAction::Checked } else { GearmandAction::Run(Box::new(gearmand)) })
}

impl Gearmand {
    fn new() -> Gearmand {
        let mut settings = Settings::default();
        settings.config.listen.clear();
        let (log, level, port) = (LogTarget::Stderr, LevelFilter::Info, GEARMAN_PORT);
        let (pid_file, daemon, hosts, log_given, ignored) = Default::default();
        Gearmand { settings, log, level, pid_file, daemon, port, hosts, log_given, ignored }
    }

    fn apply(&mut self, given: &Given) -> Result<(), String> {
        match OPTIONS.iter().find(|row| row.long == given.long) {
            Some(row) => (row.apply)(self, &given.value).map_err(|problem| format!("{}: {problem}", given.shown)),
            None => self.settings.set(given.long, &given.value),
        }
    }

    fn ignore(&mut self, long: &'static str) -> Result<(), String> {
        if !self.ignored.contains(&long) {
            self.ignored.push(long);
        }
        Ok(())
    }

    /// -1 means the default of beanpole. In gearmand, it means the default of the system, which detects crashes late.
    fn keepalive(&mut self, long: &str, text: &str) -> Result<(), String> {
        match text {
            "-1" => Ok(()),
            text => self.settings.set(long, text),
        }
    }

    fn finish(&mut self) -> Result<(), String> {
        if !self.log_given && self.daemon {
            self.log = LogTarget::File(PathBuf::from("/var/log/gearmand.log"));
        }
        let Gearmand { settings, hosts, port, ignored, .. } = self;
        settings.config.ends_when_drained = true;
        if hosts.is_empty() {
            settings.config.gearman.insert(0, Address::Tcp(None, Some(*port)));
            let notice = "listening on 127.0.0.1 only, unlike gearmand; use -L 0.0.0.0 to accept remote clients";
            settings.notices.push(notice.to_owned());
        }
        for host in hosts.iter().rev() {
            settings.config.gearman.splice(0..0, addresses(host, *port)?);
        }
        if !ignored.is_empty() {
            settings.notices.push(format!("options without effect: {}", ignored.join(", ")));
        }
        Ok(())
    }
}

/// Returns the addresses of the host that belong to this machine or, if there are none, all addresses of the host. For
/// example, `localhost` usually has an IPv4 and an IPv6 address.
fn addresses(host: &str, port: u16) -> Result<Vec<Address>, String> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let found = (bare, port).to_socket_addrs().map_err(|error| format!("cannot resolve -L {host}: {error}"))?;
    let mut all: Vec<_> = found.map(|address| address.ip()).collect();
    all.dedup();
    let is_local = |ip: &std::net::IpAddr| match std::net::UdpSocket::bind((*ip, 0)) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    };
    if all.iter().any(is_local) {
        all.retain(is_local);
    }
    Ok(all.into_iter().map(|ip| Address::Tcp(Some(ip.to_string()), Some(port))).collect())
}

fn log_file(it: &mut Gearmand, text: &str) -> Result<(), String> {
    it.log_given = true;
    it.log = match text {
        "stderr" => LogTarget::Stderr,
        "none" => LogTarget::Nowhere,
        path => LogTarget::File(PathBuf::from(path)),
    };
    Ok(())
}

/// An empty string stands for `-v` without a level, which increases the level.
fn verbose(it: &mut Gearmand, text: &str) -> Result<(), String> {
    let wrong =
        || format!("invalid level: {text}; must be FATAL, ALERT, CRITICAL, ERROR, WARNING, NOTICE, INFO or DEBUG");
    it.level = match text {
        "" if it.level < LevelFilter::Debug => LevelFilter::Debug,
        "" => LevelFilter::Trace,
        name => level(name).ok_or_else(wrong)?,
    };
    Ok(())
}

pub fn usage() -> String {
    let mut text = String::from("Usage: gearmand [OPTIONS]\n\nThe beanpole server with the options of gearmand.\n\n");
    OPTIONS.iter().for_each(|opt| text += &opt.usage(33));
    text + "\nbeanpole's other options have long names. See beanpole-gearman(7) and beanpole(8).\n"
}

pub fn read(words: Vec<String>) -> Result<Vec<Given>, String> {
    let (given, free) = words::read(words, &|name, is_letter, next| {
        let mut flag = Flag::find(&OPTIONS, name, is_letter);
        // In old versions of gearmand, `-v` took no value, so a word that is not a level is a separate argument.
        if is_letter && name == "v" && level(next).is_none() {
            flag.iter_mut().for_each(|flag| flag.value = None);
        }
        flag.or_else(|| Flag::find(&options::OPTIONS, name, false))
    })?;
    free.first().map_or(Ok(given), |stray| Err(format!("unknown argument: {stray}; options begin with a hyphen")))
}

pub fn level(word: &str) -> Option<LevelFilter> {
    match word.to_ascii_uppercase().as_str() {
        "FATAL" | "ALERT" | "CRITICAL" | "ERROR" => Some(LevelFilter::Error),
        "WARNING" => Some(LevelFilter::Warn),
        "NOTICE" | "INFO" => Some(LevelFilter::Info),
        "DEBUG" => Some(LevelFilter::Debug),
        _ => None,
    }
}

pub fn read_file(named: Option<&str>) -> Result<Vec<Given>, String> {
    let path = named.unwrap_or(CONFIG_FILE);
    match std::fs::read_to_string(path) {
        Ok(text) => read(words_of(&text)).map_err(|problem| format!("{path}: {problem}")),
        Err(_) if named.is_none() => Ok(Vec::new()),
        Err(error) => Err(format!("cannot read --config-file {path}: {error}")),
    }
}

/// A line that begins with a hyphen has the syntax of a command line. Others contain one option. `#` begins a comment.
fn words_of(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.starts_with('-') {
            words.extend(line.split_whitespace().map(str::to_owned));
        } else if let Some((name, value)) = line.split_once(['=', ' ', '\t']) {
            words.push(format!("--{}={}", name.trim(), value.trim_start_matches(['=', ' ', '\t']).trim_matches('"')));
        } else if !line.is_empty() {
            words.push(format!("--{line}"));
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::config::Keepalive;

    fn parsed(line: &str) -> Result<GearmandAction, String> {
        let line = format!("--config-file /dev/null {line}");
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>(), None)
    }

    fn gearmand(line: &str) -> Gearmand {
        match parsed(line) {
            Ok(GearmandAction::Run(gearmand)) => *gearmand,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn problem(line: &str) -> String {
        parsed(line).expect_err(line)
    }

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp(Some(host.to_owned()), Some(port))
    }

    #[test]
    fn without_options_it_listens_on_loopback_with_a_notice() {
        let plain = gearmand("");
        assert!(plain.settings.config.listen.is_empty() && plain.settings.config.workq.is_empty());
        assert_eq!(plain.settings.config.gearman, [Address::Tcp(None, Some(4730))]);
        assert!(plain.settings.notices[0].contains("127.0.0.1 only"), "{:?}", plain.settings.notices);
        assert_eq!((plain.log, plain.level, plain.daemon), (LogTarget::Stderr, LevelFilter::Info, false));
        assert_eq!(gearmand("-d").log, LogTarget::File(PathBuf::from("/var/log/gearmand.log")));
    }

    #[test]
    fn letters_and_long_names_mean_the_same() {
        for line in [
            "-dR -P /p -l /l -p 4731 -t 3 -f 1000 -j3 -u me -w 0 -L 127.0.0.2",
            "--daemon --round-robin --pid-file=/p --log-file=/l --port=4731 --threads 3 --file-descriptors=1000 \
             --job-retries=3 --user=me --worker-wakeup=0 --listen=127.0.0.2",
        ] {
            let it = gearmand(line);
            let config = &it.settings.config;
            assert!(it.daemon && it.settings.notices.is_empty(), "{line}");
            assert_eq!((it.pid_file, it.log), (Some("/p".into()), LogTarget::File("/l".into())));
            assert_eq!(config.gearman, [tcp("127.0.0.2", 4731)]);
            assert_eq!((config.threads, config.job_retries, config.worker_wakeup), (3, Some(3), 0));
            assert_eq!((config.user.as_deref(), config.max_connections), (Some("me"), 936));
        }
    }

    /// In gearmand 1.1, 0 means no limit. In gearmand 2.0, -1 means no limit.
    #[test]
    fn tries_have_no_limit_with_0_and_with_minus_1() {
        for (line, tries) in [("-j -1", None), ("--job-retries=-1", None), ("-j 0", None), ("-j 2", Some(2))] {
            assert_eq!(gearmand(line).settings.config.job_retries, tries, "{line}");
        }
        assert!(problem("-j -2").contains("invalid number"));
    }

    #[test]
    fn keepalive_has_beanpole_s_defaults() {
        let numbers = |line| gearmand(line).settings.config.keepalive;
        let other = numbers("--keepalive --keepalive-idle=20 --keepalive-interval=5 --keepalive-count=2");
        assert_eq!(other, Keepalive { idle: 20, interval: 5, count: 2 });
        assert_eq!(numbers("--keepalive --keepalive-idle=-1"), Keepalive { idle: 60, interval: 10, count: 3 });
    }

    #[test]
    fn options_without_effect_cause_one_notice() {
        let it = gearmand("-L 127.0.0.1 -b 64 --backlog=32 --hashtable-buckets=7 --coredump --keepalive -q builtin");
        let expected = "options without effect: --backlog, --hashtable-buckets, --coredump, --keepalive";
        assert_eq!(it.settings.notices, [expected]);
    }

    #[test]
    fn unsupported_options_are_errors_of_one_line() {
        for (line, part) in [
            ("-q libsqlite3", "libsqlite3 is not supported"),
            ("--queue-type=MySQL", "use --binlog=DIR"),
            ("-r http", "http is not supported"),
            ("--ssl", "use --gearman=tls:ADDR"),
            ("--verbose=LOUD", "invalid level: LOUD"),
            ("--bogus", "unknown flag: --bogus"),
            ("--libsqlite3-db=x", "unknown flag: --libsqlite3-db"),
            ("-p 65536", "-p: invalid number"),
            ("-x", "unknown flag: -x"),
            ("stray", "unknown argument: stray"),
            ("-P", "flag requires an argument: -P"),
            ("--daemon=yes", "flag takes no argument: --daemon"),
        ] {
            let problem = problem(line);
            assert!(problem.contains(part) && !problem.contains('\n'), "{line}: {problem}");
        }
    }

    #[test]
    fn beanpole_s_other_options_are_accepted() {
        let config = gearmand("--binlog=/b --sync-interval=0 --timeout-unit=s --workq --lease-limit 9").settings.config;
        assert_eq!((config.log_folder, config.lease_limit), (Some("/b".into()), 9));
        assert!(config.protocols.timeouts_in_seconds && config.workq.len() == 1);
    }

    #[test]
    fn levels_are_names_or_letters() {
        for (line, level) in [
            ("--verbose=ERROR", LevelFilter::Error),
            ("--verbose warning", LevelFilter::Warn),
            ("-v DEBUG", LevelFilter::Debug),
            ("-vINFO", LevelFilter::Info),
            ("-v", LevelFilter::Debug),
            ("-vv", LevelFilter::Trace),
            ("-v -v -v", LevelFilter::Trace),
            ("-v -d", LevelFilter::Debug),
        ] {
            assert_eq!(gearmand(line).level, level, "{line}");
        }
    }

    #[test]
    fn help_and_version_and_a_check_run_nothing() {
        assert!(matches!(parsed("-h"), Ok(GearmandAction::Help)));
        assert!(matches!(parsed("-V"), Ok(GearmandAction::Version)));
        assert!(matches!(parsed("--check-args -p 3"), Ok(GearmandAction::Checked)));
        assert!(usage().lines().all(|line| line.len() <= 100));
        assert!(is_gearmand("/usr/sbin/gearmand".as_ref()) && !is_gearmand("/usr/bin/beanpole".as_ref()));
    }

    #[test]
    fn the_environment_sets_only_the_default_port() {
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            match parse(&words, Some("4799")) {
                Ok(GearmandAction::Run(gearmand)) => gearmand.settings.config.gearman.clone(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(of(&["--config-file=/dev/null"]), [Address::Tcp(None, Some(4799))]);
        assert_eq!(of(&["--config-file=/dev/null", "-p", "1"]), [Address::Tcp(None, Some(1))]);
    }

    #[test]
    fn a_file_has_lines_of_both_forms() {
        let text = "# comment\nport=4731\nlisten = 10.0.0.1 # where\ndaemon\n--log-file=/l -R\nuser me\n\n-j 3\n";
        let words = words_of(text);
        let expected = ["--port=4731", "--listen=10.0.0.1", "--daemon", "--log-file=/l", "-R", "--user=me", "-j", "3"];
        assert_eq!(words, expected);
        let given = read(words).expect("options");
        let given: Vec<_> = given.iter().map(|it| (it.long, it.value.as_str())).collect();
        let expected = [
            ("port", "4731"),
            ("listen", "10.0.0.1"),
            ("daemon", ""),
            ("log-file", "/l"),
            ("round-robin", ""),
            ("user", "me"),
            ("job-retries", "3"),
        ];
        assert_eq!(given, expected);
    }

    #[test]
    fn a_named_file_must_exist() {
        assert!(read_file(Some("/nowhere/at/all")).is_err());
        assert!(read_file(Some("/dev/null")).expect("no options").is_empty());
    }
}

//! The table of command-line options, used by the parser, the usage and the man page's test.
//!
//! Owns names, meanings and error messages. beanstalkd's flags keep their meaning and can be bundled; each has a long
//! form. Must not act on the options.

use std::path::PathBuf;

use crate::binlog::SyncMode;
use crate::cluster::Location;
use crate::settings::config::{
    most_connections, Address, Config, Extensions, TlsFiles, LEAST_MEMORY, MAX_HANDLE_PREFIX, MAX_JOB_SIZE_CEILING,
};
use crate::settings::words::{self, flag, Flag};
use crate::shared::machine;

/// The exit code for bad usage, as in beanstalkd.
pub const BAD_USAGE: u8 = 5;

#[derive(Debug)]
pub enum Action {
    Run(Box<Settings>),
    /// Print the version and exit.
    Version,
    /// Print the usage and exit.
    Help,
}

#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub config: Config,
    /// The verbosity of the log: 0 to 2.
    pub verbosity: u32,
    /// The log consists of JSON objects.
    pub json_log: bool,
    /// Notices for the user about the given options.
    pub notices: Vec<String>,
    /// The options for the parent process.
    pub starter: Starter,
    /// The given options for addresses and ports, which inherited sockets override.
    pub listen_options: Vec<String>,
    listen_given: bool,
    /// Settings of a server that is one of several.
    pub cluster: Option<Cluster>,
}

#[derive(Clone, Debug)]
pub struct Cluster {
    pub location: Location,
    /// The name of this server.
    pub node: String,
    /// The address for clients and relays, if it is not the first TCP address to listen on.
    pub advertise: Option<String>,
    /// While it is a standby, it relays clients to the active server.
    pub relay: bool,
}

impl Cluster {
    fn new(location: Location) -> Cluster {
        let node = nix::sys::utsname::uname()
            .map_or_else(|_| "node".into(), |name| name.nodename().to_string_lossy().into_owned());
        Cluster { location, node, advertise: None, relay: false }
    }
}

/// The connections between the program and its parent process: a test suite, a Makefile, a supervisor.
#[derive(Clone, Debug, Default)]
pub struct Starter {
    /// A file that contains the TCP port, and exists while the server listens.
    pub port_file: Option<PathBuf>,
    /// The number of an open file to which a line with the addresses is written when the server listens.
    pub ready_fd: Option<i32>,
    /// Exit when the parent process exits.
    pub exit_with_parent: bool,
}

type Apply = fn(&mut Settings, &str) -> Result<(), String>;

#[rustfmt::skip]
pub const OPTIONS: [Flag<Apply>; 58] = [
    flag("l,listen", "ADDR", "listen on ADDR[:PORT] or unix:PATH; repeatable (default 127.0.0.1)", listen),
    flag("p,port", "PORT", "TCP port; 0 means any free port (default 11300)", port),
    flag("port-file", "FILE", "write the TCP port to FILE when the server listens", |settings, text| { settings.starter.port_file = Some(PathBuf::from(text)); Ok(()) }),
    flag("ready-fd", "N", "write the addresses to file descriptor N when the server listens", |settings, text| number(text, 1, 1 << 20).map(|n| settings.starter.ready_fd = Some(n as i32))),
    flag("exit-with-parent", "", "stop when the parent process exits", |settings, _| { settings.starter.exit_with_parent = true; Ok(()) }),
    flag("u,user", "USER", "run as USER, a name, UID or UID:GID, after binding the addresses", |settings, name| { settings.config.user = Some(name.to_owned()); Ok(()) }),
    flag("access", "FILE", "accept only the clients listed in FILE; SIGHUP reloads it", |settings, path| { settings.config.access = Some(PathBuf::from(path)); Ok(()) }),
    flag("tubes", "FILE", "read the settings of tubes from FILE; SIGHUP reloads it", |settings, path| { settings.config.tubes = Some(PathBuf::from(path)); Ok(()) }),
    flag("tls-cert", "FILE", "certificate chain of tls: addresses; SIGHUP reloads it", |settings, path| tls(settings).map(|files| files.certificate = PathBuf::from(path))),
    flag("tls-key", "FILE", "private key of the certificate (default: in the same file)", |settings, path| tls(settings).map(|files| files.key = PathBuf::from(path))),
    flag("tls-client-ca", "FILE", "require client certificates signed by an authority in FILE", |settings, path| tls(settings).map(|files| files.client_authority = Some(PathBuf::from(path)))),
    flag("z,max-job-size", "SIZE", "largest job body in bytes (default 65535, at most 1073741824)", max_job_size),
    flag("t,threads", "N", "number of worker threads (default: half the CPUs, 1 to 4)", |settings, text| count(text, 1, 1024).map(|n| settings.config.threads = n)),
    flag("max-connections", "N", "connections at a time (default: the limit of open files, minus 64)", max_connections),
    flag("max-connections-per-address", "N", "TCP connections per address (default: no limit)", |settings, text| count(text, 1, 1 << 30).map(|n| settings.config.max_connections_per_address = Some(n))),
    flag("max-memory", "SIZE", "refuse jobs beyond SIZE bytes, or SIZE% of memory (default 75%)", max_memory),
    flag("max-output", "SIZE", "stop reading a client with SIZE bytes of unread replies (default 1M)", max_output),
    flag("max-tubes", "N", "tubes at a time (default 1000000)", |settings, text| count(text, 1, 1 << 30).map(|n| settings.config.max_tubes = n)),
    flag("max-watched", "N", "tubes that a client can watch (default 100000)", |settings, text| count(text, 1, 1 << 30).map(|n| settings.config.max_watched = n)),
    flag("history", "N", "ended and buried jobs to remember; 0: none (default 1000)", |settings, text| count(text, 0, 1_000_000).map(|n| settings.config.history = n)),
    flag("idle-timeout", "SECONDS", "drop a client that is silent for SECONDS; 0: never (default 0)", |settings, text| seconds(text, 0, u32::MAX).map(|n| settings.config.idle_timeout = Some(n).filter(|n| *n > 0))),
    flag("keepalive-idle", "SECONDS", "probe a TCP peer after SECONDS of silence; 0: never (default 60)", |settings, text| seconds(text, 0, 32_767).map(|n| settings.config.keepalive.idle = n)),
    flag("keepalive-interval", "SECONDS", "seconds between probes (default 10)", |settings, text| seconds(text, 1, 32_767).map(|n| settings.config.keepalive.interval = n)),
    flag("keepalive-count", "N", "drop the peer after N unanswered probes (default 3)", |settings, text| seconds(text, 1, 127).map(|n| settings.config.keepalive.count = n)),
    flag("socket-mode", "MODE", "octal mode of Unix sockets (default 666)", socket_mode),
    flag("b,binlog", "DIR", "store jobs in DIR", |settings, text| { settings.config.log_folder = Some(PathBuf::from(text)); Ok(()) }),
    flag("f,sync-interval", "MS", "sync at most MS ms after a write; 0: before each reply (default 50)", sync_interval),
    flag("F,no-sync", "", "leave syncing to the operating system", |settings, _| { settings.config.log.mode = SyncMode::Never; Ok(()) }),
    flag("journal", "URL", "share the binlog through etcd://A,B,C/NAME; requires -b", |settings, text| Location::parse(text).map(|location| settings.cluster = Some(Cluster::new(location)))),
    flag("node", "NAME", "with --journal: name of this server (default: the host name)", |settings, text| { clustered(settings)?.node = node_name(text)?; Ok(()) }),
    flag("advertise", "ADDR", "with --journal: address for clients (default: the first TCP address)", |settings, text| { clustered(settings)?.advertise = Some(advertised(text)?); Ok(()) }),
    flag("relay", "", "with --journal: forward clients to the active server", |settings, _| { clustered(settings)?.relay = true; Ok(()) }),
    flag("s,segment-size", "SIZE", "size of a binlog file in bytes (default 10485760)", segment_size),
    flag("strict", "", "refuse to start if the binlog is damaged", |settings, _| { settings.config.log.strict = true; Ok(()) }),
    flag("gearman", "=ADDR", "also speak Gearman; repeatable (default 127.0.0.1:4730)", |settings, text| side_door(text).map(|address| settings.config.gearman.push(address))),
    flag("workq", "=ADDR", "also speak Workq; repeatable (default 127.0.0.1:9922)", |settings, text| side_door(text).map(|address| settings.config.workq.push(address))),
    flag("http", "=ADDR", "serve metrics and the web page; repeatable (default 127.0.0.1:11380)", |settings, text| side_door(text).map(|address| settings.config.http.push(address))),
    flag("http-admin", "", "allow changes over HTTP", |settings, _| { settings.config.protocols.http.admin = true; Ok(()) }),
    flag("http-token", "FILE", "require the token in FILE from HTTP clients", |settings, text| { settings.config.http_token = Some(PathBuf::from(text)); Ok(()) }),
    flag("http-host", "NAME", "additional host name of the HTTP server; repeatable", http_host),
    flag("metrics-tubes", "N", "largest number of tubes in /metrics (default 1000)", |settings, text| count(text, 0, 1_000_000).map(|n| settings.config.protocols.http.metrics_tubes = n)),
    flag("job-retries", "N", "tries of Gearman jobs that lose workers; 0: unlimited (default 0)", |settings, text| seconds(text, 0, 255).map(|n| settings.config.job_retries = Some(n).filter(|n| *n > 0))),
    flag("job-handle-prefix", "TEXT", "prefix of Gearman job handles (default: H: and the host name)", handle_prefix),
    flag("timeout-unit", "UNIT", "unit of Gearman's CAN_DO_TIMEOUT, ms or s (default ms)", |settings, text| is_first("unit", ["s", "ms"], text).map(|it| settings.config.protocols.timeouts_in_seconds = it)),
    flag("worker-wakeup", "N", "sleeping Gearman workers to wake for a job; 0: all (default 1)", |settings, text| number(text, 0, 1 << 20).map(|n| settings.config.worker_wakeup = n as u32)),
    flag("lease-limit", "SECONDS", "longest Workq lease of a job without a time to run (default 3600)", |settings, text| seconds(text, 1, 86_400).map(|n| settings.config.lease_limit = n)),
    flag("max-packet", "SIZE", "largest Gearman packet in bytes (default 64M)", |settings, text| size(text).map(|n| settings.config.protocols.max_packet = n.min(1 << 30) as u32)),
    flag("exceptions", "", "send the reasons of failures to all Gearman clients", |settings, _| { settings.config.protocols.exceptions = true; Ok(()) }),
    flag("allow-shutdown", "", "allow Gearman clients to shut down the server", |settings, _| { settings.config.protocols.allow_shutdown = true; Ok(()) }),
    flag("extensions", "LIST", "beanstalk extensions to offer, separated by commas (default: all)", extensions),
    flag("no-extensions", "", "offer no extensions: commands and replies are beanstalkd's", |settings, _| { settings.config.protocols.extensions = Extensions::NONE; Ok(()) }),
    flag("c,compact", "", "ignored: the binlog is always compacted", ignored),
    flag("n,no-compact", "", "ignored: the binlog is always compacted", ignored),
    flag("V,verbose", "", "log connections; twice: also commands", |settings, _| { settings.verbosity += 1; Ok(()) }),
    flag("log-format", "FORM", "log format, text or json (default text)", |settings, text| is_first("form", ["text", "json"], text).map(|it| settings.json_log = !it)),
    flag("slow", "MS", "log commands that take at least MS ms", |settings, text| seconds(text, 0, 3_600_000).map(|n| settings.config.slow = Some(n))),
    flag("v,version", "", "print the version and exit", |_, _| Ok(())),
    flag("h,help", "", "print this help and exit", |_, _| Ok(())),
];

impl Settings {
    /// Applies the option with this long name. An error begins with its first name.
    pub fn set(&mut self, long: &str, value: &str) -> Result<(), String> {
        let Some(opt) = OPTIONS.iter().find(|opt| opt.long == long) else {
            return Err(format!("unknown flag: --{long}"));
        };
        let name = || opt.names().next().unwrap_or_default();
        (opt.apply)(self, value).map_err(|problem| format!("{}: {problem}", name()))
    }
}

/// Parses a command line without the program's name. The error is one line.
pub fn parse(arguments: &[String]) -> Result<Action, String> {
    let (given, free) =
        words::read(arguments.iter().cloned(), |name, is_letter, _| Flag::find(&OPTIONS, name, is_letter))?;
    // Like beanstalkd, exits at the first of the two from the left, also in a bundle.
    match given.iter().find(|given| given.long == "help" || given.long == "version") {
        Some(given) => return Ok(if given.long == "help" { Action::Help } else { Action::Version }),
        None if !free.is_empty() => return Err(stray_argument(&free[0], arguments)),
        None => {}
    }
    let mut settings = Settings::default();
    for given in &given {
        settings.set(given.long, &given.value)?;
    }
    finish(&mut settings)?;
    Ok(Action::Run(Box::new(settings)))
}

/// Returns the error for an argument that is no option. After an option with an optional value, the argument was
/// probably meant as the value.
pub fn stray_argument(stray: &str, arguments: &[String]) -> String {
    let before =
        arguments.iter().position(|argument| argument == stray).and_then(|at| arguments.get(at.checked_sub(1)?));
    let mut meant = OPTIONS.iter().filter(|opt| opt.optional);
    match before.and_then(|before| meant.find(|opt| *before == format!("--{}", opt.long))) {
        Some(opt) => format!("unknown argument: {stray}; an address for --{0} is joined by =: --{0}={stray}", opt.long),
        None => format!("unknown argument: {stray}; options begin with a hyphen"),
    }
}

pub fn usage() -> String {
    let mut text = String::from("Usage: beanpole [OPTIONS]\n\nA work queue, compatible with beanstalkd.\n\n");
    OPTIONS.iter().for_each(|opt| text += &opt.usage(29));
    text + "\nSIZE may end in K, M or G. SIGUSR1 enters drain mode, SIGTERM stops the server. See beanpole(8).\n"
}

/// Returns the settings that the preceding `--journal` created.
fn clustered(settings: &mut Settings) -> Result<&mut Cluster, String> {
    settings.cluster.as_mut().ok_or_else(|| "it needs --journal before it".to_owned())
}

/// Checks the name of a server, which must be a word, because the servers of a cluster write it to etcd.
fn node_name(text: &str) -> Result<String, String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    match (1..=64).contains(&text.len()) && text.bytes().all(is_allowed) {
        true => Ok(text.to_owned()),
        false => Err(format!("invalid server name: {text:?}; it must be 1-64 letters, digits, '-', '.' or '_'")),
    }
}

/// Checks the address of a server, which must be a word for the same reason.
fn advertised(text: &str) -> Result<String, String> {
    let has_port = text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    match has_port && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(text.to_owned()),
        false => Err(format!("invalid address: {text:?}; it must be HOST:PORT")),
    }
}

/// Parses a number between these limits, which consists only of digits.
pub fn number(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let wrong = || format!("invalid number: {text}; it must be {least} to {most}");
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits { text.parse().ok() } else { None };
    number.filter(|number| (least..=most).contains(number)).ok_or_else(wrong)
}

fn count(text: &str, least: u64, most: u64) -> Result<usize, String> {
    number(text, least, most).map(saturated)
}

fn seconds(text: &str, least: u32, most: u32) -> Result<u32, String> {
    number(text, least.into(), most.into()).map(|number| number as u32)
}

/// Converts a number, which is truncated to the maximum of `usize`.
fn saturated(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((end, 'k' | 'K')) => (&text[..end], 10),
        Some((end, 'm' | 'M')) => (&text[..end], 20),
        Some((end, 'g' | 'G')) => (&text[..end], 30),
        _ => (text, 0),
    };
    number(digits, 0, u64::MAX >> shift)
        .map(|number| number << shift)
        .map_err(|_| format!("invalid size: {text}; it must be a number of bytes, or one with K, M or G"))
}

fn listen(settings: &mut Settings, text: &str) -> Result<(), String> {
    let address = address(text)?;
    if !std::mem::replace(&mut settings.listen_given, true) {
        settings.config.listen.clear();
    }
    settings.config.listen.push(address);
    settings.listen_options.push(format!("-l {text}"));
    Ok(())
}

/// Parses the address of another protocol; empty means the protocol's default.
fn side_door(text: &str) -> Result<Address, String> {
    if text.is_empty() {
        Ok(Address::Tcp(None, None))
    } else {
        address(text)
    }
}

/// Returns an error if the program was built without TLS.
pub fn needs_tls() -> Result<(), String> {
    if cfg!(feature = "tls") {
        Ok(())
    } else {
        Err("this program was built without TLS; make TLS=1 builds one that has it".to_owned())
    }
}

fn tls(settings: &mut Settings) -> Result<&mut TlsFiles, String> {
    needs_tls()?;
    let none = || TlsFiles { certificate: PathBuf::new(), key: PathBuf::new(), client_authority: None };
    Ok(settings.config.tls.get_or_insert_with(none))
}

fn finish(settings: &mut Settings) -> Result<(), String> {
    let Starter { port_file, ready_fd, exit_with_parent } = &settings.starter;
    if settings.cluster.is_some() && (port_file.is_some() || ready_fd.is_some() || *exit_with_parent) {
        let words = "--port-file, --ready-fd and --exit-with-parent";
        return Err(format!("{words} are for a server that listens at once; with --journal it may stand by"));
    }
    let Config { listen, gearman, workq, http, tls, .. } = &mut settings.config;
    let listens =
        [&*listen, gearman, workq, http].into_iter().flatten().any(|address| matches!(address, Address::Tls(..)));
    match tls {
        None if listens => {
            Err("a tls: address needs --tls-cert FILE, and --tls-key FILE if the key is not in there".to_owned())
        }
        Some(files) if files.certificate.as_os_str().is_empty() => {
            Err("--tls-key and --tls-client-ca need --tls-cert".to_owned())
        }
        Some(_) if !listens => Err("--tls-cert needs an address with TLS, as in -l tls:127.0.0.1".to_owned()),
        Some(files) if files.key.as_os_str().is_empty() => {
            files.key = files.certificate.clone();
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Parses `ADDR`, `ADDR:PORT`, `[ADDR]:PORT`, `unix:PATH`, or the URLs of client libraries; `tls:` before them enables
/// TLS.
fn address(text: &str) -> Result<Address, String> {
    let secure = ["tls:", "beanstalks://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    if let Some(rest) = secure {
        needs_tls()?;
        return match plain_address(rest)? {
            Address::Tcp(host, port) => Ok(Address::Tls(host, port)),
            _ => Err(format!("invalid address: {text}; a Unix socket needs no TLS")),
        };
    }
    plain_address(text)
}

fn plain_address(text: &str) -> Result<Address, String> {
    let wrong = || {
        format!("invalid address: {text}; it must be ADDR, ADDR:PORT, [ADDR]:PORT, tls: and one of these, or unix:PATH")
    };
    if let Some(path) = text.strip_prefix("unix:") {
        return if path.is_empty() { Err(wrong()) } else { Ok(Address::Unix(PathBuf::from(path))) };
    }
    let schemes = ["beanstalk://", "beanstalkd://", "tcp://"];
    let rest = schemes.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text).trim_end_matches('/');
    let bare = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(rest);
    if bare.parse::<std::net::IpAddr>().is_ok() {
        return Ok(Address::Tcp(Some(bare.to_owned()), None));
    }
    if rest.starts_with(['/', '.']) {
        return Err(format!("invalid address: {text}; a Unix socket is given as unix:{text}"));
    }
    // The resolver would read a number as an address, of which only 0 is in use.
    if rest.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err(format!("invalid address: {text}; a port follows an address, as in 127.0.0.1:{rest}"));
    }
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) => (host, Some(port_of(text, port)?)),
        None => (rest, None),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() || host.contains(['[', ']', '/']) {
        return Err(wrong());
    }
    Ok(Address::Tcp(Some(host.to_owned()), port))
}

/// Adds a name of this machine, as browsers write it.
fn http_host(settings: &mut Settings, text: &str) -> Result<(), String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if text.is_empty() || !text.bytes().all(is_name) {
        return Err(format!("invalid name: {text}; it must be the name of a host, without a port"));
    }
    settings.config.protocols.http.hosts.push(text.to_owned());
    Ok(())
}

/// Formats `HOST:PORT`, with an IPv6 address in brackets.
pub fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Parses the port in the address `text`.
fn port_of(text: &str, port: &str) -> Result<u16, String> {
    let wrong = if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("invalid address: {text}; port {port} is out of range, it must be 0 to 65535")
    } else {
        format!("invalid address: {text}; it must be ADDR, ADDR:PORT, [ADDR]:PORT or unix:PATH")
    };
    number(port, 0, 65_535).map(|port| port as u16).map_err(|_| wrong)
}

fn handle_prefix(settings: &mut Settings, text: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > MAX_HANDLE_PREFIX || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("invalid prefix: {text}; it must be 1 to {MAX_HANDLE_PREFIX} visible letters of ASCII"));
    }
    settings.config.handle_prefix = Some(text.to_owned());
    Ok(())
}

/// Parses one of two words. Returns `true` for the first.
fn is_first(what: &str, [first, second]: [&str; 2], text: &str) -> Result<bool, String> {
    if text != first && text != second {
        return Err(format!("invalid {what}: {text}; it must be {first} or {second}"));
    }
    Ok(text == first)
}

fn extensions(settings: &mut Settings, text: &str) -> Result<(), String> {
    let chosen = Extensions::from_list(text);
    settings.config.protocols.extensions =
        chosen.map_err(|word| format!("unknown extension: {word}; there are {}", Extensions::ALL.words()))?;
    Ok(())
}

fn max_output(settings: &mut Settings, text: &str) -> Result<(), String> {
    settings.config.max_output = saturated(size(text)?);
    settings.config.protocols.max_output = settings.config.max_output;
    Ok(())
}

fn port(settings: &mut Settings, text: &str) -> Result<(), String> {
    let port = number(text, 0, 65_535).map_err(|_| format!("invalid port: {text}; it must be 0 to 65535"))?;
    settings.config.port = port as u16;
    settings.listen_options.push(format!("-p {text}"));
    Ok(())
}

fn max_job_size(settings: &mut Settings, text: &str) -> Result<(), String> {
    let asked = size(text)?;
    let taken = asked.min(MAX_JOB_SIZE_CEILING.into());
    if taken < asked {
        settings
            .notices
            .push(format!("-z {asked}: no job may be larger than {MAX_JOB_SIZE_CEILING} bytes; taking that"));
    }
    settings.config.max_job_size = taken as u32;
    Ok(())
}

fn max_connections(settings: &mut Settings, text: &str) -> Result<(), String> {
    let asked = count(text, 1, 1 << 30)?;
    let taken = asked.min(most_connections(machine::file_limit()));
    if taken < asked {
        settings.notices.push(format!(
            "--max-connections {asked}: the limit of open files leaves room for {taken}; taking that, raise it for more"
        ));
    }
    settings.config.max_connections = taken;
    Ok(())
}

fn max_memory(settings: &mut Settings, text: &str) -> Result<(), String> {
    let asked = match text.strip_suffix('%') {
        Some(percent) => machine::memory() / 100 * number(percent, 1, 100)?,
        None => size(text)?,
    };
    if asked < LEAST_MEMORY {
        return Err(format!("too little: {text} is {asked} bytes; it must be at least 1M"));
    }
    settings.config.max_memory = asked;
    Ok(())
}

fn socket_mode(settings: &mut Settings, text: &str) -> Result<(), String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && !text.starts_with('+'));
    settings.config.socket_mode = mode.ok_or_else(|| format!("invalid mode: {text}; it must be octal, 0 to 777"))?;
    Ok(())
}

fn sync_interval(settings: &mut Settings, text: &str) -> Result<(), String> {
    settings.config.log.mode = match number(text, 0, 3_600_000)? {
        0 => SyncMode::Always,
        millis => SyncMode::Every(millis),
    };
    Ok(())
}

fn segment_size(settings: &mut Settings, text: &str) -> Result<(), String> {
    // Smaller segments would consist mostly of headers, larger ones would need too much memory during recovery.
    settings.config.log.segment_size = size(text)?.clamp(4096, 1 << 30);
    Ok(())
}

fn ignored(settings: &mut Settings, _: &str) -> Result<(), String> {
    settings.notices.push("-c and -n do nothing any more: a binlog is always compacted".to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::config::Keepalive;

    fn settings(line: &str) -> Settings {
        match parse(&words(line)) {
            Ok(Action::Run(settings)) => *settings,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn tcp(host: &str, port: Option<u16>) -> Address {
        Address::Tcp(Some(host.to_owned()), port)
    }

    #[test]
    fn flags_are_bundled_attached_and_long() {
        let all = settings(
            "-VVp11301 -z 10 --listen=::1 -l unix:/tmp/x -l [::1]:7 -l beanstalk://h:8 -l tcp://[::1]/ --threads 3",
        );
        assert_eq!((all.verbosity, all.config.port, all.config.max_job_size, all.config.threads), (2, 11301, 10, 3));
        let expected = [
            tcp("::1", None),
            Address::Unix("/tmp/x".into()),
            tcp("::1", Some(7)),
            tcp("h", Some(8)),
            tcp("::1", None),
        ];
        assert_eq!(all.config.listen, expected);
        assert_eq!(settings("").config.listen, [Address::Tcp(None, None)]);
        assert_eq!(settings("-Vukr").config.user.as_deref(), Some("kr"));
    }

    #[test]
    fn the_first_of_help_and_version_wins() {
        for line in ["-v", "-vh", "-V -v -h", "--version -h", "-Vvh", "-p 1 -v stray"] {
            assert!(matches!(parse(&words(line)), Ok(Action::Version)), "{line}");
        }
        for line in ["-h", "-hv", "-V --help -v"] {
            assert!(matches!(parse(&words(line)), Ok(Action::Help)), "{line}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (line, expected) in [
            ("-x", "unknown flag: -x"),
            ("--frobnicate", "unknown flag: --frobnicate"),
            ("foo", "unknown argument: foo"),
            ("-", "unknown argument: -"),
            ("-p", "flag requires an argument: -p"),
            ("-p 70000", "-p: invalid port: 70000"),
            ("-z 10x", "-z: invalid size: 10x"),
            ("-z -1", "-z: invalid size: -1"),
            ("-z 99999999999999999999G", "-z: invalid size"),
            ("-t 0", "-t: invalid number: 0"),
            ("-l unix:", "-l: invalid address"),
            ("-l a:b:c", "-l: invalid address"),
            ("--socket-mode 888", "--socket-mode: invalid mode"),
            ("-f x", "-f: invalid number: x"),
            ("--max-memory 0", "--max-memory: too little: 0 is 0 bytes; it must be at least 1M"),
            ("--max-memory 1023K", "--max-memory: too little"),
            ("--max-memory 0%", "--max-memory: invalid number: 0"),
            ("--idle-timeout 4294967296", "--idle-timeout: invalid number"),
            ("--keepalive-idle 32768", "--keepalive-idle: invalid number: 32768"),
            ("--keepalive-interval 0", "--keepalive-interval: invalid number: 0"),
            ("--keepalive-count 128", "--keepalive-count: invalid number: 128"),
            ("--max-connections-per-address 0", "--max-connections-per-address: invalid number: 0"),
        ] {
            let error = parse(&words(line)).expect_err(line);
            assert!(error.starts_with(expected), "{line}: {error}");
            assert!(!error.contains('\n'), "{line}: {error}");
        }
    }

    #[test]
    fn sizes_have_suffixes_and_a_ceiling() {
        assert_eq!(size("64K"), Ok(65_536));
        assert_eq!(size("2g"), Ok(2 << 30));
        // A size is never truncated to a small one on machines with smaller numbers.
        assert_eq!(saturated(4 << 30), usize::try_from(4_u64 << 30).unwrap_or(usize::MAX));
        assert_eq!(settings("--max-output 17179869183G").config.max_output, saturated(u64::MAX >> 30 << 30));
        let clamped = settings("-z 2G -c");
        assert_eq!(clamped.config.max_job_size, MAX_JOB_SIZE_CEILING);
        assert_eq!(clamped.notices.len(), 2);
    }

    #[test]
    fn peers_have_limits_if_they_are_given_some() {
        let config = settings("--idle-timeout 30 --keepalive-idle=5 --max-connections-per-address 7").config;
        assert_eq!((config.idle_timeout, config.max_connections_per_address), (Some(30), Some(7)));
        assert_eq!(config.keepalive, Keepalive { idle: 5, interval: 10, count: 3 });
        let config = settings("--idle-timeout 30 --idle-timeout 0 --max-memory 1M").config;
        assert_eq!((config.idle_timeout, config.max_connections_per_address), (None, None));
        assert_eq!(config.max_memory, LEAST_MEMORY);
    }

    #[test]
    fn the_last_of_two_that_contradict_each_other_counts() {
        assert_eq!(settings("-f 10 -F").config.log.mode, SyncMode::Never);
        assert_eq!(settings("-F -f10").config.log.mode, SyncMode::Every(10));
        assert_eq!(settings("-Ff0 -b x -s 100").config.log.mode, SyncMode::Always);
        assert_eq!(settings("").config.log.mode, SyncMode::Every(50));
    }

    #[test]
    fn other_protocols_have_an_address_if_they_are_given_one() {
        let config = settings("--gearman --workq=[::1]:7 -V --gearman=0.0.0.0 --gearman=").config;
        assert_eq!(config.gearman, [Address::Tcp(None, None), tcp("0.0.0.0", None), Address::Tcp(None, None)]);
        assert_eq!(config.workq, [tcp("::1", Some(7))]);
        for wrong in ["--http=24502", "--gearman=1", "-l 24502"] {
            let problem = parse(&words(wrong)).map(drop).expect_err(wrong);
            assert!(problem.contains("a port follows an address, as in 127.0.0.1:"), "{problem}");
        }
        assert_eq!(settings("--workq=0").config.workq, [tcp("0", None)]);
        assert!(settings("").config.gearman.is_empty() && parse(&words("--gearman 0.0.0.0")).is_err());
    }

    #[test]
    fn usage_has_every_option_and_fits_a_screen() {
        let usage = usage();
        for opt in &OPTIONS {
            assert!(usage.contains(&format!("--{}", opt.long)));
        }
        assert!(usage.lines().all(|line| line.len() <= 110), "{usage}");
    }

    #[test]
    fn names_and_addresses_of_servers_are_words() {
        let parsed = |option: &str, value: &str| {
            parse(&["--journal", "etcd://a", "-b", "d", option, value].map(str::to_owned)).map(drop)
        };
        for name in ["m1", "queue-1.example_a", &"x".repeat(64)] {
            assert!(parsed("--node", name).is_ok(), "{name}");
        }
        for name in ["", "a b", "a\tb", "a/b", "ä", &"x".repeat(65)] {
            assert!(parsed("--node", name).is_err_and(|problem| problem.contains("invalid server name")), "{name}");
        }
        assert!(parsed("--advertise", "[::1]:11300").is_ok() && parsed("--advertise", "queue:1").is_ok());
        for address in ["", "queue", ":1", "a b:1", "a:b", "a:70000"] {
            assert!(parsed("--advertise", address).is_err_and(|problem| problem.contains("HOST:PORT")), "{address}");
        }
    }
}

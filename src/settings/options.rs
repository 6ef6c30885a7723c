//! The table of the server's options, for the parser, the usage message, and man page tests. Must not act on options.
//!
//! The options of beanstalkd keep their meaning, and have long names as well.

use std::path::PathBuf;

use crate::binlog::SyncMode;
use crate::cluster::Location;
use crate::settings::config::{
    connection_limit, Address, Config, Extensions, TlsFiles, MAX_HANDLE_PREFIX, MAX_JOB_SIZE_CEILING, MIN_MEMORY,
};
use crate::settings::words::{self, flag, Flag};
use crate::shared::system;

/// The same exit code as in beanstalkd.
pub const BAD_USAGE: u8 = 5;

#[derive(Debug)]
pub enum Action {
    Run(Box<Settings>),
    Version,
    Help,
}

#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub config: Config,
    pub verbosity: u32,
    pub json_log: bool,
    pub notices: Vec<String>,
    pub starter: Starter,
    /// Options for addresses or ports, such as `-p 11300`. Ignored if the server inherits sockets.
    pub listen_options: Vec<String>,
    has_listen: bool,
    pub cluster: Option<Cluster>,
}

#[derive(Clone, Debug)]
pub struct Cluster {
    pub location: Location,
    pub node: String,
    /// Clients and relays can reach the server at this address. `None` means the first TCP address in `listen`.
    pub advertise: Option<String>,
    pub relay: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Starter {
    pub port_file: Option<PathBuf>,
    pub ready_fd: Option<i32>,
    pub exit_with_parent: bool,
}

type Apply = fn(&mut Settings, &str) -> Result<(), String>;

#[rustfmt::skip]
pub const OPTIONS: [Flag<Apply>; 58] = [
    flag("l,listen", "ADDR", "listen on ADDR[:PORT] or unix:PATH; repeatable (default 127.0.0.1)", listen),
    flag("p,port", "PORT", "TCP port; 0: any free port (default 11300)", port),
    flag("socket-mode", "MODE", "octal mode of Unix sockets (default 666)", |settings, text| { settings.config.socket_mode = socket_mode(text)?; Ok(()) }),
    flag("u,user", "USER", "run as USER, a name, UID or UID:GID, after binding the addresses", |settings, name| { settings.config.user = Some(name.to_owned()); Ok(()) }),
    flag("access", "FILE", "accept only the clients listed in FILE; SIGHUP reloads it", |settings, path| { settings.config.access = Some(PathBuf::from(path)); Ok(()) }),
    flag("tls-cert", "FILE", "certificate chain of tls: addresses; SIGHUP reloads it", |settings, path| tls(settings).map(|files| files.certificate = PathBuf::from(path))),
    flag("tls-key", "FILE", "private key of the certificate (default: in the same file)", |settings, path| tls(settings).map(|files| files.key = PathBuf::from(path))),
    flag("tls-client-ca", "FILE", "require client certificates signed by an authority in FILE", |settings, path| tls(settings).map(|files| files.client_authority = Some(PathBuf::from(path)))),
    flag("port-file", "FILE", "write the TCP port to FILE when the server listens", |settings, text| { settings.starter.port_file = Some(PathBuf::from(text)); Ok(()) }),
    flag("ready-fd", "N", "write the addresses to file descriptor N when the server listens", |settings, text| number(text, 1, 1 << 20).map(|n| settings.starter.ready_fd = Some(n))),
    flag("exit-with-parent", "", "exit when the parent process exits", |settings, _| { settings.starter.exit_with_parent = true; Ok(()) }),
    flag("z,max-job-size", "SIZE", "largest job body in bytes (default 65535, at most 1073741824)", max_job_size),
    flag("t,threads", "N", "number of worker threads (default: half the CPUs, 1 to 4)", |settings, text| number(text, 1, 1024).map(|n| settings.config.threads = n)),
    flag("max-connections", "N", "maximum connections (default: the limit on open files, minus 64)", max_connections),
    flag("max-connections-per-address", "N", "maximum TCP connections from one address (default: no limit)", |settings, text| number(text, 1, 1 << 30).map(|n| settings.config.max_connections_per_address = Some(n))),
    flag("max-memory", "SIZE", "memory limit in bytes, or % of the available memory (default 75%)", |settings, text| { settings.config.max_memory = max_memory(text)?; Ok(()) }),
    flag("max-output", "SIZE", "stop reading from a client with SIZE unread bytes (default 1M)", max_output),
    flag("max-tubes", "N", "maximum number of tubes (default 1000000)", |settings, text| number(text, 1, 1 << 30).map(|n| settings.config.max_tubes = n)),
    flag("max-watched", "N", "maximum number of tubes that a client watches (default 100000)", |settings, text| number(text, 1, 1 << 30).map(|n| settings.config.max_watched = n)),
    flag("history", "N", "number of ended and buried jobs to remember; 0: none (default 1000)", |settings, text| number(text, 0, 1_000_000).map(|n| settings.config.history = n)),
    flag("tubes", "FILE", "read the settings of tubes from FILE; SIGHUP reloads it", |settings, path| { settings.config.tubes = Some(PathBuf::from(path)); Ok(()) }),
    flag("idle-timeout", "SECONDS", "disconnect clients after SECONDS of silence; 0: never (default 0)", |settings, text| number(text, 0, u32::MAX.into()).map(|n| settings.config.idle_timeout = Some(n).filter(|n| *n > 0))),
    flag("keepalive-idle", "SECONDS", "probe a TCP peer after SECONDS of silence; 0: never (default 60)", |settings, text| number(text, 0, 32_767).map(|n| settings.config.keepalive.idle = n)),
    flag("keepalive-interval", "SECONDS", "seconds between unanswered probes (default 10)", |settings, text| number(text, 1, 32_767).map(|n| settings.config.keepalive.interval = n)),
    flag("keepalive-count", "N", "disconnect a peer after N unanswered probes (default 3)", |settings, text| number(text, 1, 127).map(|n| settings.config.keepalive.count = n)),
    flag("b,binlog", "DIR", "store jobs in DIR", |settings, text| { settings.config.log_folder = Some(PathBuf::from(text)); Ok(()) }),
    flag("f,sync-interval", "MS", "sync at most MS ms after a write; 0: before each reply (default 50)", |settings, text| number(text, 0, 3_600_000).map(|n| settings.config.log.mode = if n == 0 { SyncMode::Always } else { SyncMode::Every(n) })),
    flag("F,no-sync", "", "let the operating system decide when to sync", |settings, _| { settings.config.log.mode = SyncMode::Never; Ok(()) }),
    // Smaller segments would be mostly headers. Larger segments would need too much memory during recovery.
    flag("s,segment-size", "SIZE", "size of a binlog file in bytes (default 10485760)", |settings, text| size(text).map(|n| settings.config.log.segment_size = n.clamp(4096, 1 << 30))),
    flag("strict", "", "refuse to start if the binlog is damaged", |settings, _| { settings.config.log.strict = true; Ok(()) }),
    flag("c,compact", "", "ignored: the binlog is always compacted", ignored),
    flag("n,no-compact", "", "ignored: the binlog is always compacted", ignored),
    flag("journal", "URL", "share the binlog through etcd://A,B,C/NAME; requires -b", |settings, text| { settings.cluster = Some(new_cluster(text)?); Ok(()) }),
    flag("node", "NAME", "with --journal: name of this server (default: the host name)", |settings, text| { cluster(settings)?.node = node_name(text)?; Ok(()) }),
    flag("advertise", "ADDR", "with --journal: client address (default: the first TCP address)", |settings, text| { cluster(settings)?.advertise = Some(advertised(text)?); Ok(()) }),
    flag("relay", "", "with --journal: forward clients to the active server", |settings, _| { cluster(settings)?.relay = true; Ok(()) }),
    flag("gearman", "=ADDR", "also speak Gearman; repeatable (default 127.0.0.1:4730)", |settings, text| optional_address(text).map(|address| settings.config.gearman.push(address))),
    flag("workq", "=ADDR", "also speak Workq; repeatable (default 127.0.0.1:9922)", |settings, text| optional_address(text).map(|address| settings.config.workq.push(address))),
    flag("http", "=ADDR", "serve metrics and a web page; repeatable (default 127.0.0.1:11380)", |settings, text| optional_address(text).map(|address| settings.config.http.push(address))),
    flag("http-admin", "", "allow changes over HTTP", |settings, _| { settings.config.protocols.http.admin = true; Ok(()) }),
    flag("http-token", "FILE", "require the token in FILE from HTTP clients", |settings, text| { settings.config.http_token = Some(PathBuf::from(text)); Ok(()) }),
    flag("http-host", "NAME", "additional host name of the HTTP server; repeatable", |settings, text| { settings.config.protocols.http.hosts.push(host_name(text)?); Ok(()) }),
    flag("metrics-tubes", "N", "export metrics for at most N tubes (default 1000)", |settings, text| number(text, 0, 1_000_000).map(|n| settings.config.protocols.http.metrics_tubes = n)),
    flag("job-retries", "N", "tries of Gearman jobs that lose workers; 0: no limit (default 0)", |settings, text| number(text, 0, 255).map(|n| settings.config.job_retries = Some(n).filter(|n| *n > 0))),
    flag("job-handle-prefix", "TEXT", "prefix of Gearman job handles (default: H: and the host name)", |settings, text| { settings.config.handle_prefix = Some(handle_prefix(text)?); Ok(()) }),
    flag("timeout-unit", "UNIT", "unit of Gearman's CAN_DO_TIMEOUT, ms or s (default ms)", |settings, text| choice("unit", ["s", "ms"], text).map(|it| settings.config.protocols.timeouts_in_seconds = it)),
    flag("worker-wakeup", "N", "sleeping Gearman workers to wake for each job; 0: all (default 1)", |settings, text| number(text, 0, 1 << 20).map(|n| settings.config.worker_wakeup = n)),
    flag("lease-limit", "SECONDS", "longest Workq lease of a job without a time to run (default 3600)", |settings, text| number(text, 1, 86_400).map(|n| settings.config.lease_limit = n)),
    flag("max-packet", "SIZE", "largest Gearman packet in bytes (default 64M)", |settings, text| size(text).map(|n| settings.config.protocols.max_packet = n.min(1 << 30) as u32)),
    flag("exceptions", "", "send failure reasons to all Gearman clients", |settings, _| { settings.config.protocols.exceptions = true; Ok(()) }),
    flag("allow-shutdown", "", "allow Gearman clients to shut down the server", |settings, _| { settings.config.protocols.allow_shutdown = true; Ok(()) }),
    flag("extensions", "LIST", "beanstalk extensions to offer, separated by commas (default: all)", |settings, text| { settings.config.protocols.extensions = extensions(text)?; Ok(()) }),
    flag("no-extensions", "", "offer no extensions; behave like beanstalkd", |settings, _| { settings.config.protocols.extensions = Extensions::NONE; Ok(()) }),
    flag("V,verbose", "", "log connections; if repeated, also commands", |settings, _| { settings.verbosity += 1; Ok(()) }),
    flag("log-format", "FORMAT", "log format, text or json (default text)", |settings, text| choice("format", ["text", "json"], text).map(|it| settings.json_log = !it)),
    flag("slow", "MS", "log commands that take at least MS milliseconds", |settings, text| number(text, 0, 3_600_000).map(|n| settings.config.slow = Some(n))),
    flag("v,version", "", "print the version and exit", |_, _| Ok(())),
    flag("h,help", "", "print this help and exit", |_, _| Ok(())),
];

/// The long name of an option, and the heading that precedes the option in the usage message.
const HEADINGS: [(&str, &str); 6] = [
    ("listen", "Network options"),
    ("max-job-size", "Limits"),
    ("binlog", "Binlog options"),
    ("journal", "Cluster options"),
    ("gearman", "Protocol options"),
    ("verbose", "Other options"),
];

impl Settings {
    pub fn set(&mut self, long: &str, value: &str) -> Result<(), String> {
        let found = OPTIONS.iter().find(|opt| opt.long == long);
        let opt = found.ok_or_else(|| format!("unknown flag: --{long}"))?;
        let name = || opt.names().next().unwrap_or_default();
        (opt.apply)(self, value).map_err(|problem| format!("{}: {problem}", name()))
    }
}

pub fn parse(arguments: &[String]) -> Result<Action, String> {
    let (given, free) = words::read(arguments.to_vec(), &|name, is_letter, _| Flag::find(&OPTIONS, name, is_letter))?;
    // As in beanstalkd, the first `help` or `version` takes effect, even among bundled letters such as `-vh`.
    match given.iter().find(|given| given.long == "help" || given.long == "version") {
        Some(given) => return Ok(if given.long == "help" { Action::Help } else { Action::Version }),
        None if !free.is_empty() => return Err(stray_argument(&free[0], arguments)),
        None => {}
    }
    let mut settings = Settings::default();
    given.iter().try_for_each(|given| settings.set(given.long, &given.value))?;
    finish(&mut settings)?;
    Ok(Action::Run(Box::new(settings)))
}

/// Returns the error for a stray argument, and a hint if the option before the argument needs an equals sign.
fn stray_argument(stray: &str, arguments: &[String]) -> String {
    let position = arguments.iter().position(|argument| argument == stray);
    let stray = stray.escape_debug().to_string();
    let before = position.and_then(|position| arguments.get(position.checked_sub(1)?));
    let mut optional = OPTIONS.iter().filter(|opt| opt.optional);
    match before.and_then(|before| optional.find(|opt| *before == format!("--{}", opt.long))) {
        Some(opt) => format!("unknown argument: {stray}; to set the address of --{0}, use --{0}={stray}", opt.long),
        None if position == Some(0) && !matches!(&*stray, "" | "-") => unknown_subcommand(&stray),
        None => format!("unknown argument: {stray}; options begin with a hyphen"),
    }
}

/// Words on the web page and in `top` that are not subcommands, each with the subcommand that shows the same data.
const ELSEWHERE: [(&str, &str); 2] = [("failed", "history --failed"), ("workers", "connections")];

pub fn unknown_subcommand(name: &str) -> String {
    let hint = ELSEWHERE.iter().find(|(word, _)| *word == name);
    let hint = hint.map_or_else(String::new, |(_, subcommand)| format!("; use {subcommand}"));
    format!("unknown subcommand: {name}{hint}")
}

pub fn usage() -> String {
    let mut text = String::from("Usage: beanpole [OPTIONS]\n       beanpole SUBCOMMAND [OPTIONS] ...\n\n");
    text += "A work-queue server, compatible with beanstalkd.\n";
    for opt in &OPTIONS {
        let heading = HEADINGS.iter().find(|(first, _)| *first == opt.long);
        text += &heading.map_or(String::new(), |(_, heading)| format!("\n{heading}:\n"));
        text += &opt.usage(33);
    }
    text + "\nSIZE may end in K, M or G. SIGUSR1 starts to drain the server; SIGTERM stops it. See beanpole(8).\n"
}

fn cluster(settings: &mut Settings) -> Result<&mut Cluster, String> {
    settings.cluster.as_mut().ok_or_else(|| "requires --journal before it".to_owned())
}

fn new_cluster(journal: &str) -> Result<Cluster, String> {
    let location = Location::parse(journal)?;
    let name = nix::sys::utsname::uname().map(|name| name.nodename().to_string_lossy().into_owned());
    let node = name.unwrap_or_else(|_| "node".to_owned());
    Ok(Cluster { location, node, advertise: None, relay: false })
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

fn checked(text: &str, is_valid: bool, error: impl FnOnce() -> String) -> Result<String, String> {
    is_valid.then(|| text.to_owned()).ok_or_else(error)
}

/// Names cannot contain spaces, because etcd entries contain names separated by spaces.
fn node_name(text: &str) -> Result<String, String> {
    let invalid = || format!("invalid server name: {text:?}; must be 1-64 letters, digits, '-', '.' or '_'");
    checked(text, text.len() <= 64 && is_plain(text), invalid)
}

fn advertised(text: &str) -> Result<String, String> {
    let has_port = text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    let is_valid = has_port && text.bytes().all(|byte| byte.is_ascii_graphic());
    checked(text, is_valid, || format!("invalid address: {text:?}; must be HOST:PORT"))
}

pub fn number<T: TryFrom<u64>>(text: &str, min: u64, max: u64) -> Result<T, String> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| is_digits && (min..=max).contains(number));
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| format!("invalid number: {text}; must be {min} to {max}"))
}

fn size(text: &str) -> Result<u64, String> {
    let suffixes = [(['k', 'K'], 10), (['m', 'M'], 20), (['g', 'G'], 30)];
    let mut found = suffixes.iter().filter_map(|(letters, shift)| Some((text.strip_suffix(letters)?, *shift)));
    let (digits, shift) = found.next().unwrap_or((text, 0));
    number::<u64>(digits, 0, u64::MAX >> shift)
        .map(|number| number << shift)
        .map_err(|_| format!("invalid size: {text}; must be a number of bytes, or end in K, M or G"))
}

fn listen(settings: &mut Settings, text: &str) -> Result<(), String> {
    let address = address(text)?;
    if !std::mem::replace(&mut settings.has_listen, true) {
        settings.config.listen.clear();
    }
    settings.config.listen.push(address);
    settings.listen_options.push(format!("-l {text}"));
    Ok(())
}

fn optional_address(text: &str) -> Result<Address, String> {
    match text {
        "" => Ok(Address::Tcp(None, None)),
        text => address(text),
    }
}

pub fn needs_tls() -> Result<(), String> {
    let problem = "this program was built without TLS; build it with make TLS=1";
    cfg!(feature = "tls").then_some(()).ok_or_else(|| problem.to_owned())
}

fn tls(settings: &mut Settings) -> Result<&mut TlsFiles, String> {
    needs_tls()?;
    Ok(settings.config.tls.get_or_insert_with(|| TlsFiles::new("", "")))
}

fn finish(settings: &mut Settings) -> Result<(), String> {
    let Starter { port_file, ready_fd, exit_with_parent } = &settings.starter;
    if settings.cluster.is_some() && (port_file.is_some() || ready_fd.is_some() || *exit_with_parent) {
        let options = "--port-file, --ready-fd and --exit-with-parent";
        return Err(format!("{options} cannot be used with --journal, because a standby does not listen"));
    }
    let has_tls = settings.config.places().any(|(_, address, _)| matches!(address, Address::Tls(..)));
    let problem = match &mut settings.config.tls {
        None if has_tls => "a tls: address requires --tls-cert, and --tls-key unless that file contains the key",
        Some(files) if files.certificate.as_os_str().is_empty() => "--tls-key and --tls-client-ca require --tls-cert",
        Some(_) if !has_tls => "--tls-cert requires an address with TLS, such as -l tls:127.0.0.1",
        tls => {
            let keyless = tls.iter_mut().filter(|files| files.key.as_os_str().is_empty());
            keyless.for_each(|files| files.key = files.certificate.clone());
            return Ok(());
        }
    };
    Err(problem.to_owned())
}

/// Accepts the forms in `FORMS`, and the URLs of client libraries.
fn address(text: &str) -> Result<Address, String> {
    let wrong = |reason: &str| format!("invalid address: {text}; {reason}");
    let secure = ["tls:", "beanstalks://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    if secure.is_some() {
        needs_tls()?;
    }
    let plain = secure.unwrap_or(text);
    if let Some(path) = plain.strip_prefix("unix:") {
        return match (secure, path) {
            (Some(_), _) => Err(wrong("a Unix socket does not need TLS")),
            (None, "") => Err(wrong(FORMS)),
            (None, path) => Ok(Address::Unix(PathBuf::from(path))),
        };
    }
    ensure!(!plain.starts_with(['/', '.']), wrong(&format!("to listen on a Unix socket, use unix:{plain}")));
    match (host_port(plain, FORMS).map_err(|problem| wrong(&problem))?, secure) {
        ((host, _), _) if host.is_empty() => Err(wrong(FORMS)),
        ((host, port), None) => Ok(Address::Tcp(Some(host), port)),
        ((host, port), Some(_)) => Ok(Address::Tls(Some(host), port)),
    }
}

const FORMS: &str = "must be ADDR, ADDR:PORT, [ADDR]:PORT, tls: and one of these, or unix:PATH";

/// Splits `HOST`, `HOST:PORT`, `:PORT`, `[ADDR]:PORT` or a URL into the host, without brackets, and the port.
pub fn host_port(text: &str, forms: &str) -> Result<(String, Option<u16>), String> {
    let schemes = ["beanstalk://", "beanstalkd://", "tcp://"];
    let rest = schemes.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text).trim_end_matches('/');
    let without_brackets =
        |host: &str| host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).to_owned();
    if without_brackets(rest).parse::<std::net::IpAddr>().is_ok() {
        return Ok((without_brackets(rest), None));
    }
    // The resolver accepts any number as an IPv4 address, but only 0 is commonly used.
    if rest.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err(format!("a port follows an address, as in 127.0.0.1:{rest}"));
    }
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) => match number(port, 0, 65_535) {
            Ok(port) => (without_brackets(host), Some(port)),
            Err(_) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
                return Err(format!("port {port} is out of range, must be 0 to 65535"));
            }
            Err(_) => return Err(forms.to_owned()),
        },
        None => (without_brackets(rest), None),
    };
    let is_valid = !host.contains(['[', ']', '/', '@', ' ']) && (!host.is_empty() || port.is_some());
    is_valid.then_some((host, port)).ok_or_else(|| forms.to_owned())
}

pub fn host_and_port(host: &str, port: u16) -> String {
    let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
    format!("{open}{host}{close}:{port}")
}

fn host_name(text: &str) -> Result<String, String> {
    checked(text, is_plain(text), || format!("invalid name: {text}; must be a host name without a port"))
}

fn handle_prefix(text: &str) -> Result<String, String> {
    let is_valid = (1..=MAX_HANDLE_PREFIX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    let invalid = || format!("invalid prefix: {text}; must be 1 to {MAX_HANDLE_PREFIX} printable ASCII characters");
    checked(text, is_valid, invalid)
}

/// Returns `true` for `first` and `false` for `second`. For any other string, the error contains `what`.
fn choice(what: &str, [first, second]: [&str; 2], text: &str) -> Result<bool, String> {
    ensure!([first, second].contains(&text), format!("invalid {what}: {text}; must be {first} or {second}"));
    Ok(text == first)
}

fn extensions(text: &str) -> Result<Extensions, String> {
    let unknown = |word| format!("unknown extension: {word}; must be one of {}", Extensions::ALL.words());
    Extensions::from_list(text).map_err(unknown)
}

fn max_output(settings: &mut Settings, text: &str) -> Result<(), String> {
    settings.config.max_output = usize::try_from(size(text)?).unwrap_or(usize::MAX);
    settings.config.protocols.max_output = settings.config.max_output;
    Ok(())
}

fn port(settings: &mut Settings, text: &str) -> Result<(), String> {
    settings.config.port = number(text, 0, 65_535)?;
    settings.listen_options.push(format!("-p {text}"));
    Ok(())
}

fn max_job_size(settings: &mut Settings, text: &str) -> Result<(), String> {
    let size = size(text)?;
    if size > MAX_JOB_SIZE_CEILING.into() {
        settings.notices.push(format!("-z {size} exceeds the maximum; using {MAX_JOB_SIZE_CEILING} bytes"));
    }
    settings.config.max_job_size = size.min(MAX_JOB_SIZE_CEILING.into()) as u32;
    Ok(())
}

fn max_connections(settings: &mut Settings, text: &str) -> Result<(), String> {
    let (wanted, possible) = (number::<usize>(text, 1, 1 << 30)?, connection_limit(system::file_limit()));
    if wanted > possible {
        let problem = format!("--max-connections {wanted} exceeds the limit on open files");
        settings.notices.push(format!("{problem}; using {possible}, raise that limit (ulimit -n) for more"));
    }
    settings.config.max_connections = wanted.min(possible);
    Ok(())
}

fn max_memory(text: &str) -> Result<u64, String> {
    let bytes = match text.strip_suffix('%') {
        Some(percent) => system::memory() / 100 * number::<u64>(percent, 1, 100)?,
        None => size(text)?,
    };
    let problem = || format!("too little memory: {text} is {bytes} bytes; must be at least 1M");
    (bytes >= MIN_MEMORY).then_some(bytes).ok_or_else(problem)
}

fn socket_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && !text.starts_with('+'));
    mode.ok_or_else(|| format!("invalid mode: {text}; must be octal, 0 to 777"))
}

fn ignored(settings: &mut Settings, _: &str) -> Result<(), String> {
    settings.notices.push("-c and -n have no effect: the binlog is always compacted".to_owned());
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
    fn an_error_is_one_line() {
        for (line, expected) in [
            ("-x", "unknown flag: -x"),
            ("--frobnicate", "unknown flag: --frobnicate"),
            ("foo", "unknown subcommand: foo"),
            ("-t 1 foo", "unknown argument: foo"),
            ("-", "unknown argument: -"),
            ("-p", "flag requires an argument: -p"),
            ("-p 70000", "-p: invalid number: 70000"),
            ("-z 10x", "-z: invalid size: 10x"),
            ("-z -1", "-z: invalid size: -1"),
            ("-z 99999999999999999999G", "-z: invalid size"),
            ("-t 0", "-t: invalid number: 0"),
            ("-l unix:", "-l: invalid address"),
            ("-l a:b:c", "-l: invalid address"),
            ("--socket-mode 888", "--socket-mode: invalid mode"),
            ("-f x", "-f: invalid number: x"),
            ("--max-memory 0", "--max-memory: too little memory: 0 is 0 bytes; must be at least 1M"),
            ("--max-memory 1023K", "--max-memory: too little memory"),
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
    fn sizes_have_suffixes_and_a_maximum() {
        assert_eq!(size("64K"), Ok(65_536));
        assert_eq!(size("2g"), Ok(2 << 30));
        // On a 32-bit machine, a size that is too large becomes the maximum instead of being truncated.
        let max = usize::try_from(u64::MAX >> 30 << 30).unwrap_or(usize::MAX);
        assert_eq!(settings("--max-output 17179869183G").config.max_output, max);
        let clamped = settings("-z 2G -c");
        assert_eq!(clamped.config.max_job_size, MAX_JOB_SIZE_CEILING);
        assert_eq!(clamped.notices.len(), 2);
    }

    #[test]
    fn limits_for_peers_are_optional() {
        let config = settings("--idle-timeout 30 --keepalive-idle=5 --max-connections-per-address 7").config;
        assert_eq!((config.idle_timeout, config.max_connections_per_address), (Some(30), Some(7)));
        assert_eq!(config.keepalive, Keepalive { idle: 5, interval: 10, count: 3 });
        let config = settings("--idle-timeout 30 --idle-timeout 0 --max-memory 1M").config;
        assert_eq!((config.idle_timeout, config.max_connections_per_address), (None, None));
        assert_eq!(config.max_memory, MIN_MEMORY);
    }

    #[test]
    fn the_last_of_contradicting_options_counts() {
        assert_eq!(settings("-f 10 -F").config.log.mode, SyncMode::Never);
        assert_eq!(settings("-F -f10").config.log.mode, SyncMode::Every(10));
        assert_eq!(settings("-Ff0 -b x -s 100").config.log.mode, SyncMode::Always);
        assert_eq!(settings("").config.log.mode, SyncMode::Every(50));
    }

    #[test]
    fn other_protocols_have_optional_addresses() {
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
    fn the_usage_has_every_option_and_fits_100_columns() {
        let usage = usage();
        for opt in &OPTIONS {
            assert!(usage.contains(&format!("--{}", opt.long)));
        }
        assert!(usage.lines().all(|line| line.len() <= 100), "{usage}");
    }

    #[test]
    fn names_and_addresses_of_servers_contain_no_spaces() {
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

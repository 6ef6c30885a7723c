//! Every golden conversation, in this process on a virtual clock, in other pieces, and over real sockets.

mod script;
#[path = "script/within.rs"]
mod within;

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use beanpole::options::{parse, Command};
use beanpole::{Address, Config, Server};
use script::{load, run, Connection, Conversation, Sockets, What, Wire};
use within::{speech, Pieces, Within};

/// How long to listen for bytes that must not come.
const QUIET: Duration = Duration::from_millis(40);

/// When conversations that speak of absolute times begin: 2033-05-18T03:33:20Z, and up to a second later over sockets.
const BEGIN: Duration = Duration::from_secs(2_000_000_000);

/// Those of beanstalk, and those of the protocols that have a folder of their own.
fn all(host: &str) -> Vec<Conversation> {
    let folders = ["tests/conversations", "tests/conversations/gearman", "tests/conversations/workq"];
    let folders = folders.into_iter().map(Path::new).filter(|folder| folder.is_dir());
    let conversations: Vec<Conversation> = folders.flat_map(|folder| load(folder, host).0).collect();
    assert!(conversations.len() >= 200, "only {} conversations", conversations.len());
    conversations
}

fn check(failures: Vec<String>) {
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

/// What the options of a conversation say.
fn config(conversation: &Conversation) -> Config {
    let config = match parse(&conversation.options) {
        Ok(Command::Run(settings)) => settings.config,
        other => panic!("{}: {other:?}", conversation.place),
    };
    let max_job_size = conversation.max_job_size.unwrap_or(config.max_job_size);
    let Config { port, gearman_port, workq_port, .. } = Config::embedded();
    Config { max_job_size, port, gearman_port, workq_port, ..config }
}

fn run_within(conversations: &[Conversation], pieces: Pieces) -> Vec<String> {
    let fails = |conversation: &Conversation| {
        let mut world = Within::new(&config(conversation), pieces);
        let result = run(conversation, &mut world);
        result.err().map(|problem| format!("{} ({}): {problem}", conversation.title, conversation.place))
    };
    conversations.iter().filter_map(fails).collect()
}

#[test]
fn on_a_virtual_clock() {
    check(run_within(&all(within::HOST), Pieces::AsSent));
}

#[test]
fn byte_by_byte() {
    check(run_within(&all(within::HOST), Pieces::Bytes));
}

/// Of conversations in which one client only sends and gets, everything it sends goes out at once.
#[test]
fn in_one_piece() {
    let mut merged = Vec::new();
    for mut conversation in all(within::HOST) {
        let plain = |what: &What| {
            !matches!(what, What::Open | What::HalfClose | What::Close | What::Eof | What::Pass(_) | What::Drain)
        };
        let first = conversation.steps.first().map_or("", |step| step.who.as_str()).to_owned();
        if !conversation.steps.iter().all(|step| plain(&step.what) && step.who == first) {
            continue;
        }
        let mut whole = Vec::new();
        let mut send = conversation.steps[0].clone();
        for step in &conversation.steps {
            if let What::Send(bytes) = &step.what {
                whole.extend_from_slice(bytes);
            }
        }
        send.what = What::Send(whole);
        conversation.steps.retain(|step| !matches!(step.what, What::Send(_) | What::Silence));
        conversation.steps.insert(0, send);
        merged.push(conversation);
    }
    assert!(merged.len() >= 100, "only {} conversations", merged.len());
    check(run_within(&merged, Pieces::AsSent));
}

#[test]
fn over_a_real_socket() {
    let uname = nix::sys::utsname::uname().expect("the name of this machine");
    let conversations = all(&uname.nodename().to_string_lossy());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut failures = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(conversation) = conversations.get(number) else { return failures };
            if let Err(problem) = over_socket(number, conversation) {
                failures.push(format!("{} ({}): {problem}", conversation.title, conversation.place));
            }
        }
    };
    let failures = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a thread that ends")).collect()
    });
    check(failures);
}

/// Every other one over TCP, the rest over Unix sockets.
fn over_socket(number: usize, conversation: &Conversation) -> Result<(), String> {
    let mut config = config(conversation);
    let path =
        |wire: Wire| std::env::temp_dir().join(format!("conversation-{}-{number}-{wire:?}.sock", std::process::id()));
    let address = |wire: Wire| match number % 2 {
        0 => Address::Tcp(None, None),
        _ => Address::Unix(path(wire)),
    };
    config.listen = vec![address(Wire::Beanstalk)];
    let speaks = |wire| conversation.steps.iter().any(|step| conversation.wire_of(&step.who) == wire);
    config.gearman.extend(speaks(Wire::Gearman).then(|| address(Wire::Gearman)));
    config.workq.extend(speaks(Wire::Workq).then(|| address(Wire::Workq)));
    let before = UNIX_EPOCH.elapsed().expect("a time after the epoch");
    let (server, clock) = Server::with_manual_clock(config).expect("a server");
    if !conversation.is_all(Wire::Beanstalk) {
        // Later than that by the moment that it took, which is no whole second.
        clock.advance(BEGIN - before);
    }
    let connect = |wire| match number % 2 {
        0 => {
            let address = server.address_of(speech(wire)).expect("a server that listens for this");
            Connection::Tcp(TcpStream::connect(address).expect("a connection"))
        }
        _ => Connection::Unix(UnixStream::connect(path(wire)).expect("a connection")),
    };
    let mut world = Sockets::new(connect, |time| clock.advance(time), || server.drain(), QUIET);
    let result = run(conversation, &mut world);
    server.check();
    result
}

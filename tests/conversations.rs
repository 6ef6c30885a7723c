//! Replays every recorded conversation against this server: on a virtual clock, in different chunk sizes, and over real
//! sockets.

mod script;
#[path = "script/within.rs"]
mod within;

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use beanpole::internals::options::{parse, Action};
use beanpole::internals::protocol::beanstalk::{COMMANDS, TAGS};
use beanpole::{Address, Client, Config, Server};
use script::{load, run, Connection, Conversation, Sockets, Step, What, Wire};
use within::{speech, Pieces, Within};

/// Time to wait for output in steps where the server must stay silent.
const QUIET: Duration = Duration::from_millis(40);

/// Start of conversations that contain absolute times: 2033-05-18T03:33:20Z. Over sockets, the start can be up to one
/// second later.
const BEGIN: Duration = Duration::from_secs(2_000_000_000);

/// Returns the conversations in all directories, including those of released versions.
fn all(host: &str) -> Vec<Conversation> {
    let folders = ["", "/extensions", "/gearman", "/workq"].map(|folder| format!("tests/conversations{folder}").into());
    let released = std::fs::read_dir("tests/released").expect("a directory");
    let released = released.map(|version| version.expect("an entry").path().join("conversations"));
    let folders = folders.into_iter().chain(released).filter(|folder: &PathBuf| folder.is_dir());
    let conversations: Vec<Conversation> = folders.flat_map(|folder| load(&folder, host).0).collect();
    assert!(conversations.len() >= 200, "only {} conversations", conversations.len());
    conversations
}

fn check(failures: Vec<String>) {
    assert!(failures.is_empty(), "{} conversations failed:\n{}", failures.len(), failures.join("\n"));
}

fn config(conversation: &Conversation) -> Config {
    let mut options = conversation.options.clone();
    // Bypasses the parser, because the option's minimum of 1M would require a long conversation.
    let memory = options.iter().position(|word| word == "--max-memory").map(|at| {
        let size = options.drain(at..at + 2).next_back();
        size.and_then(|size| size.parse().ok()).expect("a number of bytes")
    });
    let config = match parse(&options) {
        Ok(Action::Run(settings)) => settings.config,
        other => panic!("{}: {other:?}", conversation.place),
    };
    let max_job_size = conversation.max_job_size.unwrap_or(config.max_job_size);
    let Config { port, gearman_port, workq_port, .. } = Config::embedded();
    let max_memory = memory.unwrap_or(config.max_memory);
    config.with(|config| {
        config.max_job_size = max_job_size;
        config.max_memory = max_memory;
        config.port = port;
        config.gearman_port = gearman_port;
        config.workq_port = workq_port;
    })
}

fn run_within(conversations: &[Conversation], pieces: Pieces) -> Vec<String> {
    let fails = |conversation: &Conversation| {
        let mut world = Within::new(&config(conversation), pieces);
        let result = run(conversation, &mut world);
        result.err().map(|problem| format!("{} ({}): {problem}", conversation.title, conversation.place))
    };
    conversations.iter().filter_map(fails).collect()
}

// Tests promise P36 of beanpole-promises(7).
#[test]
fn on_a_virtual_clock() {
    check(run_within(&all(within::HOST), Pieces::AsSent));
}

#[test]
fn byte_by_byte() {
    check(run_within(&all(within::HOST), Pieces::Bytes));
}

#[test]
fn in_large_pieces() {
    check(run_within(&merged(within::HOST), Pieces::AsSent));
}

/// Returns all conversations, with consecutive inputs of a client merged into one send.
fn merged(host: &str) -> Vec<Conversation> {
    let mut conversations = all(host);
    let mut merged = 0;
    for conversation in &mut conversations {
        let before = conversation.steps.len();
        conversation.steps = conversation.steps.chunk_by(belong_together).flat_map(sent_at_once).collect();
        merged += usize::from(conversation.steps.len() < before);
    }
    assert!(merged >= 200, "only {merged} conversations");
    conversations
}

fn belong_together(one: &Step, next: &Step) -> bool {
    let plain = |what: &What| {
        !matches!(what, What::Open | What::HalfClose | What::Close | What::Eof | What::Pass(_) | What::Drain)
    };
    one.who == next.who && plain(&one.what) && plain(&next.what)
}

fn sent_at_once(steps: &[Step]) -> Vec<Step> {
    // Keeps the steps before the first send, because they can depend on the input of other clients.
    let first = steps.iter().position(|step| matches!(step.what, What::Send(_))).unwrap_or(steps.len());
    let (mut pieces, mut sent, mut got) = (steps[..first].to_vec(), Vec::new(), Vec::new());
    for (index, step) in steps.iter().enumerate().skip(first) {
        match &step.what {
            What::Send(bytes) => sent.extend_from_slice(bytes),
            // With merged input, the server can reply during a step that expects silence.
            What::Silence if index + 1 < steps.len() => {}
            _ => got.push(step.clone()),
        }
    }
    pieces.extend(steps.get(first).map(|step| Step { what: What::Send(sent), ..step.clone() }));
    pieces.extend(got);
    pieces
}

// Tests promise P36 of beanpole-promises(7).
#[test]
fn over_a_real_socket() {
    over_sockets(&all(&this_host()));
}

#[test]
fn over_a_real_socket_in_large_pieces() {
    over_sockets(&merged(&this_host()));
}

fn this_host() -> String {
    let uname = nix::sys::utsname::uname().expect("the host name");
    uname.nodename().to_string_lossy().into_owned()
}

fn over_sockets(conversations: &[Conversation]) {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut failures = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(conversation) = conversations.get(number) else { return failures };
            if let Err(problem) = over_socket(conversation) {
                failures.push(format!("{} ({}): {problem}", conversation.title, conversation.place));
            }
        }
    };
    let failures = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    check(failures);
}

/// Uses TCP and Unix sockets alternately.
fn over_socket(conversation: &Conversation) -> Result<(), String> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut config = config(conversation);
    let path =
        |wire: Wire| std::env::temp_dir().join(format!("conversation-{}-{number}-{wire:?}.sock", std::process::id()));
    let address = |wire: Wire| match number % 2 {
        0 => Address::Tcp(None, None),
        _ => Address::Unix(path(wire)),
    };
    config.listen = vec![address(Wire::Beanstalk)];
    // With more than two threads, several connections can share a turn, for which the server locks the engine once.
    config.threads = if number / 2 % 2 == 0 { 1 } else { 4 };
    let speaks = |wire| conversation.steps.iter().any(|step| conversation.wire_of(&step.who) == wire);
    config.gearman.extend(speaks(Wire::Gearman).then(|| address(Wire::Gearman)));
    config.workq.extend(speaks(Wire::Workq).then(|| address(Wire::Workq)));
    let now = || UNIX_EPOCH.elapsed().expect("a time after the epoch");
    let (server, clock, before) = loop {
        let before = now();
        let (server, clock) = Server::with_manual_clock(config.clone()).expect("a server");
        // After a slow start on a busy machine, the value of the clock would be uncertain.
        if now() - before < Duration::from_millis(500) {
            break (server, clock, before);
        }
    };
    if !conversation.is_all(Wire::Beanstalk) {
        clock.advance(BEGIN - before);
    }
    let connect = |wire| match number % 2 {
        0 => {
            let address = server.address_of(speech(wire)).expect("an address for this protocol");
            TcpStream::connect(address).map(Connection::Tcp)
        }
        _ => UnixStream::connect(path(wire)).map(Connection::Unix),
    };
    let mut world = Sockets::new(connect, |time| clock.advance(time), || server.drain(), QUIET);
    world.quiesce = Some(Box::new(|connections| server.quiesce(connections)));
    let result = run(conversation, &mut world);
    server.check();
    result
}

/// The line of examples/CLIENTS.md that precedes the generated test vectors.
const VECTORS: &str = "<!-- What follows is generated from tests/conversations/extensions/vectors.txt. -->\n";

/// Formats the test vectors as Markdown: the title, the comments below the title, and the steps.
fn page_of(vectors: &str) -> String {
    let mut page = String::new();
    for conversation in vectors.split("\n== ").skip(1) {
        let (title, rest) = conversation.split_once('\n').expect("lines below the title");
        let (comments, steps): (Vec<&str>, Vec<&str>) = rest.trim_end().lines().partition(|line| line.starts_with('#'));
        let prose: Vec<&str> = comments.iter().map(|line| line[1..].trim()).collect();
        page += &format!("\n### {title}\n\n{}\n\n```text\n{}\n```\n", prose.join("\n"), steps.join("\n"));
    }
    page
}

#[test]
fn the_page_for_clients_shows_the_vectors_and_each_extension_has_one() {
    let vectors = std::fs::read_to_string("tests/conversations/extensions/vectors.txt").unwrap();
    let server = Server::start().expect("a server");
    let mut client = Client::connect(server.address()).expect("a connection");
    let extensions = client.figure("stats", "extensions").expect("the extensions in stats");
    let titles =
        vectors.lines().filter_map(|line| line.strip_prefix("== ")).filter(|title| !title.starts_with("errors "));
    let titles: BTreeSet<&str> = titles.collect();
    assert_eq!(extensions.trim_matches('"').split(' ').collect::<BTreeSet<_>>(), titles, "vectors.txt");
    for row in COMMANDS.iter().filter(|row| row.extension.is_some()) {
        let is_sent = |line: &str| line.split_once(": ").is_some_and(|(_, sent)| sent.starts_with(row.word));
        assert!(vectors.lines().any(is_sent), "vectors.txt: no vector shows the command {}", row.word);
    }
    for (tag, _) in TAGS {
        let tag = format!(" {}", std::str::from_utf8(tag).expect("text"));
        assert!(vectors.contains(&tag), "vectors.txt: no vector shows the tag{tag}");
    }
    let page = std::fs::read_to_string("examples/CLIENTS.md").unwrap();
    let (text, shown) = page.split_once(VECTORS).expect("the line above the vectors");
    for placeholder in ["<n>", "<any>", "<len>"] {
        assert!(text.contains(&format!("`{placeholder}`")), "examples/CLIENTS.md does not explain {placeholder}");
    }
    let wanted = page_of(&vectors);
    if shown != wanted {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("CLIENTS.md");
        std::fs::write(&path, [text, VECTORS, &wanted].concat()).unwrap();
        panic!("outdated vectors in examples/CLIENTS.md: cp {} examples/", path.display());
    }
}

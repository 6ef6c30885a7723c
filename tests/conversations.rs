//! Every golden conversation, in this process on a virtual clock, in other pieces, and over real sockets.

mod script;

use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use beanpole::{Config, Server};
use script::{load, run, Connection, Conversation, Pieces, Sockets, What, Within};

fn all() -> Vec<Conversation> {
    let conversations = load(Path::new("tests/conversations")).0;
    assert!(conversations.len() >= 200, "only {} conversations", conversations.len());
    conversations
}

fn check(failures: Vec<String>) {
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

fn within(conversations: &[Conversation], pieces: Pieces) -> Vec<String> {
    let fails = |conversation: &Conversation| {
        let mut world = Within::new(conversation.max_job_size, pieces);
        let result = run(conversation, &mut world);
        result.err().map(|problem| format!("{} ({}): {problem}", conversation.title, conversation.place))
    };
    conversations.iter().filter_map(fails).collect()
}

#[test]
fn on_a_virtual_clock() {
    check(within(&all(), Pieces::AsSent));
}

#[test]
fn byte_by_byte() {
    check(within(&all(), Pieces::Bytes));
}

/// Of conversations in which one client only sends and gets, everything it sends goes out at once.
#[test]
fn in_one_piece() {
    let mut merged = Vec::new();
    for mut conversation in all() {
        let plain = |what: &What| matches!(what, What::Send(_) | What::Expect { .. } | What::RestOfBody | What::Silence);
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
    check(within(&merged, Pieces::AsSent));
}

#[test]
fn over_a_real_socket() {
    let conversations = all();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut failures = Vec::new();
        while let Some(conversation) = conversations.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(problem) = over_socket(conversation) {
                failures.push(format!("{} ({}): {problem}", conversation.title, conversation.place));
            }
        }
        failures
    };
    let failures = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a thread that ends")).collect()
    });
    check(failures);
}

fn over_socket(conversation: &Conversation) -> Result<(), String> {
    let mut config = Config::embedded();
    config.max_job_size = conversation.max_job_size.unwrap_or(config.max_job_size);
    let (server, clock) = Server::with_manual_clock(config).expect("a server");
    let address = server.address();
    let connect = || Connection::Tcp(TcpStream::connect(address).expect("a connection"));
    let quiet = Duration::from_millis(40);
    let mut world = Sockets::new(connect, |time| clock.advance(time), || server.drain(), quiet);
    let result = run(conversation, &mut world);
    server.check();
    result
}

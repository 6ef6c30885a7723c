//! The scenes: their threads and the expected results.
//!
//! Owns simplified copies of the parts of `pool.rs` and `hub.rs` that use sockets: the loop of the owning thread, and
//! the order of locking, replying and flushing.

use std::sync::Arc;

use beanpole::internals::engine::Time;
use shuttle::thread;

use crate::protocol::Output;
use crate::server::delivery::{EventLimits, Message, Outbox, ThreadHandle, WriteState};
use crate::server::background;
use crate::server::hub::{Hub, TurnScratch};
use crate::server::socket::{anything, only_durable, Look, PeerAddress, Stream};
use crate::shims::{unbounded, Mutex, Ordering, Receiver, Waker};

/// The name of a scene, and the function that runs it once in each schedule.
pub type Scene = (&'static str, fn());

pub const SCENES: [Scene; 10] = [
    ("notes-wake-the-owner", notes_wake_the_owner),
    ("replies-in-order", replies_in_order),
    ("a-wait-ends", a_wait_ends),
    ("a-wait-ends-in-a-shared-turn", a_wait_ends_in_a_shared_turn),
    ("replies-wait-for-the-log", || replies_wait_for_the_log(1, false)),
    ("replies-while-the-disk-fails", || replies_wait_for_the_log(1, true)),
    ("shared-turns-wait-for-the-log", || replies_wait_for_the_log(2, false)),
    ("shared-turns-while-the-disk-fails", || replies_wait_for_the_log(2, true)),
    ("deadlines-reach-the-timer", deadlines_reach_the_timer),
    ("the-timer-stops", the_timer_stops),
];

/// Limits that are so high that the scenes never reach them.
const PLENTY: EventLimits = EventLimits { reading: 1 << 20, stuck: 1 << 20 };

/// The thread that owns connections, with its messages and with the waker that ends its sleep.
struct Owner {
    handle: Arc<ThreadHandle>,
    inbox: Receiver<Message>,
    waker: Waker,
}

fn owner() -> Owner {
    let (sender, inbox) = unbounded();
    let waker = Waker::default();
    let handle = Arc::new(ThreadHandle::new(sender, waker.clone(), Arc::default(), Arc::default()));
    Owner { handle, inbox, waker }
}

impl Owner {
    /// Receives the next message in the same way as `PoolThread::run`. Sleeps while there is no message.
    fn next(&self) -> Message {
        loop {
            self.handle.will_sleep();
            let rests = self.inbox.is_empty();
            if rests {
                self.waker.wait();
            }
            self.handle.is_awake();
            if let Some(note) = self.inbox.try_recv() {
                return note;
            }
        }
    }
}

fn output(bytes: &[u8]) -> Output {
    let mut out = Output::new();
    out.text().extend_from_slice(bytes);
    out
}

fn outbox(owner: &Owner, room: usize, look: Look) -> (Arc<Outbox>, Stream) {
    let stream = Stream::new(room, look);
    (Arc::new(Outbox::new(stream.clone(), PeerAddress, owner.handle.clone(), 0)), stream)
}

/// Sends output after each message, until the peer has received `count` bytes. A thread that has not sent all output
/// must have sent a message.
fn send_rest(owner: &Owner, outbox: &Outbox, stream: &Stream, count: usize) {
    while stream.arrived().len() < count {
        owner.next();
        outbox.flush(&mut Output::new());
    }
}

/// Two threads send messages while the owner goes to sleep and wakes up.
fn notes_wake_the_owner() {
    let owner = owner();
    let senders: Vec<_> = (0..2)
        .map(|from| {
            let handle = owner.handle.clone();
            thread::spawn(move || (0..2).for_each(|place| handle.send(Message::Resume(from * 2 + place))))
        })
        .collect();
    let mut seen: Vec<usize> = (0..4)
        .map(|_| {
            let Message::Resume(number) = owner.next() else { unreachable!("an outbox sends only this message") };
            number
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3]);
    senders.into_iter().for_each(|sender| sender.join().expect("a thread"));
}

/// Two threads send notifications to one client in the order in which they lock the engine. The client's socket is
/// sometimes full. The owner resumes writing when the socket becomes writable, or when another thread wakes it.
fn replies_in_order() {
    const EACH: u8 = 3;
    let owner = owner();
    let (outbox, stream) = outbox(&owner, 1, anything());
    let engine = Arc::new(Mutex::new(0_u8));
    let tellers: Vec<_> = (0..2)
        .map(|_| {
            let (engine, outbox) = (engine.clone(), outbox.clone());
            thread::spawn(move || {
                for _ in 0..EACH {
                    let mut last = engine.lock();
                    *last += 1;
                    let must_notify = outbox.push_events(&mut output(&[*last]), PLENTY);
                    drop(last);
                    outbox.flush_events(&mut Output::new());
                    if must_notify {
                        outbox.wake_owner();
                    }
                }
            })
        })
        .collect();
    let reader = {
        let (stream, outbox) = (stream.clone(), outbox.clone());
        thread::spawn(move || {
            while stream.arrived().len() < usize::from(EACH * 2) {
                if stream.make_room(2) {
                    // In the server, the poller reports a writable socket. Here, this thread wakes the owner instead.
                    outbox.wake_owner();
                }
                thread::yield_now();
            }
            // Wakes the owner once more, so that it checks for remaining data.
            outbox.wake_owner();
        })
    };
    send_rest(&owner, &outbox, &stream, usize::from(EACH * 2));
    tellers.into_iter().chain([reader]).for_each(|thread| thread.join().expect("a thread"));
    assert_eq!(stream.arrived(), [1, 2, 3, 4, 5, 6]);
    assert!(matches!(outbox.write_state(1 << 20, false, false), WriteState::Clear));
}

/// A client has sent commands after a command that waits. The thread that delivers a job or a durable result must wake
/// the owner, whatever the owner's state is.
fn a_wait_ends() {
    let owner = owner();
    let (outbox, stream) = outbox(&owner, 10, anything());
    outbox.reply(&mut Output::new(), true, false);
    let teller = {
        let outbox = outbox.clone();
        thread::spawn(move || {
            outbox.hold();
            let must_notify = outbox.push_events(&mut output(b"job"), PLENTY);
            outbox.flush_events(&mut Output::new());
            if must_notify {
                outbox.wake_owner();
            }
            outbox.release(&mut Output::new());
        })
    };
    loop {
        match outbox.write_state(1 << 20, false, true) {
            WriteState::Waiting | WriteState::Blocked => {
                owner.next();
                outbox.flush(&mut Output::new());
            }
            WriteState::Open | WriteState::Clear => break,
            other => panic!("unexpected state: {other:?}"),
        }
    }
    // The owner's next reply must follow the notification.
    outbox.reply(&mut output(b"!"), false, false);
    outbox.flush(&mut Output::new());
    teller.join().expect("a thread");
    send_rest(&owner, &outbox, &stream, 4);
    assert_eq!(stream.arrived(), b"job!");
}

/// In one turn of the owner, one client begins to wait, and another client's command ends this wait. At the same time,
/// another thread releases a delayed reply to the first client.
fn a_wait_ends_in_a_shared_turn() {
    let owner = owner();
    let (waiting, waiting_stream) = outbox(&owner, 10, anything());
    let (putting, putting_stream) = outbox(&owner, 10, anything());
    let engine = Mutex::new(());
    waiting.hold();
    let releaser = {
        let waiting = waiting.clone();
        thread::spawn(move || waiting.release(&mut Output::new()))
    };
    let locked = engine.lock();
    waiting.reply(&mut Output::new(), true, false);
    let must_notify = waiting.push_events(&mut output(b"job"), PLENTY);
    putting.reply(&mut output(b"put"), false, false);
    drop(locked);
    waiting.flush_events(&mut Output::new());
    if must_notify {
        waiting.wake_owner();
    }
    let on_message = || {
        owner.next();
        for outbox in [&waiting, &putting] {
            outbox.flush(&mut Output::new());
        }
    };
    for outbox in [&waiting, &putting] {
        outbox.flush(&mut Output::new());
        while matches!(outbox.write_state(1 << 20, false, true), WriteState::Waiting | WriteState::Blocked) {
            on_message();
        }
    }
    releaser.join().expect("a thread");
    while waiting_stream.arrived().len() + putting_stream.arrived().len() < 6 {
        on_message();
    }
    assert_eq!((waiting_stream.arrived(), putting_stream.arrived()), (b"job".to_vec(), b"put".to_vec()));
}

/// Replies of pool threads wait until the syncer has synced the log. Each reply contains the log position that it
/// depends on. In each turn, a pool thread executes commands of `shares` connections.
fn replies_wait_for_the_log(shares: usize, fails: bool) {
    let hub = Arc::new(Hub::new(true));
    let (_, run) =
        background::log_threads(hub.durability()).into_iter().find(|(name, _)| *name == "syncer").expect("a syncer");
    let syncer = {
        let hub = hub.clone();
        thread::spawn(move || run(&hub, hub.durability()))
    };
    let pools: Vec<_> = (0..2)
        .map(|place| {
            let hub = hub.clone();
            thread::spawn(move || pool_thread(&hub, shares, fails && place == 1))
        })
        .collect();
    if fails {
        hub.durability().wal.fail(true);
        thread::yield_now();
        hub.durability().wal.fail(false);
        // Does the work of the segments thread, which syncs the log after the disk has recovered.
        hub.durability().sync(&*hub, &mut Output::new());
    }
    let streams: Vec<Stream> = pools.into_iter().flat_map(|pool| pool.join().expect("a thread")).collect();
    hub.durability().stop();
    syncer.join().expect("a thread");
    // The bytes are compared only after all threads have ended, because a thread may still be writing a released reply
    // when the owner continues.
    let mut all: Vec<u8> = streams.iter().flat_map(Stream::arrived).collect();
    all.sort_unstable();
    assert_eq!(all, (1..=4 * shares as u8).collect::<Vec<_>>());
}

/// Executes two commands on each of `shares` connections. Each command appends a record. The second commands start
/// after all replies to the first commands have been released.
fn pool_thread(hub: &Arc<Hub>, shares: usize, lesser: bool) -> Vec<Stream> {
    let owner = owner();
    let (outboxes, streams): (Vec<_>, Vec<_>) =
        (0..shares).map(|_| outbox(&owner, 100, only_durable(hub.clone()))).unzip();
    for _ in 0..2 {
        let mut core = hub.core.lock();
        for outbox in &outboxes {
            let before = core.journal.required;
            core.journal.position += 1;
            let position = core.journal.position;
            let required = &mut core.journal.required;
            (required.any, required.count) = (position, required.count + 1);
            if lesser {
                hub.lesser.fetch_or(1 << position, Ordering::AcqRel);
            } else {
                (required.puts, required.put_count) = (position, required.put_count + 1);
            }
            let after = core.journal.required;
            let mut out = output(&[position as u8]);
            match hub.durability().promise(before, after) {
                Some(promise) => hub.durability().hold(promise, outbox, &mut out, false, None),
                None => outbox.reply(&mut out, false, false),
            };
        }
        hub.durability().appended(core.journal.position, false);
        drop(core);
        for outbox in &outboxes {
            outbox.flush(&mut Output::new());
        }
        hub.durability().commit(&**hub, true, &mut Output::new());
        for outbox in &outboxes {
            while matches!(outbox.write_state(1 << 20, false, true), WriteState::Blocked) {
                owner.next();
            }
        }
    }
    for outbox in &outboxes {
        outbox.flush(&mut Output::new());
    }
    streams
}

/// Two threads each add a deadline that is not due, and then a deadline that is due immediately. The first deadline
/// must not end the wait of the timer thread. The timer thread, or a later turn of another thread, must handle the
/// second deadline.
fn deadlines_reach_the_timer() {
    let hub = Arc::new(Hub::new(false));
    let timer = {
        let hub = hub.clone();
        thread::spawn(move || background::run_timer(&hub))
    };
    let turns: Vec<_> = (0..2)
        .map(|place| {
            let hub = hub.clone();
            thread::spawn(move || {
                for nanos in [5000 + place, 500 + place] {
                    let due = Time::from_nanos(nanos);
                    hub.turn(&mut TurnScratch::default(), |core, _, _| {
                        core.due = Some(core.due.map_or(due, |other| other.min(due)))
                    });
                }
            })
        })
        .collect();
    turns.into_iter().for_each(|turn| turn.join().expect("a thread"));
    // The other threads have ended. If the timer thread sleeps while a deadline is due, this loop does not end.
    let now = hub.clock.now();
    while hub.core.lock().due.is_some_and(|due| due <= now) {
        thread::yield_now();
    }
    assert!((1..=2).contains(&hub.served.load(Ordering::Acquire)));
    hub.alarm.stop();
    timer.join().expect("a thread");
}

/// The timer thread must stop on request, in every state.
fn the_timer_stops() {
    let hub = Arc::new(Hub::new(false));
    let timer = {
        let hub = hub.clone();
        thread::spawn(move || background::run_timer(&hub))
    };
    let other = {
        let hub = hub.clone();
        thread::spawn(move || hub.alarm.advance(Time::from_nanos(2000)))
    };
    hub.alarm.stop();
    other.join().expect("a thread");
    timer.join().expect("a thread");
}

//! Runs the simulation for one seed.
//!
//! Owns the loop that chooses and executes actions, the final drain, and the report of failures. `reduction` shortens
//! failing histories.

use std::collections::BTreeSet;
use std::io::{Read, Write};

use beanpole::internals::engine::{Engine, Span, State};
use beanpole::internals::protocol::Wire;

use crate::action::{received, sent, Action};
use crate::chance::{next, Setup};
use crate::random::Random;
use crate::reduction::reduced;
use crate::shortening::quietly;
use crate::world::World;

pub struct Played {
    pub problem: Option<String>,
    pub actions: Vec<Action>,
    pub steps: usize,
    pub hash: u64,
    /// The number of drains after which the server accepted jobs again.
    pub drains: usize,
    /// `true` if the prediction was abandoned, because too many histories were possible.
    pub lost: bool,
    pub setup: String,
}

fn setup(seed: u64) -> (Random, Setup) {
    let mut random = Random::new(seed);
    let setup = Setup::drawn(&mut random);
    (random, setup)
}

/// Executes the first `steps` actions of a seed, and then empties the queue.
pub fn play_seed(seed: u64, steps: usize) -> Played {
    let (mut random, setup) = setup(seed);
    let setup_text = format!("{setup:?}");
    let (mut actions, mut hash, mut lost, mut drains) = (Vec::new(), 0, false, Drains::default());
    let result = quietly(|| {
        let mut world = World::new(setup);
        for _ in 0..steps {
            let action = next(&mut random, &world);
            actions.push(action);
            world.step(actions.last().expect("an action"))?;
            world.look(|engine| drains.observe(engine));
            hash = world.hash;
        }
        world.finish()?;
        (hash, lost) = (world.hash, world.lost);
        Ok(())
    });
    Played { problem: result.err(), steps: actions.len(), actions, hash, drains: drains.over, lost, setup: setup_text }
}

/// Counts the drains after which the server accepted jobs again.
#[derive(Default)]
struct Drains {
    last_id: Option<u64>,
    over: usize,
}

impl Drains {
    fn observe(&mut self, engine: &Engine) {
        if engine.stats().draining {
            self.last_id = Some(engine.last_id());
        } else if self.last_id.is_some_and(|last| engine.last_id() > last) {
            self.last_id = None;
            self.over += 1;
        }
    }
}

fn replay(seed: u64, actions: &[Action]) -> Result<(), String> {
    let (_, setup) = setup(seed);
    quietly(|| {
        let mut world = World::new(setup.clone());
        actions.iter().try_for_each(|action| world.step(action))?;
        world.finish()
    })
}

pub fn explain(seed: u64, played: &Played) -> String {
    let (_, setup) = setup(seed);
    let reduced = reduced(played.actions.clone(), setup.clients, |fewer| replay(seed, fewer).is_err());
    let problem = replay(seed, &reduced.actions).err().unwrap_or_default();
    format!(
        "{}\nreduced from {} to {} actions by {} replays of {} actions in total: {problem}\n\n{}",
        played.setup,
        played.steps,
        reduced.actions.len(),
        reduced.replays,
        reduced.effort,
        conversation(seed, &reduced.actions)
    )
}

/// Returns the actions as a conversation with the replies that the model predicts.
fn conversation(seed: u64, actions: &[Action]) -> String {
    let (_, setup) = setup(seed);
    let mut text = format!("== seed {seed}\n");
    let result = quietly(|| {
        let mut world = World::new(setup.clone());
        let mut owed = vec![0; setup.clients];
        let mut unsaid: Vec<Vec<u8>> = vec![Vec::new(); setup.clients];
        for action in actions {
            text.push_str(&action.describe());
            match action {
                Action::Connect(who, _) => (owed[*who], unsaid[*who]) = (0, Vec::new()),
                Action::Say(who, wire, words) if world.client(*who).is_some_and(|client| client.wire == *wire) => {
                    unsaid[*who].extend_from_slice(words);
                }
                Action::Send(who, count) => {
                    let count = (*count).min(unsaid[*who].len());
                    let bytes: Vec<u8> = unsaid[*who].drain(..count).collect();
                    text.push_str(&sent(*who, &bytes));
                }
                _ => {}
            }
            let result = world.step(action);
            for (who, owed) in owed.iter_mut().enumerate() {
                if let Some(bytes) = world.expected(who).filter(|bytes| bytes.len() > *owed) {
                    text.push_str(&received(who, &bytes[*owed..]));
                    *owed = bytes.len();
                }
            }
            result?;
        }
        Ok(())
    });
    if let Err(problem) = result {
        text.push_str(&format!("# {problem}\n"));
    }
    text
}

/// Reserves and deletes all remaining jobs. Each job that must exist must be delivered exactly once.
// Checks promises P1 and P2 of beanpole-promises(7).
pub fn drain_all(world: &mut World) -> Result<(), String> {
    let (books, server) = world.end();
    let mut stream = server.connect(Wire::Beanstalk).expect("a pair of sockets");
    let mut got = BTreeSet::new();
    let mut ask = |server: &mut beanpole::internals::server::Stepped, words: &str| {
        stream.write_all(words.as_bytes()).expect("a server that reads");
        for _ in 0..1000 {
            let idle = !server.round();
            server.timer();
            server.commit();
            server.sync();
            server.segments();
            if idle {
                break;
            }
        }
        let mut buffer = vec![0; 1 << 20];
        let mut text = String::new();
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        text
    };
    // Deletes the schedules first, because they would put jobs forever.
    for id in server.look(|engine| {
        let scheduled = engine.jobs().filter(|job| job.state() == State::Scheduled);
        scheduled.map(|job| job.id().0).collect::<Vec<_>>()
    }) {
        ask(server, &format!("delete {id}\r\n"));
        got.insert(id);
    }
    for _ in 0..400 {
        let tubes: Vec<String> =
            server.look(|engine| engine.tube_names().map(|name| String::from_utf8_lossy(name).into_owned()).collect());
        for tube in tubes {
            ask(server, &format!("watch {tube}\r\nuse {tube}\r\npause-tube {tube} 0\r\nkick 1000\r\n"));
        }
        loop {
            let answer = ask(server, "reserve-with-timeout 0\r\n");
            let Some(rest) = answer.strip_prefix("RESERVED ") else { break };
            let id: u64 = rest.split(' ').next().and_then(|id| id.parse().ok()).ok_or("no job ID")?;
            if !got.insert(id) {
                return Err(format!("job {id} was reserved twice"));
            }
            let gone = ask(server, &format!("delete {id}\r\n"));
            if gone != "DELETED\r\n" {
                return Err(format!("job {id} was reserved, but the reply to its delete is {gone:?}"));
            }
        }
        server.check();
        let left = server.look(|engine| engine.stats().jobs);
        if left.all() == 0 {
            return books.are_among(&got);
        }
        // If all remaining jobs wait for each other or for groups to which no job was added, ends one of these waits.
        if left.all() == left.held {
            let held = server.look(|engine| engine.jobs().map(|job| job.id().0).min().unwrap_or_default());
            ask(server, &format!("kick-job {held}\r\n"));
        }
        server.pass(Span::from_secs(30));
    }
    Err(format!(
        "jobs that were not delivered: {:?}",
        server.look(|engine| engine.jobs().map(|job| format!("{job:?}")).collect::<Vec<_>>())
    ))
}

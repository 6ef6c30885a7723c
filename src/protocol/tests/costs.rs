//! Tests that lists cost engine steps in proportion to the length of the names that are listed or searched.
//!
//! Owns no data. Must not measure time.

use super::*;

const TURN: u64 = 1000;
const TUBES: usize = 100;

/// Returns a quoted name of 512 bytes. The server also writes most of these bytes as four bytes.
fn long_name(number: usize) -> String {
    format!("\"{number:03}{}\"", r"\xff".repeat(509))
}

/// Executes requests in turns of [`TURN`] steps. Returns the total number of steps.
fn steps(world: &mut World, peer: usize, bytes: &[u8]) -> u64 {
    world.steps = TURN;
    let mut steps = 0;
    for request in world.decode(peer, bytes) {
        let mut next = Some(request);
        while let Some(request) = next.take() {
            let flow = world.turn(peer, request);
            let used = world.engine.steps().used();
            assert!(used <= TURN + 600, "{used} steps in a turn of {TURN}");
            steps += used;
            if let Flow::Continue(rest) = flow {
                next = Some(*rest);
            }
        }
    }
    world.steps = u64::MAX;
    steps
}

#[test]
fn long_names_in_a_list_cost_more_steps() {
    let mut world = World::new(true);
    let peer = world.peer(Wire::Beanstalk);
    for number in 0..TUBES {
        let name = long_name(number);
        world.send(peer, format!("watch {name}\r\nput 0 0 9 0 tub:{name} idp:{name}:99\r\n\r\n").as_bytes());
        world.send(peer, b"reserve-with-timeout 0\r\n");
        let jobs = world.engine.jobs().filter(|job| job.state() == State::Reserved && job.body().is_empty());
        let id = jobs.map(|job| job.id().0).next().expect("a reserved job");
        world.send(peer, format!("delete {id}\r\n").as_bytes());
    }
    for (list, names) in [("list-tubes", TUBES), ("list-keys 0", 2 * TUBES)] {
        world.peers[peer].received.clear();
        let steps = steps(&mut world, peer, format!("{list}\r\n").as_bytes());
        let bytes = world.peers[peer].received.len();
        assert!(bytes > names * 2000, "{list}: {bytes} bytes");
        assert!(steps >= bytes as u64 / 64, "{list}: {steps} steps for {bytes} bytes");
    }
}

#[test]
fn short_list_of_tubes_takes_one_turn() {
    let mut world = World::new(true);
    let peer = world.peer(Wire::Beanstalk);
    for tube in 0..400 {
        world.send(peer, format!("watch tube{tube}\r\n").as_bytes());
    }
    world.peers[peer].received.clear();
    let steps = steps(&mut world, peer, b"list-tubes\r\n");
    assert!((400..500).contains(&steps), "{steps} steps");
}

#[test]
fn search_in_long_properties_of_connections_costs_more_steps() {
    let mut world = World::new(true);
    for _ in 0..10 {
        let peer = world.peer(Wire::Beanstalk);
        (0..16).for_each(|tube| world.send(peer, format!("watch {}\r\n", long_name(tube)).as_bytes()));
    }
    let bytes = world.http("GET /api/connections?filter=nowhere", "").expect("a request");
    let visitor = world.requester;
    let steps = steps(&mut world, visitor, &bytes);
    let reply = String::from_utf8_lossy(&world.peers[visitor].received).into_owned();
    assert!(reply.contains("\"total\":0"), "{reply}");
    assert!(steps >= 10 * 15 * 2000 / 64, "{steps} steps");
}

//! A client that uses extensions: tags, batches, moves, flushes, lists, limits, weights and waits.
//!
//! No other client uses the tubes of this client, so all replies are predictable.

use beanpole::{Client, PutResult, PutTags, WaitResult};

use crate::{Done, Stage};

const JOBS: u64 = 40;
const AT_A_TIME: u32 = 6;

/// Returns tags with a different idempotency key for each job and a different concurrency key for each round, because
/// a long run must be able to use any number of keys.
fn tags(round: u64, number: u64) -> PutTags {
    PutTags::default().with(|tags| {
        tags.unique = Some((format!("key-{round}-{number}"), 1));
        tags.tube = Some("extended".into());
        tags.tries = Some((2, 0));
        tags.ttl = Some(3600);
        tags.concurrency = Some((format!("con-{round}"), AT_A_TIME));
    })
}

fn put(client: &mut Client, round: u64) -> Vec<u64> {
    let mut ids = Vec::new();
    for number in 0..JOBS {
        let tags = tags(round, number);
        let PutResult::New(id) = client.put_tagged(b"extended", 1, 0, 60, &tags).expect("a job") else {
            panic!("key {number} of round {round} must be unused")
        };
        let again = client.put_tagged(b"again", 1, 0, 60, &tags).expect("a reply");
        assert_eq!(again, PutResult::Duplicate { id, state: "READY".into() });
        ids.push(id);
    }
    ids
}

/// Reserves and deletes a batch of jobs. Returns the number of jobs.
fn batch(client: &mut Client) -> u64 {
    let batch = client.reserve_batch(100, None).expect("a batch");
    assert_eq!(batch.len(), AT_A_TIME as usize, "the concurrency key must limit the batch");
    assert_eq!(client.touch_all().expect("a reply"), u64::from(AT_A_TIME));
    let ids: Vec<u64> = batch.iter().map(|job| job.id).collect();
    let done = client.delete_batch(&ids).expect("a reply");
    assert_eq!(done, u64::from(AT_A_TIME));
    assert!(matches!(client.wait(ids[0], 0), Err(beanpole::ClientError::Refused(_))), "a deleted job must not exist");
    done
}

/// Fails a job twice, so that the server buries the job. Then deletes the buried jobs of its tube, and returns their
/// number.
fn tries(client: &mut Client) -> u64 {
    let first = client.reserve_batch(1, None).expect("a batch")[0].id;
    client.release(first, 0, 0).expect("a job reserved by this client");
    let again = client.reserve(Some(0)).expect("a reply").expect("a job");
    assert_eq!(again.id, first, "the most urgent job");
    assert!(client.release(first, 0, 0).is_err(), "the last try must bury the job");
    assert_eq!(client.wait(first, 0).expect("a reply"), WaitResult::Buried);
    client.flush_buried("extended").expect("a reply")
}

/// Moves the remaining jobs to the tube `moved`, and flushes this tube. Returns the number of removed jobs.
fn move_and_flush(client: &mut Client, left: &[u64]) -> u64 {
    assert_eq!(client.list_jobs("extended", "ready", 0, 1000).expect("a list"), left);
    let weight = client.watch_weighted("moved", 3).expect("a tube");
    assert_eq!(weight, 2, "the client must watch two tubes");
    assert_eq!(client.move_tube("extended", "moved", "ready", 1000).expect("a reply"), left.len() as u64);
    client.limit_tube("moved", 1).expect("a reply");
    let more = PutTags::default().with(|tags| tags.tube = Some("moved".into()));
    assert!(client.put_tagged(b"more", 1, 0, 60, &more).is_err(), "the tube is full");
    client.limit_tube("moved", 0).expect("a reply");
    let held = client.reserve(Some(0)).expect("a reply").expect("a job");
    client.move_job(held.id, "moved", 7, 100).expect("a job reserved by this client");
    client.ignore("moved").expect("a tube");
    client.flush_tube("moved").expect("a reply")
}

pub fn run(connect: &dyn Fn() -> Client, stage: &Stage, done: &Done) {
    let begin = || {
        let mut client = connect();
        client.watch("extended").expect("a tube");
        client.ignore("default").expect("a tube");
        client
    };
    let mut client = begin();
    let mut round = 0;
    while stage.goes_on() {
        round += 1;
        let ids = put(&mut client, round);
        let mut ended = batch(&mut client) + tries(&mut client);
        let left = client.list_jobs("extended", "ready", 0, 1000).expect("a list");
        assert!(left.iter().all(|id| ids.contains(id)), "only jobs of this round may exist");
        ended += move_and_flush(&mut client, &left);
        assert_eq!(ended, JOBS, "each job must end once");
        done.add(ended);
        if round % 20 == 0 {
            client = begin();
        }
    }
}

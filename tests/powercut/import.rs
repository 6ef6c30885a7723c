//! Creates a binlog of beanstalkd, for histories that begin with an import.
//!
//! Owns the required record types in format 7: ready, delayed, buried and deleted jobs. Must not create damaged
//! records, which `tests/durability/import.rs` covers.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::book::Job;
use crate::change::{Body, Change, Wire};
use crate::check::prefix;
use crate::random::Random;

const JOBS: u64 = 40;

const SECOND: u64 = 1_000_000_000;

const LENGTHS: [usize; 8] = [0, 10, 30, 100, 300, 1000, 3000, 20_000];
const DELAY: u64 = 10_000;
const TTR: u64 = 3600;

/// Returns beanstalkd's code for a job state.
fn state(job: &Job, buries: u32) -> u8 {
    match (buries, job.delay) {
        (1.., _) => 3,
        (0, 1..) => 4,
        (0, 0) => 1,
    }
}

fn record(id: u64, job: &Job, born: u64, buries: u32, state: u8) -> Vec<u8> {
    let due = born + job.delay * SECOND;
    let mut bytes = (job.tube.len() as u32).to_le_bytes().to_vec();
    bytes.extend(job.tube.as_bytes());
    for word in [id, u64::from(job.pri), job.delay * SECOND, job.ttr * SECOND] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend((job.body.length as u32 + 2).to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(born.to_le_bytes());
    bytes.extend(due.to_le_bytes());
    // The numbers of reservations, timeouts, releases, buries and kicks.
    bytes.extend([0, 0, 0, buries, 0].iter().flat_map(|count: &u32| count.to_le_bytes()));
    bytes.extend([state, 0, 0, 0]);
    bytes
}

/// Returns the names and the contents of the files, and the changes that the import must make.
pub fn foreign(random: &mut Random) -> (Vec<(String, Vec<u8>)>, Vec<Change>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_nanos() as u64;
    let mut files = vec![("binlog.1".to_owned(), 7_u32.to_le_bytes().to_vec())];
    let mut changes = Vec::new();
    for id in 1..=JOBS {
        if id == JOBS / 2 {
            files.push(("binlog.2".to_owned(), 7_u32.to_le_bytes().to_vec()));
        }
        let (_, file) = files.last_mut().expect("a file");
        let tube = format!("{}t{}", prefix(0), random.below(3));
        let delay = if random.once_in(4) { DELAY } else { 0 };
        let body = Body::new(&format!("foreign{id}"), random.pick(&LENGTHS));
        let job = Job::new(Wire::Beanstalk, &tube, body.clone(), random.below(9) as u32, delay, TTR);
        let put = Change::Put { key: id.to_string(), job: Box::new(job.clone()) };
        changes.push(put);
        let (bury, delete) = (delay == 0 && random.once_in(4), random.once_in(5));
        let buries = u32::from(bury);
        file.extend([record(id, &job, now, buries, state(&job, buries)), body.bytes(), b"\r\n".to_vec()].concat());
        if bury {
            changes.push(Change::Bury { key: id.to_string(), pri: job.pri });
        }
        if delete {
            // A short record does not contain the name of the tube.
            let nameless = Job { tube: String::new(), ..job };
            file.extend(record(id, &nameless, now, buries, 0));
            changes.push(Change::Delete { key: id.to_string() });
        }
    }
    files.iter_mut().for_each(|(_, bytes)| bytes.extend([0; 500]));
    (files, changes)
}

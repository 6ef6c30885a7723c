//! The input of the simulated clients.
//!
//! Owns the random choice of commands for existing jobs in each protocol, and of occasional invalid input. Must not
//! depend on replies.

use beanpole::internals::protocol::Wire;

use crate::predicted::{TUBES, UNATTENDED};
use crate::random::Random;
use crate::reference::model::Name;
use crate::{extended, operators};

pub struct Topic<'a> {
    pub jobs: &'a [u64],
    /// `true` if no more jobs may be put.
    pub enough: bool,
    /// `true` to use only commands that the reference model supports.
    pub predicted: bool,
    pub extended: bool,
    /// The size of the largest body in bytes.
    pub largest: u64,
    /// `true` if commands may name tubes that no client uses or watches.
    pub unattended: bool,
    pub sweeps: bool,
    /// `true` if a client may put many jobs at once into a tube that no client uses or watches.
    pub bursts: bool,
}

impl Topic<'_> {
    /// Returns the ID of an existing job. Occasionally, or if there are no jobs, returns a small random number instead.
    pub fn job(&self, random: &mut Random) -> u64 {
        if self.jobs.is_empty() || random.once_in(12) {
            return 1 + random.below(30);
        }
        random.pick(self.jobs)
    }

    /// Returns a tube for a command that does not make the client use or watch the tube.
    pub fn tube(&self, random: &mut Random) -> Name {
        if self.unattended && !random.once_in(4) {
            return random.pick(&UNATTENDED);
        }
        random.pick(&TUBES)
    }
}

pub fn command(wire: Wire, random: &mut Random, topic: &Topic) -> Vec<u8> {
    match wire {
        Wire::Beanstalk => beanstalk(random, topic),
        Wire::Gearman => gearman(random, topic),
        Wire::Workq => workq(random, topic),
        Wire::Http => operators::request(random, topic),
        wire => unreachable!("no command of {wire:?}"),
    }
}

pub fn body(random: &mut Random, topic: &Topic) -> String {
    let length = match random.below(8) {
        0 => 0,
        1 => random.below(topic.largest + 1),
        _ => random.below(12),
    };
    let first = random.below(26) as u8;
    (0..length).map(|place| char::from(b'a' + (first + (place % 26) as u8) % 26)).collect()
}

fn beanstalk(random: &mut Random, topic: &Topic) -> Vec<u8> {
    if topic.extended && random.once_in(2) {
        if let Some(text) = extended::command(random, topic) {
            return (text + "\r\n").into_bytes();
        }
    }
    let (tube, job) = (random.pick(&TUBES), topic.job(random));
    let delay = if random.once_in(3) { random.below(4) } else { 0 };
    let pri = random.pick(&[0, 1, 5, 4_294_967_295u32]);
    let text = match random.below(40) {
        0..9 if !topic.enough => {
            let body = body(random, topic);
            format!("put {pri} {delay} {} {}\r\n{body}", random.below(5), body.len())
        }
        0..12 => format!("reserve-with-timeout {}", random.pick(&[0, 0, 1, 3])),
        12 => "reserve".to_owned(),
        13 => format!("reserve-job {job}"),
        14..18 => format!("delete {job}"),
        18 | 19 => format!("release {job} {pri} {delay}"),
        20 | 21 => format!("bury {job} {pri}"),
        22 => format!("touch {job}"),
        23 => format!("kick {}", random.pick(&[0, 1, 2, 30])),
        24 => format!("kick-job {job}"),
        25 | 26 => format!("use {tube}"),
        27..30 => format!("watch {tube}"),
        30 => format!("ignore {tube}"),
        31 => format!("pause-tube {tube} {}", random.below(4)),
        32 if topic.unattended && !topic.enough => {
            let body = body(random, topic);
            let tube = random.pick(&UNATTENDED);
            format!("use {tube}\r\nput {pri} {delay} 9 {}\r\n{body}\r\nuse default", body.len())
        }
        32 => format!("peek {job}"),
        33 => ["peek-ready", "peek-delayed", "peek-buried"][random.below(3) as usize].to_owned(),
        34 => "list-tube-used".to_owned(),
        35 => "list-tubes-watched".to_owned(),
        36 if topic.predicted => "list-tubes".to_owned(),
        37 if topic.predicted => "nonsense".to_owned(),
        36 => format!("stats-tube {tube}"),
        37 => format!("stats-job {job}"),
        38 if !topic.predicted => liar(random),
        _ => format!("delete {job}"),
    };
    (text + "\r\n").into_bytes()
}

fn liar(random: &mut Random) -> String {
    match random.below(6) {
        0 => "put 1 2 3 4\r\ntoo long a body".to_owned(),
        1 => "put x".to_owned(),
        2 => format!("put 0 0 1 {}\r\n{}", 1 << 18, "x".repeat(1 << 18)),
        3 => "x".repeat(random.below(600) as usize),
        4 => "delete 99999999999999999999999".to_owned(),
        _ => format!("use {}", "t".repeat(random.below(300) as usize)),
    }
}

fn gearman(random: &mut Random, topic: &Topic) -> Vec<u8> {
    let tube = random.pick(&TUBES);
    let handle = format!("H:h:{}", topic.job(random));
    let unique = random.pick(&["", "u", "v", "-"]);
    let text = |random: &mut Random| body(random, topic);
    let (kind, body) = match random.below(30) {
        0..6 if topic.enough => (9, String::new()),
        0..2 => (7, format!("{tube}\0{unique}\0{}", text(random))),
        2..5 => (random.pick(&[18, 32, 34]), format!("{tube}\0{unique}\0{}", text(random))),
        5 => (21, format!("{tube}\0{unique}\0{}", text(random))),
        6..9 => (1, tube.to_owned()),
        9 => (2, tube.to_owned()),
        10 => (23, format!("{tube}\x001")),
        11 => (3, String::new()),
        12..15 => (4, String::new()),
        15..19 => (random.pick(&[9, 30, 39]), String::new()),
        19 => (13, format!("{handle}\0result")),
        20 => (14, handle),
        21 => (12, format!("{handle}\x001\x002")),
        22 => (25, format!("{handle}\0why")),
        23 => (28, format!("{handle}\0part")),
        24 => (15, handle),
        25 => (16, "echo".to_owned()),
        26 => (26, "exceptions".to_owned()),
        27 => return format!("cancel job {handle}\r\n").into_bytes(),
        28 if random.once_in(4) => return format!("drop function {tube}\r\n").into_bytes(),
        _ => return random.pick(&["status\r\n", "workers\r\n", "show jobs\r\n", "version\r\n"]).as_bytes().to_vec(),
    };
    let (kind, length) = (u32::to_be_bytes(kind), u32::to_be_bytes(body.len() as u32));
    [b"\0REQ".as_slice(), &kind, &length, body.as_bytes()].concat()
}

fn workq(random: &mut Random, topic: &Topic) -> Vec<u8> {
    let id = format!("{}-1111-4111-8111-111111111111", random.below(6).to_string().repeat(8));
    let (tube, ttr, wait) = (random.pick(&TUBES), 1 + random.below(3000), random.below(3) * 500);
    let limits = format!("-max-attempts={} -max-fails={}", random.below(3), random.below(3));
    let text = match random.below(20) {
        0..6 if topic.enough => format!("lease {tube} 0"),
        0..5 => {
            let body = body(random, topic);
            format!("add {id} {tube} {ttr} {} {} {limits}\r\n{body}", 1 + random.below(6000), body.len())
        }
        5 => format!("run {id} {tube} {ttr} {wait} 1\r\nx"),
        6..8 => format!("result {id} {wait}"),
        8..13 => format!("lease {tube} {wait}"),
        13 => format!("lease f g h {wait}"),
        14..16 => format!("complete {id} 1\r\ny"),
        16 => format!("fail {id} 1\r\ny"),
        17 => format!("delete {id}"),
        18 => "what is this".to_owned(),
        _ => format!("inspect jobs {tube} 0 10"),
    };
    (text + "\r\n").into_bytes()
}

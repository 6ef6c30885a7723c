//! A job, the table of its state transitions, and its event counts. Must not depend on the queues that contain jobs.

use std::ops::Deref;

use super::{Body, BodyKey, BodyRef, ClientId, CompletionPolicy, Links, Span, Time, NIL, NOBODY};

/// IDs start at 1, ascend in insertion order, and are never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobId(pub u64);

/// Smaller values are more urgent.
pub type Priority = u32;

/// A priority in each class, for protocols that only name classes. Each class covers a third of all priorities.
pub const PRIORITY_CLASSES: [Priority; 3] = [0x3fff_ffff, 0x7fff_ffff, 0xbfff_ffff];

pub fn priority_class(pri: Priority) -> usize {
    (pri / 0x5555_5556) as usize
}

/// Ready jobs with a smaller priority value count as urgent, as in beanstalkd.
pub const URGENT: Priority = 1024;

/// The state of a job. The first four states are those of beanstalkd.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum State {
    /// A client can reserve the job.
    Ready,
    /// The job becomes ready when its delay expires.
    Delayed,
    /// A client holds the job until the time to run expires.
    Reserved,
    /// The job waits for a kick.
    Buried,
    /// The job waits for other jobs to end.
    Held,
    /// The job is a schedule, which puts copies of itself when it is due.
    Scheduled,
    /// The job has ended, and its outcome is kept for queries.
    Finished,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    Reserve,
    ReserveJob,
    Release,
    ReleaseLater,
    Bury,
    Kick,
    Due,
    Expire,
    /// The holder disconnected, or gave back its jobs (all of them, or all those of one tube).
    HangUp,
    Move,
    MoveLater,
    /// Buries an unfinished job that is not buried yet. Does not notify the submitters.
    Fail,
    Finish,
    Free,
    FreeLater,
}

impl Cause {
    /// Returns `None` if a retry does not change the state.
    pub(in crate::engine) fn of_retry(state: State) -> Option<Cause> {
        match state {
            State::Reserved => Some(Cause::Release),
            State::Buried => Some(Cause::Kick),
            State::Ready | State::Delayed | State::Held | State::Finished | State::Scheduled => None,
        }
    }
}

impl State {
    /// The states of unfinished jobs, excluding schedules.
    pub const UNFINISHED: [State; 5] = [State::Ready, State::Delayed, State::Reserved, State::Buried, State::Held];

    /// The states of unfinished jobs and schedules, in the order of declaration.
    pub const LISTED: [State; 6] =
        [State::Ready, State::Delayed, State::Reserved, State::Buried, State::Held, State::Scheduled];

    /// Returns the name of the state in lowercase.
    pub fn word(self) -> &'static str {
        ["ready", "delayed", "reserved", "buried", "held", "scheduled", "finished"][self as usize]
    }

    pub(crate) fn named(word: &[u8]) -> Option<State> {
        State::LISTED.into_iter().find(|state| state.word().as_bytes() == word)
    }

    /// Returns the state after `cause`, or `None` if `cause` is not possible in this state.
    pub(crate) const fn after(self, cause: Cause) -> Option<State> {
        use State::*;
        match (cause, self) {
            (Cause::Reserve, Ready) => Some(Reserved),
            (Cause::ReserveJob, Ready | Delayed | Buried | Held) => Some(Reserved),
            (Cause::Release | Cause::Expire | Cause::HangUp, Reserved) => Some(Ready),
            (Cause::ReleaseLater, Reserved) => Some(Delayed),
            (Cause::Bury, Reserved) => Some(Buried),
            (Cause::Fail, Ready | Delayed | Reserved | Held) => Some(Buried),
            (Cause::Kick, Delayed | Buried | Held) => Some(Ready),
            (Cause::Due, Delayed) | (Cause::Free, Held) => Some(Ready),
            (Cause::Move, Ready | Delayed | Reserved | Buried | Held) => Some(Ready),
            (Cause::MoveLater, Ready | Delayed | Reserved | Buried | Held) | (Cause::FreeLater, Held) => Some(Delayed),
            (Cause::Finish, Ready | Delayed | Reserved | Buried) => Some(Finished),
            _ => None,
        }
    }
}

#[derive(Clone, Copy)]
pub enum JobFlag {
    Bound = 1,
    Volatile = 2,
    /// The holder of the job has disconnected, and the job will be released.
    Leaving = 4,
    /// The job is in the list of the tube's [`ReadyQueue`](super::ReadyQueue), not in the heap.
    InRun = 8,
    /// The job is a member of a group, waits for a group, or is a schedule.
    Tied = 16,
    /// The job was held, and has not been reserved since. The log may not show yet that the group's members have ended.
    Freed = 32,
}

/// Reservation times are 32-bit numbers in units of 2^20 ns (about a millisecond), so they wrap around after 52 days.
const TAKEN_UNIT: u32 = 20;

#[derive(Debug)]
pub struct Job {
    pub(in crate::engine) id: JobId,
    pub created: Time,
    /// Delayed: when the delay expires. Reserved: when the time to run expires. Buried: the rank in the order of
    /// burying. Ready: the rank among jobs of the same priority. Scheduled: the time of the next copy.
    pub(in crate::engine) due: Time,
    pub(in crate::engine) details: Details,
    pub(in crate::engine) body: BodyKey,
    pub(in crate::engine) pri: Priority,
    pub(in crate::engine) tube: u32,
    /// For a reserved job, the client. For a buried dead letter, its origin in [`Origins`](super::Origins). For a
    /// schedule, its number in [`Schedules`](super::Schedules). Otherwise [`NIL`].
    pub(in crate::engine) holder: u32,
    /// In a heap, `prev` is the position. For a reserved job, `next` is the time of the reservation.
    pub(in crate::engine) links: Links,
    state: State,
    pub completion: CompletionPolicy,
    /// Failed tries since the job was put or kicked.
    pub fails: u8,
    flags: u8,
}

#[derive(Clone, Copy, Debug)]
pub struct JobView<'a> {
    pub(in crate::engine) job: &'a Job,
    pub(in crate::engine) body: BodyRef<'a>,
}

impl<'a> JobView<'a> {
    pub fn body(&self) -> BodyRef<'a> {
        self.body
    }
}

impl Deref for JobView<'_> {
    type Target = Job;
    fn deref(&self) -> &Job {
        self.job
    }
}

#[derive(Debug)]
pub struct NewJob<B = Body> {
    pub pri: Priority,
    pub delay: Span,
    pub ttr: Span,
    pub body: B,
}

impl Job {
    pub fn new(id: JobId, tube: u32, pri: Priority, details: Details, body: BodyKey, now: Time) -> Job {
        let delay = details.delay();
        let state = if delay == Span::ZERO { State::Ready } else { State::Delayed };
        let (due, holder, links, completion) = (now + delay, NIL, Links::NONE, CompletionPolicy::Drop);
        Job { id, created: now, due, details, body, pri, tube, holder, links, state, completion, fails: 0, flags: 0 }
    }

    pub fn id(&self) -> JobId {
        self.id
    }

    pub fn state(&self) -> State {
        self.state
    }

    pub fn priority(&self) -> Priority {
        self.pri
    }

    pub fn delay(&self) -> Span {
        self.details.delay()
    }

    pub fn ttr(&self) -> Span {
        self.details.ttr()
    }

    pub fn due(&self) -> Time {
        self.due
    }

    pub fn history(&self) -> History {
        self.details.history()
    }

    /// Panics if [`State::after`] does not permit `cause` in the job's state.
    pub(in crate::engine) fn transition(&mut self, cause: Cause) {
        self.state = self.state.after(cause).expect("a permitted transition");
    }

    pub(in crate::engine) fn restored(self, state: State, due: Time) -> Job {
        Job { state, due, ..self }
    }

    pub(in crate::engine) fn count(&mut self, what: Count) {
        self.details.count(what);
    }

    pub fn is_held_by(&self, client: ClientId) -> bool {
        self.state == State::Reserved && self.holder == client.0
    }

    pub fn is_leased(&self) -> bool {
        self.state == State::Reserved && self.holder == NOBODY.0
    }

    pub fn is_dead_letter(&self) -> bool {
        self.state == State::Buried && self.holder != NIL
    }

    pub(in crate::engine) fn has(&self, flag: JobFlag) -> bool {
        self.flags & flag as u8 != 0
    }

    pub(in crate::engine) fn set(&mut self, flag: JobFlag, is_set: bool) {
        self.flags = self.flags & !(flag as u8) | if is_set { flag as u8 } else { 0 };
    }

    pub fn is_volatile(&self) -> bool {
        self.has(JobFlag::Volatile)
    }

    pub(in crate::engine) fn is_bound(&self) -> bool {
        self.has(JobFlag::Bound)
    }

    pub(in crate::engine) fn is_tied(&self) -> bool {
        self.has(JobFlag::Tied)
    }

    pub(in crate::engine) fn has_more(&self) -> bool {
        self.flags & (JobFlag::Bound as u8 | JobFlag::Tied as u8 | JobFlag::Freed as u8) != 0
    }

    /// The job must not be in a queue.
    pub(in crate::engine) fn hold(&mut self) {
        self.state = State::Held;
    }

    /// The job must not be in a queue. The first copy is due at `due`.
    pub(in crate::engine) fn schedule(&mut self, due: Time) {
        (self.state, self.due) = (State::Scheduled, due);
        self.set(JobFlag::Tied, true);
    }

    #[inline]
    pub(in crate::engine) fn take(&mut self, now: Time) {
        self.links.next = (now.nanos() >> TAKEN_UNIT) as u32;
    }

    /// Returns `true` if the end of the job is already in the history, or if the job is a schedule.
    pub(in crate::engine) fn is_over(&self) -> bool {
        matches!(self.state, State::Finished | State::Scheduled)
    }

    /// Returns the time since the reservation (not since a touch), or zero if the job is not reserved.
    pub fn taken_for(&self, now: Time) -> Span {
        if self.state != State::Reserved {
            return Span::ZERO;
        }
        let units = ((now.nanos() >> TAKEN_UNIT) as u32).wrapping_sub(self.links.next);
        Span::from_nanos(u64::from(units) << TAKEN_UNIT)
    }

    pub(in crate::engine) fn ready_key(&self) -> (Priority, Time) {
        (self.pri, self.due)
    }

    pub(in crate::engine) fn due_key(&self) -> (Time, JobId) {
        (self.due, self.id)
    }

    pub(in crate::engine) fn position(&self) -> u32 {
        self.links.prev
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    Reserves,
    Timeouts,
    Releases,
    Buries,
    Kicks,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct History {
    pub reserves: u32,
    pub timeouts: u32,
    pub releases: u32,
    pub buries: u32,
    pub kicks: u32,
}

#[derive(Debug)]
pub struct Details(Form);

#[derive(Debug)]
enum Form {
    Packed { delay: u32, ttr: u32, counts: [u8; 5] },
    Whole(Box<Whole>),
}

#[derive(Clone, Copy, Debug)]
struct Whole {
    delay: Span,
    ttr: Span,
    counts: [u32; 5],
}

const ENDLESS: u32 = u32::MAX;

/// Encodes whole seconds as `2 × seconds`, and whole milliseconds as `2 × milliseconds + 1`.
fn pack(span: Span) -> Option<u32> {
    let code = match span.nanos() {
        _ if span == Span::MAX => return Some(ENDLESS),
        nanos if nanos % 1_000_000_000 == 0 => nanos / 1_000_000_000 * 2,
        nanos if nanos % 1_000_000 == 0 => nanos / 1_000_000 * 2 + 1,
        _ => return None,
    };
    u32::try_from(code).ok().filter(|code| *code != ENDLESS)
}

fn unpack(code: u32) -> Span {
    let number = u64::from(code >> 1);
    match code & 1 {
        _ if code == ENDLESS => Span::MAX,
        0 => Span::from_secs(number),
        _ => Span::from_millis(number),
    }
}

impl Details {
    pub fn new(delay: Span, ttr: Span) -> Details {
        match (pack(delay), pack(ttr)) {
            (Some(delay), Some(ttr)) => Details(Form::Packed { delay, ttr, counts: [0; 5] }),
            _ => Details::of(Whole { delay, ttr, counts: [0; 5] }),
        }
    }

    fn of(whole: Whole) -> Details {
        Details(packed(&whole).unwrap_or_else(|| Form::Whole(Box::new(whole))))
    }

    pub fn delay(&self) -> Span {
        match &self.0 {
            Form::Packed { delay, .. } => unpack(*delay),
            Form::Whole(whole) => whole.delay,
        }
    }

    pub fn ttr(&self) -> Span {
        match &self.0 {
            Form::Packed { ttr, .. } => unpack(*ttr),
            Form::Whole(whole) => whole.ttr,
        }
    }

    /// Returns the counts in the order of [`Count`].
    #[inline]
    fn counts(&self) -> [u32; 5] {
        match &self.0 {
            Form::Packed { counts, .. } => counts.map(u32::from),
            Form::Whole(whole) => whole.counts,
        }
    }

    pub fn history(&self) -> History {
        let [reserves, timeouts, releases, buries, kicks] = self.counts();
        History { reserves, timeouts, releases, buries, kicks }
    }

    pub fn reserves(&self) -> u32 {
        self.counts()[Count::Reserves as usize]
    }

    pub fn set_delay(&mut self, delay: Span) {
        self.change(|whole| whole.delay = delay);
    }

    pub fn set_history(&mut self, history: History) {
        let History { reserves, timeouts, releases, buries, kicks } = history;
        self.change(|whole| whole.counts = [reserves, timeouts, releases, buries, kicks]);
    }

    pub fn set_count(&mut self, what: Count, count: u32) {
        self.change(|whole| whole.counts[what as usize] = count);
    }

    pub fn count(&mut self, what: Count) {
        if let Form::Packed { counts, .. } = &mut self.0 {
            let count = &mut counts[what as usize];
            if *count < u8::MAX {
                *count += 1;
                return;
            }
        }
        self.change(|whole| {
            let count = &mut whole.counts[what as usize];
            *count = count.saturating_add(1);
        });
    }

    fn change(&mut self, change: impl FnOnce(&mut Whole)) {
        let mut whole = Whole { delay: self.delay(), ttr: self.ttr(), counts: self.counts() };
        change(&mut whole);
        *self = Details::of(whole);
    }
}

fn packed(whole: &Whole) -> Option<Form> {
    let counts = whole.counts.map(|count| count as u8);
    let fits = counts.map(u32::from) == whole.counts;
    fits.then_some(Form::Packed { delay: pack(whole.delay)?, ttr: pack(whole.ttr)?, counts })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Tests promise P2 of beanpole-promises(7).
    #[test]
    fn only_the_holder_s_causes_end_a_reservation() {
        for cause in [Cause::Reserve, Cause::ReserveJob, Cause::Kick, Cause::Due] {
            assert_eq!(State::Reserved.after(cause), None, "{cause:?}");
        }
        for cause in [Cause::Release, Cause::ReleaseLater, Cause::Bury, Cause::Expire, Cause::HangUp] {
            assert!(State::Reserved.after(cause).is_some(), "{cause:?}");
            assert_eq!(State::Ready.after(cause), None, "{cause:?}");
        }
    }

    #[test]
    fn spans_of_any_kind_survive() {
        let nanos = [0, 1, 999_999, 1_000_000, 1_500_000_000, u64::MAX - 1];
        let spans = nanos.map(Span::from_nanos).into_iter();
        let seconds = [1, 60, u64::from(u32::MAX >> 1), u64::from(u32::MAX), u64::MAX].map(Span::from_secs);
        let millis = [1, 1500, u64::from(u32::MAX), u64::MAX].map(Span::from_millis);
        for span in spans.chain(seconds).chain(millis) {
            let mut details = Details::new(span, Span::ZERO);
            assert_eq!((details.delay(), details.ttr()), (span, Span::ZERO));
            details = Details::new(Span::from_millis(3), span);
            assert_eq!((details.delay(), details.ttr()), (Span::from_millis(3), span));
            details.set_delay(Span::ZERO);
            assert_eq!((details.delay(), details.ttr()), (Span::ZERO, span));
        }
        let usual = Details::new(Span::from_millis(1500), Span::from_secs(120));
        assert!(matches!(usual.0, Form::Packed { .. }));
    }

    #[test]
    fn counts_continue_beyond_a_byte() {
        let mut details = Details::new(Span::ZERO, Span::from_secs(1));
        let counted = [Count::Reserves, Count::Timeouts, Count::Releases, Count::Buries, Count::Kicks];
        let mut expected = [0; 5];
        for (turn, what) in counted.into_iter().enumerate() {
            for _ in 0..100 * (turn + 1) {
                details.count(what);
                expected[what as usize] += 1;
                assert_eq!(details.counts(), expected);
            }
        }
        details.set_history(History::default());
        assert!(matches!(details.0, Form::Packed { .. }), "packed again");
    }

    #[test]
    fn details_take_two_words() {
        assert_eq!(size_of::<Details>(), 16);
    }
}

//! The options of a job, and the clients that wait for its outcome. Most jobs have no extras. Must not decide what
//! happens to a job.

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;

use slab::Slab;

use super::{hashed, linked, Hashed, Heap, Links, List, Name, Positions, SlotTable, Slots, Span, Table, Time, NIL};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum CompletionPolicy {
    /// Deletes a successful job, and buries a failed job. A job that loses its worker becomes ready with its old rank.
    #[default]
    Drop,
    /// Notifies the submitters, then deletes the job. A job that loses its worker becomes the last of its priority.
    Tell,
    /// Keeps the outcome until the job expires. A job that loses its worker becomes ready with its old rank.
    Keep,
}

/// 128 bits of keyed hashes, so that no client can construct two bodies with the same fingerprint. Computed before the
/// engine is locked, because bodies can be large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fingerprint(pub(in crate::engine) [u32; 4]);

#[derive(Clone, Copy, Debug)]
pub struct Fingerprints(u64);

impl Fingerprints {
    /// Only fingerprints with the same secret are comparable.
    pub const fn new(secret: u64) -> Fingerprints {
        Fingerprints(secret)
    }

    pub fn of(self, body: &[u8]) -> Fingerprint {
        let mut taking = self.begin();
        taking.more(body);
        taking.finish()
    }

    pub fn begin(self) -> Fingerprinting {
        Fingerprinting([self.0, !self.0.rotate_left(32)].map(|secret| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(secret);
            hasher
        }))
    }
}

#[derive(Clone, Debug)]
pub struct Fingerprinting([DefaultHasher; 2]);

impl Fingerprinting {
    pub fn more(&mut self, part: &[u8]) {
        self.0.iter_mut().for_each(|hasher| hasher.write(part));
    }

    /// Returns a fingerprint that does not depend on the division of the body into parts.
    pub fn finish(&self) -> Fingerprint {
        let [first, second] = [&self.0[0], &self.0[1]].map(Hasher::finish);
        Fingerprint([first as u32, (first >> 32) as u32, second as u32, (second >> 32) as u32])
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum DedupKey {
    #[default]
    None,
    /// A unique name in the tube. With `attach`, a client that submits the name again is attached to the existing job.
    Name(Name),
    /// The job's body, which is unique among the body keys in the tube. `None` until the fingerprint is computed.
    Body(Option<Fingerprint>),
    /// An ID that is unique in all tubes.
    Id([u8; 16]),
}

/// `After` waits for all members of the group. A group without members holds the job only with `even_if_new`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tie {
    Member,
    After { even_if_new: bool },
    AfterCount(u32),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupTag {
    pub name: Name,
    pub tie: Tie,
}

/// Maximum number of groups that a job belongs to or waits for.
pub const MAX_TIES: usize = 16;

#[derive(Clone, Debug)]
pub struct JobOptions {
    pub completion: CompletionPolicy,
    pub dedup_key: DedupKey,
    pub durable: bool,
    /// The start time, which takes precedence over the delay.
    pub start: Option<Time>,
    /// The time to live after the start time or, without a start time, after the put. [`Span::MAX`] means unlimited.
    pub ttl: Span,
    pub max_attempts: u8,
    /// The number of failures after which the job fails permanently. 0 means 1.
    pub max_fails: u8,
    pub fails: u8,
    pub reason: Option<Box<[u8]>>,
    /// Bytes that the worker receives in addition to the body.
    pub reducer: Option<Box<[u8]>>,
    pub attach: bool,
    /// Seconds for which the key outlives the job.
    pub keep: u32,
    /// The delay in seconds after the first failed try. The delay doubles with each further failed try.
    pub backoff: u32,
    /// A concurrency key and the limit on its reserved jobs. If these jobs have different limits, the largest applies.
    pub concurrency: Option<(Name, u32)>,
    pub groups: Vec<GroupTag>,
}

impl Default for JobOptions {
    fn default() -> JobOptions {
        JobOptions {
            completion: CompletionPolicy::Drop,
            dedup_key: DedupKey::None,
            durable: true,
            start: None,
            ttl: Span::MAX,
            max_attempts: 0,
            max_fails: 0,
            fails: 0,
            reason: None,
            reducer: None,
            attach: false,
            keep: 0,
            backoff: 0,
            concurrency: None,
            groups: Vec::new(),
        }
    }
}

/// Options that few jobs have, boxed to keep [`JobExtras`] small.
#[derive(Debug, Default)]
pub(in crate::engine) struct RareExtras {
    pub attached: List,
    pub progress: (u32, u32),
    /// For a revoked job, the connection that held it (0 for a lease), and the job's rank among buried jobs.
    pub revoked: Option<(u32, Time)>,
    pub reducer: Option<Box<[u8]>>,
    /// [`Time::NEVER`] without a start time.
    pub start: Time,
    /// For a [`CompletionPolicy::Keep`] job past its start time, the rank among ready jobs (see `rank_of`), else 0.
    pub order: u64,
    /// `true` if the only client that waited for the outcome no longer waits, and no client can query the outcome.
    pub orphaned: bool,
    /// `true` if the job is removed when its outcome has been sent.
    pub ephemeral: bool,
    /// `true` if the submitter's time limit expired during this try. This is the last try, even without an outcome.
    pub last_try: bool,
    pub reports: u32,
    /// The delay in seconds after the first failed try. 0 means no delay.
    pub backoff: u32,
    /// The number of the job's lane in [`Lanes`](super::Lanes), or [`NIL`].
    pub lane: u32,
    pub con_limit: u32,
    pub reason: Option<Box<[u8]>>,
}

impl RareExtras {
    fn blank() -> RareExtras {
        RareExtras { start: Time::NEVER, lane: NIL, ..RareExtras::default() }
    }

    fn is_blank(&self) -> bool {
        let counts = (self.progress, self.order, self.backoff) == ((0, 0), 0, 0);
        let flags = self.orphaned || self.ephemeral || self.last_try;
        let texts = self.reducer.is_some() || self.reason.is_some();
        let ties = !self.attached.is_empty() || self.revoked.is_some() || self.lane != NIL;
        counts && !flags && !texts && !ties && self.start == Time::NEVER
    }
}

#[derive(Debug, Default)]
pub struct JobExtras {
    pub(in crate::engine) slot: u32,
    pub(in crate::engine) hash: u32,
    /// The position in [`ExtrasStore::ends`], or [`NIL`].
    pub(in crate::engine) position: u32,
    /// [`Time::NEVER`] without a time to live.
    pub expires: Time,
    pub ttl: Span,
    pub dedup_key: DedupKey,
    /// The offset of a finished job's result in the body, or the seconds for which the key outlives a `Drop` job.
    pub(in crate::engine) keep_or_offset: u32,
    pub max_attempts: u8,
    pub max_fails: u8,
    pub(in crate::engine) done: bool,
    rare: Option<Box<RareExtras>>,
}

const _: () = assert!(size_of::<JobExtras>() <= 72);

impl JobExtras {
    fn blank() -> JobExtras {
        let (expires, ttl) = (Time::NEVER, Span::MAX);
        JobExtras { slot: NIL, position: NIL, expires, ttl, ..JobExtras::default() }
    }

    pub fn id(&self) -> Option<[u8; 16]> {
        let DedupKey::Id(id) = self.dedup_key else { return None };
        Some(id)
    }

    pub fn reducer(&self) -> Option<&[u8]> {
        self.rare.as_ref()?.reducer.as_deref()
    }

    pub fn reason(&self) -> &[u8] {
        self.rare.as_ref().and_then(|rare| rare.reason.as_deref()).unwrap_or_default()
    }

    pub fn progress(&self) -> (u32, u32) {
        self.rare.as_ref().map_or((0, 0), |rare| rare.progress)
    }

    /// Returns the number of attachments. A client that attached twice counts twice.
    pub fn submitters(&self) -> usize {
        self.rare.as_ref().map_or(0, |rare| rare.attached.len())
    }

    pub fn start(&self) -> Option<Time> {
        self.rare.as_ref().map(|rare| rare.start).filter(|start| *start != Time::NEVER)
    }

    pub(in crate::engine) fn backoff(&self) -> u32 {
        self.rare.as_ref().map_or(0, |rare| rare.backoff)
    }

    /// Returns `true` if the extras contain options that log records must contain.
    pub(in crate::engine) fn is_tagged(&self) -> bool {
        let marked = self.rare.as_ref().is_some_and(|rare| rare.lane != NIL || rare.reason.is_some());
        marked || self.dedup_key != DedupKey::None || self.ttl != Span::MAX || self.max_attempts > 0
    }

    pub(in crate::engine) fn is_blank(&self) -> bool {
        let counts = (self.keep_or_offset, self.max_attempts, self.max_fails, self.done);
        let is_rare = self.rare().is_some_and(|rare| !rare.is_blank());
        !is_rare && !self.is_tagged() && self.expires == Time::NEVER && counts == (0, 0, 0, false)
    }

    pub(in crate::engine) fn rare(&self) -> Option<&RareExtras> {
        self.rare.as_deref()
    }

    pub(in crate::engine) fn rare_mut(&mut self) -> &mut RareExtras {
        self.rare.get_or_insert_with(|| Box::new(RareExtras::blank()))
    }
}

/// The capacity that an empty attachment table can keep.
const KEPT_ATTACHMENTS: usize = 4096;

/// Bytes charged for each attachment, because a client can submit the same job any number of times.
pub(in crate::engine) const ATTACHMENT_COST: u64 = size_of::<Attachment>() as u64;

#[derive(Debug)]
pub(in crate::engine) struct Attachment {
    pub client: u32,
    pub extras: u32,
    /// The number of the last report sent to the client, or initially of the last report before the attachment.
    last_active: u32,
    of_job: Links,
    of_client: Links,
}

hashed!(JobExtras, |extras| extras.hash, {
    let dedup_key = if let DedupKey::Name(name) = &extras.dedup_key { name.length() } else { 0 };
    let rare = extras.rare().map_or(0, |rare| {
        size_of::<RareExtras>() + rare.reducer.as_deref().map_or(0, <[u8]>::len) + extras.reason().len()
    });
    let attached = extras.submitters() * size_of::<Attachment>();
    (size_of::<JobExtras>() + 24 + dedup_key + rare + attached) as u64
});

impl Positions for Slots<JobExtras> {
    fn set_position(&mut self, extras: u32, position: u32) {
        self.get_mut(extras).position = position;
    }
}

#[derive(Debug, Default)]
pub(in crate::engine) struct OfJob(pub Slab<Attachment>);

struct OfClient<'a>(&'a mut Slab<Attachment>);

linked!(OfJob, |it, member| it.0[member as usize].of_job, it.0[member as usize].of_job);
linked!(OfClient<'_>, |it, member| it.0[member as usize].of_client, it.0[member as usize].of_client);

#[derive(Debug, Default)]
pub(in crate::engine) struct ExtrasStore {
    /// The table's `memory` includes the cost of attachments.
    pub table: Table<JobExtras>,
    pub ends: Heap<Time>,
    pub attachments: OfJob,
    by_slot: SlotTable,
}

impl ExtrasStore {
    pub fn get(&self, number: u32) -> &JobExtras {
        self.table.get(number)
    }

    /// To change the size of extras, use [`ExtrasStore::edit`].
    pub fn get_mut(&mut self, number: u32) -> &mut JobExtras {
        self.table.get_mut(number)
    }

    pub fn edit(&mut self, number: u32, change: impl FnOnce(&mut JobExtras)) {
        self.table.edit(number, change);
    }

    /// The job must have extras.
    pub fn of(&self, slot: u32) -> u32 {
        let number = self.by_slot.get(slot);
        debug_assert_ne!(number, NIL, "a job with extras");
        number
    }

    /// `hash` is the hash of `dedup_key`. No other extras may have this key.
    pub fn insert(&mut self, slot: u32, dedup_key: DedupKey, hash: u64, expires: Time) -> u32 {
        self.link(JobExtras { slot, hash: (hash >> 32) as u32, expires, dedup_key, ..JobExtras::blank() })
    }

    fn link(&mut self, extras: JobExtras) -> u32 {
        let (slot, indexed) = (extras.slot, extras.dedup_key != DedupKey::None);
        self.table.memory += extras.cost();
        let number = self.table.items.insert(extras);
        if indexed {
            self.table.index(number);
        }
        self.expose(number);
        self.by_slot.set(slot, number);
        number
    }

    fn unlink(&mut self, number: u32) {
        if self.get(number).dedup_key != DedupKey::None {
            self.table.unindex(number);
        }
        self.suspend_expiry(number);
        self.by_slot.remove(self.get(number).slot);
    }

    /// Moves all contents except the attached clients to new extras of the job. Returns the number of the new extras.
    pub fn leave_to_waiters(&mut self, number: u32) -> u32 {
        self.unlink(number);
        let own = self.table.edit(number, |left| {
            let mut own = std::mem::replace(left, JobExtras::blank());
            left.rare_mut().attached = std::mem::take(&mut own.rare_mut().attached);
            own
        });
        self.link(own)
    }

    pub fn is_left(&self, number: u32) -> bool {
        self.get(number).slot == NIL
    }

    pub fn forget_dedup_key(&mut self, number: u32) {
        if self.get(number).dedup_key != DedupKey::None {
            self.table.unindex(number);
            self.edit(number, |extras| extras.dedup_key = DedupKey::None);
        }
    }

    /// The extras must have no attachments.
    pub fn remove(&mut self, number: u32) {
        self.unlink(number);
        let extras = self.table.items.remove(number);
        self.table.memory -= extras.cost();
        debug_assert_eq!(extras.submitters(), 0, "a client was not notified");
        if self.table.items.len() == 0 {
            self.by_slot.clear();
        }
    }

    pub fn find(&self, hash: u64, matches: impl FnMut(&JobExtras) -> bool) -> Option<u32> {
        self.table.find((hash >> 32) as u32, matches)
    }

    pub fn rehash(&mut self, number: u32, hash: u64) {
        if self.get(number).hash != (hash >> 32) as u32 {
            self.table.unindex(number);
            self.get_mut(number).hash = (hash >> 32) as u32;
            self.table.index(number);
        }
    }

    pub fn suspend_expiry(&mut self, number: u32) {
        let position = std::mem::replace(&mut self.get_mut(number).position, NIL);
        if position != NIL {
            self.ends.charged(&mut self.table.memory, |ends| _ = ends.remove(position, &mut self.table.items));
        }
    }

    pub fn expose(&mut self, number: u32) {
        let JobExtras { expires, position, .. } = *self.get(number);
        if expires != Time::NEVER && position == NIL {
            self.ends.charged(&mut self.table.memory, |ends| ends.push(expires, number, &mut self.table.items));
        }
    }

    pub fn forget_progress(&mut self, number: u32) {
        if let Some(rare) = &mut self.get_mut(number).rare {
            rare.progress = (0, 0);
        }
    }

    /// `list` contains the client's attachments.
    pub fn attach(&mut self, number: u32, client: u32, list: &mut List) {
        self.edit(number, |extras| {
            extras.rare_mut();
        });
        self.table.memory += ATTACHMENT_COST;
        let last_active = self.get(number).rare().map_or(0, |rare| rare.reports);
        let new = Attachment { client, extras: number, last_active, of_job: Links::NONE, of_client: Links::NONE };
        let member = self.attachments.0.insert(new) as u32;
        let rare = self.table.get_mut(number).rare.as_mut().expect("the part that was just created");
        rare.attached.push_back(member, &mut self.attachments);
        list.push_back(member, &mut OfClient(&mut self.attachments.0));
    }

    pub fn detach(&mut self, member: u32, list: &mut List) -> Attachment {
        let number = self.attachments.0[member as usize].extras;
        let rare = self.table.get_mut(number).rare.as_mut().expect("an attached client");
        rare.attached.remove(member, &mut self.attachments);
        list.remove(member, &mut OfClient(&mut self.attachments.0));
        let ended = self.attachments.0.remove(member as usize);
        self.table.memory -= ATTACHMENT_COST;
        if self.attachments.0.is_empty() && self.attachments.0.capacity() > KEPT_ATTACHMENTS {
            self.attachments.0 = Slab::new();
        }
        ended
    }

    pub fn first_attached(&self, number: u32) -> Option<(u32, u32)> {
        let member = self.get(number).rare()?.attached.first()?;
        Some((member, self.attachments.0[member as usize].client))
    }

    pub fn begin_report(&mut self, number: u32) {
        if let Some(rare) = &mut self.get_mut(number).rare {
            rare.reports = rare.reports.wrapping_add(1);
        }
    }

    /// Returns an attached client that has not received the last report, and marks that client as notified.
    pub fn next_to_notify(&mut self, number: u32) -> Option<u32> {
        let (member, client) = self.first_attached(number)?;
        let rare = self.table.get_mut(number).rare.as_mut().expect("an attached client");
        let attachment = &mut self.attachments.0[member as usize];
        if attachment.last_active == rare.reports {
            return None;
        }
        attachment.last_active = rare.reports;
        // Move the client behind the clients that have not been notified yet.
        rare.attached.remove(member, &mut self.attachments);
        rare.attached.push_back(member, &mut self.attachments);
        Some(client)
    }

    pub fn attached(&self, number: u32) -> impl Iterator<Item = u32> + '_ {
        let list = self.get(number).rare().map_or(List::EMPTY, |rare| rare.attached);
        list.iter(&self.attachments).map(|member| self.attachments.0[member as usize].client)
    }

    /// Searches the client's `list`, because the job's list can be much longer.
    pub fn find_attached(&self, number: u32, list: &List) -> Option<u32> {
        let next = |member: &u32| Some(self.attachments.0[*member as usize].of_client.next).filter(|next| *next != NIL);
        let mut members = std::iter::successors(list.first(), next);
        members.find(|&member| self.attachments.0[member as usize].extras == number)
    }

    pub fn orphaned(&self, number: u32) -> Option<u32> {
        let extras = self.table.items.try_get(number).filter(|extras| extras.slot != NIL)?;
        extras.rare()?.orphaned.then_some(extras.slot)
    }
}

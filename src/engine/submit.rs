//! Jobs on their way in: room for them, their options, and joining a job that is there already.
//!
//! Owns the verbs that submit. Must not decide what becomes of a job afterwards.

use super::change::Change;
use super::client::{ClientId, Waiting};
use super::details::Details;
use super::job::{priority_class, Job, JobId, NewJob, State};
use super::job_extras::{JobExtras, ATTACHMENT_COST};
use super::job_options::{CompletionPolicy, DedupKey, JobOptions, StoredKey, StoredOptions};
use super::time::{Span, Time};
use super::{Engine, JOB_COST};

/// Why a job was not put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The engine takes no jobs any more.
    Draining,
    /// The engine's memory is used up.
    OutOfMemory,
    /// Another job has the number that no two may have.
    Duplicate,
    /// The tube has as many jobs as it may have.
    QueueFull,
}

/// A job that was submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Submitted {
    /// Its number.
    pub id: JobId,
    /// It was there before.
    pub joined: bool,
}

impl Engine {
    /// Puts a job into the tube that the client uses.
    pub fn put(&mut self, client: ClientId, new: NewJob, now: Time) -> Result<JobId, Refused> {
        self.mark_producer(client);
        let number = self.clients[client.0 as usize].used;
        let slot = self.take_in(number, new, None, now)?;
        self.serve(number, now);
        Ok(self.jobs.get(slot).id)
    }

    /// The client has tried to put a job, whatever became of it.
    pub fn mark_producer(&mut self, client: ClientId) {
        let producer = &mut self.clients[client.0 as usize].producer;
        self.producers += usize::from(!*producer);
        *producer = true;
    }

    /// Puts a job with options of its own into the tube with this name, which is created if need be; or joins the job that it
    /// shares its unique with.
    pub fn submit(
        &mut self,
        client: ClientId,
        tube: &[u8],
        job: NewJob,
        mut options: JobOptions,
        now: Time,
    ) -> Result<Submitted, Refused> {
        self.mark_producer(client);
        if self.draining {
            return Err(Refused::Draining);
        }
        let attach = options.attach;
        if options.dedup_key == DedupKey::Body(None) {
            options.dedup_key = DedupKey::Body(Some(self.fingerprints().of(job.body.bytes())));
        }
        if let Some(slot) = self.find_duplicate(&options.dedup_key, tube, job.body.len())? {
            // Whoever hears of the job relies on it, though somebody else has submitted it.
            self.changed(Change::Promise(slot));
            if matches!(options.dedup_key, DedupKey::Id(_)) {
                return Err(Refused::Duplicate);
            }
            if attach && self.lacks_memory(ATTACHMENT_COST) {
                return Err(Refused::OutOfMemory);
            }
            self.coalesce(slot, options.durable)?;
            if attach {
                self.attach(slot, client);
            }
            return Ok(Submitted { id: self.jobs.get(slot).id, joined: true });
        }
        let number = self.open_tube(client, tube).map_err(|_| Refused::OutOfMemory)?;
        let slot = self.take_in(number, job, Some(options), now).inspect_err(|_| self.close_tube_if_idle(number))?;
        if attach {
            self.attach(slot, client);
        }
        let id = self.jobs.get(slot).id;
        self.serve(number, now);
        Ok(Submitted { id, joined: false })
    }

    /// Submits a job just for its outcome, which the client waits for from now on. If nobody has reserved the job when `wait`
    /// is over, it is taken back; else when that reservation's time to run ends.
    pub fn run(
        &mut self,
        client: ClientId,
        tube: &[u8],
        job: NewJob,
        dedup_key: [u8; 16],
        wait: Span,
        now: Time,
    ) -> Result<JobId, Refused> {
        let dedup_key = DedupKey::Id(dedup_key);
        let options = JobOptions {
            completion: CompletionPolicy::Keep,
            dedup_key,
            durable: false,
            attach: true,
            ..JobOptions::default()
        };
        // A job that is served at once must know already that it passes, and nobody looks before this call ends.
        let submitted = self.submit(client, tube, job, options, now)?;
        let slot = self.jobs.find(submitted.id).expect("a job that was just put");
        let number = self.extras_store.of(slot);
        self.extras_store.get_mut(number).rare_mut().ephemeral = true;
        self.wait_for(client, Waiting { until: now + wait, outcome: number, run: true });
        Ok(submitted.id)
    }

    /// Makes room for a job and puts it in its place; the tube must be served afterwards.
    pub(super) fn take_in(
        &mut self,
        number: u32,
        new: NewJob,
        options: Option<JobOptions>,
        now: Time,
    ) -> Result<u32, Refused> {
        if self.draining {
            return Err(Refused::Draining);
        }
        let tube = self.tubes.get(number);
        let full = |most: &[u32; 3]| tube.counts.all() - tube.counts.buried >= most[priority_class(new.pri)].into();
        if tube.most.as_deref().is_some_and(full) {
            return Err(Refused::QueueFull);
        }
        let volatile = options.as_ref().is_some_and(|options| !options.durable);
        let own = new.body.len() + options.as_ref().map_or(0, logged_options);
        let logged = if volatile { 0 } else { self.log_room.put + (tube.name.len() + own) as u64 };
        if self.lacks_memory(JOB_COST + own as u64) || logged > self.log_room.puts {
            return Err(Refused::OutOfMemory);
        }
        if self.last_id >= self.log_room.ids {
            self.lacking = logged.max(1);
            return Err(Refused::OutOfMemory);
        }
        self.log_room.puts -= logged;
        self.memory.jobs += JOB_COST + new.body.len() as u64;
        self.last_id += 1;
        self.total_jobs += 1;
        let NewJob { pri, delay, ttr, body } = new;
        let start = options.as_ref().and_then(|options| options.start);
        let details = Details::new(start.map_or(delay, |start| start.since(now)), ttr);
        let body = self.jobs.add_body(body);
        let mut job = Job::new(JobId(self.last_id), number, pri, details, body, now);
        job.due = start.unwrap_or(job.due);
        job.set_volatile(volatile);
        let slot = self.jobs.insert(job);
        if let Some(options) = options {
            self.bind(slot, options, now);
        }
        self.tubes.get_mut(number).total_jobs += 1;
        self.changed(Change::Put(slot));
        self.enter(slot);
        Ok(slot)
    }

    /// Gives the job in `slot` its options.
    fn bind(&mut self, slot: u32, options: JobOptions, now: Time) {
        let job = self.jobs.get_mut(slot);
        job.completion = options.completion;
        let begin = options.start.unwrap_or(now);
        let expires = if options.ttl == Span::MAX { Time::NEVER } else { begin + options.ttl };
        let limits = options.max_attempts > 0 || options.max_fails > 0;
        let rare = options.reducer.is_some() || options.start.is_some() && options.completion == CompletionPolicy::Keep;
        let plain = options.dedup_key == DedupKey::None && options.ttl == Span::MAX;
        if plain && !limits && !rare {
            return;
        }
        let number = self.new_extras(slot, options.dedup_key, expires);
        let extras = self.extras_store.get_mut(number);
        extras.max_attempts = options.max_attempts;
        extras.max_fails = options.max_fails;
        extras.ttl = options.ttl;
        if rare {
            let rare = extras.rare_mut();
            rare.reducer = options.reducer;
            rare.start = options.start.unwrap_or(Time::NEVER);
        }
        self.memory.jobs += self.extras_store.get(number).cost();
    }

    /// extras for the job in `slot`, which has none; its cost is still to be accounted for.
    pub(super) fn new_extras(&mut self, slot: u32, dedup_key: DedupKey, expires: Time) -> u32 {
        let job = self.jobs.view(slot);
        // Nobody ever looks for a job without a body, and they must not all stand in one chain.
        let empty = job.body().is_empty().then_some(job.id);
        let dedup_key = match dedup_key {
            DedupKey::Body(None) => DedupKey::Body(Some(self.fingerprints().of(job.body().bytes()))),
            other => other,
        };
        let hash = self.hash_dedup_key(&dedup_key, job.tube, empty);
        self.jobs.get_mut(slot).set_bound();
        let number = self.extras_store.insert(slot, dedup_key, hash, expires);
        self.retime_extras();
        number
    }

    /// The extras of the job in `slot`, made if need be.
    pub(super) fn extras_of(&mut self, slot: u32) -> u32 {
        if self.jobs.get(slot).is_bound() {
            return self.extras_store.of(slot);
        }
        let number = self.new_extras(slot, DedupKey::None, Time::NEVER);
        self.memory.jobs += self.extras_store.get(number).cost();
        number
    }

    /// One more attachment of `client` to the job in `slot`.
    pub(super) fn attach(&mut self, slot: u32, client: ClientId) {
        let number = self.extras_of(slot);
        let before = self.extras_store.get(number).cost();
        let list = &mut self.clients[client.0 as usize].attached;
        self.extras_store.attach(number, client.0, list);
        self.memory.jobs += self.extras_store.get(number).cost() - before;
    }

    /// Bytes of the name of its tube, its body and its options in the log.
    pub(super) fn logged_size(&self, slot: u32) -> usize {
        let job = self.jobs.get(slot);
        self.tubes.get(job.tube).name.len() + self.logged_own(slot)
    }

    /// Bytes that the body and the options of the job in `slot` take in the log. They change with its outcome only.
    pub fn logged_own(&self, slot: u32) -> usize {
        let job = self.jobs.get(slot);
        if job.completion == CompletionPolicy::Drop {
            return job.body.len();
        }
        let extras = self.extras(job);
        let reducer = extras.and_then(JobExtras::reducer);
        job.body.len() + extra(extras.map_or(&DedupKey::None, JobExtras::dedup_key), reducer)
    }

    /// What the log must remember of the options of a job.
    pub fn stored_options(&self, job: &Job) -> Option<StoredOptions<'_>> {
        if job.completion == CompletionPolicy::Drop {
            return None;
        }
        let extras = self.extras(job);
        let rare = extras.and_then(JobExtras::rare);
        Some(StoredOptions {
            completion: job.completion,
            dedup_key: extras.map_or(StoredKey::None, |extras| extras.dedup_key.written()),
            ttl: extras.map_or(Span::MAX, JobExtras::ttl),
            expires: extras.map_or(Time::NEVER, JobExtras::expires),
            start: rare.map_or(Time::NEVER, |rare| rare.start),
            order: rare.map_or(0, |rare| rare.order),
            max_attempts: extras.map_or(0, JobExtras::max_attempts),
            max_fails: extras.map_or(0, JobExtras::max_fails),
            fails: extras.map_or(0, JobExtras::fails),
            outcome: extras.filter(|_| job.state() == State::Finished).map(|it| (it.done, it.result_at)),
            reducer: extras.and_then(JobExtras::reducer),
        })
    }

    /// Gives a job from a log, which has no extras, the options that it had.
    pub(super) fn restore_options(&mut self, slot: u32, options: &StoredOptions) {
        self.jobs.get_mut(slot).completion = options.completion;
        let rare = options.start != Time::NEVER || options.order != 0 || options.reducer.is_some();
        let limits = options.max_attempts > 0 || options.max_fails > 0 || options.fails > 0;
        let plain = options.dedup_key == StoredKey::None && options.ttl == Span::MAX && options.outcome.is_none();
        if plain && !rare && !limits {
            return;
        }
        let number = self.new_extras(slot, options.dedup_key.restored(), options.expires);
        let extras = self.extras_store.get_mut(number);
        extras.ttl = options.ttl;
        (extras.max_attempts, extras.max_fails) = (options.max_attempts, options.max_fails);
        extras.fails = options.fails;
        (extras.done, extras.result_at) = options.outcome.unwrap_or_default();
        if rare {
            let rare = extras.rare_mut();
            (rare.start, rare.order) = (options.start, options.order);
            rare.reducer = options.reducer.map(Box::from);
        }
        self.memory.jobs += self.extras_store.get(number).cost();
    }

    /// The job in `slot` has no extras any more.
    pub(super) fn unbind(&mut self, slot: u32) {
        if self.jobs.get(slot).is_bound() {
            let extras = self.extras_store.remove(self.extras_store.of(slot));
            self.memory.jobs -= extras.cost();
            self.retime_extras();
        }
    }
}

/// Bytes that a log may take for the options of a job beside its name and its reducer: at most so many, and counted as such.
pub const EXTRA: usize = 68;

/// Bytes of options in the log.
fn extra(dedup_key: &DedupKey, reducer: Option<&[u8]>) -> usize {
    let name = if let DedupKey::Name(name) = dedup_key { name.length() } else { 0 };
    EXTRA + name + reducer.map_or(0, <[u8]>::len)
}

/// Bytes of options in the log, before there is a job.
fn logged_options(options: &JobOptions) -> usize {
    if options.completion == CompletionPolicy::Drop {
        return 0;
    }
    extra(&options.dedup_key, options.reducer.as_deref())
}

//! Jobs on their way in: room for them, their terms, and joining a job that is there already.
//!
//! Owns the verbs that submit. Must not decide what becomes of a job afterwards.

use std::hash::{BuildHasher, Hasher};

use super::change::Change;
use super::client::{ClientId, Waiting};
use super::contract::{Contract, ATTACHMENT_COST};
use super::deadlines::Owner;
use super::details::Details;
use super::job::{band, Job, JobId, NewJob, State};
use super::steps::MOVE;
use super::terms::{Ending, Fingerprints, Terms, Unique, WrittenTerms, WrittenUnique};
use super::time::{Span, Time};
use super::{Engine, Refused, JOB_COST};

/// A job that was submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Submitted {
    /// Its number.
    pub id: JobId,
    /// It was there before.
    pub joined: bool,
}

/// Contracts that a search by name looks at. The same name in more tubes than this is refused: names are one index for all
/// tubes, and each search would have to pass all of them.
const LOOKS: u64 = 4096;

impl Engine {
    /// Puts a job with terms of its own into the tube with this name, which is created if need be; or joins the job that it
    /// shares its unique with.
    pub fn submit(
        &mut self,
        client: ClientId,
        tube: &[u8],
        job: NewJob,
        mut terms: Terms,
        now: Time,
    ) -> Result<Submitted, Refused> {
        self.mark_producer(client);
        if self.draining {
            return Err(Refused::Draining);
        }
        let attach = terms.attach;
        if terms.unique == Unique::Body(None) {
            terms.unique = Unique::Body(Some(self.fingerprints().of(job.body.bytes())));
        }
        if let Some(slot) = self.find_twin(&terms.unique, tube, job.body.len())? {
            // Whoever hears of the job relies on it, though somebody else has submitted it.
            self.changed(Change::Promise(slot));
            if matches!(terms.unique, Unique::Id(_)) {
                return Err(Refused::Duplicate);
            }
            if attach && self.lacks_memory(ATTACHMENT_COST) {
                return Err(Refused::OutOfMemory);
            }
            self.join(slot, terms.durable)?;
            if attach {
                self.attach(slot, client);
            }
            return Ok(Submitted { id: self.jobs.get(slot).id, joined: true });
        }
        let number = self.open_tube(client, tube).map_err(|_| Refused::OutOfMemory)?;
        let slot = self.take_in(number, job, Some(terms), now).inspect_err(|_| self.close_tube_if_idle(number))?;
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
        unique: [u8; 16],
        wait: Span,
        now: Time,
    ) -> Result<JobId, Refused> {
        let unique = Unique::Id(unique);
        let terms = Terms { ending: Ending::Keep, unique, durable: false, attach: true, ..Terms::default() };
        // A job that is served at once must know already that it passes, and nobody looks before this call ends.
        let submitted = self.submit(client, tube, job, terms, now)?;
        let slot = self.jobs.find(submitted.id).expect("a job that was just put");
        let number = self.contracts.of(slot);
        self.contracts.get_mut(number).rare_mut().passing = true;
        self.wait_for(client, Waiting { until: now + wait, outcome: number, run: true });
        Ok(submitted.id)
    }

    /// Makes room for a job and puts it in its place; the tube must be served afterwards.
    pub(super) fn take_in(
        &mut self,
        number: u32,
        new: NewJob,
        terms: Option<Terms>,
        now: Time,
    ) -> Result<u32, Refused> {
        if self.draining {
            return Err(Refused::Draining);
        }
        let tube = self.tubes.get(number);
        let full = |most: &[u32; 3]| tube.counts.all() - tube.counts.buried >= most[band(new.pri)].into();
        if tube.most.as_deref().is_some_and(full) {
            return Err(Refused::QueueFull);
        }
        let volatile = terms.as_ref().is_some_and(|terms| !terms.durable);
        let own = new.body.len() + terms.as_ref().map_or(0, logged_terms);
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
        let start = terms.as_ref().and_then(|terms| terms.start);
        let details = Details::new(start.map_or(delay, |start| start.since(now)), ttr);
        let body = self.jobs.add_body(body);
        let mut job = Job::new(JobId(self.last_id), number, pri, details, body, now);
        job.due = start.unwrap_or(job.due);
        job.set_volatile(volatile);
        let slot = self.jobs.insert(job);
        if let Some(terms) = terms {
            self.bind(slot, terms, now);
        }
        self.tubes.get_mut(number).total_jobs += 1;
        self.changed(Change::Put(slot));
        self.enter(slot);
        Ok(slot)
    }

    /// Gives the job in `slot` its terms.
    fn bind(&mut self, slot: u32, terms: Terms, now: Time) {
        let job = self.jobs.get_mut(slot);
        job.ending = terms.ending;
        let begin = terms.start.unwrap_or(now);
        let expires = if terms.ttl == Span::MAX { Time::NEVER } else { begin + terms.ttl };
        let limits = terms.max_attempts > 0 || terms.max_fails > 0;
        let rare = terms.reducer.is_some() || terms.start.is_some() && terms.ending == Ending::Keep;
        let plain = terms.unique == Unique::None && terms.ttl == Span::MAX;
        if plain && !limits && !rare {
            return;
        }
        let number = self.new_contract(slot, terms.unique, expires);
        let contract = self.contracts.get_mut(number);
        contract.max_attempts = terms.max_attempts;
        contract.max_fails = terms.max_fails;
        contract.ttl = terms.ttl;
        if rare {
            let rare = contract.rare_mut();
            rare.reducer = terms.reducer;
            rare.start = terms.start.unwrap_or(Time::NEVER);
        }
        self.memory.jobs += self.contracts.get(number).cost();
    }

    /// A contract for the job in `slot`, which has none; its cost is still to be accounted for.
    pub(super) fn new_contract(&mut self, slot: u32, unique: Unique, expires: Time) -> u32 {
        let job = self.jobs.view(slot);
        // Nobody ever looks for a job without a body, and they must not all stand in one chain.
        let empty = job.body().is_empty().then_some(job.id);
        let unique = match unique {
            Unique::Body(None) => Unique::Body(Some(self.fingerprints().of(job.body().bytes()))),
            other => other,
        };
        let hash = self.hash_unique(&unique, job.tube, empty);
        self.jobs.get_mut(slot).set_bound();
        let number = self.contracts.insert(slot, unique, hash, expires);
        self.retime_contracts();
        number
    }

    /// The contract of the job in `slot`, made if need be.
    pub(super) fn contract_of(&mut self, slot: u32) -> u32 {
        if self.jobs.get(slot).is_bound() {
            return self.contracts.of(slot);
        }
        let number = self.new_contract(slot, Unique::None, Time::NEVER);
        self.memory.jobs += self.contracts.get(number).cost();
        number
    }

    pub(super) fn retime_contracts(&mut self) {
        let next = self.contracts.next_end().map_or(Time::NEVER, |(at, _)| at);
        self.deadlines.set(Owner::Contracts, next);
    }

    /// What takes fingerprints of bodies that are to be submitted.
    pub fn fingerprints(&self) -> Fingerprints {
        Fingerprints::new(self.limits.hash_secret)
    }

    /// Names are hashed without their tubes, so that they can be looked for in all.
    fn hash_unique(&self, unique: &Unique, tube: u32, empty: Option<JobId>) -> u64 {
        let mut hasher = self.tubes.hasher().build_hasher();
        match unique {
            Unique::None => return 0,
            Unique::Name(name) => hasher.write(name.key()),
            Unique::Id(id) => hasher.write(id),
            Unique::Body(fingerprint) => {
                hasher.write_u32(tube);
                fingerprint.iter().flat_map(|it| it.0).for_each(|part| hasher.write_u32(part));
                hasher.write_u64(empty.map_or(0, |id| id.0));
            }
        }
        hasher.finish()
    }

    /// The existing job with the same unique; by a fingerprint of the body, only one of the same length.
    fn find_twin(&mut self, unique: &Unique, tube: &[u8], length: usize) -> Result<Option<u32>, Refused> {
        if matches!(unique, Unique::Body(_)) && length == 0 {
            return Ok(None);
        }
        let number = self.tubes.find(tube);
        let hash = self.hash_unique(unique, number.unwrap_or_default(), None);
        let mut looks = 0;
        let matches = |contract: &Contract| {
            looks += 1;
            // Others in the chain are no reason to fetch their jobs.
            if looks > LOOKS || contract.unique != *unique {
                return looks > LOOKS;
            }
            let job = self.jobs.get(contract.slot);
            match unique {
                Unique::None => false,
                Unique::Id(_) => true,
                _ if is_over(job) => false,
                Unique::Name(_) => Some(job.tube) == number,
                Unique::Body(_) => Some(job.tube) == number && job.body.len() == length,
            }
        };
        let found = self.contracts.find(hash, matches).map(|number| self.contracts.get(number).slot);
        self.steps.take(looks / MOVE);
        if looks > LOOKS {
            return Err(Refused::OutOfMemory);
        }
        Ok(found)
    }

    /// The job with this number that no other may have.
    pub fn find_id(&self, id: &[u8; 16]) -> Option<JobId> {
        let unique = Unique::Id(*id);
        let number = self.contracts.find(self.hash_unique(&unique, 0, None), |contract| contract.unique == unique)?;
        Some(self.jobs.get(self.contracts.get(number).slot).id)
    }

    /// The oldest job that was submitted with this name, in any tube.
    pub fn find_name(&self, name: &[u8]) -> Option<JobId> {
        let unique = Unique::Name(name.into());
        let hash = self.hash_unique(&unique, 0, None);
        let (mut oldest, mut looks) = (None, 0);
        // Looks through all of that name, or as many as one call may, by matching none before.
        self.contracts.find(hash, |contract| {
            looks += 1;
            if contract.unique == unique {
                let id = self.jobs.get(contract.slot).id;
                oldest = Some(oldest.map_or(id, |oldest: JobId| oldest.min(id)));
            }
            looks > LOOKS
        });
        oldest
    }

    /// Somebody submits again what is in `slot`.
    fn join(&mut self, slot: u32, durable: bool) -> Result<(), Refused> {
        let job = self.jobs.get(slot);
        if !durable || !job.is_volatile() {
            return Ok(());
        }
        // It is written down as it is, which takes a little more than a new one.
        let logged = self.log_room.put + self.log_room.change + self.logged_size(slot) as u64;
        if logged > self.log_room.puts {
            self.lacking = logged;
            return Err(Refused::OutOfMemory);
        }
        self.log_room.puts -= logged;
        self.jobs.get_mut(slot).set_volatile(false);
        self.changed(Change::Adopt(slot));
        Ok(())
    }

    /// One more attachment of `client` to the job in `slot`.
    pub(super) fn attach(&mut self, slot: u32, client: ClientId) {
        let number = self.contract_of(slot);
        let before = self.contracts.get(number).cost();
        let list = &mut self.clients[client.0 as usize].attached;
        self.contracts.attach(number, client.0, list);
        self.memory.jobs += self.contracts.get(number).cost() - before;
    }

    /// Bytes of the name of its tube, its body and its terms in the log.
    pub(super) fn logged_size(&self, slot: u32) -> usize {
        let job = self.jobs.get(slot);
        self.tubes.get(job.tube).name.len() + self.logged_own(slot)
    }

    /// Bytes that the body and the terms of the job in `slot` take in the log. They change with its outcome only.
    pub fn logged_own(&self, slot: u32) -> usize {
        let job = self.jobs.get(slot);
        if job.ending == Ending::Drop {
            return job.body.len();
        }
        let contract = self.contract(job);
        let reducer = contract.and_then(Contract::reducer);
        job.body.len() + extra(contract.map_or(&Unique::None, Contract::unique), reducer)
    }

    /// What the log must remember of the terms of a job.
    pub fn written_terms(&self, job: &Job) -> Option<WrittenTerms<'_>> {
        if job.ending == Ending::Drop {
            return None;
        }
        let contract = self.contract(job);
        let rare = contract.and_then(Contract::rare);
        Some(WrittenTerms {
            ending: job.ending,
            unique: contract.map_or(WrittenUnique::None, |contract| contract.unique.written()),
            ttl: contract.map_or(Span::MAX, Contract::ttl),
            expires: contract.map_or(Time::NEVER, Contract::expires),
            start: rare.map_or(Time::NEVER, |rare| rare.start),
            order: rare.map_or(0, |rare| rare.order),
            max_attempts: contract.map_or(0, Contract::max_attempts),
            max_fails: contract.map_or(0, Contract::max_fails),
            fails: contract.map_or(0, Contract::fails),
            outcome: contract.filter(|_| job.state == State::Finished).map(|it| (it.done, it.result_at)),
            reducer: contract.and_then(Contract::reducer),
        })
    }

    /// Gives a job from a log, which has no contract, the terms that it had.
    pub(super) fn restore_terms(&mut self, slot: u32, terms: &WrittenTerms) {
        self.jobs.get_mut(slot).ending = terms.ending;
        let rare = terms.start != Time::NEVER || terms.order != 0 || terms.reducer.is_some();
        let limits = terms.max_attempts > 0 || terms.max_fails > 0 || terms.fails > 0;
        let plain = terms.unique == WrittenUnique::None && terms.ttl == Span::MAX && terms.outcome.is_none();
        if plain && !rare && !limits {
            return;
        }
        let number = self.new_contract(slot, terms.unique.restored(), terms.expires);
        let contract = self.contracts.get_mut(number);
        contract.ttl = terms.ttl;
        (contract.max_attempts, contract.max_fails) = (terms.max_attempts, terms.max_fails);
        contract.fails = terms.fails;
        (contract.done, contract.result_at) = terms.outcome.unwrap_or_default();
        if rare {
            let rare = contract.rare_mut();
            (rare.start, rare.order) = (terms.start, terms.order);
            rare.reducer = terms.reducer.map(Box::from);
        }
        self.memory.jobs += self.contracts.get(number).cost();
    }

    /// The job in `slot` has no contract any more.
    pub(super) fn unbind(&mut self, slot: u32) {
        if self.jobs.get(slot).is_bound() {
            let contract = self.contracts.remove(self.contracts.of(slot));
            self.memory.jobs -= contract.cost();
            self.retime_contracts();
        }
    }
}

/// Bytes that a log may take for the terms of a job beside its name and its reducer: at most so many, and counted as such.
pub const EXTRA: usize = 68;

/// Bytes of terms in the log.
fn extra(unique: &Unique, reducer: Option<&[u8]>) -> usize {
    let name = if let Unique::Name(name) = unique { name.length() } else { 0 };
    EXTRA + name + reducer.map_or(0, <[u8]>::len)
}

/// Bytes of terms in the log, before there is a job.
fn logged_terms(terms: &Terms) -> usize {
    if terms.ending == Ending::Drop {
        return 0;
    }
    extra(&terms.unique, terms.reducer.as_deref())
}

/// Whether nobody would be told any more of what becomes of a job whose submitters are told.
fn is_over(job: &Job) -> bool {
    job.state == State::Buried
}

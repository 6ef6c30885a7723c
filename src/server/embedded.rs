//! Functions for programs that embed the server: statistics and lists of tubes and jobs, which are read from the engine
//! without a connection, and the deletion of all jobs. Must not depend on a protocol.

use std::time::Duration;

use super::hub::TurnScratch;
use super::Server;
use crate::engine::{JobCounts, JobId, JobView, Progress, Span, State, TubeStats};

/// Statistics of the whole server at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ServerStats {
    /// The number of jobs, by state.
    pub jobs: JobTotals,
    /// The number of jobs put since the server started.
    pub total_jobs: u64,
    /// The number of reservations that ended because their TTR expired.
    pub job_timeouts: u64,
    /// The number of tubes, including empty tubes.
    pub tubes: usize,
    /// The number of connected clients of all protocols.
    pub connections: usize,
    /// The number of clients that are waiting for a job.
    pub waiting: usize,
    /// The memory used for jobs, tubes, watches, the history and buffers, in bytes.
    pub memory: u64,
    /// `true` if the server refuses new jobs, because of [`Server::drain`], a signal or a client's command.
    pub is_draining: bool,
}

/// The number of jobs in each state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct JobTotals {
    /// Jobs that a worker can reserve.
    pub ready: u64,
    /// Jobs that a worker has reserved.
    pub reserved: u64,
    /// Jobs whose delay has not expired.
    pub delayed: u64,
    /// Jobs buried until they are kicked or deleted.
    pub buried: u64,
    /// Jobs that wait for the members of job groups.
    pub held: u64,
    /// Schedules, which put a copy of a job at each of their times.
    pub scheduled: u64,
}

/// Statistics of a tube at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TubeInfo {
    /// The name, which can contain any bytes, because Gearman allows them in function names.
    pub name: Vec<u8>,
    /// The tube's jobs by state.
    pub jobs: JobTotals,
    /// The number of jobs put since the tube was created.
    pub total_jobs: u64,
    /// The number of clients that use the tube.
    pub using: u32,
    /// The number of clients that watch the tube.
    pub watching: u32,
    /// The remaining time of a pause, or zero if the tube is not paused.
    pub pause_left: Duration,
}

/// The properties of a job at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct JobInfo {
    /// The job ID that `put` returned.
    pub id: u64,
    /// The name of the job's tube.
    pub tube: Vec<u8>,
    /// The payload of the job, unchanged.
    pub body: Vec<u8>,
    /// The current state of the job.
    pub state: State,
    /// The priority of the job; 0 is the most urgent priority.
    pub priority: u32,
    /// The number of times that the job was reserved.
    pub reserves: u32,
    /// The number of reservations that ended because the TTR expired.
    pub timeouts: u32,
    /// The remaining delay or TTR, or zero if the job is neither delayed nor reserved.
    pub time_left: Duration,
}

impl From<JobCounts> for JobTotals {
    fn from(counts: JobCounts) -> JobTotals {
        let JobCounts { ready, reserved, delayed, buried, held, scheduled, .. } = counts;
        JobTotals { ready, reserved, delayed, buried, held, scheduled }
    }
}

fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.nanos())
}

impl Server {
    /// Returns the statistics of the whole server.
    pub fn stats(&self) -> ServerStats {
        self.hub.with_engine(|engine, _| {
            let stats = engine.stats();
            ServerStats {
                jobs: stats.jobs.into(),
                total_jobs: stats.total_jobs,
                job_timeouts: stats.timeouts,
                tubes: stats.tubes,
                connections: stats.connections,
                waiting: stats.waiting,
                memory: stats.memory.total(),
                is_draining: stats.draining,
            }
        })
    }

    /// Returns all tubes in unspecified order. Blocks other clients while copying the data.
    pub fn tubes(&self) -> Vec<TubeInfo> {
        self.hub.with_engine(|engine, now| {
            let stats = engine.tube_names().filter_map(|name| engine.tube_stats(name, now));
            let info = |tube: TubeStats| TubeInfo {
                name: tube.name.to_vec(),
                jobs: tube.jobs.into(),
                total_jobs: tube.total_jobs,
                using: tube.using,
                watching: tube.watching,
                pause_left: duration(tube.pause_left),
            };
            stats.map(info).collect()
        })
    }

    /// Returns the jobs of a tube in unspecified order. Scans all jobs, and blocks other clients during the scan.
    pub fn jobs(&self, tube: impl AsRef<[u8]>) -> Vec<JobInfo> {
        self.hub.with_engine(|engine, now| {
            let mut ids = Vec::new();
            let mut from = 0;
            let is_here = |engine: &crate::engine::Engine, job: &JobView| engine.tube_of(job) == tube.as_ref();
            while engine.walk_jobs(&mut from, |engine, job| {
                ids.extend(is_here(engine, job).then(|| job.id()));
                0
            }) == Progress::More
            {
                engine.grant_steps(u64::from(u32::MAX));
            }
            let jobs = ids.into_iter().filter_map(|id| engine.any_job(id)).map(|job| {
                let (history, state) = (job.history(), job.state());
                let has_deadline = matches!(state, State::Reserved | State::Delayed);
                JobInfo {
                    id: job.id().0,
                    tube: engine.tube_of(&job).to_vec(),
                    body: job.body().bytes().to_vec(),
                    state,
                    priority: job.priority(),
                    reserves: history.reserves,
                    timeouts: history.timeouts,
                    time_left: if has_deadline { duration(job.due().since(now)) } else { Duration::ZERO },
                }
            });
            jobs.collect()
        })
    }

    /// Deletes all jobs, including reserved jobs, and returns their number. Keeps connections, watched tubes and
    /// pauses. Jobs that are put concurrently may remain.
    pub fn clear(&self) -> usize {
        let mut scratch = TurnScratch::default();
        let (mut from, mut count) = (0, 0);
        loop {
            let progress = self.hub.turn(&mut scratch, |core, scratch, now| {
                let mut ids: Vec<JobId> = Vec::new();
                let progress = core.engine.walk_jobs(&mut from, |_, job| {
                    ids.push(job.id());
                    0
                });
                for id in ids {
                    count += usize::from(core.engine.delete_in_any_state(id, now));
                    core.deliver_events(&self.hub, scratch, None);
                }
                progress
            });
            self.hub.commit(&mut scratch.out);
            if progress == Progress::Done {
                return count;
            }
        }
    }
}

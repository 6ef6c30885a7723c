//! The threads and listeners of a running server, and the order of startup and shutdown. When a client requests a
//! shutdown, a separate thread stops the server, because a pool thread cannot wait for its own end.

use std::time::{Duration, Instant};
use std::{io, sync::atomic::AtomicUsize, sync::Arc, thread::JoinHandle};

use super::background;
use super::clock::Clock;
use super::delivery::{Message, ThreadHandle};
use super::hub::{Hub, ShutdownStage};
use super::listener::{self, Threads};
use super::pool::{PoolThread, Relief};
use super::socket::Listener;
use crate::access::AccessTable;
use crate::protocol::Wire;
use crate::shared::lock_order::{Mutex, SERVER};
use crate::shared::role::Role;
use crossbeam_channel::unbounded;

/// The stack size of a thread in bytes, several times as much as the deepest call needs.
const STACK: usize = 256 * 1024;

/// The maximum time for which [`Running::quiesce`] waits for connections, some of which may never arrive.
const QUIESCE: Duration = Duration::from_secs(300);

pub struct Running {
    hub: Arc<Hub>,
    listeners: Vec<(Arc<Listener>, Wire)>,
    inherited: bool,
    owners: Vec<Arc<ThreadHandle>>,
    relief: Arc<Relief>,
    listener_threads: Vec<JoinHandle<()>>,
    threads: Vec<JoinHandle<()>>,
    log_threads: Vec<JoinHandle<()>>,
}

impl Running {
    pub fn new(hub: Arc<Hub>, listeners: Vec<(Listener, Wire)>, inherited: bool) -> Running {
        let relief = Arc::new(Relief::new(hub.config.threads.max(1)));
        let listeners = listeners.into_iter().map(|(listener, wire)| (Arc::new(listener), wire)).collect();
        let (owners, listener_threads, threads, log_threads) = Default::default();
        Running { hub, listeners, inherited, owners, relief, listener_threads, threads, log_threads }
    }

    /// The listeners start last, because they need the pool. After an error, the caller must stop the running threads.
    pub fn start(&mut self) -> io::Result<()> {
        let mut arrivals = Vec::new();
        for number in 0..self.hub.config.threads.max(1) {
            let thread = PoolThread::new(self.hub.clone(), number)?;
            self.owners.push(thread.owner.clone());
            arrivals.push(thread.arrivals.clone());
            self.start_in_pool(format!("pool-{number}"), Some(Box::new(thread)))?;
        }
        if self.hub.log.is_some() {
            self.start_in_pool("spare".to_owned(), None)?;
        }
        if matches!(self.hub.clock, Clock::System { .. }) {
            let hub = self.hub.clone();
            self.threads.push(spawn("timer".to_owned(), move || background::run_timer(&hub))?);
        }
        for (name, run) in self.hub.log.as_ref().map_or_else(Vec::new, background::log_threads) {
            let hub = self.hub.clone();
            self.log_threads.push(spawn(name.to_owned(), move || run(&hub, hub.log.as_ref().expect("a log")))?);
        }
        let threads = Arc::new(Threads { arrivals, next: AtomicUsize::new(0) });
        for (listener, wire) in &self.listeners {
            let (listener, wire, hub, threads) = (listener.clone(), *wire, self.hub.clone(), threads.clone());
            let spare = listener.duplicate().ok(); // before the start counts the open descriptors
            let run = move || listener::run(&listener, wire, &hub, &threads, spare);
            self.listener_threads.push(spawn("listener".to_owned(), run)?);
        }
        Ok(())
    }

    fn start_in_pool(&mut self, name: String, mut state: Option<Box<PoolThread>>) -> io::Result<()> {
        let (hub, relief) = (self.hub.clone(), self.relief.clone());
        let run = move || {
            while let Some(thread) = state.take().or_else(|| relief.wait(hub.log.as_ref()?)) {
                thread.run(&relief);
            }
        };
        self.threads.push(spawn(name, run)?);
        Ok(())
    }

    pub fn renew(&self, table: &Arc<AccessTable>) {
        self.owners.iter().for_each(|owner| owner.send(Message::Renew(table.clone())));
    }

    /// One thread can create work for another thread, so this function waits for all threads twice.
    pub fn quiesce(&self, connections: u64) {
        let end = Instant::now() + QUIESCE;
        let accepted = || self.hub.with_engine(|engine, _| engine.total_connections());
        while accepted() < connections && !self.hub.is_stopping() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        for _ in 0..2 {
            let (sender, quiet) = unbounded();
            self.owners.iter().for_each(|owner| owner.send(Message::Quiesce(sender.clone())));
            drop(sender);
            // Ends when every thread has dropped its sender.
            quiet.iter().for_each(drop);
        }
    }

    pub fn stop(&mut self) {
        self.hub.stop();
        for (thread, (listener, wire)) in self.listener_threads.drain(..).zip(&self.listeners) {
            let inherited = self.inherited && *wire == Wire::Beanstalk;
            // Repeat, because another server with the same inherited socket may accept the wake-up connection.
            while !thread.is_finished() {
                listener.wake(inherited);
                std::thread::sleep(Duration::from_millis(1));
            }
            let _ = thread.join();
        }
        self.listeners.clear();
        self.relief.check.stop();
        self.owners.drain(..).for_each(|owner| owner.send(Message::Stop));
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
        // The last replies and changes of pool threads depend on the log's threads.
        if let Some(log) = &self.hub.log {
            log.stop();
            let threads = self.log_threads.len();
            self.log_threads.drain(..).for_each(|thread| drop(thread.join()));
            if threads > 0 {
                log.close(&*self.hub, self.hub.clock.now());
            }
        }
        self.hub.close();
        self.hub.shutdown.advance(ShutdownStage::Complete);
    }
}

pub fn stop_on_request(hub: Arc<Hub>, running: Arc<Mutex<Running, SERVER>>) -> io::Result<JoinHandle<()>> {
    spawn("stopper".to_owned(), move || {
        if hub.shutdown.wait_for(ShutdownStage::Requested) {
            log::info!("shutting down, as was asked");
            hub.config.role.iter().for_each(|board| board.note(|figures| figures.role = Role::Closing));
            running.lock().stop();
        }
    })
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).stack_size(STACK).spawn(run)
}

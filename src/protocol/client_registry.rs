//! The connected clients, as far as other clients may see them.
//!
//! Owns the name, the address and the options of each client, and the job that it waits for. An unnamed beanstalk
//! client has no entry and needs no memory here. Must not know sockets.

use std::fmt::Display;

use super::Wire;
use crate::engine::{ClientId, JobId};

#[derive(Clone, Debug)]
pub struct ClientInfo {
    pub wire: Wire,
    pub address: Box<str>,
    pub name: Box<[u8]>,
    /// The name in the access file, if the client is authenticated.
    pub user: Option<Box<str>>,
    /// `true` if the client receives the reason why a job failed, and not only the failure (Gearman's option
    /// `exceptions`).
    pub exceptions: bool,
    /// The ID of the job whose outcome the client waits for (Workq's `result` and `run`).
    pub awaited: [u8; 16],
    /// The job of the last accepted WORK_EXCEPTION (Gearman).
    pub last_exception: Option<JobId>,
}

/// All clients with a name, or with another protocol than beanstalk, by number.
#[derive(Debug, Default)]
pub struct ClientRegistry {
    clients: Vec<Option<Box<ClientInfo>>>,
    counts: [usize; Wire::ALL.len()],
    /// The number of HTTP clients so far.
    operators: u64,
    exceptions: bool,
}

impl ClientRegistry {
    /// Returns an empty registry; `exceptions` is the initial value of that option for each Gearman client.
    pub fn new(exceptions: bool) -> ClientRegistry {
        ClientRegistry { exceptions, ..ClientRegistry::default() }
    }

    pub fn enter(&mut self, client: ClientId, wire: Wire, address: &impl Display) {
        *self.count_mut(wire) += 1;
        self.operators += u64::from(wire == Wire::Http);
        if wire != Wire::Beanstalk {
            self.add(client, wire, address.to_string().into());
        }
    }

    /// Sets the name of a client, which others can see.
    pub fn name(&mut self, client: ClientId, name: &[u8]) {
        if let Some(info) = self.add(client, Wire::Beanstalk, Box::default()) {
            info.name = name.into();
        }
    }

    /// Sets the name of a client in the access file; `None` if the client is no longer authenticated.
    pub fn identify(&mut self, client: ClientId, user: Option<&str>) {
        if user.is_some() || self.get(client).is_some() {
            if let Some(info) = self.add(client, Wire::Beanstalk, Box::default()) {
                info.user = user.map(Into::into);
            }
        }
    }

    /// Returns the entry of a client, which is created if necessary.
    fn add(&mut self, client: ClientId, wire: Wire, address: Box<str>) -> Option<&mut ClientInfo> {
        let index = client.0 as usize;
        if self.clients.len() <= index {
            self.clients.resize(index + 1, None);
        }
        let name = b"-".as_slice().into();
        let exceptions = self.exceptions;
        let info = ClientInfo { wire, address, name, user: None, exceptions, awaited: [0; 16], last_exception: None };
        self.clients.get_mut(index).map(|entry| &mut **entry.get_or_insert(Box::new(info)))
    }

    pub fn leave(&mut self, client: ClientId) {
        let info = self.clients.get_mut(client.0 as usize).and_then(Option::take);
        *self.count_mut(info.map_or(Wire::Beanstalk, |info| info.wire)) -= 1;
    }

    pub fn get(&self, client: ClientId) -> Option<&ClientInfo> {
        self.clients.get(client.0 as usize)?.as_deref()
    }

    pub fn get_mut(&mut self, client: ClientId) -> Option<&mut ClientInfo> {
        self.clients.get_mut(client.0 as usize)?.as_deref_mut()
    }

    /// Returns the first client with an entry whose number is at least `from`. Numbers are dense, so the search is
    /// short.
    pub fn next(&self, from: u32) -> Option<(ClientId, &ClientInfo)> {
        let mut clients = self.clients.iter().enumerate().skip(from as usize);
        clients.find_map(|(number, info)| Some((ClientId(number as u32), info.as_deref()?)))
    }

    pub fn operators(&self) -> u64 {
        self.operators
    }

    #[expect(clippy::indexing_slicing, reason = "each protocol has a count")]
    pub fn count(&self, wire: Wire) -> usize {
        self.counts[wire as usize]
    }

    #[expect(clippy::indexing_slicing, reason = "each protocol has a count")]
    fn count_mut(&mut self, wire: Wire) -> &mut usize {
        &mut self.counts[wire as usize]
    }
}

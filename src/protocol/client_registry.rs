//! Properties of connected clients that other clients can view.

use std::fmt::Display;

use super::Wire;
use crate::engine::{ClientId, JobId};

#[derive(Clone, Debug)]
pub struct ClientInfo {
    pub wire: Wire,
    pub address: Box<str>,
    pub name: Box<[u8]>,
    /// The name in the access file; `None` if the client is not authenticated.
    pub user: Option<Box<str>>,
    /// `true` if the client receives failure reasons, as Gearman's option `exceptions` requests.
    pub exceptions: bool,
    /// The UUID of the job whose outcome a Workq client awaits.
    pub awaited: [u8; 16],
    /// The job of the last WORK_EXCEPTION packet that this Gearman worker sent successfully.
    pub last_exception: Option<JobId>,
}

/// Beanstalk clients have an entry only if they are named or authenticated. The others use no memory here.
#[derive(Debug, Default)]
pub struct ClientRegistry {
    clients: Vec<Option<Box<ClientInfo>>>,
    counts: [usize; Wire::ALL.len()],
    http_total: u64,
    exceptions: bool,
}

impl ClientRegistry {
    pub fn new(exceptions: bool) -> ClientRegistry {
        ClientRegistry { exceptions, ..ClientRegistry::default() }
    }

    pub fn enter(&mut self, client: ClientId, wire: Wire, address: &impl Display) {
        *self.count_mut(wire) += 1;
        self.http_total += u64::from(wire == Wire::Http);
        if wire != Wire::Beanstalk {
            self.add(client, wire, address.to_string().into());
        }
    }

    pub fn name(&mut self, client: ClientId, name: &[u8]) {
        if let Some(info) = self.add(client, Wire::Beanstalk, Box::default()) {
            info.name = name.into();
        }
    }

    pub fn identify(&mut self, client: ClientId, user: Option<&str>) {
        if user.is_some() || self.get(client).is_some() {
            if let Some(info) = self.add(client, Wire::Beanstalk, Box::default()) {
                info.user = user.map(Into::into);
            }
        }
    }

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

    /// Client IDs are dense, so the search for the next entry is fast.
    pub fn next(&self, from: u32) -> Option<(ClientId, &ClientInfo)> {
        let mut clients = self.clients.iter().enumerate().skip(from as usize);
        clients.find_map(|(number, info)| Some((ClientId(number as u32), info.as_deref()?)))
    }

    pub fn http_total(&self) -> u64 {
        self.http_total
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

//! The registry of connections, and the data that clients may view: the properties and the statistics of connections,
//! and sums over the visible tubes.

use std::fmt::Display;

use super::pages::{Mark, Order, SortedPage};
use super::text::{has_part, push_tube_name};
use super::{sees, show_optional, Context, FigureValue, Output, Peers, Wire};
use crate::access::ClientAccess;
use crate::engine::{ClientId, ClientStats, Engine, Handle, JobCounts, JobId, Progress, Stats, Time};

#[derive(Clone, Debug)]
pub struct ClientInfo {
    pub wire: Wire,
    pub address: Box<str>,
    pub name: Box<[u8]>,
    /// The name in the access file; `None` if the client is not authenticated.
    pub user: Option<Box<str>>,
    /// `true` if a Gearman client receives failure reasons: the client or the server has set the option `exceptions`.
    pub exceptions: bool,
    /// The UUID of the job whose outcome a Workq client awaits.
    pub awaited: [u8; 16],
    /// The job of the last WORK_EXCEPTION packet that this Gearman worker sent successfully.
    pub last_exception: Option<JobId>,
}

/// Beanstalk clients have an entry only if they are named or authenticated, to save memory.
#[derive(Debug, Default)]
pub struct ClientRegistry {
    clients: Vec<Option<Box<ClientInfo>>>,
    /// In the order of `Wire::ALL`.
    pub counts: [usize; Wire::ALL.len()],
    pub http_total: u64,
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
        let (name, exceptions) = (b"-".as_slice().into(), self.exceptions);
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

    #[expect(clippy::indexing_slicing, reason = "each protocol has a count")]
    fn count_mut(&mut self, wire: Wire) -> &mut usize {
        &mut self.counts[wire as usize]
    }
}

type ConnectionFigure = fn(&ClientStats, Time) -> u64;

/// Lists can be sorted by these statistics. Connections without a job have a lower `job-age` than all others.
pub const CONNECTION_FIGURES: [(&str, ConnectionFigure); 6] = [
    ("number", |it, _| it.number.into()),
    ("age", |it, _| it.age.secs()),
    ("idle", |it, _| it.idle.secs()),
    ("watching", |it, _| it.watching as u64),
    ("jobs-held", |it, _| it.held as u64),
    ("job-age", |it, now| it.job.map_or(0, |job| 1 + job.taken_for(now).secs())),
];

pub struct Connections<'a> {
    registry: &'a ClientRegistry,
    peers: &'a dyn Peers,
    access: Option<&'a ClientAccess>,
    now: Time,
}

#[derive(Debug)]
pub struct ConnectionPage {
    pub page: ClientPage,
    pub from: u32,
    pub list: Output,
}

impl ConnectionPage {
    pub fn new(above: u32, limit: usize, list: Output) -> ConnectionPage {
        let after = Mark { value: 0, name: above.to_be_bytes().into() };
        let page = SortedPage::new(Order { figure: None, descending: false }, Some(after).filter(|_| above > 0), limit);
        ConnectionPage { page, from: 0, list }
    }

    pub fn footprint(&self) -> u64 {
        self.page.footprint() + self.list.footprint()
    }
}

type ClientPage = SortedPage<Handle<ClientId>>;

/// Adds the visible connections with `filter` in the address or another text property, starting at client ID `from`.
pub fn offer_clients(page: &mut ClientPage, from: &mut u32, filter: &[u8], context: &mut Context) -> Progress {
    let Context { engine, registry, peers, access, now, .. } = context;
    let connections = Connections { registry, peers: *peers, access: access.as_deref(), now: *now };
    let figure = page.order.figure.and_then(|index| CONNECTION_FIGURES.get(index));
    engine.walk_clients(from, *now, |engine, it| {
        let mut bytes = 64;
        if connections.shows(engine, it) && (filter.is_empty() || connections.has_text(engine, it, filter, &mut bytes))
        {
            let value = figure.map_or(0, |(_, figure)| figure(it, connections.now));
            page.offer(value, &it.number.to_be_bytes(), || engine.handle(it.client));
        }
        bytes
    })
}

impl<'a> Connections<'a> {
    pub fn of(context: &'a Context) -> Connections<'a> {
        let Context { registry, peers, access, now, .. } = context;
        Connections { registry, peers: *peers, access: access.as_deref(), now: *now }
    }

    pub fn find(&self, handle: Handle<ClientId>, engine: &'a Engine) -> Option<ClientStats<'a>> {
        engine.client_at(handle).and_then(|client| engine.client_stats(client.0, self.now))
    }

    /// Adds the length of the properties to `bytes`.
    fn has_text(&self, engine: &Engine, it: &ClientStats, part: &[u8], bytes: &mut usize) -> bool {
        let mut found = false;
        self.show(engine, it, |_, value| {
            if let FigureValue::Word(text) | FigureValue::Name(text) | FigureValue::Text(text) = value {
                *bytes += text.len();
                found = found || has_part(text, part);
            }
        });
        found
    }

    /// A client can view a connection if it can view the tube that the connection uses, one of the first `SHOWN_TUBES`
    /// watched tubes, or the tube of the reservation that expires first. HTTP connections are always hidden.
    fn shows(&self, engine: &Engine, it: &ClientStats) -> bool {
        let tubes = it.used.into_iter().chain(it.watched.iter().copied());
        let mut tubes = tubes.chain(it.job.map(|job| engine.tube_of(&job)));
        self.wire(it) != Wire::Http && tubes.any(|tube| self.sees(tube))
    }

    fn sees(&self, tube: &[u8]) -> bool {
        self.access.is_none_or(|access| access.sees(tube))
    }

    fn wire(&self, it: &ClientStats) -> Wire {
        // The connection number 0 stands for the leases of disconnected Workq clients.
        let unnamed = if it.number == 0 { Wire::Workq } else { Wire::Beanstalk };
        self.registry.get(it.client).map_or(unnamed, |info| info.wire)
    }

    /// Omits tubes that the requesting client has no right to view, and their jobs.
    pub fn show(&self, engine: &Engine, it: &ClientStats, mut show: impl FnMut(&'static str, FigureValue)) {
        use FigureValue::{Name, Number, Text, Word};
        let info = self.registry.get(it.client);
        CONNECTION_FIGURES[..5].iter().for_each(|(key, figure)| show(key, Number(figure(it, self.now))));
        show("protocol", Word(self.wire(it).name().as_bytes()));
        let name = info.map(|info| &*info.name).filter(|name| !name.is_empty() && *name != b"-");
        show_optional("client", name.map(Text), &mut show);
        let user = info.and_then(|info| info.user.as_deref());
        show_optional("user", user.map(|user| Text(user.as_bytes())), &mut show);
        let state: &[u8] = match it {
            _ if it.held > 0 => b"working",
            _ if it.waits => b"waiting",
            _ => b"idle",
        };
        show("state", Word(state));
        show_optional("using", it.used.filter(|tube| self.sees(tube)).map(Name), &mut show);
        let mut watched = Vec::new();
        for tube in it.watched.iter().filter(|tube| self.sees(tube)) {
            push_tube_name(&mut watched, tube);
            watched.push(b' ');
        }
        if let [names @ .., _] = &*watched {
            show("watches", Text(names));
        }
        if let Some(job) = it.job.filter(|job| self.sees(engine.tube_of(job))) {
            show("job", Number(job.id().0));
            show("job-tube", Name(engine.tube_of(&job)));
            show("job-age", Number(job.taken_for(self.now).secs()));
            show("time-left", Number(job.due().since(self.now).secs()));
            if let Some((done, total)) = engine.progress(&job) {
                show("progress", Word(format!("{done}/{total}").as_bytes()));
            }
        }
        let address = self.peers.address(it.client);
        show_optional("address", address.as_ref().map(|address| Text(address.as_bytes())), &mut show);
    }
}

#[derive(Debug, Default)]
pub struct VisibleSums {
    next: u32,
    jobs: JobCounts,
    total_jobs: u64,
    tubes: usize,
}

impl VisibleSums {
    /// Adds further tubes to the sums. Returns `None` until all tubes have been added.
    pub fn advance(&mut self, context: &mut Context) -> Option<Stats> {
        if context.sees_all() {
            return Some(context.stats());
        }
        let Context { engine, access, now, .. } = context;
        let progress = engine.walk_tubes(&mut self.next, *now, |tube| {
            if sees(access, tube.name) {
                self.jobs.merge(&tube.jobs);
                self.total_jobs += tube.total_jobs;
                self.tubes += 1;
            }
            0
        });
        if progress == Progress::More {
            return None;
        }
        let VisibleSums { jobs, total_jobs, tubes, .. } = *self;
        Some(Stats { jobs, total_jobs, tubes, ..context.stats() })
    }
}

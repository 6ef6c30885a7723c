//! Statistics of connections, for `list-connections` and the HTTP API, and the choice of those that a client may view.

use super::beanstalk::FigureValue;
use super::sorted::{Mark, Order, SortedPage};
use super::text::push_tube_name;
use super::{ClientRegistry, Context, Output, Peers, Wire};
use crate::access::ClientAccess;
use crate::engine::{ClientHandle, ClientStats, Engine, Progress, Time};

pub type ConnectionFigure = (&'static str, fn(&ClientStats, Time) -> u64);

/// Lists can be sorted by these statistics. Connections without a job have a lower `job-age` than all others.
pub const CONNECTION_FIGURES: [ConnectionFigure; 6] = [
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
    pub page: SortedPage<ClientHandle>,
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

/// Adds connections from client ID `from` on, if `admits` accepts one of their text values or an empty text.
pub fn offer_connections(
    page: &mut SortedPage<ClientHandle>,
    from: &mut u32,
    context: &mut Context,
    admits: impl Fn(&[u8]) -> bool,
) -> Progress {
    let Context { engine, registry, peers, access, now, .. } = context;
    let connections = Connections { registry, peers: *peers, access: access.as_deref(), now: *now };
    let figure = page.order.figure.and_then(|index| CONNECTION_FIGURES.get(index));
    engine.walk_clients(from, *now, |engine, it| {
        if !connections.shows(engine, it) || !admits(b"") && !connections.has_text(engine, it, &admits) {
            return 64;
        }
        let value = figure.map_or(0, |(_, figure)| figure(it, connections.now));
        page.offer(value, &it.number.to_be_bytes(), || engine.handle(it.client));
        64
    })
}

impl<'a> Connections<'a> {
    pub fn of(context: &'a Context) -> Connections<'a> {
        let Context { registry, peers, access, now, .. } = context;
        Connections { registry, peers: *peers, access: access.as_deref(), now: *now }
    }

    fn has_text(&self, engine: &Engine, it: &ClientStats, admits: impl Fn(&[u8]) -> bool) -> bool {
        let mut found = false;
        self.show(engine, it, |_, value| {
            found |= match value {
                FigureValue::Word(text) | FigureValue::Name(text) | FigureValue::Text(text) => admits(text),
                _ => false,
            };
        });
        found
    }

    /// Viewing a connection requires the right to view the tube that it uses, one of the first `SHOWN_TUBES` tubes that
    /// it watches, or the tube of its reserved job whose time to run ends first. HTTP connections are always hidden.
    fn shows(&self, engine: &Engine, it: &ClientStats) -> bool {
        let tubes = it.used.into_iter().chain(it.watched.iter().copied());
        let mut tubes = tubes.chain(it.job.map(|job| engine.tube_of(&job)));
        self.wire(it) != Wire::Http && tubes.any(|tube| self.sees(tube))
    }

    fn sees(&self, tube: &[u8]) -> bool {
        self.access.is_none_or(|access| access.sees(tube))
    }

    fn wire(&self, it: &ClientStats) -> Wire {
        match self.registry.get(it.client) {
            Some(info) => info.wire,
            // The connection number 0 stands for the leases of disconnected Workq clients.
            None if it.number == 0 => Wire::Workq,
            None => Wire::Beanstalk,
        }
    }

    /// Omits tubes that the requesting client may not view, and their jobs.
    pub fn show(&self, engine: &Engine, it: &ClientStats, mut show: impl FnMut(&'static str, FigureValue)) {
        use FigureValue::{Name, Number, Text, Word};
        let info = self.registry.get(it.client);
        for (key, figure) in &CONNECTION_FIGURES[..5] {
            show(key, Number(figure(it, self.now)));
        }
        show("protocol", Word(self.wire(it).name().as_bytes()));
        if let Some(name) = info.map(|info| &*info.name).filter(|name| !name.is_empty() && *name != b"-") {
            show("client", Text(name));
        }
        if let Some(user) = info.and_then(|info| info.user.as_deref()) {
            show("user", Text(user.as_bytes()));
        }
        let state: &[u8] = match it {
            _ if it.held > 0 => b"working",
            _ if it.waits => b"waiting",
            _ => b"idle",
        };
        show("state", Word(state));
        it.used.filter(|tube| self.sees(tube)).into_iter().for_each(|tube| show("using", Name(tube)));
        let mut watched = Vec::new();
        for tube in it.watched.iter().filter(|tube| self.sees(tube)) {
            if !watched.is_empty() {
                watched.push(b' ');
            }
            push_tube_name(&mut watched, tube);
        }
        if !watched.is_empty() {
            show("watches", Text(&watched));
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
        if let Some(address) = self.peers.address(it.client) {
            show("address", Text(address.as_bytes()));
        }
    }
}

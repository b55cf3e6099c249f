//! The state of `tidegate top`, pure: keys, ticks and answers come in, requests go out. The state reads no
//! clock, no socket and no terminal; `view` draws it.
//!
//! At most one request is open at any time. A tick puts the requests of the present view before the pages of
//! a search, so that a search of a long list does not stop the rates.

pub(crate) mod boundaries;
pub(crate) mod browse;
mod inside;
pub(crate) mod json;
mod keys;
pub(crate) mod lists;
pub(crate) mod overview;
pub(crate) mod request;
pub(crate) mod server;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::Value;

use self::boundaries::Boundary;
use self::browse::Browse;
use self::inside::Inside;
use self::json::{at, num, text};
use self::lists::{Connection, Directory, Route, Stream};
use self::overview::Overview;
use self::request::{Failure, OVERVIEW, Page, Reply, Request};
use self::server::Server;

/// The longest time between two attempts to reach a server that does not answer.
const RETRY: Duration = Duration::from_secs(1);
/// The seconds of history that the user can choose.
const WINDOWS: [u16; 4] = [60, 120, 300, boundaries::HISTORY_MAX];

/// The choices of the command line that the state and its pictures follow.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The address of the monitor, as text for the picture.
    pub(crate) url: String,
    /// The time between two requests for the same figures.
    pub(crate) interval: Duration,
    /// True if the picture may have colours.
    pub(crate) color: bool,
    /// True if each tick asks for the figures of all views, for a single picture.
    pub(crate) whole: bool,
}

/// The pictures that the user can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Overview,
    Boundaries,
    Streams,
    Connections,
    Cluster,
}

impl View {
    pub(crate) const ALL: [Self; 5] = [
        Self::Overview,
        Self::Boundaries,
        Self::Streams,
        Self::Connections,
        Self::Cluster,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Overview => "overview",
            Self::Boundaries => "boundaries",
            Self::Streams => "streams",
            Self::Connections => "connections",
            Self::Cluster => "cluster",
        }
    }
}

/// A key that the user pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Tab,
    BackTab,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-C.
    Interrupt,
}

/// An event for the state.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Key(Key),
    /// Time has passed; comes at least twice a second.
    Tick,
    Answer(Request, Result<Reply, Failure>),
}

/// An order of the state to its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Make this request, and give its answer back.
    Ask(Request),
    /// End the program.
    Quit,
}

/// The loss of the server.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    /// The time of the last answer.
    pub(crate) since: Duration,
    pub(crate) why: Failure,
}

/// All that the pictures show.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) now: Duration,
    pub(crate) view: View,
    pub(crate) help: bool,
    pub(crate) paused: Option<Duration>,
    /// The text of a search that the user types now.
    pub(crate) typed: Option<String>,
    pub(crate) lost: Option<Lost>,
    pub(crate) server: Option<Server>,
    /// The answer to the question if the server is ready; an error says why it is not.
    pub(crate) health: Option<Result<(), String>>,
    pub(crate) boundaries: Option<Vec<Boundary>>,
    /// The name of the boundary that the user has chosen for its details; without a choice the first one
    /// counts.
    pub(crate) boundary: Option<String>,
    /// The seconds of history in the chart.
    pub(crate) window: u16,
    /// The overview of a Tidegate server; `None` for other servers, and for older ones.
    pub(crate) overview: Option<Overview>,
    /// The counts of streams, from `/overview` or `/jsz`.
    pub(crate) storage: Option<Value>,
    pub(crate) directory: Option<Directory>,
    pub(crate) routes: Option<Vec<Route>>,
    pub(crate) streams: Browse<Stream>,
    /// The consumers of a stream that the user has opened.
    pub(crate) inside: Option<Inside>,
    pub(crate) connections: Browse<Connection>,
    /// The paths that the server does not have.
    pub(crate) missing: BTreeSet<&'static str>,
    /// The latest failures of paths that the server has.
    pub(crate) troubles: BTreeMap<&'static str, Failure>,
    /// The last answer of `/boundaries` as it came, for programs.
    pub(crate) raw_boundaries: Option<Value>,
    open: Option<(Request, Duration)>,
    queue: VecDeque<Request>,
    planned: Option<Duration>,
    answered: Duration,
}

impl State {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            now: Duration::ZERO,
            view: View::Overview,
            help: false,
            paused: None,
            typed: None,
            lost: None,
            server: None,
            health: None,
            boundaries: None,
            boundary: None,
            window: WINDOWS[1],
            overview: None,
            storage: None,
            directory: None,
            routes: None,
            streams: Browse::new(),
            inside: None,
            connections: Browse::new(),
            missing: BTreeSet::new(),
            troubles: BTreeMap::new(),
            raw_boundaries: None,
            open: None,
            queue: VecDeque::new(),
            planned: None,
            answered: Duration::ZERO,
        }
    }

    /// Takes in an event. Returns what the driver must do.
    pub(crate) fn handle(&mut self, now: Duration, event: Event) -> Vec<Effect> {
        self.now = self.now.max(now);
        match event {
            Event::Key(key) => {
                if self.handle_key(key) {
                    return vec![Effect::Quit];
                }
            }
            Event::Tick => self.plan(),
            Event::Answer(request, outcome) => self.handle_answer(request, outcome),
        }
        self.poll().into_iter().collect()
    }

    /// Returns the request that has been open for some time, and that time.
    pub(crate) fn waits_for(&self) -> Option<(Request, Duration)> {
        let (request, since) = self.open?;
        Some((request, self.now.saturating_sub(since)))
    }

    /// Returns the boundary that the user has chosen for its details.
    pub(crate) fn chosen_boundary(&self) -> Option<(usize, &Boundary)> {
        let all = self.boundaries.as_deref()?;
        let is_chosen = |b: &&Boundary| Some(b.name.as_str()) == self.boundary.as_deref();
        let at = all.iter().position(|b| is_chosen(&b)).unwrap_or(0);
        Some((at, all.get(at)?))
    }

    /// Returns whether the watched server is Tidegate, by a member that only Tidegate has.
    pub(crate) fn is_tidegate(&self) -> bool {
        let body = self.server.as_ref().map(Server::body);
        body.is_some_and(|body| at(body, "batching").is_object())
    }

    /// Queues the requests of a tick, before the pages of a search.
    fn plan(&mut self) {
        let due = |every: Duration| {
            self.planned
                .is_none_or(|at| self.now.saturating_sub(at) >= every)
        };
        let interval = self.settings.interval;
        if self.paused.is_some()
            || self
                .open
                .is_some_and(|(request, _)| request == Request::Server)
        {
            return;
        }
        if self.lost.is_some() {
            if due(interval.min(RETRY)) && self.open.is_none() {
                self.planned = Some(self.now);
                self.queue.push_back(Request::Server);
            }
            return;
        }
        if !due(interval) {
            return;
        }
        self.planned = Some(self.now);
        for request in self.wanted().into_iter().rev() {
            self.queue_first(request);
        }
    }

    /// Returns the requests of a tick, the most important one first.
    fn wanted(&mut self) -> Vec<Request> {
        let now = self.now;
        let mut wanted = vec![Request::Server];
        let whole = self.settings.whole;
        if self.has_overview() {
            wanted.push(Request::Overview);
        } else {
            wanted.push(Request::Health);
            if whole || self.view != View::Streams || self.inside.is_some() {
                wanted.push(Request::Storage);
            }
        }
        match self.view {
            _ if whole => wanted.extend([Request::Boundaries(None), Request::Routes]),
            View::Overview => wanted.push(Request::Boundaries(None)),
            View::Boundaries => wanted.push(Request::Boundaries(Some(self.window))),
            View::Streams => match &self.inside {
                Some(inside) => wanted.push(Request::Consumers(inside.page())),
                None => wanted.extend(self.streams.due(now).map(Request::Streams)),
            },
            View::Connections => wanted.extend(self.connections.due(now).map(Request::Connections)),
            View::Cluster => wanted.push(Request::Routes),
        }
        wanted.retain(|request| !self.missing.contains(request.name()));
        wanted
    }

    /// Returns whether the server may have an overview, which other servers and older ones lack.
    fn has_overview(&self) -> bool {
        !self.missing.contains(OVERVIEW) && (self.server.is_none() || self.is_tidegate())
    }

    /// Puts a request before the others, unless it waits already or is open.
    fn queue_first(&mut self, request: Request) {
        let is_open = self.open.is_some_and(|(open, _)| open == request);
        self.queue.retain(|queued| *queued != request);
        if !is_open {
            self.queue.push_front(request);
        }
    }

    /// Makes the figures of the present view come soon, after the user has changed it.
    fn refresh(&mut self) {
        self.queue.clear();
        self.planned = None;
        if self.paused.is_none() && self.lost.is_none() {
            self.planned = Some(self.now);
            let wanted = self.wanted();
            self.queue.extend(wanted);
        }
    }

    /// Queues a page that the user has turned to, also while the picture is paused.
    fn turn_to(&mut self, page: Option<Request>) {
        if let Some(page) = page.filter(|_| self.lost.is_none()) {
            self.queue_first(page);
        }
    }

    fn poll(&mut self) -> Option<Effect> {
        if self.open.is_some() {
            return None;
        }
        let next = self.queue.pop_front()?;
        self.open = Some((next, self.now));
        Some(Effect::Ask(next))
    }

    fn handle_answer(&mut self, request: Request, outcome: Result<Reply, Failure>) {
        if self.open.is_some_and(|(open, _)| open == request) {
            self.open = None;
        }
        let reply = match outcome {
            Ok(reply) => reply,
            Err(why) if why.is_loss() => {
                self.queue.clear();
                self.planned = Some(self.now);
                let since = self.answered;
                let lost = self.lost.get_or_insert_with(|| Lost {
                    since,
                    why: why.clone(),
                });
                lost.why = why;
                return;
            }
            Err(why) => {
                self.note_answer();
                self.note_trouble(request, why);
                return;
            }
        };
        self.note_answer();
        if request == Request::Health {
            self.health = Some(health(&reply));
            return;
        }
        if reply.status != 200 {
            let said = text(&reply.body, "error").unwrap_or("no reason given");
            self.note_trouble(request, Failure::Status(reply.status, said.to_owned()));
            return;
        }
        self.troubles.remove(request.name());
        self.take(request, reply.body);
    }

    /// Notes that the server has answered, and starts over after a loss.
    fn note_answer(&mut self) {
        self.answered = self.now;
        if self.lost.take().is_some() {
            // Another version of the server may answer now, with other paths.
            self.missing.clear();
            self.troubles.clear();
            self.planned = None;
        }
    }

    fn note_trouble(&mut self, request: Request, why: Failure) {
        let name = request.name();
        match why {
            Failure::Status(404, _) if request != Request::Server => {
                self.missing.insert(name);
                if request == Request::Overview {
                    // The server is an older one, with these paths in place of the overview.
                    self.overview = None;
                    self.queue_first(Request::Storage);
                    self.queue_first(Request::Health);
                }
            }
            why => {
                self.troubles.insert(name, why);
            }
        }
    }

    fn take(&mut self, request: Request, body: Value) {
        let now = self.now;
        match request {
            Request::Server => self.take_server(body),
            Request::Health => {}
            Request::Overview => {
                self.overview = Overview::read(body);
                if let Some(overview) = &self.overview {
                    self.health = Some(overview.health());
                    self.storage = Some(overview.storage());
                    self.directory = overview.directory();
                }
            }
            Request::Boundaries(_) => {
                if let Some(read) = boundaries::read(&body) {
                    self.boundaries = Some(read);
                    self.raw_boundaries = Some(body);
                }
            }
            Request::Storage => self.take_storage(body),
            Request::Streams(page) => {
                let rows = lists::streams(&body);
                let next = self.streams.take(now, page, rows, total(&body, "streams"));
                self.take_storage(body);
                self.turn_to_next(next.map(Request::Streams));
            }
            Request::Consumers(page) => {
                let streams = total(&body, "streams").unwrap_or(0);
                let next = self.inside.as_mut().and_then(|inside| {
                    let found = lists::consumers(&body, inside.stream());
                    inside.take(now, page, found, streams)
                });
                self.turn_to_next(next.map(Request::Consumers));
            }
            Request::Connections(page) => {
                let rows = lists::connections(&body);
                let next = self
                    .connections
                    .take(now, page, rows, total(&body, "total"));
                self.turn_to_next(next.map(Request::Connections));
            }
            Request::Routes => self.routes = Some(lists::routes(&body)),
        }
    }

    /// Queues the next page of a sweep behind the requests of a tick.
    fn turn_to_next(&mut self, page: Option<Request>) {
        if let Some(page) = page
            && !self.queue.contains(&page)
        {
            self.queue.push_back(page);
        }
    }

    fn take_server(&mut self, body: Value) {
        if self.missing.contains(Request::Boundaries(None).name()) {
            self.boundaries = boundaries::from_server(&body);
        }
        match &mut self.server {
            Some(server) => {
                server.update(self.now, body);
            }
            None => self.server = Server::read(self.now, body),
        }
    }

    fn take_storage(&mut self, mut body: Value) {
        self.directory = lists::directory(&body);
        // The rows are elsewhere already, and may take megabytes.
        if let Some(members) = body.as_object_mut() {
            members.remove("account_details");
        }
        self.storage = Some(body);
    }
}

/// Reads the answer to `/healthz`, which says in its body why a server is not ready.
fn health(reply: &Reply) -> Result<(), String> {
    let why = text(&reply.body, "error").filter(|why| !why.is_empty());
    match (reply.status, why) {
        (200, None) => Ok(()),
        (_, Some(why)) => Err(why.to_owned()),
        (status, None) => Err(format!("/healthz answers {status}")),
    }
}

/// Returns the length of a list that the answer tells.
fn total(body: &Value, member: &str) -> Option<u64> {
    num(body, member).filter(|n| *n >= 0.0).map(|n| n as u64)
}

/// Returns the page with all streams of a server that does not page them.
const fn whole_page() -> Page {
    Page {
        offset: 0,
        limit: 1024,
    }
}

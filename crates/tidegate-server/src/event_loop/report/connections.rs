//! Looks through the client connections for a list, a part at a time, so that no turn of the loop takes long:
//! a server may have a hundred thousand connections. The loop gives the reader a short entry for each
//! connection that the reader wants. The reader brings them into order, and then asks for the connections of
//! its page.

use tidegate_nats::session::Session;

use super::lists::Connection;
use super::query::{Query, Sort};
use crate::party::ClientKey;
use crate::sessions::Node;
use crate::sessions::recently_closed::ClosedConnection;

/// The most places in the table of connections that the loop looks at in one part: some 100 microseconds,
/// and some 300 with a search.
const LOOKED: usize = 1024;
/// The most connections that the loop describes in one part, and (`SUBJECTS`) the number of subjects of
/// subscriptions after which it ends the part.
const DESCRIBED: usize = 128;
const SUBJECTS: usize = 2048;

/// A place in the list of connections, at which the loop continues the look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cursor {
    /// A place in the table of open connections.
    Open(usize),
    /// The number of a closed connection, counted since the start of the server.
    Closed(u64),
}

/// A connection in a list, with the figure that gives its place. The order of the entries is the order of the
/// list; the numbers of connections make the order of equal figures certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    figure: u64,
    /// The reason for which the connection ended, in a list in the order of reasons; otherwise empty.
    reason: &'static str,
    cid: u64,
    at: At,
}

/// The place of a connection: in the table of open ones, or among the closed ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum At {
    Open(ClientKey),
    Closed(u64),
}

/// A part of the look at the connections.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    pub(crate) found: Vec<Entry>,
    /// The number of connections of the wanted state and account, with or without the other conditions.
    pub(crate) counted: usize,
    /// The place at which the loop continues; `None` if it has seen all.
    pub(crate) next: Option<Cursor>,
}

/// Returns the place at which the look at the connections of this query begins.
pub(crate) const fn first(query: &Query) -> Cursor {
    match query.state.open() {
        true => Cursor::Open(0),
        false => Cursor::Closed(0),
    }
}

/// Looks at a part of the connections, from the place `from` on.
pub(super) fn look(node: &Node, query: &Query, from: Cursor) -> Looked {
    let mut looked = Looked::default();
    match from {
        Cursor::Open(from) => {
            for (key, session) in node.sessions_at(from..from + LOOKED) {
                looked.add(node, query, Found::Open(session), At::Open(key));
            }
            let end = from + LOOKED;
            looked.next = match (end < node.places(), query.state.closed()) {
                (true, _) => Some(Cursor::Open(end)),
                (false, true) => Some(Cursor::Closed(0)),
                (false, false) => None,
            };
        }
        Cursor::Closed(from) => {
            let mut all = node.recently_closed().starting_at(from);
            for (at, closed) in all.by_ref().take(LOOKED) {
                looked.add(node, query, Found::Closed(closed), At::Closed(at));
            }
            looked.next = all.next().map(|(at, _)| Cursor::Closed(at));
        }
    }
    looked
}

impl Looked {
    fn add(&mut self, node: &Node, query: &Query, found: Found<'_>, at: At) {
        let account = node.settings().account_name(found.account());
        if !query.is_of_account(account) {
            return;
        }
        self.counted += 1;
        let (cid, user) = (found.cid(), query.user.as_deref());
        let is_wanted = query.cid.is_none_or(|wanted| wanted == cid)
            && user.is_none_or(|user| found.user() == Some(user))
            && query.search.as_ref().is_none_or(|s| found.contains(s));
        if is_wanted {
            self.found.push(Entry {
                figure: found.figure(query.sort),
                reason: match (&found, query.sort) {
                    (Found::Closed(closed), Sort::Reason) => closed.reason.as_str(),
                    _ => "",
                },
                cid,
                at,
            });
        }
    }
}

/// Describes connections of a page, in their order, with at most `room` subjects of subscriptions. Returns
/// the descriptions, and how many of the entries they cover: the loop ends early if they get many. A
/// connection that is gone has no description.
pub(super) fn describe(
    node: &Node,
    entries: &[Entry],
    mut room: usize,
) -> (Vec<Connection>, usize) {
    let name = |account| node.settings().account_name(account);
    let (mut described, mut covered, mut subjects) = (Vec::new(), 0, 0);
    for entry in entries.iter().take(DESCRIBED) {
        if subjects >= SUBJECTS {
            break;
        }
        covered += 1;
        match entry.at {
            At::Closed(at) => {
                let found = node.recently_closed().starting_at(at).next();
                let same = found.filter(|(_, c)| c.cid == entry.cid);
                described.extend(same.map(|(_, c)| closed(c, name(c.account))));
            }
            At::Open(key) => {
                let Some(session) = node.session(key).filter(|s| s.cid == entry.cid) else {
                    continue;
                };
                let patterns = node.patterns(session).take(room);
                let listed: Vec<String> = patterns.map(super::lists::text).collect();
                room -= listed.len();
                subjects += listed.len();
                described.push(open(session, name(session.account()), listed));
            }
        }
    }
    (described, covered)
}

/// A client connection that the list contains: an open connection, or a recently closed one.
enum Found<'a> {
    Open(&'a Session),
    Closed(&'a ClosedConnection),
}

impl Found<'_> {
    const fn cid(&self) -> u64 {
        match self {
            Self::Open(s) => s.cid,
            Self::Closed(c) => c.cid,
        }
    }

    fn account(&self) -> tidegate_nats::settings::Account {
        match self {
            Self::Open(s) => s.account(),
            Self::Closed(c) => c.account,
        }
    }

    fn user(&self) -> Option<&str> {
        match self {
            Self::Open(s) => s.user(),
            Self::Closed(c) => c.user.as_deref(),
        }
    }

    /// Returns the figure that brings a list of connections into the order `sort`.
    fn figure(&self, sort: Sort) -> u64 {
        let (subs, pending, traffic, since, active) = match self {
            Self::Open(s) => (s.subs.len(), s.out.len(), s.traffic, s.since, s.active),
            Self::Closed(c) => (c.subscriptions, 0, c.traffic, c.since, c.active),
        };
        let down = |n: u64| u64::MAX - n;
        match sort {
            Sort::Cid | Sort::Reason => 0,
            Sort::Stop => match self {
                Self::Open(_) => u64::MAX,
                Self::Closed(c) => down(c.stop.as_nanos()),
            },
            Sort::Start => since.as_nanos(),
            Sort::Subscriptions => down(subs as u64),
            Sort::Pending => down(pending as u64),
            Sort::MsgsTo => down(traffic.out_msgs),
            Sort::MsgsFrom => down(traffic.in_msgs),
            Sort::BytesTo => down(traffic.out_bytes),
            Sort::BytesFrom => down(traffic.in_bytes),
            Sort::Last => down(active.as_nanos()),
            Sort::Idle => active.as_nanos(),
        }
    }

    /// Returns whether the connection's name, user or address contains `text`.
    fn contains(&self, text: &str) -> bool {
        let (name, address) = match self {
            Self::Open(s) => (s.options.name.as_str(), s.address),
            Self::Closed(c) => (&*c.name, c.address),
        };
        name.contains(text)
            || self.user().is_some_and(|u| u.contains(text))
            || address.to_string().contains(text)
    }
}

fn open(s: &Session, account: &str, subjects: Vec<String>) -> Connection {
    Connection {
        cid: s.cid,
        address: s.address,
        since_ns: s.since.as_nanos(),
        active_ns: s.active.as_nanos(),
        end: None,
        pending_bytes: s.out.len(),
        traffic: s.traffic,
        subscriptions: s.subs.len(),
        name: s.options.name.clone(),
        lang: s.options.lang.clone(),
        version: s.options.version.clone(),
        user: s.user().map(Into::into),
        account: account.into(),
        tls: s.secured,
        subjects,
    }
}

fn closed(c: &ClosedConnection, account: &str) -> Connection {
    Connection {
        cid: c.cid,
        address: c.address,
        since_ns: c.since.as_nanos(),
        active_ns: c.active.as_nanos(),
        end: Some((c.stop.as_nanos(), c.reason)),
        pending_bytes: 0,
        traffic: c.traffic,
        subscriptions: c.subscriptions,
        name: c.name.to_string(),
        lang: c.lang.to_string(),
        version: c.version.to_string(),
        user: c.user.as_deref().map(Into::into),
        account: account.into(),
        tls: c.tls,
        subjects: Vec::new(),
    }
}

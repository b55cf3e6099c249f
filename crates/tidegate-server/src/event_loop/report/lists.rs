//! Lists the client connections and subscriptions for a report, a page at a time, so that a reader of the
//! monitor does not keep the loop long.

use std::net::SocketAddr;

use tidegate_nats::session::{CloseReason, Session, Traffic};
use tidegate_nats::settings::Account;
use tidegate_nats::sublist::SubKey;

use super::query::{Query, Sort};
use crate::sessions::Node;
use crate::sessions::recently_closed::ClosedConnection;
use crate::sessions::view::ClientSubscription;

/// The greatest number of subjects of subscriptions in one list of connections, over all its connections
/// together. The list leaves out further subjects, but no connection, so that it stays small.
const SUBJECTS_MAX: usize = 16 * 1024;

/// The figures of one client connection, as a report shows them.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) cid: u64,
    pub(crate) address: SocketAddr,
    pub(crate) since_ns: u64,
    pub(crate) active_ns: u64,
    /// The time, in nanoseconds since the server's start, and the reason of the connection's end; `None` for
    /// an open connection.
    pub(crate) end: Option<(u64, CloseReason)>,
    pub(crate) pending_bytes: usize,
    pub(crate) traffic: Traffic,
    pub(crate) subscriptions: usize,
    pub(crate) name: String,
    pub(crate) lang: String,
    pub(crate) version: String,
    pub(crate) user: Option<String>,
    /// The name of the client's account, as operators know it.
    pub(crate) account: String,
    pub(crate) tls: bool,
    pub(crate) subjects: Vec<String>,
}

/// A page of a longer list, which the monitor shows.
#[derive(Clone, Debug)]
pub(crate) struct Page<T> {
    /// The number of entries of the whole list, so that a reader knows how much the page leaves out.
    pub(crate) total: usize,
    pub(crate) entries: Vec<T>,
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Self {
            total: 0,
            entries: Vec::new(),
        }
    }
}

/// A client connection that the list contains: an open connection, or a recently closed connection, as the
/// reader asks.
enum Found<'a> {
    Open(&'a Session),
    Closed(&'a ClosedConnection),
}

impl Found<'_> {
    fn cid(&self) -> u64 {
        match self {
            Self::Open(s) => s.cid,
            Self::Closed(c) => c.cid,
        }
    }

    /// Returns the key that brings a list of connections into the order `sort`. The numbers of connections
    /// make the order of equal figures certain.
    fn key(&self, sort: Sort) -> (u64, u64) {
        let (subs, pending, traffic, since, active) = match self {
            Self::Open(s) => (s.subs.len(), s.out.len(), s.traffic, s.since, s.active),
            Self::Closed(c) => (c.subscriptions, 0, c.traffic, c.since, c.active),
        };
        let down = |n: u64| u64::MAX - n;
        let first = match sort {
            Sort::Cid => 0,
            Sort::Start => since.as_nanos(),
            Sort::Subscriptions => down(subs as u64),
            Sort::Pending => down(pending as u64),
            Sort::MsgsTo => down(traffic.out_msgs),
            Sort::MsgsFrom => down(traffic.in_msgs),
            Sort::BytesTo => down(traffic.out_bytes),
            Sort::BytesFrom => down(traffic.in_bytes),
            Sort::Last => down(active.as_nanos()),
            Sort::Idle => active.as_nanos(),
        };
        (first, self.cid())
    }

    /// Returns whether the connection's name, user or address contains `text`.
    fn contains(&self, text: &str) -> bool {
        let (name, user, address) = match self {
            Self::Open(s) => (s.options.name.as_str(), s.user(), s.address),
            Self::Closed(c) => (&*c.name, c.user.as_deref(), c.address),
        };
        name.contains(text)
            || user.is_some_and(|u| u.contains(text))
            || address.to_string().contains(text)
    }
}

/// Lists the client connections that `query` selects, in the order that it names. As in nats-server, the
/// total counts all connections of the selected state for the monitor; with a search, those that it finds.
pub(super) fn connections(node: &Node, query: &Query) -> Page<Connection> {
    let name = |account| node.settings().account_name(account);
    let of = |account| query.is_of_account(name(account));
    let wanted = |cid: u64, user: Option<&str>| {
        query.cid.is_none_or(|c| c == cid) && query.user.as_deref().is_none_or(|u| user == Some(u))
    };
    let mut found = Vec::new();
    let mut total = 0;
    if query.state.open() {
        total += node.sessions().filter(|s| of(s.account())).count();
        let open = node
            .sessions()
            .filter(|s| of(s.account()) && wanted(s.cid, s.user()));
        found.extend(open.map(Found::Open));
    }
    if query.state.closed() {
        let closed = || node.recently_closed().iter().filter(|c| of(c.account));
        total += closed().count();
        let closed = closed().filter(|c| wanted(c.cid, c.user.as_deref()));
        found.extend(closed.map(Found::Closed));
    }
    if let Some(text) = &query.search {
        found.retain(|f| f.contains(text));
        total = found.len();
    }
    let up_to = query.offset.saturating_add(query.limit);
    let sort = query.sort;
    if up_to < found.len() {
        // The loop brings only the entries up to the end of the page into order, to save time.
        found.select_nth_unstable_by_key(up_to, |f| f.key(sort));
        found.truncate(up_to);
    }
    found.sort_unstable_by_key(|f| f.key(sort));
    let mut room = if query.subscriptions { SUBJECTS_MAX } else { 0 };
    let page = found.into_iter().skip(query.offset);
    let entries = page.map(|found| match found {
        Found::Closed(connection) => closed(connection, name(connection.account)),
        Found::Open(session) => {
            let patterns = node.patterns(session).take(room);
            let subjects: Vec<String> = patterns.map(text).collect();
            room -= subjects.len();
            open(session, name(session.account()), subjects)
        }
    });
    Page {
        total,
        entries: entries.collect(),
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

/// A client's subscription, as a report lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) cid: u64,
    /// The name of the client's account, as operators see it.
    pub(crate) account: String,
    pub(crate) subject: String,
    pub(crate) queue: Option<String>,
    pub(crate) sid: String,
    pub(crate) delivered: u64,
    /// The number of messages after which the subscription ends; 0 if it has no such maximum.
    pub(crate) max: u64,
}

/// Lists the subscriptions of all clients for the monitor, or only the subscriptions that match the subject
/// in `query`.
pub(super) fn subscriptions(node: &Node, query: &Query) -> Page<Subscription> {
    if !query.subscriptions {
        return Page::default();
    }
    let name = |account| node.settings().account_name(account);
    let of = |account: &Account| query.is_of_account(name(*account));
    let entry = |s: ClientSubscription<'_>| Subscription {
        cid: s.cid,
        account: name(s.account).into(),
        subject: text(s.pattern),
        queue: s.queue.map(text),
        sid: text(s.sid),
        delivered: s.delivered,
        max: s.max,
    };
    match &query.test {
        Some(subject) => {
            let accounts = [Account::Global, Account::System].into_iter().filter(of);
            let found = accounts.flat_map(|of| node.subscriptions_to(of, subject.as_bytes()));
            let all: Vec<SubKey> = found.collect();
            let page = all.iter().skip(query.offset).take(query.limit);
            let entries = page.map(|key| entry(node.client_subscription(*key)));
            Page {
                total: all.len(),
                entries: entries.collect(),
            }
        }
        None => {
            // The loop skips whole connections before the page, so that it does not walk over all their
            // subscriptions.
            let mut before = query.offset;
            let mut keys: Vec<SubKey> = Vec::new();
            let sessions = || node.sessions().filter(|s| of(&s.account()));
            for session in sessions() {
                let len = session.subs.len();
                let skipped = before.min(len);
                before -= skipped;
                let rest = session.subs.values().skip(skipped);
                keys.extend(rest.take(query.limit - keys.len()));
                if keys.len() == query.limit {
                    break;
                }
            }
            let entries = keys
                .into_iter()
                .map(|key| entry(node.client_subscription(key)));
            Page {
                total: sessions().map(|s| s.subs.len()).sum(),
                entries: entries.collect(),
            }
        }
    }
}

/// The figures of one account, as a report shows them.
#[derive(Clone, Debug)]
pub(crate) struct AccountFigures {
    pub(crate) account: Account,
    pub(crate) name: String,
    pub(crate) connections: usize,
    pub(crate) subscriptions: usize,
    /// The messages and bytes of the open connections of the account, from which the monitor shows its load.
    pub(crate) traffic: Traffic,
}

/// Gathers the figures of the accounts for a report.
pub(super) fn accounts(node: &Node) -> Vec<AccountFigures> {
    let mut all = [Account::Global, Account::System].map(|account| AccountFigures {
        account,
        name: node.settings().account_name(account).into(),
        connections: 0,
        subscriptions: 0,
        traffic: Traffic::default(),
    });
    for session in node.sessions() {
        let of = &mut all[usize::from(session.account() == Account::System)];
        of.connections += 1;
        of.subscriptions += session.subs.len();
        of.traffic.in_msgs += session.traffic.in_msgs;
        of.traffic.in_bytes += session.traffic.in_bytes;
        of.traffic.out_msgs += session.traffic.out_msgs;
        of.traffic.out_bytes += session.traffic.out_bytes;
    }
    all.into()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use tidegate::Time;
    use tidegate_nats::connect::Info;

    use super::super::query::{List, PAGE_MAX, State};
    use super::*;
    use crate::config::Settings;
    use crate::party::ClientKey;
    use crate::sessions::joined::{client, say};

    const NOW: Time = Time::from_nanos(5);

    fn node() -> Node {
        Node::new(Settings::default(), Info::default(), 1)
    }

    fn end(node: &mut Node, at: u64, key: ClientKey) {
        node.handle_closed(Time::from_nanos(at), key, CloseReason::ClientClosed);
        while node.poll_closed().is_some() {}
    }

    fn numbers(page: &Page<Connection>) -> Vec<u64> {
        page.entries.iter().map(|c| c.cid).collect()
    }

    #[test]
    fn connections_by_state_in_the_order_of_their_numbers() {
        let mut node = node();
        let keys: Vec<ClientKey> = (0..4).map(|_| client(&mut node, NOW)).collect();
        say(
            &mut node,
            NOW,
            keys[0],
            "SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nPUB a 1\r\nx\r\n",
        );
        end(&mut node, 9, keys[0]);
        while node.deadline() == Some(Time::ZERO) {
            node.handle_timeouts(NOW);
        }
        end(&mut node, 7, keys[2]);
        let list = |state, offset, limit| {
            let query = Query {
                state,
                offset,
                limit,
                ..Query::new(List::Connections)
            };
            connections(&node, &query)
        };
        assert_eq!(numbers(&list(State::Open, 0, PAGE_MAX)), [2, 4]);
        let closed = list(State::Closed, 0, PAGE_MAX);
        assert_eq!((numbers(&closed), closed.total), (vec![1, 3], 2));
        let first = &closed.entries[0];
        assert_eq!(first.end, Some((9, CloseReason::ClientClosed)));
        assert_eq!((first.subscriptions, first.traffic.in_msgs), (3, 1));
        let all = list(State::All, 1, 2);
        assert_eq!((numbers(&all), all.total), (vec![2, 3], 4));
        assert!(numbers(&list(State::All, 4, 2)).is_empty());
        let one = Query {
            state: State::All,
            cid: Some(3),
            ..Query::new(List::Connections)
        };
        assert_eq!(numbers(&connections(&node, &one)), [3]);
        let other = Query {
            account: Some("other".into()),
            ..one
        };
        assert_eq!(connections(&node, &other).total, 0);
    }

    #[test]
    fn connections_in_the_order_of_a_figure_and_by_a_text() {
        let mut node = node();
        let keys: Vec<ClientKey> = (0..3).map(|_| client(&mut node, NOW)).collect();
        say(&mut node, NOW, keys[1], "PUB a 1\r\nx\r\nPUB a 1\r\nx\r\n");
        say(&mut node, NOW, keys[2], "SUB a 1\r\nPUB b 1\r\nx\r\n");
        let list = |sort, offset, limit, search: Option<&str>| {
            let query = Query {
                sort,
                offset,
                limit,
                search: search.map(Into::into),
                ..Query::new(List::Connections)
            };
            connections(&node, &query)
        };
        assert_eq!(numbers(&list(Sort::MsgsFrom, 0, 9, None)), [2, 3, 1]);
        assert_eq!(numbers(&list(Sort::MsgsFrom, 1, 1, None)), [3]);
        assert_eq!(numbers(&list(Sort::Subscriptions, 0, 2, None)), [3, 1]);
        let address = node.sessions().next().unwrap().address.to_string();
        let found = list(Sort::Cid, 0, 9, Some(&address));
        assert_eq!(found.total, found.entries.len());
        assert!(!found.entries.is_empty());
        assert_eq!(list(Sort::Cid, 0, 9, Some("nothing has this")).total, 0);
    }

    #[test]
    fn subscriptions_in_pages_and_by_subject() {
        let mut node = node();
        let keys: Vec<ClientKey> = (0..3).map(|_| client(&mut node, NOW)).collect();
        say(&mut node, NOW, keys[0], "SUB a.* 1\r\nSUB b 2\r\n");
        say(&mut node, NOW, keys[2], "SUB a.> q 7\r\nUNSUB 7 9\r\n");
        say(&mut node, NOW, keys[1], "PUB a.x 1\r\nx\r\n");
        let list = |test: Option<&str>, offset, limit| {
            let query = Query {
                subscriptions: true,
                test: test.map(Into::into),
                offset,
                limit,
                ..Query::new(List::Subscriptions)
            };
            subscriptions(&node, &query)
        };
        let all = list(None, 0, PAGE_MAX);
        assert_eq!((all.total, all.entries.len()), (3, 3));
        let pages: Vec<Subscription> = (0..4).flat_map(|at| list(None, at, 1).entries).collect();
        assert_eq!(pages, all.entries);
        let matching = list(Some("a.x"), 0, PAGE_MAX);
        assert_eq!(matching.total, 2);
        let of_group = Subscription {
            cid: 3,
            account: "$G".into(),
            subject: "a.>".into(),
            queue: Some("q".into()),
            sid: "7".into(),
            delivered: 1,
            max: 9,
        };
        assert!(matching.entries.contains(&of_group), "{matching:?}");
        assert_eq!(list(Some("c"), 0, PAGE_MAX).total, 0);
    }
}

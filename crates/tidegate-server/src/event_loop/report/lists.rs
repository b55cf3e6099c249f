//! Defines the lists of connections, subscriptions and accounts in a report, and makes the last two, a part
//! at a time, so that a reader of the monitor does not keep the loop long.

use std::net::SocketAddr;

use tidegate_nats::session::{CloseReason, Traffic};
use tidegate_nats::settings::Account;
use tidegate_nats::sublist::SubKey;

use super::query::Query;
use crate::sessions::Node;
use crate::sessions::view::ClientSubscription;

/// The most places in the table of connections, or matching subscriptions, that the loop looks at in one
/// part, so that no turn takes long.
const LOOKED: usize = 1024;

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

/// A place in the list of subscriptions, at which the loop continues the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SubscriptionsAt {
    /// The place in the table of connections, or, in a list of the subscriptions that match a subject, the
    /// number of matches that the loop has seen.
    at: usize,
    /// The number of subscriptions between that place and the first one of the page.
    skip: usize,
    /// The number of subscriptions that the page still lacks.
    room: usize,
}

impl SubscriptionsAt {
    /// Returns the place at which the list of this query begins.
    pub(crate) const fn first(query: &Query) -> Self {
        Self {
            at: 0,
            skip: query.offset,
            room: query.limit,
        }
    }

    /// Returns how many of the next `len` subscriptions stand before the page, and how many are on it.
    fn pass(&mut self, len: usize) -> (usize, usize) {
        let skipped = self.skip.min(len);
        self.skip -= skipped;
        let taken = self.room.min(len - skipped);
        self.room -= taken;
        (skipped, taken)
    }
}

/// A part of the list of subscriptions.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    /// The subscriptions of this part that are on the page.
    pub(crate) entries: Vec<Subscription>,
    /// The number of subscriptions that the loop has seen in this part.
    pub(crate) counted: usize,
    /// The place at which the loop continues; `None` if it has seen all.
    pub(crate) next: Option<SubscriptionsAt>,
}

/// Lists a part of the subscriptions of all clients for the monitor, or only of the subscriptions that match
/// the subject in `query`, from the place `from` on.
pub(super) fn subscriptions(node: &Node, query: &Query, from: SubscriptionsAt) -> Subscriptions {
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
    let (mut next, mut counted) = (from, 0);
    let mut keys: Vec<SubKey> = Vec::new();
    let is_last = match &query.test {
        Some(subject) => {
            let accounts = [Account::Global, Account::System].into_iter().filter(of);
            let (mut skip, mut seen) = (from.at, 0);
            for account in accounts {
                let room = LOOKED - seen;
                let (found, all) = node.subscriptions_to(account, subject.as_bytes(), skip, room);
                seen += room.min(all.saturating_sub(skip));
                skip = skip.saturating_sub(all);
                counted += found.len();
                let (skipped, taken) = next.pass(found.len());
                keys.extend(found.into_iter().skip(skipped).take(taken));
            }
            next.at += seen;
            seen < LOOKED
        }
        None => {
            // The loop skips whole connections before the page, so that it does not walk over all their
            // subscriptions.
            let sessions = node.sessions_at(from.at..from.at + LOOKED);
            for (_, session) in sessions.filter(|(_, s)| of(&s.account())) {
                let len = session.subs.len();
                counted += len;
                let (skipped, taken) = next.pass(len);
                keys.extend(session.subs.values().skip(skipped).take(taken));
            }
            next.at += LOOKED;
            next.at >= node.places()
        }
    };
    let entries = keys.into_iter();
    let entries = entries.map(|key| entry(node.client_subscription(key)));
    Subscriptions {
        entries: entries.collect(),
        counted,
        next: (!is_last).then_some(next),
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

/// Gathers the figures of the accounts over a part of the connections, from the place `from` in their table
/// on. Also returns the place at which the loop continues; `None` if it has seen all.
pub(super) fn accounts(node: &Node, from: usize) -> ([AccountFigures; 2], Option<usize>) {
    let mut all = [Account::Global, Account::System].map(|account| AccountFigures {
        account,
        name: node.settings().account_name(account).into(),
        connections: 0,
        subscriptions: 0,
        traffic: Traffic::default(),
    });
    let end = from + LOOKED;
    for (_, session) in node.sessions_at(from..end) {
        let of = &mut all[usize::from(session.account() == Account::System)];
        of.connections += 1;
        of.subscriptions += session.subs.len();
        of.add(session.traffic);
    }
    (all, (end < node.places()).then_some(end))
}

impl AccountFigures {
    /// Adds the figures of another part of the connections.
    pub(super) fn and(&mut self, other: &Self) {
        self.connections += other.connections;
        self.subscriptions += other.subscriptions;
        self.add(other.traffic);
    }

    const fn add(&mut self, traffic: Traffic) {
        self.traffic.in_msgs += traffic.in_msgs;
        self.traffic.in_bytes += traffic.in_bytes;
        self.traffic.out_msgs += traffic.out_msgs;
        self.traffic.out_bytes += traffic.out_bytes;
    }
}

/// Makes a text of bytes that a client chose, for a list.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use tidegate::Time;
    use tidegate_nats::connect::Info;

    use super::super::gather::{Gather, Listed, Part, answer};
    use super::super::query::{List, PAGE_MAX, Sort, State};
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

    /// Gathers the lists of a query from their parts.
    fn listed(node: &Node, query: &Query) -> Listed {
        let mut gather = Gather::new(query);
        while let Some(ask) = gather.next_ask() {
            gather.take(answer(node, NOW, &ask));
        }
        gather.finish()
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
            listed(&node, &query).connections
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
        assert_eq!(numbers(&listed(&node, &one).connections), [3]);
        let other = Query {
            account: Some("other".into()),
            ..one
        };
        assert_eq!(listed(&node, &other).connections.total, 0);
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
            listed(&node, &query).connections
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
    fn a_long_list_comes_in_parts_of_bounded_length() {
        const CLIENTS: u64 = 3000;
        let mut node = node();
        for n in 0..CLIENTS {
            let key = client(&mut node, NOW);
            if n % 3 == 0 {
                say(&mut node, NOW, key, "SUB a.b 1\r\nSUB a.* 2\r\n");
            }
        }
        let ask = |query: Query| {
            let mut gather = Gather::new(&query);
            let mut parts = 0;
            while let Some(ask) = gather.next_ask() {
                let part = answer(&node, NOW, &ask);
                let len = match &part {
                    Part::Connections(looked) => looked.found.len(),
                    Part::ConnectionsOf(described, _) => described.len(),
                    Part::Subscriptions(part) => part.entries.len(),
                    Part::Accounts(figures, _) => figures.iter().map(|f| f.connections).sum(),
                    other => panic!("{other:?}"),
                };
                assert!(len <= LOOKED, "{len}");
                gather.take(part);
                parts += 1;
            }
            (gather.finish(), parts)
        };
        let (listed, parts) = ask(Query {
            sort: Sort::Subscriptions,
            offset: 990,
            limit: 20,
            subscriptions: true,
            ..Query::new(List::Connections)
        });
        assert!(parts >= 4, "{parts}");
        let page = &listed.connections;
        // Every third client has subscriptions, so 1,000 clients stand before the others.
        let first = (990..1000).map(|n| 3 * n + 1);
        let wanted: Vec<u64> = first.chain([2, 3, 5, 6, 8, 9, 11, 12, 14, 15]).collect();
        assert_eq!((numbers(page), page.total), (wanted, CLIENTS as usize));
        let subjects: usize = page.entries.iter().map(|c| c.subjects.len()).sum();
        assert_eq!(subjects, 20);
        for test in [None, Some("a.b".to_owned())] {
            let query = Query {
                subscriptions: true,
                test,
                offset: 1990,
                limit: 50,
                ..Query::new(List::Subscriptions)
            };
            let (listed, parts) = ask(query);
            let page = &listed.subscriptions;
            assert_eq!((page.entries.len(), page.total), (10, 2000));
            assert!(parts >= 2, "{parts}");
        }
        let (listed, parts) = ask(Query::new(List::Accounts));
        let global = &listed.accounts[0];
        assert_eq!((global.connections, global.subscriptions), (3000, 2000));
        assert!(parts >= 3, "{parts}");
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
            listed(&node, &query).subscriptions
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

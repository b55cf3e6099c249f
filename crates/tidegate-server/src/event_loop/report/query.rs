//! Defines the parameters by which a reader of the monitor or a client of the system account requests a
//! report.

use super::series::{Series, Slice};

/// The greatest number of entries of a list in one report, and the default if the request names no number.
/// nats-server has the same bound.
pub(crate) const PAGE_MAX: usize = 1024;

/// The list that the event loop adds to the server's figures in a report, because lists cost time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum List {
    #[default]
    Nothing,
    Connections,
    Subscriptions,
    Streams,
    Consumers,
    Accounts,
}

/// The client connections that the reader wants in a list: open connections, connections that closed last, or
/// both, as in nats-server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Open,
    Closed,
    All,
    /// A state that does not exist: no connection is in it, as in nats-server.
    Unknown,
}

impl State {
    pub(super) const fn open(self) -> bool {
        matches!(self, Self::Open | Self::All)
    }

    pub(super) const fn closed(self) -> bool {
        matches!(self, Self::Closed | Self::All)
    }
}

/// The figure by which the reader wants a list of connections in order, with the names of nats-server. The
/// numbers of connections and their starts go up; all other figures go down, so that the largest come first.
/// `Idle` brings the connections first that have been idle for the longest time, and reasons go up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    #[default]
    Cid,
    Start,
    Subscriptions,
    Pending,
    MsgsTo,
    MsgsFrom,
    BytesTo,
    BytesFrom,
    Last,
    Idle,
    /// The times at which closed connections ended, and the reasons for it.
    Stop,
    Reason,
}

/// The figure by which the reader wants a list of streams or consumers in order. Names go up; all figures go
/// down, so that the largest come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Name,
    /// The messages, the bytes, the consumers and the time of the last message of a stream.
    Messages,
    Bytes,
    Consumers,
    Last,
    /// The messages that a consumer has not delivered, that it delivered without an acknowledgement, and
    /// that it delivered again.
    Pending,
    AckPending,
    Redelivered,
}

/// The parameters of a request for a report, by which the event loop gathers the figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) list: List,
    /// The index of the first entry that the reader wants, so that it can read a long list in pages.
    pub(crate) offset: usize,
    /// The greatest number of entries that the reader wants, from 1 to [`PAGE_MAX`], so that a report stays
    /// small.
    pub(crate) limit: usize,
    /// True if the reader wants subscriptions: with the list of connections the subscriptions of each
    /// connection, otherwise the subscriptions of the whole server.
    pub(crate) subscriptions: bool,
    /// The connections that the reader wants: connections in this state and, if the request gives them, with
    /// this number (`cid`) and this user.
    pub(crate) state: State,
    pub(crate) cid: Option<u64>,
    pub(crate) user: Option<String>,
    /// The order of the connections in the list.
    pub(crate) sort: Sort,
    /// The text that each listed connection has in its name, its user or its address, and each listed stream
    /// in its name, and each listed consumer in its name or the name of its stream; `None` lists all. Upper
    /// and lower case differ.
    pub(crate) search: Option<String>,
    /// The name of the account that the reader wants figures of; `None` lets the report cover all accounts.
    pub(crate) account: Option<String>,
    /// The subject that the listed subscriptions must match; `None` lists all.
    pub(crate) test: Option<String>,
    /// True if the reader wants the account in the report on streams, and (`streams`, `consumers`) each
    /// stream, and also each stream's consumers.
    pub(crate) accounts: bool,
    pub(crate) streams: bool,
    pub(crate) consumers: bool,
    /// The order of the streams or consumers; `None` lists streams by their names.
    pub(crate) by: Option<By>,
    /// The name of the stream that has the listed consumers; `None` lists those of all streams.
    pub(crate) stream: Option<String>,
    /// The message that the reader wants explained; `None` if it asks for something else.
    pub(crate) message: Option<Message>,
    /// The slice of the figures of single streams and consumers that the reader wants; `None` if it wants
    /// none.
    pub(crate) series: Option<Slice>,
    /// The health check that the reader makes; `None` if it makes none.
    pub(crate) health: Option<Box<HealthQuery>>,
}

/// A message, by the name of its stream and its number in the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) stream: String,
    pub(crate) seq: u64,
}

/// The parameters of a health check, with the meaning that they have in nats-server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HealthQuery {
    /// True if the check ends before it looks at the streams: with `server_only` before it looks at the
    /// groups that keep streams, with `meta_only` after the group that keeps the directory.
    pub(crate) enabled_only: bool,
    pub(crate) server_only: bool,
    pub(crate) meta_only: bool,
    /// The account, the stream and the consumer to which the check is limited.
    pub(crate) account: Option<String>,
    pub(crate) stream: Option<String>,
    pub(crate) consumer: Option<String>,
    /// True if the answer lists every fault, instead of the first one.
    pub(crate) details: bool,
}

impl HealthQuery {
    /// Returns whether the check looks at the groups of streams.
    pub(super) const fn looks_at_streams(&self) -> bool {
        !self.enabled_only && !self.server_only && !self.meta_only
    }
}

/// The name under which a report shows the account that has the streams, as in nats-server.
pub(crate) const ACCOUNT: &str = "$G";

impl Query {
    /// Creates a request for a report with the server's figures and the entries of `list`, and defaults for
    /// the rest.
    pub(crate) const fn new(list: List) -> Self {
        Self {
            list,
            offset: 0,
            limit: PAGE_MAX,
            subscriptions: false,
            state: State::Open,
            cid: None,
            user: None,
            sort: Sort::Cid,
            search: None,
            account: None,
            test: None,
            accounts: false,
            streams: false,
            consumers: false,
            by: None,
            stream: None,
            message: None,
            series: None,
            health: None,
        }
    }

    /// Creates a request for the facts that a health check needs.
    pub(crate) fn of_health(check: HealthQuery) -> Self {
        Self {
            health: Some(Box::new(check)),
            ..Self::new(List::Nothing)
        }
    }

    /// Returns whether the request concerns the account with this name: the request names that account, or no
    /// account. The list leaves out others.
    pub(crate) fn is_of_account(&self, name: &str) -> bool {
        self.account.as_deref().is_none_or(|wanted| wanted == name)
    }

    /// Returns whether the report on streams contains the account. A request for another account gets the
    /// general figures, as in nats-server.
    pub(crate) fn shows_account(&self) -> bool {
        match self.account.as_deref() {
            Some(ACCOUNT) => true,
            Some(_) => self.accounts,
            None => self.accounts || self.streams || self.consumers,
        }
    }

    /// Returns the figure by which the reader wants streams or consumers in order, by default their names.
    pub(super) fn by(&self) -> By {
        self.by.unwrap_or(By::Name)
    }

    /// Makes the request for the slice that follows the figures of single streams so far; `None` if they are
    /// complete. Takes the next slice out of `so_far`.
    pub(crate) fn next_slice(&self, so_far: &mut Series) -> Option<Self> {
        let slice = so_far.next.take()?;
        Some(Self {
            series: Some(slice),
            ..self.clone()
        })
    }

    /// Returns whether the event loop must describe each stream for the report.
    pub(super) fn lists_streams(&self) -> bool {
        self.list == List::Streams && (self.streams || self.consumers) && self.shows_account()
    }
}

//! The parameters of a request for a report.

/// The most entries of a list in one report, and their number if the request names none, as in nats-server.
pub(crate) const PAGE_MAX: usize = 1024;

/// The list that a report contains beside the figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum List {
    #[default]
    Nothing,
    Connections,
    Subscriptions,
    Streams,
}

/// The connections that a list contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Open,
    Closed,
    All,
}

impl State {
    pub(super) const fn open(self) -> bool {
        matches!(self, Self::Open | Self::All)
    }

    pub(super) const fn closed(self) -> bool {
        matches!(self, Self::Closed | Self::All)
    }
}

/// The parameters of a request for a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) list: List,
    /// The index of the list's first entry.
    pub(crate) offset: usize,
    /// The most entries of the list: from 1 to [`PAGE_MAX`].
    pub(crate) limit: usize,
    /// Adds the subscriptions, of each connection or of the server.
    pub(crate) subscriptions: bool,
    /// Selects connections by state, number or user.
    pub(crate) state: State,
    pub(crate) cid: Option<u64>,
    pub(crate) user: Option<String>,
    /// Selects the account.
    pub(crate) account: Option<String>,
    /// Selects the subscriptions that match this subject.
    pub(crate) test: Option<String>,
    /// Adds the account, each stream, or also each stream's consumers.
    pub(crate) accounts: bool,
    pub(crate) streams: bool,
    pub(crate) consumers: bool,
}

/// The only account's name.
pub(crate) const ACCOUNT: &str = "$G";

impl Query {
    /// Returns the request for the figures and this list.
    pub(crate) const fn new(list: List) -> Self {
        Self {
            list,
            offset: 0,
            limit: PAGE_MAX,
            subscriptions: false,
            state: State::Open,
            cid: None,
            user: None,
            account: None,
            test: None,
            accounts: false,
            streams: false,
            consumers: false,
        }
    }

    /// Returns whether the request concerns the only account, by its name or because it names none.
    pub(crate) fn is_of_account(&self) -> bool {
        self.account.as_deref().is_none_or(|name| name == ACCOUNT)
    }

    /// Returns whether the figures of streams name the account. As in nats-server, a request for another
    /// account gets the general figures.
    pub(crate) fn shows_account(&self) -> bool {
        match self.account.as_deref() {
            Some(ACCOUNT) => true,
            Some(_) => self.accounts,
            None => self.accounts || self.streams || self.consumers,
        }
    }

    /// Returns whether the figures of streams name each stream.
    pub(super) fn lists_streams(&self) -> bool {
        self.list == List::Streams && (self.streams || self.consumers) && self.shows_account()
    }
}

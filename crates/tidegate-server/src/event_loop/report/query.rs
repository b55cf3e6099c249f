//! The parameters of a request for a report.

use super::details::{Part, Place};

/// The greatest number of entries of a list in one report, and the default if the request names no number. It
/// is the same as in nats-server.
pub(crate) const PAGE_MAX: usize = 1024;

/// The list that a report contains in addition to the server's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum List {
    #[default]
    Nothing,
    Connections,
    Subscriptions,
    Streams,
    Accounts,
}

/// The client connections that a list contains: the open ones, the ones that closed last, or both.
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
    /// The index of the first entry that the report contains.
    pub(crate) offset: usize,
    /// The greatest number of entries that the report contains, from 1 to [`PAGE_MAX`].
    pub(crate) limit: usize,
    /// True if the report lists subscriptions: with the list of connections those of each connection,
    /// otherwise those of the whole server.
    pub(crate) subscriptions: bool,
    /// The connections to list: those in this state and, if the request gives them, with this number (`cid`)
    /// and this user.
    pub(crate) state: State,
    pub(crate) cid: Option<u64>,
    pub(crate) user: Option<String>,
    /// The name of the account to report on; `None` means all accounts.
    pub(crate) account: Option<String>,
    /// The subject that the listed subscriptions must match.
    pub(crate) test: Option<String>,
    /// True if the report on streams contains the account, and (`streams`, `consumers`) each stream, and also
    /// each stream's consumers.
    pub(crate) accounts: bool,
    pub(crate) streams: bool,
    pub(crate) consumers: bool,
    /// The place at which the list of streams goes on, for a further part of a report on streams.
    pub(crate) place: Option<Place>,
}

/// The name of the account that has the streams, as in nats-server.
pub(crate) const ACCOUNT: &str = "$G";

impl Query {
    /// Creates a request for a report with the server's figures and the entries of `list`.
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
            place: None,
        }
    }

    /// Returns whether the request concerns the account with this name: it names that account, or none.
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

    /// Returns the request for the part of the list of streams that follows the parts so far; `None` if the
    /// list is complete. Takes the place of the next part out of `so_far`.
    pub(crate) fn rest(&self, so_far: &mut Part) -> Option<Self> {
        let place = so_far.next.take()?;
        Some(Self {
            limit: PAGE_MAX
                .min(self.limit)
                .saturating_sub(so_far.streams.len()),
            place: Some(place),
            ..self.clone()
        })
    }

    /// Returns whether the report on streams contains each stream.
    pub(super) fn lists_streams(&self) -> bool {
        self.list == List::Streams && (self.streams || self.consumers) && self.shows_account()
    }
}

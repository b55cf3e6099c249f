//! Gathers the lists of a report from their parts, on the thread of the reader. The loop makes one part in a
//! turn, so that no turn takes long however long a list is. Pure.
//!
//! The reader asks the loop for [`Gather::next_ask`] until that is `None`, hands each answer to
//! [`Gather::take`], and gets the lists from [`Gather::finish`].

use tidegate::Time;

use super::best::Best;
use super::connections::{self, Cursor};
use super::details::{self, Described, Place};
use super::lists::{self, AccountFigures, Connection, Page, Subscription, SubscriptionsAt};
use super::ordered::{self, After};
use super::query::{List, PAGE_MAX, Query, State};
#[cfg(feature = "sim")]
use crate::cost::{Work, spend};
use crate::sessions::Node;

/// The greatest number of subjects of subscriptions in one list of connections, over all its connections
/// together. The list leaves out further subjects, but no connection, so that it stays small.
const SUBJECTS_MAX: usize = 16 * 1024;

/// A question to the event loop for a part of a list.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    /// A look at connections.
    Connections(Box<Query>, Cursor),
    /// The descriptions of connections, with at most this number of subjects.
    ConnectionsOf(Vec<connections::Entry>, usize),
    Subscriptions(Box<Query>, SubscriptionsAt),
    /// The figures of the accounts, from this place in the table of connections on.
    Accounts(usize),
    /// The descriptions of streams in the order of their names, at most this number.
    Streams(Box<Query>, Place, usize),
    /// A look at streams or consumers.
    Ordered(Box<Query>, After),
    /// The descriptions of streams or consumers.
    OrderedOf(Vec<ordered::Entry>),
}

/// The answer of the event loop to an [`Ask`] of the same name.
#[derive(Debug)]
pub(crate) enum Part {
    Connections(connections::Looked),
    /// The descriptions, and how many of the entries they cover.
    ConnectionsOf(Vec<Connection>, usize),
    Subscriptions(lists::Subscriptions),
    Accounts([AccountFigures; 2], Option<usize>),
    Streams(details::Part),
    Ordered(ordered::Looked),
    OrderedOf(Vec<Described>),
}

/// Makes the answer of the event loop.
pub(crate) fn answer(node: &Node, now: Time, ask: &Ask) -> Part {
    match ask {
        Ask::Connections(query, from) => Part::Connections(connections::look(node, query, *from)),
        Ask::ConnectionsOf(entries, room) => {
            let (described, covered) = connections::describe(node, entries, *room);
            Part::ConnectionsOf(described, covered)
        }
        Ask::Subscriptions(query, from) => {
            Part::Subscriptions(lists::subscriptions(node, query, *from))
        }
        Ask::Accounts(from) => {
            let (figures, next) = lists::accounts(node, *from);
            Part::Accounts(figures, next)
        }
        Ask::Streams(query, place, limit) => {
            Part::Streams(details::describe(node, query, place, *limit, now))
        }
        Ask::Ordered(query, after) => Part::Ordered(ordered::look(node, query, now, after)),
        Ask::OrderedOf(entries) => Part::OrderedOf(ordered::describe(node, now, entries)),
    }
}

#[cfg(feature = "sim")]
impl Part {
    /// Counts the works of this part, for the costs of a simulation. Where a part does not say how many
    /// entries the loop looked at, the found ones count.
    pub(crate) fn count_works(&self) {
        let describe = |all: &[Described]| {
            let described: usize = all.iter().map(|d| 1 + d.consumers.len()).sum();
            spend(Work::Describe, described as u64);
        };
        match self {
            Self::Connections(looked) => spend(Work::Look, looked.counted as u64),
            Self::ConnectionsOf(described, _) => {
                let subjects: usize = described.iter().map(|c| 1 + c.subjects.len()).sum();
                spend(Work::List, subjects as u64);
            }
            Self::Subscriptions(part) => {
                spend(Work::Look, part.counted as u64);
                spend(Work::List, part.entries.len() as u64);
            }
            Self::Accounts(figures, _) => spend(Work::Look, figures.len() as u64),
            Self::Streams(part) => describe(&part.streams),
            Self::Ordered(looked) => spend(Work::Look, looked.found.len() as u64),
            Self::OrderedOf(described) => describe(described),
        }
    }
}

/// The lists of a report; a list that the reader does not want is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listed {
    pub(crate) connections: Page<Connection>,
    pub(crate) subscriptions: Page<Subscription>,
    pub(crate) accounts: Vec<AccountFigures>,
    /// The streams of the page, with their consumers if the reader wants these.
    pub(crate) streams: Vec<Described>,
    /// The number of streams or consumers that the query finds; `None` for a list of streams in the order of
    /// their names, which the loop ends at the end of the page.
    pub(crate) found: Option<usize>,
    /// The consumers of the page, in a list of consumers.
    pub(crate) consumers: Vec<Described>,
}

/// The state of the gathering.
#[derive(Debug)]
pub(crate) struct Gather {
    query: Box<Query>,
    listed: Listed,
    step: Step,
}

/// The step that comes next.
#[derive(Debug)]
enum Step {
    Done,
    Connections(Cursor, Best<connections::Entry>, usize),
    /// The entries that the loop has still to describe, and the subjects that the list still takes.
    ConnectionsOf(Vec<connections::Entry>, usize),
    Subscriptions(SubscriptionsAt),
    Accounts(usize),
    Streams(Place),
    Ordered(After, Best<ordered::Entry>),
    OrderedOf(Vec<ordered::Entry>),
}

impl Gather {
    /// Begins to gather the lists that the query asks for.
    pub(crate) fn new(query: &Query) -> Self {
        let page = || Best::new(query.offset, query.limit);
        let step = match query.list {
            List::Connections if query.state == State::Unknown => Step::Done,
            List::Connections => {
                let best = Best::new(query.offset, query.limit);
                Step::Connections(connections::first(query), best, 0)
            }
            List::Subscriptions if query.subscriptions => {
                Step::Subscriptions(SubscriptionsAt::first(query))
            }
            List::Accounts => Step::Accounts(0),
            List::Consumers => Step::Ordered(After::default(), page()),
            List::Streams if query.lists_streams() => match query.by {
                Some(_) if !query.consumers => Step::Ordered(After::default(), page()),
                _ => Step::Streams(Place::first(query)),
            },
            _ => Step::Done,
        };
        Self {
            query: Box::new(query.clone()),
            listed: Listed::default(),
            step,
        }
    }

    /// Returns the next question to the loop; `None` if the lists are complete.
    pub(crate) fn next_ask(&self) -> Option<Ask> {
        let query = || self.query.clone();
        Some(match &self.step {
            Step::Done => return None,
            Step::Connections(from, ..) => Ask::Connections(query(), *from),
            Step::ConnectionsOf(entries, room) => Ask::ConnectionsOf(entries.clone(), *room),
            Step::Subscriptions(from) => Ask::Subscriptions(query(), *from),
            Step::Accounts(from) => Ask::Accounts(*from),
            Step::Streams(place) => {
                let limit = PAGE_MAX.min(self.query.limit);
                let left = limit.saturating_sub(self.listed.streams.len());
                Ask::Streams(query(), place.clone(), left)
            }
            Step::Ordered(after, _) => Ask::Ordered(query(), after.clone()),
            Step::OrderedOf(entries) => {
                let part = &entries[..entries.len().min(ordered::DESCRIBED)];
                Ask::OrderedOf(part.to_vec())
            }
        })
    }

    /// Takes the loop's answer to the last question. An answer to another question changes nothing but ends
    /// the gathering, because the reader has mixed its questions up.
    pub(crate) fn take(&mut self, part: Part) {
        let step = std::mem::replace(&mut self.step, Step::Done);
        self.step = match (step, part) {
            (Step::Connections(_, best, counted), Part::Connections(looked)) => {
                self.take_connections(best, counted, looked)
            }
            (Step::ConnectionsOf(mut entries, room), Part::ConnectionsOf(described, covered)) => {
                let subjects: usize = described.iter().map(|c| c.subjects.len()).sum();
                self.listed.connections.entries.extend(described);
                // The loop covers at least one entry; otherwise the gathering would not end.
                entries.drain(..covered.clamp(1, entries.len()));
                match entries.is_empty() {
                    true => Step::Done,
                    false => Step::ConnectionsOf(entries, room.saturating_sub(subjects)),
                }
            }
            (Step::Subscriptions(_), Part::Subscriptions(part)) => {
                let page = &mut self.listed.subscriptions;
                page.total += part.counted;
                page.entries.extend(part.entries);
                part.next.map_or(Step::Done, Step::Subscriptions)
            }
            (Step::Accounts(_), Part::Accounts(figures, next)) => {
                match self.listed.accounts.is_empty() {
                    true => self.listed.accounts = figures.into(),
                    false => {
                        let all = self.listed.accounts.iter_mut();
                        all.zip(&figures).for_each(|(sum, of)| sum.and(of));
                    }
                }
                next.map_or(Step::Done, Step::Accounts)
            }
            (Step::Streams(_), Part::Streams(mut part)) => {
                let next = part.next.take();
                details::append(&mut self.listed.streams, part.streams);
                next.map_or(Step::Done, Step::Streams)
            }
            (Step::Ordered(_, mut best), Part::Ordered(looked)) => {
                best.extend(looked.found);
                match looked.next {
                    Some(after) => Step::Ordered(after, best),
                    None => {
                        self.listed.found = Some(best.total());
                        match best.page() {
                            page if page.is_empty() => Step::Done,
                            page => Step::OrderedOf(page),
                        }
                    }
                }
            }
            (Step::OrderedOf(mut entries), Part::OrderedOf(described)) => {
                match self.query.list {
                    List::Consumers => self.listed.consumers.extend(described),
                    _ => self.listed.streams.extend(described),
                }
                entries.drain(..entries.len().min(ordered::DESCRIBED));
                match entries.is_empty() {
                    true => Step::Done,
                    false => Step::OrderedOf(entries),
                }
            }
            _ => Step::Done,
        };
    }

    fn take_connections(
        &mut self,
        mut best: Best<connections::Entry>,
        counted: usize,
        looked: connections::Looked,
    ) -> Step {
        let counted = counted + looked.counted;
        best.extend(looked.found);
        if let Some(next) = looked.next {
            return Step::Connections(next, best, counted);
        }
        // As in nats-server, the total counts all connections of the selected state; with a search, those
        // that it finds.
        self.listed.connections.total = match self.query.search {
            Some(_) => best.total(),
            None => counted,
        };
        let room = match self.query.subscriptions {
            true => SUBJECTS_MAX,
            false => 0,
        };
        match best.page() {
            page if page.is_empty() => Step::Done,
            page => Step::ConnectionsOf(page, room),
        }
    }

    /// Returns the lists.
    pub(crate) fn finish(self) -> Listed {
        self.listed
    }
}

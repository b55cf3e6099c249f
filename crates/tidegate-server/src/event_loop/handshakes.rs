//! Chooses the TLS handshakes that one turn of the loop advances.
//!
//! A handshake costs the loop a private-key operation: some 0.1 ms with a P-256 key, 1 ms with RSA-2048 and 6
//! ms with RSA-4096. The same thread carries Raft, so that a burst of hellos, which needs no credentials,
//! would silence a leader until its followers hold an election. Handshakes therefore wait here, and each turn
//! spends [`BUDGET`] on them. A turn begins no handshake once the budget is spent, so that it spends more by
//! one handshake at most.
//!
//! The budget is in time of the monotonic clock, not in CPU time of the thread: other nodes notice
//! how long this one is silent, whether it computes or waits for a core. Each turn advances at
//! least one handshake, so a busy machine slows handshakes down and does not stop them.
//!
//! Connections of nodes go before those of clients, and handshakes that are almost over go before
//! new ones: the costly part of them is done. Within a kind, addresses take turns. A kind that a
//! turn leaves out goes first in a later turn, so that none waits for ever. Each connection waits
//! at most once, so the bound on connections also bounds the queue.

use std::time::Duration;

use super::tokens::ChannelKey;
use crate::fair::{FairQueue, Source, Ticket};
use crate::party::ClientKey;

/// The time that one turn spends on handshakes: a sixtieth of the interval between two heartbeats of Raft.
pub(super) const BUDGET: Duration = Duration::from_millis(2);

/// Kinds of connections that wait, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// To or from another node.
    Peer,
    /// A client with an answered hello.
    Begun,
    /// A client with an unanswered hello.
    New,
}

impl Class {
    const ALL: [Self; 3] = [Self::Peer, Self::Begun, Self::New];

    const fn index(self) -> usize {
        self as usize
    }
}

/// A connection that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// A channel from or to another node.
    Peer(ChannelKey),
    /// A client with an answered hello.
    Begun(ClientKey),
    /// A client with an unanswered hello.
    New(ClientKey),
}

impl Waiting {
    const fn class(self) -> Class {
        match self {
            Self::Peer(_) => Class::Peer,
            Self::Begun(_) => Class::Begun,
            Self::New(_) => Class::New,
        }
    }
}

/// The place of a connection in the queue; the connection keeps it, so that it can withdraw.
#[derive(Debug)]
pub(crate) struct Place {
    class: Class,
    ticket: Ticket,
}

/// The waiting handshakes, and the time that the turn has spent.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    /// By class.
    waiting: [FairQueue<Waiting>; 3],
    /// For each class, the number of turns in a row that left it out.
    left_out: [u32; 3],
    /// For each class, whether this turn advanced one of its handshakes.
    served: [bool; 3],
    spent: Duration,
}

impl Handshakes {
    /// Returns whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.iter().all(FairQueue::is_empty)
    }

    /// Queues a readable connection that has not finished its handshake.
    pub(super) fn wait(&mut self, waiting: Waiting, source: Source) -> Place {
        let class = waiting.class();
        let ticket = self.waiting[class.index()].push(source, waiting);
        Place { class, ticket }
    }

    /// Removes a waiting connection that has ended.
    pub(super) fn withdraw(&mut self, place: &Place) {
        self.waiting[place.class.index()].remove(place.ticket);
    }

    /// Returns the connection to advance; [`Handshakes::handle_done`] must follow. `None` ends the
    /// turn: no connection waits, or the turn has spent its budget.
    pub(super) fn poll(&mut self) -> Option<Waiting> {
        let next = match self.spent < BUDGET {
            true => self.next(),
            false => None,
        };
        if next.is_none() {
            self.end_turn();
        }
        next
    }

    /// Takes the first connection of the kind that the most turns in a row left out; among equals,
    /// in order of precedence.
    fn next(&mut self) -> Option<Waiting> {
        let waits = |class: &Class| !self.waiting[class.index()].is_empty();
        let left_out = |class: &Class| match self.served[class.index()] {
            true => 0,
            false => self.left_out[class.index()],
        };
        // Among equal counts `max_by_key` returns the last.
        let classes = Class::ALL.into_iter().rev().filter(waits);
        let class = classes.max_by_key(left_out)?;
        self.served[class.index()] = true;
        self.waiting[class.index()].pop_oldest()
    }

    fn end_turn(&mut self) {
        for class in Class::ALL.map(Class::index) {
            let left_out = !self.served[class] && !self.waiting[class].is_empty();
            self.left_out[class] = match left_out {
                true => self.left_out[class].saturating_add(1),
                false => 0,
            };
        }
        self.served = [false; 3];
        self.spent = Duration::ZERO;
    }

    /// Adds the time that the last handshake took.
    pub(super) fn handle_done(&mut self, cost: Duration) {
        self.spent += cost;
    }
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use proptest::prelude::*;

    use super::*;

    fn source(n: u8) -> Source {
        Source::from(IpAddr::from([10, 0, 0, n]))
    }

    fn waiting(class: Class, key: usize) -> Waiting {
        match class {
            Class::Peer => Waiting::Peer(ChannelKey::new(key)),
            Class::Begun => Waiting::Begun(ClientKey::new(key)),
            Class::New => Waiting::New(ClientKey::new(key)),
        }
    }

    /// Runs one turn, in which each step costs `cost`.
    fn turn(handshakes: &mut Handshakes, cost: Duration) -> Vec<Waiting> {
        let mut all = Vec::new();
        while let Some(next) = handshakes.poll() {
            handshakes.handle_done(cost);
            all.push(next);
        }
        all
    }

    #[test]
    fn a_turn_spends_its_budget_and_one_handshake_more_at_most() {
        for (cost_us, expected) in [
            (1, 100),
            (50, 40),
            (999, 3),
            (1000, 2),
            (2000, 1),
            (9000, 1),
        ] {
            let mut handshakes = Handshakes::default();
            for key in 0..100 {
                handshakes.wait(waiting(Class::New, key), source(1));
            }
            let cost = Duration::from_micros(cost_us);
            let mut done = Vec::new();
            while !handshakes.is_empty() {
                let one = turn(&mut handshakes, cost);
                assert!(one.len() <= expected && !one.is_empty(), "{cost_us} us");
                assert!(cost * (one.len() as u32 - 1) < BUDGET);
                done.extend(one);
            }
            let all = (0..100).map(|key| waiting(Class::New, key));
            assert_eq!(done, all.collect::<Vec<_>>(), "in the order they came");
        }
    }

    #[test]
    fn nodes_go_before_clients_and_handshakes_almost_over_before_new_ones() {
        let mut handshakes = Handshakes::default();
        for (class, key) in [(Class::New, 3), (Class::Begun, 2), (Class::Peer, 1)] {
            handshakes.wait(waiting(class, key), source(1));
        }
        let all = turn(&mut handshakes, Duration::ZERO);
        let expected = [(Class::Peer, 1), (Class::Begun, 2), (Class::New, 3)];
        let expected = expected.map(|(class, key)| waiting(class, key));
        assert_eq!(all, expected);
    }

    #[test]
    fn a_kind_that_is_left_out_goes_first_later() {
        let mut handshakes = Handshakes::default();
        for key in 0..30 {
            for class in Class::ALL {
                handshakes.wait(waiting(class, key), source(1));
            }
        }
        let mut firsts = Vec::new();
        for _ in 0..9 {
            let one = turn(&mut handshakes, BUDGET);
            assert_eq!(one.len(), 1);
            firsts.push(one[0].class());
        }
        let cycle = [Class::Peer, Class::Begun, Class::New];
        assert_eq!(firsts, [cycle, cycle, cycle].concat());
    }

    #[test]
    fn an_address_with_many_hellos_delays_another_by_one() {
        let mut handshakes = Handshakes::default();
        for key in 0..1000 {
            handshakes.wait(waiting(Class::New, key), source(1));
        }
        handshakes.wait(waiting(Class::New, 1000), source(2));
        let first = turn(&mut handshakes, BUDGET / 2);
        assert_eq!(first, [0, 1000].map(|key| waiting(Class::New, key)));
    }

    #[derive(Clone, Debug)]
    enum Act {
        Wait(usize, u8),
        Withdraw(prop::sample::Index),
        Turn(u64),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            6 => (0..3_usize, 0..3_u8).prop_map(|(class, source)| Act::Wait(class, source)),
            1 => any::<prop::sample::Index>().prop_map(Act::Withdraw),
            2 => (0..3000_u64).prop_map(Act::Turn),
        ]
    }

    proptest! {
        /// Each waiting connection is served once or withdrawn. No turn begins a handshake beyond its
        /// budget, and no turn does nothing. No kind is left out for more than two turns in a row.
        #[test]
        fn none_is_lost_and_none_starves(acts in prop::collection::vec(act(), 1..150)) {
            let mut handshakes = Handshakes::default();
            let mut model: Vec<(Waiting, Place)> = Vec::new();
            let mut left_out = [0; 3];
            for (key, act) in acts.into_iter().enumerate() {
                match act {
                    Act::Wait(class, from) => {
                        let waiting = waiting(Class::ALL[class], key);
                        let place = handshakes.wait(waiting, source(from));
                        model.push((waiting, place));
                    }
                    Act::Withdraw(_) if model.is_empty() => {}
                    Act::Withdraw(at) => {
                        let (_, place) = model.remove(at.index(model.len()));
                        handshakes.withdraw(&place);
                    }
                    Act::Turn(cost_us) => {
                        let cost = Duration::from_micros(cost_us);
                        let waited = Class::ALL.map(|class| model.iter().any(|m| m.0.class() == class));
                        let done = turn(&mut handshakes, cost);
                        prop_assert_eq!(done.is_empty(), model.is_empty());
                        prop_assert!(done.len() < 2 || cost * (done.len() as u32 - 1) < BUDGET);
                        for waiting in &done {
                            let at = model.iter().position(|m| m.0 == *waiting);
                            prop_assert!(at.is_some(), "{:?} is served and did not wait", waiting);
                            model.remove(at.unwrap());
                        }
                        for class in Class::ALL {
                            let served = done.iter().any(|of| of.class() == class);
                            let count = &mut left_out[class.index()];
                            *count = if served || !waited[class.index()] { 0 } else { *count + 1 };
                            prop_assert!(*count <= 2, "{:?} is left out", class);
                        }
                    }
                }
                prop_assert_eq!(handshakes.is_empty(), model.is_empty());
            }
        }
    }
}

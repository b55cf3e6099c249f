//! Chooses the TLS handshake that the pool's threads advance next. The code is pure.
//!
//! A step of a handshake costs a private-key operation, and the other side needs only a hello to cause one.
//! So handshakes wait in a queue until a thread is free. Other nodes go before clients. Clients with an
//! answered hello go before new clients, so that the work on the answers is not lost. The queue passes over
//! no class more than twice in a row. Within a class addresses take turns, and within an address the newest
//! handshake goes first: its client has waited least, and is the least likely to have given up.

use super::tokens::ChannelKey;
use crate::fair::{FairQueue, Source, Ticket};
use crate::party::ClientKey;

/// The classes of connections with a waiting handshake, in order of precedence, from which the queue chooses
/// the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// A connection to or from another node, which has precedence over clients.
    Peer,
    /// A client with a ClientHello that the server has answered, which comes before new clients.
    Begun,
    /// A client with a ClientHello that still waits for the server's answer.
    New,
}

impl Class {
    const ALL: [Self; 3] = [Self::Peer, Self::Begun, Self::New];

    const fn index(self) -> usize {
        self as usize
    }
}

/// A connection with a handshake that waits for a free thread, and the class of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// A connection to or from another node, which the queue prefers to clients.
    Peer(ChannelKey),
    /// A client with a ClientHello that the server has answered, which the queue prefers to new clients.
    Begun(ClientKey),
    /// A client with a ClientHello that still waits for the server's answer, the last in precedence.
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

/// The place of a handshake in the queue. The connection keeps its place, so that the loop can remove the
/// handshake from the queue.
#[derive(Debug)]
pub(crate) struct Place {
    class: Class,
    ticket: Ticket,
}

/// The queue of TLS handshakes that wait for a thread of the pool.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    /// The waiting handshakes, by class and source, so that classes and sources take turns.
    waiting: [FairQueue<Waiting>; 3],
    /// For each class, the number of choices in a row that passed the class over although a handshake of it
    /// waited. The queue then chooses that class, so that no class starves.
    passed: [u32; 3],
}

impl Handshakes {
    /// Returns whether no handshake waits for a thread.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.iter().all(FairQueue::is_empty)
    }

    /// Queues the handshake of a connection that has bytes to read. Returns its place in the queue, which the
    /// connection keeps.
    pub(super) fn wait(&mut self, waiting: Waiting, source: Source) -> Place {
        let class = waiting.class();
        let ticket = self.waiting[class.index()].push(source, waiting);
        Place { class, ticket }
    }

    /// Removes the waiting handshake of a connection that has ended, so that no thread works on it.
    pub(super) fn withdraw(&mut self, place: &Place) {
        self.waiting[place.class.index()].remove(place.ticket);
    }

    /// Takes the next handshake for a free thread, from a source for which `may` returns true. Chooses the
    /// class that the queue has passed over the most times in a row; among equal classes, the class with
    /// precedence.
    pub(super) fn poll(&mut self, may: impl Fn(Source) -> bool) -> Option<(Source, Waiting)> {
        let mut classes = Class::ALL;
        // The sort is stable, so classes that the queue has passed over equally often keep their order of
        // precedence.
        classes.sort_by_key(|class| std::cmp::Reverse(self.passed[class.index()]));
        let found = classes.into_iter().find_map(|class| {
            let next = self.waiting[class.index()].pop_newest(&may)?;
            Some((class, next))
        });
        let (chosen, next) = found?;
        for class in Class::ALL {
            let passed = class != chosen && !self.waiting[class.index()].is_empty();
            let count = &mut self.passed[class.index()];
            *count = if passed { count.saturating_add(1) } else { 0 };
        }
        Some(next)
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

    fn next(handshakes: &mut Handshakes) -> Option<Waiting> {
        handshakes.poll(|_| true).map(|(_, next)| next)
    }

    #[test]
    fn nodes_go_before_clients_and_handshakes_almost_over_before_new_ones() {
        let mut handshakes = Handshakes::default();
        for (class, key) in [(Class::New, 3), (Class::Begun, 2), (Class::Peer, 1)] {
            handshakes.wait(waiting(class, key), source(1));
        }
        let all: Vec<_> = std::iter::from_fn(|| next(&mut handshakes)).collect();
        let expected = [(Class::Peer, 1), (Class::Begun, 2), (Class::New, 3)];
        assert_eq!(all, expected.map(|(class, key)| waiting(class, key)));
    }

    #[test]
    fn a_kind_that_is_passed_over_goes_first_later() {
        let mut handshakes = Handshakes::default();
        for key in 0..30 {
            for class in Class::ALL {
                handshakes.wait(waiting(class, key), source(1));
            }
        }
        let firsts = std::iter::from_fn(|| next(&mut handshakes)).take(9);
        let firsts: Vec<Class> = firsts.map(Waiting::class).collect();
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
        let first = [next(&mut handshakes), next(&mut handshakes)];
        assert_eq!(first, [999, 1000].map(|key| Some(waiting(Class::New, key))));
        // An address with as many jobs as it may have must wait, and the queue goes on with the others.
        handshakes.wait(waiting(Class::New, 1001), source(2));
        let other = handshakes.poll(|from| from != source(1));
        assert_eq!(other, Some((source(2), waiting(Class::New, 1001))));
        assert_eq!(handshakes.poll(|from| from != source(1)), None);
    }

    #[derive(Clone, Debug)]
    enum Act {
        Wait(usize, u8),
        Withdraw(prop::sample::Index),
        Poll,
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            6 => (0..3_usize, 0..3_u8).prop_map(|(class, source)| Act::Wait(class, source)),
            1 => any::<prop::sample::Index>().prop_map(Act::Withdraw),
            4 => Just(Act::Poll),
        ]
    }

    proptest! {
        /// Checks that the queue serves each waiting connection once or withdraws it, and passes over no kind
        /// more than twice in a row.
        #[test]
        fn none_is_lost_and_none_starves(acts in prop::collection::vec(act(), 1..150)) {
            let mut handshakes = Handshakes::default();
            let mut model: Vec<(Waiting, Place)> = Vec::new();
            let mut passed = [0; 3];
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
                    Act::Poll => {
                        let next = next(&mut handshakes);
                        prop_assert_eq!(next.is_none(), model.is_empty());
                        let Some(next) = next else { continue };
                        let at = model.iter().position(|m| m.0 == next);
                        prop_assert!(at.is_some(), "{:?} is served and did not wait", next);
                        model.remove(at.unwrap());
                        for class in Class::ALL {
                            let waits = model.iter().any(|m| m.0.class() == class);
                            let count = &mut passed[class.index()];
                            *count = if waits && class != next.class() { *count + 1 } else { 0 };
                            prop_assert!(*count <= 2, "{:?} is passed over", class);
                        }
                    }
                }
                prop_assert_eq!(handshakes.is_empty(), model.is_empty());
            }
        }
    }
}

//! Keeps the passwords that wait until a thread checks them against bcrypt hashes.
//!
//! A check takes some tenths of a second on purpose, and a client needs nothing but an invented password to
//! cause one. So addresses take turns: wrong passwords from one address, however many, delay a user at
//! another address by one check only. Among the passwords of one address the thread checks the newest first.
//! If it checked the oldest first, then with more passwords than it can check each check would come just
//! before the client's timeout, and in vain. The node drops the password of a connection that ends. Beyond a
//! bound it drops the oldest password.

use core::net::IpAddr;
use std::collections::BTreeMap;

use super::Verify;
use crate::fair::{FairQueue, Source, Ticket};

/// The greatest number of passwords that wait for a check, so that they take bounded memory. Beyond it, a new
/// password displaces the oldest password of the address with the most passwords in the queue.
const WAITING_MAX: usize = 1024;
/// The greatest number of passwords of one address that wait for a check, so that no address fills the queue.
/// Beyond it, a new password displaces the oldest password of its own address.
const WAITING_OF_SOURCE_MAX: usize = 64;

/// Keeps the passwords that wait for a check; the [module](self) describes their order.
#[derive(Debug, Default)]
pub(super) struct Passwords {
    waiting: FairQueue<Verify>,
    /// The queue ticket of each waiting password, by the number of its connection, by which the node removes
    /// the password of an ended connection.
    tickets: BTreeMap<u64, Ticket>,
}

impl Passwords {
    /// Adds the password of a connection from this address. Returns the waiting password that it has
    /// displaced, so that the node closes that connection; `None` if the queue had room for both.
    pub(super) fn push(&mut self, from: IpAddr, verify: Verify) -> Option<Verify> {
        let source = Source::from(from);
        let crowded = if self.waiting.len_of(source) >= WAITING_OF_SOURCE_MAX {
            Some(source)
        } else if self.waiting.len() >= WAITING_MAX {
            self.waiting.longest()
        } else {
            None
        };
        let displaced = crowded.and_then(|source| self.waiting.remove_oldest(source));
        if let Some(displaced) = &displaced {
            self.tickets.remove(&displaced.cid);
        }
        let cid = verify.cid;
        let ticket = self.waiting.push(source, verify);
        self.tickets.insert(cid, ticket);
        displaced
    }

    /// Drops the waiting password of a connection that has ended, so that no thread checks it in vain.
    pub(super) fn remove(&mut self, cid: u64) {
        if let Some(ticket) = self.tickets.remove(&cid) {
            self.waiting.remove(ticket);
        }
    }

    /// Takes the next password for a thread to check, from an address for which `may` returns true; `None` if
    /// no password of such an address waits.
    pub(super) fn pop(&mut self, may: impl Fn(Source) -> bool) -> Option<(Source, Verify)> {
        let (source, next) = self.waiting.pop_newest(may)?;
        self.tickets.remove(&next.cid);
        Some((source, next))
    }

    #[cfg(test)]
    fn check_invariants(&self) {
        self.waiting.check_invariants();
        assert_eq!(self.waiting.len(), self.tickets.len());
        assert!(self.waiting.len() <= WAITING_MAX);
        let most = self.waiting.longest().map(|s| self.waiting.len_of(s));
        assert!(most.unwrap_or(0) <= WAITING_OF_SOURCE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::party::ClientKey;

    fn verify(cid: u64) -> Verify {
        Verify {
            key: ClientKey::new(cid as usize),
            cid,
            password: String::new(),
            hash: "".into(),
        }
    }

    fn address(n: u64) -> IpAddr {
        IpAddr::from([10, 0, (n >> 8) as u8, n as u8])
    }

    #[test]
    fn both_bounds_let_the_oldest_go() {
        let mut passwords = Passwords::default();
        for cid in 0..100 {
            let displaced = passwords.push(address(0), verify(cid)).map(|v| v.cid);
            assert_eq!(displaced, cid.checked_sub(WAITING_OF_SOURCE_MAX as u64));
            passwords.check_invariants();
        }
        for cid in 100..1060 {
            let displaced = passwords.push(address(cid), verify(cid));
            assert!(displaced.is_none());
        }
        // The queue is full, so the address with the most passwords loses its oldest one.
        let displaced = passwords.push(address(2000), verify(2000));
        assert_eq!(displaced.map(|v| v.cid), Some(36));
        passwords.check_invariants();
    }

    #[derive(Clone, Debug)]
    enum Act {
        Push(u64),
        Remove(prop::sample::Index),
        Pop,
    }

    proptest! {
        /// Checks that the queue hands out each password once, unless its connection ended or had to make
        /// room, and within an address the newest first.
        #[test]
        fn checks_are_those_of_connections_that_wait(acts in prop::collection::vec(prop_oneof![
            5 => (0..3_u64).prop_map(Act::Push),
            1 => any::<prop::sample::Index>().prop_map(Act::Remove),
            2 => Just(Act::Pop),
        ], 1..300)) {
            let mut passwords = Passwords::default();
            let mut model: Vec<(u64, u64)> = Vec::new();
            for (cid, act) in (0_u64..).zip(acts) {
                match act {
                    Act::Push(from) => {
                        let displaced = passwords.push(address(from), verify(cid)).map(|v| v.cid);
                        let of_source = model.iter().filter(|(s, _)| *s == from).count();
                        let oldest = model.iter().find(|(s, _)| *s == from).map(|(_, cid)| *cid);
                        let crowded = of_source >= WAITING_OF_SOURCE_MAX;
                        prop_assert_eq!(displaced, oldest.filter(|_| crowded));
                        model.retain(|(_, cid)| Some(*cid) != displaced);
                        model.push((from, cid));
                    }
                    Act::Remove(_) if model.is_empty() => {}
                    Act::Remove(at) => {
                        let (_, cid) = model.remove(at.index(model.len()));
                        passwords.remove(cid);
                    }
                    Act::Pop => {
                        let popped = passwords.pop(|_| true).map(|(_, v)| v.cid);
                        prop_assert_eq!(popped.is_none(), model.is_empty());
                        let Some(popped) = popped else { continue };
                        let at = model.iter().position(|(_, cid)| *cid == popped).unwrap();
                        let (from, _) = model.remove(at);
                        prop_assert!(!model[at..].iter().any(|(s, _)| *s == from), "a newer one waits");
                    }
                }
                passwords.check_invariants();
            }
        }
    }
}

//! How a node whose disk was lost gets back the place it had among the members, once its operator asks for
//! that: what it has to be told, and by whom. What the place is worth at first is
//! [`Group::is_whole`](crate::replica::Group::is_whole)'s to say.
//!
//! It comes with an empty directory and another id, says so, and is let in as a guest: it is told who the
//! members are, and each of them vouches for a term, the latest it has been in. All of them have to: whoever
//! is silent may be in a later term, to which the lost disk may have lent its vote.

use std::collections::BTreeMap;

use super::members::Members;

/// The place a node had, and from when on it has it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejoined {
    /// All members, this node among them.
    pub members: Members,
    /// The id this node had.
    pub id: u64,
    /// It takes part from this term on: nobody was in it while the disk was there.
    pub term: u64,
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Rejoin {
    name: String,
    /// By the ids of those who say it.
    told: BTreeMap<u64, Members>,
    vouched: BTreeMap<u64, u64>,
}

impl Rejoin {
    /// The node with this name has lost its disk.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// A node told who the members are.
    pub fn handle_told(&mut self, id: u64, members: Members) {
        self.told.insert(id, members);
    }

    /// A node has been in no later term than this one. That stays true of the time before the disk was lost.
    pub fn handle_vouched(&mut self, id: u64, term: u64) {
        let known = self.vouched.entry(id).or_default();
        *known = term.max(*known);
    }

    /// The place to take, if everybody else has said what it takes: write it down first.
    #[must_use]
    pub fn due(&self) -> Option<Rejoined> {
        let members = self.told.values().next()?;
        let id = members.id_of(&self.name)?;
        let mut latest = 0;
        for other in members.iter().filter(|m| m.id != id) {
            if self.told.get(&other.id) != Some(members) {
                return None;
            }
            latest = latest.max(*self.vouched.get(&other.id)?);
        }
        Some(Rejoined {
            members: members.clone(),
            id,
            term: latest + 1,
        })
    }

    /// What is missing, for people.
    #[must_use]
    pub fn waiting_for(&self) -> String {
        let Some(members) = self.told.values().next() else {
            return "no member of the cluster was met yet".into();
        };
        if members.id_of(&self.name).is_none() {
            let names = members.names();
            return format!("`{}` is no member: its members are {names}", self.name);
        }
        if self.told.values().any(|told| told != members) {
            return "the nodes know different members: their routes lead to two clusters".into();
        }
        let silent = |id| !self.told.contains_key(&id) || !self.vouched.contains_key(&id);
        let others = members.iter().filter(|m| m.name != self.name);
        let silent = others.filter(|m| silent(m.id)).map(|m| m.name.as_str());
        let silent: Vec<&str> = silent.collect();
        format!(
            "all other members have to be there and to have everything; missing: {}",
            silent.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::members::Member;
    use super::*;

    fn members(ids: [u64; 3]) -> Members {
        let name = |i: usize| format!("n{}", i + 1);
        let all = ids.iter().enumerate().map(|(i, id)| Member {
            name: name(i),
            id: *id,
        });
        Members::new(all.collect()).unwrap()
    }

    #[test]
    fn a_place_is_had_again_when_all_others_have_spoken() {
        let mut rejoin = Rejoin::new("n2");
        assert!(rejoin.due().is_none() && rejoin.waiting_for().contains("was met"));
        rejoin.handle_told(1, members([1, 2, 3]));
        rejoin.handle_vouched(1, 7);
        assert!(rejoin.due().is_none() && rejoin.waiting_for().ends_with("missing: n3"));
        rejoin.handle_told(3, members([1, 2, 3]));
        assert!(rejoin.due().is_none() && rejoin.waiting_for().ends_with("missing: n3"));
        rejoin.handle_vouched(3, 9);
        rejoin.handle_vouched(3, 4);
        let rejoined = rejoin.due().unwrap();
        assert_eq!((rejoined.id, rejoined.term), (2, 10));
        assert_eq!(rejoined.members, members([1, 2, 3]));
    }

    #[test]
    fn strangers_and_two_clusters_get_none() {
        let mut rejoin = Rejoin::new("n9");
        rejoin.handle_told(1, members([1, 2, 3]));
        assert!(rejoin.due().is_none() && rejoin.waiting_for().contains("no member"));
        let mut rejoin = Rejoin::new("n2");
        rejoin.handle_told(1, members([1, 2, 3]));
        rejoin.handle_told(3, members([1, 5, 3]));
        (1..=3).for_each(|id| rejoin.handle_vouched(id, 1));
        assert!(rejoin.due().is_none() && rejoin.waiting_for().contains("two clusters"));
    }
}

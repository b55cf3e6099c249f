//! Gives a node that lost its disk its former place among the members, if the operator asks for that. This
//! module collects the reports of the other members that the node needs. `Group::is_whole` in tidegate-raft
//! decides from when on the node may vote and lead in a Raft group again.
//!
//! The node starts with an empty directory and a new id, says that it rejoins, and the members admit it as a
//! guest. Each member then reports the set of members, and the latest term that it has been in. The node
//! waits for all members: a silent member may be in a later term, in which the node may have voted before it
//! lost its disk.

use std::collections::BTreeMap;

use super::members::Members;

/// The former place of a node that lost its disk, and the term from which the node has the place again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejoined {
    /// All members of the cluster, including this node.
    pub members: Members,
    /// The id that this node had before it lost its disk, under which it takes part again.
    pub id: u64,
    /// The first term in which the node takes part again: no member was in this term while the lost disk
    /// existed.
    pub term: u64,
}

/// Collects the reports of the members for a node that asks for its former place; see the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Rejoin {
    name: String,
    /// The set of members that each node reports, by the id of the reporting node.
    told: BTreeMap<u64, Members>,
    vouched: BTreeMap<u64, u64>,
}

impl Rejoin {
    /// Creates the state of the node with this name, which lost its disk and knows only its name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Records the set of members that the node with this id reports; all reports must agree.
    pub fn handle_told(&mut self, id: u64, members: Members) {
        self.told.insert(id, members);
    }

    /// Records that the node `id` has been in no later term than `term`. This node begins in a term above
    /// those of all members, because it cannot have voted in such a term before it lost its disk.
    pub fn handle_vouched(&mut self, id: u64, term: u64) {
        let known = self.vouched.entry(id).or_default();
        *known = term.max(*known);
    }

    /// Returns the place that this node may take, once every other member has reported the same members and
    /// its latest term. The caller writes the place to the members' file before the node takes it.
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

    /// Explains to the operator which reports are missing or contradict each other.
    #[must_use]
    pub fn waiting_for(&self) -> String {
        let Some(members) = self.told.values().next() else {
            return "this node waits to rejoin the cluster: no member of the cluster was met yet"
                .into();
        };
        if members.id_of(&self.name).is_none() {
            let names = members.names();
            return format!(
                "`{}` is no member of the cluster: the members are {names}",
                self.name
            );
        }
        if self.told.values().any(|told| told != members) {
            return "the nodes know different members: their routes lead to two clusters".into();
        }
        let silent = |id| !self.told.contains_key(&id) || !self.vouched.contains_key(&id);
        let others = members.iter().filter(|m| m.name != self.name);
        let silent = others.filter(|m| silent(m.id)).map(|m| m.name.as_str());
        let silent: Vec<&str> = silent.collect();
        format!(
            "this node waits until every other member is connected and has all entries of its groups; missing: {}",
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

//! The subscriptions that match a subject: the result of a look-up.
//!
//! A look-up only lists the queue groups that match. The members of a few groups stand in the result at once.
//! The caller of a look-up with very many groups gathers their members a part at a time
//! ([`Matches::gather`]), so that no look-up takes long. A group that ends before its part has no members to
//! gather, and a group that begins after the look-up does not belong to the result.

use super::groups::{Group, Groups};
use super::{SubKey, index};

/// The subscriptions that match one subject, to which the server delivers a message of this subject.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    /// The subscriptions outside of queue groups: each receives a copy of the message.
    pub plain: Vec<SubKey>,
    members: Vec<SubKey>,
    firsts: Vec<SubKey>,
    ends: Vec<Ends>,
    /// The numbers of the queue groups that the look-up found. Groups of one name under several patterns
    /// follow one another. The result has the members of the first `gathered` of them.
    found: Vec<u32>,
    gathered: usize,
    /// The count of the queue groups made before the look-up, by which a later group with the number of an
    /// ended one is none of those found.
    made: u64,
}

/// The ends of one queue group's subscriptions in the lists of [`Matches`]. Each list holds the
/// subscriptions of one queue group after the other, so a group begins where the previous one ends.
#[derive(Clone, Copy, Debug)]
struct Ends {
    many: u32,
    single: u32,
    firsts: u32,
}

/// The subscriptions of one queue group that match a subject. The server delivers a message to one member of
/// the group. If several patterns match the subject, the group may have members under each of them.
#[derive(Clone, Copy, Debug)]
pub struct Members<'a> {
    /// The subscriptions that each stand for several members of the queue group, such as the subscription of
    /// another node (see [`Sublist::insert_many`](super::Sublist::insert_many)).
    pub many: &'a [SubKey],
    /// The subscriptions that each stand for one member of the queue group.
    pub single: &'a [SubKey],
    /// The first subscription in `single` of each matching pattern under which the group has single members.
    /// The caller finds these patterns by these subscriptions.
    pub firsts: &'a [SubKey],
}

impl Matches {
    /// Iterates over the queue groups with subscriptions that match the subject, each of which gets one copy
    /// of a message. Leaves out the groups of which the result has no members yet.
    pub fn groups(&self) -> impl Iterator<Item = Members<'_>> {
        (0..self.ends.len()).map(|at| self.group(at))
    }

    /// Iterates over all subscriptions that match the subject: first those outside of queue groups, then the
    /// members of queue groups, as far as the result has them.
    pub fn iter(&self) -> impl Iterator<Item = SubKey> {
        self.plain.iter().chain(&self.members).copied()
    }

    /// Returns the number of subscriptions that match the subject, inside and outside of queue groups. A
    /// queue group of which the result has no members yet counts as one.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.plain.len() + self.members.len() + self.found.len() - self.gathered
    }

    /// Returns the number of queue groups with members in the result, for a loop over them.
    #[must_use]
    pub const fn groups_len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the queue group with the index `at` among the groups with members in the result.
    #[must_use]
    pub fn group(&self, at: usize) -> Members<'_> {
        let before = at.checked_sub(1).map(|before| self.ends[before]);
        let (start, first) = before.map_or((0, 0), |ends| (ends.single, ends.firsts));
        let ends = self.ends[at];
        Members {
            many: &self.members[start as usize..ends.many as usize],
            single: &self.members[ends.many as usize..ends.single as usize],
            firsts: &self.firsts[first as usize..ends.firsts as usize],
        }
    }

    /// Returns whether no subscription matches the subject, so that a message has no receiver.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the result has the members of all queue groups that the look-up found.
    #[must_use]
    pub const fn is_gathered(&self) -> bool {
        self.gathered == self.found.len()
    }

    /// Returns the number of queue groups that the look-up found, once for each of their patterns.
    pub(super) const fn groups_found(&self) -> usize {
        self.found.len()
    }

    pub(super) fn clear(&mut self) {
        self.plain.clear();
        self.members.clear();
        self.firsts.clear();
        self.ends.clear();
        self.found.clear();
        self.gathered = 0;
    }

    /// Takes the queue groups that a walk has found in the trie. `named` holds each of them behind the number
    /// of its name if they are under several patterns: groups with equal names then form one group, because
    /// the name alone identifies a group.
    pub(super) fn set_groups(&mut self, made: u64, found: &[u32], named: &mut [(u32, u32)]) {
        self.made = made;
        if named.is_empty() {
            return self.found.extend_from_slice(found);
        }
        named.sort_unstable();
        self.found.extend(named.iter().map(|(_, group)| *group));
    }

    /// Adds the members of the next queue groups to the result: of about `most` groups, because a group has
    /// all its patterns at once.
    pub(super) fn gather(&mut self, groups: &Groups, most: usize) {
        let end = self.gathered.saturating_add(most).min(self.found.len());
        while self.gathered < end {
            let first = self.gathered;
            self.gathered += 1;
            let name = groups.get(self.found[first], self.made).map(Group::name);
            let Some(name) = name else {
                continue;
            };
            // A pattern under which the group has ended does not divide the group.
            let same = |group: &&u32| {
                let group = groups.get(**group, self.made);
                group.is_none_or(|group| group.name() == name)
            };
            self.gathered += self.found[self.gathered..].iter().take_while(same).count();
            let found = &self.found[first..self.gathered];
            let parts = found
                .iter()
                .filter_map(|group| groups.get(*group, self.made));
            let parts = parts.map(Group::parts);
            for (many, _) in parts.clone() {
                self.members.extend_from_slice(many);
            }
            let many = index(self.members.len());
            for (_, single) in parts {
                self.firsts.extend(single.first());
                self.members.extend_from_slice(single);
            }
            self.ends.push(Ends {
                many,
                single: index(self.members.len()),
                firsts: index(self.firsts.len()),
            });
        }
    }

    /// Returns whether one of the queue groups that the look-up found has a key that stands for several
    /// members.
    pub(super) fn has_many(&self, groups: &Groups) -> bool {
        let mut found = self.found.iter();
        found.any(|group| {
            let group = groups.get(*group, self.made);
            group.is_some_and(|group| group.many > 0)
        })
    }
}

//! The slots of a node's Raft groups: the numbers under which the node keeps each group, in its store and
//! among its streams.

use std::ops::{Index, IndexMut};

/// The number under which a node keeps a Raft group, in its store and among its streams. Other nodes may
/// have other groups, so a node never sends this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupSlot(usize);

impl GroupSlot {
    /// The slot of the first group of a node, from which a loop over all groups starts.
    pub const FIRST: Self = Self(0);
    /// The slot of the group that keeps the directory of streams. [`groups`](crate::groups::groups) puts
    /// [`ALL`](crate::groups::ALL) first. A node without a cluster has only this slot.
    pub const DIRECTORY: Self = Self::FIRST;

    /// Returns the slot with the number `index`, for the place of a group in a list.
    #[inline]
    #[must_use]
    pub const fn new(index: usize) -> Self {
        Self(index)
    }

    /// Returns the number of the slot, as an index into a list of groups.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }

    /// Returns the slots of `len` groups, in order, for a loop over all of them.
    #[inline]
    pub fn all(len: usize) -> impl DoubleEndedIterator<Item = Self> {
        (0..len).map(Self)
    }

    /// Returns the slots of all `len` groups once, beginning with this slot and going round behind the last,
    /// so that groups can take turns.
    #[inline]
    pub fn around(self, len: usize) -> impl Iterator<Item = Self> {
        (0..len).map(move |n| Self((self.0 + n) % len))
    }

    /// Returns the slot behind this slot among the slots of `len` groups; `None` behind the last.
    #[inline]
    #[must_use]
    pub const fn next(self, len: usize) -> Option<Self> {
        match self.0 + 1 < len {
            true => Some(Self(self.0 + 1)),
            false => None,
        }
    }

    /// Returns the slot behind this slot among the slots of `len` groups, and the first slot behind the
    /// last, so that groups can take turns.
    #[inline]
    #[must_use]
    pub const fn next_around(self, len: usize) -> Self {
        match self.next(len) {
            Some(next) => next,
            None => Self::FIRST,
        }
    }
}

/// A table with a value for each group of a node, by the group's slot, so that no other number can serve as
/// an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerGroup<T>(Vec<T>);

impl<T> PerGroup<T> {
    /// Creates an empty table, to which the caller adds the value of each group.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds the value of the next group: it gets the slot behind those already in the table.
    pub fn push(&mut self, value: T) {
        self.0.push(value);
    }

    /// Returns the number of groups in the table.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the table has no group.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of the group in this slot, if the table has such a group.
    #[inline]
    #[must_use]
    pub fn get(&self, slot: GroupSlot) -> Option<&T> {
        self.0.get(slot.0)
    }

    /// Returns the value of the group in this slot, to change it, if the table has such a group.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, slot: GroupSlot) -> Option<&mut T> {
        self.0.get_mut(slot.0)
    }

    /// Returns the slots of all groups in the table, in order, for a loop that changes the table.
    #[inline]
    pub fn slots(&self) -> impl DoubleEndedIterator<Item = GroupSlot> + use<T> {
        GroupSlot::all(self.0.len())
    }

    /// Returns the groups' values, in the order of the slots.
    #[inline]
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    /// Returns the groups' values, to change them, in the order of the slots.
    #[inline]
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.0.iter_mut()
    }

    /// Returns the groups' values with their slots, in the order of the slots.
    #[inline]
    pub fn with_slots(&self) -> impl Iterator<Item = (GroupSlot, &T)> {
        self.slots().zip(&self.0)
    }

    /// Returns the slot of the first group with a value that meets the condition; `None` if no group has
    /// such a value.
    #[inline]
    #[must_use]
    pub fn position(&self, meets: impl FnMut(&T) -> bool) -> Option<GroupSlot> {
        self.0.iter().position(meets).map(GroupSlot)
    }
}

impl<T> Default for PerGroup<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Index<GroupSlot> for PerGroup<T> {
    type Output = T;

    #[inline]
    fn index(&self, slot: GroupSlot) -> &T {
        &self.0[slot.0]
    }
}

impl<T> IndexMut<GroupSlot> for PerGroup<T> {
    #[inline]
    fn index_mut(&mut self, slot: GroupSlot) -> &mut T {
        &mut self.0[slot.0]
    }
}

impl<T> FromIterator<T> for PerGroup<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl<T> IntoIterator for PerGroup<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a PerGroup<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut PerGroup<T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::{ALL, GroupId, groups};

    #[test]
    fn slots_follow_the_order_of_groups_and_the_directory_is_first() {
        let groups = groups(vec![30, 10, 20], 2).into_iter();
        let numbers: PerGroup<GroupId> = groups.map(|g| g.number).collect();
        assert_eq!(numbers[GroupSlot::DIRECTORY], ALL);
        let slots: Vec<usize> = numbers.slots().map(GroupSlot::index).collect();
        assert_eq!(slots, [0, 1, 2, 3, 4]);
        let last = numbers.position(|n| *n == numbers.0[4]).unwrap();
        assert_eq!((last, last.next(5)), (GroupSlot::new(4), None));
        assert_eq!(last.next_around(5), GroupSlot::FIRST);
        let around: Vec<usize> = last.around(5).map(GroupSlot::index).collect();
        assert_eq!(around, [4, 0, 1, 2, 3]);
        assert_eq!(numbers.get(GroupSlot::new(5)), None);
    }
}

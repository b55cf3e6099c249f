//! The group of nodes that keeps a stream.
//!
//! The group of all nodes has an entry for every stream, its *directory*. A stream that another group keeps
//! is in two logs: as an entry here, which never has messages or consumers, and in that group, which knows
//! the number of its entry.

use tidegate_cluster::groups::GroupId;

use super::wire::RestoreError;
use super::wire::{Reader, put_u32};
use crate::schema::number::DirectoryNumber;

/// The group that keeps a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Home {
    /// The group that created it; no directory lists it.
    #[default]
    Here,
    /// Another group keeps it: this is an entry of the directory.
    Elsewhere {
        /// The number of that group.
        group: GroupId,
        /// True if that group has created it. If that group does not have it from then on, the stream is
        /// lost.
        made: bool,
    },
    /// This group keeps it, for the directory of another group, in which it has this number.
    Of(DirectoryNumber),
}

impl Home {
    /// Writes the home group to a snapshot: the variant as u8, and a number as u32.
    pub(super) fn put(self, out: &mut Vec<u8>) {
        let (kind, number) = match self {
            Self::Here => (0, 0),
            Self::Elsewhere { group, made } => (1 + u8::from(made), group.get()),
            Self::Of(number) => (3, number.get()),
        };
        out.push(kind);
        put_u32(out, number);
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<Self, RestoreError> {
        match (from.u8()?, from.u32()?) {
            (0, 0) => Ok(Self::Here),
            (kind @ (1 | 2), group) if group > 0 => Ok(Self::Elsewhere {
                group: GroupId::new(group),
                made: kind == 2,
            }),
            (3, number) if number > 0 => Ok(Self::Of(DirectoryNumber::new(number))),
            _ => Err(RestoreError::Inconsistent("who keeps a stream")),
        }
    }

    /// Returns whether it is an entry of the directory for a stream that group `by` keeps.
    #[must_use]
    pub const fn is_by(self, by: GroupId) -> bool {
        matches!(self, Self::Elsewhere { group, .. } if group.get() == by.get())
    }

    /// Returns whether the stream may have messages and consumers here.
    #[must_use]
    pub const fn is_here(self) -> bool {
        !matches!(self, Self::Elsewhere { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_comes_back_from_a_snapshot() {
        for made in [false, true] {
            let group = GroupId::new(0x1002);
            for kept in [
                Home::Here,
                Home::Elsewhere { group, made },
                Home::Of(DirectoryNumber::new(7)),
            ] {
                let mut bytes = Vec::new();
                kept.put(&mut bytes);
                assert_eq!(Home::read(&mut Reader(&bytes)).unwrap(), kept);
            }
        }
    }
}

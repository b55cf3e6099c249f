//! The group of nodes that keeps a stream.
//!
//! The group of all nodes has an entry for every stream, its *directory*. A stream that another group keeps
//! is in two logs. The group of all nodes has an entry for it, without messages and consumers. The home group
//! has the stream itself, with the number of this entry.

use tidegate_cluster::groups::GroupId;

use super::wire::RestoreError;
use super::wire::{Reader, put_u32};
use crate::schema::number::DirectoryNumber;

/// The group that keeps a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Home {
    /// This group created the stream and keeps it; the directory of another group does not list it.
    #[default]
    Here,
    /// Another group keeps the stream: this is only its entry in the directory.
    Elsewhere {
        /// The number of the group that keeps the stream.
        group: GroupId,
        /// True once that group has created the stream. If that group does not have the stream afterwards,
        /// the stream is lost.
        made: bool,
    },
    /// This group keeps the stream, and the directory of another group lists it under this number.
    Of(DirectoryNumber),
}

impl Home {
    /// Writes the home group to a snapshot: the variant as a `u8`, and the group's or stream's number as a
    /// `u32`.
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

    /// Returns whether the stream is an entry of the directory, and group `by` keeps the stream.
    #[must_use]
    pub const fn is_by(self, by: GroupId) -> bool {
        matches!(self, Self::Elsewhere { group, .. } if group.get() == by.get())
    }

    /// Returns whether the stream may have messages and consumers in this group.
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

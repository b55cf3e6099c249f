//! The home group of a stream: the group of nodes that keeps the stream's messages and consumers.
//!
//! The group of all nodes keeps the *directory*, which has an entry for every stream. A stream that another
//! group keeps is in two logs: the log of the group of all nodes has its directory entry, without messages
//! and consumers, and the log of its home group has the stream itself, which refers to the directory entry by
//! number.

use tidegate_cluster::groups::GroupId;

use super::wire::RestoreError;
use super::wire::{Reader, put_u32};
use crate::schema::number::DirectoryNumber;

/// The group that keeps a stream, as one of the groups that know the stream records it, so that requests go
/// to the right group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Home {
    /// The group itself keeps the stream, and the directory of another group does not list it, because the
    /// server stands alone or this group keeps the directory.
    #[default]
    Here,
    /// Another group keeps the stream; this group only has the stream's entry in the directory, so it applies
    /// no message.
    Elsewhere {
        /// The number of the stream's home group, which keeps the stream's messages.
        group: GroupId,
        /// True once the home group has created the stream, so that it is not asked to create the stream
        /// again. If the home group lacks the stream after that, the stream is lost.
        made: bool,
    },
    /// The group itself keeps the stream, and the directory of the group of all nodes lists it under this
    /// number. A move of the stream names the number.
    Of(DirectoryNumber),
}

impl Home {
    /// Writes the home group of a stream to a snapshot, so that a restored node knows the group: the variant
    /// as a `u8`, and the number of the group or of the directory entry as a `u32`.
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

    /// Returns whether this is the directory entry of a stream that the group `by` keeps, so that the caller
    /// can find all streams of that group.
    #[must_use]
    pub const fn is_by(self, by: GroupId) -> bool {
        matches!(self, Self::Elsewhere { group, .. } if group.get() == by.get())
    }

    /// Returns whether this group keeps the stream itself, and so may have the stream's messages and
    /// consumers. Otherwise the group refuses commands for its content.
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

//! The group of nodes that keeps a stream.
//!
//! The group of all nodes has an entry for every stream, its *directory*. A stream that another group keeps
//! is in two logs: as an entry here, which never has messages or consumers, and in that group, which knows
//! the number of its entry.

use super::command::Command;
use super::wire::RestoreError;
use super::wire::{Reader, put_u32};
use crate::schema::error::ApiError;

/// The group that keeps a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Home {
    /// The group that created it; no directory lists it.
    #[default]
    Here,
    /// Another group keeps it: this is an entry of the directory.
    Elsewhere {
        /// The number of that group.
        group: u32,
        /// True if that group has created it. If that group does not have it from then on, the stream is
        /// lost.
        made: bool,
    },
    /// This group keeps it, for the directory of another group, in which it has this number.
    Of(u32),
}

impl Home {
    /// Encodes the home as the subject of the command that creates such a stream.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        let both = |group: u32, of: u32| [group.to_le_bytes(), of.to_le_bytes()].concat();
        match self {
            Self::Here => Vec::new(),
            Self::Elsewhere { group, .. } => both(group, 0),
            Self::Of(number) => both(0, number),
        }
    }

    /// Encodes the subject of the command that creates a copy of the directory's stream number `of`, which
    /// the move number `r#move` of that stream fills.
    #[must_use]
    pub fn encode_copy(of: u32, r#move: u32) -> Vec<u8> {
        [&Self::Of(of).encode()[..], &r#move.to_le_bytes()].concat()
    }

    /// Reads the home from a command that creates a stream, and, for a copy, the move that fills it.
    pub(super) fn of(command: &Command<'_>) -> Result<(Self, Option<u32>), ApiError> {
        let subject = command.subject;
        let copy = subject.split_last_chunk().filter(|_| subject.len() == 12);
        let Some((subject, number)) = copy else {
            return Ok((Self::of_bytes(subject)?, None));
        };
        match (Self::of_bytes(subject)?, u32::from_le_bytes(*number)) {
            (kept @ Self::Of(_), number) if number > 0 => Ok((kept, Some(number))),
            _ => Err(ApiError::BAD_REQUEST),
        }
    }

    fn of_bytes(subject: &[u8]) -> Result<Self, ApiError> {
        if subject.is_empty() {
            return Ok(Self::Here);
        }
        let (group, of) = subject
            .split_first_chunk()
            .and_then(|(group, of)| Some((*group, of.try_into().ok()?)))
            .ok_or(ApiError::BAD_REQUEST)?;
        match (u32::from_le_bytes(group), u32::from_le_bytes(of)) {
            (group, 0) if group > 0 => Ok(Self::Elsewhere { group, made: false }),
            (0, of) if of > 0 => Ok(Self::Of(of)),
            _ => Err(ApiError::BAD_REQUEST),
        }
    }

    /// Writes the home group to a snapshot: the variant as u8, and a number as u32.
    pub(super) fn put(self, out: &mut Vec<u8>) {
        let (kind, number) = match self {
            Self::Here => (0, 0),
            Self::Elsewhere { group, made } => (1 + u8::from(made), group),
            Self::Of(number) => (3, number),
        };
        out.push(kind);
        put_u32(out, number);
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<Self, RestoreError> {
        match (from.u8()?, from.u32()?) {
            (0, 0) => Ok(Self::Here),
            (kind @ (1 | 2), group) if group > 0 => Ok(Self::Elsewhere {
                group,
                made: kind == 2,
            }),
            (3, number) if number > 0 => Ok(Self::Of(number)),
            _ => Err(RestoreError::Inconsistent("who keeps a stream")),
        }
    }

    /// Returns whether it is an entry of the directory for a stream that group `by` keeps.
    #[must_use]
    pub const fn is_by(self, by: u32) -> bool {
        matches!(self, Self::Elsewhere { group, .. } if group == by)
    }

    /// Returns whether the stream may have messages and consumers here.
    #[must_use]
    pub const fn is_here(self) -> bool {
        !matches!(self, Self::Elsewhere { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::*;

    #[test]
    fn a_command_names_the_keeping_group() {
        let read = |subject: &[u8]| Home::of(&Command::new(Kind::CreateStream, 0, subject, b"{}"));
        for kept in [
            Home::Here,
            Home::Elsewhere {
                group: 0x1002,
                made: false,
            },
            Home::Of(7),
        ] {
            assert_eq!(read(&kept.encode()), Ok((kept, None)));
            let mut bytes = Vec::new();
            kept.put(&mut bytes);
            assert_eq!(Home::read(&mut Reader(&bytes)).unwrap(), kept);
        }
        assert_eq!(read(&Home::encode_copy(7, 3)), Ok((Home::Of(7), Some(3))));
        assert_eq!(read(&Home::encode_copy(7, 0)), Err(ApiError::BAD_REQUEST));
        for wrong in [&[0; 8][..], &[1; 8], &[1; 7], b"a", &[1; 9]] {
            assert_eq!(read(wrong), Err(ApiError::BAD_REQUEST), "{wrong:?}");
        }
    }
}

//! Encodes and decodes the parts of commands that name the group that keeps a stream, the group to which the
//! stream moves, and the number of the move.
//!
//! This module owns the layout of these subjects and payloads: integers without a tag; the decoder tells the
//! variants apart by their length. No other module reads or writes these bytes. [`super::streams`] checks
//! whether the state of the stream allows the command. All numbers are little-endian `u32`s.
//!
//! ```text
//! Placement   CreateStream, subject   nothing | group, 0 | 0, number in the directory
//!                                     | 0, number in the directory, move
//! Course      UpdateStream, subject   nothing | group | group or 0, move
//! Filling     Import, subject         nothing | move
//! Moving      Freeze, Moved, payload  group, move
//! Renewal     Renew, payload          group, move, new group
//! Thaw        Thaw, payload           move
//! ```

use tidegate_cluster::groups::GroupId;

use serde::{Deserialize, Serialize};

use super::home::Home;
use crate::schema::error::ApiError;
use crate::schema::number::{DirectoryNumber, MoveNumber};

/// The group that keeps the stream that a command creates, so that each node knows which log has its
/// messages, as the subject of a [`super::Kind::CreateStream`] states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The group that applies the command keeps the stream, and the directory of another group does not list
    /// it. A server without placement uses this.
    Here,
    /// Another group keeps the stream, and the command only creates the stream's entry in the directory,
    /// which lists all streams.
    Elsewhere {
        /// The number of the group that keeps the stream. The directory sends requests there.
        group: GroupId,
    },
    /// The group that applies the command keeps the stream, and the directory of another group lists the
    /// stream under this number. A move then finds the stream by this number.
    Of(DirectoryNumber),
    /// The group that applies the command is the target of a move, and keeps the stream once the move has
    /// filled the copy. The command creates the empty copy.
    Copy {
        /// The directory number of the stream that moves, which connects the copy with the directory's entry.
        of: DirectoryNumber,
        /// The number of the move that fills the copy of the stream. The copy refuses imports of another
        /// move.
        r#move: MoveNumber,
    },
}

impl Placement {
    /// Encodes the group that will keep a new stream as the subject of the command that creates the stream.
    /// The leader writes that command.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        match self {
            Self::Here => Vec::new(),
            Self::Elsewhere { group } => packed([group.get(), 0]),
            Self::Of(of) => packed([0, of.get()]),
            Self::Copy { of, r#move } => packed([0, of.get(), r#move.get()]),
        }
    }

    /// Decodes the group that will keep a new stream from the subject of the command that creates the stream,
    /// when a node applies it.
    pub(super) fn decode(subject: &[u8]) -> Result<Self, ApiError> {
        if subject.is_empty() {
            return Ok(Self::Here);
        }
        if let Some([group, of]) = unpacked(subject) {
            return match (group, of) {
                (1.., 0) => Ok(Self::Elsewhere {
                    group: GroupId::new(group),
                }),
                (0, 1..) => Ok(Self::Of(DirectoryNumber::new(of))),
                _ => Err(ApiError::BAD_REQUEST),
            };
        }
        match unpacked(subject) {
            Some([0, of, number]) if of > 0 && number > 0 => Ok(Self::Copy {
                of: DirectoryNumber::new(of),
                r#move: MoveNumber::new(number),
            }),
            _ => Err(ApiError::BAD_REQUEST),
        }
    }

    /// Returns the home group of a stream that a command with this placement creates. The group stores it
    /// with the stream.
    pub(super) const fn home(self) -> Home {
        match self {
            Self::Here => Home::Here,
            Self::Elsewhere { group } => Home::Elsewhere { group, made: false },
            Self::Of(of) | Self::Copy { of, .. } => Home::Of(of),
        }
    }
}

/// The decision whether a stream of the directory moves when a client changes its configuration, as the
/// subject of a [`super::Kind::UpdateStream`] states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// The update leaves the stream in its home group, because the client's change needs no other nodes.
    Same,
    /// The update makes the directory begin a move of the stream to another group.
    To {
        /// The number of the group to which the stream moves, the move's target.
        group: GroupId,
    },
    /// The directory calls the stream's present move off. The stream moves to another group instead, or stays
    /// in its home group. A client's update during a move does this.
    Instead {
        /// The number of the group to which the stream moves instead; `None` if the stream stays in its home
        /// group.
        group: Option<GroupId>,
        /// The number of the move that the directory calls off. The directory refuses the update if another
        /// move is under way.
        r#move: MoveNumber,
    },
}

impl Course {
    /// Encodes the decision whether the stream moves as the subject of an update, which the leader proposes.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        match self {
            Self::Same => Vec::new(),
            Self::To { group } => packed([group.get()]),
            Self::Instead { group, r#move } => {
                packed([group.map_or(0, GroupId::get), r#move.get()])
            }
        }
    }

    /// Decodes the decision whether the stream moves from the subject of an update, when a node applies it.
    pub(super) fn decode(subject: &[u8]) -> Result<Self, ApiError> {
        if subject.is_empty() {
            return Ok(Self::Same);
        }
        if let Some([group]) = unpacked(subject) {
            return Ok(Self::To {
                group: GroupId::new(group),
            });
        }
        let [group, number] = unpacked(subject).ok_or(ApiError::BAD_REQUEST)?;
        Ok(Self::Instead {
            group: Some(group).filter(|group| *group > 0).map(GroupId::new),
            r#move: MoveNumber::new(number),
        })
    }
}

/// The move to which an imported part of a stream belongs, so that a copy refuses the parts of another move,
/// as the subject of a [`super::Kind::Import`] states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filling {
    /// The import does not name its move, as in the logs of older versions: a copy takes the part for any
    /// move.
    Any,
    /// The imported part belongs to this move: the copy of another move refuses the part, because it may lack
    /// later changes.
    By(MoveNumber),
}

impl Filling {
    /// Encodes the move to which an import belongs as the import's subject, which the target's leader
    /// proposes.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        match self {
            Self::Any => Vec::new(),
            Self::By(r#move) => packed([r#move.get()]),
        }
    }

    /// Decodes the move to which an import belongs from the import's subject, when a node applies the import.
    pub(super) fn decode(subject: &[u8]) -> Result<Self, ApiError> {
        if subject.is_empty() {
            return Ok(Self::Any);
        }
        let [number] = unpacked(subject).ok_or(ApiError::BAD_REQUEST)?;
        Ok(Self::By(MoveNumber::new(number)))
    }

    /// Returns whether a copy that the move with this number fills takes the imported part. A part of an
    /// older move could lack later changes.
    pub(super) fn is_for(self, r#move: MoveNumber) -> bool {
        matches!(self, Self::Any) || self == Self::By(r#move)
    }
}

/// A move of a stream of the directory, which names its target and tells it from earlier moves, as the
/// payload of a [`super::Kind::Freeze`] or [`super::Kind::Moved`] states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moving {
    /// The target of the move: the group that will keep the stream.
    pub to: GroupId,
    /// The number of this move among all moves of the stream. A late command of an earlier move has another
    /// number.
    pub number: MoveNumber,
}

impl Moving {
    /// Encodes the target and the number of the move as the payload of the command that freezes the stream or
    /// ends the move.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        packed([self.to.get(), self.number.get()])
    }

    /// Decodes the target and the number of the move from the payload of the command that freezes the stream
    /// or ends the move.
    pub(super) fn decode(payload: &[u8]) -> Result<Self, ApiError> {
        let [to, number] = unpacked(payload).ok_or(ApiError::BAD_REQUEST)?;
        Ok(Self {
            to: GroupId::new(to),
            number: MoveNumber::new(number),
        })
    }
}

/// A move that the directory calls off, and the target of the move that replaces it because the copy must
/// begin again, as the payload of a [`super::Kind::Renew`] states them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The move of the stream that the directory calls off. The command has no effect at any other move.
    pub of: Moving,
    /// The target of the new move: the group that will keep the stream.
    pub to: GroupId,
}

impl Renewal {
    /// Encodes the move that ends and the target of the next move as the payload of the command by which the
    /// leader of the directory renews a move.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        packed([self.of.to.get(), self.of.number.get(), self.to.get()])
    }

    /// Decodes the move that ends and the target of the next move from the payload of the command that renews
    /// a move, when a node applies it.
    pub(super) fn decode(payload: &[u8]) -> Result<Self, ApiError> {
        let [from, number, to] = unpacked(payload).ok_or(ApiError::BAD_REQUEST)?;
        let number = MoveNumber::new(number);
        let of = Moving {
            to: GroupId::new(from),
            number,
        };
        Ok(Self {
            of,
            to: GroupId::new(to),
        })
    }
}

/// The move that the directory has called off, so that the stream thaws in its home group, as the payload of
/// a [`super::Kind::Thaw`] states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thaw {
    /// The number of the move that the directory has called off. The home group ignores the command at any
    /// other move.
    pub r#move: MoveNumber,
}

impl Thaw {
    /// Encodes the number of the move as the payload of the command that thaws the stream, which the leader
    /// of the home group proposes.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        packed([self.r#move.get()])
    }

    /// Decodes the number of the move from the payload of the command that thaws the stream, when a node
    /// applies it.
    pub(super) fn decode(payload: &[u8]) -> Result<Self, ApiError> {
        let [number] = unpacked(payload).ok_or(ApiError::BAD_REQUEST)?;
        Ok(Self {
            r#move: MoveNumber::new(number),
        })
    }
}

/// Encodes the numbers of a subject or payload one after the other, each as a little-endian `u32`, so that
/// the length tells the variants apart.
fn packed<const N: usize>(numbers: [u32; N]) -> Vec<u8> {
    numbers.map(u32::to_le_bytes).concat()
}

/// Decodes a subject or payload of exactly `N` little-endian `u32`s; `None` if `bytes` has another length and
/// so is another variant.
fn unpacked<const N: usize>(bytes: &[u8]) -> Option<[u32; N]> {
    let (words, []) = bytes.as_chunks::<4>() else {
        return None;
    };
    let words: &[[u8; 4]; N] = words.try_into().ok()?;
    Some(words.map(u32::from_le_bytes))
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    const OF: DirectoryNumber = DirectoryNumber::new(7);
    const MOVE: MoveNumber = MoveNumber::new(3);
    const TO: GroupId = GroupId::new(0x1002);
    const MOVING: Moving = Moving {
        to: TO,
        number: MOVE,
    };
    const BAD: ApiError = ApiError::BAD_REQUEST;

    /// Checks that decoding reverses encoding for each of these values, and that the decoder refuses every
    /// other length.
    fn come_back<T: Copy + Debug + PartialEq>(
        all: &[(T, &[u32])],
        encode: fn(T) -> Vec<u8>,
        decode: fn(&[u8]) -> Result<T, ApiError>,
    ) {
        for (value, numbers) in all {
            let bytes = encode(*value);
            let expected: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
            assert_eq!(bytes, expected, "{value:?}");
            assert_eq!(decode(&bytes), Ok(*value));
        }
        let known = |len: usize| all.iter().any(|(_, numbers)| numbers.len() * 4 == len);
        for len in (0..=40).filter(|len| !known(*len)) {
            for byte in [0, 1] {
                assert_eq!(decode(&vec![byte; len]), Err(BAD), "{len} bytes");
            }
        }
    }

    #[test]
    fn placements() {
        let all: [(_, &[u32]); 4] = [
            (Placement::Here, &[]),
            (Placement::Elsewhere { group: TO }, &[0x1002, 0]),
            (Placement::Of(OF), &[0, 7]),
            (
                Placement::Copy {
                    of: OF,
                    r#move: MOVE,
                },
                &[0, 7, 3],
            ),
        ];
        come_back(&all, Placement::encode, Placement::decode);
        let refused: [&[u32]; 6] = [
            &[0, 0],
            &[1, 1],
            &[0, 7, 0],
            &[0, 0, 3],
            &[1, 0, 3],
            &[1, 7, 3],
        ];
        for numbers in refused {
            let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
            assert_eq!(Placement::decode(&bytes), Err(BAD), "{numbers:?}");
        }
    }

    #[test]
    fn courses() {
        let instead = |group| Course::Instead {
            group,
            r#move: MOVE,
        };
        let all: [(_, &[u32]); 4] = [
            (Course::Same, &[]),
            (Course::To { group: TO }, &[0x1002]),
            (instead(Some(TO)), &[0x1002, 3]),
            (instead(None), &[0, 3]),
        ];
        come_back(&all, Course::encode, Course::decode);
    }

    #[test]
    fn moves() {
        let all: [(_, &[u32]); 2] = [(Filling::Any, &[]), (Filling::By(MOVE), &[3])];
        come_back(&all, Filling::encode, Filling::decode);
        assert!(Filling::Any.is_for(MOVE) && Filling::By(MOVE).is_for(MOVE));
        assert!(!Filling::By(MOVE.next()).is_for(MOVE));
        come_back(&[(MOVING, &[0x1002, 3])], Moving::encode, Moving::decode);
        let renewal = Renewal {
            of: MOVING,
            to: GroupId::new(9),
        };
        come_back(
            &[(renewal, &[0x1002, 3, 9])],
            Renewal::encode,
            Renewal::decode,
        );
        come_back(&[(Thaw { r#move: MOVE }, &[3])], Thaw::encode, Thaw::decode);
    }
}

//! Reads parts of a checkpoint from the disk for another member that takes over the state.
//! [`Store::read_alone`] reads the messages for that member.

use tidegate_cluster::slots::GroupSlot;
use tidegate_stream::stream::{AccountLimits, Streams};

use super::{Store, checkpoint, checkpoints};
use crate::replica::{EntryId, Index};

/// A part of a checkpoint of this node, for another member that takes over the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The index of the last entry that the checkpoint's state includes.
    pub index: Index,
    /// The length of the whole checkpoint in bytes, by which the other member knows when it has all parts.
    pub total: u64,
    /// The bytes of this part: as many as the other member asked for, or fewer at the end of the checkpoint.
    pub bytes: Vec<u8>,
}

impl Store {
    /// Reads `len` bytes, from `offset` on, of the checkpoint that ends with the entry `index`, or of the
    /// newest checkpoint if `index` is [`Index::ZERO`], for another member. Returns `None` if this node has
    /// no such checkpoint, or cannot read it from the disk.
    #[must_use]
    pub fn read_checkpoint(
        &self,
        at: GroupSlot,
        index: Index,
        offset: u64,
        len: usize,
    ) -> Option<Part> {
        let kept = self.members[at].checkpoints.kept();
        let index = match index {
            Index::ZERO => kept.last()?.index,
            index => index,
        };
        // A group without new entries has several checkpoints of one index. All parts come from the oldest of
        // their files as long as that file exists, so that the other member gets parts of one checkpoint.
        let kept = kept.iter().find(|k| k.index == index)?;
        let read = checkpoints::part(&*self.storage, kept, offset, len);
        match read {
            Ok(bytes) => Some(Part {
                index: kept.index,
                total: kept.bytes,
                bytes,
            }),
            Err(error) => {
                tracing::error!(
                    "another node has asked for a checkpoint of this node, but this node cannot read the checkpoint, and sends nothing: {error}"
                );
                None
            }
        }
    }
}

/// Decodes a whole checkpoint that this member has fetched from another member. Returns the last entry in
/// the checkpoint's state, and the streams.
///
/// # Errors
/// Fails if the bytes differ from those that the other member wrote. The error is a text for operators.
pub fn read_given(bytes: &[u8], limits: AccountLimits) -> Result<(EntryId, Streams), String> {
    let (header, state) = checkpoint::decode(bytes).map_err(|e| e.to_string())?;
    let streams = Streams::restore(state, limits).map_err(|e| e.to_string())?;
    Ok((header.entry, streams))
}

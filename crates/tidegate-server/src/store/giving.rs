//! What another member is given that takes over the state: parts of a checkpoint, as they are on the disk.
//! Messages are read by [`Store::read_alone`].

use super::{Store, checkpoint, checkpoints};
use crate::stream::{AccountLimits, Streams};

/// A part of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The entry the checkpoint is as of.
    pub index: u64,
    /// Its bytes in all.
    pub total: u64,
    /// Those that were asked for, fewer at its end.
    pub bytes: Vec<u8>,
}

impl Store {
    /// Bytes of the checkpoint as of `index`, of the newest for 0; `None` if there is none such, or it cannot
    /// be read.
    #[must_use]
    pub fn read_checkpoint(&self, at: usize, index: u64, offset: u64, len: usize) -> Option<Part> {
        let kept = self.members[at].checkpoints.kept();
        let index = match index {
            0 => kept.last()?.index,
            index => index,
        };
        // A group at rest has several of one index: all parts are of the same one, as long as it is there.
        let kept = kept.iter().find(|k| k.index == index)?;
        let read = checkpoints::part(&*self.storage, kept, offset, len);
        match read {
            Ok(bytes) => Some(Part {
                index: kept.index,
                total: kept.bytes,
                bytes,
            }),
            Err(error) => {
                tracing::error!("a checkpoint cannot be read for another node: {error}");
                None
            }
        }
    }
}

/// The streams of a whole checkpoint that another member gave, and the index and term of the entry they are
/// as of.
///
/// # Errors
/// It is not what was written, for people.
pub fn read_given(bytes: &[u8], limits: AccountLimits) -> Result<(u64, u64, Streams), String> {
    let (header, state) = checkpoint::decode(bytes).map_err(|e| e.to_string())?;
    let streams = Streams::restore(state, limits).map_err(|e| e.to_string())?;
    Ok((header.index, header.term, streams))
}

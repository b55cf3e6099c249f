//! A handler that appends items to a file, with one write and one `fdatasync` for each batch. First the
//! handler encodes each record, which takes as long as a light compression. With a bare copy the callers
//! would be the bottleneck, and not the handler.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;

use super::cpu::encode;
use super::{BlockingWork, Item};
use crate::rounds::Failure;

const RECORD_BYTES: usize = 128;

/// The handler that appends each batch to a file and syncs the file.
pub(super) struct Append {
    open: Mutex<Open>,
}

struct Open {
    file: File,
    /// The encoded bytes of a batch. The handler keeps the buffer for the next batch, to save allocations.
    bytes: Vec<u8>,
}

impl Append {
    pub(super) fn open(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join("append");
        let options = OpenOptions::new().create(true).append(true).open(&path);
        let file = options.with_context(|| path.display().to_string())?;
        let bytes = Vec::new();
        Ok(Self {
            open: Mutex::new(Open { file, bytes }),
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Open) -> std::io::Result<T>) -> Result<T, Failure> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut open).map_err(|e| format!("the appended file: {e}"))
    }
}

impl BlockingWork for Append {
    fn empty(&self) -> Result<(), Failure> {
        self.with(|open| {
            open.file.set_len(0)?;
            open.file.sync_all()
        })
    }

    fn handle(&self, items: &[Item]) -> Result<(), Failure> {
        self.with(|open| {
            open.bytes.clear();
            for item in items {
                let start = open.bytes.len();
                open.bytes.extend_from_slice(&item.id.to_le_bytes());
                open.bytes.extend_from_slice(&item.key.to_le_bytes());
                open.bytes.extend_from_slice(&encode(item.id).to_le_bytes());
                open.bytes.resize(start + RECORD_BYTES, b'.');
            }
            open.file.write_all(&open.bytes)?;
            open.file.sync_data()
        })
    }

    fn stored(&self) -> Result<u64, Failure> {
        let bytes = self.with(|open| Ok(open.file.metadata()?.len()))?;
        Ok(bytes / RECORD_BYTES as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_a_record_of_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let append = Append::open(directory.path()).unwrap();
        let items: Vec<_> = (0..5).map(|id| Item { id, key: 7 }).collect();
        append.handle(&items).unwrap();
        append.handle(&items[..2]).unwrap();
        assert_eq!(append.stored().unwrap(), 7);
        let bytes = std::fs::read(directory.path().join("append")).unwrap();
        assert_eq!(
            bytes[RECORD_BYTES..RECORD_BYTES + 9],
            [1, 0, 0, 0, 0, 0, 0, 0, 7]
        );
        append.empty().unwrap();
        assert_eq!(append.stored().unwrap(), 0);
    }
}

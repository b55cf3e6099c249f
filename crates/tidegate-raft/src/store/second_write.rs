//! Writes and syncs each message a second time before the message's entry is due, as nats-server's streams
//! of several replicas did with `sync_interval: always` up to 2.14. Measurements use this module to find the
//! cost of the second write; a serving node never uses it.
//!
//! This module owns the file of the second write, and the thread that writes this file, one entry at a time,
//! in order. The store never reads the file, because the log holds the messages.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tidegate_cluster::slots::GroupSlot;
use tidegate_log::{Storage, StorageFile};
use tidegate_stream::stream::{Entry, Kind};

use super::Waker;
use super::slow::slowed;
use super::worker::{By, Worker};
use crate::replica::{Committed, Term};

/// The name of the file in the data directory to which the thread writes each message a second time.
const FILE: &str = "second-write";
/// The length of the file for second writes, in bytes, at which the thread starts again at the file's
/// beginning, so that the file does not grow forever.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Writes each message a second time on a thread, in a measurement; see the [module](self).
pub(super) struct SecondWrite {
    worker: Worker<Bytes>,
    /// The number of entries that the thread has finished since the start of the node. `syncs` is the number
    /// of syncs for them.
    done: Arc<AtomicU64>,
    syncs: Arc<AtomicU64>,
    /// The number of entries that the store has handed to the thread of the second write since the start of
    /// the node.
    asked: u64,
    /// The entry that the store handed to the thread last, with the slot of its group; `None` once the store
    /// has returned the entry to the event loop.
    writing: Option<(GroupSlot, Committed)>,
}

impl SecondWrite {
    pub(super) fn start(
        by: By,
        storage: &dyn Storage,
        delay: Duration,
        waker: Waker,
    ) -> io::Result<Self> {
        let mut pen = Pen {
            file: slowed(storage.create(FILE)?, delay),
            at: 0,
            syncs: Arc::default(),
        };
        let (done, syncs) = (Arc::<AtomicU64>::default(), Arc::clone(&pen.syncs));
        let through = Arc::clone(&done);
        let worker = Worker::start(by, "second-write", 1, move |entry: Bytes| {
            if let Err(error) = pen.write(&entry) {
                tracing::error!(
                    "the server cannot write an entry to its second file, to which `--raft-step a` writes each entry again, and goes on without that write: {error}"
                );
            }
            through.fetch_add(1, Ordering::Release);
            waker();
        })?;
        Ok(Self {
            worker,
            done,
            syncs,
            asked: 0,
            writing: None,
        })
    }

    /// Returns the group's next entry once the thread has written the entry's messages a second time. If the
    /// thread has no entry, hands it the next entry that `next` returns.
    pub(super) fn poll(
        &mut self,
        at: GroupSlot,
        mut next: impl FnMut() -> Option<Committed>,
    ) -> Option<Committed> {
        if self.writing.is_none() {
            let entry = next()?;
            let asked = self.worker.ask(entry.data.clone());
            self.asked += u64::from(asked);
            self.writing = Some((at, entry));
        }
        let written = self.done.load(Ordering::Acquire) == self.asked;
        let mine = self.writing.take_if(|(of, _)| written && *of == at);
        mine.map(|(_, entry)| entry)
    }

    /// Returns the term of the group's entry that the thread is writing a second time, or has written and
    /// `poll` has not returned yet.
    pub(super) fn writing(&self, at: GroupSlot) -> Option<Term> {
        let mine = self.writing.as_ref().filter(|(of, _)| *of == at);
        mine.map(|(_, entry)| entry.term)
    }

    /// Returns the number of syncs that the second write has made since the start of the node, for the table
    /// of the measurement.
    pub(super) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Makes one waiting second write on the calling thread, for simulations. Returns whether an entry
    /// waited.
    #[cfg(feature = "sim")]
    pub(super) fn step(&mut self) -> bool {
        self.worker.step()
    }
}

/// Writes the file for second writes, on the thread.
struct Pen {
    file: Arc<dyn StorageFile>,
    at: u64,
    syncs: Arc<AtomicU64>,
}

impl Pen {
    fn write(&mut self, entry: &[u8]) -> io::Result<()> {
        let Ok(entry) = Entry::decode(entry) else {
            // The entry is malformed. The node reports that error when it applies the entry, so the second
            // write skips it.
            return Ok(());
        };
        let commands = entry.commands().map_while(Result::ok);
        for command in commands.filter(|c| c.kind == Kind::Publish) {
            let parts = [
                command.subject,
                command.headers.unwrap_or_default(),
                command.payload,
            ];
            let bytes: usize = parts.iter().map(|part| part.len()).sum();
            self.file.write_at(&parts.map(IoSlice::new), self.at)?;
            self.file.sync()?;
            self.at += bytes as u64;
            if self.at > FILE_BYTES_MAX {
                self.at = 0;
            }
            self.syncs.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

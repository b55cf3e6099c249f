//! The spool's writing end: the only one that changes files. Appends and syncs, waits for room, begins
//! segments and removes those that were acked.

use std::ffi::OsStr;
use std::io;
use std::sync::{Arc, PoisonError};

use super::codec::{self, Extent, Owner};
use super::{ManifestFile, SESSION, Segment, Shared, SpoolError, name};
use crate::ship::disk::{Bytes as _, Disk};

/// Room kept between two writes.
const KEPT: usize = 8 << 20;

/// Writes records, and removes what was acked. See the module.
pub(in crate::ship) struct Writer<D: Disk> {
    pub(super) disk: D,
    pub(super) shared: Arc<Shared<D::File>>,
    pub(super) segment_bytes: u64,
    pub(super) limit_bytes: u64,
    pub(super) buffer: Vec<u8>,
    /// A write failed: what is on the disk is not known any more.
    pub(super) poisoned: bool,
    pub(super) owner: Owner,
    /// Where that is written.
    pub(super) file: ManifestFile<D::File>,
}

impl<D: Disk> Writer<D> {
    /// Appends records and returns when they are durable and the manifest covers them. Waits while there is
    /// no room, until something is acked.
    pub(in crate::ship) fn append<'a>(
        &mut self,
        records: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), SpoolError> {
        self.guarded(|writer| {
            writer.buffer.clear();
            let first = writer.shared.lock().newest().next;
            let mut next = first;
            for record in records {
                codec::encode(next, record, &mut writer.buffer);
                next += 1;
            }
            let bytes = writer.buffer.len() as u64;
            writer.make_room(bytes)?;
            let (file, extent) = {
                let mut state = writer.shared.lock();
                (Arc::clone(&state.newest().file), state.extent())
            };
            let segment = extent.segment;
            let on = |error| writer.io(segment, error);
            let found = file.bytes().map_err(on)?;
            if found != Some(extent.bytes) {
                return Err(SpoolError::Changed {
                    path: writer.disk.path(OsStr::new(&name(segment))),
                    bytes: found,
                    expected: extent.bytes,
                });
            }
            let written = file.write_at(extent.bytes, &writer.buffer);
            written.and_then(|()| file.sync()).map_err(on)?;
            writer.buffer.shrink_to(KEPT);
            // Only now: a manifest that is ahead of its records would make a crash look like damage.
            let extent = Extent {
                bytes: extent.bytes + bytes,
                next,
                ..extent
            };
            writer.file.write(writer.owner, extent)?;
            let mut state = writer.shared.lock();
            let newest = state.newest();
            newest.next = next;
            newest.bytes += bytes;
            writer.shared.grown.notify_all();
            Ok(())
        })
    }

    /// From now on records travel in another session, that of record `base` + 1 as its first: the receiver
    /// forgot the one there was.
    pub(in crate::ship) fn restart(&mut self, session: u128, base: u64) -> Result<(), SpoolError> {
        self.guarded(|writer| {
            let owner = Owner {
                session,
                base,
                ..writer.owner
            };
            let extent = writer.shared.lock().extent();
            writer.file.write_both(owner, extent)?;
            writer.owner = owner;
            Ok(())
        })
    }

    /// Removes the segments that were acked whole.
    pub(in crate::ship) fn release(&mut self) -> Result<(), SpoolError> {
        self.guarded(Self::remove_acked)
    }

    /// Nothing more comes: the reader ends when it has read everything. If all of it was acked, as good as
    /// nothing stays on the disk.
    pub(in crate::ship) fn end(&mut self) -> Result<(), SpoolError> {
        self.shared.lock().ended = true;
        self.shared.grown.notify_all();
        self.guarded(|writer| {
            if writer.all_acked() {
                writer.rotate()?;
            }
            writer.remove_acked()
        })
    }

    fn guarded(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), SpoolError>,
    ) -> Result<(), SpoolError> {
        if self.poisoned {
            return Err(SpoolError::Poisoned(self.disk.path(OsStr::new(SESSION))));
        }
        let outcome = work(self);
        self.poisoned = outcome.is_err();
        outcome
    }

    /// Comes back when `bytes` more may be written.
    fn make_room(&mut self, bytes: u64) -> Result<(), SpoolError> {
        loop {
            // What is acked after this is looked at again.
            let acked = self.shared.lock().acked;
            if self.shared.lock().newest().bytes >= self.segment_bytes {
                self.rotate()?;
            }
            self.remove_acked()?;
            let used = self.shared.lock().bytes();
            if used == 0 || used + bytes <= self.limit_bytes {
                return Ok(());
            }
            if self.all_acked() {
                self.rotate()?;
                continue;
            }
            let mut state = self.shared.lock();
            while state.acked == acked {
                let woken = self.shared.acked.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Returns whether there is something, and nothing of it needed, in the newest segment.
    fn all_acked(&self) -> bool {
        let mut state = self.shared.lock();
        let acked = state.acked;
        let newest = state.newest();
        newest.bytes > 0 && acked + 1 >= newest.next
    }

    /// Begins a new segment.
    fn rotate(&mut self) -> Result<(), SpoolError> {
        let first = self.shared.lock().newest().next;
        let opened = self.disk.open(OsStr::new(&name(first)));
        let file = opened.map_err(|error| self.io(first, error))?;
        let synced = self.disk.sync_names();
        synced.map_err(|error| self.io(first, error))?;
        self.shared.lock().segments.push_back(Segment {
            first,
            next: first,
            bytes: 0,
            file: Arc::new(file),
        });
        Ok(())
    }

    /// Removes them once the manifest says so twice: then one bad slot does not ask for them.
    fn remove_acked(&mut self) -> Result<(), SpoolError> {
        let mut removable = Vec::new();
        let extent = {
            let state = self.shared.lock();
            let old = state.segments.iter().take(state.segments.len() - 1);
            let acked = old.take_while(|segment| segment.next <= state.acked + 1);
            removable.extend(acked.map(|segment| segment.first));
            let kept = &state.segments[removable.len()];
            Extent {
                first: kept.first,
                ..state.extent()
            }
        };
        if removable.is_empty() {
            return Ok(());
        }
        self.file.write_both(self.owner, extent)?;
        for first in removable {
            let removed = self.disk.remove(OsStr::new(&name(first)));
            removed.map_err(|error| self.io(first, error))?;
            self.shared.lock().segments.pop_front();
        }
        let synced = self.disk.sync_names();
        synced.map_err(|error| self.io(extent.segment, error))
    }

    fn io(&self, first: u64, error: io::Error) -> SpoolError {
        let path = self.disk.path(OsStr::new(&name(first)));
        SpoolError::Io { path, error }
    }
}

/// A thread that ends, however it does, leaves nobody waiting for it.
impl<D: Disk> Drop for Writer<D> {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.grown.notify_all();
    }
}

//! The spool's writing end; no other part changes files. Appends and syncs records, waits for room, begins
//! segments and removes acked ones.

use std::ffi::OsStr;
use std::io;
use std::sync::{Arc, PoisonError};

use super::codec::{self, Extent, Owner};
use super::{ManifestFile, SESSION, Segment, Shared, SpoolError, name};
use crate::ship::disk::{Bytes as _, Disk};

/// The buffer capacity kept between two writes.
const KEPT: usize = 8 << 20;

/// Writes records, and removes acked segments: see the module `spool`.
pub(in crate::ship) struct Writer<D: Disk> {
    pub(super) disk: D,
    pub(super) shared: Arc<Shared<D::File>>,
    pub(super) segment_bytes: u64,
    pub(super) limit_bytes: u64,
    pub(super) buffer: Vec<u8>,
    /// True after a failed write: the contents of the disk are unknown then.
    pub(super) poisoned: bool,
    pub(super) owner: Owner,
    /// The file of the owner and the extent.
    pub(super) file: ManifestFile<D::File>,
}

impl<D: Disk> Writer<D> {
    /// Appends records; returns once they are durable and the manifest covers them. Waits for an ack while
    /// the spool has no room.
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
            // The manifest comes after the records: a manifest ahead of its records would make a crash look
            // like damage.
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

    /// Moves the records to another session, which begins with record `base` + 1, because the receiver forgot
    /// the old one.
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

    /// Removes the segments that hold acked records only.
    pub(in crate::ship) fn release(&mut self) -> Result<(), SpoolError> {
        self.guarded(Self::remove_acked)
    }

    /// Ends the spool: the reader ends once it has read everything. If all records are acked, almost nothing
    /// stays on the disk.
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

    /// Waits until `bytes` more fit.
    fn make_room(&mut self, bytes: u64) -> Result<(), SpoolError> {
        loop {
            // An ack after this read ends the wait below, and the loop checks again.
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

    /// Returns whether the newest segment has records and all of them are acked.
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

    /// Removes acked segments once both slots of the manifest allow it, so that no single bad slot requires
    /// them.
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

/// Ends the spool, so that no reader waits for a writer that is gone, even after a panic.
impl<D: Disk> Drop for Writer<D> {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.grown.notify_all();
    }
}

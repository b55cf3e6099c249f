//! What a node keeps on disk: the log, checkpoints of the state it leads to, and what of the log may go. Drives the group.
//!
//! **[`Opening::begin`] -> [`Opening::replay`] -> [`Store`].** From then on one loop owns the store: it proposes, calls
//! [`Store::poll`] whenever the waker was called, and takes what is due by [`Store::poll_due`] until there is nothing more. A
//! thread of the log's writes and syncs, one of the store's reads, and one writes checkpoints; none of them decides anything.
//!
//! ```text
//! <data>/tidegate/lock             held while a process has the directory
//! <data>/tidegate/version          the format of the directory
//! <data>/tidegate/state-<index>    a checkpoint: the state after the entry of that index
//! <data>/tidegate/log/             the log (docs/log-format.md)
//! ```

mod chunks;
mod error;
mod open;
mod reading;

use std::sync::Arc;

use bytes::Bytes;
use tidegate_log::{Append, AppendError, Appender, Failure, Log, Lsn, batch_bytes};

use crate::replica::records;
use crate::replica::{Committed, Group, ProposeError, Proposed};
use crate::stream::Place;

pub use error::{OpenError, WriteError};
pub use open::{Opening, Options, Replayed};
pub use reading::Fetch;
use reading::Reading;

/// Called from other threads when the loop has something to do. It must not block.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// The group of a node that is alone.
const GROUP: u32 = 1;

/// See the [module](self).
pub struct Store {
    group: Group,
    appender: Appender,
    log: Log,
    reading: Reading,
    /// Held with its lock.
    storage: Arc<dyn tidegate_log::Storage>,
}

impl Store {
    /// Proposes an entry for so many callers and hands it to the log. It is due, to be applied, once it is durable.
    ///
    /// # Errors
    /// See [`WriteError`]; nothing has changed then.
    pub fn propose(&mut self, entry: Bytes, callers: u64) -> Result<Proposed, WriteError> {
        if self.group.poll_append().is_some() {
            return Err(WriteError::Full);
        }
        let bytes = batch_bytes(&[records::entry(GROUP, 0, 0, entry.clone())]);
        self.appender.check(bytes).map_err(WriteError::from)?;
        let proposed = self.group.propose(entry, callers);
        let proposed = proposed.map_err(|e| match e {
            ProposeError::NotLeader => WriteError::NotLeader,
            ProposeError::Full { .. } => WriteError::Full,
        })?;
        self.append()?;
        Ok(proposed)
    }

    /// Takes what other threads have done. Call it after each wake-up.
    ///
    /// # Errors
    /// A write or a sync failed: nothing more can become durable, and the process must end now. What was acknowledged is safe;
    /// [`Failure::durable`] says how far the log is.
    pub fn poll(&mut self) -> Result<(), Failure> {
        self.reading.poll();
        // In this order: what became durable before a failure is told.
        let failure = self.log.failure();
        self.group.handle_durable(self.log.durable());
        match (failure, self.append()) {
            (Some(failure), _) | (None, Err(WriteError::Failed(failure))) => Err(failure),
            (None, _) => Ok(()),
        }
    }

    /// The next entry to apply, in order, each once. To ask for the next says that the one before was applied.
    pub fn poll_due(&mut self) -> Option<Committed> {
        self.group.poll_committed()
    }

    /// The bytes of the message at this place, with what follows it in its entry.
    pub fn read(&mut self, place: Place) -> Fetch {
        let lsn = Lsn::new(place.lsn);
        let entry = match self.group.cached(lsn) {
            Some(entry) => entry.clone(),
            None => match self.reading.read(lsn) {
                Fetch::Ready(entry) => entry,
                other => return other,
            },
        };
        match usize::try_from(place.offset) {
            Ok(offset) if offset <= entry.len() => Fetch::Ready(entry.slice(offset..)),
            _ => Fetch::Damaged,
        }
    }

    /// The log, to look at.
    #[must_use]
    pub const fn log(&self) -> &Log {
        &self.log
    }

    /// The group, to look at.
    #[must_use]
    pub const fn group(&self) -> &Group {
        &self.group
    }

    /// Makes everything accepted durable and ends the threads.
    ///
    /// # Errors
    /// A failure, then or before.
    pub fn close(self) -> Result<(), Failure> {
        drop(self.reading);
        self.appender.close()
    }

    /// Hands the log what the group wants written, as far as it takes it.
    fn append(&mut self) -> Result<(), WriteError> {
        while let Some(batch) = self.group.poll_append() {
            let append = Append::new(batch.records.clone()).callers(batch.callers);
            match self.appender.append(append) {
                Ok(appended) => self.group.handle_appended(&appended.records, appended.end),
                Err((_, error @ AppendError::Failed(_))) => return Err(error.into()),
                // It stays the next: whoever waits for it is told once there is room.
                Err(_) => break,
            }
        }
        Ok(())
    }
}

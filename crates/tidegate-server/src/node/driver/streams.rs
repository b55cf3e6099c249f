//! The loop's part in streams: entries to the group and back, once a turn.
//!
//! Decides nothing but the order: first what gathered is handed to the log, so that it can begin the next sync, then what the last
//! sync made durable is applied and answered.

use tidegate::Time;
use tidegate_log::Failure;

use super::Server;
use crate::api::error::ApiError;
use crate::node::core::Node;
use crate::node::jetstream::Messages;
use crate::store::{Fetch, Store, WriteError};
use crate::stream::Place;

impl Messages for Store {
    fn read(&mut self, place: Place) -> Fetch {
        Self::read(self, place)
    }
}

impl Server {
    /// One turn's work for streams.
    pub(super) fn turn_streams(&mut self, now: Time) -> Result<(), Failure> {
        let Some(store) = self.store.as_mut() else {
            return Ok(());
        };
        self.node.set_wall_clock(now, wall_clock_us());
        propose(&mut self.node, store, now);
        store.poll()?;
        while let Some(committed) = store.poll_due() {
            self.node.handle_committed(now, &committed);
        }
        self.node.serve_streams(now, store);
        // What was served may have led to more: acknowledgements of consumers, messages that went into streams.
        propose(&mut self.node, store, now);
        Ok(())
    }
}

/// Hands what is gathered to the group, as far as it takes it.
fn propose(node: &mut Node, store: &mut Store, now: Time) {
    while let Some((entry, callers)) = node.poll_proposal(now) {
        match store.propose(entry, callers) {
            Ok(proposed) => node.handle_proposed(proposed.index),
            // The next wake-up tries again; a failure is what `poll` tells.
            Err(WriteError::Full | WriteError::Failed(_)) => return,
            Err(WriteError::DiskFull) => {
                node.handle_refused(now, &ApiError::INSUFFICIENT_RESOURCES);
            }
            Err(WriteError::TooLarge { .. }) => {
                node.handle_refused(now, &ApiError::MESSAGE_EXCEEDS_MAXIMUM);
            }
            Err(WriteError::NotLeader) => node.handle_refused(now, &ApiError::NOT_AVAILABLE),
        }
    }
}

/// Microseconds since the Unix epoch, as the machine has it.
pub(super) fn wall_clock_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
}

//! Settings that make the server write replicated streams as nats-server does, for measurements only, behind
//! the feature `lab`.
//!
//! This module defines the steps between the way in which nats-server 2.12 writes a replicated stream and
//! the way in which this server does. `tidegate-bench raft` compares these steps. Each step says which parts
//! of the product it leaves out, and why it stands for nats-server. Without the feature, [`Lab`] has no
//! field and each of its methods returns the product's constant answer, so the product pays nothing for it.
//!
//! The steps are those of nats-server's pull request 7355 ("Raft batching"), read in its code: nats-server
//! proposes an incoming message under the lock that its Raft node holds while it writes and syncs its log, so
//! hardly more than one message can enter its log between two writes.

#[cfg(feature = "lab")]
mod fixed;
#[cfg(feature = "lab")]
mod step;

#[cfg(feature = "lab")]
use std::time::Duration;

#[cfg(feature = "lab")]
pub use fixed::{FixedEntries, FixedEntriesError};
#[cfg(feature = "lab")]
pub use step::{RaftStep, RaftStepError};

/// The settings by which a measured server deviates from the product, to compare ways of replication; see
/// the [module](self).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lab {
    /// The way in which the measured nodes write replicated streams: a step between nats-server's way and
    /// the product's.
    #[cfg(feature = "lab")]
    pub raft_step: RaftStep,
    /// Fixed bounds on the commands in an entry and on the entries in flight, to compare them with the
    /// engine's choice; `None` if the engine chooses.
    #[cfg(feature = "lab")]
    pub fixed_entries: Option<FixedEntries>,
    /// A fixed bound on the callers that one sync of the log covers, without a wait, to compare it with the
    /// engine's choice; `None` if the engine chooses.
    #[cfg(feature = "lab")]
    pub sync_limit: Option<u64>,
    /// The time that a simulated slow disk adds to each sync of the log, to measure replication on slower
    /// disks.
    #[cfg(feature = "lab")]
    pub sync_delay: Duration,
}

impl Lab {
    /// The settings of the product, without any deviation for a measurement.
    pub const NONE: Self = Self {
        #[cfg(feature = "lab")]
        raft_step: RaftStep::All,
        #[cfg(feature = "lab")]
        fixed_entries: None,
        #[cfg(feature = "lab")]
        sync_limit: None,
        #[cfg(feature = "lab")]
        sync_delay: Duration::ZERO,
    };
}

#[cfg(not(feature = "lab"))]
impl Lab {
    /// Returns the bounds on an entry that a measurement sets in place of the engine's choice, in commands
    /// and bytes; `None` if the engine chooses the size of entries.
    #[must_use]
    pub const fn entry_limit(self) -> Option<(u64, u64)> {
        None
    }

    /// Returns the greatest number of entries that the leader of a group may have proposed and not applied in
    /// a measurement; `None` without such a bound.
    #[must_use]
    pub const fn in_flight_max(self) -> Option<usize> {
        None
    }

    /// Returns whether the leader lets commands that do not fit into a full entry join the commands that
    /// arrive later, as the product does, instead of making an entry of their own for them.
    #[must_use]
    pub const fn carries_over(self) -> bool {
        true
    }

    /// Returns whether the leader proposes an entry only once the entry before it is durable, as nats-server
    /// does.
    #[must_use]
    pub const fn one_at_a_time(self) -> bool {
        false
    }

    /// Returns the greatest number of callers that one sync covers in a measurement; `None` if the engine
    /// chooses.
    #[must_use]
    pub const fn sync_limit(self) -> Option<u64> {
        None
    }

    /// Returns whether the log delays a sync for callers that it expects to return with the next record, as
    /// the product's does.
    #[must_use]
    pub const fn anticipates(self) -> bool {
        true
    }
}

#[cfg(feature = "lab")]
impl Lab {
    /// Returns the bounds on an entry that a measurement sets in place of the engine's choice, in commands
    /// and bytes; `None` if the engine chooses the size of entries.
    #[must_use]
    pub const fn entry_limit(self) -> Option<(u64, u64)> {
        match self.fixed_entries {
            Some(fixed) => Some((fixed.commands, u64::MAX)),
            None => self.raft_step.entry_limit(),
        }
    }

    /// Returns the greatest number of entries that the leader of a group may have proposed and not applied in
    /// a measurement; `None` without such a bound.
    #[must_use]
    pub const fn in_flight_max(self) -> Option<usize> {
        match self.fixed_entries {
            Some(fixed) => Some(fixed.in_flight),
            None => None,
        }
    }

    /// Returns whether the leader lets commands that do not fit into a full entry join the commands that
    /// arrive later, as the product does, instead of making an entry of their own for them.
    #[must_use]
    pub const fn carries_over(self) -> bool {
        self.raft_step.carries_over()
    }

    /// Returns whether the leader proposes an entry only once the entry before it is durable, as nats-server
    /// does.
    #[must_use]
    pub const fn one_at_a_time(self) -> bool {
        self.raft_step.one_at_a_time()
    }

    /// Returns the greatest number of callers that one sync covers in a measurement; `None` if the engine
    /// chooses. A leader that works as nats-server does proposes an entry only once the entry before it is
    /// durable, so that a sync covers one caller.
    #[must_use]
    pub const fn sync_limit(self) -> Option<u64> {
        match self.raft_step.one_at_a_time() {
            true => Some(1),
            false => self.sync_limit,
        }
    }

    /// Returns whether the log delays a sync for callers that it expects to return with the next record, as
    /// the product's does.
    #[must_use]
    pub const fn anticipates(self) -> bool {
        self.fixed_entries.is_none() && self.raft_step.anticipates()
    }

    /// Returns whether the leader writes and syncs each message a second time when it applies the message,
    /// as nats-server does.
    #[must_use]
    pub const fn writes_twice(self) -> bool {
        self.raft_step.writes_twice()
    }
}

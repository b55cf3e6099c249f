//! Ways of writing replicated streams that only measurements use, behind the feature `lab`.
//!
//! Owns the steps from the way nats-server 2.12 writes a replicated stream to the way this server does, which
//! `tidegate-bench raft` compares: the parts of the product that each step leaves out, and the reason why the
//! step stands for nats-server. Without the feature [`Lab`] has no field, and the compiler knows that each of
//! its methods returns the product's answer.
//!
//! The steps are those of nats-server's pull request 7355 ("Raft batching"), read in its code: nats-server
//! proposes an incoming message under the lock that its Raft node holds while it writes and syncs its log, so
//! hardly more than one message can enter between two writes.

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

/// The deviations of this server from the product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lab {
    /// The way in which a cluster makes, writes and sends entries.
    #[cfg(feature = "lab")]
    pub raft_step: RaftStep,
    /// The size and the number of entries, if the engine does not choose them.
    #[cfg(feature = "lab")]
    pub fixed_entries: Option<FixedEntries>,
    /// The time that each sync of the log takes in addition to the disk's.
    #[cfg(feature = "lab")]
    pub sync_delay: Duration,
}

impl Lab {
    /// No deviation: the product.
    pub const NONE: Self = Self {
        #[cfg(feature = "lab")]
        raft_step: RaftStep::All,
        #[cfg(feature = "lab")]
        fixed_entries: None,
        #[cfg(feature = "lab")]
        sync_delay: Duration::ZERO,
    };
}

#[cfg(not(feature = "lab"))]
impl Lab {
    /// Returns the bounds of an entry, in commands and bytes, if the engine does not choose them.
    #[must_use]
    pub const fn entry_limit(self) -> Option<(u64, u64)> {
        None
    }

    /// Returns the bound on the entries on their way, if there is one.
    #[must_use]
    pub const fn in_flight_max(self) -> Option<usize> {
        None
    }

    /// Returns whether commands that a full entry leaves wait for company.
    #[must_use]
    pub const fn carries_over(self) -> bool {
        true
    }

    /// Returns whether the next entry waits until the one before it is durable.
    #[must_use]
    pub const fn one_at_a_time(self) -> bool {
        false
    }

    /// Returns whether a sync waits for callers that are expected back.
    #[must_use]
    pub const fn anticipates(self) -> bool {
        true
    }
}

#[cfg(feature = "lab")]
impl Lab {
    /// Returns the bounds of an entry, in commands and bytes, if the engine does not choose them.
    #[must_use]
    pub const fn entry_limit(self) -> Option<(u64, u64)> {
        match self.fixed_entries {
            Some(fixed) => Some((fixed.commands, u64::MAX)),
            None => self.raft_step.entry_limit(),
        }
    }

    /// Returns the bound on the entries on their way, if there is one.
    #[must_use]
    pub const fn in_flight_max(self) -> Option<usize> {
        match self.fixed_entries {
            Some(fixed) => Some(fixed.in_flight),
            None => None,
        }
    }

    /// Returns whether commands that a full entry leaves wait for company.
    #[must_use]
    pub const fn carries_over(self) -> bool {
        self.raft_step.carries_over()
    }

    /// Returns whether the next entry waits until the one before it is durable.
    #[must_use]
    pub const fn one_at_a_time(self) -> bool {
        self.raft_step.one_at_a_time()
    }

    /// Returns whether a sync waits for callers that are expected back.
    #[must_use]
    pub const fn anticipates(self) -> bool {
        self.fixed_entries.is_none() && self.raft_step.anticipates()
    }

    /// Returns whether each message is written and synced a second time.
    #[must_use]
    pub const fn writes_twice(self) -> bool {
        self.raft_step.writes_twice()
    }
}

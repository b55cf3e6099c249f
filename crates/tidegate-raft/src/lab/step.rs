//! The steps between nats-server's way of writing replicated streams and the product's, for measurements. The
//! methods of a step name the parts of the product that the step leaves out.

use std::fmt;
use std::str::FromStr;

/// The bounds of nats-server on one append to its log, in commands and in bytes (`runAsLeader` in its
/// server/raft.go).
const NATS_ENTRY_COMMANDS: u64 = 4096;
const NATS_ENTRY_BYTES: u64 = 256 << 10;

/// A way in which a measured server writes replicated streams: a step between nats-server's way and the
/// product's. The methods of a step tell which parts of the product the step leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RaftStep {
    /// Step a, as nats-server works: the leader proposes each command as an entry of its own, and syncs each
    /// entry alone. The leader writes and syncs each message once more when it applies the message. Until
    /// both syncs are done, the leader accepts no other command.
    Baseline,
    /// Step b: the leader proposes and syncs one command at a time, as in `Baseline`, but does not write a
    /// message a second time when it applies the message.
    OneWrite,
    /// Step c: the leader proposes and syncs one command at a time, as in `OneWrite`, but commands left over
    /// from a full entry join the commands that arrive later, and do not form an entry of their own.
    Leftovers,
    /// Step d: the leader writes one entry at a time, as in `OneWrite`, but commands that arrive while it
    /// writes an entry gather in the next entries.
    Unblocked,
    /// Step e, with the changes of `OneWrite`, `Leftovers` and `Unblocked` together: the leader writes one
    /// entry of many commands at a time, and sends the entry once it has synced it.
    Combined,
    /// In this step the leader sends entries while it syncs them, and keeps proposing. A sync covers all
    /// entries that wait, so the engine chooses the size of entries.
    Parallel,
    /// In this last step, the product, the leader works as in `Parallel`, and the log also delays a sync for
    /// callers that are about to return with the next record.
    #[default]
    All,
}

impl RaftStep {
    /// All steps from nats-server's way of writing replicated streams to the product's, in the order in which
    /// they build on each other.
    pub const STEPS: [Self; 7] = [
        Self::Baseline,
        Self::OneWrite,
        Self::Leftovers,
        Self::Unblocked,
        Self::Combined,
        Self::Parallel,
        Self::All,
    ];

    /// Returns the name by which the command line of `tidegate-bench raft` and its tables know the step.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "a",
            Self::OneWrite => "b",
            Self::Leftovers => "c",
            Self::Unblocked => "d",
            Self::Combined => "e",
            Self::Parallel => "parallel",
            Self::All => "all",
        }
    }

    /// Returns whether, in this step, commands that arrive while the leader writes an entry wait until that
    /// entry is written, and then become entries one at a time.
    #[must_use]
    pub const fn blocks(self) -> bool {
        matches!(self, Self::Baseline | Self::OneWrite | Self::Leftovers)
    }

    /// Returns the bounds on the commands and on the bytes of an entry in this step; `None` if the engine
    /// chooses them. In a step in which commands wait while the leader writes, an entry has one command. In
    /// all other steps the bounds of nats-server apply.
    #[must_use]
    pub const fn entry_limit(self) -> Option<(u64, u64)> {
        match self {
            Self::Parallel | Self::All => None,
            _ if self.blocks() => Some((1, NATS_ENTRY_BYTES)),
            _ => Some((NATS_ENTRY_COMMANDS, NATS_ENTRY_BYTES)),
        }
    }

    /// Returns whether, in this step, commands left over from full entries join the commands that arrive
    /// later, and do not form an entry of their own.
    #[must_use]
    pub const fn carries_over(self) -> bool {
        !matches!(self, Self::Baseline | Self::OneWrite | Self::Unblocked)
    }

    /// Returns whether, in this step, the leader proposes, syncs and sends one entry after the other, and not
    /// several at the same time.
    #[must_use]
    pub const fn one_at_a_time(self) -> bool {
        !matches!(self, Self::Parallel | Self::All)
    }

    /// Returns whether, in this step, the leader writes and syncs each message again when it applies the
    /// message.
    #[must_use]
    pub const fn writes_twice(self) -> bool {
        matches!(self, Self::Baseline)
    }

    /// Returns whether, in this step, the log delays a sync for callers that are about to return with the
    /// next record, where the delay pays.
    #[must_use]
    pub const fn anticipates(self) -> bool {
        matches!(self, Self::All)
    }
}

impl fmt::Display for RaftStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a text that names no step between nats-server's way of writing and the product's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no step of the replication: give a, b, c, d, e, parallel or all")]
pub struct RaftStepError(String);

impl FromStr for RaftStep {
    type Err = RaftStepError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let mut steps = Self::STEPS.into_iter();
        let found = steps.find(|step| step.name() == name);
        found.ok_or_else(|| RaftStepError(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_differs_from_the_one_it_builds_on_in_one_thing() {
        let ways = |step: RaftStep| {
            let blocked = (step.blocks(), step.carries_over());
            let writes = (step.one_at_a_time(), step.writes_twice());
            (blocked, writes, step.anticipates())
        };
        use RaftStep::*;
        assert_eq!(ways(Baseline), ((true, false), (true, true), false));
        assert_eq!(ways(OneWrite), ((true, false), (true, false), false));
        assert_eq!(ways(Leftovers), ((true, true), (true, false), false));
        assert_eq!(ways(Unblocked), ((false, false), (true, false), false));
        assert_eq!(ways(Combined), ((false, true), (true, false), false));
        assert_eq!(ways(Parallel), ((false, true), (false, false), false));
        assert_eq!(ways(All), ((false, true), (false, false), true));
        assert_eq!(RaftStep::default(), All);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for step in RaftStep::STEPS {
            assert_eq!(step.to_string().parse(), Ok(step));
        }
        let error = "f".parse::<RaftStep>().unwrap_err();
        assert!(error.to_string().contains("parallel or all"), "{error}");
    }
}

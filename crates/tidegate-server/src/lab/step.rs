//! The steps themselves; each says by its methods which parts of the product it goes without.

use std::fmt;
use std::str::FromStr;

/// What nats-server puts into an append at most (`runAsLeader` in its server/raft.go).
const NATS_ENTRY_COMMANDS: u64 = 4096;
const NATS_ENTRY_BYTES: u64 = 256 << 10;

/// One of the steps; each stands for itself and says what it does without by its methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RaftStep {
    /// (a) Each command is an entry of its own, synced alone; each message is written and synced once more
    /// when it is applied. Until both are done nothing else is taken in.
    Baseline,
    /// (b) The same without the second write.
    OneWrite,
    /// (c) The same, and what is left of a full entry goes with what comes next.
    Leftovers,
    /// (d) As (b), but what comes while an entry is written gathers in the next ones.
    Unblocked,
    /// (e) (b), (c) and (d): an entry at a time, sent once the leader has synced it.
    Combined,
    /// The leader sends while it syncs, and proposes on: a sync takes all entries there are, so the engine
    /// chooses how large they are.
    Parallel,
    /// A sync also waits for callers that are about to return: the product.
    #[default]
    All,
}

impl RaftStep {
    /// In the order they build on each other.
    pub const STEPS: [Self; 7] = [
        Self::Baseline,
        Self::OneWrite,
        Self::Leftovers,
        Self::Unblocked,
        Self::Combined,
        Self::Parallel,
        Self::All,
    ];

    /// How it is called on the command line.
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

    /// Returns whether what comes while an entry is written waits outside of entries, from where one command
    /// at a time gets in.
    #[must_use]
    pub const fn blocks(self) -> bool {
        matches!(self, Self::Baseline | Self::OneWrite | Self::Leftovers)
    }

    /// The most commands and bytes of an entry, where the engine does not choose: nats-server's, or one
    /// command where the log blocks.
    #[must_use]
    pub const fn entry_limit(self) -> Option<(u64, u64)> {
        match self {
            Self::Parallel | Self::All => None,
            _ if self.blocks() => Some((1, NATS_ENTRY_BYTES)),
            _ => Some((NATS_ENTRY_COMMANDS, NATS_ENTRY_BYTES)),
        }
    }

    /// Returns whether what is left when entries are full goes with what comes next, instead of into an entry
    /// of its own.
    #[must_use]
    pub const fn carries_over(self) -> bool {
        !matches!(self, Self::Baseline | Self::OneWrite | Self::Unblocked)
    }

    /// Returns whether entries are proposed, synced and sent one after the other.
    #[must_use]
    pub const fn one_at_a_time(self) -> bool {
        !matches!(self, Self::Parallel | Self::All)
    }

    /// Returns whether each message is written and synced again when it is applied.
    #[must_use]
    pub const fn writes_twice(self) -> bool {
        matches!(self, Self::Baseline)
    }

    /// Returns whether a sync waits for callers that are about to return, where that pays.
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

/// No step has this name.
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

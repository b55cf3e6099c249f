//! Judges a simulated run: how long turns took, how long well-behaved clients waited, whether the nodes held
//! an election, and whether the servers have each acknowledged message.

use std::fmt;
use std::time::Duration;

use tidegate_server::{TurnTaken, Work};

/// The documented bounds of a turn's CPU time: for 999 turns in 1000, and (`TURN_WORST`) for the worst.
pub(crate) const TURN_P999: Duration = Duration::from_millis(1);
pub(crate) const TURN_WORST: Duration = Duration::from_millis(4);

/// The most works of a kind that one turn does for each Raft group of its server, or for the server if it has
/// one list: the bounds of the parts into which the loop divides long work. Unlike the costs, they do not
/// depend on a machine.
const SHARES: [(Work, u64); 10] = [
    // A turn accepts and closes 64 connections. A refused login or a slow reader counts apart.
    (Work::Accept, 64),
    // A command that removes many messages begins with a part.
    (Work::Reclaim, 64 * 256 + 256),
    (Work::Free, 4),
    (Work::Foresee, 4096),
    (Work::Subject, 8192),
    (Work::Search, 2048),
    // A turn prepares an entry, takes up the waiting requests and looks for the messages of new ones.
    (Work::LookUp, 3 * 4096),
    // A group that begins to lead takes the first part at once, and may take the second in the same turn.
    (Work::TakeUp, 2 * 256),
    // The last consumer of a turn may deliver one message more than the turn has left.
    (Work::Deliver, 2 * 1024 + 1),
    // Each reader of the monitor gets a part, and only one reader of a run asks for streams.
    (Work::Describe, 64),
];

/// The bounds that a run must keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The bounds of the turns' CPU time: for 999 turns in 1000, and for the worst. `None` where an attack's
    /// works cost more than on a machine.
    pub(crate) turns: Option<(Duration, Duration)>,
    /// The longest time that a well-behaved client may wait for an acknowledgement or a PONG.
    pub(crate) wait: Duration,
}

/// The CPU times of a run's turns, which the verdict compares with the bounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    took: Vec<Duration>,
    worst: Option<TurnTaken>,
    /// The first turn that did more than its share of a work.
    greedy: Option<TurnTaken>,
}

impl Turns {
    /// Records a turn of a server with this number of Raft groups.
    pub(crate) fn record(&mut self, turn: &TurnTaken, groups: usize) {
        self.took.push(turn.took);
        let is_over = |(work, most): (Work, u64)| {
            let at = Work::ALL.iter().position(|w| *w == work);
            at.is_some_and(|at| turn.done[at] > most * groups.max(1) as u64)
        };
        if self.greedy.is_none() && SHARES.into_iter().any(is_over) {
            self.greedy = Some(turn.clone());
        }
        if self.worst.as_ref().is_none_or(|w| w.took < turn.took) {
            self.worst = Some(turn.clone());
        }
    }

    /// Returns the CPU time that this share of the turns did not exceed.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let mut took = self.took.clone();
        took.sort_unstable();
        let at = (share * took.len() as f64) as usize;
        took.get(at.min(took.len().saturating_sub(1)))
            .copied()
            .unwrap_or_default()
    }

    /// Returns a turn that did more than its share of a work; `None` if none did.
    pub(crate) fn greedy(&self) -> Option<&TurnTaken> {
        self.greedy.as_ref()
    }

    pub(crate) fn worst(&self) -> Option<&TurnTaken> {
        self.worst.as_ref()
    }

    pub(crate) const fn len(&self) -> usize {
        self.took.len()
    }
}

/// Describes a turn by its time and the works that the loop did in it, for the text of harm.
pub(crate) fn describe(turn: &TurnTaken) -> String {
    let works = Work::ALL.iter().zip(turn.done).filter(|(_, n)| *n > 0);
    let works = works.map(|(work, n)| format!("{n} {work:?}"));
    format!(
        "a turn of {:?} on server {} at {:?}: {}",
        turn.took,
        turn.server,
        turn.begun,
        works.collect::<Vec<_>>().join(", ")
    )
}

/// The harm that a run found, which fails the test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    /// A turn took longer than its bound.
    Turn(String),
    /// A well-behaved client waited longer than its bound, or the server refused it.
    Starved(String),
    /// The nodes held an election, though no node had failed.
    Election(String),
    /// The servers lack an acknowledged message.
    Lost(String),
    /// More bytes waited in outboxes than their bound allows.
    Memory(String),
    /// The run itself failed, for example because a server ended.
    Broken(String),
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turn(what) => write!(f, "a long turn: {what}"),
            Self::Starved(what) => write!(f, "a starved client: {what}"),
            Self::Election(what) => write!(f, "an election: {what}"),
            Self::Lost(what) => write!(f, "a lost message: {what}"),
            Self::Memory(what) => write!(f, "too much memory: {what}"),
            Self::Broken(what) => write!(f, "a broken run: {what}"),
        }
    }
}

//! Streams that move to a group which nobody leads: another is chosen, where there is one.
//!
//! A node that is away for a moment comes back, and what its copy has by then need not come again. One that
//! is away for longer may be dead: the directory's leader, who cannot tell, gives the move another target
//! then, by the entry that begins a move anew, which ends it for the old one. Where no other group would do
//! the move waits.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate::Time;

use super::JetStream;
use crate::cluster::groups::ALL;
use crate::node::core::Node;
use crate::stream::Moving;

/// For so long a group that a stream moves to may be without a leader: longer than a node takes to be started
/// again.
pub(super) const AWAY: Duration = Duration::from_secs(30);
/// How often it is looked whether they have one.
const LOOK: Duration = Duration::from_secs(1);

/// Moves to groups without a leader, by stream.
#[derive(Default)]
pub(super) struct Unled {
    /// Since when nobody leads there.
    since: BTreeMap<u32, (Moving, Time)>,
    look_at: Option<Time>,
}

impl Unled {
    /// When to look again, while any stream moves.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.look_at.filter(|_| !self.since.is_empty())
    }
}

impl JetStream {
    /// Gives moves another target where nobody has led the group they go to for long.
    pub(super) fn redirect_unled(&mut self, node: &mut Node, now: Time) {
        if self.group != ALL || self.unled.look_at.is_some_and(|at| at > now) {
            return;
        }
        self.unled.look_at = Some(now + LOOK);
        let moves = self
            .streams
            .iter()
            .filter_map(|s| Some((s.id(), s.moving()?)));
        // Whoever looks leads this one.
        let moves = moves.filter(|(_, moving)| moving.to != ALL && !node.is_led(moving.to));
        let before = std::mem::take(&mut self.unled.since);
        self.unled.since = moves
            .map(|(stream, moving)| {
                let same = before.get(&stream).filter(|(of, _)| *of == moving);
                (stream, (moving, same.map_or(now, |(_, since)| *since)))
            })
            .collect();
        let since = self.unled.since.iter();
        let long = since.filter(|(_, (_, since))| *since + AWAY <= now);
        let long: Vec<(u32, Moving)> = long
            .map(|(stream, (moving, _))| (*stream, *moving))
            .collect();
        for (stream, moving) in long {
            self.redirect(node, now, stream, moving);
        }
    }
}

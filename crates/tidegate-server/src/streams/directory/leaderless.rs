//! Redirects moves of streams to a group without a leader: the directory's leader gives such a move another
//! target.
//!
//! If a node of the target is away for a moment, it comes back, and its copy still has the imported part of
//! the stream. A node that is away for longer may be dead. The directory's leader cannot tell the two cases
//! apart. So after [`AWAY`] it proposes the entry that calls the move off and begins a move to another group.
//! If no other group fits, the move waits.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate::Time;
use tidegate_cluster::groups::ALL;
use tidegate_stream::schema::number::DirectoryNumber;
use tidegate_stream::stream::Moving;

use crate::streams::JetStream;
use crate::streams::context::Context;

/// The time for which a move's target may be without a leader before the directory's leader chooses another
/// target: it is longer than the restart of a node takes.
pub(crate) const AWAY: Duration = Duration::from_secs(30);
/// The interval at which the directory's leader checks whether the targets of all moves have a leader.
const LOOK: Duration = Duration::from_secs(1);

/// The moves of streams to groups that have no leader at present, by which the directory's leader knows when
/// to choose another target.
#[derive(Default)]
pub(crate) struct Leaderless {
    /// For each moving stream, the move and the time since which its target has had no leader.
    since: BTreeMap<DirectoryNumber, (Moving, Time)>,
    look_at: Option<Time>,
}

impl Leaderless {
    /// Returns the time at which the leader next checks whether the targets of moves have leaders; `None`
    /// while each target has a leader.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.look_at.filter(|_| !self.since.is_empty())
    }
}

impl JetStream {
    /// Gives each move another target if its target has had no leader for [`AWAY`], so that the move does not
    /// wait for dead nodes.
    pub(crate) fn redirect_leaderless(&mut self, cx: &mut Context<'_>, now: Time) {
        if self.group != ALL || self.leaderless.look_at.is_some_and(|at| at > now) {
            return;
        }
        self.leaderless.look_at = Some(now + LOOK);
        let moves = self
            .streams
            .iter()
            .filter_map(|s| Some((s.entry_number(), s.moving()?)));
        // Only the leader of the group of all nodes runs this check, so that group has a leader and the check
        // leaves it out.
        let moves = moves
            .filter(|(_, moving)| moving.to != ALL && cx.around.leader_of(moving.to).is_none());
        let before = std::mem::take(&mut self.leaderless.since);
        self.leaderless.since = moves
            .map(|(stream, moving)| {
                let same = before.get(&stream).filter(|(of, _)| *of == moving);
                (stream, (moving, same.map_or(now, |(_, since)| *since)))
            })
            .collect();
        let since = self.leaderless.since.iter();
        let long = since.filter(|(_, (_, since))| *since + AWAY <= now);
        let long: Vec<(DirectoryNumber, Moving)> = long
            .map(|(stream, (moving, _))| (*stream, *moving))
            .collect();
        for (stream, moving) in long {
            self.redirect(cx, now, stream, moving);
        }
    }
}

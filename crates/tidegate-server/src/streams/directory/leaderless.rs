//! Moves of streams to a group without a leader: the directory's leader gives them another target.
//!
//! A node that is away for a moment comes back, and its copy keeps the part of the stream that it has by
//! then. A node that is away for longer may be dead. The directory's leader cannot tell the two apart, so
//! after [`AWAY`] it chooses another group by the entry that starts a move again, which also ends the move to
//! the old group. If no other group fits, the move waits.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate::Time;
use tidegate_cluster::groups::ALL;
use tidegate_stream::schema::number::DirectoryNumber;
use tidegate_stream::stream::Moving;

use crate::streams::JetStream;
use crate::streams::context::Context;

/// How long a group that a stream moves to may be without a leader: longer than the restart of a node takes.
pub(crate) const AWAY: Duration = Duration::from_secs(30);
/// How often the directory's leader looks whether these groups have a leader.
const LOOK: Duration = Duration::from_secs(1);

/// Moves to groups without a leader, by stream.
#[derive(Default)]
pub(crate) struct Leaderless {
    /// The time since which each group has been without a leader.
    since: BTreeMap<DirectoryNumber, (Moving, Time)>,
    look_at: Option<Time>,
}

impl Leaderless {
    /// Returns the time of the next look, while a stream moves to such a group.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.look_at.filter(|_| !self.since.is_empty())
    }
}

impl JetStream {
    /// Gives moves another target if the group they go to has had no leader for [`AWAY`].
    pub(crate) fn redirect_leaderless(&mut self, cx: &mut Context<'_>, now: Time) {
        if self.group != ALL || self.leaderless.look_at.is_some_and(|at| at > now) {
            return;
        }
        self.leaderless.look_at = Some(now + LOOK);
        let moves = self
            .streams
            .iter()
            .filter_map(|s| Some((s.entry_number(), s.moving()?)));
        // Only the leader of the group of all nodes gets here, so that group has one.
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

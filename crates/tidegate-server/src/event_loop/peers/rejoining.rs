//! Lets a node rejoin its cluster after it lost its disk: the node asks for its former place, and the other
//! members report to it the latest terms in which they have been.

use tidegate::Time;
use tidegate_cluster::Kind;
use tidegate_cluster::roster::{PeerSlot, Roster};
use tidegate_cluster::wire::Frame;

use super::Peers;
use super::ending::Why;
use crate::event_loop::members::{self, IdentityError};
use crate::event_loop::tokens::ChannelKey;
use crate::sessions::Node;

/// Makes the node ask for its former place, if the operator wants that. If the data directory already belongs
/// to a member of the cluster, the node needs no former place and ignores the operator's wish.
pub(super) fn begin(roster: &mut Roster, rejoins: bool) {
    if !rejoins || !roster.me().streams {
        return;
    }
    if roster.formation().formed().is_some() {
        return tracing::info!(
            "the server ignores --rejoin, because its data directory already belongs to a member of the cluster"
        );
    }
    roster.formation_mut().begin_rejoin();
}

impl Peers {
    /// Returns the term from which on this node takes part again after it lost its disk; `None` if it has not
    /// lost its disk, or has every entry again that it may have acknowledged.
    #[must_use]
    pub(crate) fn rejoined(&self) -> Option<u64> {
        self.identity.as_ref().and_then(|(_, file)| file.rejoined)
    }

    /// Returns whether the data directory already had a log in an earlier run. If the directory has no log
    /// now, the node knows that the log was lost.
    pub(crate) fn log_begun(&self) -> bool {
        self.identity
            .as_ref()
            .is_some_and(|(_, file)| file.log_begun)
    }

    /// Records durably in the members' file that this node has a log, before the node promises entries of the
    /// log to other nodes, so that a later start notices the loss of the log.
    pub(crate) fn handle_log_begun(&mut self) -> Result<(), IdentityError> {
        match &mut self.identity {
            Some((disk, file)) => Ok(members::begin_log(disk, file)?),
            None => Ok(()),
        }
    }

    /// Sets the latest term in which this node has been, which it reports to nodes that lost their disks.
    pub(crate) const fn set_vouched_term(&mut self, term: Option<u64>) {
        self.vouched_term = term;
    }

    /// Removes the mark of the lost disk from the members' file, since the node has every entry again that it
    /// may have acknowledged.
    pub(crate) fn handle_whole(&mut self) {
        let Some((disk, file)) = &mut self.identity else {
            return;
        };
        let rejoined = file.rejoined.take();
        if let Err(e) = members::save(disk, file) {
            // The node could not write the members' file, so the file still has the mark of the lost disk.
            // The loop calls this function again later.
            file.rejoined = rejoined;
            return tracing::error!(
                "after the loss of its disk, this node has all entries again, but cannot write its file `members` ({e}): it tries again, and does not vote until the write succeeds"
            );
        }
        tracing::info!(
            "after the loss of its disk, this node has all entries again, and votes from now on"
        );
    }

    /// Reports the latest term in which this node has been to the peer in this slot, if the peer lost its
    /// disk, so that the peer breaks no vote of its earlier life.
    pub(super) fn vouch(&self, slot: PeerSlot, node: &mut Node) {
        let rejoins = self
            .roster
            .peers()
            .get(slot.index())
            .is_some_and(|p| p.rejoins);
        if let Some(term) = self.vouched_term
            && rejoins
            && self.told[slot.index()][Kind::Route.index()].is_some()
        {
            node.tell_peer(slot, &Frame::Vouch { term });
        }
    }

    /// Takes this node's former place among the members, once the formation allows that, so that its groups
    /// can open.
    pub(super) fn rejoin(&mut self, now: Time, node: &mut Node) {
        let Some((disk, file)) = &mut self.identity else {
            return;
        };
        let Some(rejoined) = self.roster.formation().rejoin_due() else {
            return;
        };
        let mut fixed = file.clone();
        fixed.me.id = rejoined.id;
        fixed.rejoined = Some(rejoined.term);
        fixed.members = Some(rejoined.members.clone());
        if let Err(e) = members::save(disk, &fixed) {
            return tracing::error!(
                "this node cannot write its file `members`, and does not rejoin the cluster yet: {e}"
            );
        }
        *file = fixed;
        tracing::info!(
            "after the loss of its disk, this node is a member of the cluster `{}` again, from term {} on, and fetches its messages from the other nodes",
            file.cluster,
            rejoined.term
        );
        self.roster.handle_rejoined(rejoined);
        // The node opened its connections with a temporary id, so it closes all of them and dials again with
        // its former id.
        let all = self.conns.iter().map(|(at, _)| ChannelKey::new(at));
        let all: Vec<ChannelKey> = all.collect();
        for key in all {
            self.end(now, key, node, &Why::Rejoined);
        }
        (0..self.routes.len()).for_each(|route| self.redial.hurry(now, route));
    }
}

//! Rejoining: a node that lost its disk asks for its former place, and the other members tell it the latest
//! terms that they have been in.

use tidegate::Time;
use tidegate_cluster::Kind;
use tidegate_cluster::roster::{PeerSlot, Roster};
use tidegate_cluster::wire::Frame;

use super::Peers;
use super::ending::Why;
use crate::event_loop::members::{self, IdentityError};
use crate::event_loop::tokens::ChannelKey;
use crate::sessions::Node;

/// Makes the node ask for its former place, if the operator wants that and the node has no place.
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
    /// Returns the term from which on this node takes part again after it lost its disk; `None` if the node
    /// has every entry.
    #[must_use]
    pub(crate) fn rejoined(&self) -> Option<u64> {
        self.identity.as_ref().and_then(|(_, file)| file.rejoined)
    }

    /// Returns whether the data directory had a log in an earlier run.
    pub(crate) fn log_begun(&self) -> bool {
        self.identity
            .as_ref()
            .is_some_and(|(_, file)| file.log_begun)
    }

    /// Notes durably in the members' file that the log must exist, before the node promises records of the
    /// log to other nodes.
    pub(crate) fn handle_log_begun(&mut self) -> Result<(), IdentityError> {
        match &mut self.identity {
            Some((disk, file)) => Ok(members::begin_log(disk, file)?),
            None => Ok(()),
        }
    }

    /// Sets the latest term that this node has been in, which it tells nodes that lost their disks.
    pub(crate) const fn set_vouched_term(&mut self, term: Option<u64>) {
        self.vouched_term = term;
    }

    /// Removes from the members' file that this node lost its disk, since the node has every entry again.
    pub(crate) fn handle_whole(&mut self) {
        let Some((disk, file)) = &mut self.identity else {
            return;
        };
        let rejoined = file.rejoined.take();
        if let Err(e) = members::save(disk, file) {
            // The file still says that the node lost its disk, so the loop calls this again.
            file.rejoined = rejoined;
            return tracing::error!(
                "this node has all entries again, but cannot write its file `members`, and tries again before it votes: {e}"
            );
        }
        tracing::info!("this node has all entries again, and votes from now on");
    }

    /// Tells the peer the latest term that this node has been in, if the peer lost its disk.
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

    /// Takes this node's former place, if the formation allows it now.
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
            "this node is a member of the cluster `{}` again, from term {} on, and fetches its messages from the other nodes",
            file.cluster,
            rejoined.term
        );
        self.roster.handle_rejoined(rejoined);
        // The node opened these connections as a guest with another id, so it closes all of them and dials
        // again.
        let all = self.conns.iter().map(|(at, _)| ChannelKey::new(at));
        let all: Vec<ChannelKey> = all.collect();
        for key in all {
            self.end(now, key, node, &Why::Rejoined);
        }
        (0..self.routes.len()).for_each(|route| self.redial.hurry(now, route));
    }
}

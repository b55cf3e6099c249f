//! Compares the nodes' actions with the contents of their disks and with the actions of other nodes.

use raft::eraftpb::MessageType;
use tidegate_cluster::groups::GroupId;
use tidegate_cluster::slots::GroupSlot;
use tidegate_raft::replica::{Index, Message, Term};
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;

use super::World;
use crate::ledger::{Held, Ledger};
use crate::node::Up;
use crate::oracle::{Oracle, Verdict, ensure};

impl World {
    /// Checks that at the end every node has every acknowledged message.
    pub(super) fn check_end(&mut self) -> Verdict {
        for node in &mut self.nodes {
            let Some(up) = node.up.as_mut() else { continue };
            for at in up.members.slots() {
                let oracle = self.oracles.of_mut(up.members[at].group);
                has_all(node.id, up, at, oracle)?;
            }
        }
        Ok(())
    }

    /// Lets the oracle judge the records that have become durable on a node's disk.
    pub(super) fn look_at_disk(&mut self, n: usize) -> Verdict {
        let node = &mut self.nodes[n];
        let Some(up) = node.up.as_ref() else {
            return Ok(());
        };
        let (oracles, log) = (&mut self.oracles, up.store.log());
        let each = |group, index, held, before: Option<Held>| {
            let before = before.map(|b| b.term);
            oracles.of_mut(group).entry(index, held, before)
        };
        let read = node.ledgers.read_on(log, each);
        if self.plan.blind {
            return Ok(());
        }
        read.map_err(|what| format!("the disk of node {}: {what}", node.id))
    }

    /// Lets the oracle judge a node that leads groups.
    pub(super) fn judge(&mut self, n: usize) -> Verdict {
        let groups = self.nodes[n].up.as_ref().map_or(0, |up| up.members.len());
        GroupSlot::all(groups).try_for_each(|at| self.judge_in(n, at))
    }

    fn judge_in(&mut self, n: usize, at: GroupSlot) -> Verdict {
        let node = &mut self.nodes[n];
        let (id, Some(up)) = (node.id, node.up.as_mut()) else {
            return Ok(());
        };
        let (group, member) = (up.store.group(at), &mut up.members[at]);
        let (number, leads, term) = (member.group, group.leads(), group.hard_state().term.get());
        let oracle = self.oracles.of_mut(number);
        if leads && !member.led {
            member.begin_term();
            // The oracle looks on the leader's disk for entries that have left the leader's memory.
            let ledger = node.ledgers.of(number);
            oracle.new_leader(id, term, |index, of| {
                let known = group.term_of(Index::new(index));
                known.map_or_else(|| ledger.has(index, of), |known| known.get() == of)
            })?;
        }
        member.led = leads;
        if leads && oracle.leads(id, term)? {
            self.trace(|| format!("node {id} leads group {number} in term {term}"));
        }
        Ok(())
    }

    /// Checks that the promises in a message are durable on the sender's disk.
    pub(super) fn promises(&self, n: usize, group: GroupId, message: &Message) -> Verdict {
        let (id, ledger) = (self.nodes[n].id, self.nodes[n].ledgers.of(group));
        let (kind, term) = (message.get_msg_type(), message.term);
        if matches!(
            kind,
            MessageType::MsgRequestPreVote | MessageType::MsgRequestPreVoteResponse
        ) {
            return Ok(());
        }
        let durable = ledger.hard_state;
        ensure!(
            term <= durable.term.get(),
            "a promise before it is durable: node {id} says {kind:?} in term {term}, its disk has {durable:?}"
        );
        match kind {
            MessageType::MsgRequestVote => ensure!(
                ledger.votes.get(&term) == Some(&id),
                "a promise before it is durable: node {id} stands in term {term}, its disk has {durable:?}"
            ),
            MessageType::MsgRequestVoteResponse if !message.reject => ensure!(
                ledger.votes.get(&term) == Some(&message.to),
                "a promise before it is durable: node {id} votes for {} in term {term}, its disk has {durable:?}",
                message.to
            ),
            // A message of an earlier term may be late, and other entries may have replaced its
            // entries by now.
            MessageType::MsgAppendResponse if !message.reject && term == durable.term.get() => {
                ensure!(
                    ledger.last() >= message.index,
                    "a promise before it is durable: node {id} has entries up to {}, its disk up to {}",
                    message.index,
                    ledger.last()
                );
                self.matches(id, group, ledger, message)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks that the entries that a follower reports are the entries of the leader.
    fn matches(&self, id: u64, group: GroupId, ledger: &Ledger, message: &Message) -> Verdict {
        let leader = self.nodes.iter().find(|n| n.id == message.to);
        let group = leader
            .and_then(|n| n.up.as_ref())
            .and_then(|up| Some(up.store.group(up.member(group)?.at)));
        let leads = group.filter(|g| g.leads() && g.hard_state().term.get() == message.term);
        let theirs = leads.and_then(|g| g.term_of(Index::new(message.index)));
        let theirs = theirs.map(Term::get);
        let ours = ledger.get(message.index).map(|h| h.term);
        ensure!(
            theirs.is_none() || ours.is_none() || theirs == ours,
            "node {id} acknowledges entry {} of term {ours:?}, the leader's is of term {theirs:?}",
            message.index
        );
        Ok(())
    }
}

/// Checks that a node has every acknowledged message of a group.
fn has_all(id: u64, up: &mut Up, at: GroupSlot, oracle: &mut Oracle) -> Verdict {
    let last = oracle.last_committed();
    if last == 0 {
        return Ok(());
    }
    let group = up.members[at].group;
    up.members[at].streams.check_invariants();
    oracle.state(last, &up.members[at].streams)?;
    for acked in &oracle.acked {
        let Some(stream) = up.members[at].streams.get(StreamNumber::new(acked.stream)) else {
            return Err(format!("stream {} of group {group} is gone", acked.stream));
        };
        let (model, seq) = (&oracle.model, acked.seq);
        let settled = model.retained.may_be_gone(acked.stream, seq)
            || model.takers.tapped.may_be_gone(acked.stream, seq);
        let kept = stream.config().max_msgs < 0 && !settled;
        let Some(place) = stream.place(StreamSeq::new(acked.seq)) else {
            ensure!(
                !kept,
                "acked message {} of stream {} of group {group} is gone",
                acked.seq,
                acked.stream
            );
            continue;
        };
        let read = loop {
            match up.members[at].message(&mut up.store, place)? {
                Some(crc) => break crc,
                None => {
                    up.work();
                    up.store.poll().map_err(|e| e.to_string())?;
                }
            }
        };
        ensure!(
            read == acked.crc,
            "message {} of stream {} of group {group} on node {id} is not what was acknowledged",
            acked.seq,
            acked.stream
        );
    }
    Ok(())
}

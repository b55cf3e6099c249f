//! What nodes do, held against what their disks hold and what others did.

use raft::eraftpb::MessageType;
use tidegate_server::replica::Message;

use super::{Node, World};
use crate::ledger::{Held, Ledger};
use crate::oracle::{Verdict, ensure};

impl World {
    /// At the end every node has what was acknowledged.
    pub(super) fn check_end(&mut self) -> Verdict {
        let last = self.oracle.last_committed();
        for n in 0..self.nodes.len() {
            let node = &mut self.nodes[n];
            let Some(up) = node.up.as_mut() else { continue };
            up.streams.check_invariants();
            self.oracle.state(last, &up.streams)?;
            for acked in &self.acked {
                let Some(stream) = up.streams.get(acked.stream) else {
                    return Err(format!("stream {} is gone", acked.stream));
                };
                let kept = stream.config().max_msgs < 0;
                let Some(place) = stream.place(acked.seq) else {
                    ensure!(
                        !kept,
                        "acked message {} of stream {} is gone",
                        acked.seq,
                        acked.stream
                    );
                    continue;
                };
                let read = loop {
                    match up.message(place)? {
                        Some(crc) => break crc,
                        None => {
                            up.work();
                            up.store.poll().map_err(|e| e.to_string())?;
                        }
                    }
                };
                ensure!(
                    read == acked.crc,
                    "message {} of stream {} on node {} is not what was acknowledged",
                    acked.seq,
                    acked.stream,
                    node.id
                );
            }
        }
        Ok(())
    }

    /// What became durable on a node's disk is judged.
    pub(super) fn look_at_disk(&mut self, n: usize) -> Verdict {
        let node = &mut self.nodes[n];
        let Some(up) = node.up.as_ref() else {
            return Ok(());
        };
        let (oracle, log) = (&mut self.oracle, up.store.log());
        let each =
            |index, held, before: Option<Held>| oracle.entry(index, held, before.map(|b| b.term));
        let read = node.ledger.read_on(log, each);
        if self.plan.blind {
            return Ok(());
        }
        read.map_err(|what| format!("the disk of node {}: {what}", node.id))
    }

    /// Who leads is judged.
    pub(super) fn judge(&mut self, n: usize) -> Verdict {
        let node = &mut self.nodes[n];
        let (id, Some(up)) = (node.id, node.up.as_mut()) else {
            return Ok(());
        };
        let group = up.store.group();
        let leads = group.leads();
        let term = group.hard_state().term;
        if leads && !up.led {
            up.begin_term();
            if self.oracle.leads(id, term)? {
                self.trace(|| format!("node {id} leads in term {term}"));
            }
            let Node { up, ledger, .. } = &self.nodes[n];
            let group = up.as_ref().map(|up| up.store.group());
            // What left its memory is on its disk.
            self.oracle.new_leader(id, term, |index, of| {
                let known = group.and_then(|g| g.term_of(index));
                known.map_or_else(|| ledger.has(index, of), |known| known == of)
            })?;
        } else if leads {
            self.oracle.leads(id, term)?;
        }
        if let Some(up) = self.nodes[n].up.as_mut() {
            up.led = leads;
        }
        Ok(())
    }

    /// What a message promises is on the disk of who sends it.
    pub(super) fn promises(&self, n: usize, message: &Message) -> Verdict {
        let (id, ledger) = (self.nodes[n].id, &self.nodes[n].ledger);
        let (kind, term) = (message.get_msg_type(), message.term);
        if matches!(
            kind,
            MessageType::MsgRequestPreVote | MessageType::MsgRequestPreVoteResponse
        ) {
            return Ok(());
        }
        let durable = ledger.hard_state;
        ensure!(
            term <= durable.term,
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
            // Of an earlier term it may be late, and the entries written over by now.
            MessageType::MsgAppendResponse if !message.reject && term == durable.term => {
                ensure!(
                    ledger.last() >= message.index,
                    "a promise before it is durable: node {id} has entries up to {}, its disk up to {}",
                    message.index,
                    ledger.last()
                );
                self.matches(id, ledger, message)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// What a follower says it has is what the leader has.
    fn matches(&self, id: u64, ledger: &Ledger, message: &Message) -> Verdict {
        let leader = self.nodes.iter().find(|n| n.id == message.to);
        let group = leader
            .and_then(|n| n.up.as_ref())
            .map(|up| up.store.group());
        let leads = group.filter(|g| g.leads() && g.hard_state().term == message.term);
        let theirs = leads.and_then(|g| g.term_of(message.index));
        let ours = ledger.get(message.index).map(|h| h.term);
        ensure!(
            theirs.is_none() || ours.is_none() || theirs == ours,
            "node {id} acknowledges entry {} of term {ours:?}, the leader's is of term {theirs:?}",
            message.index
        );
        Ok(())
    }
}

//! Checks the invariants at every step, under all faults: election safety, log matching, leader completeness,
//! that committed entries never change, that all nodes reach one state, that no node promises an entry before
//! it is durable, and that every acknowledged message is stored.
//!
//! The oracle judges the nodes' actions and the contents of their disks ([`Ledger`]), not their reports about
//! themselves.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hasher;
use std::ops::Range;

use tidegate_cluster::groups::{GroupId, GroupOf};
use tidegate_raft::replica::Committed;
use tidegate_stream::stream::{Outcome, Streams};

use crate::client::Acked;
use crate::ledger::{Held, Ledger};
use crate::model::Model;

/// The verdict of an oracle: `Ok`, or a description of the broken invariant.
pub(crate) type Verdict = Result<(), String>;

/// Returns from the oracle with a description of the mistake unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err(format!($($what)+));
        }
    };
}
pub(crate) use ensure;

/// A committed entry on which all nodes agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Agreed {
    term: u64,
    crc: u32,
    outcomes: u64,
}

/// The latest term in which the oracle first knew that a majority has the entry.
type Since = u64;

/// The oracles of a cluster, one for each group.
pub(crate) struct Oracles(BTreeMap<GroupId, Oracle>);

impl Oracles {
    pub(crate) fn new(groups: &[GroupOf]) -> Self {
        Self(
            groups
                .iter()
                .map(|g| (g.number, Oracle::default()))
                .collect(),
        )
    }

    pub(crate) fn of(&self, group: GroupId) -> &Oracle {
        &self.0[&group]
    }

    pub(crate) fn of_mut(&mut self, group: GroupId) -> &mut Oracle {
        self.0.get_mut(&group).unwrap()
    }

    /// Forgets a group that lost its contents, because none of them may come back.
    pub(crate) fn forget(&mut self, group: GroupId) {
        *self.of_mut(group) = Oracle::default();
    }
}

/// The oracle of one group, see the [module](self).
#[derive(Default)]
pub(crate) struct Oracle {
    leaders: BTreeMap<u64, u64>,
    /// Every entry that the oracle has ever seen, by index and term, with the term of the entry before it if
    /// the oracle knows that.
    entries: HashMap<(u64, u64), (u32, Option<u64>)>,
    committed: BTreeMap<u64, (Agreed, Since)>,
    /// The checksum of the streams after each entry, by the entry's index.
    states: BTreeMap<u64, u64>,
    pub(crate) model: Model,
    /// The acknowledgements that clients received.
    pub(crate) acked: Vec<Acked>,
    /// The highest sequence that a node acknowledged, by stream.
    floors: BTreeMap<u32, u64>,
}

impl Oracle {
    /// Checks election safety: each term has at most one leader. Returns whether the oracle sees this leader
    /// for the first time.
    pub(crate) fn leads(&mut self, node: u64, term: u64) -> Result<bool, String> {
        let first = !self.leaders.contains_key(&term);
        let leader = *self.leaders.entry(term).or_insert(node);
        ensure!(
            leader == node,
            "election safety: nodes {leader} and {node} lead in term {term}"
        );
        Ok(first)
    }

    pub(crate) fn terms_led(&self) -> usize {
        self.leaders.len()
    }

    /// Checks leader completeness: a new leader has the last entry committed in a term before its own; by log
    /// matching it has all entries before that. A paused node may begin to lead long after other nodes lead
    /// in a later term, so the oracle checks only earlier terms.
    pub(crate) fn new_leader(
        &self,
        node: u64,
        term: u64,
        has: impl Fn(u64, u64) -> bool,
    ) -> Verdict {
        let mut committed = self.committed.iter().rev();
        let Some((&index, (agreed, _))) = committed.find(|(_, (_, since))| *since < term) else {
            return Ok(());
        };
        ensure!(
            has(index, agreed.term),
            "leader completeness: node {node} leads in term {term} without entry {index} of term {}",
            agreed.term
        );
        Ok(())
    }

    /// Checks log matching: two entries with equal index and term are equal, and so are the entries before
    /// them.
    pub(crate) fn entry(&mut self, index: u64, held: Held, before: Option<u64>) -> Verdict {
        let seen = self.entries.entry((index, held.term));
        let seen = seen.or_insert((held.crc, before));
        ensure!(
            seen.0 == held.crc,
            "log matching: two entries {index} of term {}",
            held.term
        );
        if let (Some(one), Some(other)) = (seen.1, before) {
            ensure!(
                one == other,
                "log matching: entry {index} of term {} follows terms {one} and {other}",
                held.term
            );
        }
        seen.1 = seen.1.or(before);
        // A node that led in vain before the commit may still have another entry, of a term between the two,
        // so the oracle accepts that.
        if let Some((agreed, since)) = self.committed.get(&index) {
            ensure!(
                held.term <= *since,
                "committed never changes: entry {index} of term {} was written, that of term {} was committed in term {since}",
                held.term,
                agreed.term
            );
        }
        Ok(())
    }

    /// Checks an applied entry: all nodes must apply one entry at an index, with equal outcomes. `term` is
    /// the node's term.
    pub(crate) fn applied(
        &mut self,
        entry: &Committed,
        outcomes: &[Outcome],
        term: Since,
    ) -> Verdict {
        let now = Agreed {
            term: entry.term.get(),
            crc: crc32c::crc32c(&entry.data),
            outcomes: digest_outcomes(outcomes),
        };
        let index = entry.index.get();
        if let Some(&(before, _)) = self.committed.get(&index) {
            ensure!(
                (before.term, before.crc) == (now.term, now.crc),
                "committed never changes: entry {index} was of term {}, now of term {}",
                before.term,
                now.term
            );
            ensure!(
                before.outcomes == now.outcomes,
                "equal state machines: entry {index} comes to something else: {outcomes:?}"
            );
            return Ok(());
        }
        if let Some((&last, (agreed, _))) = self.committed.last_key_value() {
            ensure!(
                index > last && entry.term.get() >= agreed.term,
                "committed never changes: entry {index} of term {} after {last} of term {}",
                entry.term,
                agreed.term
            );
        }
        self.committed.insert(index, (now, term));
        let modelled = self.model.apply(&entry.data, outcomes);
        modelled.map_err(|what| format!("entry {index}: {what}"))
    }

    pub(crate) fn last_committed(&self) -> u64 {
        self.committed.last_key_value().map_or(0, |(&i, _)| i)
    }

    /// Checks that an acknowledged entry is on the durable disks of a majority.
    pub(crate) fn acked<'a>(
        &self,
        index: u64,
        term: u64,
        voters: usize,
        disks: impl Iterator<Item = &'a Ledger>,
    ) -> Verdict {
        let count = disks.filter(|disk| disk.holds(index, term)).count();
        ensure!(
            2 * count > voters,
            "an ack before a majority is durable: entry {index} of term {term} is on {count} of {voters} disks"
        );
        Ok(())
    }

    /// Returns the highest sequence that a node acknowledged in the stream.
    pub(crate) fn floor(&self, stream: u32) -> u64 {
        self.floors.get(&stream).copied().unwrap_or(0)
    }

    /// Checks an acknowledgement that a client receives against the model.
    pub(crate) fn told(&mut self, acked: Acked) -> Verdict {
        let model = self.model.streams.get(&acked.stream);
        ensure!(
            model.and_then(|s| s.messages.get(&acked.seq)) == Some(&acked.crc),
            "an ack names message {} of stream {}, which is another",
            acked.seq,
            acked.stream
        );
        ensure!(
            acked.again || acked.seq > acked.floor,
            "message {} of stream {} was stored before {}, which was acknowledged before it was sent",
            acked.seq,
            acked.stream,
            acked.floor
        );
        let floor = self.floors.entry(acked.stream).or_default();
        *floor = (*floor).max(acked.seq);
        self.acked.push(acked);
        Ok(())
    }

    /// Checks that all nodes have equal streams after an entry.
    pub(crate) fn state(&mut self, index: u64, streams: &Streams) -> Verdict {
        let digest = digest(streams);
        let first = *self.states.entry(index).or_insert(digest);
        ensure!(
            first == digest,
            "equal state machines: the streams after entry {index} differ"
        );
        if index == self.last_committed() {
            let kept = self.model.retained.check(streams);
            let kept = kept.and_then(|()| self.model.takers.tapped.check(streams));
            kept.map_err(|what| format!("after entry {index}: {what}"))?;
        }
        Ok(())
    }
}

fn digest_outcomes(outcomes: &[Outcome]) -> u64 {
    let mut hash = Fnv::default();
    for outcome in outcomes {
        match outcome {
            Outcome::Stored { stream, seq } => hash.all(&[1, u64::from(stream.get()), seq.get()]),
            Outcome::Duplicate { stream, seq } => {
                hash.all(&[2, u64::from(stream.get()), seq.get()])
            }
            other => hash.write(format!("{other:?}").as_bytes()),
        }
    }
    hash.0
}

/// Returns the checksum of the streams without the places of messages, which differ between nodes.
fn digest(streams: &Streams) -> u64 {
    let mut hash = Fnv::default();
    for stream in streams.iter() {
        let state = stream.state();
        hash.all(&[
            u64::from(stream.id().get()),
            stream.created_us(),
            state.messages,
            state.bytes,
            state.first_seq.get(),
            state.last_seq.get(),
            state.last_time_us,
        ]);
        for seq in state.first_seq.up_to(state.last_seq.next()) {
            if let Some(message) = stream.message(seq) {
                let subject = crc32c::crc32c(&message.subject);
                let fields = [
                    seq.get(),
                    message.time_us,
                    message.bytes.into(),
                    subject.into(),
                ];
                hash.all(&fields);
            }
        }
        for (name, consumer) in stream.consumers() {
            hash.write(name.as_bytes());
            hash.write(&consumer.state().encode());
        }
        for (id, seq, time_us) in stream.remembered_ids() {
            hash.write(id);
            hash.all(&[seq.get(), time_us]);
        }
    }
    hash.0
}

/// Finds the places of message ids in a snapshot of streams. Only the clients' ids have this form.
pub(crate) fn ids(state: &[u8]) -> impl Iterator<Item = Range<usize>> {
    (4..state.len()).filter_map(|at| {
        let len = u32::from_le_bytes(*state[at - 4..].first_chunk()?);
        if !(3..16).contains(&len) {
            return None;
        }
        let range = at..at + len as usize;
        let text = state.get(range.clone())?;
        let shaped = text.iter().all(|b| b.is_ascii_digit() || *b == b'-');
        (shaped && text.contains(&b'-')).then_some(range)
    })
}

/// A hash that gives equal results in every process, unlike the standard library's hash.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn all(&mut self, words: &[u64]) {
        for word in words {
            self.0 = (self.0 ^ word).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Whole words at once, because a checksum of all streams follows on each entry.
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.all(&[u64::from_le_bytes(*word)]);
        }
        for byte in rest {
            self.all(&[u64::from(*byte)]);
        }
        self.all(&[bytes.len() as u64]);
    }
}

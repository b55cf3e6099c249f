//! Runs a node's part in one of its groups: the real streams, applied as the server's loop does it, and the
//! requests that wait for answers. The store belongs to the node.

use std::collections::VecDeque;

use bytes::Bytes;
use tidegate_cluster::groups::GroupId;
use tidegate_cluster::slots::GroupSlot;
use tidegate_raft::replica::EntryId;
use tidegate_raft::store::{Due, Fetch, Store, WriteError, account, relocate};
use tidegate_stream::schema::config::StreamConfig;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{Command, Effect, Encoder, Kind, Outcome, Place, Streams};

use crate::catch_up::CatchingUp;
use crate::client::{Request, Told};
use crate::consume::Proposed;
use crate::coverage::Coverage;
use crate::dice::Dice;
use crate::node::Answer;
use crate::oracle::{Oracle, Verdict, ensure};
use crate::run::variable;

/// The configurations of the streams that the leader creates, which in reality a client would have created
/// earlier.
const STREAMS: [&str; 8] = [
    r#"{"name":"S","subjects":["s.>"],"duplicate_window":86400000000000,
        "subject_transform":{"src":"s.*","dest":"mapped.{{partition(2,1)}}.$1"},"republish":{"dest":"r.>"}}"#,
    r#"{"name":"T","subjects":["t.>"],"max_msgs":60,"duplicate_window":86400000000000}"#,
    r#"{"name":"Q","subjects":["q.>"],"retention":"workqueue","duplicate_window":86400000000000}"#,
    r#"{"name":"I","subjects":["i.>"],"retention":"interest","duplicate_window":86400000000000}"#,
    r#"{"name":"M","mirror":{"name":"S"}}"#,
    r#"{"name":"F","sources":[{"name":"Q","filter_subject":"q.>"}]}"#,
    r#"{"name":"P","subjects":["p.>"],"retention":"workqueue","duplicate_window":86400000000000}"#,
    r#"{"name":"G","sources":[{"name":"P","consumer":{"name":"C","deliver_subject":"d"}}]}"#,
];
/// The number of streams that all seeds have.
const OWN: usize = 4;

/// Returns whether the simulation has streams with origins: with `ORIGINS=1`. These make the leaders propose
/// so much that some seeds need more time than a seed has.
pub(crate) fn has_origins() -> bool {
    variable("ORIGINS").is_some()
}

/// Returns the streams of the simulation.
fn streams() -> &'static [&'static str] {
    match has_origins() {
        true => &STREAMS,
        false => &STREAMS[..OWN],
    }
}

/// The number of the stream that keeps only the last messages. No client expects an acknowledged message to
/// stay in it.
const LIMITED: StreamNumber = StreamNumber::new(2);
/// The leader purges subjects of this stream with every eighth entry of requests.
const PURGED_EVERY: u64 = 8;
/// The most bytes of requests that the leader puts into one entry.
const ENTRY_BYTES_MAX: usize = 12 << 10;

/// A node's part in one group, see the [module](self).
pub(crate) struct Member {
    /// The group's slot in the store, and (`group`) its number.
    pub(crate) at: GroupSlot,
    pub(crate) group: GroupId,
    pub(crate) streams: Streams,
    pending: VecDeque<Request>,
    /// The clients' requests that wait for a proposed entry, with the entry's index and term, in order.
    waiting: VecDeque<(u64, u64, Vec<Request>)>,
    /// The last entry that this member has applied.
    pub(crate) applied: EntryId,
    pub(crate) led: bool,
    /// True if at most half of the group's members have space, so that the leader takes no messages, as in
    /// the server.
    pub(crate) crowded: bool,
    /// The state at the beginning of the snapshot that the member takes now, as bytes, with which the test
    /// compares the snapshot.
    pub(crate) promised: Vec<u8>,
    outcomes: Vec<Outcome>,
    effects: Vec<Effect>,
    checking: Vec<(u32, u64)>,
    /// The number of entries with requests that the member has proposed.
    proposed: u64,
    pub(crate) catching_up: CatchingUp,
    pub(crate) consuming: Proposed,
    pub(crate) working: Proposed,
    pub(crate) taking: Proposed,
}

impl Member {
    pub(crate) fn new(at: GroupSlot, group: GroupId, streams: Streams) -> Self {
        Self {
            at,
            group,
            streams,
            pending: VecDeque::new(),
            waiting: VecDeque::new(),
            applied: EntryId::ZERO,
            led: false,
            crowded: false,
            promised: Vec::new(),
            outcomes: Vec::new(),
            effects: Vec::new(),
            checking: Vec::new(),
            proposed: 0,
            catching_up: CatchingUp::default(),
            consuming: None,
            working: None,
            taking: None,
        }
    }

    /// Queues a client's request until the leader proposes it.
    pub(crate) fn request(&mut self, request: Request) {
        self.pending.push_back(request);
    }

    /// Replaces the member's state with the fetched state once that is durable.
    pub(crate) fn take_over(&mut self, store: &mut Store, oracle: &mut Oracle) -> Verdict {
        if let Some(entry) = store.poll_installed(self.at) {
            let index = entry.index.get();
            let installing = std::mem::take(&mut self.catching_up).installing;
            let (of, streams) = installing.ok_or("a state is installed that nobody fetched")?;
            ensure!(
                of == index,
                "the state of entry {of} is installed as that of {index}"
            );
            (self.streams, self.applied) = (streams, entry);
            self.checking.clear();
            oracle.state(index, &self.streams)?;
        } else if self.catching_up.installing.is_some() && !store.is_installing(self.at) {
            self.catching_up = CatchingUp::default();
        }
        Ok(())
    }

    /// Applies a committed entry, or handles a relocation, that the store hands out.
    pub(crate) fn handle(
        &mut self,
        store: &mut Store,
        due: Due,
        oracle: &mut Oracle,
        answers: &mut Vec<Answer>,
    ) -> Verdict {
        let entry = match due {
            Due::Entry(entry) => entry,
            Due::Relocated(moved) => {
                relocate(&mut self.streams, &moved, store.live_mut(self.at));
                return Ok(());
            }
        };
        ensure!(
            entry.index > self.applied.index,
            "entry {} is due after {}",
            entry.index,
            self.applied.index
        );
        self.applied = entry.id();
        self.outcomes.clear();
        self.effects.clear();
        let (outcomes, effects) = (&mut self.outcomes, &mut self.effects);
        self.streams
            .apply(entry.lsn.get(), &entry.data, outcomes, effects)
            .map_err(|e| format!("entry {}: {e}", entry.index))?;
        account(&self.effects, store.live_mut(self.at));
        let term = store.group(self.at).term();
        oracle.applied(&entry, &self.outcomes, term.get())?;
        let (index, term) = (entry.index.get(), entry.term.get());
        self.answer(index, term, answers);
        if index % 64 == 0 {
            oracle.state(index, &self.streams)?;
        }
        Ok(())
    }

    /// Proposes the clients' requests to the group, as entries, if this node leads.
    pub(crate) fn propose(&mut self, store: &mut Store, wall: u64, answers: &mut Vec<Answer>) {
        if !store.group(self.at).leads() {
            self.refuse(answers);
            return;
        }
        let streams = streams();
        if self.streams.len() < streams.len() {
            // The leader creates the streams by an entry for which no client waits. If the group commits it
            // twice, that does no harm.
            if self.waiting.is_empty() && !self.pending.is_empty() {
                let mut buffer = Vec::new();
                let mut encoder = Encoder::begin(&mut buffer, wall);
                for config in streams {
                    let parsed: StreamConfig =
                        serde_json::from_str(config).expect("a valid configuration");
                    let create = Command::new(
                        Kind::creating(&parsed),
                        StreamNumber::NONE,
                        b"",
                        config.as_bytes(),
                    );
                    let _ = encoder.command(&create);
                }
                if let Ok(proposed) = store.propose(self.at, Bytes::from(buffer), 1) {
                    let (index, term) = (proposed.index.get(), proposed.term.get());
                    self.waiting.push_back((index, term, Vec::new()));
                }
            }
            return;
        }
        if self.crowded {
            return;
        }
        while !self.pending.is_empty() {
            let mut buffer = Vec::new();
            let mut encoder = Encoder::begin(&mut buffer, wall);
            let mut taken = Vec::new();
            while encoder.encoded_bytes() < ENTRY_BYTES_MAX
                && let Some(request) = self.pending.pop_front()
            {
                let stream = self
                    .streams
                    .capture(&request.subject)
                    .unwrap_or(StreamNumber::NONE);
                let headers = Some(&request.headers[..]);
                // The leader maps the subject, because all nodes must store the message under one subject.
                let mapped = self.streams.get(stream);
                let mapped = mapped.and_then(|s| s.stored_subject(&request.subject, 0));
                let subject = mapped.as_deref().unwrap_or(&request.subject);
                let _ = encoder.publish(stream, subject, headers, &request.payload);
                taken.push(request);
            }
            self.proposed += 1;
            if self.proposed.is_multiple_of(PURGED_EVERY) {
                let filter =
                    ["t.*", "t.1", "*.2", "t.>"][(self.proposed / PURGED_EVERY % 4) as usize];
                // The leader hints at the purge that it proposes eight entries later, at a part of it, or at
                // another purge, so that the nodes are prepared or not.
                let hint = ["t.1", "*.2", "t.>", "t.*"][(self.proposed / 3 % 4) as usize];
                let _ = encoder.command(&Streams::hint(LIMITED, hint));
                let purge = format!(r#"{{"filter":"{filter}"}}"#);
                let purge = Command::new(Kind::Purge, LIMITED, b"", purge.as_bytes());
                let _ = encoder.command(&purge);
            }
            match store.propose(self.at, Bytes::from(buffer), taken.len() as u64) {
                Ok(proposed) => {
                    let (index, term) = (proposed.index.get(), proposed.term.get());
                    self.waiting.push_back((index, term, taken));
                }
                Err(WriteError::NotLeader) => {
                    let told = taken.iter().map(|r| (r.elsewhere(), None));
                    answers.extend(told);
                }
                Err(_) => {
                    taken
                        .into_iter()
                        .rev()
                        .for_each(|r| self.pending.push_front(r));
                    return;
                }
            }
        }
    }

    /// Proposes a purge that matches no message, and returns its index. A full disk takes the entry from its
    /// reserve.
    pub(crate) fn propose_purge(&self, store: &mut Store, wall: u64) -> Option<u64> {
        let mut buffer = Vec::new();
        let mut encoder = Encoder::begin(&mut buffer, wall);
        let purge = br#"{"filter":"none.such"}"#;
        let _ = encoder.command(&Command::new(Kind::Purge, StreamNumber::FIRST, b"", purge));
        let proposed = store.propose(self.at, Bytes::from(buffer), 1);
        proposed.ok().map(|p| p.index.get())
    }

    /// Begins a new term as leader: forgets the requests that it proposed in an earlier term, without an
    /// answer.
    pub(crate) fn begin_term(&mut self) {
        self.waiting.clear();
    }

    /// Refuses the pending requests at a node that does not lead, so that their clients ask another node. The
    /// group may still commit proposed requests; their clients get no answer.
    fn refuse(&mut self, answers: &mut Vec<Answer>) {
        let pending = self.pending.drain(..);
        answers.extend(pending.map(|r| (r.elsewhere(), None)));
    }

    /// Answers the clients' requests that wait for the entry that this member has just applied.
    fn answer(&mut self, index: u64, term: u64, answers: &mut Vec<Answer>) {
        while self.waiting.front().is_some_and(|w| w.0 <= index)
            && let Some((at, of, requests)) = self.waiting.pop_front()
        {
            if (at, of) != (index, term) {
                continue;
            }
            for (request, outcome) in requests.iter().zip(&self.outcomes) {
                let told = match outcome {
                    Outcome::Stored { stream, seq } => Told::Stored {
                        stream: stream.get(),
                        seq: seq.get(),
                        again: false,
                    },
                    Outcome::Duplicate { stream, seq } => Told::Stored {
                        stream: stream.get(),
                        seq: seq.get(),
                        again: true,
                    },
                    Outcome::Refused { error, .. } => {
                        let text = error.to_string();
                        let last = text.strip_prefix("wrong last sequence: ");
                        let last = last.and_then(|t| t.split(' ').next()?.parse().ok());
                        last.map_or(Told::Refused(text), |last| Told::Wrong { last })
                    }
                    other => Told::Refused(format!("{other:?}")),
                };
                answers.push((request.reply(told), Some((index, term))));
            }
        }
    }

    /// Reads a message through the store, as a consumer would, and checks that its payload is the stored one.
    pub(crate) fn consume(
        &mut self,
        store: &mut Store,
        dice: &mut Dice,
        oracle: &Oracle,
        seen: &mut Coverage,
    ) -> Result<(), String> {
        if self.checking.len() < 4 {
            for (&stream, model) in &oracle.model.streams {
                let state = self
                    .streams
                    .get(StreamNumber::new(stream))
                    .map(|s| s.state());
                if let Some(state) = state.filter(|s| s.messages > 0 && !model.messages.is_empty())
                {
                    let seq = dice.range(state.first_seq.get(), state.last_seq.get());
                    self.checking.push((stream, seq));
                }
            }
        }
        let checking = std::mem::take(&mut self.checking);
        for (stream, seq) in checking {
            let place = self
                .streams
                .get(StreamNumber::new(stream))
                .and_then(|s| s.place(StreamSeq::new(seq)));
            let Some(place) = place else {
                continue;
            };
            match self.message(store, place) {
                Ok(None) => self.checking.push((stream, seq)),
                Ok(Some(crc)) => {
                    seen.hit("messages read");
                    ensure!(
                        oracle.model.streams[&stream].messages.get(&seq) == Some(&crc),
                        "message {seq} of stream {stream} is read as another"
                    );
                }
                // After a restart, a node may not have applied the entry that released the message's segment,
                // so the read may fail; a leader has applied it.
                Err(what) if what.starts_with("Gone") && !store.leads_settled(self.at) => {}
                Err(what) => return Err(format!("message {seq} of stream {stream}: {what}")),
            }
        }
        Ok(())
    }

    /// Returns the checksum of the payload at a place, once the store has read it; `None` before.
    pub(crate) fn message(&self, store: &mut Store, place: Place) -> Result<Option<u32>, String> {
        match store.read(self.at, place) {
            Fetch::Ready(entry) => {
                let command = Command::read(&entry, 0).map_err(|e| e.to_string())?;
                Ok(Some(crc32c::crc32c(command.payload)))
            }
            Fetch::Pending => Ok(None),
            other => Err(format!("{other:?} at {place:?}")),
        }
    }
}

//! Makes origins keep messages for the streams that take them in. An origin with retention for its consumers
//! counts each stream that takes in its messages as a consumer, the *holder*, and keeps a message until that
//! stream has it.
//!
//! A holder is a consumer in the log, under a name that no client can use. No client receives from the
//! holder. The origin's leader creates the holder before it gives the first message. A request for messages
//! states the progress in the log of the asking group, so a quorum of that group has the messages up to
//! there. The leader then proposes a delta by which the holder has settled them, and the origin removes the
//! messages that no other consumer needs. A message is therefore never removed before the other stream has it
//! for good.
//!
//! The leader deletes a holder once the directory lists no such source any more. The holder notes the entry
//! of the directory at which it was created, and only a directory that has got at least as far counts.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate::Time;
use tidegate_cluster::groups::ALL;
use tidegate_stream::consumer::{Start, settled_up_to};
use tidegate_stream::schema::config::{AckPolicy, ConsumerConfig};
use tidegate_stream::schema::metadata::Metadata;
use tidegate_stream::schema::number::{DirectoryNumber, StreamNumber};
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{
    Command, ConsumerRequest, HOLDER_PREFIX, Kind, Progress, Stream, Transit,
};

use super::giving::filter_of;
use crate::streams::JetStream;
use crate::streams::context::Context;
use crate::streams::directory::leader_message::taking::Request;
use crate::streams::outcome::Then;

/// The time after which the leader proposes a command about a holder again if the group has not applied it.
const AGAIN: Duration = Duration::from_secs(1);
/// The most messages that one delta of a holder settles, so that the delta fits into an entry.
const SETTLED_MAX: usize = 4096;
/// The key of a holder's metadata, where the leader stores the directory's entry at which it created the
/// holder.
const DIRECTORY: &str = "_nats.tidegate.directory";

/// Keeps the commands about holders that the leader has proposed, so that it does not repeat them too early.
#[derive(Debug, Default)]
pub(super) struct Holding {
    /// For each holder, the time after which the leader may propose a command about it again, with the
    /// position of the holder at the last proposal.
    proposed: BTreeMap<(StreamNumber, String), (Option<StreamSeq>, Time)>,
    /// The change counters of the directory and of the group's streams when the leader last looked for
    /// holders without a stream. The leader looks again only after a change, to save the search.
    looked: Option<(u64, u64)>,
}

/// Makes the name under which the log keeps the holder for a source of the stream `target`.
fn holder_name(target: DirectoryNumber, key: &str) -> String {
    format!("{HOLDER_PREFIX}{target}.{key}")
}

impl JetStream {
    /// Makes the origin `own` keep messages for the stream that asks, and lets the origin remove the messages
    /// that the stream has. Returns whether the origin already keeps messages for that stream, so that the
    /// leader may give them.
    pub(super) fn hold(
        &mut self,
        cx: &Context<'_>,
        now: Time,
        own: StreamNumber,
        request: &Request,
    ) -> bool {
        let Some(origin) = self.streams.get(own) else {
            return false;
        };
        let name = holder_name(request.target, &request.source.key());
        let same = |p: &Progress| {
            p.origin.number == request.origin && p.origin.created_us == origin.created_us()
        };
        let has = request.logged.filter(same).map(|p| p.seq);
        let volatile = origin.in_memory();
        let Some(holder) = origin.consumer(&name) else {
            if self.may_propose(now, own, &name, None) {
                let mut metadata = Metadata::new();
                metadata.insert(DIRECTORY, &self.directory_index(cx).to_string());
                let config = ConsumerConfig {
                    name: name.clone(),
                    description: "keeps messages for a mirror or a source".into(),
                    ack_policy: AckPolicy::Explicit,
                    max_deliver: -1,
                    max_ack_pending: -1,
                    filter_subjects: request.source.filters().map(str::to_owned).collect(),
                    metadata,
                    ..ConsumerConfig::default()
                };
                let request = ConsumerRequest {
                    config,
                    action: "create".to_owned(),
                    start: has.map(|seq| Start::At(seq.next())),
                };
                let payload = serde_json::to_vec(&request);
                let payload = payload.expect("a configuration is plain data");
                let create = Command::new(Kind::CreateConsumer, own, name.as_bytes(), &payload);
                self.command(now, volatile, &create, Some((b"", Then::Noted)));
            }
            return false;
        };
        let floor = holder.state().delivered().stream_seq;
        let Some(has) = has.filter(|has| *has > floor) else {
            return true;
        };
        let (to, settled) = settled(origin, request, floor, has);
        let delta = settled_up_to(holder.state(), to, &settled);
        if self.may_propose(now, own, &name, Some(floor)) {
            let delta = Command::new(Kind::SettlingDelta, own, name.as_bytes(), &delta);
            self.command(now, volatile, &delta, Some((b"", Then::Noted)));
        }
        true
    }

    /// Returns whether the leader may propose a command about a holder at this position, and if so records
    /// the proposal, so that the leader does not repeat it too early.
    fn may_propose(
        &mut self,
        now: Time,
        own: StreamNumber,
        name: &str,
        floor: Option<StreamSeq>,
    ) -> bool {
        let holding = &mut self.giving.holding.proposed;
        if holding.len() > 4096 {
            holding.retain(|_, (_, at)| *at > now);
        }
        let key = (own, name.to_owned());
        let waits = holding
            .get(&key)
            .is_some_and(|(at, until)| *at == floor && *until > now);
        if !waits {
            holding.insert(key, (floor, now + AGAIN));
        }
        !waits
    }

    /// Returns the index of the last entry of the directory that this node has applied, which the leader
    /// stores with a new holder.
    fn directory_index(&self, cx: &Context<'_>) -> u64 {
        match self.group {
            ALL => self.directory.applied,
            _ => cx
                .around
                .streams_of(ALL)
                .map_or(0, |all| all.directory.applied),
        }
    }

    /// Deletes the holders of streams that do not take in messages any more, so that the origin may remove
    /// its messages. Looks for such holders only if the directory or the group's streams have changed.
    pub(super) fn release_holders(&mut self, cx: &Context<'_>, now: Time) {
        let directory = match self.group {
            ALL => Some(&*self),
            _ => cx.around.streams_of(ALL),
        };
        let Some(directory) = directory else {
            return;
        };
        let changes = (directory.applied().changes(), self.streams.changes());
        if self.giving.holding.looked == Some(changes) {
            return;
        }
        let index = directory.directory.applied;
        let takes = |holder: &str| {
            let (target, key) = holder.strip_prefix(HOLDER_PREFIX)?.split_once('.')?;
            let target = DirectoryNumber::new(target.parse().ok()?);
            let entry = directory.applied().entry(target)?;
            let origins = entry.config().origins();
            origins.map(|source| source.key()).find(|k| k == key)
        };
        let mut gone = Vec::new();
        for stream in self.streams.holding() {
            if !stream.home().is_here() && !self.is_open_here(stream)
                || stream.transit() != Transit::None
            {
                continue;
            }
            let holders = stream.consumers_after(Some(HOLDER_PREFIX));
            for name in holders.take_while(|name| name.starts_with(HOLDER_PREFIX)) {
                let config = stream.consumer(name).map(|c| c.config().nameless());
                let at = config.and_then(|config| config.metadata.get(DIRECTORY)?.parse().ok());
                if at.is_none_or(|at: u64| at <= index) && takes(name).is_none() {
                    gone.push((stream.id(), stream.in_memory(), name.to_owned()));
                }
            }
        }
        self.giving.holding.looked = Some(changes);
        for (own, volatile, name) in gone {
            let delete = Command::new(Kind::DeleteConsumer, own, name.as_bytes(), b"");
            self.command(now, volatile, &delete, Some((b"", Then::Noted)));
        }
    }
}

/// Finds the messages that the holder no longer needs when its progress goes from `floor` towards `has`.
/// Returns the new progress and the messages, as runs, for a delta.
fn settled(
    origin: &Stream,
    request: &Request,
    floor: StreamSeq,
    has: StreamSeq,
) -> (StreamSeq, Vec<std::ops::RangeInclusive<StreamSeq>>) {
    let mut filter = filter_of(&request.source);
    let mut runs: Vec<std::ops::RangeInclusive<StreamSeq>> = Vec::new();
    let mut next = floor.next();
    for _ in 0..SETTLED_MAX {
        let Some(seq) = origin.next_at(next, &mut filter).filter(|seq| *seq <= has) else {
            return (has, runs);
        };
        match runs.last_mut() {
            Some(run) if run.end().next() == seq => *run = *run.start()..=seq,
            _ => runs.push(seq..=seq),
        }
        next = seq.next();
    }
    (next.prev(), runs)
}

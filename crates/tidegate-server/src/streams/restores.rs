//! Restores streams from backups that clients send in chunks.
//!
//! The leader of the stream's group reads the backup ([`tidegate_stream::backup`]) and proposes it in parts
//! ([`RestorePart`]). It proposes the last part only once the client has sent everything and the backup has
//! turned out to be whole, so a stream is either restored completely or deleted. The state of the reader is
//! in this node's memory alone: if the leader goes, the restoration cannot continue, and the next leader
//! deletes the stream.
//!
//! The chunks arrive at a subject that names the group and the restoration. The leader confirms a chunk once
//! it has read most of it, so that a client that waits for the confirmations never sends too much.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate::Time;
use tidegate_cluster::groups::{ALL, GroupId};
use tidegate_nats::parse::Publish;
use tidegate_raft::store::Space;
use tidegate_stream::api::answer::{self, Kind as Answer};
use tidegate_stream::api::view;
use tidegate_stream::backup::{Item, Reader, Step, StreamFacts};
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::{DirectoryNumber, StreamNumber};
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{
    COMMAND_HEADER_BYTES, Command, Home, Kind, Outcome, RestoreEnd, RestorePart, Stream, Transit,
};

use super::context::Context;
use super::directory::leader_message::LeaderMessage;
use super::events::Advised;
use super::outcome::Then;
use super::speak::unique;
use super::{JetStream, Taken};

/// The beginning of the subjects to which clients send the chunks of backups. Nodes hand messages with this
/// prefix to the leader of the group in the subject.
pub(crate) const CHUNKS: &str = "$JS.SNAPSHOT.RESTORE.";
/// The most streams that a group restores at the same time, so that the readers of backups take bounded
/// memory.
const RUNNING_MAX: usize = 16;
/// The time after which the leader gives a restoration up if the client sends no chunk, so that a lost client
/// leaves no stream behind.
const STALLED: Duration = Duration::from_secs(5);
/// The time after which the leader repeats a proposal or a message of a restoration that had no effect.
const AGAIN: Duration = Duration::from_millis(250);
/// The number of bytes of messages that the leader gathers before it proposes a part, and (`IN_FLIGHT_MAX`)
/// the most parts of one backup that wait for the log. Both bound the leader's memory.
const PART_BYTES: usize = 256 * 1024;
const IN_FLIGHT_MAX: usize = 8;
/// The leader confirms a chunk once the reader has fewer unread bytes than this, so that the client sends the
/// next one, and (`UNREAD_BYTES_MAX`) gives up a client that sends more without waiting for confirmations.
const UNREAD_BYTES_LOW: usize = 128 * 1024;
const UNREAD_BYTES_MAX: usize = 16 << 20;
/// The most steps of a backup's reader in one turn, so that no turn takes long. Each step decompresses at
/// most 32 KiB or hands out an item.
const STEPS_A_TURN: usize = 512;
/// The number of bytes of messages that the leader takes out of backups in one turn, so that no turn takes
/// long.
const BYTES_A_TURN: usize = 256 * 1024;

/// The streams that clients restore at this group's leader, by stream, see the [module](self).
#[derive(Debug, Default)]
pub(super) struct Restores {
    running: BTreeMap<StreamNumber, Restoring>,
    /// The streams that a client began to restore at an earlier leader. This leader has no client for them,
    /// so it gives each up at the time in the map.
    orphans: BTreeMap<StreamNumber, Time>,
    /// The change counter of the group's streams when the leader last looked for streams without a client.
    /// The leader looks again only after a change, to save the search.
    looked: Option<u64>,
    begun: u64,
}

/// A stream that a client restores, and the progress of the leader with its backup, from which the next turn
/// goes on.
#[derive(Debug)]
struct Restoring {
    /// The token in the subject of the chunks, unique to this restoration, by which the leader knows the
    /// chunks' backup.
    token: String,
    reader: Reader,
    facts: StreamFacts,
    part: RestorePart,
    /// The number of the part that the leader proposes next, so that the nodes apply the parts in order.
    next: u64,
    in_flight: usize,
    /// True while the reader needs more bytes from the client, or has read the whole backup. The leader then
    /// confirms chunks and reads no further.
    hungry: bool,
    /// The reply subjects of the clients that wait until the leader confirms their chunk, so that they send
    /// the next one.
    unconfirmed: Vec<Box<[u8]>>,
    /// The highest sequence among the messages that the leader has read from the backup, and the time of the
    /// latest one in microseconds since 1970. The last part of the restoration states both.
    last: (StreamSeq, u64),
    /// The reply subject of the client that has sent everything and waits until the leader has restored the
    /// stream.
    waiter: Option<Box<[u8]>>,
    /// The number of bytes in the chunks that the leader has taken so far, for the advisory at the end.
    bytes: u64,
    begun_us: u64,
    state: State,
    until: Time,
}

#[derive(Debug)]
enum State {
    /// The leader reads the backup and proposes parts of it, until the backup ends.
    Reading,
    /// The leader has proposed the last part, and waits for its outcome.
    Ending,
    /// The restoration has failed, so the leader deletes the stream. Then the leader answers the clients with
    /// this error.
    Failed(ApiError),
}

impl Restores {
    /// Returns the time of the leader's next work. If the log is `full`, the leader reads no backup until the
    /// log has room, which wakes the node, so it does not ask for turns meanwhile.
    pub(super) fn deadline(&self, full: bool) -> Option<Time> {
        let running = self.running.values().map(|r| match r.is_busy() && !full {
            true => Time::ZERO,
            false => r.until,
        });
        running.chain(self.orphans.values().copied()).min()
    }
}

impl Restoring {
    fn is_busy(&self) -> bool {
        matches!(self.state, State::Reading) && self.in_flight < IN_FLIGHT_MAX && !self.hungry
    }

    fn fail(&mut self, now: Time, error: ApiError) {
        if !matches!(self.state, State::Failed(_)) {
            self.state = State::Failed(error);
            self.until = now;
        }
    }
}

/// Reads the group and the token from the subject of a chunk or a confirmation, behind `prefix`, so that the
/// node finds the backup or restoration. The rest of the subject has no meaning here.
pub(super) fn address<'a>(subject: &'a [u8], prefix: &str) -> Option<(GroupId, &'a str)> {
    let rest = subject.strip_prefix(prefix.as_bytes())?;
    let mut tokens = std::str::from_utf8(rest).ok()?.split('.');
    let (_stream, of) = (tokens.next()?, tokens.next()?);
    let (group, token) = of.split_once('-')?;
    Some((GroupId::new(group.parse().ok()?), token))
}

impl JetStream {
    /// Begins to restore a stream, which the group has created empty for that, and answers the client with
    /// the subject of the chunks, to which the client then sends the backup.
    pub(super) fn begin_restore(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        reply: &[u8],
        own: StreamNumber,
    ) {
        let kind = Answer::StreamRestore;
        let stream = self.streams.get(own).filter(|s| s.is_restoring());
        let Some(name) = stream.map(|s| s.name().to_owned()) else {
            let body = answer::refused(kind.as_str(), &ApiError::STREAM_NOT_FOUND);
            return self.voice(cx, now).answer_with(reply, &body);
        };
        if self.restores.running.len() >= RUNNING_MAX {
            self.stats.api_errors += 1;
            let error = ApiError::restore_failed(format_args!(
                "{RUNNING_MAX} streams are being restored already: try again later"
            ));
            let body = answer::refused(kind.as_str(), &error);
            self.voice(cx, now).answer_with(reply, &body);
            self.restores.orphans.insert(own, now);
            return;
        }
        self.restores.begun += 1;
        let begun_us = self.wall.peek(now);
        let token = unique(self.speech.seed ^ begun_us, self.restores.begun, 22);
        let subject = format!("{CHUNKS}{name}.{}-{token}", self.group);
        let restoring = Restoring {
            token,
            reader: Reader::new(&name),
            facts: StreamFacts::default(),
            part: RestorePart::default(),
            next: 0,
            in_flight: 0,
            hungry: true,
            unconfirmed: Vec::new(),
            last: (StreamSeq::ZERO, 0),
            waiter: None,
            bytes: 0,
            begun_us,
            state: State::Reading,
            until: now + STALLED,
        };
        self.restores.running.insert(own, restoring);
        self.restores.orphans.remove(&own);
        let mut voice = self.voice(cx, now);
        voice.advise(&Advised::RestoreBegun { stream: &name });
        voice.answer_with(reply, &view::stream_restore(&subject));
    }

    /// Takes a chunk of a backup that a client sends; by an empty chunk the client says that it has sent
    /// everything.
    pub(super) fn handle_chunk(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        message: &Publish<'_>,
    ) -> Taken {
        let token = address(message.subject, CHUNKS).map(|(_, token)| token);
        let mut running = self.restores.running.values_mut();
        let Some(restoring) = running.find(|r| Some(&*r.token) == token) else {
            if let Some(reply) = message.reply {
                let error = ApiError::restore_failed(
                    "the restoration has ended, or its leader has changed: begin again",
                );
                let body = answer::refused(Answer::StreamCreate.as_str(), &error);
                self.voice(cx, now).answer_with(reply, &body);
            }
            return Taken::Yes;
        };
        let Some(reply) = message.reply else {
            let error = ApiError::restore_failed("each chunk requires a reply subject");
            restoring.fail(now, error);
            return Taken::Yes;
        };
        if matches!(restoring.state, State::Failed(_)) {
            restoring.unconfirmed.push(reply.into());
            return Taken::Yes;
        }
        if matches!(restoring.state, State::Reading) {
            restoring.until = now + STALLED;
        }
        restoring.bytes += message.payload.len() as u64;
        if message.payload.is_empty() {
            restoring.reader.finish();
            restoring.hungry = false;
            restoring.waiter = Some(reply.into());
            return Taken::Yes;
        }
        restoring.reader.feed(message.payload);
        restoring.hungry = false;
        restoring.unconfirmed.push(reply.into());
        if restoring.reader.waiting_bytes() > UNREAD_BYTES_MAX {
            let error = ApiError::restore_failed("the client did not wait for its chunks");
            restoring.fail(now, error);
        }
        Taken::Yes
    }

    /// Handles the outcome of a part that the leader proposed: the restoration goes on, or fails if the group
    /// refused the part.
    pub(super) fn handle_part(&mut self, now: Time, own: StreamNumber, outcome: &Outcome) {
        let Some(restoring) = self.restores.running.get_mut(&own) else {
            return;
        };
        restoring.in_flight = restoring.in_flight.saturating_sub(1);
        match outcome {
            Outcome::Done => {}
            Outcome::Refused { error, .. } => {
                let error = ApiError::restore_failed(&error.description);
                restoring.fail(now, error);
            }
            _ => restoring.fail(now, ApiError::SYSTEM_UNAVAILABLE),
        }
    }

    /// Does a turn's work for the streams that clients restore: the leader reads, proposes, confirms chunks
    /// and ends restorations.
    pub(super) fn serve_restores(&mut self, cx: &mut Context<'_>, now: Time) {
        self.find_orphans(now);
        if self.restores.running.is_empty() && self.restores.orphans.is_empty() {
            return;
        }
        let mut left = BYTES_A_TURN;
        let mut running = std::mem::take(&mut self.restores.running);
        running.retain(|own, restoring| {
            if matches!(restoring.state, State::Reading) {
                self.read_backup(now, *own, restoring, &mut left);
            }
            self.confirm(cx, now, restoring);
            !self.conclude_restore(cx, now, *own, restoring)
        });
        self.restores.running = running;
        for (own, at) in std::mem::take(&mut self.restores.orphans) {
            if at <= now && self.give_up(cx, now, own) {
                self.restores.orphans.insert(own, now + AGAIN);
            } else if at > now {
                self.restores.orphans.insert(own, at);
            }
        }
    }

    /// Finds the streams in restoration for which this leader has no client, so that the leader gives them up
    /// after a time.
    fn find_orphans(&mut self, now: Time) {
        if !self.streams.has_restoring() {
            self.restores.orphans.clear();
            return;
        }
        let changes = Some(self.streams.changes());
        if std::mem::replace(&mut self.restores.looked, changes) == changes {
            return;
        }
        let (running, orphans) = (&self.restores.running, &mut self.restores.orphans);
        for stream in self.streams.iter() {
            let here = stream.is_restoring() && stream.home().is_here();
            if here && !running.contains_key(&stream.id()) {
                orphans.entry(stream.id()).or_insert(now + STALLED);
            }
        }
        orphans.retain(|own, _| self.streams.get(*own).is_some_and(Stream::is_restoring));
    }

    /// Reads a backup, as far as a turn's bounds allow, and proposes the parts that are full, so that the
    /// stream fills while the client sends.
    fn read_backup(
        &mut self,
        now: Time,
        own: StreamNumber,
        restoring: &mut Restoring,
        left: &mut usize,
    ) {
        if self.room.space != Space::Free {
            return restoring.fail(now, ApiError::STORAGE_EXCEEDED);
        }
        for _ in 0..STEPS_A_TURN {
            if restoring.in_flight >= IN_FLIGHT_MAX || *left == 0 || self.is_full() {
                return;
            }
            let step = match restoring.reader.step() {
                Ok(step) => step,
                Err(error) => return restoring.fail(now, ApiError::restore_failed(error)),
            };
            match step {
                Step::On => *left = left.saturating_sub(32 * 1024),
                Step::Hungry => {
                    restoring.hungry = true;
                    break;
                }
                Step::Item(item) => {
                    let before = restoring.part.bytes();
                    if let Err(error) = self.take_item(now, own, restoring, item) {
                        return restoring.fail(now, error);
                    }
                    *left = left.saturating_sub(restoring.part.bytes() - before);
                }
            }
            if restoring.part.bytes() >= PART_BYTES || restoring.part.is_full() {
                self.propose_part(now, own, restoring);
            }
        }
        // The leader proposes the last part only once the client has sent everything. If the client goes
        // before, the leader deletes the stream and no half stream is left.
        if restoring.reader.is_ended() && restoring.waiter.is_some() {
            let (last, time_us) = restoring.last;
            let last_seq = restoring.facts.last_seq.unwrap_or_default().max(last);
            let first = restoring.facts.first_seq.unwrap_or(StreamSeq::FIRST);
            restoring.part.end(RestoreEnd {
                created_us: restoring.facts.created_us.unwrap_or(0),
                first_seq: first.min(last_seq.next()),
                last_seq,
                last_time_us: restoring.facts.last_time_us.unwrap_or(0).max(time_us),
            });
            self.propose_part(now, own, restoring);
            restoring.state = State::Ending;
        }
    }

    fn take_item(
        &mut self,
        now: Time,
        own: StreamNumber,
        restoring: &mut Restoring,
        item: Item,
    ) -> Result<(), ApiError> {
        let time_us = |ns: i64| (ns.max(0) / 1000).unsigned_abs();
        match item {
            Item::Stream(facts) => {
                let known = &mut restoring.facts;
                known.created_us = facts.created_us.or(known.created_us);
                known.first_seq = facts.first_seq.or(known.first_seq);
                known.last_seq = facts.last_seq.or(known.last_seq);
                known.last_time_us = facts.last_time_us.or(known.last_time_us);
            }
            Item::Consumer(consumer) => {
                let stream = self.streams.get(own).ok_or(ApiError::STREAM_NOT_FOUND)?;
                let (name, config) = (consumer.name.clone(), stream.config());
                let created_us = consumer.created_us.unwrap_or_else(|| self.wall.peek(now));
                let added = restoring.part.consumer(
                    config,
                    (consumer.name, created_us),
                    consumer.config,
                    &consumer.progress,
                );
                added.map_err(|e| {
                    let why = format_args!("consumer {name}: {}", e.description);
                    ApiError::restore_failed(why)
                })?;
            }
            Item::Message(message) => {
                let bytes = message.subject.len() + message.headers.len() + message.payload.len();
                if message.subject.is_empty() || message.subject.len() > usize::from(u16::MAX) {
                    return Err(ApiError::restore_failed(
                        "a message has no possible subject",
                    ));
                }
                self.streams
                    .check_quota(own, bytes + COMMAND_HEADER_BYTES, self.room.beside)?;
                let last = &mut restoring.last;
                *last = (
                    last.0.max(message.seq),
                    last.1.max(time_us(message.time_ns)),
                );
                restoring.part.message(
                    message.seq,
                    time_us(message.time_ns),
                    message.subject,
                    message.headers,
                    message.payload,
                );
            }
            Item::Removed(seq, ns) => {
                let last = &mut restoring.last;
                *last = (last.0.max(seq), last.1.max(time_us(ns)));
                restoring.part.removed(seq);
            }
            Item::Passed(seq, ns) => {
                let last = &mut restoring.last;
                *last = (last.0.max(seq), last.1.max(time_us(ns)));
            }
            // The leader does nothing here, because `Reader::is_ended` shows the end from now on.
            Item::End => {}
        }
        Ok(())
    }

    /// Proposes the part that has gathered, in an entry that holds the part completely, so that the nodes
    /// apply all of it or nothing.
    fn propose_part(&mut self, now: Time, own: StreamNumber, restoring: &mut Restoring) {
        let part = std::mem::take(&mut restoring.part);
        let payload = part.encode(restoring.next);
        if self.has_no_room_for(part.bytes() + payload.len()) {
            self.seal(now);
        }
        let command = Command::new(Kind::Restore, own, b"", &payload);
        self.add(false, &command, Some((b"", Then::Restored(own))));
        for publish in part.publishes() {
            let command = Command {
                stream: own,
                ..publish
            };
            self.add(false, &command, None);
        }
        restoring.next += 1;
        restoring.in_flight += 1;
    }

    /// Confirms the chunks that the reader has read for the most part, so that the client sends the next
    /// ones.
    fn confirm(&mut self, cx: &mut Context<'_>, now: Time, restoring: &mut Restoring) {
        let low = restoring.hungry || restoring.reader.waiting_bytes() < UNREAD_BYTES_LOW;
        if matches!(restoring.state, State::Failed(_)) || !low {
            return;
        }
        for reply in std::mem::take(&mut restoring.unconfirmed) {
            restoring.until = now + STALLED;
            self.voice(cx, now).answer_with(&reply, b"");
        }
    }

    /// Ends a restoration that is complete or has failed, and answers the client. Returns whether the
    /// restoration has ended, so that the leader forgets it.
    fn conclude_restore(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        own: StreamNumber,
        restoring: &mut Restoring,
    ) -> bool {
        let stream = self.streams.get(own);
        match &restoring.state {
            // The leader gives up a silent client only if the client does not itself wait for an answer of
            // the leader.
            State::Reading
                if restoring.until <= now
                    && restoring.waiter.is_none()
                    && restoring.unconfirmed.is_empty() =>
            {
                restoring.fail(now, ApiError::restore_failed("the restoration is stalled"));
                false
            }
            State::Reading => {
                if stream.is_none() {
                    restoring.fail(now, ApiError::STREAM_NOT_FOUND);
                } else if restoring.until <= now {
                    restoring.until = now + AGAIN;
                }
                false
            }
            State::Ending => {
                let Some(stream) = stream else {
                    restoring.fail(now, ApiError::STREAM_NOT_FOUND);
                    return false;
                };
                if stream.transit() != Transit::None || !self.is_open_here(stream) {
                    // The leader waits until the directory lists the stream as made, because clients can use
                    // the stream only then.
                    restoring.until = now + AGAIN;
                    return false;
                }
                let kind = Answer::StreamCreate;
                let body = view::stream_changed(kind, &self.server(now), &self.shown(now, stream));
                let name = stream.name().to_owned();
                self.end_restore(cx, now, &name, restoring, &body);
                true
            }
            State::Failed(error) => {
                if stream.is_some() && restoring.until <= now {
                    let waits = self.give_up(cx, now, own);
                    restoring.until = now + AGAIN;
                    if waits {
                        return false;
                    }
                } else if stream.is_some() {
                    return false;
                }
                let body = answer::refused(Answer::StreamCreate.as_str(), error);
                self.stats.api_errors += 1;
                self.end_restore(cx, now, "", restoring, &body);
                true
            }
        }
    }

    fn end_restore(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        name: &str,
        restoring: &mut Restoring,
        body: &[u8],
    ) {
        let waiters = std::mem::take(&mut restoring.unconfirmed);
        for reply in waiters.into_iter().chain(restoring.waiter.take()) {
            self.voice(cx, now).answer_with(&reply, body);
        }
        if !name.is_empty() {
            let advised = Advised::RestoreEnded {
                stream: name,
                begun_us: restoring.begun_us,
                bytes: restoring.bytes,
            };
            self.voice(cx, now).advise(&advised);
        }
    }

    /// Deletes a stream after its restoration has failed. Returns whether the stream still exists, so that
    /// the caller repeats the call later.
    fn give_up(&mut self, cx: &mut Context<'_>, now: Time, own: StreamNumber) -> bool {
        let Some(stream) = self.streams.get(own).filter(|s| s.is_restoring()) else {
            return false;
        };
        match stream.home() {
            Home::Of(of) => drop(cx.tell_group(ALL, None, LeaderMessage::Abandoned(vec![of]))),
            _ => self.propose_deletion(now, own),
        }
        true
    }

    /// Deletes the directory's entries of streams, because the restoration has failed in the streams' group.
    pub(super) fn handle_abandoned(&mut self, now: Time, streams: &[DirectoryNumber]) {
        for of in streams {
            let entry = self.streams.entry(*of);
            if entry.is_some_and(|s| s.is_restoring() && !s.home().is_here()) {
                self.propose_deletion(now, of.entry());
            }
        }
    }

    fn propose_deletion(&mut self, now: Time, own: StreamNumber) {
        // Without room in the log the proposal fails, and the caller proposes the deletion again later.
        let waiter = (&b""[..], Then::Noted);
        let _ = self.propose(now, Kind::DeleteStream, own, b"", &(), waiter);
    }

    /// Refuses the clients that restore streams, because this node does not lead the group any more.
    pub(super) fn close_restores(&mut self, cx: &mut Context<'_>, now: Time) {
        let restores = std::mem::take(&mut self.restores);
        self.restores.begun = restores.begun;
        let error = ApiError::restore_failed("the stream's leader has changed: begin again");
        let body = answer::refused(Answer::StreamCreate.as_str(), &error);
        for (_, mut restoring) in restores.running {
            self.end_restore(cx, now, "", &mut restoring, &body);
        }
    }
}

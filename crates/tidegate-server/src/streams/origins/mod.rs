//! Serves mirrors and sources: the leader of a stream with origins takes in the messages of the origins.
//!
//! The leader asks the leader of the origin's group for the next messages, proposes them as an intake
//! ([`tidegate_stream::stream::Intake`]), and asks for more once the group has applied the intake. The intake
//! moves the progress in the replicated state along with the messages, so the next leader goes on from there.
//! [`taker`] decides when the leader asks; [`giving`] does the work on the side of the origin.
//!
//! If a source or mirror names a consumer of the origin, the origin's leader gives the messages of that
//! consumer ([`tapping`]).
//!
//! A thread of its own, `event_loop/remotes/`, answers requests for an origin in another cluster.

pub(crate) mod giving;
mod holding;
pub(crate) mod parcel;
mod rewriting;
mod taker;
mod tapping;

use std::collections::BTreeMap;

use tidegate::Time;
use tidegate_cluster::groups::ALL;
use tidegate_raft::store::Space;
use tidegate_stream::api::view::OriginState;
use tidegate_stream::schema::config::{StreamConfig, StreamSource};
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::{DirectoryNumber, StreamNumber};
use tidegate_stream::stream::{Command, Entry, Home, Intake, Kind, Outcome, Stream, Streams};

use self::giving::ANSWER_BYTES;
use self::rewriting::Rewriting;
use self::taker::{Given, Taker};
use super::JetStream;
use super::context::Context;
use super::directory::leader_message::LeaderMessage;
use super::directory::leader_message::taking::{Answer, Request};
use super::outcome::Then;

/// The key under which the leader keeps its work for an origin: the number of the stream that takes in its
/// messages, and the key of its source.
type Key = (StreamNumber, String);

/// The work of a leader for the origins of its group's streams, which the leader alone keeps.
#[derive(Debug, Default)]
pub(crate) struct Takers {
    /// The change counters of the directory and of the group's streams when the leader last looked for
    /// streams with origins; to save the search, the leader looks again only after a change or with `None`.
    looked: Option<(u64, u64)>,
    all: BTreeMap<Key, Taker>,
    /// The time at which the leader next has to ask an origin for messages, for the event loop's timer.
    due: Option<Time>,
    /// The answers of origins that have arrived since the last turn. The leader handles them in the group's
    /// turn.
    answers: Vec<(DirectoryNumber, String, Answer)>,
}

impl Takers {
    /// Returns the time at which the leader next has to ask an origin or handle an answer, for the event
    /// loop's timer.
    pub(super) fn deadline(&self) -> Option<Time> {
        match self.answers.is_empty() {
            true => self.due,
            false => Some(Time::ZERO),
        }
    }

    /// Makes the leader look for streams with origins again, because other streams have become open for
    /// clients.
    pub(super) const fn look_again(&mut self) {
        self.looked = None;
    }

    /// Forgets the leader's work for origins, because this node does not lead the group any more.
    pub(super) fn close(&mut self) {
        *self = Self::default();
    }

    /// Returns the state of a stream's origin, which clients see in the stream's info.
    pub(super) fn state(&self, now: Time, stream: &Stream, source: &StreamSource) -> OriginState {
        let key = (stream.id(), source.key());
        let taker = self.all.get(&key);
        let heard = taker.and_then(Taker::heard);
        let logged = stream.progress(&key.1);
        OriginState {
            name: source.name.clone(),
            lag: taker.map_or(0, |taker| taker.lag(logged)),
            // Clients see -1 if the origin has never answered, because nats-server shows that.
            active: heard.map_or(-1, |at| i64::try_from(now.since(at)).unwrap_or(i64::MAX)),
            external: source.external.clone(),
            filter_subject: source.filter_subject.clone(),
            subject_transforms: source.subject_transforms.clone(),
            error: taker.and_then(Taker::error).cloned(),
        }
    }
}

/// The greatest length of a source's key, in bytes. An intake and the header `Nats-Stream-Source` of each
/// message state the key, and both have room for 64 KiB. The rest is for the other headers of a message.
const KEY_BYTES_MAX: usize = 48 << 10;

/// Checks that messages can name each origin of a stream.
fn check_keys(config: &StreamConfig) -> Result<(), ApiError> {
    let too_long = |source: &StreamSource| source.key().len() > KEY_BYTES_MAX;
    let Some(source) = config.origins().find(|source| too_long(source)) else {
        return Ok(());
    };
    let (name, is_mirror) = (&source.name, config.mirror.is_some());
    let why = format_args!(
        "the subjects of origin '{name}' and their destinations take more than {KEY_BYTES_MAX} bytes together, and a header of each message states them: use fewer subject_transforms, or several streams"
    );
    Err(match is_mirror {
        true => ApiError::mirror_filter(why),
        false => ApiError::source_filter(why),
    })
}

impl JetStream {
    /// Returns how many origins this group's streams cannot take in messages from, and the first of them in
    /// words, for the monitor.
    pub(crate) fn stuck_origins(&self, now: Time) -> (usize, Option<String>) {
        let all = self.takers.all.iter();
        let mut stuck = all.filter_map(|(key, taker)| Some((key, taker.stuck(now)?)));
        let first = stuck.next().map(|((stream, key), error)| {
            let name = self.streams.get(*stream).map_or("", Stream::name);
            let origin = key.split(' ').next().unwrap_or_default();
            format!("stream {name} takes in nothing from {origin}: {error}")
        });
        (usize::from(first.is_some()) + stuck.count(), first)
    }

    /// Does the leader's work of a turn for the origins of its streams: handles the answers of origins, and
    /// asks for the next messages where that is due.
    pub(super) fn serve_takers(&mut self, cx: &mut Context<'_>, now: Time) {
        let directory = match self.group {
            ALL => self.streams.changes(),
            _ => match cx.around.streams_of(ALL) {
                Some(directory) => directory.applied().changes(),
                None => return,
            },
        };
        let changes = Some((directory, self.streams.changes()));
        if self.takers.looked != changes {
            self.takers.looked = changes;
            self.look_for_origins();
        }
        let is_due = self.takers.due.is_some_and(|at| at <= now);
        if self.takers.answers.is_empty() && !is_due {
            return;
        }
        for (stream, key, answer) in std::mem::take(&mut self.takers.answers) {
            self.handle_answer(now, stream, key, answer);
        }
        self.ask_origins(cx, now);
        self.takers.due = self.takers.all.values().map(Taker::deadline).min();
    }

    /// Checks that the settings know the clusters of a stream's origins, and that the group can take in their
    /// messages. An origin by way of this server's own API is an origin of this cluster.
    ///
    /// # Errors
    /// The settings have no such remote, or the subjects of an origin are too long ([`KEY_BYTES_MAX`]).
    pub(super) fn settle_origins(&self, config: &mut StreamConfig) -> Result<(), ApiError> {
        check_keys(config)?;
        let domain = self.settings.domain.as_deref();
        for origin in config.mirror.iter_mut().chain(&mut config.sources) {
            let Some(external) = &origin.external else {
                continue;
            };
            match external.remote() {
                Some(name) if self.settings.remotes.contains_key(name) => {}
                own if external.api == "$JS.API" || own.is_some() && own == domain => {
                    origin.external = None;
                }
                // The rules of streams refuse such a prefix.
                None => {}
                Some(name) => {
                    return Err(ApiError::invalid_config(format_args!(
                        "the settings of this server have no remote '{name}': add it to jetstream.remotes on each node"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Finds the origins of the streams that this group keeps, and begins or ends the leader's work for those
    /// that have changed.
    fn look_for_origins(&mut self) {
        let mut before = std::mem::take(&mut self.takers.all);
        let mut all = BTreeMap::new();
        for stream in self.streams.with_origins().filter(|s| self.is_open_here(s)) {
            for source in stream.config().origins() {
                let key = (stream.id(), source.key());
                let mut taker = before.remove(&key).unwrap_or(const { Taker::new() });
                taker.handle_config(stream.changed());
                all.insert(key, taker);
            }
        }
        self.takers.all = all;
        self.takers.due = (!self.takers.all.is_empty()).then_some(Time::ZERO);
    }

    fn ask_origins(&mut self, cx: &mut Context<'_>, now: Time) {
        let lacks_space = self.room.space != Space::Free || self.room.crowded;
        let waits = self.is_full() || lacks_space;
        let mut takers = std::mem::take(&mut self.takers.all);
        for ((stream, key), taker) in takers.iter_mut().filter(|(_, t)| t.is_due(now)) {
            if waits {
                taker.wait(now, lacks_space.then_some(ApiError::STORAGE_EXCEEDED));
                continue;
            }
            let Some(of) = self.streams.get(*stream) else {
                continue;
            };
            let Some(source) = of.config().origins().find(|source| source.key() == *key) else {
                continue;
            };
            let logged = of.progress(key);
            let mut request = Request {
                target: directory_number(of),
                group: self.group,
                origin: DirectoryNumber::new(0),
                is_mirror: of.config().mirror.is_some(),
                source: source.clone(),
                logged,
                from: taker.from(logged),
                last_us: None,
            };
            if source.external.is_some() {
                let last = request.from.filter(|_| request.is_mirror);
                let last = last.and_then(|from| of.message(from.seq));
                request.last_us = last.map(|message| message.time_us);
                taker.handle_asked(now);
                cx.outputs.fetch(request);
                continue;
            }
            let directory = match self.group {
                ALL => Some(&*self),
                _ => cx.around.streams_of(ALL),
            };
            let entry = directory.and_then(|d| entry_of(d.applied(), &source.name));
            let Some(entry) = entry else {
                taker.handle_error(now, ApiError::STREAM_NOT_FOUND);
                continue;
            };
            let group = match entry.home() {
                Home::Elsewhere { group, .. } => group,
                _ => ALL,
            };
            request.origin = entry.entry_number();
            taker.handle_asked(now);
            if group == self.group {
                self.giving.handle_request(now, request);
            } else if !cx.tell_group(group, None, LeaderMessage::Take(Box::new(request))) {
                let why = format_args!("no node leads stream {} now", source.name);
                taker.wait(now, Some(ApiError::stream_general(why)));
            }
        }
        self.takers.all = takers;
    }

    /// Keeps an answer of an origin's leader until this node handles it in the turn of the group, because
    /// only then it can propose.
    pub(crate) fn note_answer(&mut self, stream: DirectoryNumber, key: String, answer: Answer) {
        // An origin gives at most one answer to each request, so the node drops more answers than it has
        // origins.
        if self.takers.answers.len() <= self.takers.all.len() {
            self.takers.answers.push((stream, key, answer));
        }
    }

    fn handle_answer(&mut self, now: Time, stream: DirectoryNumber, key: String, answer: Answer) {
        let own = match self.group {
            ALL => Some(stream.entry()),
            _ => self.keeping.own_of(stream),
        };
        let Some(of) = own.and_then(|own| self.streams.get(own)) else {
            return;
        };
        let (own, in_memory, logged) = (of.id(), of.in_memory(), of.progress(&key));
        let config = of.config();
        let source = config.origins().find(|source| source.key() == key);
        let rewriting = source.map(|source| Rewriting::new(source, config));
        let key = (own, key);
        let Some(taker) = self.takers.all.get_mut(&key) else {
            return;
        };
        let (from, to, last) = match answer.state {
            Ok(state) => state,
            Err(error) => return taker.handle_error(now, error),
        };
        let Ok(entry) = Entry::decode(&answer.entry) else {
            return;
        };
        let commands: Vec<Command<'_>> = entry.commands().flatten().collect();
        let Some((head, messages)) = commands.split_first() else {
            return;
        };
        let Ok(sent) = Intake::decode(head.payload) else {
            return;
        };
        if sent.rows.len() != messages.len() {
            return;
        }
        let first = sent.rows.first();
        let given = Given {
            from,
            to,
            messages: messages.len(),
            start: first.map_or(to.seq, |row| row.seq.prev()),
            last,
        };
        if !taker.handle_given(now, logged, &given) {
            return;
        }
        // The leader asks although the stream's account is full, so that clients see how far it is behind.
        let beside = self.room.beside;
        if !messages.is_empty()
            && let Err(error) = self.streams.check_quota(own, ANSWER_BYTES, beside)
        {
            return taker.handle_outcome(now, Err(error));
        }
        let intake = Intake {
            before: logged,
            after: to,
            rows: sent.rows,
        };
        if let Some(rewriting) = rewriting {
            self.propose_intake(now, &key, in_memory, &intake, messages, &rewriting);
        }
    }

    fn propose_intake(
        &mut self,
        now: Time,
        key: &Key,
        in_memory: bool,
        intake: &Intake,
        messages: &[Command<'_>],
        rewriting: &Rewriting,
    ) {
        let (own, source) = key;
        let payload = intake.encode();
        let bytes = messages.iter().map(Command::encoded_bytes).sum::<usize>() + payload.len();
        if !in_memory && self.has_no_room_for(bytes) {
            self.seal(now);
        }
        let head = Command::new(Kind::TakeIn, *own, source.as_bytes(), &payload);
        let then = Then::TakenIn(*own, source.as_str().into());
        self.add(in_memory, &head, Some((b"", then)));
        let mut headers = Vec::new();
        for (row, message) in intake.rows.iter().zip(messages) {
            headers.clear();
            let block = message.headers.unwrap_or_default();
            rewriting.headers(row.seq, message.subject, block, &mut headers);
            let subject = rewriting.subject(row.seq, message.subject);
            let message = Command {
                stream: *own,
                subject: subject.as_deref().unwrap_or(message.subject),
                headers: Some(headers.as_slice()).filter(|headers| !headers.is_empty()),
                ..*message
            };
            self.add(in_memory, &message, None);
        }
    }

    /// Records the outcome of an intake that the leader proposed, and tells the origin's taker, which decides
    /// when the leader asks again.
    pub(super) fn handle_taken_in(&mut self, now: Time, key: Key, outcome: &Outcome) {
        let Some(taker) = self.takers.all.get_mut(&key) else {
            return;
        };
        let outcome = match outcome {
            Outcome::Refused { error, .. } => Err(error.clone()),
            _ => Ok(()),
        };
        taker.handle_outcome(now, outcome);
        self.takers.due = Some(Time::ZERO);
    }
}

/// Returns the entry of the stream with this name in the directory, from which the leader learns the stream's
/// group.
fn entry_of<'a>(directory: &'a Streams, name: &str) -> Option<&'a Stream> {
    directory.entry(directory.entry_by_name(name)?)
}

/// Returns the number that a group's stream has in the directory, by which the leaders of other groups know
/// the stream.
fn directory_number(stream: &Stream) -> DirectoryNumber {
    match stream.home() {
        Home::Of(of) => of,
        _ => stream.entry_number(),
    }
}

#[cfg(test)]
mod tests;

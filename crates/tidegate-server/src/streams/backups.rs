//! Sends backups of streams to clients, in chunks.
//!
//! The leader of the stream's group writes the backup ([`tidegate_stream::backup`]) while it reads the stored
//! messages, a bounded number of bytes a turn. Before it begins, the log gets the state of the stream's
//! consumers. Messages that clients remove meanwhile may be missing from the backup, and messages that they
//! publish meanwhile are not in it.
//!
//! Each chunk has a reply subject at which the client confirms it. The leader sends at most a window of
//! chunks ahead of the confirmations. If the client is silent for long, the leader gives the backup up.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate::Time;
use tidegate_stream::api::answer::{self, Kind as Answer};
use tidegate_stream::api::body::Snapshot;
use tidegate_stream::api::view;
use tidegate_stream::backup::{ConsumerFacts, Summary, Writer};
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{
    Command, Filter, HOLDER_PREFIX, Kind, Outcome, Place, Stream, StreamConsumer, Transit,
};

use super::context::Context;
use super::events::Advised;
use super::outcome::Then;
use super::reads::{BEHIND_BYTES, Fetched, Held, fetch};
use super::restores::address;
use super::speak::unique;
use super::{JetStream, Messages};

/// The beginning of the subjects at which clients confirm the chunks of backups. Nodes hand such a message to
/// the leader of the group in the subject.
pub(crate) const CONFIRMATIONS: &str = "$JS.SNAPSHOT.ACK.";
/// The most backups that a group sends at the same time, so that they take bounded memory.
const RUNNING_MAX: usize = 16;
/// The time after which the leader gives a backup up if the client confirms no chunk, and (`INTEREST`) the
/// time for which the leader waits at the start until the client listens.
const SILENT: Duration = Duration::from_secs(5);
const INTEREST: Duration = Duration::from_secs(2);
/// The leader begins to send this time after its answer, if some subscription gets the chunks, but the client
/// has not subscribed to their subject since. The `nats` program subscribes only after the answer, and
/// another subscription of its library drops earlier chunks.
const READY: Duration = Duration::from_millis(250);
/// The interval at which the leader checks whether the client has subscribed to the subject of the chunks,
/// because a chunk without a subscriber is lost.
const LOOK: Duration = Duration::from_millis(25);
/// The sizes of chunks and windows that a client may choose: the smallest, the usual and the largest one, as
/// in nats-server.
const CHUNK_BYTES: [i64; 3] = [1024, 128 << 10, 1 << 20];
const WINDOW_BYTES: [i64; 3] = [1024, 8 << 20, 32 << 20];
/// The number of bytes of messages that the leader reads for backups in one turn, so that no turn takes long.
const BYTES_A_TURN: usize = 256 * 1024;
/// The number of messages that the leader reads for backups in one turn, so that no turn takes long.
const MESSAGES_A_TURN: usize = 512;

/// The backups that this group's leader sends to clients, so that it can send several at once, see the
/// [module](self).
#[derive(Debug, Default)]
pub(super) struct Backups {
    running: BTreeMap<String, Backup>,
    begun: u64,
}

/// A backup that the leader sends to a client, and the leader's progress, from which it goes on in the next
/// turn.
#[derive(Debug)]
struct Backup {
    own: StreamNumber,
    stream: String,
    to: Box<[u8]>,
    writer: Writer,
    /// The stream's consumers, as they were at the start of the backup, that the leader has still to write
    /// into the backup. The last one comes first, so that the leader can take them from the end.
    consumers: Vec<(String, StreamConsumer)>,
    /// The sequence from which on the leader looks for the next message of the backup, and the last sequence
    /// of the backup.
    next: StreamSeq,
    last: StreamSeq,
    written: bool,
    chunk_bytes: usize,
    /// The number of chunks that the leader may send before the client confirms one, so that a slow client is
    /// not flooded, and (`sent`) the number of chunks that the leader has sent.
    window: usize,
    sent: u64,
    begun_us: u64,
    /// True if the leader cannot go on with the backup yet: it waits for a message from the disk, or for a
    /// client that reads slowly.
    waits: bool,
    /// True once the leader has begun to send. Before that, `begins` is the time at which the leader next
    /// checks whether the client has subscribed.
    heard: bool,
    begins: Time,
    until: Time,
}

/// The state of a backup after a turn's work, by which the leader knows whether to go on.
enum Turn {
    /// The leader has done enough for this turn, and goes on with the backup in a later turn.
    On,
    /// The backup has ended. The leader sends this header block with the last message, and the text gives the
    /// reason if the backup failed.
    Over(Vec<u8>, Option<String>),
}

impl Backups {
    pub(super) fn deadline(&self) -> Option<Time> {
        let running = self.running.values().map(|b| match b.is_busy() {
            true => Time::ZERO,
            false if b.heard => b.until,
            false => b.begins.min(b.until),
        });
        running.min()
    }

    /// Records that a client has subscribed to `pattern`. If the chunks of a backup go there, the leader
    /// begins to send them at once.
    pub(super) fn handle_subscribed(&mut self, pattern: &[u8]) {
        for backup in self.running.values_mut().filter(|b| *b.to == *pattern) {
            backup.begins = Time::ZERO;
        }
    }

    /// Records that a client has confirmed a chunk, so that the leader may send another chunk.
    fn confirm(&mut self, now: Time, token: &str) {
        if let Some(backup) = self.running.get_mut(token) {
            backup.window += 1;
            backup.until = now + SILENT;
        }
    }
}

impl Backup {
    const fn is_busy(&self) -> bool {
        self.window > 0 && self.heard && !self.waits
    }
}

impl JetStream {
    /// Prepares a backup: proposes the state of the stream's consumers, and begins the backup once the log
    /// has this state, so that the backup contains it.
    pub(super) fn prepare_backup(
        &mut self,
        now: Time,
        reply: &[u8],
        stream: StreamNumber,
        snapshot: Snapshot,
    ) -> Result<(), ApiError> {
        if self.backups.running.len() >= RUNNING_MAX {
            return Err(ApiError::snapshot_failed(format_args!(
                "{RUNNING_MAX} backups run already: try again later"
            )));
        }
        if !snapshot.no_consumers {
            for key in self.consumers.keys_of(stream) {
                self.propose_delta(now, key);
            }
        }
        // The command changes nothing by itself. The leader proposes it because its outcome shows that the
        // deltas before it are applied.
        let expire = Command::new(Kind::Expire, stream, b"", b"");
        let then = Then::BackUp(stream, Box::new(snapshot));
        let volatile = self.streams.get(stream).is_some_and(Stream::in_memory);
        self.command(now, volatile, &expire, Some((reply, then)));
        Ok(())
    }

    /// Begins a backup, and answers the client that asked for it. The answer describes the stream; from
    /// then on the leader sends chunks.
    pub(super) fn begin_backup(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        reply: &[u8],
        own: StreamNumber,
        snapshot: &Snapshot,
        outcome: &Outcome,
    ) {
        let kind = Answer::StreamSnapshot;
        let stream = self.streams.get(own);
        let stream = stream.filter(|s| self.role.serves && s.transit() == Transit::None);
        let (Some(stream), Outcome::Done) = (stream, outcome) else {
            let error = match outcome {
                Outcome::Refused { error, .. } => error.clone(),
                _ => ApiError::SYSTEM_UNAVAILABLE,
            };
            self.stats.api_errors += 1;
            let body = answer::refused(kind.as_str(), &error);
            return self.voice(cx, now).answer_with(reply, &body);
        };
        let state = stream.state();
        let begun_us = self.wall.peek(now);
        // The backup leaves out the holders, because they belong to the streams that take in messages from
        // this one.
        let all = stream.consumers().filter(|_| !snapshot.no_consumers);
        let all = all.filter(|(name, _)| !name.starts_with(HOLDER_PREFIX));
        let all = all.map(|(name, consumer)| (name.to_owned(), consumer.clone()));
        let mut consumers: Vec<(String, StreamConsumer)> = all.collect();
        consumers.reverse();
        let mut writer = Writer::default();
        writer.begin(
            begun_us,
            &Summary {
                state,
                created_us: stream.created_us(),
                consumers: consumers.len(),
            },
        );
        let chunk_bytes = size(snapshot.chunk_size, CHUNK_BYTES);
        let window_bytes = size(snapshot.window_size, WINDOW_BYTES).max(chunk_bytes);
        let name = stream.name().to_owned();
        let body = view::stream_snapshot(&self.server(now), &self.shown(now, stream));
        let backup = Backup {
            own,
            stream: name.clone(),
            to: snapshot.deliver_subject.as_bytes().into(),
            writer,
            consumers,
            next: state.first_seq,
            last: state.last_seq,
            written: false,
            chunk_bytes,
            window: window_bytes / chunk_bytes,
            sent: 0,
            begun_us,
            waits: false,
            heard: false,
            begins: now + READY,
            until: now + INTEREST,
        };
        self.backups.begun += 1;
        let token = unique(self.speech.seed ^ begun_us, self.backups.begun, 22);
        self.backups.running.insert(token, backup);
        let mut voice = self.voice(cx, now);
        voice.answer_with(reply, &body);
        voice.advise(&Advised::SnapshotBegun { stream: &name });
    }

    /// Does a turn's work for the backups that this node sends: reads messages, writes chunks and sends them.
    pub(super) fn serve_backups(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        messages: &dyn Messages,
    ) {
        if self.backups.running.is_empty() {
            return;
        }
        let mut wanted = Vec::new();
        let mut left = (BYTES_A_TURN, MESSAGES_A_TURN);
        let mut running = std::mem::take(&mut self.backups.running);
        running.retain(|token, backup| {
            let turn =
                self.continue_backup(cx, now, token, backup, messages, &mut wanted, &mut left);
            let (header, error) = match turn {
                Turn::On => return true,
                Turn::Over(header, error) => (header, error),
            };
            if let Some(error) = &error {
                tracing::warn!("the server has ended the backup of stream {} before its end, because the backup failed: {error}", backup.stream);
            }
            let to = backup.to.clone();
            let mut voice = self.voice(cx, now);
            voice.status_to(&to, &header);
            voice.advise(&Advised::SnapshotEnded {
                stream: &backup.stream,
                begun_us: backup.begun_us,
                error: error.as_deref(),
            });
            false
        });
        self.backups.running = running;
        cx.outputs.read(wanted);
    }

    #[allow(clippy::too_many_arguments)] // The parts of one turn.
    fn continue_backup(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        token: &str,
        backup: &mut Backup,
        messages: &dyn Messages,
        wanted: &mut Vec<Place>,
        left: &mut (usize, usize),
    ) -> Turn {
        let over = |status: &str, error: &str| {
            Turn::Over(
                format!("NATS/1.0 {status}\r\n\r\n").into_bytes(),
                Some(error.to_owned()),
            )
        };
        if !backup.heard && backup.begins > now {
            return Turn::On;
        }
        let Some(behind) = cx.pending_at(&backup.to, None) else {
            if backup.heard || backup.until <= now {
                return over("408 No Interest", "the client does not listen any more");
            }
            backup.begins = now + LOOK;
            return Turn::On;
        };
        backup.waits = false;
        if !std::mem::replace(&mut backup.heard, true) {
            backup.until = now + SILENT;
        }
        if backup.until <= now {
            return over(
                "408 No Flow Response",
                "the client does not confirm any more",
            );
        }
        if behind > BEHIND_BYTES || cx.outputs.are_many() {
            backup.waits = behind > BEHIND_BYTES;
            return Turn::On;
        }
        while backup.window > 0 && !cx.outputs.are_many() {
            if backup.written || backup.writer.ready_bytes() >= backup.chunk_bytes {
                let chunk = backup.writer.take(backup.chunk_bytes);
                if chunk.len() < backup.chunk_bytes {
                    // As in nats-server, the leader does not wait for the client's confirmation of the last
                    // chunk.
                    let to = backup.to.clone();
                    self.voice(cx, now).say(&to, &to, None, b"", &chunk);
                    return Turn::Over(b"NATS/1.0 204\r\n\r\n".to_vec(), None);
                }
                backup.sent += 1;
                backup.window -= 1;
                backup.until = now + SILENT;
                let reply = format!(
                    "{CONFIRMATIONS}{}.{}-{token}.{}.{}",
                    backup.stream,
                    self.group,
                    chunk.len(),
                    backup.sent
                );
                let to = backup.to.clone();
                let mut voice = self.voice(cx, now);
                voice.say(&to, &to, Some(reply.as_bytes()), b"", &chunk);
                continue;
            }
            if left.0 == 0 || left.1 == 0 {
                break;
            }
            let stream = self.streams.get(backup.own);
            let Some(stream) = stream.filter(|s| s.transit() == Transit::None) else {
                let why = "the stream is deleted or moves";
                return over(&format!("500 {why}"), why);
            };
            match backup.write(stream, messages, wanted) {
                Wrote::Bytes(bytes) => {
                    *left = (left.0.saturating_sub(bytes), left.1.saturating_sub(1));
                }
                Wrote::Nothing => {
                    backup.waits = true;
                    backup.until = now + SILENT;
                    break;
                }
                Wrote::Damage(seq) => {
                    let why = format!("message {seq} is damaged on this node");
                    return over(&format!("500 {why}"), &why);
                }
            }
        }
        Turn::On
    }

    /// Ends the backups that this node sends, because it does not lead the group any more.
    pub(super) fn close_backups(&mut self, cx: &mut Context<'_>, now: Time) {
        for (_, backup) in std::mem::take(&mut self.backups.running) {
            let status = b"NATS/1.0 500 the stream's leader has changed\r\n\r\n";
            self.voice(cx, now).status_to(&backup.to, status);
        }
    }

    /// Records a client's confirmation of a chunk of a backup, so that the leader may send another chunk.
    pub(super) fn handle_confirmation(&mut self, now: Time, subject: &[u8]) {
        if let Some((_, token)) = address(subject, CONFIRMATIONS) {
            self.backups.confirm(now, token);
        }
    }
}

/// The result of the leader's attempt to write the next entry of a backup, by which it goes on, waits or
/// fails.
enum Wrote {
    /// The leader has written an entry of about this many bytes, which counts towards the turn's bound.
    Bytes(usize),
    /// The store has to read the next message from the disk first, so the leader goes on in a later turn.
    Nothing,
    /// The message with this sequence is damaged, so the backup fails.
    Damage(StreamSeq),
}

impl Backup {
    /// Writes the stream's next consumer or message into the backup, or the end of the backup, for the leader
    /// to send.
    fn write(
        &mut self,
        stream: &Stream,
        messages: &dyn Messages,
        wanted: &mut Vec<Place>,
    ) -> Wrote {
        if let Some((name, consumer)) = self.consumers.pop() {
            let config = consumer.config().full(&name);
            self.writer.consumer(
                self.begun_us,
                &ConsumerFacts {
                    name: &name,
                    created_us: consumer.created_us(),
                    config: &config,
                    state: consumer.state(),
                },
            );
            return Wrote::Bytes(1024);
        }
        let next = stream.next_at(self.next, &mut Filter::all());
        let Some(seq) = next.filter(|seq| *seq <= self.last) else {
            self.writer.end();
            self.written = true;
            return Wrote::Bytes(1);
        };
        let mut held = Held::default();
        match fetch(stream, seq, messages, wanted, &mut held) {
            Fetched::Pending => Wrote::Nothing,
            Fetched::Gone => Wrote::Damage(seq),
            Fetched::Ready(message) => {
                self.next = seq.next();
                self.writer.message(
                    seq,
                    message.time_us,
                    message.subject,
                    message.headers,
                    message.payload,
                );
                Wrote::Bytes(message.subject.len() + message.headers.len() + message.payload.len())
            }
        }
    }
}

/// Returns the size of chunks or windows for which a client asks, kept within the limits so that no client
/// makes the leader use much memory; for 0 the usual size.
fn size(asked: i64, [least, usual, most]: [i64; 3]) -> usize {
    let asked = if asked == 0 { usual } else { asked };
    usize::try_from(asked.clamp(least, most)).expect("the limits fit")
}

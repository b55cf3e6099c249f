//! Expiry: removes messages beyond the stream's age limit and messages beyond their own time to live, and
//! replaces some of them with markers, so that consumers learn that a subject is empty.
//!
//! The leader checks whether a message has expired ([`super::Streams::next_expiry`]) and proposes commands.
//! Each node decides which messages have expired when it applies a command, by the time of the entry, so
//! every node removes the same messages.
//!
//! In a stream with markers, a marker replaces the last message of a subject. A marker must be in the log
//! like any other message, so the leader proposes it as a command of its own ([`super::Kind::Marker`]). If
//! the stream stores another message of the subject before it applies that command, the command does nothing.

use bytes::Bytes;

use super::block::{Flags, Slot};
use super::command::{Buffer, Command, EncodeError, Encoder, Kind, Place};
use super::moving::Transit;
use super::outcome::Effect;
use super::publish::{Accepted, Rollup};
use super::single::{Stream, counted_bytes};
use crate::consumer::duration;
use crate::schema::sequence::StreamSeq;

/// The limit on the messages beyond their own time to live that one command removes, and likewise on the
/// messages beyond the age limit. The next command removes further messages. So no single command takes long.
const EXPIRE_MAX: usize = 4096;
/// The limit, which keeps an entry short, on the messages beyond their own time to live that one round of
/// proposals replaces with markers in a stream, and likewise on the messages beyond the age limit.
const MARKERS_MAX: usize = 256;

impl Stream {
    /// Returns a lower bound of the time, in microseconds since 1970, at which the message that the stream
    /// stored last expires: by its own time to live (`due_us`, 0 for none) or by the stream's age limit.
    /// Returns `u64::MAX` if neither limits its life. By this bound the leader knows when to look for expired
    /// messages.
    #[inline]
    pub(super) fn due_after_store(&self, due_us: u64) -> u64 {
        let own = if due_us == 0 { u64::MAX } else { due_us };
        match self.limits.age_us {
            0 => own,
            age => own.min(self.content.last_time_us.saturating_add(age)),
        }
    }

    /// Returns the time at which the next message of the stream expires, in microseconds since 1970; `None`
    /// if no message expires, or while a move has frozen the stream or is filling this copy of it. Returns 0
    /// while the stream has still to look for messages without a consumer. While this node reclaims removed
    /// messages, the time may leave out the messages with their own time to live.
    pub(super) fn next_due(&mut self) -> Option<u64> {
        if self.transit != Transit::None {
            return None;
        }
        if self.sweep.is_some() {
            return Some(0);
        }
        let own = self.content.next_own_due();
        let aged = match self.limits.age_us {
            0 => None,
            age => self
                .content
                .next_aged()
                .map(|(_, time)| time.saturating_add(age)),
        };
        own.into_iter().chain(aged).min()
    }

    /// Removes a bounded number of expired messages, except those that a marker must replace by a command of
    /// its own, and a bounded number of messages without a consumer.
    pub(super) fn expire(&mut self, now: u64, effects: &mut Vec<Effect>) {
        self.go_on_sweep(effects);
        for seq in self.due(now, EXPIRE_MAX) {
            if self.awaits_marker(seq).is_none() {
                self.remove(seq, effects);
            }
        }
    }

    /// Returns the numbers of expired messages: at most `most` beyond their own time to live, and at most
    /// `most` beyond the stream's age limit. The bound keeps the command short.
    fn due(&mut self, now: u64, most: usize) -> Vec<StreamSeq> {
        let mut due: Vec<StreamSeq> = self.content.own_due(now).take(most).collect();
        if self.limits.age_us > 0
            && let Some(born) = now.checked_sub(self.limits.age_us)
        {
            let first = self.content.next_aged().map(|(seq, _)| seq);
            let aged = std::iter::successors(first, |seq| self.content.index.next(seq.next()));
            let slots = aged.filter_map(|seq| Some((seq, self.content.index.get(seq)?)));
            let old = slots.take_while(|(_, slot)| slot.time_us <= born);
            let mortal = old.filter(|(_, slot)| !slot.flags.has(Flags::NEVER));
            due.extend(mortal.take(most).map(|(seq, _)| seq));
        }
        due
    }

    /// Returns the data of a message if only a marker may replace the message: the stream has markers, the
    /// message is the only one of its subject, and the message is no marker itself. Otherwise the stream
    /// removes the expired message without a marker.
    fn awaits_marker(&self, seq: StreamSeq) -> Option<Slot> {
        let slot = self.content.index.get(seq)?;
        let alone = self.content.subjects.stat(slot.subject).count == 1;
        let awaits = self.limits.marker_ttl_secs > 0 && alone && !slot.flags.has(Flags::MARKER);
        awaits.then_some(slot)
    }

    /// Writes the command that removes a stream's expired messages, and a command for each marker that must
    /// replace a message. The leader does this when messages have expired. Returns the number of commands
    /// written.
    pub(super) fn propose_expiry<B: Buffer>(
        &mut self,
        now: u64,
        entry: &mut Encoder<'_, B>,
    ) -> Result<usize, EncodeError> {
        entry.command(&Command::new(Kind::Expire, self.id, b"", b""))?;
        let mut written = 1;
        if self.limits.marker_ttl_secs == 0 {
            return Ok(written);
        }
        let headers = self.marker_headers();
        for seq in self.due(now, MARKERS_MAX) {
            let slot = self.awaits_marker(seq);
            let name = slot.and_then(|slot| self.content.subjects.name(slot.subject));
            if let Some(name) = name {
                entry.command(&Command {
                    headers: Some(headers.as_bytes()),
                    ..Command::new(Kind::Marker, self.id, name, b"")
                })?;
                written += 1;
            }
        }
        Ok(written)
    }

    /// Returns the headers of a marker. nats-server gives its markers these headers too, so clients recognise
    /// the marker.
    fn marker_headers(&self) -> String {
        let ttl = i64::try_from(self.limits.marker_ttl_secs.saturating_mul(1_000_000_000));
        let ttl = duration::text(ttl.expect("the configuration has it as an i64 of nanoseconds"));
        format!(
            "NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: {ttl}\r\nNats-Rollup: sub\r\n\r\n"
        )
    }

    /// Replaces the last message of the command's subject with a marker, if that message has expired, so that
    /// consumers learn that the subject has no messages left. Returns the time at which the marker expires,
    /// in microseconds since 1970; `u64::MAX` without a marker.
    pub(super) fn apply_marker(
        &mut self,
        command: &Command<'_>,
        place: Place,
        now: u64,
        body: Option<Bytes>,
        effects: &mut Vec<Effect>,
    ) -> u64 {
        let id = self.content.subjects.find(command.subject);
        let last = id.and_then(|id| self.content.last_of_mut(id));
        let slot = last.and_then(|seq| self.awaits_marker(seq));
        let Some(slot) = slot.filter(|slot| self.is_due(slot, now)) else {
            return u64::MAX;
        };
        let life = self.limits.marker_ttl_secs.saturating_mul(1_000_000);
        let marker = Accepted {
            // The conversion of the size succeeds for a marker that this program writes, because it is small.
            // For a larger marker, which another program may have written, the node takes another size and
            // does not panic.
            bytes: u32::try_from(counted_bytes(command)).unwrap_or(slot.bytes),
            flags: Flags::MARKER.with(Flags::TTL),
            due_us: now.saturating_add(life),
            msg_id: None,
            rollup: Rollup::Subject,
        };
        self.store(command, &marker, place, now, body, effects);
        self.due_after_store(marker.due_us)
    }

    fn is_due(&self, slot: &Slot, now: u64) -> bool {
        let own = slot.flags.has(Flags::TTL) && slot.due_us <= now;
        let age = self.limits.age_us;
        let mortal = age > 0 && !slot.flags.has(Flags::NEVER);
        own || (mortal && slot.time_us.saturating_add(age) <= now)
    }
}

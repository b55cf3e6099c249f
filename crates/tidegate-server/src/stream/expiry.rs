//! What goes with time: messages of age, messages with a time to live of their own, and the markers left in
//! their place.
//!
//! Time is the entries'. The leader asks when something is due ([`super::Streams::next_expiry`]) and proposes
//! commands; what is due is decided when they are applied, so that every node lets go the same.
//!
//! Where a stream leaves markers, the last message of a subject is not let go but replaced: by a message that
//! says so, which has to stand in the log like any other and so comes as a command of its own
//! ([`super::Kind::Marker`]). A message that came in between is not replaced.

use bytes::Bytes;

use super::block::{Flags, Slot};
use super::command::{Buffer, Command, EncodeError, Encoder, Kind, Place};
use super::moving::Transit;
use super::one::{Stream, counted_bytes};
use super::outcome::Effect;
use super::publish::{Accepted, Rollup};
use crate::consumer::duration;

/// The most messages one command lets go: what is left is due still, and comes with the next.
const EXPIRE_MAX: usize = 4096;
/// The most markers one round of proposals leaves in a stream.
const MARKERS_MAX: usize = 256;

impl Stream {
    /// When something may be due that a message just stored brings: its own end, or its age.
    #[inline]
    pub(super) fn due_after_store(&self, due_us: u64) -> u64 {
        let own = if due_us == 0 { u64::MAX } else { due_us };
        match self.limits.age_us {
            0 => own,
            age => own.min(self.content.last_time_us.saturating_add(age)),
        }
    }

    /// When the next message is due.
    pub(super) fn next_due(&mut self) -> Option<u64> {
        if self.transit != Transit::None {
            return None;
        }
        let own = self.content.dues.first().map(|(due, _)| *due);
        let aged = match self.limits.age_us {
            0 => None,
            age => self
                .content
                .next_aged()
                .map(|(_, time)| time.saturating_add(age)),
        };
        own.into_iter().chain(aged).min()
    }

    /// Removes what is due, up to a number.
    pub(super) fn expire(&mut self, now: u64, effects: &mut Vec<Effect>) {
        for seq in self.due(now, EXPIRE_MAX) {
            if self.awaits_marker(seq).is_none() {
                self.remove(seq, effects);
            }
        }
    }

    /// Messages that are due, up to `most` of each kind.
    fn due(&mut self, now: u64, most: usize) -> Vec<u64> {
        let own = self.content.dues.range(..=(now, u64::MAX));
        let mut due: Vec<u64> = own.take(most).map(|(_, seq)| *seq).collect();
        if self.limits.age_us > 0
            && let Some(born) = now.checked_sub(self.limits.age_us)
        {
            let first = self.content.next_aged().map(|(seq, _)| seq);
            let aged = std::iter::successors(first, |seq| self.content.index.next(seq + 1));
            let slots = aged.filter_map(|seq| Some((seq, self.content.index.get(seq)?)));
            let old = slots.take_while(|(_, slot)| slot.time_us <= born);
            let mortal = old.filter(|(_, slot)| !slot.flags.has(Flags::NEVER));
            due.extend(mortal.take(most).map(|(seq, _)| seq));
        }
        due
    }

    /// What is known of a message that is not to go without a marker: it is there, alone of its subject, and
    /// no marker itself.
    fn awaits_marker(&self, seq: u64) -> Option<Slot> {
        let slot = self.content.index.get(seq)?;
        let alone = self.content.subjects.stat(slot.subject).count == 1;
        let awaits = self.limits.marker_ttl_secs > 0 && alone && !slot.flags.has(Flags::MARKER);
        awaits.then_some(slot)
    }

    /// Writes the commands that let go what is due: the removal, and the markers it will need.
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

    /// What a marker says: as nats-server's do.
    fn marker_headers(&self) -> String {
        let ttl = i64::try_from(self.limits.marker_ttl_secs.saturating_mul(1_000_000_000));
        let ttl = duration::text(ttl.unwrap_or(i64::MAX));
        format!(
            "NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: {ttl}\r\nNats-Rollup: sub\r\n\r\n"
        )
    }

    /// Puts a marker in the place of the last message of its subject, if that is due; when the marker itself
    /// will be.
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

//! Takes in the messages of origins for a stream ([`super::intake`]): checks and stores the messages of an
//! origin, and keeps the progress in each origin.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::block::Flags;
use super::command::{Command, Kind, Place};
use super::headers::{Asked, Ttl};
use super::intake::{Intake, PROGRESS_BYTES, Progress};
use super::outcome::Effect;
use super::publish::{Accepted, Refusal, Rollup};
use super::single::{Stream, counted_bytes, lifetime};
use super::wire::{Reader, RestoreError, put_bytes, put_len};
use crate::convert::saturating_u32;
use crate::schema::error::ApiError;
use crate::schema::sequence::StreamSeq;

/// The limit on the origins outside of the configuration for which a stream remembers its progress. A client
/// may remove a source and add it again, and then the stream continues where it was.
const REMEMBERED_MAX: usize = 256;

impl Stream {
    /// Returns the point that the stream has reached in the origin of the source with this key; `None` if the
    /// stream has taken in nothing from that origin. The leader asks the origin for the messages after this
    /// point.
    #[must_use]
    pub fn progress(&self, key: &str) -> Option<Progress> {
        self.intakes.get(key).copied()
    }

    /// Applies an intake with the messages that follow it, each with its place in the log and, for a stream
    /// in memory, its bytes. Calls `stored` after each message with the time at which the message expires by
    /// its own time to live, so that the caller can schedule the expiry.
    ///
    /// # Errors
    ///
    /// Returns an error, and changes nothing, if the intake does not begin at the stream's progress. If the
    /// stream refuses a message, returns the error of that message; the stream has then stored the messages
    /// before it.
    pub(super) fn take_in(
        &mut self,
        key: &str,
        intake: &Intake,
        messages: Vec<(Command<'_>, (Place, Option<Bytes>))>,
        now: u64,
        mut stored: impl FnMut(&mut Self, u64),
        effects: &mut Vec<Effect>,
    ) -> Result<(), ApiError> {
        let known = self.config.origins().any(|source| source.key() == key);
        let fits = |c: &Command<'_>| c.kind == Kind::Publish && c.stream == self.id;
        if !known
            || self.progress(key) != intake.before
            || intake.rows.len() != messages.len()
            || !messages.iter().all(|(command, _)| fits(command))
        {
            return Err(ApiError::BAD_REQUEST);
        }
        let mirrors = self.config.mirror.is_some();
        let mut reached = None;
        let mut refused = Ok(());
        for (row, (command, (place, body))) in intake.rows.iter().zip(messages) {
            // A purge may have moved the numbers of a mirror beyond those of its origin. The mirror leaves
            // out the messages with numbers that it has passed.
            if !mirrors || row.seq > self.content.last_seq {
                let (seq, time_us) = match mirrors {
                    true => (row.seq, row.time_us),
                    false => (self.content.last_seq.next(), now),
                };
                match self.check_taken(&command, seq, time_us, now) {
                    Ok(accepted) => {
                        if mirrors {
                            self.content.go_to(row.seq);
                        }
                        self.store(&command, &accepted, place, time_us, body, effects);
                        stored(self, accepted.due_us);
                    }
                    Err(Refusal::Duplicate(_)) => {}
                    Err(Refusal::Error(error)) => {
                        refused = Err(error);
                        break;
                    }
                }
            }
            reached = Some(row.seq);
        }
        let reached = match refused {
            Ok(()) => Some(intake.after.seq),
            Err(_) => reached,
        };
        if let Some(seq) = reached {
            let origin = intake.after.origin;
            self.intakes
                .insert(key.to_owned(), Progress { origin, seq });
        }
        refused
    }

    /// Checks whether the stream takes in a message of an origin. The origin has already checked the
    /// conditions of the publisher, so only the limits of this stream count.
    fn check_taken<'a>(
        &mut self,
        command: &Command<'a>,
        seq: StreamSeq,
        time_us: u64,
        now: u64,
    ) -> Result<Accepted<'a>, Refusal> {
        if self.config.sealed {
            return Err(ApiError::STREAM_SEALED.into());
        }
        self.check_size(command)?;
        let bytes = counted_bytes(command);
        let mut accepted = Accepted {
            bytes: saturating_u32(bytes),
            flags: Flags::default(),
            due_us: 0,
            msg_id: None,
            rollup: Rollup::None,
        };
        if let Some(headers) = command.headers.filter(|headers| !headers.is_empty()) {
            let asked = Asked::read(headers);
            let ttl = asked.ttl.filter(|_| self.config.allow_msg_ttl);
            if let Some(ttl) = ttl.and_then(Ttl::read) {
                (accepted.flags, accepted.due_us) = lifetime(ttl, &self.limits, time_us);
            }
            if asked.is_marker() {
                accepted.flags = accepted.flags.with(Flags::MARKER);
            }
            accepted.msg_id = asked.msg_id;
            match asked.msg_id {
                Some(id) if self.config.mirror.is_none() => self.check_duplicate(id, now, None)?,
                Some(_) => self
                    .dedup
                    .forget_before(now.saturating_sub(self.limits.dedup_us)),
                None => {}
            }
            // As in nats-server, a stream that permits no roll-ups stores the message and removes no older
            // messages.
            accepted.rollup = self.check_rollup(command, &asked, None).unwrap_or_default();
        }
        if self.limits.discard_new && !self.is_without_interest(seq, command.subject) {
            self.check_room(command, bytes, accepted.rollup, None)?;
        }
        Ok(accepted)
    }

    /// Forgets the progress in origins that an update has removed, except for a bounded number of origins
    /// that a client may add again.
    pub(super) fn forget_origins(&mut self, was_mirror: bool) {
        if was_mirror && self.config.mirror.is_none() {
            self.intakes.clear();
        }
        let keys: BTreeSet<String> = self.config.origins().map(|source| source.key()).collect();
        let gone = self.intakes.keys().filter(|key| !keys.contains(*key));
        let gone: Vec<String> = gone.cloned().collect();
        for key in gone.iter().take(gone.len().saturating_sub(REMEMBERED_MAX)) {
            self.intakes.remove(key);
        }
    }

    /// Writes the progress in all origins to a snapshot or an export, so that the stream continues behind the
    /// messages that it has.
    pub(super) fn put_intakes(intakes: &BTreeMap<String, Progress>, out: &mut Vec<u8>) {
        put_len(out, intakes.len());
        for (key, progress) in intakes {
            put_bytes(out, key.as_bytes());
            progress.put(out);
        }
    }

    /// Reads the progress in all origins from a snapshot or an export, when a node restores the stream or a
    /// move fills its copy.
    pub(super) fn read_intakes(
        from: &mut Reader<'_>,
    ) -> Result<BTreeMap<String, Progress>, RestoreError> {
        let mut intakes = BTreeMap::new();
        for _ in 0..from.len(4 + PROGRESS_BYTES)? {
            let key = std::str::from_utf8(from.bytes()?).map(str::to_owned);
            let key = key.map_err(|_| RestoreError::Inconsistent("the key of a source"))?;
            intakes.insert(key, Progress::read(from)?);
        }
        Ok(intakes)
    }
}

#[cfg(test)]
mod tests;

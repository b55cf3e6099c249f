//! Serves consumers that the log need not keep, and that the leader adds to the log only if they last.
//!
//! An ordered consumer ends with its client and keeps no record of acknowledgements. The client creates
//! another ordered consumer at each gap, and that creation must not wait for a sync: so only the leader's
//! node knows such a consumer. But the client watches the numbers of the messages, and must be able to
//! continue when another node leads. So the leader proposes a consumer that has lasted for [`LASTING_US`],
//! together with the consumer's start, and no client waits for that proposal. The leader never proposes the
//! consumer's deliveries.
//!
//! The next leader starts the consumer again at its first message, with the same first numbers. A client
//! without a message so far continues as if the leader had not changed. Any other client sees that the first
//! message is not the expected one, and creates another consumer from its own position.

use tidegate::Time;
use tidegate_stream::schema::config::{AckPolicy, Retention};
use tidegate_stream::stream::{Command, ConsumerRequest, Kind, Outcome, SharedConfig};

use super::Key;
use super::live::Live;
use crate::streams::JetStream;
use crate::streams::outcome::Then;

/// The age at which the leader proposes to add a consumer to the log, in microseconds. A consumer that only
/// reads the messages that exist now ends earlier, so it costs the log nothing.
const LASTING_US: u64 = 250_000;
/// The time after which the leader proposes again to add a consumer to the log if the group has refused the
/// proposal, in microseconds.
const AGAIN_US: u64 = 5_000_000;

/// Returns the time at which the leader proposes to add a consumer to the log that a client creates now, in
/// microseconds since the Unix epoch. Returns `None` if the log keeps the consumer from the start, or if its
/// client may not check the numbers of pushed messages: such a client would take every message after a change
/// of leaders for a new one.
///
/// Only a stream with retention by limits has consumers that the log does not keep.
///
/// Clients of ordered consumers check the numbers. Their consumers push messages, expect no acknowledgements,
/// send heartbeats, use flow control and deliver no message twice.
pub(crate) fn lasts_us(shared: &SharedConfig, now_us: u64) -> Option<u64> {
    let config = shared.nameless();
    let watched = !config.deliver_subject.is_empty()
        && config.ack_policy == AckPolicy::None
        && config.idle_heartbeat > 0
        && config.flow_control
        && config.max_deliver == 1;
    (watched && !shared.is_logged(Retention::Limits)).then(|| now_us.saturating_add(LASTING_US))
}

impl JetStream {
    /// Proposes to add a consumer to the log, because it has lasted for [`LASTING_US`], so that the next
    /// leader can continue it.
    pub(crate) fn propose_lasting(&mut self, now: Time, key: Key) -> Option<()> {
        let live = self.consumers.get_mut(key)?;
        let request = ConsumerRequest {
            config: live.config.full(live.name()),
            action: "create".into(),
            start: Some(live.start),
        };
        let payload = serde_json::to_vec(&request).ok()?;
        let (stream, name) = (live.stream(), live.name().to_owned());
        live.lasts_us = None;
        live.told = true;
        let command = Command::new(Kind::CreateConsumer, stream, name.as_bytes(), &payload);
        self.command(now, false, &command, Some((b"", Then::Logged(key))));
        Some(())
    }

    /// Records whether the group has added a proposed consumer to the log, so that a new leader would
    /// continue it. After a refusal the leader proposes the consumer again later.
    pub(crate) fn handle_lasting(&mut self, now: Time, key: Key, outcome: &Outcome) {
        let now_us = self.wall.tell(now);
        if let Some(live) = self.consumers.get_mut(key) {
            live.told = false;
            match outcome {
                Outcome::Refused { .. } => {
                    live.lasts_us = Some(now_us.saturating_add(AGAIN_US));
                    // The leader may have proposed to delete the consumer meanwhile. That deletion had no
                    // effect, since the log never had the consumer, so the consumer continues.
                    (live.ending, live.deleted) = (false, false);
                }
                _ => self.consumers.note_logged(key),
            }
            self.consumers.wake(key);
        }
    }
}

impl Live {
    /// Returns whether the leader itself, without a client's request, has proposed to add the consumer to the
    /// log or to delete it, and the group has not applied that proposal yet. Clients' requests about the
    /// consumer wait meanwhile.
    pub(crate) const fn is_proposed(&self) -> bool {
        self.deleted || self.told
    }

    /// Returns whether the log keeps the consumer, or will keep it once the group has applied a proposal. In
    /// both cases, every change of the consumer must go through the log.
    pub(crate) const fn is_told(&self) -> bool {
        self.logged || self.told
    }
}

#[cfg(test)]
mod tests;

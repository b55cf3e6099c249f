//! Consumers that the log does not need to know, and hears of only if they last.
//!
//! An ordered consumer ends with its client and keeps no record of acknowledgements. Its client makes another
//! one at each gap, and that must not wait for a sync: so only the leader's node knows such a consumer. But
//! its client watches the numbers of the messages, and has to go on when another node leads. So the leader
//! proposes a consumer that has lasted a little, together with its start, and no client waits for that. It
//! never proposes the deliveries.
//!
//! The next leader starts the consumer again where it began, with the numbers it began with. A client that
//! had no message yet goes on as if the leader had not changed. Any other client sees at the first message
//! that it is not the expected one, and makes another consumer from its own position.

use tidegate::Time;
use tidegate_stream::consumer::rules::is_logged;
use tidegate_stream::schema::config::{AckPolicy, ConsumerConfig};
use tidegate_stream::stream::{Command, ConsumerRequest, Kind, Outcome};

use super::Key;
use super::consumers::Live;
use crate::streams::JetStream;
use crate::streams::outcome::Then;

/// How long a consumer lasts before the leader proposes it, in microseconds: a consumer that is made to read
/// the messages there are now costs the log nothing.
const LASTING_US: u64 = 250_000;
/// How long after a refusal the leader proposes the consumer again, in microseconds.
const AGAIN_US: u64 = 5_000_000;

/// Returns the time at which the leader proposes a consumer that the log does not know and that is made now.
/// It never proposes one unless its client checks the numbers of pushed messages, as clients of ordered
/// consumers do: such a consumer sends heartbeats, uses flow control and delivers no message twice. A client
/// that does not check the numbers would take every message for a new one.
pub(crate) fn lasts_us(config: &ConsumerConfig, now_us: u64) -> Option<u64> {
    let watched = !config.deliver_subject.is_empty()
        && config.ack_policy == AckPolicy::None
        && config.idle_heartbeat > 0
        && config.flow_control
        && config.max_deliver == 1;
    (watched && !is_logged(config)).then(|| now_us.saturating_add(LASTING_US))
}

impl JetStream {
    /// Proposes a consumer that has lasted.
    pub(crate) fn propose_lasting(&mut self, now: Time, key: Key) -> Option<()> {
        let live = self.consumers.get_mut(key)?;
        let request = ConsumerRequest {
            config: live.config.clone(),
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

    /// Notes whether the log took or refused a consumer that the leader proposed.
    pub(crate) fn handle_lasting(&mut self, now: Time, key: Key, outcome: &Outcome) {
        let now_us = self.wall.tell(now);
        if let Some(live) = self.consumers.get_mut(key) {
            live.told = false;
            match outcome {
                Outcome::Refused { .. } => {
                    live.lasts_us = Some(now_us.saturating_add(AGAIN_US));
                    // The leader may have proposed its deletion, too, and the log had no consumer to delete.
                    (live.ending, live.deleted) = (false, false);
                }
                _ => live.logged = true,
            }
            self.consumers.wake(key);
        }
    }
}

impl Live {
    /// Returns whether a proposal of the server's own that is not applied yet adds the
    /// consumer to the log, or deletes it.
    pub(crate) const fn is_proposed(&self) -> bool {
        self.deleted || self.told
    }

    /// Returns whether the log knows the consumer, or will once a proposal is applied: then
    /// every change of it has to go through the log.
    pub(crate) const fn is_told(&self) -> bool {
        self.logged || self.told
    }
}

#[cfg(test)]
mod tests;

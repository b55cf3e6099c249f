//! Consumers that the log does not need to know, and hears of if they last.
//!
//! A consumer that ends with its user and keeps account of nothing is made and deleted at each gap, which
//! must not wait for a sync: it is this node's alone. But who listens to one watches its numbers, and is to
//! go on when another node leads. So once it has lasted a little the log is told of it, and where it began,
//! with nobody waiting for that. What it delivers is not. Whoever leads next begins it anew, where it began,
//! with the numbers it began with: a listener that had nothing yet goes on with it as if nothing had
//! happened, every other sees at the first message that it is not the one it expects, and has another made
//! from where it is.

use tidegate::Time;

use super::JetStream;
use super::consumers::{Key, Live};
use super::outcome::Then;
use crate::api::config::{AckPolicy, ConsumerConfig};
use crate::stream::{Command, ConsumerRequest, Kind, Outcome};

/// How long a consumer lasts before the log is told of it, in microseconds: one that is made to read what
/// there is costs it nothing.
const LASTING_US: u64 = 250_000;
/// After so long the log is told again that would not have it.
const AGAIN_US: u64 = 5_000_000;

/// Returns whether the log is to know a consumer before anybody else does: not if it ends with its user
/// anyway and keeps account of nothing, or asks to be kept in memory.
pub(super) fn is_logged(config: &ConsumerConfig) -> bool {
    let forgetful = config.mem_storage || config.ack_policy == AckPolicy::None;
    !config.durable_name.is_empty() || !forgetful
}

/// When the log is to be told of a consumer that it does not know, and that is made now: never unless its
/// listener looks at the numbers of what it is pushed, as ordered consumers do: they are given signs of life,
/// answer for what they have taken, and want nothing twice. Who does not look would take everything for new.
pub(super) fn lasts_us(config: &ConsumerConfig, now_us: u64) -> Option<u64> {
    let watched = !config.deliver_subject.is_empty()
        && config.ack_policy == AckPolicy::None
        && config.idle_heartbeat > 0
        && config.flow_control
        && config.max_deliver == 1;
    (watched && !is_logged(config)).then(|| now_us.saturating_add(LASTING_US))
}

impl JetStream {
    /// Tells the log of a consumer that has lasted.
    pub(super) fn propose_lasting(&mut self, now: Time, key: Key) -> Option<()> {
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
        self.command(now, false, &command, Some((b"", Then::Lasting(key))));
        Some(())
    }

    /// The log knows a consumer that it was told of, or would not have it.
    pub(super) fn handle_lasting(&mut self, now: Time, key: Key, outcome: &Outcome) {
        let now_us = self.wall.tell(now);
        if let Some(live) = self.consumers.get_mut(key) {
            live.told = false;
            match outcome {
                Outcome::Refused { .. } => {
                    live.lasts_us = Some(now_us.saturating_add(AGAIN_US));
                    // Its end may have been told to the log, too, which knows of nothing to end.
                    (live.ending, live.deleted) = (false, false);
                }
                _ => live.logged = true,
            }
            self.consumers.wake(key);
        }
    }
}

impl Live {
    /// Returns whether the log is to hear of it, or of its end, by a proposal of the server's own that is not
    /// applied yet.
    pub(super) const fn is_proposed(&self) -> bool {
        self.deleted || self.told
    }

    /// Returns whether the log knows it, or was told of it: what becomes of it is the log's affair.
    pub(super) const fn is_told(&self) -> bool {
        self.logged || self.told
    }
}

#[cfg(test)]
mod tests;

//! Translates a consumer's configuration into the form that the consumer's leader uses: times in
//! microseconds, all numbers bounded, and no negative number with a special meaning.
//!
//! This module owns the translation from the configuration. [`super::rules`] owns the rules and defaults of a
//! configuration.

use super::delta::UNACKED_MAX;
use super::pulls::{PullLimits, WAITING_MAX};
use super::push::PushSettings;
use super::rules::MAX_ACK_PENDING_DEFAULT;
use crate::convert::{or_zero, positive, saturating_u32, saturating_usize};
use crate::schema::config::{AckPolicy, ConsumerConfig, ReplayPolicy};

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) ack: AckPolicy,
    /// True if a message becomes due for redelivery some time after its delivery. A consumer that takes
    /// acknowledgements by flow control delivers a message again only after a reset.
    pub(super) redelivers: bool,
    /// The waits before the first redelivery, the second one and so on, in microseconds; the last wait
    /// applies to all further redeliveries. The configuration gives them as `backoff` or `ack_wait`.
    waits_us: Vec<u64>,
    /// The delivery limit: the consumer delivers a message this number of times before it gives the message
    /// up.
    pub(super) max_deliver: u32,
    /// The limit on the messages that await an acknowledgement. At this limit the consumer stops delivering.
    pub(super) max_unacked: usize,
    pub(super) headers_only: bool,
    /// The percentage of acknowledgements that the consumer reports in advisories, so that operators see a
    /// sample.
    pub(super) sample_percent: u64,
    pub(super) replay_original: bool,
    /// The end of the consumer's pause, in microseconds since the Unix epoch: until then the consumer
    /// delivers nothing.
    pub(super) pause_until_us: u64,
    /// The time after which the server deletes the consumer if no client uses it, in microseconds; `None`
    /// means never, as for most durable consumers.
    pub(super) inactive_us: Option<u64>,
    pub(super) filters: Vec<Box<[u8]>>,
    pub(super) pulls: PullLimits,
    /// The settings that only a push consumer has; `None` for a pull consumer, which has no receiver of its
    /// own.
    pub(super) push: Option<PushSettings>,
}

impl Settings {
    pub(super) fn new(stream: &str, consumer: &str, config: &ConsumerConfig) -> Self {
        let waits_us = if config.backoff.is_empty() {
            vec![micros(config.ack_wait).max(1)]
        } else {
            config.backoff.iter().map(|ns| micros(*ns).max(1)).collect()
        };
        let max_unacked = match usize::try_from(config.max_ack_pending) {
            Err(_) => UNACKED_MAX,
            Ok(0) => MAX_ACK_PENDING_DEFAULT as usize,
            Ok(n) => n.min(UNACKED_MAX),
        };
        let one = Some(&config.filter_subject).filter(|f| !f.is_empty());
        let filters = one.into_iter().chain(&config.filter_subjects);
        let filters = filters
            .filter(|f| *f != ">")
            .map(|f| f.as_bytes().into())
            .collect();
        Self {
            ack: config.ack_policy,
            redelivers: config.ack_policy != AckPolicy::FlowControl,
            waits_us,
            max_deliver: positive(config.max_deliver).map_or(u32::MAX, saturating_u32),
            max_unacked,
            headers_only: config.headers_only,
            sample_percent: config
                .sample_freq
                .trim_end_matches('%')
                .parse()
                .unwrap_or(0),
            replay_original: config.replay_policy == ReplayPolicy::Original,
            pause_until_us: config.pause_until.map_or(0, |t| t.as_micros_up()),
            inactive_us: positive(config.inactive_threshold).map(|ns| ns.div_ceil(1000)),
            filters,
            pulls: PullLimits {
                waiting: positive(config.max_waiting).map_or(WAITING_MAX, saturating_usize),
                batch: or_zero(config.max_batch),
                expires_ns: or_zero(config.max_expires),
                bytes: or_zero(config.max_bytes),
            },
            push: (!config.deliver_subject.is_empty()).then(|| PushSettings {
                subject: config.deliver_subject.as_bytes().into(),
                group: Some(config.deliver_group.as_bytes())
                    .filter(|g| !g.is_empty())
                    .map(Into::into),
                heartbeat_us: micros(config.idle_heartbeat),
                rate_limit_bps: config.rate_limit_bps,
                flow_prefix: config
                    .flow_control
                    .then(|| format!("$JS.FC.{stream}.{consumer}.")),
                takes_acks: config.ack_policy == AckPolicy::FlowControl,
            }),
        }
    }

    /// Returns the time for which the consumer waits for a message's acknowledgement after this number of
    /// deliveries, in microseconds. After this time the consumer redelivers the message.
    pub(super) fn wait_us(&self, deliveries: u32) -> u64 {
        let last = self.waits_us.len() - 1;
        self.waits_us[last.min(deliveries.saturating_sub(1) as usize)]
    }
}

fn micros(ns: i64) -> u64 {
    or_zero(ns).div_ceil(1000)
}

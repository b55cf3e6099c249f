//! The limits that the operator sets on the requests for streams and consumers. The leader applies them to a
//! request before it proposes the change, so nodes with different limits apply the same commands.

use crate::consumer::duration;
use crate::consumer::rules::MAX_ACK_PENDING_DEFAULT;
use crate::schema::config::{AckPolicy, ConsumerConfig, StreamConfig};
use crate::schema::error::ApiError;
use crate::stream::rules::DUPLICATE_WINDOW_DEFAULT_NS;

/// The operator's limits on what a request may ask for. 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The most unacknowledged messages that one consumer may have.
    pub max_ack_pending: i64,
    /// The most messages that one pull request may ask for.
    pub max_batch: i64,
    /// The longest time in which a stream looks for duplicates, in nanoseconds.
    pub duplicate_window: i64,
}

impl Limits {
    /// Lowers the defaults of a new consumer to the limits, and checks the values that the client asked for.
    ///
    /// # Errors
    /// The client asked for more than a limit allows: 10121 or 10125.
    pub fn bound_consumer(
        &self,
        config: &mut ConsumerConfig,
        stream: &StreamConfig,
    ) -> Result<(), ApiError> {
        let (pending, batch) = (self.max_ack_pending, self.max_batch);
        if pending > 0 && config.max_ack_pending == 0 && config.ack_policy != AckPolicy::None {
            let of_stream = Some(stream.consumer_limits.max_ack_pending).filter(|n| *n > 0);
            let default = of_stream.unwrap_or(MAX_ACK_PENDING_DEFAULT);
            config.max_ack_pending = default.min(pending);
        }
        if batch > 0 && config.max_batch == 0 && config.deliver_subject.is_empty() {
            config.max_batch = batch;
        }
        if pending > 0 && config.max_ack_pending > pending {
            return Err(ApiError::max_ack_pending_exceeds(pending));
        }
        if batch > 0 && config.max_batch > batch {
            return Err(ApiError::max_batch_exceeds(batch));
        }
        Ok(())
    }

    /// Lowers the default window of a stream to the limit, and checks the window that the client asked for.
    ///
    /// # Errors
    /// The client asked for a longer window: 10052.
    pub fn bound_stream(&self, config: &mut StreamConfig) -> Result<(), ApiError> {
        let limit = self.duplicate_window;
        if limit == 0 {
            return Ok(());
        }
        if config.duplicate_window == 0 && !config.has_origins() {
            let age = Some(config.max_age).filter(|age| *age > 0);
            let default = age.map_or(DUPLICATE_WINDOW_DEFAULT_NS, |age| {
                age.min(DUPLICATE_WINDOW_DEFAULT_NS)
            });
            config.duplicate_window = default.min(limit);
        }
        if config.duplicate_window > limit {
            let limit = duration::text(limit);
            return Err(ApiError::invalid_config(format_args!(
                "duplicates window can not be larger then server limit of {limit}"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LIMITS: Limits = Limits {
        max_ack_pending: 200,
        max_batch: 50,
        duplicate_window: 60_000_000_000,
    };

    #[test]
    fn a_consumer_obeys_the_operator() {
        let bounded = |config, of_stream| {
            let stream = json!({"name": "S", "consumer_limits": {"max_ack_pending": of_stream}});
            let stream: StreamConfig = serde_json::from_value(stream).unwrap();
            let mut config: ConsumerConfig = serde_json::from_value(config).unwrap();
            let bounded = LIMITS.bound_consumer(&mut config, &stream);
            bounded.map(|()| (config.max_ack_pending, config.max_batch))
        };
        let explicit = json!({"ack_policy": "explicit"});
        assert_eq!(bounded(explicit.clone(), 0), Ok((200, 50)));
        assert_eq!(bounded(explicit.clone(), 7), Ok((7, 50)));
        assert_eq!(bounded(explicit, 300), Ok((200, 50)));
        assert_eq!(bounded(json!({"ack_policy": "none"}), 0), Ok((0, 50)));
        let push = json!({"ack_policy": "explicit", "deliver_subject": "d"});
        assert_eq!(bounded(push, 0), Ok((200, 0)));
        let unlimited = json!({"ack_policy": "explicit", "max_ack_pending": -1});
        assert_eq!(bounded(unlimited, 0), Ok((-1, 50)));
        let pending = json!({"ack_policy": "explicit", "max_ack_pending": 201});
        let error = bounded(pending, 0).unwrap_err();
        assert!(error.to_string().contains("system limit of 200"));
        let error = bounded(json!({"max_batch": 51}), 0).unwrap_err();
        assert!(error.to_string().contains("server limit of 50"));
    }

    #[test]
    fn a_stream_obeys_the_operator() {
        let bounded = |config| {
            let mut config: StreamConfig = serde_json::from_value(config).unwrap();
            let bounded = LIMITS.bound_stream(&mut config);
            bounded.map(|()| config.duplicate_window / 1_000_000_000)
        };
        assert_eq!(bounded(json!({"name": "S"})), Ok(60));
        let aged = json!({"name": "S", "max_age": 5_000_000_000_i64});
        assert_eq!(bounded(aged), Ok(5));
        assert_eq!(
            bounded(json!({"name": "S", "mirror": {"name": "O"}})),
            Ok(0)
        );
        let error = bounded(json!({"name": "S", "duplicate_window": 61_000_000_000_i64}));
        let text = error.unwrap_err().to_string();
        assert!(text.contains("larger then server limit of 1m0s"), "{text}");
    }
}

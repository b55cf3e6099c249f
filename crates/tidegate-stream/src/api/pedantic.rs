//! Refuses configurations with values that defaults would replace, if a client asks for that by the field
//! `pedantic`: such a client wants an error in place of a silent correction.
//!
//! Other modules hold the rules for the values that the server refuses to every client.

use crate::consumer::rules::check_flow_settings;
use crate::schema::config::{AckPolicy, ConsumerConfig, StreamConfig};
use crate::schema::error::ApiError;

/// The default time for which a stream remembers the ids of messages to recognise duplicates, in nanoseconds.
/// A shorter age limit makes the default shorter.
const DUPLICATE_WINDOW_DEFAULT: i64 = 120_000_000_000;

/// Checks that a stream can have its configuration exactly as a pedantic request asks for it, without a
/// correction by a default.
///
/// # Errors
///
/// Returns an error that names the first value that a default would replace, so that the client can correct
/// it.
pub fn stream(config: &StreamConfig) -> Result<(), ApiError> {
    let limits = [
        ("max_msgs", config.max_msgs),
        ("max_msgs_per_subject", config.max_msgs_per_subject),
        ("max_bytes", config.max_bytes),
        ("max_msg_size", config.max_msg_size.into()),
        ("max_consumers", config.max_consumers),
    ];
    if let Some((name, _)) = limits.iter().find(|(_, limit)| *limit < -1) {
        return Err(ApiError::pedantic(format_args!("{name} must be set to -1")));
    }
    if config.duplicate_window == 0 && (1..DUPLICATE_WINDOW_DEFAULT).contains(&config.max_age) {
        let text = "duplicate window cannot be bigger than max age";
        return Err(ApiError::pedantic(text));
    }
    republish(config)?;
    if config.subject_delete_marker_ttl > 0 {
        let off = match (config.allow_msg_ttl, config.allow_rollup_hdrs) {
            (false, _) => "message TTLs",
            (true, false) => "roll-ups",
            (true, true) => return Ok(()),
        };
        return Err(ApiError::invalid_config(format_args!(
            "subject delete marker cannot be set if {off} are disabled"
        )));
    }
    Ok(())
}

/// Checks that the rule by which a stream publishes its messages again stays as the client's request has it,
/// without a correction by a default.
fn republish(config: &StreamConfig) -> Result<(), ApiError> {
    let Some(republish) = &config.republish else {
        return Ok(());
    };
    if republish.src.is_empty() {
        return Err(ApiError::pedantic("republish source can not be empty"));
    }
    let transform = config.subject_transform.as_ref();
    if republish.src == ">"
        && republish.dest == ">"
        && transform.is_some_and(|transform| config.subjects == [transform.src.as_str()])
    {
        let text = "implicit republish based on subject transform";
        return Err(ApiError::pedantic(text));
    }
    Ok(())
}

/// Checks that a consumer of `stream` can have its configuration exactly as a pedantic request asks for it,
/// without a correction by a default.
///
/// # Errors
///
/// Returns an error that names the first value that a default would replace, so that the client can correct
/// it.
pub fn consumer(config: &ConsumerConfig, stream: &StreamConfig) -> Result<(), ApiError> {
    let at_least = [
        ("max_deliver must be set to -1", config.max_deliver, -1),
        ("max_waiting must not be negative", config.max_waiting, 0),
        (
            "max_ack_pending must be set to -1",
            config.max_ack_pending,
            -1,
        ),
        ("max_batch must not be negative", config.max_batch, 0),
        ("max_expires must not be negative", config.max_expires, 0),
        ("max_bytes must not be negative", config.max_bytes, 0),
        (
            "idle_heartbeat must not be negative",
            config.idle_heartbeat,
            0,
        ),
        (
            "inactive_threshold must not be negative",
            config.inactive_threshold,
            0,
        ),
    ];
    if let Some((text, ..)) = at_least.iter().find(|(_, value, least)| value < least) {
        return Err(ApiError::pedantic(text));
    }
    if config.ack_policy == AckPolicy::FlowControl && !config.deliver_subject.is_empty() {
        check_flow_settings(config)?;
    }
    if config
        .backoff
        .first()
        .is_some_and(|first| *first != config.ack_wait)
    {
        let text = "first backoff value has to equal batch AckWait";
        return Err(ApiError::pedantic(text));
    }
    let limits = &stream.consumer_limits;
    let unset = [
        (
            "max_ack_pending",
            config.max_ack_pending,
            limits.max_ack_pending,
        ),
        (
            "inactive_threshold",
            config.inactive_threshold,
            limits.inactive_threshold,
        ),
    ];
    match unset.iter().find(|(_, value, of)| *value == 0 && *of > 0) {
        Some((name, ..)) => Err(ApiError::pedantic(format_args!(
            "{name} must be set if it's configured in stream limits"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn corrected_fields_are_named() {
        let asked = |fields: serde_json::Value| {
            let config: StreamConfig = serde_json::from_value(fields).unwrap();
            stream(&config).map_err(|e| (e.err_code, e.description.into_owned()))
        };
        assert_eq!(asked(json!({"name": "S"})), Ok(()));
        assert_eq!(
            asked(json!({"name": "S", "max_bytes": -2})),
            Err((10157, "pedantic mode: max_bytes must be set to -1".into()))
        );
        let window = "pedantic mode: duplicate window cannot be bigger than max age";
        assert_eq!(
            asked(json!({"name": "S", "max_age": 1_000_000_000})),
            Err((10157, window.into()))
        );
        assert_eq!(
            asked(json!({"name": "S", "subject_delete_marker_ttl": 1_000_000_000}))
                .map_err(|e| e.0),
            Err(10052)
        );
    }

    #[test]
    fn consumers_in_pedantic_mode() {
        let limited: StreamConfig =
            serde_json::from_value(json!({"name": "S", "consumer_limits": {"max_ack_pending": 5}}))
                .unwrap();
        let asked = |fields: serde_json::Value, stream: &StreamConfig| {
            let config: ConsumerConfig = serde_json::from_value(fields).unwrap();
            consumer(&config, stream).map_err(|e| e.description.into_owned())
        };
        let plain = StreamConfig::default();
        assert_eq!(asked(json!({"max_ack_pending": 0}), &plain), Ok(()));
        let text = "pedantic mode: max_ack_pending must be set if it's configured in stream limits";
        assert_eq!(asked(json!({}), &limited), Err(text.into()));
        let text = "pedantic mode: first backoff value has to equal batch AckWait";
        assert_eq!(
            asked(json!({"ack_wait": 3, "backoff": [1, 2]}), &plain),
            Err(text.into())
        );
        let text = "pedantic mode: max_waiting must not be negative";
        assert_eq!(asked(json!({"max_waiting": -1}), &plain), Err(text.into()));
        let flow = json!({"ack_policy": "flow_control", "deliver_subject": "d"});
        let text = "flow control ack policy requires flow control";
        assert_eq!(asked(flow, &plain), Err(text.into()));
    }
}

//! The rules by which a server accepts or refuses consumer configurations, and the defaults that it fills in.
//!
//! This module owns the checks of a consumer's configuration by itself, against the configuration of its
//! stream, and against the configuration that it replaces. The texts of errors are the same as in
//! nats-server. The API checks the consumer's name and the request around a configuration; the stream checks
//! its number of consumers.

use tidegate_nats::subject;

use super::duration;
use crate::overlaps::Earlier;
use crate::schema::config::{AckPolicy, ConsumerConfig, DeliverPolicy, Retention, StreamConfig};
use crate::schema::error::ApiError;
use crate::schema::sequence::StreamSeq;

/// The default for the limit on the unacknowledged messages of a consumer. nats-server has a default of this
/// size too.
pub(crate) const MAX_ACK_PENDING_DEFAULT: i64 = 1000;
/// The default for the limit on the pull requests that wait at a consumer, as nats-server documents it.
const MAX_WAITING_DEFAULT: i64 = 512;
/// The default time for which a consumer waits for an acknowledgement before it redelivers a message, in
/// nanoseconds. nats-server waits as long.
const ACK_WAIT_DEFAULT: i64 = 30_000_000_000;
/// The default time after which the server deletes an unused consumer that is not durable, in nanoseconds,
/// because its client may have gone without a word.
const INACTIVE_DEFAULT: i64 = 5_000_000_000;
/// The shortest heartbeat interval that a push consumer may have, in nanoseconds. Shorter intervals would
/// cost too many messages.
const HEARTBEAT_MIN: i64 = 100_000_000;
/// The shortest limit that a consumer's configuration may set on the waiting time of a pull request, in
/// nanoseconds. With a shorter limit no pull could wait.
const MAX_EXPIRES_MIN: i64 = 1_000_000;
/// The heartbeat interval of a consumer that takes acknowledgements by flow control, in nanoseconds, as in
/// nats-server. With a heartbeat the consumer asks for the acknowledgements that are still due.
pub(crate) const FLOW_ACKS_HEARTBEAT: i64 = 1_000_000_000;
const DESCRIPTION_BYTES_MAX: usize = 4096;
const METADATA_BYTES_MAX: usize = 128 << 10;

/// Fills in the fields of a consumer's configuration that a request left out, with the defaults of the stream
/// and of the server, so that the client sees them in the answer.
pub fn set_defaults(config: &mut ConsumerConfig, stream: &StreamConfig) {
    if config.max_deliver == 0 || config.max_deliver < -1 {
        config.max_deliver = -1;
    }
    config.max_ack_pending = config.max_ack_pending.max(-1);
    for not_negative in [
        &mut config.max_waiting,
        &mut config.max_batch,
        &mut config.max_expires,
        &mut config.max_bytes,
        &mut config.idle_heartbeat,
        &mut config.inactive_threshold,
    ] {
        *not_negative = (*not_negative).max(0);
    }
    if config.deliver_subject.is_empty() && config.max_waiting == 0 {
        config.max_waiting = MAX_WAITING_DEFAULT;
    }
    let acked = config.ack_policy != AckPolicy::None;
    let by_flow = config.ack_policy == AckPolicy::FlowControl;
    if config.ack_wait == 0 && acked && !by_flow {
        config.ack_wait = ACK_WAIT_DEFAULT;
    }
    if let Some(first) = config.backoff.first() {
        config.ack_wait = *first;
    }
    if config.max_ack_pending == 0 {
        config.max_ack_pending = stream.consumer_limits.max_ack_pending;
    }
    if config.max_ack_pending == 0 && acked {
        config.max_ack_pending = MAX_ACK_PENDING_DEFAULT;
    }
    if config.inactive_threshold == 0 {
        config.inactive_threshold = stream.consumer_limits.inactive_threshold;
    }
    if config.inactive_threshold == 0 && config.durable_name.is_empty() {
        config.inactive_threshold = INACTIVE_DEFAULT;
    }
    if by_flow {
        config.flow_control = true;
        config.idle_heartbeat = FLOW_ACKS_HEARTBEAT;
    }
}

/// Checks a consumer's configuration, with its defaults filled in, against the rules and against the
/// configuration of the consumer's stream. Returns the error with which the server answers the client.
pub fn check(config: &ConsumerConfig, stream: &StreamConfig) -> Result<(), ApiError> {
    check_numbers(config, stream)?;
    if config.deliver_subject.is_empty() {
        check_pull(config, stream)?;
    } else {
        check_push(config, stream)?;
    }
    check_limits(config, stream)?;
    check_filters(config)?;
    check_start(config)?;
    if !config.sample_freq.is_empty() {
        let number = config.sample_freq.trim_end_matches('%');
        if !number.parse::<i64>().is_ok_and(|percent| percent >= 0) {
            let freq = &config.sample_freq;
            return Err(ApiError::invalid_sampling(format_args!(
                "{freq:?} is no percentage"
            )));
        }
    }
    if config.flow_control && config.idle_heartbeat == 0 {
        return Err(ApiError::FLOW_CONTROL_NEEDS_HEARTBEATS);
    }
    let names = [&config.durable_name, &config.name];
    if names.iter().all(|n| !n.is_empty()) && config.durable_name != config.name {
        return Err(ApiError::DURABLE_AND_NAME_MISMATCH);
    }
    let metadata = config.metadata.iter();
    if metadata.map(|(k, v)| k.len() + v.len()).sum::<usize>() > METADATA_BYTES_MAX {
        return Err(ApiError::consumer_metadata_too_long("128KB"));
    }
    Ok(())
}

fn check_numbers(config: &ConsumerConfig, stream: &StreamConfig) -> Result<(), ApiError> {
    if config.num_replicas > stream.num_replicas.max(1) {
        return Err(ApiError::CONSUMER_REPLICAS_EXCEED_STREAM);
    }
    if config.num_replicas < 0 {
        return Err(ApiError::REPLICAS_NEGATIVE);
    }
    let replicas = [0, stream.num_replicas.max(1)];
    if stream.retention != Retention::Limits && !replicas.contains(&config.num_replicas) {
        return Err(ApiError::CONSUMER_REPLICAS_NOT_STREAM);
    }
    if config.backoff.iter().any(|wait| *wait < 0) {
        return Err(ApiError::BACKOFF_NEGATIVE);
    }
    if config.ack_wait < 0 {
        return Err(ApiError::ACK_WAIT_NEGATIVE);
    }
    check_flow_acks(config)?;
    check_backoff(config)?;
    if config.description.len() > DESCRIPTION_BYTES_MAX {
        return Err(ApiError::consumer_description_too_long(
            DESCRIPTION_BYTES_MAX,
        ));
    }
    Ok(())
}

/// Checks a configuration with the ack policy `flow_control`, under which the answers to flow control
/// requests are the acknowledgements: the consumer pushes messages, sends such requests, and has no times of
/// redelivery.
fn check_flow_acks(config: &ConsumerConfig) -> Result<(), ApiError> {
    if config.ack_policy != AckPolicy::FlowControl {
        return Ok(());
    }
    if config.deliver_subject.is_empty() {
        return Err(ApiError::FLOW_ACKS_NEED_PUSH);
    }
    check_flow_settings(config)?;
    if config.max_ack_pending <= 0 {
        return Err(ApiError::FLOW_ACKS_NEED_MAX_ACK_PENDING);
    }
    if config.ack_wait != 0 || !config.backoff.is_empty() {
        return Err(ApiError::FLOW_ACKS_WITH_ACK_WAIT);
    }
    match config.max_deliver > 0 {
        true => Err(ApiError::FLOW_ACKS_WITH_MAX_DELIVER),
        false => Ok(()),
    }
}

/// Checks the settings of flow control that the ack policy `flow_control` needs. [`set_defaults`] fills them
/// in, so only a pedantic request can lack them.
pub(crate) fn check_flow_settings(config: &ConsumerConfig) -> Result<(), ApiError> {
    if !config.flow_control {
        return Err(ApiError::FLOW_ACKS_NEED_FLOW_CONTROL);
    }
    match config.idle_heartbeat == FLOW_ACKS_HEARTBEAT {
        true => Ok(()),
        false => Err(ApiError::invalid_config(
            "flow control ack policy heartbeat needs to be 1s",
        )),
    }
}

fn check_backoff(config: &ConsumerConfig) -> Result<(), ApiError> {
    let len =
        i64::try_from(config.backoff.len()).expect("a list in memory has fewer than 2^63 items");
    if config.max_deliver != -1 && len > config.max_deliver {
        return Err(ApiError::MAX_DELIVER_BACKOFF);
    }
    Ok(())
}

fn check_push(config: &ConsumerConfig, stream: &StreamConfig) -> Result<(), ApiError> {
    let to = config.deliver_subject.as_bytes();
    if subject::has_wildcard(to) {
        return Err(ApiError::DELIVER_WILDCARD);
    }
    if !subject::is_valid(to) {
        return Err(ApiError::INVALID_DELIVER_SUBJECT);
    }
    if stream
        .subjects
        .iter()
        .any(|s| subject::contains(s.as_bytes(), to))
    {
        return Err(ApiError::DELIVER_CYCLE);
    }
    if config.max_waiting != 0 {
        return Err(ApiError::PUSH_MAX_WAITING);
    }
    if config.max_ack_pending > 0 && config.ack_policy == AckPolicy::None {
        return Err(ApiError::MAX_ACK_PENDING_NEEDS_ACK);
    }
    if (1..HEARTBEAT_MIN).contains(&config.idle_heartbeat) {
        return Err(ApiError::SMALL_HEARTBEAT);
    }
    Ok(())
}

fn check_pull(config: &ConsumerConfig, stream: &StreamConfig) -> Result<(), ApiError> {
    if config.ack_policy == AckPolicy::None && stream.retention == Retention::WorkQueue {
        return Err(ApiError::QUEUE_PULL_NEEDS_ACK);
    }
    if config.rate_limit_bps > 0 {
        return Err(ApiError::PULL_RATE_LIMIT);
    }
    if config.idle_heartbeat > 0 {
        return Err(ApiError::HEARTBEAT_NEEDS_PUSH);
    }
    if config.flow_control {
        return Err(ApiError::FLOW_CONTROL_NEEDS_PUSH);
    }
    if (1..MAX_EXPIRES_MIN).contains(&config.max_expires) {
        return Err(ApiError::MAX_EXPIRES_TOO_SMALL);
    }
    Ok(())
}

fn check_limits(config: &ConsumerConfig, stream: &StreamConfig) -> Result<(), ApiError> {
    let limits = &stream.consumer_limits;
    if limits.max_ack_pending > 0 && config.max_ack_pending > limits.max_ack_pending {
        return Err(ApiError::max_ack_pending_exceeds(limits.max_ack_pending));
    }
    if limits.inactive_threshold > 0 && config.inactive_threshold > limits.inactive_threshold {
        let limit = duration::text(limits.inactive_threshold);
        return Err(ApiError::inactive_threshold_exceeds(limit));
    }
    Ok(())
}

fn check_filters(config: &ConsumerConfig) -> Result<(), ApiError> {
    if !config.filter_subject.is_empty() && !config.filter_subjects.is_empty() {
        return Err(ApiError::DUPLICATE_FILTERS);
    }
    if config.filter_subjects.iter().any(String::is_empty) {
        return Err(ApiError::EMPTY_FILTER);
    }
    let one = Some(&config.filter_subject).filter(|f| !f.is_empty());
    let mut earlier = Earlier::default();
    for filter in one.into_iter().chain(&config.filter_subjects) {
        let filter = filter.as_bytes();
        if !subject::is_pattern(filter) {
            return Err(ApiError::invalid_config("invalid subject"));
        }
        if earlier.overlapping(filter).is_some() {
            return Err(ApiError::OVERLAPPING_FILTERS);
        }
        earlier.push(filter);
    }
    Ok(())
}

fn check_start(config: &ConsumerConfig) -> Result<(), ApiError> {
    let (seq, time) = (
        config.opt_start_seq > StreamSeq::ZERO,
        config.opt_start_time.is_some(),
    );
    let (name, seq_expected, time_expected) = match config.deliver_policy {
        DeliverPolicy::All => ("all", false, false),
        DeliverPolicy::Last => ("last", false, false),
        DeliverPolicy::New => ("new", false, false),
        DeliverPolicy::LastPerSubject => ("last per subject", false, false),
        DeliverPolicy::ByStartSequence => ("by start sequence", true, false),
        DeliverPolicy::ByStartTime => ("by start time", false, true),
    };
    let missing = |what: &str| {
        Err(ApiError::invalid_policy(format_args!(
            "consumer delivery policy is deliver {name}, but optional {what} is not set"
        )))
    };
    let too_much = |what: &str| {
        Err(ApiError::invalid_policy(format_args!(
            "consumer delivery policy is deliver {name}, but optional start {what} is also set"
        )))
    };
    if seq_expected && !seq {
        return missing("start sequence");
    }
    if time_expected && !time {
        return missing("start time");
    }
    if seq && !seq_expected {
        return too_much("sequence");
    }
    if time && !time_expected {
        return too_much("time");
    }
    let filtered = !config.filter_subject.is_empty() || !config.filter_subjects.is_empty();
    if config.deliver_policy == DeliverPolicy::LastPerSubject && !filtered {
        return missing("filter subject");
    }
    Ok(())
}

/// Returns whether the log must have a consumer before the server answers the client that creates it. That is
/// not necessary for a consumer without a durable name and with at most one replica, if the consumer expects
/// no acknowledgements or the client wants it in memory. It is always necessary in a stream that keeps
/// messages for its consumers: every node must know the consumers to remove the same messages. It is also
/// necessary with the ack policy `flow_control`, because another stream may take in messages by the consumer.
#[must_use]
pub fn is_logged(config: &ConsumerConfig, retention: Retention) -> bool {
    let forgetful = config.mem_storage || config.ack_policy == AckPolicy::None;
    !config.durable_name.is_empty()
        || !forgetful
        || config.num_replicas > 1
        || config.ack_policy == AckPolicy::FlowControl
        || retention != Retention::Limits
}

/// Returns whether the log keeps the progress of a consumer, if it keeps the consumer. The log keeps no
/// progress of a consumer that expects no acknowledgements and ends with its client, because nothing depends
/// on it, except in a stream that keeps messages for its consumers.
#[must_use]
pub fn yields_deltas(config: &ConsumerConfig, retention: Retention) -> bool {
    config.ack_policy != AckPolicy::None
        || !config.durable_name.is_empty()
        || retention != Retention::Limits
}

/// Checks that the consumer gets as many replicas as its configuration asks for. The log keeps a consumer on
/// all nodes that keep its stream; a consumer that is not in the log is only on the leader. nats-server can
/// also place a consumer on fewer nodes than its stream.
pub fn check_replicas(config: &ConsumerConfig, stream: &StreamConfig) -> Result<(), ApiError> {
    let (asked, all) = (config.num_replicas, stream.num_replicas.max(1));
    let alone = asked == 1 && !is_logged(config, stream.retention);
    if asked == 0 || asked == all || alone {
        return Ok(());
    }
    Err(ApiError::consumer_create(format_args!(
        "num_replicas {asked} is not supported by this server: a consumer has the {all} replicas of its stream"
    )))
}

/// Checks the configuration of a new consumer against the rules of a work queue: the consumer acknowledges
/// each message, or all of them in order by flow control, and begins with the first one. Otherwise the queue
/// could keep a message for ever. `others` are the other consumers of the stream.
pub fn check_queue<'a>(
    config: &ConsumerConfig,
    others: impl IntoIterator<Item = &'a ConsumerConfig>,
) -> Result<(), ApiError> {
    if !matches!(
        config.ack_policy,
        AckPolicy::Explicit | AckPolicy::FlowControl
    ) {
        return Err(ApiError::QUEUE_NEEDS_EXPLICIT_ACK);
    }
    if config.deliver_policy != DeliverPolicy::All {
        return Err(ApiError::QUEUE_NOT_DELIVER_ALL);
    }
    check_partition(config, others)
}

/// Checks that a consumer of a work queue has no message in common with `others`, the other consumers,
/// because each message of a queue goes to one consumer.
pub fn check_partition<'a>(
    config: &ConsumerConfig,
    others: impl IntoIterator<Item = &'a ConsumerConfig>,
) -> Result<(), ApiError> {
    let mut mine = Earlier::default();
    config
        .filters()
        .for_each(|filter| mine.push(filter.as_bytes()));
    let touches = |other: &ConsumerConfig| {
        let mut theirs = other.filters().peekable();
        theirs.peek().is_none() || theirs.any(|f| mine.overlapping(f.as_bytes()).is_some())
    };
    let mut others = others.into_iter().peekable();
    if config.filters().next().is_none() && others.peek().is_some() {
        return Err(ApiError::QUEUE_NOT_FILTERED);
    }
    match others.any(touches) {
        true => Err(ApiError::QUEUE_NOT_UNIQUE),
        false => Ok(()),
    }
}

/// The effect of a request to create a consumer: it makes the stream create or change the consumer, or
/// changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// No consumer has this name: the stream creates a consumer.
    Create,
    /// A consumer with this name and the same configuration exists: the stream changes nothing, so that a
    /// client can repeat its request.
    Same,
    /// A consumer with this name exists: the stream changes its configuration, as the rules allow.
    Update,
}

/// Decides the effect of a request to create a consumer. `existing` is the configuration of the consumer that
/// has the requested name; `action` is `create`, `update`, or empty for either. The caller has checked both
/// configurations and filled in their defaults, so that a comparison shows real changes only.
pub fn admit(
    action: &str,
    existing: Option<&ConsumerConfig>,
    config: &ConsumerConfig,
) -> Result<Admission, ApiError> {
    match existing {
        None if action == "update" => Err(ApiError::CONSUMER_DOES_NOT_EXIST),
        None => Ok(Admission::Create),
        Some(existing) if existing == config => Ok(Admission::Same),
        Some(_) if action == "create" => Err(ApiError::CONSUMER_EXISTS),
        Some(existing) => {
            check_update(existing, config)?;
            Ok(Admission::Update)
        }
    }
}

fn check_update(old: &ConsumerConfig, new: &ConsumerConfig) -> Result<(), ApiError> {
    let kept = [
        ("deliver policy", old.deliver_policy == new.deliver_policy),
        ("storage type", old.mem_storage == new.mem_storage),
        ("start sequence", old.opt_start_seq == new.opt_start_seq),
        ("start time", old.opt_start_time == new.opt_start_time),
        ("ack policy", old.ack_policy == new.ack_policy),
        ("replay policy", old.replay_policy == new.replay_policy),
        ("heart beats", old.idle_heartbeat == new.idle_heartbeat),
        ("flow control", old.flow_control == new.flow_control),
    ];
    let changed = |what: &str| {
        Err(ApiError::consumer_create(format_args!(
            "{what} can not be updated"
        )))
    };
    if let Some((what, _)) = kept.iter().find(|(_, same)| !same) {
        return changed(what);
    }
    match (
        old.deliver_subject.is_empty(),
        new.deliver_subject.is_empty(),
    ) {
        (true, false) => {
            return Err(ApiError::consumer_create(
                "can not update pull consumer to push based",
            ));
        }
        (false, true) => {
            return Err(ApiError::consumer_create(
                "can not update push consumer to pull based",
            ));
        }
        _ => {}
    }
    if old.max_waiting != new.max_waiting {
        return changed("max waiting");
    }
    check_backoff(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> StreamConfig {
        StreamConfig {
            name: "S".into(),
            subjects: vec!["a.>".into(), "b".into()],
            num_replicas: 1,
            ..StreamConfig::default()
        }
    }

    fn checked(json: &str) -> Result<ConsumerConfig, u16> {
        checked_in(json, &stream())
    }

    fn checked_in(json: &str, stream: &StreamConfig) -> Result<ConsumerConfig, u16> {
        let mut config: ConsumerConfig = serde_json::from_str(json).unwrap();
        set_defaults(&mut config, stream);
        check(&config, stream).map_err(|e| e.err_code)?;
        Ok(config)
    }

    #[test]
    fn defaults() {
        let pull = checked(r#"{"durable_name":"C","ack_policy":"explicit"}"#).unwrap();
        assert_eq!((pull.max_deliver, pull.max_waiting), (-1, 512));
        assert_eq!(
            (pull.ack_wait, pull.max_ack_pending),
            (30_000_000_000, 1000)
        );
        assert_eq!(pull.inactive_threshold, 0);
        let none = checked(r#"{"name":"C","max_deliver":-7,"max_ack_pending":-9,"max_batch":-1}"#)
            .unwrap();
        assert_eq!((none.ack_wait, none.max_ack_pending), (0, -1));
        assert_eq!((none.max_deliver, none.max_batch), (-1, 0));
        assert_eq!(none.inactive_threshold, 5_000_000_000);
        let backoff = checked(r#"{"ack_policy":"all","backoff":[5,6],"max_deliver":2}"#).unwrap();
        assert_eq!(backoff.ack_wait, 5);
        let push = checked(r#"{"deliver_subject":"x"}"#).unwrap();
        assert_eq!((push.max_waiting, push.max_ack_pending), (0, 0));
    }

    #[test]
    fn acknowledgements_by_flow_control() {
        let flow = r#"{"ack_policy":"flow_control","deliver_subject":"x"}"#;
        let config = checked(flow).unwrap();
        assert_eq!(
            (config.flow_control, config.idle_heartbeat),
            (true, FLOW_ACKS_HEARTBEAT)
        );
        assert_eq!((config.ack_wait, config.max_deliver), (0, -1));
        assert_eq!(config.max_ack_pending, 1000);
        let queue = StreamConfig {
            retention: Retention::WorkQueue,
            ..stream()
        };
        assert_eq!(checked_in(flow, &queue).as_ref(), Ok(&config));
        assert_eq!(check_queue(&config, []), Ok(()));
        assert!(is_logged(&config, Retention::Limits));
        assert!(yields_deltas(&config, Retention::Limits));
        let case = |more: &str| {
            let json = format!(r#"{{"ack_policy":"flow_control",{more}}}"#);
            checked(&json).unwrap_err()
        };
        for (code, more) in [
            (10218, r#""max_deliver":0"#),
            (10220, r#""deliver_subject":"x","max_ack_pending":-1"#),
            (10221, r#""deliver_subject":"x","ack_wait":1"#),
            (10221, r#""deliver_subject":"x","backoff":[1]"#),
            (10222, r#""deliver_subject":"x","max_deliver":1"#),
        ] {
            assert_eq!(case(more), code, "{more}");
        }
        let strict = |change: fn(&mut ConsumerConfig)| {
            let mut config = config.clone();
            change(&mut config);
            check(&config, &stream()).unwrap_err().err_code
        };
        assert_eq!(strict(|c| c.flow_control = false), 10219);
        assert_eq!(strict(|c| c.idle_heartbeat = 2_000_000_000), 10052);
    }

    #[test]
    fn a_streams_limits_are_defaults_too() {
        let mut stream = stream();
        stream.consumer_limits.max_ack_pending = 7;
        stream.consumer_limits.inactive_threshold = 60_000_000_000;
        let config = checked_in(r#"{"ack_policy":"explicit"}"#, &stream).unwrap();
        assert_eq!(
            (config.max_ack_pending, config.inactive_threshold),
            (7, 60_000_000_000)
        );
        let case = |json| checked_in(json, &stream).unwrap_err();
        assert_eq!(
            case(r#"{"ack_policy":"explicit","max_ack_pending":8}"#),
            10121
        );
        assert_eq!(case(r#"{"inactive_threshold":60000000001}"#), 10153);
    }

    #[test]
    fn work_queues_have_one_consumer_a_message() {
        let queue = StreamConfig {
            retention: Retention::WorkQueue,
            ..stream()
        };
        let config = |json: &str| -> ConsumerConfig { serde_json::from_str(json).unwrap() };
        let pull = checked_in(r#"{"ack_policy":"none"}"#, &queue);
        assert_eq!(pull, Err(10084));
        assert!(checked_in(r#"{"ack_policy":"none","deliver_subject":"x"}"#, &queue).is_ok());
        for (code, json) in [
            (10098, r#"{"ack_policy":"none","deliver_subject":"x"}"#),
            (10098, r#"{"ack_policy":"all"}"#),
            (10101, r#"{"ack_policy":"explicit","deliver_policy":"new"}"#),
        ] {
            let refused = check_queue(&config(json), []).unwrap_err();
            assert_eq!(refused.err_code, code, "{json}");
        }
        let filtered = |filters: &[&str]| ConsumerConfig {
            filter_subjects: filters.iter().map(|f| (*f).to_owned()).collect(),
            ..config(r#"{"ack_policy":"explicit"}"#)
        };
        let others = [filtered(&["a.1", "a.2"]), filtered(&["a.3.>"])];
        for (code, filters) in [
            (10099, &[][..]),
            (10100, &["a.2"]),
            (10100, &["b", "a.*"]),
            (10100, &["a.*.x"]),
            (10100, &[">"]),
        ] {
            let refused = check_queue(&filtered(filters), &others).unwrap_err();
            assert_eq!(refused.err_code, code, "{filters:?}");
            assert_eq!(check_partition(&filtered(filters), &others), Err(refused));
        }
        assert_eq!(check_queue(&filtered(&["a.4", "b"]), &others), Ok(()));
        assert_eq!(check_queue(&filtered(&[]), []), Ok(()));
        let all = [filtered(&[])];
        assert_eq!(
            check_queue(&filtered(&["b"]), &all),
            Err(ApiError::QUEUE_NOT_UNIQUE)
        );
    }

    #[test]
    fn the_log_keeps_each_consumer_for_which_a_stream_keeps_messages() {
        let ordered =
            r#"{"deliver_subject":"x","ack_policy":"none","mem_storage":true,"num_replicas":1}"#;
        let config: ConsumerConfig = serde_json::from_str(ordered).unwrap();
        for retention in [Retention::Interest, Retention::WorkQueue] {
            assert!(is_logged(&config, retention) && yields_deltas(&config, retention));
        }
        let limits = Retention::Limits;
        assert!(!is_logged(&config, limits) && !yields_deltas(&config, limits));
        let mut three = stream();
        (three.num_replicas, three.retention) = (3, Retention::Interest);
        assert_eq!(checked_in(ordered, &three), Err(10134));
        assert_eq!(checked_in(r#"{"num_replicas":4}"#, &three), Err(10126));
        assert!(checked_in(r#"{"num_replicas":3}"#, &three).is_ok());
    }

    #[test]
    fn refused_configurations() {
        let long = format!(r#"{{"description":"{}"}}"#, "x".repeat(4097));
        let big = format!(r#"{{"metadata":{{"k":"{}"}}}}"#, "x".repeat(128 << 10));
        let cases = [
            (10126, r#"{"num_replicas":3}"#),
            (10133, r#"{"num_replicas":-1}"#),
            (10184, r#"{"ack_policy":"all","backoff":[1,-1]}"#),
            (10183, r#"{"ack_policy":"all","ack_wait":-1}"#),
            (
                10116,
                r#"{"ack_policy":"all","backoff":[1,2],"max_deliver":1}"#,
            ),
            (10107, &long),
            (10135, &big),
            (10079, r#"{"deliver_subject":"x.*"}"#),
            (10112, r#"{"deliver_subject":"x..y"}"#),
            (10081, r#"{"deliver_subject":"a.x"}"#),
            (10080, r#"{"deliver_subject":"x","max_waiting":1}"#),
            (10082, r#"{"deliver_subject":"x","max_ack_pending":1}"#),
            (
                10083,
                r#"{"deliver_subject":"x","idle_heartbeat":99999999}"#,
            ),
            (10108, r#"{"deliver_subject":"x","flow_control":true}"#),
            (10086, r#"{"rate_limit_bps":1}"#),
            (10088, r#"{"idle_heartbeat":1000000000}"#),
            (10089, r#"{"flow_control":true}"#),
            (10115, r#"{"max_expires":999999}"#),
            (10136, r#"{"filter_subject":"b","filter_subjects":["a.x"]}"#),
            (10139, r#"{"filter_subjects":["b",""]}"#),
            (10052, r#"{"filter_subject":"a..x"}"#),
            (10138, r#"{"filter_subjects":["a.*","a.x"]}"#),
            (10138, r#"{"filter_subjects":["a.*.x","a.y.*"]}"#),
            (10094, r#"{"opt_start_seq":1}"#),
            (
                10094,
                r#"{"deliver_policy":"new","opt_start_time":"2026-01-01T00:00:00Z"}"#,
            ),
            (10094, r#"{"deliver_policy":"by_start_sequence"}"#),
            (10094, r#"{"deliver_policy":"by_start_time"}"#),
            (10094, r#"{"deliver_policy":"last_per_subject"}"#),
            (10095, r#"{"sample_freq":"often"}"#),
            (10095, r#"{"sample_freq":"-1%"}"#),
            (10132, r#"{"durable_name":"A","name":"B"}"#),
        ];
        for (code, json) in cases {
            assert_eq!(checked(json), Err(code), "{json}");
        }
        for good in [
            r#"{"filter_subjects":["a.x","b"],"sample_freq":"50%"}"#,
            r#"{"filter_subject":">"}"#,
            r#"{"filter_subject":"c"}"#,
            r#"{"filter_subjects":["b","c"]}"#,
            r#"{"deliver_subject":"x","idle_heartbeat":100000000,"flow_control":true}"#,
            r#"{"deliver_policy":"last_per_subject","filter_subject":"a.>"}"#,
        ] {
            assert!(checked(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn replicas_are_those_of_the_stream_or_of_the_leader_alone() {
        let stream = StreamConfig {
            num_replicas: 3,
            ..stream()
        };
        let outcome = |json: &str| {
            let config = checked_in(json, &stream).unwrap();
            let refused = check_replicas(&config, &stream).map_err(|e| e.err_code);
            refused.map(|()| is_logged(&config, stream.retention))
        };
        assert_eq!(
            outcome(r#"{"durable_name":"C","num_replicas":3}"#),
            Ok(true)
        );
        assert_eq!(
            outcome(r#"{"durable_name":"C","mem_storage":true}"#),
            Ok(true)
        );
        assert_eq!(
            outcome(r#"{"durable_name":"C","num_replicas":1}"#),
            Err(10012)
        );
        assert_eq!(
            outcome(r#"{"ack_policy":"explicit","num_replicas":1}"#),
            Err(10012)
        );
        assert_eq!(
            outcome(r#"{"mem_storage":true,"num_replicas":2}"#),
            Err(10012)
        );
        // The libraries of clients create ordered consumers with these settings. The log need not keep them.
        assert_eq!(
            outcome(r#"{"mem_storage":true,"num_replicas":1}"#),
            Ok(false)
        );
        assert_eq!(
            outcome(r#"{"mem_storage":true,"ack_policy":"explicit"}"#),
            Ok(false)
        );
        assert_eq!(
            outcome(r#"{"mem_storage":true,"num_replicas":3}"#),
            Ok(true)
        );
    }

    #[test]
    fn making_and_changing() {
        let old = checked(r#"{"durable_name":"C","ack_policy":"explicit"}"#).unwrap();
        let code = |r: Result<Admission, ApiError>| r.map_err(|e| e.err_code);
        for action in ["", "create"] {
            assert_eq!(code(admit(action, None, &old)), Ok(Admission::Create));
            assert_eq!(code(admit(action, Some(&old), &old)), Ok(Admission::Same));
        }
        assert_eq!(code(admit("update", None, &old)), Err(10149));
        let new = ConsumerConfig {
            max_ack_pending: 5,
            ..old.clone()
        };
        assert_eq!(code(admit("create", Some(&old), &new)), Err(10148));
        assert_eq!(
            code(admit("update", Some(&old), &new)),
            Ok(Admission::Update)
        );
        assert_eq!(code(admit("", Some(&old), &new)), Ok(Admission::Update));
        type Change = fn(&mut ConsumerConfig);
        let refused: [(&str, Change); 7] = [
            ("deliver policy can not be updated", |c| {
                c.deliver_policy = DeliverPolicy::New
            }),
            ("storage type can not be updated", |c| c.mem_storage = true),
            ("start sequence can not be updated", |c| {
                c.opt_start_seq = StreamSeq::FIRST
            }),
            ("ack policy can not be updated", |c| {
                c.ack_policy = AckPolicy::All
            }),
            ("heart beats can not be updated", |c| c.idle_heartbeat = 1),
            ("can not update pull consumer to push based", |c| {
                c.deliver_subject = "x".into()
            }),
            ("max waiting can not be updated", |c| c.max_waiting = 1),
        ];
        for (text, change) in refused {
            let mut new = old.clone();
            change(&mut new);
            let error = admit("", Some(&old), &new).unwrap_err();
            assert_eq!((error.err_code, &*error.description), (10012, text));
        }
    }
}

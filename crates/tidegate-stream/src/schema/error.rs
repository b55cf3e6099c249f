//! All errors that clients of streams and consumers can receive. Clients decide by `err_code`, and people
//! read the description, so both are as in nats-server.
//!
//! Errors with a fixed text are constants; errors with a varying text have constructors. The code that
//! detects an error chooses the error from this list, and the answers of the API encode it.

use std::borrow::Cow;
use std::fmt::Display;

use serde::{Deserialize, Serialize};

/// An error of the server, as a client gets it in an answer of the JetStream API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{description} ({err_code})")]
pub struct ApiError {
    /// The HTTP status code for this kind of failure, such as 404. Clients group errors by it.
    pub code: u16,
    /// The NATS error code, by which clients tell errors apart.
    pub err_code: u16,
    /// The description of the error, for people, in the words of nats-server.
    pub description: Cow<'static, str>,
}

/// Declares the errors: `NAME = code, err_code, "description"` makes a constant with a fixed text, and
/// `name(what) = ...` a constructor that puts its argument in place of `{}` in the text.
macro_rules! errors {
    (fixed { $($name:ident = $code:literal, $err_code:literal, $text:literal;)* }
     varying { $($make:ident($what:ident) = $vcode:literal, $verr:literal, $vtext:literal;)* }) => {
        impl ApiError {
            $(
                #[doc = concat!($err_code, ": ", $text, ".")]
                pub const $name: Self = Self {
                    code: $code,
                    err_code: $err_code,
                    description: Cow::Borrowed($text),
                };
            )*
            $(
                #[doc = concat!($verr, ": `", $vtext, "`.")]
                #[must_use]
                pub fn $make($what: impl Display) -> Self {
                    Self {
                        code: $vcode,
                        err_code: $verr,
                        description: Cow::Owned(format!($vtext, $what)),
                    }
                }
            )*

            /// Returns all errors, with `?` in place of the argument of a varying text, for documents and
            /// tests that list the errors. Tests check that no number occurs twice.
            #[must_use]
            pub fn all() -> Vec<Self> {
                vec![$(Self::$name,)* $(Self::$make("?"),)*]
            }
        }
    };
}

errors! {
    fixed {
        BAD_REQUEST = 400, 10003, "bad request";
        SYSTEM_UNAVAILABLE = 503, 10008, "JetStream system temporarily unavailable";
        NOT_LEADER = 500, 10009, "JetStream cluster can not handle request";
        CLUSTER_REQUIRED = 503, 10010, "JetStream clustering support required";
        SNAPSHOT_DELIVER_INVALID = 400, 10015, "deliver subject not valid";
        CONSUMER_NAME_EXISTS = 400, 10013, "consumer name already in use";
        CONSUMER_NOT_FOUND = 404, 10014, "consumer not found";
        DURABLE_NOT_IN_SUBJECT = 400, 10016, "consumer expected to be durable but no durable name set in subject";
        DURABLE_MISMATCH = 400, 10017, "consumer name in subject does not match durable name in request";
        DURABLE_NOT_SET = 400, 10018, "consumer expected to be durable but a durable name was not set";
        EPHEMERAL_WITH_DURABLE_IN_SUBJECT = 400, 10019,
            "consumer expected to be ephemeral but detected a durable name set in subject";
        EPHEMERAL_WITH_DURABLE = 400, 10020, "consumer expected to be ephemeral but a durable name was set in request";
        INSUFFICIENT_RESOURCES = 503, 10023, "insufficient resources";
        MAXIMUM_CONSUMERS = 400, 10026, "maximum consumers limit reached";
        MAXIMUM_STREAMS = 400, 10027, "maximum number of streams reached";
        MEMORY_EXCEEDED = 500, 10028, "insufficient memory resources available";
        MIRROR_MESSAGES_TOO_LARGE = 400, 10030, "stream mirror must have max message size >= source";
        MIRROR_WITH_SOURCES = 400, 10031, "stream mirrors can not also contain other sources";
        MIRROR_WITH_SUBJECTS = 400, 10034, "stream mirrors can not contain subjects";
        NO_MESSAGE_FOUND = 404, 10037, "no message found";
        NOT_EMPTY_REQUEST = 400, 10038, "expected an empty request payload";
        NOT_ENABLED_FOR_ACCOUNT = 503, 10039, "JetStream not enabled for account";
        SOURCE_MESSAGES_TOO_LARGE = 400, 10046, "stream source must have max message size >= target";
        STORAGE_EXCEEDED = 500, 10047, "insufficient storage resources available";
        MESSAGE_TOO_LARGE = 400, 10054, "message size exceeds maximum allowed";
        MIRROR_NOT_UPDATABLE = 400, 10055, "stream mirror configuration can not be updated";
        STREAM_MISMATCH = 400, 10056, "stream name in subject does not match request";
        STREAM_NAME_EXISTS = 400, 10058, "stream name already in use with a different configuration";
        STREAM_NOT_FOUND = 404, 10059, "stream not found";
        EXPECTED_STREAM = 400, 10060, "expected stream does not match";
        SUBJECT_OVERLAP = 400, 10065, "subjects overlap with an existing stream";
        REPLICAS_NOT_SUPPORTED = 500, 10074, "replicas > 1 not supported in non-clustered mode";
        NOT_ENABLED = 503, 10076, "JetStream not enabled";
        CONSUMER_CONFIG_REQUIRED = 400, 10078, "consumer config required";
        DELIVER_WILDCARD = 400, 10079, "consumer deliver subject has wildcards";
        PUSH_MAX_WAITING = 400, 10080, "consumer in push mode can not set max waiting";
        DELIVER_CYCLE = 400, 10081, "consumer deliver subject forms a cycle";
        MAX_ACK_PENDING_NEEDS_ACK = 400, 10082, "consumer requires ack policy for max ack pending";
        SMALL_HEARTBEAT = 400, 10083, "consumer idle heartbeat needs to be >= 100ms";
        QUEUE_PULL_NEEDS_ACK = 400, 10084, "consumer in pull mode requires explicit ack policy on workqueue stream";
        PULL_RATE_LIMIT = 400, 10086, "consumer in pull mode can not have rate limit set";
        MAX_WAITING_NEGATIVE = 400, 10087, "consumer max waiting needs to be positive";
        HEARTBEAT_NEEDS_PUSH = 400, 10088, "consumer idle heartbeat requires a push based consumer";
        FLOW_CONTROL_NEEDS_PUSH = 400, 10089, "consumer flow control requires a push based consumer";
        DIRECT_NEEDS_PUSH = 400, 10090, "consumer direct requires a push based consumer";
        STREAM_INVALID = 500, 10096, "stream not valid";
        HEADERS_TOO_LARGE = 400, 10097, "header size exceeds maximum allowed of 64k";
        QUEUE_NEEDS_EXPLICIT_ACK = 400, 10098, "workqueue stream requires explicit ack";
        QUEUE_NOT_FILTERED = 400, 10099, "multiple non-filtered consumers not allowed on workqueue stream";
        QUEUE_NOT_UNIQUE = 400, 10100, "filtered consumer not unique on workqueue stream";
        QUEUE_NOT_DELIVER_ALL = 400, 10101, "consumer must be deliver all on workqueue stream";
        BAD_DURABLE_NAME = 400, 10103, "durable name can not contain '.', '*', '>'";
        CONSUMER_STILL_ACTIVE = 400, 10105, "consumer already exists and is still active";
        FLOW_CONTROL_NEEDS_HEARTBEATS = 400, 10108, "consumer with flow control also needs heartbeats";
        STREAM_SEALED = 400, 10109, "invalid operation on sealed stream";
        INVALID_DELIVER_SUBJECT = 400, 10112, "invalid push consumer deliver subject";
        MAX_BYTES_REQUIRED = 400, 10113, "account requires a stream config to have max bytes set";
        MAX_BATCH_NEGATIVE = 400, 10114, "consumer max request batch needs to be > 0";
        MAX_EXPIRES_TOO_SMALL = 400, 10115, "consumer max request expires needs to be >= 1ms";
        MAX_DELIVER_BACKOFF = 400, 10116, "max deliver is required to be > length of backoff values";
        TOO_MANY_SUBJECTS = 500, 10117, "subject details would exceed maximum allowed";
        STREAM_OFFLINE = 500, 10118, "stream is offline";
        MAX_STREAM_BYTES = 400, 10122, "stream max bytes exceeds account limit max stream bytes";
        CONSUMER_REPLICAS_EXCEED_STREAM = 400, 10126, "consumer config replica count exceeds parent stream";
        CONSUMER_NAME_PATH = 400, 10127, "Consumer name can not contain path separators";
        STREAM_NAME_PATH = 400, 10128, "Stream name can not contain path separators";
        FILTER_MISMATCH = 400, 10131, "Consumer create request did not match filtered subject from create subject";
        DURABLE_AND_NAME_MISMATCH = 400, 10132, "Consumer Durable and Name have to be equal if both are provided";
        STREAM_NAME_EXISTS_RESTORE = 400, 10130, "stream name already in use, cannot restore";
        REPLICAS_NEGATIVE = 400, 10133, "replicas count cannot be negative";
        CONSUMER_REPLICAS_NOT_STREAM = 400, 10134,
            "consumer config replicas must match interest retention stream's replicas";
        DUPLICATE_FILTERS = 400, 10136, "consumer cannot have both FilterSubject and FilterSubjects specified";
        MULTIPLE_FILTERS_NOT_ALLOWED = 400, 10137, "consumer with multiple subject filters cannot use subject based API";
        OVERLAPPING_FILTERS = 400, 10138, "consumer subject filters cannot overlap";
        EMPTY_FILTER = 400, 10139, "consumer filter in FilterSubjects cannot be empty";
        SOURCE_DUPLICATE = 400, 10140, "duplicate source configuration detected";
        SOURCE_NAME_INVALID = 400, 10141, "sourced stream name is invalid";
        MIRROR_NAME_INVALID = 400, 10142, "mirrored stream name is invalid";
        MIRROR_WITH_FIRST_SEQ = 400, 10143, "stream mirrors can not have first sequence configured";
        SOURCE_FILTERS = 400, 10144,
            "source with multiple subject transforms cannot also have a single subject filter";
        SOURCE_OVERLAPS = 400, 10147, "source filters can not overlap";
        CONSUMER_EXISTS = 400, 10148, "consumer already exists";
        CONSUMER_DOES_NOT_EXIST = 400, 10149, "consumer does not exist";
        MIRROR_FILTERS = 400, 10150,
            "mirror with multiple subject transforms cannot also have a single subject filter";
        MIRROR_OVERLAPS = 400, 10152, "mirror subject filters can not overlap";
        DUPLICATE_IN_PROCESS = 409, 10158, "duplicate message id is in process";
        INVALID_PRIORITY_GROUP = 400, 10160, "Provided priority group does not exist for this consumer";
        WRONG_LAST_SEQUENCE_UNKNOWN = 400, 10164, "wrong last sequence";
        MESSAGE_TTL_INVALID = 400, 10165, "invalid per-message TTL";
        MESSAGE_TTL_DISABLED = 400, 10166, "per-message TTL is disabled";
        TOO_MANY_REQUESTS = 429, 10167, "too many requests";
        COUNTER_DISABLED = 400, 10168, "message counters is disabled";
        ATOMIC_DISABLED = 400, 10174, "atomic publish is disabled";
        ATOMIC_MISSING_SEQ = 400, 10175, "atomic publish sequence is missing";
        ATOMIC_INCOMPLETE = 400, 10176, "atomic publish batch is incomplete";
        ATOMIC_INVALID_ID = 400, 10179, "atomic publish batch ID is invalid";
        ACK_POLICY_INVALID = 400, 10181, "consumer ack policy invalid";
        REPLAY_POLICY_INVALID = 400, 10182, "consumer replay policy invalid";
        ACK_WAIT_NEGATIVE = 400, 10183, "consumer ack wait needs to be positive";
        BACKOFF_NEGATIVE = 400, 10184, "consumer backoff needs to be positive";
        REQUIRED_API_LEVEL = 412, 10185, "JetStream minimum api level required";
        SCHEDULES_DISABLED = 400, 10188, "message schedules is disabled";
        MISSING_SEQ_FOR_SUBJECT = 400, 10193, "missing sequence for expected last sequence per subject";
        MIRROR_WITH_ATOMIC = 400, 10198, "stream mirrors can not also use atomic publishing";
        ATOMIC_INVALID_COMMIT = 400, 10200, "atomic publish batch commit is invalid";
        ATOMIC_DUPLICATE = 400, 10201, "atomic publish batch contains duplicate message id";
        BATCH_DISABLED = 400, 10205, "batch publish is disabled";
        BATCH_INVALID_PATTERN = 400, 10206, "batch publish pattern is invalid";
        BATCH_INVALID_ID = 400, 10207, "batch publish ID is invalid";
        BATCH_UNKNOWN_ID = 400, 10208, "batch publish ID unknown";
        MIRROR_WITH_BATCHES = 400, 10209, "stream mirrors can not also use batch publishing";
        ATOMIC_TOO_MANY = 429, 10210, "atomic publish too many inflight";
        BATCH_TOO_MANY = 429, 10211, "batch publish too many inflight";
        MIRROR_CONSUMER_INVALID = 400, 10213, "stream mirror consumer config is invalid";
        MIRROR_CONSUMER_NEEDS_FLOW_ACKS = 400, 10214, "stream mirror consumer requires flow control ack policy";
        SOURCE_CONSUMER_INVALID = 400, 10215, "stream source consumer config is invalid";
        SOURCE_CONSUMER_DUPLICATE = 400, 10216, "duplicate stream source consumer detected";
        SOURCE_CONSUMER_NEEDS_FLOW_ACKS = 400, 10217, "stream source consumer requires flow control ack policy";
        FLOW_ACKS_NEED_PUSH = 400, 10218, "flow control ack policy requires a push based consumer";
        FLOW_ACKS_NEED_FLOW_CONTROL = 400, 10219, "flow control ack policy requires flow control";
        FLOW_ACKS_NEED_MAX_ACK_PENDING = 400, 10220, "flow control ack policy requires max ack pending";
        FLOW_ACKS_WITH_ACK_WAIT = 400, 10221, "flow control ack policy requires unset ack wait";
        FLOW_ACKS_WITH_MAX_DELIVER = 400, 10222, "flow control ack policy requires unset max deliver";
    }
    varying {
        no_peers(why) = 400, 10005, "{}";
        consumer_create(why) = 500, 10012, "{}";
        invalid_json(why) = 400, 10025, "invalid JSON: {}";
        mirror_failed(why) = 500, 10029, "{}";
        source_failed(why) = 500, 10045, "{}";
        source_filter(why) = 400, 10145, "source transform source: {}";
        source_transform(why) = 400, 10146, "source transform: {}";
        mirror_filter(why) = 400, 10151, "mirror transform source: {}";
        mirror_transform(why) = 400, 10154, "mirror transform: {}";
        sequence_not_found(seq) = 400, 10043, "sequence {} not found";
        stream_create(why) = 500, 10049, "{}";
        stream_delete(why) = 500, 10050, "{}";
        stream_general(why) = 500, 10051, "{}";
        invalid_config(why) = 500, 10052, "{}";
        stream_limits(why) = 500, 10053, "{}";
        message_delete(why) = 500, 10057, "{}";
        restore_failed(why) = 500, 10062, "restore failed: {}";
        snapshot_failed(why) = 500, 10064, "snapshot failed: {}";
        stream_update(why) = 500, 10069, "{}";
        wrong_last_msg_id(id) = 400, 10070, "wrong last msg ID: {}";
        wrong_last_sequence(seq) = 400, 10071, "wrong last sequence: {}";
        store_failed(why) = 503, 10077, "{}";
        invalid_policy(why) = 400, 10094, "{}";
        invalid_sampling(why) = 400, 10095, "failed to parse consumer sampling configuration: {}";
        consumer_name_too_long(max) = 400, 10102, "consumer name is too long, maximum allowed is {}";
        consumer_description_too_long(max) = 400, 10107, "consumer description is too long, maximum allowed is {}";
        purge_failed(why) = 500, 10110, "{}";
        rollup_failed(why) = 500, 10111, "{}";
        stream_moving(why) = 400, 10124, "stream move already in progress: {}";
        max_ack_pending_exceeds(limit) = 400, 10121, "consumer max ack pending exceeds system limit of {}";
        max_batch_exceeds(limit) = 400, 10125, "consumer max request batch exceeds server limit of {}";
        consumer_metadata_too_long(limit) = 400, 10135, "consumer metadata exceeds maximum size of {}";
        inactive_threshold_exceeds(limit) = 400, 10153, "consumer inactive threshold exceeds system limit of {}";
        transform_source(why) = 400, 10155, "stream transform source: {}";
        transform(why) = 400, 10156, "stream transform: {}";
        pedantic(why) = 400, 10157, "pedantic mode: {}";
        atomic_unsupported_header(header) = 400, 10177, "atomic publish unsupported header used: {}";
        invalid_reset(why) = 400, 10204, "invalid reset: {}";
        atomic_too_large(limit) = 400, 10199, "atomic publish batch is too large: {}";
    }
}

impl ApiError {
    /// Returns error 10003, with which the server refuses a request that nats-server has and this server does
    /// not support; `what` names the request.
    #[must_use]
    pub fn unsupported_request(what: &str) -> Self {
        Self {
            description: Cow::Owned(format!(
                "bad request: {what} is not supported by this server"
            )),
            ..Self::BAD_REQUEST
        }
    }

    /// Returns error 10052, with which the server refuses a feature of a stream's configuration that this
    /// server does not support; `what` names the feature.
    #[must_use]
    pub fn unsupported_stream(what: &str) -> Self {
        Self::invalid_config(format_args!("{what} is not supported by this server"))
    }

    /// Returns error 10012, with which the server refuses a feature of a consumer's configuration that this
    /// server does not support; `what` names the feature.
    #[must_use]
    pub fn unsupported_consumer(what: &str) -> Self {
        Self::consumer_create(format_args!("{what} is not supported by this server"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_not_given_twice() {
        let mut codes: Vec<u16> = ApiError::all().iter().map(|e| e.err_code).collect();
        let len = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), len);
    }

    #[test]
    fn as_json() {
        assert_eq!(
            serde_json::to_string(&ApiError::STREAM_NOT_FOUND).unwrap(),
            r#"{"code":404,"err_code":10059,"description":"stream not found"}"#
        );
        let error = ApiError::wrong_last_sequence(17);
        assert_eq!(error.description, "wrong last sequence: 17");
        assert_eq!(error.to_string(), "wrong last sequence: 17 (10071)");
    }
}

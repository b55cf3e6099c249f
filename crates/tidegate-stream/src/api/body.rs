//! Reads the bodies of clients' JSON requests: their fields, and the checks that need only the request
//! itself.
//!
//! The server accepts fields of nats-server that it does not support, as long as their values ask for nothing
//! (`false`, an empty list), because clients' libraries send such fields. Otherwise the server refuses the
//! request and names the field: with error 10052 for a stream, and 10012 for a consumer.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::json;
use super::request::{ConsumerName, NAME_BYTES_MAX};
use crate::convert::{or_zero, saturating_usize};
use crate::schema::config::{Compression, ConsumerConfig, StreamConfig};
use crate::schema::error::ApiError;
use crate::schema::level;
use crate::schema::sequence::StreamSeq;
use crate::schema::timestamp::Timestamp;
use crate::stream::{DeleteRequest, PurgeRequest};

/// The condition of a request to create a consumer: whether the consumer may or must already exist. With it,
/// a client avoids a change to a consumer that another client created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// The request creates or changes the consumer, whether the consumer exists or not, as older clients
    /// expect.
    #[default]
    #[serde(rename = "")]
    CreateOrUpdate,
    /// The request creates the consumer. The server refuses the request if the consumer exists with another
    /// configuration.
    #[serde(rename = "create")]
    Create,
    /// The request changes the consumer. The server refuses the request if the consumer does not exist.
    #[serde(rename = "update")]
    Update,
}

impl Action {
    /// Returns the condition on the consumer in the spelling of requests and of the log, which the leader
    /// writes into the command.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CreateOrUpdate => "",
            Self::Create => "create",
            Self::Update => "update",
        }
    }
}

/// The details that an info request about a stream asks for, beside the stream's state. They may be large, so
/// the server sends them only on request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InfoDetails {
    /// The number of subjects at the beginning of the list that the answer skips, because the client has them
    /// from earlier pages.
    pub offset: i64,
    /// True if the client also asks for the numbers of the stream's removed messages, which it cannot read.
    pub deleted_details: bool,
    /// The pattern of the subjects that the client asks for, each with its number of messages; empty asks for
    /// no subjects.
    pub subjects_filter: String,
}

/// The part of the list of streams for which a client's request asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamPage {
    /// The number of streams at the beginning of the list that the answer skips, because the client has them
    /// from earlier pages.
    pub offset: i64,
    /// The pattern that a subject of each listed stream must overlap, so that a client finds the stream of a
    /// subject; empty asks for all streams.
    pub subject: String,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Page {
    offset: i64,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct StepDown {
    placement: Placement,
}

/// The node to which an operator's request moves the leadership; empty fields accept any node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Placement {
    /// The name of the cluster to which the new leader must belong; empty accepts any cluster.
    pub cluster: String,
    /// The tags that the new leader must have, if the request names no node, so that an operator can choose
    /// among nodes by tag.
    pub tags: Vec<String>,
    /// The name of the node that the request wants as the new leader; empty accepts any node.
    pub preferred: String,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Pause {
    pause_until: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Reset {
    seq: StreamSeq,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ConsumerCreate {
    stream_name: String,
    config: Map<String, Value>,
    action: Action,
    pedantic: bool,
}

/// Checks that the body of a request is empty, as nats-server does, because this kind of request has no
/// parameters.
pub(super) fn empty(text: &[u8]) -> Result<(), ApiError> {
    json::is_empty(text)
        .then_some(())
        .ok_or(ApiError::NOT_EMPTY_REQUEST)
}

/// Reads, from the body of a list request, the number of list items that the answer skips, because the client
/// has them from earlier pages.
pub(super) fn page(text: &[u8]) -> Result<usize, ApiError> {
    json::optional::<Page>(text).map(|page| offset(page.offset))
}

/// Returns the number of list items that the answer skips, given the offset in a client's list request; a
/// negative offset counts as 0.
pub(super) fn offset(offset: i64) -> usize {
    saturating_usize(or_zero(offset))
}

/// Reads the configuration of the stream `name` from the body of a request, notes in the configuration the
/// API level that its features require, and reads the request's field `pedantic`.
pub(super) fn stream(name: &str, text: &[u8]) -> Result<(Box<StreamConfig>, bool), ApiError> {
    let mut fields = json::object(text)?;
    let pedantic = flag(&mut fields, "pedantic")?;
    Ok((stream_config(name, fields)?, pedantic))
}

/// Reads the configuration of the stream `name`, and notes in it the API level that its features require, as
/// nats-server does. Refuses features that this server lacks.
fn stream_config(
    name: &str,
    mut fields: Map<String, Value>,
) -> Result<Box<StreamConfig>, ApiError> {
    for field in STREAM_FIELDS {
        if fields.remove(*field).is_some_and(|value| asks(&value)) {
            return Err(ApiError::unsupported_stream(field));
        }
    }
    for field in ["mirror", "sources"] {
        // The server takes null for an empty list, as nats-server does.
        if fields.get(field).is_some_and(Value::is_null) {
            fields.remove(field);
        }
    }
    let mut config: Box<StreamConfig> = json::fields(fields)?;
    if config.name != name {
        return Err(ApiError::STREAM_MISMATCH);
    }
    if name.contains(['/', '\\']) {
        return Err(ApiError::STREAM_NAME_PATH);
    }
    if name.len() > NAME_BYTES_MAX {
        let text = format_args!("stream name is too long, maximum allowed is {NAME_BYTES_MAX}");
        return Err(ApiError::invalid_config(text));
    }
    supported(&config)?;
    level::mark_stream(&mut config);
    Ok(config)
}

/// The form of a backup for which a client asks, and the place to which the server sends the backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Snapshot {
    /// The subject to which the server sends the chunks of the backup, and at which the client listens.
    pub deliver_subject: String,
    /// True for a backup without the stream's consumers, which a restored stream then lacks.
    pub no_consumers: bool,
    /// The size of a chunk in bytes; 0 for the server's choice. The client must accept messages of this size.
    pub chunk_size: i64,
    /// The number of bytes that the server sends ahead of the client's confirmations, so that a slow client
    /// is not flooded; 0 for the server's choice.
    pub window_size: i64,
    /// True if the client wants the server to check all messages first. This server ignores it, because it
    /// checks each message anyway when it reads the message.
    pub jsck: bool,
}

/// Reads the body of a client's request for a backup, and refuses it if it names no subject for the chunks.
pub(super) fn snapshot(text: &[u8]) -> Result<Snapshot, ApiError> {
    if json::is_empty(text) {
        return Err(ApiError::BAD_REQUEST);
    }
    let snapshot: Snapshot = json::body(text)?;
    let to = snapshot.deliver_subject.as_bytes();
    match tidegate_nats::subject::is_literal(to) {
        true => Ok(snapshot),
        false => Err(ApiError::SNAPSHOT_DELIVER_INVALID),
    }
}

/// Reads, from the body of a request, the configuration of the stream `name` that a client restores from a
/// backup. The backup itself has the state of the stream, which the request repeats.
pub(super) fn restore(name: &str, text: &[u8]) -> Result<Box<StreamConfig>, ApiError> {
    #[derive(Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Restore {
        config: Map<String, Value>,
        #[serde(rename = "state")]
        _state: Map<String, Value>,
    }
    if json::is_empty(text) {
        return Err(ApiError::BAD_REQUEST);
    }
    let mut config = json::body::<Restore>(text)?.config;
    if config.get("name").is_none_or(|n| n == "") {
        config.insert("name".to_owned(), Value::from(name));
    }
    stream_config(name, config)
}

/// Checks that the configuration of a new stream asks for nothing that only an existing stream can have: a
/// new stream cannot be sealed, because it would stay empty for ever. A stream that is no mirror has no use
/// for `mirror_direct`, but a stream that was a mirror keeps the setting, as on nats-server.
pub(super) fn creatable(config: &StreamConfig) -> Result<(), ApiError> {
    if config.sealed {
        return Err(ApiError::invalid_config(
            "stream configuration for create can not be sealed",
        ));
    }
    if config.mirror_direct && config.mirror.is_none() {
        return Err(ApiError::invalid_config(
            "stream has no mirror but does have mirror direct",
        ));
    }
    Ok(())
}

/// Reads, from the body of a purge request, the selection of the messages that the stream removes.
pub(super) fn purge(text: &[u8]) -> Result<PurgeRequest, ApiError> {
    let purge: PurgeRequest = json::optional_of(text, &["filter", "seq", "keep"])?;
    if purge.seq > StreamSeq::ZERO && purge.keep > 0 {
        return Err(ApiError::BAD_REQUEST);
    }
    Ok(purge)
}

/// Reads, from the body of a delete request, the number of the message that the stream removes.
pub(super) fn message_delete(text: &[u8]) -> Result<DeleteRequest, ApiError> {
    if json::is_empty(text) {
        return Err(ApiError::BAD_REQUEST);
    }
    json::fields_of(json::object(text)?, &["seq", "no_erase"])
}

/// Reads the end of a pause from the body of a request; `None` ends the pause at once, so that the consumer
/// delivers again.
pub(super) fn pause(text: &[u8]) -> Result<Option<Timestamp>, ApiError> {
    let until = json::optional::<Pause>(text)?.pause_until;
    Ok(until.filter(|&until| until != Timestamp::ZERO))
}

/// Reads, from the body of a reset request, the number of the message with which the consumer starts again; 0
/// stands for the first message after the ack floor, so that the client need not know it.
pub(super) fn reset(text: &[u8]) -> Result<StreamSeq, ApiError> {
    match text {
        b"" | b"null" => Ok(StreamSeq::ZERO),
        _ => json::body::<Reset>(text).map(|reset| reset.seq),
    }
}

/// Reads, from the body of a step-down request, the node that the operator wants as the new leader.
pub(super) fn step_down(text: &[u8]) -> Result<Placement, ApiError> {
    json::optional::<StepDown>(text).map(|step_down| step_down.placement)
}

/// Reads the configuration of a consumer of `stream` from the body of a request, takes the consumer's name
/// from the request's subject, and notes in the configuration the API level that its features require.
pub(super) fn consumer(
    stream: &str,
    name: ConsumerName<'_>,
    text: &[u8],
) -> Result<(Box<ConsumerConfig>, Action, bool), ApiError> {
    let ConsumerCreate {
        stream_name,
        config,
        action,
        pedantic,
    } = json::body(text)?;
    let mut config = consumer_config(config)?;
    if stream_name != stream {
        return Err(ApiError::STREAM_MISMATCH);
    }
    named(&mut config, name)?;
    if config.num_replicas < 0 {
        return Err(ApiError::REPLICAS_NEGATIVE);
    }
    config.pause_until = config.pause_until.filter(|&at| at != Timestamp::ZERO);
    level::mark_consumer(&mut config);
    Ok((config, action, pedantic))
}

/// Reads the configuration of a consumer, and refuses the fields and values that this server knows by name
/// but does not support, so that no client relies on them.
pub(crate) fn consumer_config(
    mut config: Map<String, Value>,
) -> Result<Box<ConsumerConfig>, ApiError> {
    for field in CONSUMER_FIELDS {
        if config.remove(*field).is_some_and(|value| asks(&value)) {
            return Err(ApiError::unsupported_consumer(field));
        }
    }
    if config
        .remove("priority_policy")
        .is_some_and(|policy| asks(&policy) && policy != "none")
    {
        return Err(ApiError::unsupported_consumer("priority_policy"));
    }
    json::fields(config)
}

/// Checks the name and filter in a consumer's configuration against the subject of the request, and sets the
/// name in the configuration. nats-server refuses a mismatch too.
fn named(config: &mut ConsumerConfig, name: ConsumerName<'_>) -> Result<(), ApiError> {
    let text = match name {
        ConsumerName::None => config.name.as_str(),
        _ => name.as_str(),
    };
    if text.contains(['/', '\\']) {
        return Err(ApiError::CONSUMER_NAME_PATH);
    }
    match name {
        ConsumerName::None if !config.durable_name.is_empty() => {
            return Err(ApiError::EPHEMERAL_WITH_DURABLE);
        }
        ConsumerName::Durable(_) if config.durable_name.is_empty() => {
            return Err(ApiError::DURABLE_NOT_SET);
        }
        ConsumerName::Durable(_) | ConsumerName::Is(_) | ConsumerName::Filtered(..)
            if !config.durable_name.is_empty() && config.durable_name != text =>
        {
            return Err(ApiError::DURABLE_MISMATCH);
        }
        _ => {}
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(ApiError::consumer_name_too_long(NAME_BYTES_MAX));
    }
    if text.contains(['.', '*', '>']) || text.contains(char::is_whitespace) {
        return Err(ApiError::BAD_DURABLE_NAME);
    }
    if let ConsumerName::Filtered(_, filter) = name {
        if !config.filter_subjects.is_empty() {
            return Err(ApiError::MULTIPLE_FILTERS_NOT_ALLOWED);
        }
        if config.filter_subject != filter {
            return Err(ApiError::FILTER_MISMATCH);
        }
    }
    config.name = text.to_owned();
    Ok(())
}

/// Refuses values of a stream's configuration that nats-server accepts and this server does not support, so
/// that no client relies on them.
fn supported(config: &StreamConfig) -> Result<(), ApiError> {
    match config.num_replicas {
        0..=5 => {}
        ..0 => return Err(ApiError::REPLICAS_NEGATIVE),
        _ => return Err(ApiError::invalid_config("maximum replicas is 5")),
    }
    match config.compression {
        Compression::None => Ok(()),
        Compression::S2 => Err(ApiError::unsupported_stream("compression s2")),
    }
}

/// Returns whether the value of an unsupported field asks for anything: whether it is other than null, false,
/// 0 and empty. A client's library may send a field with such a value although the client wants nothing.
fn asks(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(b) => *b,
        Value::Number(n) => n.as_f64() != Some(0.0),
        Value::String(s) => !s.is_empty(),
        Value::Array(a) => !a.is_empty(),
        Value::Object(o) => o.values().any(asks),
    }
}

fn flag(fields: &mut Map<String, Value>, name: &str) -> Result<bool, ApiError> {
    match fields.remove(name) {
        None => Ok(false),
        Some(Value::Bool(b)) => Ok(b),
        Some(_) => Err(ApiError::invalid_json(format_args!(
            "{name}: expected true or false"
        ))),
    }
}

/// The fields of a stream's configuration that this server knows by name but does not support. The server
/// refuses a request that uses them.
const STREAM_FIELDS: &[&str] = &["allow_msg_counter", "allow_msg_schedules"];

/// The fields of a consumer's configuration that this server knows by name but does not support. The server
/// refuses a request that uses them.
const CONSUMER_FIELDS: &[&str] = &["priority_groups", "priority_timeout", "direct", "sourcing"];

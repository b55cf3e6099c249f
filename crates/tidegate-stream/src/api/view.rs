//! Makes the API's answers about streams and consumers from views of their state, so that the API does not
//! depend on how the server keeps the state.
//!
//! The module `shown` implements [`StreamView`] and [`ConsumerView`] for the state machines of streams and
//! consumers. This module decides which part of a list an answer holds, and how it adds the details that a
//! request asks for.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

pub use super::answer::OriginState;
use super::answer::{
    self, Alternate, ClusterInfo, ConsumerInfo, Kind, Page, Sequences, StreamInfo, StreamState,
    done,
};
use super::body::{InfoDetails, offset};
use crate::schema::config::{ConsumerConfig, StreamConfig};
use crate::schema::error::ApiError;
use crate::schema::level;
use crate::schema::sequence::StreamSeq;
use crate::schema::timestamp::Timestamp;

/// The limit on the names of streams or consumers in one answer to a list request. The client asks for the
/// next page.
pub const NAMES_MAX: usize = 1024;
/// The limit on the descriptions of streams or consumers in one answer to a list request. The client asks for
/// the next page.
pub const LIST_MAX: usize = 256;
/// The limit on the subjects of a stream in one answer to an info request. The client asks for the next page.
pub const SUBJECTS_MAX: usize = 100_000;
/// The limit on the numbers of removed messages in one answer to an info request. The server refuses a
/// request for more.
pub const DELETED_MAX: usize = 1_000_000;

/// The facts about the answering server, and the time, that an answer to a client contains.
#[derive(Clone, Copy, Debug)]
pub struct Server<'a> {
    /// The server's version, which a client sees in the metadata of a configuration.
    pub version: &'a str,
    /// The JetStream domain of the server, which answers name; `None` if the server has no domain.
    pub domain: Option<&'a str>,
    /// The nodes that keep the streams of the answering server's group, as answers show them.
    pub cluster: &'a ClusterInfo,
    /// The time at which the server makes the answer. Code of this module reads no clock.
    pub now: Timestamp,
}

/// Gives the state of a stream to this module, which makes the API's answers about the stream from it.
pub trait StreamView {
    /// Returns the stream's configuration as the log keeps it, without the metadata that answers add. The
    /// answer shows it to the client.
    fn config(&self) -> &StreamConfig;

    /// Returns the time at which the server created the stream, in microseconds since the Unix epoch. The
    /// answer shows it to the client.
    fn created_us(&self) -> u64;

    /// Returns the counts, numbers and times of the stream's messages, at the time of the answer.
    fn counts(&self) -> StreamCounts;

    /// Returns the numbers of removed messages between the stream's first message and its last, in order, at
    /// most `limit` of them, for an answer with such details.
    fn deleted(&self, limit: usize) -> Vec<StreamSeq>;

    /// Calls `each` with every subject that matches `pattern` and the number of the subject's messages, in
    /// any order. The answer sorts them.
    fn subjects(&self, pattern: &[u8], each: &mut dyn FnMut(&[u8], u64));

    /// Returns the states of the stream's origins, in the order of the configuration: that of a mirror, or
    /// those of the sources. An operator sees from them whether the stream is up to date.
    fn origins(&self) -> Vec<OriginState> {
        Vec::new()
    }

    /// Returns the names of the stream's mirrors, which the answer shows in a cluster.
    fn mirrors(&self) -> Vec<&str> {
        Vec::new()
    }
}

/// The counts of a stream's messages, with the times of the first and the last, from which the API makes
/// answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// The number of messages that the stream holds.
    pub messages: u64,
    /// The size of the messages that the stream holds, in bytes.
    pub bytes: u64,
    /// The number of the stream's first message. In an empty stream, this is the number that the next message
    /// gets, or 0 if the stream has never stored a message. The answer shows it to the client.
    pub first_seq: StreamSeq,
    /// The time at which the stream stored its first message, in microseconds since the Unix epoch; `None`
    /// for an empty stream. The answer shows it to the client.
    pub first_us: Option<u64>,
    /// The number of the last message that the stream ever stored, which it may have removed since; 0 before
    /// the first message. The answer shows it to the client.
    pub last_seq: StreamSeq,
    /// The time at which the stream stored its last message, in microseconds since the Unix epoch; `None` if
    /// the stream has never stored a message. The answer shows it to the client.
    pub last_us: Option<u64>,
    /// The number of subjects that have messages in the stream.
    pub subjects: u64,
    /// The number of removed messages between the stream's first message and its last, so that a client knows
    /// how many numbers are missing.
    pub deleted: u64,
    /// The number of the stream's consumers, at the time of the answer.
    pub consumers: usize,
}

/// Gives the state of a consumer to this module, which makes the API's answers about the consumer from it.
pub trait ConsumerView {
    /// Returns the consumer's name, by which clients address the consumer.
    fn name(&self) -> &str;

    /// Returns the consumer's configuration as the log keeps it, without the metadata that answers add. The
    /// answer shows it to the client.
    fn config(&self) -> ConsumerConfig;

    /// Returns the time at which the server created the consumer, in microseconds since the Unix epoch. The
    /// answer shows it to the client.
    fn created_us(&self) -> u64;

    /// Returns the positions and counts of the consumer's deliveries, at the time of the answer.
    fn counts(&self) -> ConsumerCounts;
}

/// The positions and counts of a consumer's deliveries, from which the API makes answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerCounts {
    /// The number of the consumer's last delivery, and the number of the delivered message in the stream.
    pub delivered: Sequences,
    /// The ack floor: the delivery up to which receivers have acknowledged every delivery, which shows their
    /// progress.
    pub ack_floor: Sequences,
    /// The number of messages that the consumer has delivered and that receivers have not acknowledged. A
    /// client sees from it how far its receivers are behind.
    pub ack_pending: u64,
    /// The number of unacknowledged messages that the consumer has delivered more than once, a sign of
    /// failing or slow receivers.
    pub redelivered: u64,
    /// The number of pull requests that wait at the consumer for messages, a sign of idle receivers.
    pub waiting: u64,
    /// The number of messages that pass the consumer's filters and that the consumer has still to deliver for
    /// the first time, that is, its backlog.
    pub pending: u64,
    /// True if a client subscribes to the deliver subject of a push consumer, so that a second client knows
    /// that the consumer is in use.
    pub push_bound: bool,
}

/// Encodes the answer to a request that created or changed a stream ([`Kind::StreamCreate`] or
/// [`Kind::StreamUpdate`]). The client gets the description of the stream.
#[must_use]
pub fn stream_changed(kind: Kind, server: &Server<'_>, stream: &impl StreamView) -> Vec<u8> {
    #[derive(Serialize)]
    struct Made<'a> {
        #[serde(flatten)]
        info: StreamInfo<'a>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        did_create: bool,
    }
    let mut info = stream_info_of(server, stream);
    if server.cluster.name.is_empty() {
        // Outside of a cluster, nats-server gives the field `cluster` only in the answer to an info request
        // about a stream, and this server follows it.
        info.cluster = None;
    }
    done(
        kind,
        &Made {
            info,
            did_create: kind == Kind::StreamCreate,
        },
    )
}

/// Encodes the answer to a request for a backup of a stream ([`Kind::StreamSnapshot`]). The client needs the
/// configuration and state to restore the stream later.
#[must_use]
pub fn stream_snapshot(server: &Server<'_>, stream: &impl StreamView) -> Vec<u8> {
    #[derive(Serialize)]
    struct Begun<'a> {
        config: &'a StreamConfig,
        state: StreamState,
    }
    let info = stream_info_of(server, stream);
    let begun = Begun {
        config: stream.config(),
        state: info.state,
    };
    done(Kind::StreamSnapshot, &begun)
}

/// Encodes the answer to a request to restore a stream ([`Kind::StreamRestore`]): the client sends the chunks
/// of the backup to this subject.
#[must_use]
pub fn stream_restore(deliver_subject: &str) -> Vec<u8> {
    #[derive(Serialize)]
    struct Begun<'a> {
        deliver_subject: &'a str,
    }
    done(Kind::StreamRestore, &Begun { deliver_subject })
}

/// Encodes the answer to an info request about a stream ([`Kind::StreamInfo`]), with the details that the
/// client asked for.
///
/// # Errors
///
/// Returns an error if the request asks for more numbers of removed messages than one answer may have, with
/// which the server answers the client.
pub fn stream_info(
    server: &Server<'_>,
    stream: &impl StreamView,
    details: &InfoDetails,
) -> Result<Vec<u8>, ApiError> {
    let mut found = Vec::new();
    if !details.subjects_filter.is_empty() {
        stream.subjects(details.subjects_filter.as_bytes(), &mut |subject, count| {
            found.push((Box::<[u8]>::from(subject), count));
        });
    }
    let page = Page::new(found.len(), offset(details.offset), SUBJECTS_MAX);
    found.sort_unstable();
    let subjects = found.into_iter().skip(page.offset).take(SUBJECTS_MAX);
    let subjects =
        subjects.map(|(subject, count)| (String::from_utf8_lossy(&subject).into_owned(), count));
    stream_info_with(server, stream, details, (page, subjects.collect()), None)
}

/// Encodes the answer to an info request about a stream with these subjects, which are a page of the list of
/// all subjects that the request asks for. If the request asks for the numbers of removed messages, the
/// answer has `deleted`, or the numbers that the stream returns if `deleted` is `None`.
///
/// # Errors
///
/// Returns an error if the request asks for more numbers of removed messages than one answer may have, with
/// which the server answers the client.
pub(super) fn stream_info_with(
    server: &Server<'_>,
    stream: &impl StreamView,
    details: &InfoDetails,
    (page, subjects): (Page, Vec<(String, u64)>),
    deleted: Option<Vec<StreamSeq>>,
) -> Result<Vec<u8>, ApiError> {
    #[derive(Serialize)]
    struct Paged<'a> {
        #[serde(flatten)]
        page: Page,
        #[serde(flatten)]
        info: StreamInfo<'a>,
    }
    let mut info = stream_info_of(server, stream);
    if details.deleted_details {
        if info.state.num_deleted > DELETED_MAX as u64 {
            let why = format_args!("more than {DELETED_MAX} deleted messages: ask without details");
            return Err(ApiError::stream_general(why));
        }
        info.state.deleted = deleted.unwrap_or_else(|| stream.deleted(DELETED_MAX));
    }
    // As in nats-server, the answer has no page of subjects if no subject matches the request's pattern.
    let page = match page.total {
        0 => Page::default(),
        _ => page,
    };
    info.state.subjects = subjects;
    Ok(done(Kind::StreamInfo, &Paged { page, info }))
}

/// Encodes the answer to a request for the names of streams ([`Kind::StreamNames`]): the names on this page
/// of the list. The client asks for the next page until it has all.
#[must_use]
pub fn stream_names<'a>(page: Page, names: impl Iterator<Item = &'a str>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Names<'a> {
        #[serde(flatten)]
        page: Page,
        streams: Vec<&'a str>,
    }
    let streams = names.collect();
    done(Kind::StreamNames, &Names { page, streams })
}

/// Encodes the answer to a request for the descriptions of streams ([`Kind::StreamList`]): the streams on
/// this page of the list. The client asks for the next page until it has all.
#[must_use]
pub fn stream_list<'a, V: StreamView + 'a>(
    server: &Server<'_>,
    page: Page,
    streams: impl Iterator<Item = &'a V>,
) -> Vec<u8> {
    #[derive(Serialize)]
    struct List<'a> {
        #[serde(flatten)]
        page: Page,
        streams: Vec<StreamInfo<'a>>,
    }
    let streams = streams.map(|stream| stream_info_of(server, stream));
    let streams = streams.collect();
    done(Kind::StreamList, &List { page, streams })
}

/// Returns the description of a stream as JSON, as a list of streams contains it. A node sends it to the node
/// that makes the list.
#[must_use]
pub fn stream_listed(server: &Server<'_>, stream: &impl StreamView) -> Value {
    // The serialisation never fails, because strings, numbers and lists of these always have a JSON form.
    serde_json::to_value(stream_info_of(server, stream)).expect("an answer is always JSON")
}

/// Encodes the answer to a request for the descriptions of streams ([`Kind::StreamList`]) from the reports of
/// several nodes, because no node keeps all streams. `streams` are the descriptions on the page, and
/// `missing` the names of the streams on the page that no node reported.
#[must_use]
pub fn stream_list_of(page: Page, streams: &[Value], missing: &[&str]) -> Vec<u8> {
    #[derive(Serialize)]
    struct List<'a> {
        #[serde(flatten)]
        page: Page,
        streams: &'a [Value],
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        missing: &'a [&'a str],
    }
    let list = List {
        page,
        streams,
        missing,
    };
    done(Kind::StreamList, &list)
}

/// Encodes the answer to a request that creates a consumer or asks for its state ([`Kind::ConsumerCreate`] or
/// [`Kind::ConsumerInfo`]). The client gets the description of the consumer.
#[must_use]
pub fn consumer_info(
    kind: Kind,
    server: &Server<'_>,
    stream: &str,
    consumer: &impl ConsumerView,
) -> Vec<u8> {
    done(kind, &consumer_info_of(server, stream, consumer))
}

/// Encodes the answer to a request that resets a consumer ([`Kind::ConsumerReset`]): the consumer's
/// description, and the number `seq` of the message with which it starts again, as the server chose it.
#[must_use]
pub fn consumer_reset(
    server: &Server<'_>,
    stream: &str,
    consumer: &impl ConsumerView,
    seq: StreamSeq,
) -> Vec<u8> {
    #[derive(Serialize)]
    struct Reset<'a> {
        #[serde(flatten)]
        info: ConsumerInfo<'a>,
        reset_seq: StreamSeq,
    }
    let reset = Reset {
        info: consumer_info_of(server, stream, consumer),
        reset_seq: seq,
    };
    done(Kind::ConsumerReset, &reset)
}

/// Encodes the answer to a request for the names of a stream's consumers ([`Kind::ConsumerNames`]): the names
/// on this page of the list. The client asks for the next page until it has all.
#[must_use]
pub fn consumer_names<'a>(page: Page, names: impl Iterator<Item = &'a str>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Names<'a> {
        #[serde(flatten)]
        page: Page,
        consumers: Vec<&'a str>,
    }
    let consumers = names.collect();
    done(Kind::ConsumerNames, &Names { page, consumers })
}

/// Encodes the answer to a request for the descriptions of a stream's consumers ([`Kind::ConsumerList`]): the
/// consumers on this page of the list. The client asks for the next page until it has all.
#[must_use]
pub fn consumer_list<'a, V: ConsumerView + 'a>(
    server: &Server<'_>,
    stream: &str,
    page: Page,
    consumers: impl Iterator<Item = &'a V>,
) -> Vec<u8> {
    #[derive(Serialize)]
    struct List<'a> {
        #[serde(flatten)]
        page: Page,
        consumers: Vec<ConsumerInfo<'a>>,
    }
    let consumers = consumers.map(|consumer| consumer_info_of(server, stream, consumer));
    let consumers = consumers.collect();
    done(Kind::ConsumerList, &List { page, consumers })
}

/// Encodes the answer to a request for the usage and limits of the account ([`Kind::AccountInfo`]), so that a
/// client sees how much room is left.
#[must_use]
pub fn account_info(info: &answer::AccountInfo<'_>) -> Vec<u8> {
    done(Kind::AccountInfo, info)
}

fn stream_info_of<'a>(server: &Server<'a>, stream: &'a impl StreamView) -> StreamInfo<'a> {
    let config = stream.config();
    let counts = stream.counts();
    let time = |us: Option<u64>| us.map_or(Timestamp::ZERO, Timestamp::from_micros);
    let (mut origins, mut mirror) = (stream.origins(), None);
    if config.mirror.is_some() {
        mirror = origins.pop();
    }
    let mut names = stream.mirrors();
    if !names.is_empty() {
        names.insert(0, &config.name);
    }
    let alternate = |name| Alternate {
        name,
        domain: server.domain,
        cluster: &server.cluster.name,
    };
    StreamInfo {
        alternates: names.into_iter().map(alternate).collect(),
        config: Cow::Owned(StreamConfig {
            metadata: level::answered(&config.metadata, server.version),
            ..config.clone()
        }),
        created: Timestamp::from_micros(stream.created_us()),
        state: StreamState {
            messages: counts.messages,
            bytes: counts.bytes,
            first_seq: counts.first_seq,
            first_ts: time(counts.first_us),
            last_seq: counts.last_seq,
            last_ts: time(counts.last_us),
            num_subjects: counts.subjects,
            subjects: Vec::new(),
            num_deleted: counts.deleted,
            deleted: Vec::new(),
            consumer_count: counts.consumers,
        },
        domain: server.domain,
        cluster: Some(server.cluster.of(config.num_replicas)),
        mirror,
        sources: origins,
        ts: server.now,
    }
}

fn consumer_info_of<'a>(
    server: &Server<'a>,
    stream: &'a str,
    consumer: &'a impl ConsumerView,
) -> ConsumerInfo<'a> {
    let mut config = consumer.config();
    config.metadata = level::answered(&config.metadata, server.version);
    let counts = consumer.counts();
    let remaining = config
        .pause_until
        .map_or(0, |until| until.as_nanos() - server.now.as_nanos())
        .max(0);
    ConsumerInfo {
        stream_name: stream,
        name: consumer.name(),
        created: Timestamp::from_micros(consumer.created_us()),
        config: Cow::Owned(config),
        delivered: counts.delivered,
        ack_floor: counts.ack_floor,
        num_ack_pending: counts.ack_pending,
        num_redelivered: counts.redelivered,
        num_waiting: counts.waiting,
        num_pending: counts.pending,
        push_bound: counts.push_bound,
        paused: remaining > 0,
        // Clients read the remaining time of a pause as an `i64` of nanoseconds. A pause of centuries does
        // not fit, so the server states the highest `i64`.
        pause_remaining: i64::try_from(remaining).unwrap_or(i64::MAX),
        cluster: server.cluster,
        ts: server.now,
    }
}

#[cfg(test)]
mod tests;

//! Answers about streams and consumers, made from what those show of themselves.
//!
//! [`StreamView`] and [`ConsumerView`] are implemented beside the state machines; which part of a list an
//! answer holds, and what a request's details mean, is decided here.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use super::answer::{
    self, ClusterInfo, ConsumerInfo, Kind, Page, Sequences, StreamInfo, StreamState, done,
};
use super::body::{InfoDetails, StreamPage, offset};
use super::config::{ConsumerConfig, StreamConfig};
use super::error::ApiError;
use super::level;
use super::timestamp::Timestamp;
use crate::nats::subject;

/// The most names of one answer.
pub const NAMES_MAX: usize = 1024;
/// The most infos of one answer.
pub const LIST_MAX: usize = 256;
/// The most subjects of one answer.
pub const SUBJECTS_MAX: usize = 100_000;
/// The most numbers of deleted messages in one answer.
pub const DELETED_MAX: usize = 1_000_000;

/// Who answers, and when.
#[derive(Clone, Copy, Debug)]
pub struct Server<'a> {
    /// The version that stands in metadata.
    pub version: &'a str,
    /// The domain, if it has one.
    pub domain: Option<&'a str>,
    /// Which nodes keep the streams.
    pub cluster: &'a ClusterInfo,
    /// The time of the answer.
    pub now: Timestamp,
}

/// What a stream shows of itself.
pub trait StreamView {
    /// Its configuration as it is stored.
    fn config(&self) -> &StreamConfig;

    /// When it was made, in microseconds since the Unix epoch.
    fn created_us(&self) -> u64;

    /// What it holds.
    fn counts(&self) -> StreamCounts;

    /// The numbers between the first and the last that have no message, in order, `limit` at most.
    fn deleted(&self, limit: usize) -> Vec<u64>;

    /// Calls `each` with every subject that matches `pattern` and the number of its messages, in any order.
    fn subjects(&self, pattern: &[u8], each: &mut dyn FnMut(&[u8], u64));
}

/// What a stream holds, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Messages.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The number of the first.
    pub first_seq: u64,
    /// When it was stored, in microseconds since the Unix epoch; `None` where there is no message.
    pub first_us: Option<u64>,
    /// The number of the last there was.
    pub last_seq: u64,
    /// When it was stored; `None` where there never was one.
    pub last_us: Option<u64>,
    /// Their subjects.
    pub subjects: u64,
    /// Numbers between the first and the last that have no message.
    pub deleted: u64,
    /// Consumers.
    pub consumers: usize,
}

/// What a consumer shows of itself.
pub trait ConsumerView {
    /// Its name.
    fn name(&self) -> &str;

    /// Its configuration as it is stored.
    fn config(&self) -> &ConsumerConfig;

    /// When it was made, in microseconds since the Unix epoch.
    fn created_us(&self) -> u64;

    /// Where it stands.
    fn counts(&self) -> ConsumerCounts;
}

/// Where a consumer stands, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerCounts {
    /// The last delivery.
    pub delivered: Sequences,
    /// The last delivery up to which everything is acknowledged.
    pub ack_floor: Sequences,
    /// Deliveries that are not acknowledged.
    pub ack_pending: u64,
    /// Messages that are out for the second time or more.
    pub redelivered: u64,
    /// Pulls that wait.
    pub waiting: u64,
    /// Messages still to be delivered for the first time.
    pub pending: u64,
    /// Somebody listens where messages are pushed to.
    pub push_bound: bool,
}

/// The answer to [`Kind::StreamCreate`] or [`Kind::StreamUpdate`].
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
        // nats-server tells of it only where it is asked about the stream.
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

/// The answer to [`Kind::StreamInfo`].
///
/// # Errors
/// Where more numbers of deleted messages are asked for than an answer holds.
pub fn stream_info(
    server: &Server<'_>,
    stream: &impl StreamView,
    details: &InfoDetails,
) -> Result<Vec<u8>, ApiError> {
    #[derive(Serialize)]
    struct Paged<'a> {
        #[serde(flatten)]
        page: Page,
        #[serde(flatten)]
        info: StreamInfo<'a>,
    }
    let mut info = stream_info_of(server, stream);
    let mut page = Page::default();
    if details.deleted_details {
        if info.state.num_deleted > DELETED_MAX as u64 {
            let why = format_args!("more than {DELETED_MAX} deleted messages: ask without details");
            return Err(ApiError::stream_general(why));
        }
        info.state.deleted = stream.deleted(DELETED_MAX);
    }
    if !details.subjects_filter.is_empty() {
        let mut found = Vec::new();
        stream.subjects(details.subjects_filter.as_bytes(), &mut |subject, count| {
            found.push((Box::<[u8]>::from(subject), count));
        });
        // As nats-server does: where nothing matches there are no pages either.
        if !found.is_empty() {
            page = Page::new(found.len(), offset(details.offset), SUBJECTS_MAX);
            found.sort_unstable();
            info.state.subjects = found
                .into_iter()
                .skip(page.offset)
                .take(SUBJECTS_MAX)
                .map(|(subject, count)| (String::from_utf8_lossy(&subject).into_owned(), count))
                .collect();
        }
    }
    Ok(done(Kind::StreamInfo, &Paged { page, info }))
}

/// The answer to [`Kind::StreamNames`].
#[must_use]
pub fn stream_names<'a, V: StreamView + 'a>(
    streams: impl Iterator<Item = &'a V>,
    ask: &StreamPage,
) -> Vec<u8> {
    #[derive(Serialize)]
    struct Names<'a> {
        #[serde(flatten)]
        page: Page,
        streams: Vec<&'a str>,
    }
    let streams = sorted(streams, &ask.subject);
    let page = Page::new(streams.len(), offset(ask.offset), NAMES_MAX);
    let names = on(page, &streams).iter().map(|s| &*s.config().name);
    done(
        Kind::StreamNames,
        &Names {
            page,
            streams: names.collect(),
        },
    )
}

/// The answer to [`Kind::StreamList`].
#[must_use]
pub fn stream_list<'a, V: StreamView + 'a>(
    server: &Server<'_>,
    streams: impl Iterator<Item = &'a V>,
    ask: &StreamPage,
) -> Vec<u8> {
    #[derive(Serialize)]
    struct List<'a> {
        #[serde(flatten)]
        page: Page,
        streams: Vec<StreamInfo<'a>>,
    }
    let streams = sorted(streams, &ask.subject);
    let page = Page::new(streams.len(), offset(ask.offset), LIST_MAX);
    let infos = on(page, &streams)
        .iter()
        .map(|stream| stream_info_of(server, *stream));
    done(
        Kind::StreamList,
        &List {
            page,
            streams: infos.collect(),
        },
    )
}

/// Which streams stand on the page of a list that is asked for.
pub fn stream_page<'a, V: StreamView + 'a>(
    streams: impl Iterator<Item = &'a V>,
    ask: &StreamPage,
) -> (Page, Vec<&'a V>) {
    let mut streams = sorted(streams, &ask.subject);
    let page = Page::new(streams.len(), offset(ask.offset), LIST_MAX);
    streams.drain(..page.offset);
    streams.truncate(page.limit);
    (page, streams)
}

/// A stream as it stands in a list.
#[must_use]
pub fn stream_listed(server: &Server<'_>, stream: &impl StreamView) -> Value {
    serde_json::to_value(stream_info_of(server, stream)).unwrap_or_default()
}

/// The answer to [`Kind::StreamList`] from what several have told: those of the page, and the names of those
/// nobody told of.
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

/// The answer to [`Kind::ConsumerCreate`] or [`Kind::ConsumerInfo`].
#[must_use]
pub fn consumer_info(
    kind: Kind,
    server: &Server<'_>,
    stream: &str,
    consumer: &impl ConsumerView,
) -> Vec<u8> {
    done(kind, &consumer_info_of(server, stream, consumer))
}

/// The answer to [`Kind::ConsumerReset`]: the consumer, which begins again with message `seq`.
#[must_use]
pub fn consumer_reset(
    server: &Server<'_>,
    stream: &str,
    consumer: &impl ConsumerView,
    seq: u64,
) -> Vec<u8> {
    #[derive(Serialize)]
    struct Reset<'a> {
        #[serde(flatten)]
        info: ConsumerInfo<'a>,
        reset_seq: u64,
    }
    let reset = Reset {
        info: consumer_info_of(server, stream, consumer),
        reset_seq: seq,
    };
    done(Kind::ConsumerReset, &reset)
}

/// The answer to [`Kind::ConsumerNames`].
#[must_use]
pub fn consumer_names<'a>(names: impl Iterator<Item = &'a str>, offset: usize) -> Vec<u8> {
    #[derive(Serialize)]
    struct Names<'a> {
        #[serde(flatten)]
        page: Page,
        consumers: &'a [&'a str],
    }
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    let page = Page::new(names.len(), offset, NAMES_MAX);
    let consumers = on(page, &names);
    done(Kind::ConsumerNames, &Names { page, consumers })
}

/// The answer to [`Kind::ConsumerList`].
#[must_use]
pub fn consumer_list<'a, V: ConsumerView + 'a>(
    server: &Server<'_>,
    stream: &str,
    consumers: impl Iterator<Item = &'a V>,
    offset: usize,
) -> Vec<u8> {
    #[derive(Serialize)]
    struct List<'a> {
        #[serde(flatten)]
        page: Page,
        consumers: Vec<ConsumerInfo<'a>>,
    }
    let mut consumers: Vec<&V> = consumers.collect();
    consumers.sort_unstable_by(|a, b| a.name().cmp(b.name()));
    let page = Page::new(consumers.len(), offset, LIST_MAX);
    let infos = on(page, &consumers)
        .iter()
        .map(|consumer| consumer_info_of(server, stream, *consumer));
    done(
        Kind::ConsumerList,
        &List {
            page,
            consumers: infos.collect(),
        },
    )
}

/// The answer to [`Kind::AccountInfo`].
#[must_use]
pub fn account_info(info: &answer::AccountInfo<'_>) -> Vec<u8> {
    done(Kind::AccountInfo, info)
}

fn stream_info_of<'a>(server: &Server<'a>, stream: &'a impl StreamView) -> StreamInfo<'a> {
    let config = stream.config();
    let counts = stream.counts();
    let time = |us: Option<u64>| us.map_or(Timestamp::ZERO, Timestamp::from_micros);
    StreamInfo {
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
        ts: server.now,
    }
}

fn consumer_info_of<'a>(
    server: &Server<'a>,
    stream: &'a str,
    consumer: &'a impl ConsumerView,
) -> ConsumerInfo<'a> {
    let config = consumer.config();
    let counts = consumer.counts();
    let remaining = config
        .pause_until
        .map_or(0, |until| until.as_nanos() - server.now.as_nanos())
        .max(0);
    ConsumerInfo {
        stream_name: stream,
        name: consumer.name(),
        created: Timestamp::from_micros(consumer.created_us()),
        config: Cow::Owned(ConsumerConfig {
            metadata: level::answered(&config.metadata, server.version),
            ..config.clone()
        }),
        delivered: counts.delivered,
        ack_floor: counts.ack_floor,
        num_ack_pending: counts.ack_pending,
        num_redelivered: counts.redelivered,
        num_waiting: counts.waiting,
        num_pending: counts.pending,
        push_bound: counts.push_bound,
        paused: remaining > 0,
        pause_remaining: i64::try_from(remaining).unwrap_or(i64::MAX),
        cluster: server.cluster,
        ts: server.now,
    }
}

/// Streams that take subjects of `pattern`, by name.
fn sorted<'a, V: StreamView + 'a>(
    streams: impl Iterator<Item = &'a V>,
    pattern: &str,
) -> Vec<&'a V> {
    let takes = |stream: &&V| {
        let mut subjects = stream.config().subjects.iter();
        pattern.is_empty() || subjects.any(|s| subject::overlaps(s.as_bytes(), pattern.as_bytes()))
    };
    let mut streams: Vec<&V> = streams.filter(takes).collect();
    streams.sort_unstable_by(|a, b| a.config().name.cmp(&b.config().name));
    streams
}

/// The things on a page.
fn on<T>(page: Page, all: &[T]) -> &[T] {
    let rest = &all[page.offset..];
    &rest[..rest.len().min(page.limit)]
}

#[cfg(test)]
mod tests;

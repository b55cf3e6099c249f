//! Parses the requests of clients to the JetStream API: makes of a subject, headers and a body one
//! [`Request`], or an answer that refuses the request.
//!
//! This module owns the subjects, the checks of names and API levels, and the shape of each body. It refuses
//! requests of nats-server that this server does not support, and names them. The state machines of streams
//! and consumers check whether a stream exists, and the rules between the fields of a configuration.
//!
//! ```text
//! $JS.API.<what>[.<stream>[.<consumer>[...]]]        the same in a domain: $JS.<domain>.API.<what>...
//! ```

use super::answer::{Kind, SYSTEM};
use super::body::{self, Action};
use super::direct::{self, DirectGet};
use super::{json, status};
use crate::schema::config::{ConsumerConfig, StreamConfig};
use crate::schema::error::ApiError;
use crate::schema::level;
use crate::schema::sequence::StreamSeq;
use crate::schema::timestamp::Timestamp;
use crate::stream::{DeleteRequest, PurgeRequest};

/// The limit on the name of a stream or consumer in a request, in bytes. The server refuses longer names, as
/// nats-server does.
pub const NAME_BYTES_MAX: usize = 255;

/// A client's request to the JetStream API, with names borrowed from the request's subject. The server
/// answers each variant in its own way.
#[derive(Clone, Debug, PartialEq)]
pub enum Request<'a> {
    /// The client asks for the usage and the limits of its account.
    AccountInfo,
    /// The client asks the server to create a stream, or to confirm that a stream with this configuration
    /// exists.
    StreamCreate {
        /// The stream's configuration, with the server's metadata but without defaults for missing fields,
        /// which the state machine fills in.
        config: Box<StreamConfig>,
        /// True if the server must refuse a value that it would otherwise correct silently, because the
        /// client asks for that.
        pedantic: bool,
    },
    /// The client asks the server to change a stream's configuration.
    StreamUpdate {
        /// The stream's new configuration, with the server's metadata but without defaults for missing
        /// fields, which the state machine fills in.
        config: Box<StreamConfig>,
        /// True if the server must refuse a value that it would otherwise correct silently, because the
        /// client asks for that.
        pedantic: bool,
    },
    /// The client asks for the description of a stream: its configuration and state.
    StreamInfo {
        /// The name of the stream that the client wants described.
        stream: &'a str,
        /// The details that the client wants beside the stream's configuration and state, such as its
        /// subjects.
        details: body::InfoDetails,
    },
    /// The client asks for a page of the names of all streams, or of those with a subject.
    StreamNames(body::StreamPage),
    /// The client asks for a page of the descriptions of all streams, or of those with a subject.
    StreamList(body::StreamPage),
    /// The client asks the server to delete a stream with all its messages and consumers.
    StreamDelete {
        /// The name of the stream that the server deletes.
        stream: &'a str,
    },
    /// The client asks the server to purge a stream, that is, to remove many messages.
    StreamPurge {
        /// The name of the stream that the server purges.
        stream: &'a str,
        /// The messages that the client wants the stream to remove.
        purge: PurgeRequest,
    },
    /// The client asks the server to send a backup of a stream.
    StreamSnapshot {
        /// The name of the stream that the server backs up.
        stream: &'a str,
        /// The form of the backup, and the place to which the server sends it.
        snapshot: body::Snapshot,
    },
    /// The client asks the server to restore a stream from a backup, which the client sends afterwards.
    StreamRestore {
        /// The configuration of the restored stream, with the server's metadata. It may differ from the
        /// configuration in the backup.
        config: Box<StreamConfig>,
    },
    /// The client asks for one message of a stream as JSON, as older clients do.
    MessageGet {
        /// The name of the stream that holds the message, from which the server reads it.
        stream: &'a str,
        /// The selection of the message, for example by its number.
        get: DirectGet,
    },
    /// The client asks the server to remove one message from a stream.
    MessageDelete {
        /// The name of the stream that holds the message, from which the server removes it.
        stream: &'a str,
        /// The number of the message that the stream removes.
        delete: DeleteRequest,
    },
    /// The client asks the server to create or change a consumer of a stream.
    ConsumerCreate {
        /// The name of the stream from which the consumer delivers messages.
        stream: &'a str,
        /// The consumer's configuration, with the server's metadata. If the configuration has no name, the
        /// server chooses a name.
        config: Box<ConsumerConfig>,
        /// The condition of the request: whether the consumer may or must already exist. Otherwise the server
        /// refuses the request.
        action: Action,
        /// True if the server must refuse a value that it would otherwise correct silently, because the
        /// client asks for that.
        pedantic: bool,
    },
    /// The client asks for the description of a consumer: its configuration and state.
    ConsumerInfo {
        /// The name of the stream that has the consumer, by which the server finds it.
        stream: &'a str,
        /// The name of the consumer that the client wants described.
        consumer: &'a str,
    },
    /// The client asks for a page of the names of a stream's consumers.
    ConsumerNames {
        /// The name of the stream that has the consumers, which the answer lists.
        stream: &'a str,
        /// The number of consumers at the beginning of the list that the answer skips, because the client has
        /// them from earlier pages.
        offset: usize,
    },
    /// The client asks for a page of the descriptions of a stream's consumers.
    ConsumerList {
        /// The name of the stream that has the consumers, which the answer describes.
        stream: &'a str,
        /// The number of consumers at the beginning of the list that the answer skips, because the client has
        /// them from earlier pages.
        offset: usize,
    },
    /// The client asks the server to delete a consumer.
    ConsumerDelete {
        /// The name of the stream from which the server deletes the consumer.
        stream: &'a str,
        /// The name of the consumer that the server deletes.
        consumer: &'a str,
    },
    /// The client asks the server to pause the deliveries of a consumer until a time, or to resume them.
    ConsumerPause {
        /// The name of the stream that has the consumer, by which the server finds it.
        stream: &'a str,
        /// The name of the consumer that the server pauses or resumes.
        consumer: &'a str,
        /// The end of the pause; `None` resumes the deliveries at once.
        until: Option<Timestamp>,
    },
    /// The client asks the server to reset a consumer, so that it starts again at a given message.
    ConsumerReset {
        /// The name of the stream that has the consumer, by which the server finds it.
        stream: &'a str,
        /// The name of the consumer that the server resets.
        consumer: &'a str,
        /// The number of the message with which the consumer starts again; 0 stands for the first message
        /// after the ack floor, which the client need not know.
        seq: StreamSeq,
    },
    /// The client asks a consumer for its next messages; the consumer parses the body of the request. The
    /// server does not answer a pull from a consumer that does not exist.
    ConsumerNext {
        /// The name of the stream that has the consumer, by which the server finds it.
        stream: &'a str,
        /// The name of the consumer that delivers the messages.
        consumer: &'a str,
    },
    /// The operator asks the leader of the cluster, of a stream or of a consumer to hand the leadership to
    /// another node.
    StepDown {
        /// The kind of step-down request, which determines the answer: for the leader of the cluster, of a
        /// stream or of a consumer.
        kind: Kind,
        /// The name of the stream that gets another leader; empty for the cluster.
        stream: &'a str,
        /// The name of the consumer that gets another leader; empty for a stream or the cluster.
        consumer: &'a str,
        /// The node that the operator wants as the new leader.
        to: body::Placement,
    },
    /// The client asks for messages in the form in which the stream stores them, from any node that has the
    /// stream. The server does not answer if the stream does not exist, or if the stream's configuration does
    /// not allow such requests.
    DirectGet {
        /// The name of the stream that holds the messages, from which the server reads them.
        stream: &'a str,
        /// The selection of the messages, for example by number or subject.
        get: DirectGet,
    },
}

/// The answer with which the server refuses a request that is not a valid [`Request`], so that the client
/// learns its mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The server answers with an error: the fields are the `type` of the answer, which the client checks,
    /// and the error.
    Error(&'static str, ApiError),
    /// The server answers with a status: a message that has this header block and no payload, because the
    /// client expects messages.
    Status(&'static [u8]),
}

/// Returns the part of an API subject that names the request: the part after `$JS.API.`, or after
/// `$JS.<domain>.API.` if this server has a domain. Returns `None` for any other subject, which is no request
/// to this API.
#[must_use]
pub fn strip<'a>(subject: &'a [u8], domain: Option<&str>) -> Option<&'a [u8]> {
    let rest = subject.strip_prefix(b"$JS.")?;
    if let Some(rest) = rest.strip_prefix(b"API.") {
        return Some(rest);
    }
    rest.strip_prefix(domain?.as_bytes())?
        .strip_prefix(b".API.")
}

impl<'a> Request<'a> {
    /// Parses a request. `asked` is the part of the request's subject that [`strip`] returns. The parser
    /// makes all checks that need only the request.
    ///
    /// # Errors
    ///
    /// Returns the answer that refuses the request, for the server to send.
    pub fn parse(asked: &'a [u8], headers: &[u8], body: &'a [u8]) -> Result<Self, Refusal> {
        let route = std::str::from_utf8(asked)
            .ok()
            .and_then(Route::parse)
            .ok_or(Refusal::Error(SYSTEM, ApiError::BAD_REQUEST))?;
        let sufficient = level::suffices(headers);
        match route {
            Route::Next { .. } | Route::Direct { .. } if !sufficient => {
                Err(Refusal::Status(status::REQUIRED_API_LEVEL))
            }
            Route::Next { stream, consumer } => Ok(Self::ConsumerNext { stream, consumer }),
            Route::Direct { stream, subject } => direct::parse(subject, body)
                .map(|get| Self::DirectGet { stream, get })
                .map_err(Refusal::Status),
            Route::Refused(kind, refused) => Err(Refusal::Error(kind, refused)),
            Route::Json(kind, ..) if !sufficient => {
                Err(Refusal::Error(kind.as_str(), ApiError::REQUIRED_API_LEVEL))
            }
            Route::Json(kind, stream, name) => Self::read(kind, stream, name, body)
                .map_err(|refused| Refusal::Error(kind.as_str(), refused)),
        }
    }

    fn read(
        kind: Kind,
        stream: &'a str,
        name: ConsumerName<'a>,
        text: &[u8],
    ) -> Result<Self, ApiError> {
        let consumer = name.as_str();
        Ok(match kind {
            Kind::AccountInfo => Self::AccountInfo,
            Kind::StreamCreate => {
                let (config, pedantic) = body::stream(stream, text)?;
                body::creatable(&config)?;
                Self::StreamCreate { config, pedantic }
            }
            Kind::StreamUpdate => {
                let (config, pedantic) = body::stream(stream, text)?;
                Self::StreamUpdate { config, pedantic }
            }
            Kind::StreamInfo => Self::StreamInfo {
                stream,
                details: json::optional(text)?,
            },
            Kind::StreamNames => Self::StreamNames(json::optional(text)?),
            Kind::StreamList => Self::StreamList(json::optional(text)?),
            Kind::StreamDelete => {
                body::empty(text)?;
                Self::StreamDelete { stream }
            }
            Kind::StreamPurge => Self::StreamPurge {
                stream,
                purge: body::purge(text)?,
            },
            Kind::StreamSnapshot => Self::StreamSnapshot {
                stream,
                snapshot: body::snapshot(text)?,
            },
            Kind::StreamRestore => Self::StreamRestore {
                config: body::restore(stream, text)?,
            },
            Kind::MessageGet => Self::MessageGet {
                stream,
                get: direct::parse_json(text)?,
            },
            Kind::MessageDelete => Self::MessageDelete {
                stream,
                delete: body::message_delete(text)?,
            },
            Kind::ConsumerCreate => {
                let (config, action, pedantic) = body::consumer(stream, name, text)?;
                Self::ConsumerCreate {
                    stream,
                    config,
                    action,
                    pedantic,
                }
            }
            Kind::ConsumerInfo => {
                body::empty(text)?;
                Self::ConsumerInfo { stream, consumer }
            }
            Kind::ConsumerNames => Self::ConsumerNames {
                stream,
                offset: body::page(text)?,
            },
            Kind::ConsumerList => Self::ConsumerList {
                stream,
                offset: body::page(text)?,
            },
            Kind::ConsumerDelete => {
                body::empty(text)?;
                Self::ConsumerDelete { stream, consumer }
            }
            Kind::ConsumerPause => Self::ConsumerPause {
                stream,
                consumer,
                until: body::pause(text)?,
            },
            Kind::ConsumerReset => Self::ConsumerReset {
                stream,
                consumer,
                seq: body::reset(text)?,
            },
            Kind::MetaStepDown | Kind::StreamStepDown | Kind::ConsumerStepDown => Self::StepDown {
                kind,
                stream,
                consumer,
                to: body::step_down(text)?,
            },
        })
    }
}

/// The meaning of a request's subject: the kind of request, and the names in the subject. The parser finds it
/// before it reads the body.
enum Route<'a> {
    /// A request with a JSON answer. The fields are the kind of request, the stream's name and the consumer's
    /// name; the parser then reads the body.
    Json(Kind, &'a str, ConsumerName<'a>),
    Next {
        stream: &'a str,
        consumer: &'a str,
    },
    Direct {
        stream: &'a str,
        subject: Option<&'a str>,
    },
    /// A request of nats-server that this server does not support. The fields are the `type` of the answer,
    /// and the error, which says that the server does not support the request.
    Refused(&'static str, ApiError),
}

/// The name of the consumer in a request's subject, which the parser compares with the name in the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConsumerName<'a> {
    /// The subject has no consumer's name, because the server chooses one or the request is about a stream.
    None,
    /// The subject has the consumer's name, and no filter, as in most requests.
    Is(&'a str),
    /// The subject has the consumer's name, and after that the filter of the consumer, so that a server's
    /// permissions can limit filters.
    Filtered(&'a str, &'a str),
    /// The subject has the name of a durable consumer, in the form that older clients use. The body must then
    /// name it too.
    Durable(&'a str),
}

impl<'a> ConsumerName<'a> {
    pub(super) const fn as_str(self) -> &'a str {
        match self {
            Self::None => "",
            Self::Is(name) | Self::Filtered(name, _) | Self::Durable(name) => name,
        }
    }
}

impl<'a> Route<'a> {
    fn parse(asked: &'a str) -> Option<Self> {
        if asked.split('.').any(str::is_empty) {
            return None;
        }
        let (family, rest) = split(asked);
        match (family, rest) {
            ("INFO", None) => Some(Self::Json(Kind::AccountInfo, "", ConsumerName::None)),
            ("STREAM", Some(rest)) => Self::stream(rest),
            ("CONSUMER", Some(rest)) => Self::consumer(rest),
            ("DIRECT", Some(rest)) => {
                let (stream, subject) = split(rest.strip_prefix("GET.")?);
                Some(Self::Direct { stream, subject })
            }
            ("META", Some("LEADER.STEPDOWN")) => {
                Some(Self::Json(Kind::MetaStepDown, "", ConsumerName::None))
            }
            ("META" | "SERVER", Some(_)) => Some(Self::Refused(SYSTEM, ApiError::CLUSTER_REQUIRED)),
            _ => None,
        }
    }

    fn stream(rest: &'a str) -> Option<Self> {
        let (verb, name) = split(rest);
        let of_all = |kind| match name {
            None => Some(Self::Json(kind, "", ConsumerName::None)),
            Some(_) => None,
        };
        match verb {
            "CREATE" => Self::of_stream(Kind::StreamCreate, name?),
            "UPDATE" => Self::of_stream(Kind::StreamUpdate, name?),
            "INFO" => Self::of_stream(Kind::StreamInfo, name?),
            "DELETE" => Self::of_stream(Kind::StreamDelete, name?),
            "PURGE" => Self::of_stream(Kind::StreamPurge, name?),
            "NAMES" => of_all(Kind::StreamNames),
            "LIST" => of_all(Kind::StreamList),
            "MSG" => match split(name?) {
                ("GET", Some(name)) => Self::of_stream(Kind::MessageGet, name),
                ("DELETE", Some(name)) => Self::of_stream(Kind::MessageDelete, name),
                _ => None,
            },
            "LEADER" => Self::of_stream(Kind::StreamStepDown, name?.strip_prefix("STEPDOWN.")?),
            "PEER" if split(name?).0 == "REMOVE" => Some(Self::clustered(
                "io.nats.jetstream.api.v1.stream_remove_peer_response",
            )),
            "SNAPSHOT" => Self::of_stream(Kind::StreamSnapshot, name?),
            "RESTORE" => Self::of_stream(Kind::StreamRestore, name?),
            _ => None,
        }
    }

    fn consumer(rest: &'a str) -> Option<Self> {
        let (verb, names) = split(rest);
        let names = names?;
        match verb {
            "CREATE" => {
                let (stream, more) = split(names);
                let name = match more.map(split) {
                    None => ConsumerName::None,
                    Some((name, None)) => ConsumerName::Is(name),
                    Some((name, Some(filter))) => ConsumerName::Filtered(name, filter),
                };
                Some(Self::Json(Kind::ConsumerCreate, stream, name))
            }
            "DURABLE" => {
                let (stream, name) = pair(names.strip_prefix("CREATE.")?)?;
                let name = ConsumerName::Durable(name);
                Some(Self::Json(Kind::ConsumerCreate, stream, name))
            }
            "INFO" => Self::of_consumer(Kind::ConsumerInfo, names),
            "DELETE" => Self::of_consumer(Kind::ConsumerDelete, names),
            "PAUSE" => Self::of_consumer(Kind::ConsumerPause, names),
            "RESET" => Self::of_consumer(Kind::ConsumerReset, names),
            "NAMES" => Self::of_stream(Kind::ConsumerNames, names),
            "LIST" => Self::of_stream(Kind::ConsumerList, names),
            "MSG" => {
                let (stream, consumer) = pair(names.strip_prefix("NEXT.")?)?;
                Some(Self::Next { stream, consumer })
            }
            "LEADER" => Self::of_consumer(Kind::ConsumerStepDown, names.strip_prefix("STEPDOWN.")?),
            "UNPIN" => Some(Self::Refused(
                "io.nats.jetstream.api.v1.consumer_unpin_response",
                ApiError::unsupported_request("CONSUMER.UNPIN"),
            )),
            _ => None,
        }
    }

    fn of_stream(kind: Kind, name: &'a str) -> Option<Self> {
        (!name.contains('.')).then_some(Self::Json(kind, name, ConsumerName::None))
    }

    fn of_consumer(kind: Kind, names: &'a str) -> Option<Self> {
        pair(names).map(|(stream, name)| Self::Json(kind, stream, ConsumerName::Is(name)))
    }

    const fn clustered(answer: &'static str) -> Self {
        Self::Refused(answer, ApiError::CLUSTER_REQUIRED)
    }
}

/// Splits off the first token of `text`, a part of a request's subject, and returns this token and the rest
/// without the dot between them.
fn split(text: &str) -> (&str, Option<&str>) {
    match text.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (text, None),
    }
}

/// Splits the rest of a subject that has exactly two tokens; `None` for any other text, which is no request
/// of this kind.
fn pair(text: &str) -> Option<(&str, &str)> {
    text.split_once('.')
        .filter(|(_, second)| !second.contains('.'))
}

#[cfg(test)]
mod tests;

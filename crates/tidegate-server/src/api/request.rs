//! Requests of the JetStream API: a subject, headers and a body become one [`Request`], or an answer that
//! refuses it.
//!
//! Owns the subjects, the checks of names and levels, and the shape of each body. Whether a stream exists,
//! and the rules between fields of a configuration, are left to the state machines. What this server does not
//! do is refused here, by name.
//!
//! ```text
//! $JS.API.<what>[.<stream>[.<consumer>[...]]]        the same in a domain: $JS.<domain>.API.<what>...
//! ```

use super::answer::{Kind, SYSTEM};
use super::body::{self, Action};
use super::config::{ConsumerConfig, StreamConfig};
use super::direct::{self, DirectGet};
use super::error::ApiError;
use super::timestamp::Timestamp;
use super::{json, level, status};
use crate::stream::{DeleteRequest, PurgeRequest};

/// The most bytes of a name.
pub const NAME_BYTES_MAX: usize = 255;

/// What a client asks, names borrowed from the subject.
#[derive(Clone, Debug, PartialEq)]
pub enum Request<'a> {
    /// What the account uses.
    AccountInfo,
    /// Makes a stream, or says that the same one exists.
    StreamCreate {
        /// What is wanted, with the server's metadata; defaults not yet filled in.
        config: Box<StreamConfig>,
        /// Defaults are not to be corrected silently.
        pedantic: bool,
    },
    /// Changes a stream's configuration.
    StreamUpdate {
        /// What is wanted, as in [`Request::StreamCreate`].
        config: Box<StreamConfig>,
        /// Defaults are not to be corrected silently.
        pedantic: bool,
    },
    /// A stream's configuration and state.
    StreamInfo {
        /// Which stream.
        stream: &'a str,
        /// What to say beyond that.
        details: body::InfoDetails,
    },
    /// Names of streams.
    StreamNames(body::StreamPage),
    /// Configurations and states of streams.
    StreamList(body::StreamPage),
    /// Deletes a stream.
    StreamDelete {
        /// Which stream.
        stream: &'a str,
    },
    /// Removes messages.
    StreamPurge {
        /// Of which stream.
        stream: &'a str,
        /// Which messages.
        purge: PurgeRequest,
    },
    /// One message as JSON.
    MessageGet {
        /// Of which stream.
        stream: &'a str,
        /// Which message.
        get: DirectGet,
    },
    /// Removes one message.
    MessageDelete {
        /// Of which stream.
        stream: &'a str,
        /// Which message.
        delete: DeleteRequest,
    },
    /// Makes or changes a consumer.
    ConsumerCreate {
        /// Of which stream.
        stream: &'a str,
        /// What is wanted, with the server's metadata; without a name the server chooses one.
        config: Box<ConsumerConfig>,
        /// Whether it may exist, or must.
        action: Action,
        /// Defaults are not to be corrected silently.
        pedantic: bool,
    },
    /// A consumer's configuration and state.
    ConsumerInfo {
        /// Of which stream.
        stream: &'a str,
        /// Which consumer.
        consumer: &'a str,
    },
    /// Names of a stream's consumers.
    ConsumerNames {
        /// Of which stream.
        stream: &'a str,
        /// How many to pass over.
        offset: usize,
    },
    /// Configurations and states of a stream's consumers.
    ConsumerList {
        /// Of which stream.
        stream: &'a str,
        /// How many to pass over.
        offset: usize,
    },
    /// Deletes a consumer.
    ConsumerDelete {
        /// Of which stream.
        stream: &'a str,
        /// Which consumer.
        consumer: &'a str,
    },
    /// Stops a consumer's deliveries until a time, or lets them go on.
    ConsumerPause {
        /// Of which stream.
        stream: &'a str,
        /// Which consumer.
        consumer: &'a str,
        /// Until when; `None`: go on.
        until: Option<Timestamp>,
    },
    /// Has a consumer begin again.
    ConsumerReset {
        /// Of which stream.
        stream: &'a str,
        /// Which consumer.
        consumer: &'a str,
        /// With which message; 0: with what is not settled.
        seq: u64,
    },
    /// Pulls messages; the body is the consumer's to read. To a consumer that does not exist nobody answers.
    ConsumerNext {
        /// Of which stream.
        stream: &'a str,
        /// Which consumer.
        consumer: &'a str,
    },
    /// Has another node lead: of the cluster, of a stream, of a consumer.
    StepDown {
        /// Of what.
        kind: Kind,
        /// Which stream; empty for the cluster.
        stream: &'a str,
        /// Which consumer; empty for a stream.
        consumer: &'a str,
        /// Which node is to lead.
        to: body::Placement,
    },
    /// Messages as they are stored. For a stream that does not exist or does not allow it nobody answers.
    DirectGet {
        /// Of which stream.
        stream: &'a str,
        /// Which messages.
        get: DirectGet,
    },
}

/// Why there is no [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Answer with an error: the type of the answer, and what is wrong.
    Error(&'static str, ApiError),
    /// Answer with a status: a header block and nothing else.
    Status(&'static [u8]),
}

/// The part of a subject that says what is asked, if it is one of the API's: what follows `$JS.API.`, or
/// `$JS.<domain>.API.` where this server has a domain.
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
    /// Reads a request: `asked` is what [`strip`] leaves of its subject.
    ///
    /// # Errors
    /// The answer that refuses it.
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

/// Where a subject leads.
enum Route<'a> {
    /// A request with a JSON answer: about which stream, and which consumer.
    Json(Kind, &'a str, ConsumerName<'a>),
    Next {
        stream: &'a str,
        consumer: &'a str,
    },
    Direct {
        stream: &'a str,
        subject: Option<&'a str>,
    },
    /// A subject of nats-server's that this server does not serve: the type of the answer and the error.
    Refused(&'static str, ApiError),
}

/// What a subject says of a consumer's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConsumerName<'a> {
    /// Nothing.
    None,
    /// Its name.
    Is(&'a str),
    /// Its name, and the subject it filters by.
    Filtered(&'a str, &'a str),
    /// The name of a consumer that is to be durable, as older clients ask.
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
            "SNAPSHOT" => Some(Self::Refused(
                "io.nats.jetstream.api.v1.stream_snapshot_response",
                ApiError::unsupported_request("STREAM.SNAPSHOT"),
            )),
            "RESTORE" => Some(Self::Refused(
                "io.nats.jetstream.api.v1.stream_restore_response",
                ApiError::unsupported_request("STREAM.RESTORE"),
            )),
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

/// The first token, and what follows it.
fn split(text: &str) -> (&str, Option<&str>) {
    match text.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (text, None),
    }
}

/// Two tokens and no more.
fn pair(text: &str) -> Option<(&str, &str)> {
    text.split_once('.')
        .filter(|(_, second)| !second.contains('.'))
}

#[cfg(test)]
mod tests;

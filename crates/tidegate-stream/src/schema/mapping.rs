//! The settings of a stream by which the server changes the subjects of its messages.

use serde::{Deserialize, Serialize};

/// A subject transform, as a client configures it in JSON. [`tidegate_nats::transform`] describes
/// destinations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SubjectTransform {
    /// The pattern of the subjects that the transform changes; an empty pattern means all subjects.
    pub src: String,
    /// The destination, from which the transform makes the new subject; an empty destination leaves the
    /// subject as it is.
    pub dest: String,
}

/// The rule by which a stream has its new messages published again, as a client configures it in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Republish {
    /// The pattern of the subjects of the messages that the server publishes again; an empty pattern means
    /// all subjects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub src: String,
    /// The destination, from which the server makes the subject to which it publishes a message again; with
    /// an empty destination it publishes none.
    pub dest: String,
    /// True if the server publishes only the headers of a message, and the size of its payload, for
    /// subscribers that need no payload.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub headers_only: bool,
}

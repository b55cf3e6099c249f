//! The settings of a stream that map subjects to others.

use serde::{Deserialize, Serialize};

/// A subject transform, as JSON gives it. [`tidegate_nats::transform`] describes destinations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SubjectTransform {
    /// The pattern of the subjects that the transform changes; empty means all.
    pub src: String,
    /// The destination, from which the transform makes the new subject; empty leaves the subject as it is.
    pub dest: String,
}

/// The rule by which a stream publishes its new messages again, as JSON gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Republish {
    /// The pattern of the subjects of the messages that the stream publishes again; empty means all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub src: String,
    /// The destination, from which the stream makes the subject to which it publishes; empty publishes no
    /// message.
    pub dest: String,
    /// True if the stream publishes only the headers of a message, and the size of its payload.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub headers_only: bool,
}

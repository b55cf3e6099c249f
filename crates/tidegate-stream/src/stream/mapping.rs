//! Applies the mappings of subjects that a stream's configuration asks for: the transform of the subjects of
//! new messages, and the rule by which the stream publishes its messages again.
//!
//! The leader applies the transform before it proposes a message. So the log has the subject under which the
//! stream stores the message, and no node has to compute it again. The leader publishes a message again once
//! the group has committed it; each node marks such messages when it applies an entry ([`Republished`]).

use tidegate_nats::subject;
use tidegate_nats::transform::Transform;

use crate::schema::config::StreamConfig;
use crate::schema::error::ApiError;
use crate::schema::sequence::StreamSeq;

/// The compiled mappings of a stream; `None` where the configuration asks for none. The stream compiles them
/// once and not for each message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Mapping {
    stored: Option<Transform>,
    republished: Option<Transform>,
}

/// The facts about a stored message that the leader needs to publish the message again. A node notes them
/// when it stores the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Republished {
    /// The offset of the message's command in the entry that stored it, in bytes, where the leader finds the
    /// message.
    pub offset: u32,
    /// The time at which the stream stored the message, in microseconds since 1970, which the leader writes
    /// into a header.
    pub time_us: u64,
    /// The number of the subject's message before this one, which the leader writes into a header; 0 without
    /// an earlier message.
    pub last: StreamSeq,
}

impl Mapping {
    /// Compiles the mappings of a configuration, so that the stream can apply them to each message; `None` if
    /// it has none, as most have. A transform that does not compile maps no subject: only a damaged
    /// checkpoint or another version has such a configuration.
    pub(super) fn of(config: &StreamConfig) -> Option<Box<Self>> {
        let compile = |src: &str, dest: &str| {
            let transform = Transform::compile(src, dest).ok();
            transform.filter(|_| !dest.is_empty())
        };
        let stored = config.subject_transform.as_ref();
        let republished = config.republish.as_ref();
        let this = Self {
            stored: stored.and_then(|t| compile(&t.src, &t.dest)),
            republished: republished.and_then(|t| compile(&t.src, &t.dest)),
        };
        (this != Self::default()).then(|| Box::new(this))
    }
}

impl Mapping {
    /// Returns the subject under which the stream stores a message that a client publishes to `subject`, if
    /// the transform changes the subject. `random` chooses where the transform distributes subjects at
    /// random.
    #[inline]
    pub(super) fn stored_subject(&self, subject: &[u8], random: u64) -> Option<Vec<u8>> {
        self.stored.as_ref()?.apply(subject, random)
    }

    #[inline]
    pub(super) const fn has_transform(&self) -> bool {
        self.stored.is_some()
    }

    /// Returns the subject to which the leader publishes a message again, after the stream has stored the
    /// message under `subject`.
    pub(super) fn republished_subject(&self, subject: &[u8], random: u64) -> Option<Vec<u8>> {
        self.republished.as_ref()?.apply(subject, random)
    }

    #[inline]
    pub(super) const fn republishes(&self) -> bool {
        self.republished.is_some()
    }
}

/// Checks the mappings of a configuration, and fills in the values that nats-server fills in, so that clients
/// see these values in the answer.
///
/// # Errors
///
/// Returns error 10155 or 10156 for a transform that does not compile, and error 10052 for a rule to publish
/// again that does not compile. Returns error 10052 also if the rule's destination overlaps a subject of the
/// stream, because the stream would store its own messages without end.
pub(super) fn check(config: &mut StreamConfig) -> Result<(), ApiError> {
    if let Some(transform) = &config.subject_transform {
        let src = &transform.src;
        if !src.is_empty() && !subject::is_pattern(src.as_bytes()) {
            let why = format_args!("invalid subject {src}");
            return Err(ApiError::transform_source(why));
        }
        Transform::compile(src, &transform.dest).map_err(ApiError::transform)?;
    }
    let Some(republish) = &mut config.republish else {
        return Ok(());
    };
    if republish.src.is_empty() {
        ">".clone_into(&mut republish.src);
    }
    if let Some(transform) = &config.subject_transform
        && (republish.src == ">" && republish.dest == ">")
        && config.subjects == [transform.src.as_str()]
    {
        // Each message that the stream stores has a subject of the transform, so the rule takes and keeps
        // these subjects. Otherwise nats-server and this server would publish nothing again.
        republish.src.clone_from(&transform.dest);
        republish.dest.clone_from(&transform.dest);
    }
    let (src, dest) = (&republish.src, &republish.dest);
    let collides = |own: &String| subject::overlaps(dest.as_bytes(), own.as_bytes());
    if config.subjects.iter().any(collides) {
        return Err(ApiError::invalid_config(
            "stream configuration for republish destination forms a cycle",
        ));
    }
    Transform::compile(src, dest).map_err(|_| {
        ApiError::invalid_config(format_args!(
            "stream configuration for republish with transform from '{src}' to '{dest}' not valid"
        ))
    })?;
    Ok(())
}

#[cfg(test)]
mod tests;

//! Tells from the subject which node has to handle a message at `$JS.>`: the node that serves the stream in
//! the subject, the node that knows all streams, or no node.

use tidegate_cluster::groups::GroupId;
use tidegate_stream::api::strip;
use tidegate_stream::consumer::AckSubject;

use super::backups::CONFIRMATIONS;
use super::requests::{PULLS, READS};
use super::restores::{CHUNKS, address};

/// The streams that a message at `$JS.>` concerns, which decide the node that handles the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About<'a> {
    /// The message concerns the stream of this name, so the node that serves the stream handles the message.
    Stream(&'a str),
    /// The message is a part of a backup, so the leader of this group, which sends or receives the backup,
    /// handles it.
    Group(GroupId),
    /// The message concerns all streams: the directory's leader, which knows all streams, handles the
    /// message.
    All,
    /// The message is no request, so no node has to handle it, but a stream may store it.
    None,
}

/// Reads from a message's subject, which begins with `$JS.`, the streams that the message concerns, so that
/// the node can hand the message to the right node.
pub(crate) fn about<'a>(subject: &'a [u8], domain: Option<&str>) -> About<'a> {
    let stream = |name: Option<&'a [u8]>| {
        let name = name.and_then(|name| std::str::from_utf8(name).ok());
        name.map_or(About::All, About::Stream)
    };
    if subject.starts_with(b"$JS.ACK.") {
        return stream(AckSubject::parse(subject).map(|ack| ack.stream));
    }
    if let Some(rest) = subject.strip_prefix(b"$JS.FC.") {
        return stream(rest.split(|b| *b == b'.').next());
    }
    for prefix in [CHUNKS, CONFIRMATIONS] {
        if let Some((group, _)) = address(subject, prefix) {
            return About::Group(group);
        }
    }
    let Some(asked) = strip(subject, domain) else {
        return About::None;
    };
    let mut tokens = asked.split(|b| *b == b'.');
    match (tokens.next(), tokens.next()) {
        // In `STREAM.MSG.GET.<stream>` and similar subjects, one more token stands before the stream's name,
        // so the parser skips it.
        (Some(b"STREAM"), Some(b"MSG" | b"LEADER"))
        | (Some(b"CONSUMER"), Some(b"DURABLE" | b"MSG" | b"LEADER")) => stream(tokens.nth(1)),
        (Some(b"STREAM"), Some(b"INFO" | b"PURGE" | b"SNAPSHOT"))
        | (
            Some(b"CONSUMER"),
            Some(b"CREATE" | b"INFO" | b"NAMES" | b"LIST" | b"DELETE" | b"PAUSE" | b"RESET"),
        )
        | (Some(b"DIRECT"), Some(b"GET")) => stream(tokens.next()),
        _ => About::All,
    }
}

/// Returns whether messages of this subject are frequent (reads, pulls, acknowledgements, flow control), so
/// that a node hands them only to the node that serves the stream.
pub(crate) fn is_flow(subject: &[u8], domain: Option<&str>) -> bool {
    let asked = strip(subject, domain);
    asked.is_none_or(|asked| asked.starts_with(PULLS) || asked.starts_with(READS))
}

/// Returns whether a message of this subject is a pull, a client's request for messages of a consumer, which
/// gets no error as JSON.
pub(crate) fn is_pull(subject: &[u8], domain: Option<&str>) -> bool {
    strip(subject, domain).is_some_and(|asked| asked.starts_with(PULLS))
}

/// Returns whether the subject is a request to the streams' API on which the server reports to watchers, as
/// nats-server does. Pulls and direct reads are not, because they carry messages and are too many.
pub(crate) fn is_audited(subject: &[u8], domain: Option<&str>) -> bool {
    strip(subject, domain)
        .is_some_and(|asked| !asked.starts_with(PULLS) && !asked.starts_with(READS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_names_its_stream() {
        let of = |subject: &'static str| about(subject.as_bytes(), Some("hub"));
        for subject in [
            "$JS.API.STREAM.INFO.S",
            "$JS.API.STREAM.PURGE.S",
            "$JS.API.STREAM.SNAPSHOT.S",
            "$JS.API.STREAM.MSG.GET.S",
            "$JS.API.STREAM.MSG.DELETE.S",
            "$JS.API.STREAM.LEADER.STEPDOWN.S",
            "$JS.API.CONSUMER.CREATE.S",
            "$JS.API.CONSUMER.CREATE.S.C.a.b",
            "$JS.API.CONSUMER.DURABLE.CREATE.S.C",
            "$JS.API.CONSUMER.MSG.NEXT.S.C",
            "$JS.API.CONSUMER.NAMES.S",
            "$JS.API.CONSUMER.LEADER.STEPDOWN.S.C",
            "$JS.API.DIRECT.GET.S",
            "$JS.hub.API.DIRECT.GET.S.a.b",
            "$JS.ACK.S.C.1.2.3.4.5",
            "$JS.ACK.hub.acc.S.C.1.2.3.4.5.token",
            "$JS.FC.S.C.abc",
        ] {
            assert_eq!(of(subject), About::Stream("S"), "{subject}");
        }
        for subject in [
            "$JS.API.INFO",
            "$JS.API.STREAM.CREATE.S",
            "$JS.API.STREAM.UPDATE.S",
            "$JS.API.STREAM.DELETE.S",
            "$JS.API.STREAM.NAMES",
            "$JS.API.STREAM.RESTORE.S",
            "$JS.API.STREAM.INFO",
            "$JS.API.META.LEADER.STEPDOWN",
            "$JS.ACK.S",
        ] {
            assert_eq!(of(subject), About::All, "{subject}");
        }
        for (subject, flows) in [
            ("$JS.API.CONSUMER.MSG.NEXT.S.C", true),
            ("$JS.hub.API.DIRECT.GET.S.a.b", true),
            ("$JS.API.DIRECT.GET.S", true),
            ("$JS.ACK.S.C.1.2.3.4.5", true),
            ("$JS.FC.S.C.abc", true),
            ("$JS.API.STREAM.MSG.GET.S", false),
            ("$JS.API.CONSUMER.CREATE.S", false),
        ] {
            assert_eq!(is_flow(subject.as_bytes(), Some("hub")), flows, "{subject}");
        }
        for subject in [
            "$JS.SNAPSHOT.RESTORE.S.4097-abc",
            "$JS.SNAPSHOT.ACK.S.4097-abc.131072.1",
        ] {
            assert_eq!(of(subject), About::Group(GroupId::new(4097)), "{subject}");
        }
        assert_eq!(of("$JS.SNAPSHOT.RESTORE.S"), About::None);
        assert_eq!(of("$JS.EVENT.ADVISORY.STREAM.CREATED.S"), About::None);
        assert_eq!(of("$JS.other.API.STREAM.INFO.S"), About::None);
    }
}

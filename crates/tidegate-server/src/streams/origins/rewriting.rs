//! Rewrites the messages of an origin for the stream that takes them in, before the stream's leader proposes
//! them. The code is pure.

use tidegate_nats::transform::Transform;
use tidegate_stream::schema::config::{StreamConfig, StreamSource};
use tidegate_stream::schema::sequence::StreamSeq;

/// The first line of a block of headers, which the leader writes where it adds a header to a message without
/// headers.
const VERSION: &[u8] = b"NATS/1.0\r\n";
/// The header that a source adds to a message, to name the message's origin and the message's sequence and
/// subject there.
const SOURCE: &str = "Nats-Stream-Source";
/// The prefixes of headers by which a publisher gave the origin conditions. The leader drops these headers.
/// The origin has checked them, and they do not concern the streams that take the message in.
const DROPPED: [&[u8]; 2] = [b"Nats-Expected-", b"Nats-Batch-"];

/// Copies a block of headers to `out` without the headers that do not concern another stream; with `sourced`,
/// also without the header that names the origin, which a source replaces. Writes nothing if no header is
/// left.
pub(super) fn strip(block: &[u8], sourced: bool, out: &mut Vec<u8>) {
    let Some(first) = memchr::memmem::find(block, b"\r\n") else {
        return;
    };
    let (version, mut rest) = block.split_at(first + 2);
    let mut dropped = false;
    out.extend_from_slice(version);
    while let Some(end) = memchr::memmem::find(rest, b"\r\n").filter(|end| *end > 0) {
        let (line, behind) = rest.split_at(end + 2);
        rest = behind;
        let name = &line[..memchr::memchr(b':', line).unwrap_or(0)];
        let drops = DROPPED.iter().any(|prefix| name.starts_with(prefix))
            || (sourced && name == SOURCE.as_bytes());
        if !drops {
            out.extend_from_slice(line);
        }
        dropped |= drops;
    }
    match dropped && out.len() == version.len() {
        true => out.clear(),
        false => out.extend_from_slice(b"\r\n"),
    }
}

/// The rules by which a stream's leader rewrites the messages of one origin.
#[derive(Debug)]
pub(super) struct Rewriting {
    /// The header that a source adds to each message, as the text before the message's sequence and the text
    /// behind it; `None` for a mirror, which adds no header.
    header: Option<(String, String)>,
    transforms: Vec<Transform>,
    /// The transform of the stream itself, which comes after those of the origin, as in nats-server.
    of_stream: Option<Transform>,
}

impl Rewriting {
    /// Creates the rules for the origin `source` of a stream with this configuration.
    pub(super) fn new(source: &StreamSource, config: &StreamConfig) -> Self {
        let (name, filter, destination) =
            (source.full_name(), source.filter(), source.destination());
        let header = (
            format!("{SOURCE}: {name} "),
            format!(" {filter} {destination} "),
        );
        // Every transform compiles here, because the rules of a configuration refuse a transform that does
        // not compile.
        let transforms = source.subject_transforms.iter();
        let transforms = transforms.filter_map(|t| Transform::compile(&t.src, &t.dest).ok());
        let of_stream = config.subject_transform.as_ref();
        let of_stream = of_stream.filter(|t| !t.dest.is_empty());
        Self {
            header: config.mirror.is_none().then_some(header),
            transforms: transforms.collect(),
            of_stream: of_stream.and_then(|t| Transform::compile(&t.src, &t.dest).ok()),
        }
    }

    /// Writes into `out` the headers under which the stream stores a message of the origin. Writes nothing if
    /// the message has no headers then.
    pub(super) fn headers(&self, seq: StreamSeq, subject: &[u8], block: &[u8], out: &mut Vec<u8>) {
        strip(block, self.header.is_some(), out);
        let Some((before, behind)) = &self.header else {
            return;
        };
        match out.is_empty() {
            true => out.extend_from_slice(VERSION),
            false => out.truncate(out.len() - 2),
        }
        out.extend_from_slice(format!("{before}{seq}{behind}").as_bytes());
        out.extend_from_slice(subject);
        out.extend_from_slice(b"\r\n\r\n");
    }

    /// Returns the subject under which the stream stores a message of the origin, if it differs. The random
    /// tokens of the subject follow from the message's sequence, so that each leader makes the same subject.
    pub(super) fn subject(&self, seq: StreamSeq, subject: &[u8]) -> Option<Vec<u8>> {
        let random = seq.get().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let transform = self.transforms.iter().find(|t| t.matches(subject));
        let mapped = transform.and_then(|t| t.apply(subject, random));
        let before = mapped.as_deref().unwrap_or(subject);
        let of_stream = self.of_stream.as_ref().filter(|t| t.matches(before));
        of_stream.and_then(|t| t.apply(before, random)).or(mapped)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_stream::schema::mapping::SubjectTransform;

    use super::*;

    #[test]
    fn headers_of_the_origin() {
        let block = b"NATS/1.0\r\nA: 1\r\nNats-Expected-Stream: O\r\nNats-Stream-Source: X 1 > > a\r\nNats-Batch-Id: b\r\nB:2\r\n\r\n";
        let mut out = Vec::new();
        strip(block, false, &mut out);
        assert_eq!(
            out,
            b"NATS/1.0\r\nA: 1\r\nNats-Stream-Source: X 1 > > a\r\nB:2\r\n\r\n"
        );
        out.clear();
        let source = StreamSource {
            name: "O".into(),
            filter_subject: "a.*".into(),
            ..StreamSource::default()
        };
        let rewriting = Rewriting::new(&source, &StreamConfig::default());
        rewriting.headers(StreamSeq::new(7), b"a.b", block, &mut out);
        let expected = b"NATS/1.0\r\nA: 1\r\nB:2\r\nNats-Stream-Source: O 7 a.* > a.b\r\n\r\n";
        assert_eq!(out, expected);
        out.clear();
        strip(b"NATS/1.0\r\nNats-Batch-Id: b\r\n\r\n", false, &mut out);
        assert!(out.is_empty());
        rewriting.headers(StreamSeq::new(1), b"a.c", b"", &mut out);
        assert_eq!(
            out,
            b"NATS/1.0\r\nNats-Stream-Source: O 1 a.* > a.c\r\n\r\n"
        );
    }

    #[test]
    fn subjects_of_the_origin() {
        let transform = |src: &str, dest: &str| SubjectTransform {
            src: src.into(),
            dest: dest.into(),
        };
        let source = StreamSource {
            name: "O".into(),
            subject_transforms: vec![transform("a.*", "x.{{wildcard(1)}}"), transform("b", "")],
            ..StreamSource::default()
        };
        let mut config = StreamConfig {
            mirror: Some(source.clone()),
            ..StreamConfig::default()
        };
        let subject = |config: &StreamConfig, subject: &str| {
            let rewriting = Rewriting::new(&source, config);
            let stored = rewriting.subject(StreamSeq::new(1), subject.as_bytes());
            stored.map(|s| String::from_utf8(s).unwrap())
        };
        assert_eq!(subject(&config, "a.c").unwrap(), "x.c");
        assert_eq!(subject(&config, "b").unwrap(), "b");
        assert_eq!(subject(&config, "c"), None);
        config.subject_transform = Some(transform("*.c", "y.{{wildcard(1)}}"));
        assert_eq!(subject(&config, "a.c").unwrap(), "y.x");
        assert_eq!(subject(&config, "d.c").unwrap(), "y.d");
        assert_eq!(subject(&config, "b").unwrap(), "b");
        assert_eq!(subject(&config, "c"), None);
    }
}

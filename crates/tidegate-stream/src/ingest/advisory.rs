//! Writes the advisory that the server publishes when it abandons an atomic batch, so that operators learn of
//! the loss.
//!
//! The caller that publishes the advisory sets its id and time, because this module has no clock and no
//! random source.

use serde::Serialize;

use super::atomic::Abandoned;

#[derive(Serialize)]
struct Json<'a> {
    r#type: &'static str,
    id: &'a str,
    timestamp: &'a str,
    stream: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<&'a str>,
    batch: &'a str,
    reason: &'static str,
}

impl Abandoned {
    /// Returns the subject of the advisory about an abandoned batch; `stream` is the stream's name, so that
    /// operators can subscribe to the advisories of one stream.
    #[must_use]
    pub fn subject(stream: &str) -> String {
        format!("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.{stream}")
    }

    /// Returns the JSON payload of the advisory about an abandoned batch, as nats-server writes it. `stream`
    /// is the stream's name, `id` is unique among advisories, and `timestamp` is the time in the form of RFC
    /// 3339.
    #[must_use]
    pub fn json(&self, stream: &str, domain: Option<&str>, id: &str, timestamp: &str) -> Vec<u8> {
        let json = Json {
            r#type: "io.nats.jetstream.advisory.v1.stream_batch_abandoned",
            id,
            timestamp,
            stream,
            domain,
            batch: &String::from_utf8_lossy(&self.id),
            reason: self.reason.as_str(),
        };
        serde_json::to_vec(&json).unwrap_or_else(|e| unreachable!("strings are JSON: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::atomic::Reason;
    use super::*;
    use crate::schema::number::StreamNumber;

    #[test]
    fn as_nats_server_says_it() {
        let abandoned = Abandoned {
            stream: StreamNumber::FIRST,
            id: b"d".to_vec(),
            reason: Reason::Incomplete,
        };
        let json = abandoned.json("B", None, "70eNgC", "2026-11-22T03:19:23.720641723Z");
        assert_eq!(
            String::from_utf8(json).unwrap(),
            r#"{"type":"io.nats.jetstream.advisory.v1.stream_batch_abandoned","id":"70eNgC","timestamp":"2026-11-22T03:19:23.720641723Z","stream":"B","batch":"d","reason":"incomplete"}"#
        );
        assert_eq!(
            Abandoned::subject("B"),
            "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.B"
        );
    }
}

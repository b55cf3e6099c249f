//! Parses the body of a pull request, in which a client asks a consumer for messages.
//!
//! This module owns the three forms of the body (empty, a number, JSON), and the errors of a pull request
//! that hold for any consumer. [`super::pulls`] owns the consumer's limits and the queue of pulls.

use crate::convert::or_zero;
use serde::{Deserialize, Deserializer};

/// The content of a pull request: the number of messages that the client wants, and the time for which it
/// waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullRequest {
    /// The limit on the messages that the pull takes, at least 1. The pull ends after them.
    pub batch: u64,
    /// The time for which the pull waits, in nanoseconds; 0 if the pull waits until it has got all its
    /// messages. The pull then ends with a status.
    pub expires_ns: u64,
    /// True if the request states a negative expiry: the pull has expired on arrival, and the consumer
    /// answers with a status at once.
    pub expired: bool,
    /// True if the client takes the messages that the consumer has now, and does not wait for more. The
    /// consumer ends the pull after the last of them.
    pub no_wait: bool,
    /// The limit on the bytes of messages that the pull takes; 0 is no limit. A client with little memory
    /// sets it.
    pub max_bytes: u64,
    /// The interval of the heartbeats to the pull's client, in nanoseconds; 0 is no heartbeats. By heartbeats
    /// the client knows that its pull still waits.
    pub heartbeat_ns: u64,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Body {
    #[serde(deserialize_with = "or_default")]
    batch: i64,
    #[serde(deserialize_with = "or_default")]
    expires: i64,
    #[serde(deserialize_with = "or_default")]
    no_wait: bool,
    #[serde(deserialize_with = "or_default")]
    max_bytes: i64,
    #[serde(deserialize_with = "or_default")]
    idle_heartbeat: i64,
    #[serde(deserialize_with = "or_default")]
    id: String,
    #[serde(deserialize_with = "or_default")]
    min_pending: i64,
    #[serde(deserialize_with = "or_default")]
    min_ack_pending: i64,
    #[serde(deserialize_with = "or_default")]
    priority: i64,
}

impl PullRequest {
    /// The pull request that a client makes with an empty body: one message, without an expiry.
    const ONE: Self = Self {
        batch: 1,
        expires_ns: 0,
        expired: false,
        no_wait: false,
        max_bytes: 0,
        heartbeat_ns: 0,
    };

    /// Parses the body of a pull request. The error is the text with which the consumer refuses the request:
    /// the status to the client has it after `Bad Request - `.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        let body = body.trim_ascii();
        if body.first() != Some(&b'{') {
            // The body is empty, a number, or text without meaning. As nats-server does, the consumer sends
            // one message for an empty body and for text without meaning.
            let number = std::str::from_utf8(body)
                .ok()
                .and_then(|n| n.parse::<i64>().ok());
            return Ok(Self {
                batch: at_least_one(number.unwrap_or(1)),
                ..Self::ONE
            });
        }
        let body: Body = serde_json::from_slice(body).map_err(|e| format!("invalid JSON: {e}"))?;
        if body.idle_heartbeat > 0 && body.idle_heartbeat.saturating_mul(2) > body.expires {
            return Err("heartbeat value too large".to_owned());
        }
        if body.min_pending != 0 || body.min_ack_pending != 0 {
            return Err("Not a Overflow Priority consumer".to_owned());
        }
        if !body.id.is_empty() {
            return Err("Not a Pinned Client Priority consumer".to_owned());
        }
        if !(0..=9).contains(&body.priority) {
            return Err("Priority must be between 0 and 9".to_owned());
        }
        Ok(Self {
            batch: at_least_one(body.batch),
            expires_ns: or_zero(body.expires),
            expired: body.expires < 0,
            no_wait: body.no_wait,
            max_bytes: or_zero(body.max_bytes),
            heartbeat_ns: or_zero(body.idle_heartbeat),
        })
    }
}

/// Reads `null` as the default value of a field, because some clients send `null` for a missing value.
fn or_default<'de, D, T>(value: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

fn at_least_one(n: i64) -> u64 {
    or_zero(n).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let one = PullRequest::ONE;
        let of = |batch| Ok(PullRequest { batch, ..one });
        assert_eq!(PullRequest::parse(b""), of(1));
        assert_eq!(PullRequest::parse(b" 25 "), of(25));
        assert_eq!(PullRequest::parse(b"-3"), of(1));
        let ended = PullRequest::parse(br#"{"expires":-1}"#);
        assert!(ended.is_ok_and(|r| r.expired && r.expires_ns == 0));
        assert_eq!(PullRequest::parse(b"many"), of(1));
        assert_eq!(PullRequest::parse(b"{}"), of(1));
        assert_eq!(PullRequest::parse(b"{\"batch\":0,\"unknown\":[1]}"), of(1));
        assert_eq!(
            PullRequest::parse(br#"{"batch":7,"expires":null,"no_wait":null,"id":null}"#),
            of(7)
        );
        let full = br#"{"batch":500,"expires":30000000000,"no_wait":true,"max_bytes":9,"idle_heartbeat":15000000000}"#;
        let expected = PullRequest {
            batch: 500,
            expired: false,
            expires_ns: 30_000_000_000,
            no_wait: true,
            max_bytes: 9,
            heartbeat_ns: 15_000_000_000,
        };
        assert_eq!(PullRequest::parse(full), Ok(expected));
    }

    #[test]
    fn wrong_fields_are_named() {
        let wrong = |body: &str| PullRequest::parse(body.as_bytes()).unwrap_err();
        assert!(wrong("{").starts_with("invalid JSON: "));
        assert!(wrong(r#"{"batch":"x"}"#).starts_with("invalid JSON: "));
        assert_eq!(
            wrong(r#"{"idle_heartbeat":6,"expires":11}"#),
            "heartbeat value too large"
        );
        assert_eq!(
            wrong(r#"{"idle_heartbeat":9223372036854775807}"#),
            "heartbeat value too large"
        );
        assert_eq!(
            wrong(r#"{"min_pending":1}"#),
            "Not a Overflow Priority consumer"
        );
        assert_eq!(
            wrong(r#"{"id":"x"}"#),
            "Not a Pinned Client Priority consumer"
        );
        assert_eq!(
            wrong(r#"{"priority":10}"#),
            "Priority must be between 0 and 9"
        );
    }
}

//! Parses the verbs: the kinds of acknowledgement that a receiver can send for a message.
//!
//! This module owns the payloads of acknowledgements. [`super::Consumer`] owns the effect of each verb.

use serde::Deserialize;

use super::duration;

/// The parsed payload of an acknowledgement: the receiver's verdict on one message, which the consumer
/// follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb<'a> {
    /// The receiver has processed the message, so the consumer never redelivers it.
    Ack,
    /// The receiver refuses the message for now, and asks for redelivery after this number of microseconds,
    /// for example because it cannot process the message yet.
    Nak(u64),
    /// The receiver is still processing the message and asks the consumer to wait longer for the
    /// acknowledgement before it redelivers the message.
    Progress,
    /// The receiver asks the consumer never to redeliver the message, for this reason, for example because
    /// the message is damaged.
    Term(&'a str),
    /// The receiver has processed the message and asks for further messages. The field is the rest of the
    /// payload: the body of a pull request.
    Next(&'a [u8]),
}

#[derive(Deserialize)]
struct NakOptions {
    #[serde(default)]
    delay: i64,
}

impl<'a> Verb<'a> {
    /// Parses the payload of an acknowledgement; `None` if the payload is no known verb, which the consumer
    /// ignores.
    pub(super) fn parse(payload: &'a [u8]) -> Option<Self> {
        if let Some(rest) = payload.strip_prefix(b"-NAK") {
            return Some(Self::Nak(delay_us(rest.trim_ascii())));
        }
        if let Some(rest) = payload.strip_prefix(b"+NXT") {
            return Some(Self::Next(rest));
        }
        if let Some(rest) = payload.strip_prefix(b"+TERM") {
            // The reason only informs people, so a reason that is not UTF-8 counts as empty and does no harm.
            let reason = std::str::from_utf8(rest.trim_ascii()).unwrap_or("");
            return Some(Self::Term(reason));
        }
        match payload {
            b"" | b"+ACK" | b"+OK" => Some(Self::Ack),
            b"+WPI" => Some(Self::Progress),
            _ => None,
        }
    }
}

/// Returns the delay that follows `-NAK` in the payload of an acknowledgement, in microseconds; an invalid or
/// negative delay counts as 0, so the consumer redelivers at once.
fn delay_us(argument: &[u8]) -> u64 {
    let ns = match argument.first() {
        None => 0,
        Some(b'{') => serde_json::from_slice::<NakOptions>(argument).map_or(0, |o| o.delay),
        Some(_) => std::str::from_utf8(argument)
            .ok()
            .and_then(duration::parse)
            .unwrap_or(0),
    };
    u64::try_from(ns).map_or(0, |ns| ns.div_ceil(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs() {
        let cases: [(&str, Option<Verb<'_>>); 16] = [
            ("", Some(Verb::Ack)),
            ("+ACK", Some(Verb::Ack)),
            ("+OK", Some(Verb::Ack)),
            ("-NAK", Some(Verb::Nak(0))),
            ("-NAK 5s", Some(Verb::Nak(5_000_000))),
            ("-NAK  {\"delay\": 1500}", Some(Verb::Nak(2))),
            ("-NAK {\"delay\":-1}", Some(Verb::Nak(0))),
            ("-NAK {broken", Some(Verb::Nak(0))),
            ("-NAK soon", Some(Verb::Nak(0))),
            ("+WPI", Some(Verb::Progress)),
            ("+TERM", Some(Verb::Term(""))),
            ("+TERM it is broken ", Some(Verb::Term("it is broken"))),
            ("+NXT", Some(Verb::Next(b""))),
            ("+NXT 5", Some(Verb::Next(b" 5"))),
            ("+ack", None),
            ("hello", None),
        ];
        for (payload, expected) in cases {
            assert_eq!(Verb::parse(payload.as_bytes()), expected, "{payload}");
        }
    }
}

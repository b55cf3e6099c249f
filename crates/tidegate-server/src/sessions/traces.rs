//! Refuses messages that clients publish only to trace their path.
//!
//! nats-server neither delivers nor stores a message with the header `Nats-Trace-Only: true`, and reports the
//! message's path in events. This server traces nothing, so it refuses such a message. If it delivered or
//! stored the message, receivers would take a test of the path for a real message.

use tidegate::Time;
use tidegate_nats::parse::Publish;
use tidegate_stream::api::puback::PubAck;
use tidegate_stream::schema::error::ApiError;

use super::Node;

/// The headers of the refusal. They are there so that even a publisher that does not expect a stream's PubAck
/// recognises the error.
const REFUSED: &[u8] = b"NATS/1.0 400 Message Tracing Not Supported\r\n\r\n";

impl Node {
    /// Refuses a client's message that only asks for a trace of its path. Answers the publisher with an error
    /// if the message has a reply subject.
    pub(super) fn refuse_trace(&mut self, now: Time, message: &Publish<'_>) {
        let Some(reply) = message.reply else {
            return;
        };
        let mut body = Vec::new();
        PubAck::new("", None).refused(
            &mut body,
            &ApiError::unsupported_request("message tracing (Nats-Trace-Only)"),
        );
        let refusal = Publish {
            subject: reply,
            reply: None,
            headers: Some(REFUSED),
            payload: &body,
        };
        self.say(now, reply, &refusal);
    }
}

//! Messages that are published only to trace their way.
//!
//! nats-server neither delivers nor stores a message with `Nats-Trace-Only: true`, and says in events where
//! it would have gone. This server traces nothing, so it refuses such a message: delivered or stored, a
//! diagnostic would be taken for an order.

use tidegate::Time;

use super::Node;
use crate::api::error::ApiError;
use crate::api::puback::PubAck;
use crate::nats::parse::Publish;

/// The headers of the refusal: a client that expects no acknowledgement of a stream sees by them that it is
/// an error.
const REFUSED: &[u8] = b"NATS/1.0 400 Message Tracing Not Supported\r\n\r\n";

impl Node {
    /// Refuses a message that is published only to be traced, and says so where its publisher expects an
    /// answer.
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

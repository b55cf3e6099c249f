//! What comes in at `$JS.ACK.>` and `$JS.FC.>`: acknowledgements, and answers of flow control.

use tidegate::Time;

use super::JetStream;
use crate::consumer::AckSubject;
use crate::nats::parse::Publish;
use crate::node::core::Node;

impl JetStream {
    /// An acknowledgement.
    pub(super) fn acknowledged(&mut self, node: &mut Node, now: Time, message: &Publish<'_>) {
        let Some(ack) = AckSubject::parse(message.subject) else {
            return;
        };
        let (Ok(stream), Ok(consumer)) = (
            std::str::from_utf8(ack.stream),
            std::str::from_utf8(ack.consumer),
        ) else {
            return;
        };
        let stream = self.streams.by_name(stream);
        let Some(key) = stream.and_then(|s| self.consumers.find(s, consumer)) else {
            return;
        };
        let reply = message.reply.unwrap_or_default();
        self.with_consumer(node, now, key, |live, voice| {
            let wall_us = voice.wall_us;
            live.consumer
                .handle_ack(wall_us, &ack.numbers, reply, message.payload, voice);
        });
    }

    /// The answer to a question of flow control: `$JS.FC.<stream>.<consumer>.<token>`.
    pub(super) fn flow_answered(&mut self, node: &mut Node, now: Time, subject: &[u8]) {
        let mut tokens = subject.split(|b| *b == b'.').skip(2);
        let mut name = || std::str::from_utf8(tokens.next()?).ok();
        let (Some(stream), Some(consumer)) = (name(), name()) else {
            return;
        };
        let stream = self.streams.by_name(stream);
        if let Some(key) = stream.and_then(|s| self.consumers.find(s, consumer)) {
            self.with_consumer(node, now, key, |live, _| live.consumer.handle_flow(subject));
        }
    }
}

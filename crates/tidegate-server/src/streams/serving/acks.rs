//! Handles the messages of clients at `$JS.ACK.>` and `$JS.FC.>`: acknowledgements of deliveries, and answers
//! to flow control requests.

use tidegate::Time;
use tidegate_nats::parse::Publish;
use tidegate_stream::consumer::AckSubject;
use tidegate_stream::schema::config::AckPolicy;

use crate::streams::context::Context;
use crate::streams::{JetStream, Taken};

impl JetStream {
    /// Hands a client's acknowledgement to the consumer that delivered the message. The consumer decides by
    /// it whether it delivers the message again. A consumer with the ack policy `none` or `flow_control`
    /// takes no acknowledgements at this subject.
    pub(crate) fn acknowledged(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        message: &Publish<'_>,
    ) -> Taken {
        let Some(ack) = AckSubject::parse(message.subject) else {
            return Taken::Yes;
        };
        let (Ok(stream), Ok(consumer)) = (
            std::str::from_utf8(ack.stream),
            std::str::from_utf8(ack.consumer),
        ) else {
            return Taken::Yes;
        };
        let stream = self.streams.by_name(stream);
        let Some(key) = stream.and_then(|s| self.awaken(now, s, consumer)) else {
            return Taken::Yes;
        };
        let reply = message.reply.unwrap_or_default();
        let taken = self.with_consumer(cx, now, key, |live, voice| {
            if matches!(
                live.config.nameless().ack_policy,
                AckPolicy::None | AckPolicy::FlowControl
            ) {
                return Taken::No;
            }
            let wall_us = voice.wall_us;
            live.consumer
                .handle_ack(wall_us, &ack.numbers, reply, message.payload, voice);
            Taken::Yes
        });
        taken.unwrap_or(Taken::Yes)
    }

    /// Hands a client's answer to a flow control request to the consumer that the subject
    /// `$JS.FC.<stream>.<consumer>.<token>` names, so that this consumer sends further messages. The headers
    /// of the answer may acknowledge messages.
    pub(crate) fn flow_answered(&mut self, cx: &mut Context<'_>, now: Time, message: &Publish<'_>) {
        let subject = message.subject;
        let mut tokens = subject.split(|b| *b == b'.').skip(2);
        let mut name = || std::str::from_utf8(tokens.next()?).ok();
        let (Some(stream), Some(consumer)) = (name(), name()) else {
            return;
        };
        let stream = self.streams.by_name(stream);
        if let Some(key) = stream.and_then(|s| self.consumers.find(s, consumer)) {
            self.with_consumer(cx, now, key, |live, voice| {
                let headers = message.header_block();
                live.consumer.handle_flow(voice.wall_us, subject, headers);
            });
        }
    }
}

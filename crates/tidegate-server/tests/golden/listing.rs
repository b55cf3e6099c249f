//! Lists the contents of streams as text, for fixtures.

use std::fmt::Write as _;

use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{Filter, Streams};

/// Lists every stream with its messages and consumers, so that a fixture shows a difference.
pub(crate) fn listing(streams: &Streams) -> String {
    let mut text = String::new();
    for stream in streams.iter() {
        let config = serde_json::to_string(stream.config()).unwrap();
        let _ = writeln!(
            text,
            "stream {} {}, created {}",
            stream.id(),
            stream.name(),
            stream.created_us()
        );
        let _ = writeln!(text, "  configuration {config}");
        let _ = writeln!(
            text,
            "  kept {:?}, moving {:?}, moves {}, {:?}",
            stream.home(),
            stream.moving(),
            stream.moves(),
            stream.transit()
        );
        let state = stream.state();
        let _ = writeln!(
            text,
            "  {} messages, {} bytes, numbers {} to {}, times {} to {}, {} subjects, {} gone",
            state.messages,
            state.bytes,
            state.first_seq,
            state.last_seq,
            state.first_time_us,
            state.last_time_us,
            state.num_subjects,
            state.num_deleted,
        );
        let mut filter = Filter::new(std::iter::empty::<&str>());
        let mut next = stream.next_at(StreamSeq::ZERO, &mut filter);
        while let Some(seq) = next {
            let message = stream.message(seq).unwrap();
            let _ = writeln!(
                text,
                "  message {seq} of {}, {} bytes, stored {}, at {}+{}",
                String::from_utf8_lossy(&message.subject),
                message.bytes,
                message.time_us,
                message.place.lsn,
                message.place.offset,
            );
            next = stream.next_at(seq.next(), &mut filter);
        }
        for (name, consumer) in stream.consumers() {
            let config = serde_json::to_string(&consumer.config().full(name)).unwrap();
            let state = consumer.state();
            let _ = writeln!(text, "  consumer {name}, created {}", consumer.created_us());
            let _ = writeln!(text, "    configuration {config}");
            let (delivered, floor) = (state.delivered(), state.ack_floor());
            let _ = writeln!(
                text,
                "    delivered {}/{}, acknowledged {}/{}, begins {:?}",
                delivered.consumer_seq,
                delivered.stream_seq,
                floor.consumer_seq,
                floor.stream_seq,
                state.start(),
            );
            for one in state.pending().iter() {
                let _ = writeln!(
                    text,
                    "    unacknowledged {}/{}, due {}, deliveries {}",
                    one.consumer_seq, one.stream_seq, one.due_us, one.deliveries,
                );
            }
            for seq in state.given_up() {
                let _ = writeln!(text, "    given up {seq}");
            }
        }
    }
    text
}

//! Tests that the consumer's deadline covers each pull that waits, so that the pull gets its heartbeats and
//! its end, and each message that awaits an acknowledgement.

use super::*;

const SECOND_US: u64 = 1_000_000;

struct World {
    stream: Stream,
    net: Net,
    consumer: Consumer,
}

impl World {
    fn new(now: u64) -> Self {
        Self::with(now, r#"{"durable_name":"C","ack_policy":"none"}"#)
    }

    fn with(now: u64, settings: &str) -> Self {
        let mut stream = Stream::default();
        let config = config(settings);
        let identity = Identity {
            stream: "S",
            consumer: "C",
            record: Record::None,
        };
        let state = State::new(&config, &mut stream);
        let consumer = Consumer::new(now, identity, &config, &state, &mut stream);
        Self {
            stream,
            net: Net::default(),
            consumer,
        }
    }

    fn pull(&mut self, now: u64, body: &str) {
        self.consumer
            .handle_pull(now, b"to", body.as_bytes(), &mut self.net);
        self.consumer
            .deliver(now, &mut 100, &mut self.stream, &mut self.net);
    }
}

/// A pull that was answered leaves its time of end behind. A pull after that time still has a timer.
#[test]
fn a_pull_has_a_timer_after_the_end_of_an_earlier_one() {
    let now = 1_000 * SECOND_US;
    let mut world = World::new(now);
    world.stream.store("a", now);
    world.consumer.handle_stored(StreamSeq::new(1), b"a");
    world.pull(now, r#"{"batch":1,"expires":1000000000}"#);
    assert_eq!(world.consumer.deadline(now), None);

    let later = now + 5 * SECOND_US;
    let body = r#"{"batch":1,"expires":1000000000,"idle_heartbeat":400000000}"#;
    world.pull(later, body);
    assert_eq!(world.consumer.deadline(later), Some(later + 400_000));
}

/// The consumer does not forget a pull that ends before the caller asks for the deadline.
#[test]
fn a_pull_that_waits_for_a_microsecond_has_a_timer() {
    let now = 1_000 * SECOND_US;
    let mut world = World::new(now);
    world.pull(now, r#"{"batch":1,"expires":1}"#);
    let later = now + 10;
    assert_eq!(world.consumer.deadline(later), Some(later + 1));
}

/// A message may become due after the consumer's last timeouts and before the caller asks for the deadline.
/// It is due at once then.
#[test]
fn a_message_that_became_due_meanwhile_has_a_timer() {
    let now = 1_000 * SECOND_US;
    let settings = r#"{"durable_name":"C","ack_policy":"explicit","ack_wait":200000000}"#;
    let mut world = World::with(now, settings);
    world.stream.store("a", now);
    world.consumer.handle_stored(StreamSeq::new(1), b"a");
    world.pull(now, r#"{"batch":1,"expires":100000000}"#);
    let due = now + 200_000;
    world.consumer.handle_timeouts(due - 1, &mut world.net);
    assert_eq!(world.consumer.deadline(due - 1), Some(due));
    assert_eq!(world.consumer.deadline(due + 5), Some(due + 6));
    world.consumer.handle_timeouts(due + 6, &mut world.net);
    assert_eq!(world.consumer.deadline(due + 6), None);
}

/// A consumer in use looks for its users again also after its threshold has passed.
#[test]
fn a_consumer_in_use_looks_for_its_users_after_the_threshold() {
    let now = 1_000 * SECOND_US;
    let settings = r#"{"durable_name":"C","ack_policy":"none","inactive_threshold":1000000000}"#;
    let mut world = World::with(now, settings);
    world.pull(now, r#"{"batch":1,"expires":10000000000}"#);
    let later = now + 2 * SECOND_US;
    assert_eq!(world.consumer.deadline(later), Some(later + 1));
}

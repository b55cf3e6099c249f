//! Tests that a pull survives a short absence of its client, and ends after a long one.

use proptest::prelude::*;

use super::*;
use crate::consumer::pulls::AWAY_US;

/// A step of the test, in the life of one pull.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Makes the stream store a message.
    Store,
    /// Makes the client stop listening for `us` microseconds. If `looks` is true, the consumer checks for its
    /// clients at the beginning of that time.
    Away { us: u64, looks: bool },
    /// Lets this number of microseconds pass.
    Wait(u64),
    /// Makes another client pull, so that the consumer checks whether the waiting pull has a client.
    Other,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Store),
        2 => (1..AWAY_US, any::<bool>()).prop_map(|(us, looks)| Step::Away { us, looks }),
        1 => (0..3_000_000_u64).prop_map(Step::Wait),
        1 => Just(Step::Other),
    ];
    proptest::collection::vec(step, 1..30)
}

struct World {
    now: u64,
    stream: Stream,
    net: Net,
    consumer: Consumer,
}

impl World {
    fn new() -> Self {
        let mut stream = Stream::default();
        let config =
            config(r#"{"durable_name":"C","ack_policy":"explicit","ack_wait":3600000000000}"#);
        let identity = Identity {
            stream: "S",
            consumer: "C",
            record: Record::None,
        };
        let state = State::new(&config, &mut stream);
        let now = 1_000_000_000;
        Self {
            now,
            consumer: Consumer::new(now, identity, &config, &state, &mut stream),
            stream,
            net: Net::default(),
        }
    }

    fn deliver(&mut self) {
        self.consumer
            .deliver(self.now, &mut 100, &mut self.stream, &mut self.net);
        self.consumer.check_invariants(&mut self.stream);
    }

    fn pull(&mut self, reply: &str, body: &str) {
        self.consumer
            .handle_pull(self.now, reply.as_bytes(), body.as_bytes(), &mut self.net);
        self.deliver();
    }

    fn store(&mut self) {
        self.stream.last_seq = self.stream.last_seq.next();
        let stored = Stored {
            subject: "a".into(),
            headers: Vec::new(),
            payload: Vec::new(),
            time_us: self.now,
        };
        self.stream.messages.insert(self.stream.last_seq, stored);
        self.consumer.handle_stored(self.stream.last_seq, b"a");
        self.deliver();
    }

    /// Lets time pass, and calls the consumer at each of its deadlines, as a server does.
    fn wait(&mut self, us: u64) {
        let until = self.now + us;
        while let Some(at) = self.consumer.deadline(self.now).filter(|at| *at <= until) {
            self.now = at;
            self.consumer.handle_timeouts(at, &mut self.net);
            self.deliver();
        }
        self.now = until;
    }

    fn comes_back(&mut self, inbox: &str) {
        self.net.nobody.remove(inbox);
        self.consumer.handle_subscribed(inbox.as_bytes());
        self.deliver();
    }

    /// Returns the numbers of the messages that the consumer sent to this inbox, after a check that it sent
    /// none of them twice.
    fn sent(&self, inbox: &str) -> Vec<u64> {
        let numbers = self.net.sent.iter().filter_map(|sent| match sent {
            Sent::Message { to, numbers, .. } if to == inbox => Some(numbers),
            _ => None,
        });
        let seqs = numbers.map(|n| {
            assert_eq!(n.deliveries, 1);
            n.stream_seq.get()
        });
        seqs.collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn a_pull_outlasts_each_absence_that_is_short_enough(steps in steps()) {
        let mut w = World::new();
        // The pull does not expire before the test ends, so that only the client's absence can end it.
        w.pull("r", r#"{"batch":1000,"expires":3600000000000}"#);
        let mut others = 0;
        for step in steps {
            match step {
                Step::Store => w.store(),
                Step::Wait(us) => w.wait(us),
                Step::Other => {
                    others += 1;
                    w.pull("other", r#"{"batch":1,"no_wait":true}"#);
                }
                Step::Away { us, looks } => {
                    let before = w.sent("r").len();
                    w.net.nobody.insert("r".into());
                    if looks {
                        w.consumer.handle_interest(w.now, &mut w.net);
                        assert_eq!(w.consumer.info(w.now).num_waiting, 0);
                    }
                    w.store();
                    w.wait(us);
                    assert_eq!(w.sent("r").len(), before, "no client listens");
                    w.comes_back("r");
                }
            }
        }
        // The consumer sent each message once, to one of the two inboxes, so no message is lost or sent
        // twice.
        let mut sent = [w.sent("r"), w.sent("other")].concat();
        sent.sort_unstable();
        prop_assert_eq!(sent, (1..=w.stream.last_seq.get()).collect::<Vec<_>>());
        prop_assert!(w.sent("other").len() <= others);
        prop_assert_eq!(w.consumer.info(w.now).num_waiting, 1);
    }
}

#[test]
fn an_absence_that_is_too_long_ends_a_pull_and_keeps_its_message() {
    let mut w = World::new();
    w.pull("r", r#"{"batch":5,"expires":3600000000000}"#);
    w.net.nobody.insert("r".into());
    w.store();
    w.wait(AWAY_US - 1);
    assert_eq!(w.consumer.take_away(), Some(vec![b"r"[..].into()]));
    w.wait(1);
    assert_eq!(w.consumer.take_away(), Some(Vec::new()));
    w.comes_back("r");
    assert_eq!(w.net.sent, []);
    let info = w.consumer.info(w.now);
    assert_eq!((info.num_waiting, info.num_pending), (0, 1));
    assert_eq!(
        (info.num_ack_pending, info.delivered.consumer_seq.get()),
        (0, 0)
    );
    w.pull("r", "1");
    assert_eq!(w.sent("r"), [1]);
}

#[test]
fn a_pull_expires_while_its_client_is_away() {
    let mut w = World::new();
    w.pull("r", r#"{"batch":5,"expires":1000000000}"#);
    w.net.nobody.insert("r".into());
    w.store();
    w.wait(1_000_000);
    w.comes_back("r");
    assert_eq!(w.sent("r"), [0; 0]);
    assert_eq!(w.consumer.deadline(w.now), None);
}

#[test]
fn pulls_that_are_apart_make_way_for_others() {
    let mut w = World::new();
    for i in 0..512 {
        w.pull(&format!("r{i}"), "1");
    }
    for i in 0..512 {
        w.net.nobody.insert(format!("r{i}"));
    }
    for i in 0..512 {
        w.pull(&format!("s{i}"), "1");
    }
    assert_eq!(w.consumer.info(w.now).num_waiting, 512);
    assert_eq!(w.net.sent, []);
    assert_eq!(w.consumer.take_away(), Some(Vec::new()));
    w.store();
    w.comes_back("r0");
    assert_eq!((w.sent("s0"), w.sent("r0")), (vec![1], vec![]));
}

//! Tests that a consumer finds the last message of each subject, although the stream changes during its
//! search in parts.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const SUBJECTS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const NOW: u64 = 1_000_000_000;

/// A change of the stream, or a pull, that the test makes between two parts of the search.
#[derive(Clone, Copy, Debug)]
enum Change {
    Store(usize),
    Remove(usize),
    Purge(usize),
    Pull,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => (0..SUBJECTS.len()).prop_map(Change::Store),
        2 => (0..20_usize).prop_map(Change::Remove),
        1 => (0..20_usize).prop_map(Change::Purge),
        1 => Just(Change::Pull),
    ]
}

struct World {
    stream: Stream,
    net: Net,
    consumer: Consumer,
}

impl World {
    fn new(subjects: &[usize]) -> Self {
        let config = config(
            r#"{"durable_name":"C","ack_policy":"none","deliver_policy":"last_per_subject",
                "filter_subject":"*"}"#,
        );
        let subjects: Vec<&str> = subjects.iter().map(|s| SUBJECTS[*s]).collect();
        let mut stream = with_messages(&subjects);
        stream.filters = filters(&config);
        stream.counts_in_parts = subjects.len().is_multiple_of(2);
        let state = State::new(&config, &mut stream);
        let identity = Identity {
            stream: "S",
            consumer: "C",
            record: Record::State,
        };
        Self {
            consumer: Consumer::new(NOW, identity, &config, &state, &mut stream),
            stream,
            net: Net::default(),
        }
    }

    fn prepare(&mut self, limit: usize) {
        let Self {
            consumer,
            stream,
            net,
        } = self;
        consumer.prepare(NOW, limit, stream, net);
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Store(subject) => {
                let subject = SUBJECTS[subject];
                let seq = self.stream.store(subject, NOW);
                self.consumer.handle_stored(seq, subject.as_bytes());
            }
            Change::Remove(at) => {
                let seq = self.stream.messages.keys().nth(at).copied();
                if let Some(seq) = seq
                    && let Some(gone) = self.stream.messages.remove(&seq)
                {
                    let subject = gone.subject.as_bytes();
                    self.consumer
                        .handle_removed(NOW, seq, subject, &mut self.net);
                }
            }
            Change::Purge(at) => {
                let last = self.stream.messages.keys().nth(at).copied();
                self.stream.messages.retain(|seq, _| Some(*seq) > last);
                let last = last.unwrap_or_default();
                self.consumer.handle_purged(NOW, last, &mut self.stream);
            }
            Change::Pull => {
                let body = br#"{"batch":1,"no_wait":true}"#;
                self.consumer.handle_pull(NOW, b"r", body, &mut self.net);
            }
        }
        assert_eq!(
            self.consumer
                .deliver(NOW, &mut 9, &mut self.stream, &mut self.net),
            Progress::More
        );
        assert!(
            self.net.sent.is_empty(),
            "an unprepared consumer says nothing"
        );
    }

    /// Pulls all messages of the consumer, and returns their numbers in the order of delivery.
    fn take_all(&mut self) -> Vec<StreamSeq> {
        let pending = self.consumer.num_pending();
        self.net.sent.clear();
        let body = br#"{"batch":1000,"no_wait":true}"#;
        self.consumer.handle_pull(NOW, b"all", body, &mut self.net);
        self.consumer
            .deliver(NOW, &mut 1000, &mut self.stream, &mut self.net);
        let sent = self.net.sent.iter().filter_map(|sent| match sent {
            Sent::Message { numbers, .. } => Some(numbers.stream_seq),
            _ => None,
        });
        let sent: Vec<StreamSeq> = sent.collect();
        assert_eq!(sent.len() as u64, pending);
        sent
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_last_message_of_each_subject_comes_whatever_happens_during_the_search(
        subjects in prop::collection::vec(0..SUBJECTS.len(), 1..30),
        changes in prop::collection::vec((change(), 1..4_usize), 0..12),
    ) {
        let mut world = World::new(&subjects);
        let begun = world.stream.last_seq;
        let lasts = world.stream.last_per_subject();
        for (change, limit) in changes {
            if world.consumer.is_prepared() {
                break;
            }
            world.change(change);
            world.prepare(limit);
            world.net.sent.clear();
        }
        while !world.consumer.is_prepared() {
            world.prepare(2);
        }
        // The consumer first answers the pulls that have waited for the search.
        world.consumer.deliver(NOW, &mut 1000, &mut world.stream, &mut world.net);
        let mut sent: Vec<StreamSeq> = world.net.sent.iter().filter_map(|sent| match sent {
            Sent::Message { numbers, .. } => Some(numbers.stream_seq),
            _ => None,
        }).collect();
        sent.extend(world.take_all());
        let (first, later): (Vec<_>, Vec<_>) = sent.iter().partition(|seq| **seq <= begun);
        prop_assert!(sent.is_sorted(), "{sent:?}");
        let new: Vec<StreamSeq> = world.stream.messages.range(begun.next()..).map(|(s, _)| *s).collect();
        prop_assert_eq!(later, new, "all later messages come, each once");
        for (subject, last) in lasts {
            // The consumer must deliver the last message of each subject, unless the stream has removed the
            // message meanwhile.
            let there = world.stream.messages.contains_key(&last);
            prop_assert!(!there || sent.contains(&last), "message {} of {} is lacking", last, subject);
        }
        let mut of: BTreeMap<&str, usize> = BTreeMap::new();
        for seq in first {
            *of.entry(&world.stream.messages[&seq].subject).or_default() += 1;
        }
        prop_assert!(of.values().all(|count| *count == 1), "{of:?}");
    }
}

#[test]
fn pulls_wait_for_the_search_and_end_with_the_consumer() {
    let mut world = World::new(&[0, 1, 2]);
    world.change(Change::Pull);
    world.prepare(1);
    for _ in 0..600 {
        let body = br#"{"batch":1}"#;
        world.consumer.handle_pull(NOW, b"r", body, &mut world.net);
    }
    let refused = world.net.sent.len();
    assert_eq!(refused, 601 - 512);
    assert!(!world.consumer.is_abandoned(u64::MAX), "it is not prepared");
    world.consumer.handle_end(Ending::Deleted, &mut world.net);
    assert_eq!(world.net.sent.len(), 601);
}

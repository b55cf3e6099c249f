//! Tests requests in flight at the same moment: the answers, and the streams and consumers at the end, must
//! be possible if the leader decided about the requests one after the other.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate::Time;
use tidegate_cluster::slots::GroupSlot;
use tidegate_log::Lsn;
use tidegate_nats::connect::Info;
use tidegate_raft::replica::{Committed, EntryId};
use tidegate_stream::api::view::ConsumerView as _;
use tidegate_stream::stream::{AccountLimits, Streams};

use super::super::JetStream;
use super::WAITING_MAX;
use crate::config::{Settings, StreamSettings};
use crate::party::ClientKey;
use crate::sessions::{Node, joined};
use crate::streams::serving::live::Unread;

/// A request that a test client sends: the part of its subject behind `$JS.API.`, and its body.
type Asked = (String, Value);

/// A node that leads its streams, with clients and with a log that commits an entry when the test calls
/// `commit`.
struct World {
    node: Node,
    now: Time,
    clients: Vec<ClientKey>,
    /// The entries that the node has proposed and the test's log has not committed yet.
    log: VecDeque<Committed>,
    index: u64,
    term: u64,
    entries: u64,
    /// The node's answers to the clients, by the number of the request.
    answers: BTreeMap<usize, Value>,
    asked: usize,
}

/// The limits that an operator sets in a test: the number of streams and of consumers, and the bytes of
/// streams on disk.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    streams: Option<usize>,
    consumers: Option<usize>,
    file_bytes: Option<u64>,
}

impl World {
    fn new(limits: Limits) -> Self {
        let now = Time::from_nanos(1_000_000);
        let mut node = Node::new(Settings::default(), Info::default(), 1);
        let kept = StreamSettings {
            max_streams: limits.streams,
            max_consumers: limits.consumers,
            max_file_bytes: limits.file_bytes,
            ..StreamSettings::new("not used".into())
        };
        let account = AccountLimits {
            streams: limits.streams.map_or(u64::MAX, |n| n as u64),
            file_bytes: limits.file_bytes.unwrap_or(u64::MAX),
            ..AccountLimits::NONE
        };
        node.attach_streams(JetStream::new(now, kept, Streams::new(account), 1));
        node.handle_leading(GroupSlot::DIRECTORY, now);
        let clients = (0..3)
            .map(|_| joined::client(&mut node, now))
            .collect::<Vec<_>>();
        for (i, key) in clients.iter().enumerate() {
            let text = format!("SUB r.{i}.* 1\r\n");
            joined::say(&mut node, now, *key, &text);
        }
        let mut world = Self {
            node,
            now,
            clients,
            log: VecDeque::new(),
            index: 0,
            term: 1,
            entries: 0,
            answers: BTreeMap::new(),
            asked: 0,
        };
        // Two deliver subjects have a listener, so that push consumers can use them; a third has none.
        world.say(0, "SUB deliver.1 2\r\n");
        world.say(1, "SUB deliver.2 2\r\n");
        world
    }

    fn streams(&self) -> &JetStream {
        self.node.directory().unwrap()
    }

    fn say(&mut self, client: usize, text: &str) {
        joined::say(&mut self.node, self.now, self.clients[client], text);
    }

    /// Sends a request as this client, and returns the number by which the test later finds the answer.
    fn send(&mut self, client: usize, (what, body): &Asked) -> usize {
        let number = self.asked;
        self.asked += 1;
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let text = format!(
            "PUB $JS.API.{what} r.{client}.{number} {}\r\n{body}\r\n",
            body.len()
        );
        self.say(client, &text);
        number
    }

    /// Proposes the node's entries to the test's log, which keeps them until the test commits them.
    fn propose(&mut self) {
        while let Some((data, _)) = self.node.poll_proposal(GroupSlot::DIRECTORY, self.now) {
            self.index += 1;
            self.entries += 1;
            let there = EntryId::new(self.index, self.term);
            self.node
                .handle_proposed(GroupSlot::DIRECTORY, self.now, there, 1);
            let lsn = Lsn::new(self.index * 4096);
            self.log.push_back(Committed {
                index: there.index,
                term: there.term,
                lsn,
                data,
            });
        }
    }

    /// Commits the oldest entry of the test's log on the node. Returns whether the log had an entry.
    fn commit(&mut self) -> bool {
        let Some(entry) = self.log.pop_front() else {
            return false;
        };
        self.node
            .handle_committed(GroupSlot::DIRECTORY, self.now, &entry)
            .unwrap();
        self.turn();
        true
    }

    fn turn(&mut self) {
        self.node
            .serve_streams(GroupSlot::DIRECTORY, self.now, &Unread)
            .unwrap();
        self.streams().admissions.check_invariants();
    }

    /// Lets the node run and the log commit until the node has no work left.
    fn settle(&mut self) {
        self.turn();
        loop {
            self.propose();
            if self.commit() {
                continue;
            }
            // A request that waited for another request may have woken a consumer after its turn, so the node
            // needs another turn.
            if self.streams().deadline(true) != Some(Time::ZERO) {
                break;
            }
            self.turn();
        }
        assert!(self.streams().is_idle());
    }

    fn later(&mut self, time: Duration) {
        self.now = self.now + time;
        self.turn();
    }

    /// Reads the node's answer to this request: returns 0 if the leader granted the request, else the error
    /// code.
    fn code(&mut self, number: usize) -> u64 {
        let answer = self.answer(number);
        answer["error"]["err_code"].as_u64().unwrap_or(0)
    }

    fn answer(&mut self, number: usize) -> Value {
        self.hear();
        let answer = self.answers.get(&number);
        answer
            .unwrap_or_else(|| panic!("{number} is not answered"))
            .clone()
    }

    fn hear(&mut self) {
        for key in self.clients.clone() {
            let heard = joined::heard(&mut self.node, self.now, key);
            let mut lines = heard.lines();
            while let Some(line) = lines.next() {
                let words: Vec<&str> = line.split(' ').collect();
                if words[0] != "MSG" || !words[1].starts_with("r.") {
                    continue;
                }
                let number = words[1].rsplit('.').next().unwrap().parse().unwrap();
                let body = serde_json::from_str(lines.next().unwrap()).unwrap();
                let old = self.answers.insert(number, body);
                assert!(old.is_none(), "{number} is answered twice");
            }
        }
    }

    /// Sends a request as the first client, lets the node finish it, and returns the code of its answer.
    fn ask(&mut self, what: &str, body: Value) -> u64 {
        let number = self.send(0, &(what.to_owned(), body));
        self.settle();
        self.code(number)
    }

    /// Returns all streams and consumers with their configurations, as the node serves them, and checks that
    /// the log has the same ones.
    fn state(&self) -> Value {
        let streams = self.streams();
        let mut all = serde_json::Map::new();
        for stream in streams.applied().iter() {
            let mut consumers = serde_json::Map::new();
            let names = streams.served_after(stream, None);
            for served in names.filter_map(|name| streams.served(0, stream, name)) {
                let config = serde_json::to_value(served.config()).unwrap();
                if served.live().is_none_or(|live| live.logged) {
                    let known = stream.consumer(served.name());
                    let known = known.map(|c| c.config().full(served.name()));
                    assert_eq!(known, Some(served.config()), "as the log has it");
                }
                consumers.insert(served.name().to_owned(), config);
            }
            for (name, _) in stream.consumers() {
                assert!(consumers.contains_key(name), "{name} is not served");
            }
            let config = serde_json::to_value(stream.config()).unwrap();
            let both = json!({"config": config, "consumers": consumers});
            all.insert(stream.name().to_owned(), both);
        }
        Value::Object(all)
    }
}

fn stream(name: &str) -> Asked {
    let subject = format!("{}.>", name.to_lowercase());
    let config = json!({"name": name, "subjects": [subject]});
    (format!("STREAM.CREATE.{name}"), config)
}

fn durable(stream: &str, name: &str, config: Value) -> Asked {
    let mut all = json!({"durable_name": name, "ack_policy": "explicit"});
    let fields = config.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(fields);
    (
        format!("CONSUMER.DURABLE.CREATE.{stream}.{name}"),
        json!({"stream_name": stream, "config": all}),
    )
}

/// Creates a world in which the stream `S` exists.
fn with_stream(limits: Limits) -> World {
    let mut world = World::new(limits);
    let (what, body) = stream("S");
    assert_eq!(world.ask(&what, body), 0);
    world
}

#[test]
fn one_of_two_durables_with_different_deliver_subjects_is_refused() {
    for (first, second) in [(0, 0), (0, 1), (1, 0)] {
        let mut w = with_stream(Limits::default());
        let push = |to: &str| {
            durable(
                "S",
                "D",
                json!({"deliver_subject": to, "deliver_group": "g"}),
            )
        };
        w.say(0, "SUB deliver.1 g 3\r\nSUB deliver.2 g 4\r\n");
        let one = w.send(first, &push("deliver.1"));
        let two = w.send(second, &push("deliver.2"));
        let same = w.send(second, &push("deliver.1"));
        w.settle();
        assert_eq!((w.code(one), w.code(two), w.code(same)), (0, 10013, 0));
        let to = &w.state()["S"]["consumers"]["D"]["deliver_subject"];
        assert_eq!(to, "deliver.1");
    }
}

#[test]
fn neither_a_pause_nor_an_update_in_flight_takes_back_the_other() {
    let update = durable("S", "D", json!({"max_deliver": 7}));
    let until = json!({"pause_until": "2040-01-01T00:00:00Z"});
    let pause = ("CONSUMER.PAUSE.S.D".to_owned(), until);
    for requests in [[&update, &pause], [&pause, &update]] {
        let mut w = with_stream(Limits::default());
        let (what, body) = durable("S", "D", json!({}));
        assert_eq!(w.ask(&what, body), 0);
        let numbers = requests.map(|r| w.send(0, r));
        w.settle();
        assert_eq!(numbers.map(|n| w.code(n)), [0, 0]);
        assert_eq!(w.state()["S"]["consumers"]["D"]["max_deliver"], 7);
    }
}

#[test]
fn a_consumer_in_memory_does_not_hide_a_durable_in_flight() {
    let mut w = with_stream(Limits::default());
    let made = w.send(0, &durable("S", "D", json!({})));
    let config = json!({"name": "D", "mem_storage": true, "ack_policy": "explicit"});
    let memory = (
        "CONSUMER.CREATE.S.D".to_owned(),
        json!({"stream_name": "S", "config": config}),
    );
    let other = w.send(1, &memory);
    w.settle();
    assert_eq!(w.code(made), 0);
    assert_ne!(w.code(other), 0);
    assert_eq!(w.state()["S"]["consumers"]["D"]["durable_name"], "D");
}

#[test]
fn a_consumer_that_is_asked_for_while_it_is_deleted_as_unused_is_there_then() {
    let mut w = with_stream(Limits::default());
    let unused = durable("S", "D", json!({"inactive_threshold": 1_000_000_000}));
    assert_eq!(w.ask(&unused.0, unused.1.clone()), 0);
    w.turn();
    w.later(Duration::from_millis(1500));
    w.propose();
    assert_eq!(w.log.len(), 1, "its deletion");
    let again = w.send(0, &unused);
    w.turn();
    w.settle();
    assert_eq!(w.code(again), 0);
    assert!(
        w.state()["S"]["consumers"]["D"].is_object(),
        "{}",
        w.state()
    );
}

#[test]
fn limits_count_what_is_in_flight() {
    let mut w = World::new(Limits {
        streams: Some(2),
        ..Limits::default()
    });
    let numbers = ["A", "B", "C"].map(|name| w.send(0, &stream(name)));
    w.settle();
    assert_eq!(numbers.map(|n| w.code(n)), [0, 0, 10027]);

    let mut w = World::new(Limits {
        file_bytes: Some(1000),
        ..Limits::default()
    });
    let numbers = ["A", "B"].map(|name| {
        let (what, mut config) = stream(name);
        config["max_bytes"] = json!(600);
        w.send(0, &(what, config))
    });
    w.settle();
    assert_eq!(numbers.map(|n| w.code(n)), [0, 10047]);

    let mut w = with_stream(Limits {
        consumers: Some(1),
        ..Limits::default()
    });
    let numbers = ["C", "D"].map(|name| w.send(0, &durable("S", name, json!({}))));
    w.settle();
    assert_eq!(numbers.map(|n| w.code(n)), [0, 10026]);
}

#[test]
fn many_creators_of_one_consumer_do_not_wait_for_each_other_in_turn() {
    let mut w = World::new(Limits::default());
    let streams: Vec<usize> = (0..100).map(|i| w.send(i % 3, &stream("S"))).collect();
    w.settle();
    assert!(streams.iter().all(|n| w.code(*n) == 0));
    assert_eq!(w.entries, 1, "the others change nothing");
    let made = durable("S", "D", json!({}));
    let consumers: Vec<usize> = (0..100).map(|i| w.send(i % 3, &made)).collect();
    w.settle();
    assert!(consumers.iter().all(|n| w.code(*n) == 0));
    assert_eq!(w.entries, 2, "the others change nothing");
    // Requests about different consumers do not wait for each other, so the leader proposes all of them in
    // one entry.
    let others = (0..100).map(|i| w.send(i % 3, &durable("S", &format!("D{i}"), json!({}))));
    let others: Vec<usize> = others.collect();
    w.propose();
    assert_eq!(w.log.len(), 1);
    w.settle();
    assert!(others.iter().all(|n| w.code(*n) == 0));
}

#[test]
fn requests_that_wait_are_refused_when_the_lead_ends() {
    let mut w = with_stream(Limits::default());
    let first = w.send(0, &durable("S", "D", json!({})));
    w.propose();
    let waits = w.send(1, &durable("S", "D", json!({"max_deliver": 3})));
    w.node.handle_following(GroupSlot::DIRECTORY, w.now);
    assert_eq!(w.code(waits), 10008);
    // The next leader commits the entry that this node proposed before.
    assert!(w.commit());
    assert_eq!(w.code(first), 10008, "this node serves it no more");
    w.node.handle_leading(GroupSlot::DIRECTORY, w.now);
    let after = w.send(1, &durable("S", "D", json!({"max_deliver": 3})));
    w.settle();
    assert_eq!(w.code(after), 0);
}

#[test]
fn a_lost_entry_holds_up_nothing() {
    let mut w = with_stream(Limits::default());
    w.send(0, &durable("S", "D", json!({})));
    w.propose();
    w.log.clear();
    // An entry of another leader replaces this node's entry. This node leads again without having followed in
    // between.
    (w.index, w.term) = (w.index - 1, 3);
    let waits = w.send(1, &durable("S", "D", json!({"max_deliver": 3})));
    let other = w.send(2, &stream("T"));
    w.settle();
    assert_eq!((w.code(other), w.code(waits)), (0, 0));
    assert_eq!(w.state()["S"]["consumers"]["D"]["max_deliver"], 3);
}

#[test]
fn a_request_more_than_may_wait_is_refused() {
    let mut w = with_stream(Limits::default());
    w.send(0, &durable("S", "D", json!({})));
    let delete = ("CONSUMER.DELETE.S.D".to_owned(), Value::Null);
    let waiting: Vec<usize> = (0..WAITING_MAX).map(|_| w.send(1, &delete)).collect();
    let refused = w.send(1, &delete);
    assert_eq!(w.code(refused), 10167);
    w.settle();
    assert_eq!(w.code(waiting[0]), 0);
    assert_eq!(w.code(waiting[WAITING_MAX - 1]), 10014);
}

/// Draws random requests about two streams and two consumers, so that many of them concern each other.
fn requests() -> impl Strategy<Value = Asked> {
    let streams = || prop_oneof![3 => Just("S"), 1 => Just("T")];
    let names = || prop_oneof![3 => Just("C"), 1 => Just("D")];
    let stream_config = (streams(), 0..3_i64, 0..3_i64, 0..3_usize).prop_map(
        |(name, max_msgs, bytes, subjects)| {
            let of: &[&str] = match (subjects, name) {
                (0, "S") => &["s.>"],
                (0, _) => &["t.>"],
                (1, _) => &["both"],
                _ => &["other.1"],
            };
            let most_pending = [0, 1000, 5][usize::try_from(max_msgs).unwrap()];
            let config = json!({
                "name": name, "subjects": of, "max_msgs": 10 * max_msgs, "max_bytes": 400 * bytes,
                "consumer_limits": {"max_ack_pending": most_pending},
            });
            (name, config)
        },
    );
    let to_make = stream_config.clone();
    let consumer = (streams(), names(), 0..8_usize, 0..3_usize, 0..3_i64).prop_map(
        |(stream, name, kind, action, deliver)| {
            let mut config =
                json!({"name": name, "ack_policy": "explicit", "max_deliver": deliver});
            if kind != 7 {
                config["durable_name"] = json!(name);
            } else {
                config["mem_storage"] = json!(true);
            }
            match kind {
                0..=2 => config["deliver_subject"] = json!(format!("deliver.{}", kind + 1)),
                3 => config["deliver_policy"] = json!("new"),
                4 => config["max_ack_pending"] = json!(50),
                5 => config["inactive_threshold"] = json!(1_000_000_000_i64),
                _ => {}
            }
            let action = ["", "create", "update"][action];
            let mut body = json!({"stream_name": stream, "config": config});
            if !action.is_empty() {
                body["action"] = json!(action);
            }
            (format!("CONSUMER.CREATE.{stream}.{name}"), body)
        },
    );
    prop_oneof![
        2 => to_make.prop_map(|(name, config)| (format!("STREAM.CREATE.{name}"), config)),
        2 => stream_config.prop_map(|(name, config)| (format!("STREAM.UPDATE.{name}"), config)),
        1 => streams().prop_map(|s| (format!("STREAM.DELETE.{s}"), Value::Null)),
        6 => consumer,
        2 => (streams(), names()).prop_map(|(s, c)| (format!("CONSUMER.DELETE.{s}.{c}"), Value::Null)),
        2 => (streams(), names(), any::<bool>()).prop_map(|(s, c, on)| {
            let until = match on {
                true => json!({"pause_until": "2040-01-01T00:00:00Z"}),
                false => Value::Null,
            };
            (format!("CONSUMER.PAUSE.{s}.{c}"), until)
        }),
        1 => (streams(), names()).prop_map(|(s, c)| (format!("CONSUMER.RESET.{s}.{c}"), Value::Null)),
        1 => streams().prop_map(|s| (format!("STREAM.PURGE.{s}"), Value::Null)),
    ]
}

/// Returns all orders in which a test can send this number of requests.
fn orders(len: usize) -> Vec<Vec<usize>> {
    if len == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in orders(len - 1) {
        for at in 0..=shorter.len() {
            let mut order = shorter.clone();
            order.insert(at, len - 1);
            all.push(order);
        }
    }
    all
}

/// Runs the requests in this order, each after the answer to the one before, and returns the answers and the
/// final state.
fn one_after_the_other(
    limits: Limits,
    before: &[Asked],
    requests: &[Asked],
    order: &[usize],
) -> (Vec<u64>, Value) {
    let mut w = World::new(limits);
    for (what, body) in before {
        w.ask(what, body.clone());
    }
    let mut codes = vec![0; requests.len()];
    for i in order {
        let (what, body) = &requests[*i];
        codes[*i] = w.ask(what, body.clone());
    }
    (codes, w.state())
}

fn limits() -> impl Strategy<Value = Limits> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(streams, consumers, bytes)| Limits {
        streams: streams.then_some(1),
        consumers: consumers.then_some(1),
        file_bytes: bytes.then_some(1000),
    })
}

#[test]
fn a_reset_that_waits_for_another_is_answered() {
    let mut w = World::new(Limits {
        streams: None,
        consumers: None,
        file_bytes: None,
    });
    let (what, body) = stream("S");
    assert_eq!(w.ask(&what, body), 0);
    let consumer = serde_json::json!({
        "stream_name": "S",
        "config": {"name": "C", "ack_policy": "explicit", "mem_storage": true},
    });
    assert_eq!(w.ask("CONSUMER.CREATE.S.C", consumer), 0);
    let reset = ("CONSUMER.RESET.S.C".to_owned(), Value::Null);
    let numbers = [w.send(0, &reset), w.send(0, &reset)];
    w.settle();
    assert_eq!(numbers.map(|number| w.code(number)), [0, 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn requests_in_flight_come_to_what_some_order_comes_to(
        limits in limits(),
        before in proptest::collection::vec(requests(), 0..4),
        requests in proptest::collection::vec(requests(), 2..4),
        clients in proptest::collection::vec(0..3_usize, 3),
        steps in proptest::collection::vec(0..4_u8, 3),
    ) {
        let mut first = vec![stream("S")];
        first.extend(before);
        let mut w = World::new(limits);
        for (what, body) in &first {
            w.ask(what, body.clone());
        }
        let mut numbers = Vec::new();
        for ((request, client), step) in requests.iter().zip(&clients).zip(&steps) {
            numbers.push(w.send(*client, request));
            // The test leaves the request before in the open entry, lets the node propose it, or commits it,
            // so that the next request meets each state.
            match step {
                0 => {}
                1 => w.turn(),
                2 => w.propose(),
                _ => {
                    w.propose();
                    w.commit();
                }
            }
        }
        w.settle();
        let codes: Vec<u64> = numbers.iter().map(|n| w.code(*n)).collect();
        let seen = (codes, w.state());
        let possible = |order: &Vec<usize>| one_after_the_other(limits, &first, &requests, order);
        let all = orders(requests.len());
        prop_assert!(
            all.iter().any(|order| possible(order) == seen),
            "{requests:?}\n{seen:?}\nis none of {:?}",
            all.iter().map(possible).collect::<Vec<_>>()
        );
    }
}

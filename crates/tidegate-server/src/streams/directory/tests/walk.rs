//! Tests random requests while leaders go and nodes fall behind.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate_cluster::groups::{ALL, GroupId, GroupOf};
use tidegate_stream::stream::{Home, Streams};

use super::config;
use super::world::World;

#[derive(Clone, Debug)]
enum Act {
    Create(usize, usize, usize, i64),
    Update(usize, usize, i64),
    Delete(usize, usize),
    Info(usize, usize),
    Publish(usize, usize),
    List(usize),
    Hold(usize),
    Release(usize),
    Follow(prop::sample::Index),
    Lead(prop::sample::Index, prop::sample::Index),
    Turns(usize),
    /// The test holds messages from one node to another back from now on, or delivers them again.
    Slow(usize, usize),
    Hurry(usize, usize),
    Settle,
}

fn act(nodes: usize) -> impl Strategy<Value = Act> {
    let (name, node) = (|| 0..4_usize, move || 0..nodes);
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => (node(), name(), 1..4_usize, 1..3_i64).prop_map(|(a, b, c, d)| Act::Create(a, b, c, d)),
        2 => (node(), name(), 1..3_i64).prop_map(|(a, b, c)| Act::Update(a, b, c)),
        2 => (node(), name()).prop_map(|(a, b)| Act::Delete(a, b)),
        2 => (node(), name()).prop_map(|(a, b)| Act::Info(a, b)),
        4 => (node(), name()).prop_map(|(a, b)| Act::Publish(a, b)),
        1 => node().prop_map(Act::List),
        1 => node().prop_map(Act::Hold),
        1 => node().prop_map(Act::Release),
        1 => index().prop_map(Act::Follow),
        2 => (index(), index()).prop_map(|(g, n)| Act::Lead(g, n)),
        3 => (0..4_usize).prop_map(Act::Turns),
        2 => (node(), node()).prop_map(|(a, b)| Act::Slow(a, b)),
        2 => (node(), node()).prop_map(|(a, b)| Act::Hurry(a, b)),
        1 => Just(Act::Settle),
    ]
}

/// A random walk of requests while leaders go and nodes fall behind. Once all nodes are well again, all nodes
/// have the same streams, and each request has had one answer.
struct Walk {
    w: World,
    asked: usize,
    /// The sequences of acknowledged messages, by stream, which the stream must have at the end.
    acked: BTreeMap<String, BTreeSet<u64>>,
    deleted: BTreeSet<String>,
    /// The reply subjects of published messages, each with the message's stream, by which the test finds
    /// messages to a deleted stream.
    loose: BTreeMap<String, String>,
    /// The number of answers that clients got, by reply subject.
    answers: BTreeMap<String, usize>,
}

const NAMES: [&str; 4] = ["A", "B", "C", "D"];

impl Walk {
    fn request(&mut self, node: usize, what: &str, body: &str) {
        self.asked += 1;
        let reply = format!("r.{}", self.asked);
        let heard = format!("r.{node}.{}", self.asked);
        self.answers.insert(heard, 0);
        self.w
            .publish(node, &format!("$JS.API.{what}"), &reply, body);
    }

    fn listen(&mut self) {
        for node in 0..self.w.nodes.len() {
            let heard = self.w.heard(node);
            let mut lines = heard.lines();
            while let Some(line) = lines.next() {
                let mut words = line.split(' ');
                if !matches!(words.next(), Some("MSG" | "HMSG")) {
                    continue;
                }
                let reply = words.next().unwrap().to_owned();
                *self.answers.entry(reply).or_default() += 1;
                let body = lines.next().unwrap_or_default();
                let Ok(body) = serde_json::from_str::<Value>(body) else {
                    continue;
                };
                let stored = body["stream"]
                    .as_str()
                    .filter(|name| body["error"].is_null() && !name.is_empty());
                if let (Some(name), Some(seq)) = (stored, body["seq"].as_u64()) {
                    self.acked.entry(name.to_owned()).or_default().insert(seq);
                }
            }
        }
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Create(node, name, replicas, age) => {
                let name = NAMES[*name];
                let mut body = config(name, *replicas);
                body["max_age"] = json!(age * 1_000_000_000_000);
                self.request(*node, &format!("STREAM.CREATE.{name}"), &body.to_string());
            }
            Act::Update(node, name, age) => {
                let name = NAMES[*name];
                let mut body = config(name, 1);
                body["max_age"] = json!(age * 1_000_000_000_000);
                self.request(*node, &format!("STREAM.UPDATE.{name}"), &body.to_string());
            }
            Act::Delete(node, name) => {
                let name = NAMES[*name];
                self.deleted.insert(name.to_owned());
                self.request(*node, &format!("STREAM.DELETE.{name}"), "");
            }
            Act::Info(node, name) => {
                self.request(*node, &format!("STREAM.INFO.{}", NAMES[*name]), "");
            }
            Act::Publish(node, name) => {
                self.asked += 1;
                let subject = format!("{}.x", NAMES[*name].to_lowercase());
                let reply = format!("r.{}", self.asked);
                let heard = format!("r.{node}.{}", self.asked);
                self.loose.insert(heard, NAMES[*name].to_owned());
                self.w.publish(*node, &subject, &reply, "hello");
            }
            Act::List(node) => self.request(*node, "STREAM.LIST", ""),
            Act::Hold(node) => {
                if self.w.leaders.get(&ALL) != Some(node) && !self.w.held.contains_key(node) {
                    self.w.hold(*node);
                }
            }
            Act::Release(node) => {
                if self.w.held.contains_key(node) {
                    self.w.release(*node);
                }
            }
            Act::Follow(group) => {
                let led: Vec<GroupId> = self.w.leaders.keys().copied().collect();
                if !led.is_empty() {
                    self.w.follow(led[group.index(led.len())]);
                }
            }
            Act::Lead(group, node) => {
                let led = &self.w.leaders;
                let free: Vec<&GroupOf> = self
                    .w
                    .groups
                    .iter()
                    .filter(|g| !led.contains_key(&g.number))
                    .collect();
                if free.is_empty() {
                    return;
                }
                let group = free[group.index(free.len())].clone();
                let node = group.members[node.index(group.members.len())] as usize - 1;
                if group.number != ALL || !self.w.held.contains_key(&node) {
                    self.w.lead(group.number, node);
                    self.w.pump();
                }
            }
            Act::Slow(from, to) => {
                if from != to {
                    self.w.slow.insert((*from, *to));
                }
            }
            Act::Hurry(from, to) => {
                if self.w.slow.contains(&(*from, *to)) {
                    self.w.hurry(*from, *to);
                }
            }
            Act::Turns(turns) => (0..*turns).for_each(|_| self.w.turn()),
            Act::Settle => self.w.settle(),
        }
        self.listen();
    }

    fn heal(&mut self) {
        let held: Vec<usize> = self.w.held.keys().copied().collect();
        held.into_iter().for_each(|node| self.w.release(node));
        for (from, to) in self.w.slow.clone() {
            self.w.hurry(from, to);
        }
        for group in self.w.groups.clone() {
            if !self.w.leaders.contains_key(&group.number) {
                self.w.lead(group.number, group.members[0] as usize - 1);
            }
        }
        (0..6).for_each(|_| self.w.settle());
        self.listen();
    }

    fn check(&self) {
        let w = &self.w;
        let directory = w.nodes[0].directory().unwrap().applied();
        let bytes = |s: &Streams| s.snapshot().chunks().flatten().collect::<Vec<u8>>();
        for (i, node) in w.nodes.iter().enumerate() {
            let all = node.directory().unwrap().applied();
            assert_eq!(bytes(all), bytes(directory), "the directory of {i}");
            for at in node.slots().skip(1) {
                let slot = node.streams(at).unwrap();
                let mut expected = Vec::new();
                for entry in directory.iter() {
                    match entry.home() {
                        Home::Elsewhere { group, made } if group == slot.group() => {
                            assert!(made, "{}", entry.name());
                            expected.push((entry.config().clone(), Home::Of(entry.entry_number())));
                        }
                        _ => {}
                    }
                }
                let own = slot.applied().iter();
                let own: Vec<_> = own.map(|s| (s.config().clone(), s.home())).collect();
                assert_eq!(own, expected, "group {} at {i}", slot.group());
                if slot.serves() {
                    let open = slot.applied().iter().all(|s| slot.is_open_here(s));
                    assert!(open, "group {} at {i}", slot.group());
                }
            }
        }
        for (reply, answers) in &self.answers {
            // A node that has not learned that a client deleted the stream still takes messages for it, so
            // their publishers may get no answer.
            let ended = self
                .loose
                .get(reply)
                .is_some_and(|n| self.deleted.contains(n));
            assert!(*answers == 1 || ended, "{answers} at {reply}");
        }
        for (name, seqs) in &self.acked {
            if self.deleted.contains(name) {
                continue;
            }
            let kept = (0..w.nodes.len())
                .filter_map(|node| w.messages(node, name))
                .max();
            assert!(
                kept >= Some(seqs.len() as u64),
                "{name}: {kept:?}, {seqs:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_all_have_the_same_in_the_end(
        nodes in prop::sample::select(&[3_usize, 5][..]),
        shards in 1..3_u32,
        acts in prop::collection::vec(act(3), 1..40),
    ) {
        let mut walk = Walk {
            w: World::sharded(nodes, shards),
            asked: 0,
            acked: BTreeMap::new(),
            deleted: BTreeSet::new(),
            loose: BTreeMap::new(),
            answers: BTreeMap::new(),
        };
        for act in &acts {
            walk.act(act);
        }
        walk.heal();
        walk.check();
    }
}

//! Streams move between nodes without sockets and without Raft: with what leaders tell each other lost, and leaders that change.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::directory::tests::{World, config};
use crate::cluster::groups::ALL;
use crate::stream::{Command, Filter, Kept, Transit};

impl World {
    /// Lets time pass until the stream is where it is to be.
    fn arrive(&mut self, name: &str) {
        for _ in 0..60 {
            self.settle();
            let directory = self.nodes[0].streams(0).unwrap().applied();
            let entry = directory.get(directory.by_name(name).unwrap()).unwrap();
            if entry.moving().is_none() {
                self.settle();
                return;
            }
        }
        panic!("{name} does not arrive");
    }

    fn members_of(&self, name: &str) -> usize {
        let group = match self.kept(0, name) {
            Some(Kept::Elsewhere { group, .. }) => group,
            _ => ALL,
        };
        let of = self.groups.iter().find(|g| g.number == group).unwrap();
        of.members.len()
    }

    fn update(&mut self, node: usize, name: &str, replicas: usize) -> Vec<Value> {
        let config = config(name, replicas);
        self.answers(node, &format!("STREAM.UPDATE.{name}"), &config)
    }

    /// How many groups' streams of this name there are on all nodes, in all.
    fn copies(&self, name: &str) -> usize {
        let slots = self.nodes.iter().flat_map(|n| n.all_streams());
        let there = slots.filter(|s| {
            let streams = s.applied();
            let stream = streams.by_name(name).and_then(|id| streams.get(id));
            stream.is_some_and(|s| s.kept().is_here())
        });
        there.count()
    }

    /// What a stream holds where it is kept, the same at all its keepers.
    fn content(&self, name: &str) -> BTreeMap<u64, String> {
        let mut all = Vec::new();
        for node in &self.nodes {
            for slot in node.all_streams() {
                let streams = slot.applied();
                let stream = streams.by_name(name).and_then(|id| streams.get(id));
                let Some(stream) = stream.filter(|s| s.kept().is_here()) else {
                    continue;
                };
                assert_eq!(stream.transit(), Transit::None);
                stream.check_invariants();
                let mut content = BTreeMap::new();
                let mut next = stream.next_at(0, &mut Filter::all());
                while let Some(seq) = next {
                    let place = stream.place(seq).unwrap();
                    let entry = self.entry(slot.group(), place.lsn);
                    let command = Command::read(entry, place.offset).unwrap();
                    let text = String::from_utf8(command.payload.to_vec()).unwrap();
                    content.insert(seq, text);
                    next = stream.next_at(seq + 1, &mut Filter::all());
                }
                all.push((content, stream.last_seq(), stream.consumers().count()));
            }
        }
        assert!(all.windows(2).all(|w| w[0] == w[1]));
        all.remove(0).0
    }

    /// What publishers were told since: by payload the sequence, `None` if refused.
    fn told(&mut self, told: &mut BTreeMap<String, Option<u64>>) {
        for node in 0..self.nodes.len() {
            let heard = self.heard(node);
            let mut lines = heard.split("\r\n");
            while let Some(line) = lines.next() {
                let Some(which) = line.split(' ').nth(1).and_then(|s| s.split(".p").nth(1)) else {
                    continue;
                };
                let body = lines.next().unwrap_or_default();
                let body: Value = serde_json::from_str(body).unwrap_or_default();
                let seq = body["seq"].as_u64().filter(|_| body["error"].is_null());
                let before = told.insert(which.to_owned(), seq);
                assert!(
                    before.is_none(),
                    "{which} is answered twice: {before:?} and {seq:?}"
                );
            }
        }
    }
}

#[test]
fn a_stream_moves_with_its_consumers_and_back() {
    for nodes in [3, 5] {
        let mut w = World::of(nodes);
        w.create(0, "A", 1);
        for n in 0..40 {
            w.publish(n % nodes, "a.x", "r.p", &n.to_string());
        }
        w.settle();
        (0..nodes).for_each(|n| drop(w.heard(n)));
        let durable =
            json!({"stream_name": "A", "config": {"durable_name": "D", "ack_policy": "explicit"}});
        w.ask(1, "CONSUMER.CREATE.A.D", &durable);
        (0..nodes).for_each(|n| drop(w.heard(n)));
        let mut next = 1;
        for (round, replicas) in [nodes, 1, 3, 1, nodes, 3, 1].into_iter().enumerate() {
            if w.members_of("A") == replicas {
                continue;
            }
            let updated = w.update(round % nodes, "A", replicas);
            assert_eq!(updated.len(), 1, "{updated:?}");
            assert_eq!(
                updated[0]["config"]["num_replicas"], replicas,
                "{updated:?}"
            );
            w.arrive("A");
            assert_eq!((w.members_of("A"), w.copies("A")), (replicas, replicas));
            for node in 0..nodes {
                let info = w.ask(node, "STREAM.INFO.A", &Value::Null);
                assert_eq!(info["state"]["last_seq"], 40, "{info}");
                assert_eq!(info["state"]["consumer_count"], 1, "{info}");
            }
            let at = (round + 1) % nodes;
            w.publish(at, "$JS.API.CONSUMER.MSG.NEXT.A.D", "r.n", "{\"batch\":2}");
            w.settle();
            let heard = w.heard(at);
            for seq in next..next + 2 {
                let ack = format!("$JS.ACK.A.D.1.{seq}.");
                let start = heard.find(&ack).unwrap_or_else(|| panic!("{ack}: {heard}"));
                let ack = heard[start..].split(' ').next().unwrap().to_owned();
                w.publish(at, &ack, "r.k", "+ACK");
            }
            w.settle();
            assert_eq!(w.heard(at).matches("MSG r.").count(), 2);
            next += 2;
            let info = w.ask(round % nodes, "CONSUMER.INFO.A.D", &Value::Null);
            assert_eq!(info["ack_floor"]["stream_seq"], next - 1, "{info}");
        }
        let wanted = (1..=40).map(|seq| (seq, (seq - 1).to_string()));
        assert!(w.content("A").into_iter().eq(wanted));
    }
}

#[test]
fn one_move_at_a_time_and_deleted_it_is_gone_everywhere() {
    let mut w = World::of(3);
    w.create(0, "A", 1);
    w.publish(0, "a.x", "r.p", "1");
    w.settle();
    w.heard(0);
    // Nothing gets through from one node to another.
    let owner = w.owner_of("A");
    let (leader, elsewhere) = (w.leaders[&ALL], (owner + 1) % 3);
    if leader == owner {
        w.follow(ALL);
        w.lead(ALL, elsewhere);
        w.settle();
    }
    w.lost = 100;
    w.update(0, "A", 3);
    let again = w.ask(0, "STREAM.UPDATE.A", &config("A", 1));
    assert_eq!(again["error"]["err_code"], 10069, "{again}");
    // It is served where it was.
    w.publish(2, "a.x", "r.p", "2");
    w.settle();
    assert!(w.heard(2).contains("\"seq\":2"));
    w.lost = 0;
    assert_eq!(w.answers(1, "STREAM.DELETE.A", &Value::Null).len(), 1);
    w.settle();
    assert_eq!((w.copies("A"), w.kept(0, "A")), (0, None));
    assert_eq!(w.create(1, "A", 1)["state"]["messages"], 0);
}

/// Whatever happens, in whatever order, what was acknowledged is there, once, with the number it was given.
#[test]
fn nothing_is_lost_whoever_leads_and_whatever_is_not_heard() {
    let mut moves = 0;
    for seed in 1..=100_u64 {
        let nodes = if seed % 3 == 0 { 5 } else { 3 };
        let mut w = World::of(nodes);
        let mut random = seed;
        let mut below = |n: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % n
        };
        w.create(0, "A", 1);
        (0..nodes).for_each(|n| drop(w.heard(n)));
        let mut told = BTreeMap::new();
        w.lost = below(60);
        let mut sent = 0;
        for _ in 0..300 {
            match below(12) {
                0 => {
                    let body = config("A", [1, 3, nodes][below(3) as usize]).to_string();
                    let at = below(nodes as u64) as usize;
                    w.publish(at, "$JS.API.STREAM.UPDATE.A", "r.u", &body);
                }
                1 | 2 => {
                    let group = w.groups[below(w.groups.len() as u64) as usize].clone();
                    if w.leaders.contains_key(&group.number) {
                        w.follow(group.number);
                    }
                    if below(3) > 0 {
                        let to = group.members[below(group.members.len() as u64) as usize];
                        w.lead(group.number, to as usize - 1);
                    }
                }
                3 => w.now = w.now + std::time::Duration::from_millis(300),
                _ => {
                    for _ in 0..below(20) {
                        let at = below(nodes as u64) as usize;
                        w.publish(at, "a.x", &format!("r.p{sent}"), &sent.to_string());
                        sent += 1;
                    }
                }
            }
            for _ in 0..below(4) {
                w.turn();
            }
            w.told(&mut told);
        }
        w.lost = 0;
        for group in w.groups.clone() {
            if !w.leaders.contains_key(&group.number) {
                w.lead(group.number, group.members[0] as usize - 1);
            }
        }
        w.arrive("A");
        w.told(&mut told);
        let content = w.content("A");
        assert_eq!(w.copies("A"), w.members_of("A"), "seed {seed}");
        let directory = w.nodes[0].streams(0).unwrap().applied();
        let entry = directory.by_name("A").and_then(|id| directory.get(id));
        moves += entry.unwrap().moves();
        let mut known = BTreeMap::new();
        for (at, (seq, text)) in content.iter().enumerate() {
            assert_eq!(*seq, at as u64 + 1, "seed {seed}");
            assert!(
                known.insert(text, *seq).is_none(),
                "seed {seed}: {text} is there twice"
            );
        }
        for (text, seq) in &told {
            assert_eq!(known.get(text).copied(), *seq, "seed {seed}: {text}");
        }
        w.publish(1, "a.x", &format!("r.p{sent}"), "end");
        w.settle();
        w.told(&mut told);
        assert_eq!(
            told[&sent.to_string()],
            Some(content.len() as u64 + 1),
            "seed {seed}"
        );
    }
    // Or it says little.
    assert!(moves > 150, "{moves}");
}

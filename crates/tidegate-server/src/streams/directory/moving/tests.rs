//! Tests moves of streams between nodes without sockets and without Raft, while the test loses messages
//! between leaders and changes leaders.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate::Time;
use tidegate_cluster::groups::{ALL, GroupId};
use tidegate_stream::schema::number::{DirectoryNumber, MoveNumber};
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{Command, Filter, Home, Moving, Stream, Transit};

use super::super::leaderless::AWAY;
use super::{FREEZE_BYTES, Moves};
use crate::streams::context::Surroundings as _;
use crate::streams::directory::tests::{World, config};

impl World {
    /// Lets time pass until the directory shows that the stream has moved.
    fn arrive(&mut self, name: &str) {
        for _ in 0..60 {
            self.settle();
            let directory = self.nodes[0].directory().unwrap().applied();
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
            Some(Home::Elsewhere { group, .. }) => group,
            _ => ALL,
        };
        let of = self.groups.iter().find(|g| g.number == group).unwrap();
        of.members.len()
    }

    fn update(&mut self, node: usize, name: &str, replicas: usize) -> Vec<Value> {
        let config = config(name, replicas);
        self.answers(node, &format!("STREAM.UPDATE.{name}"), &config)
    }

    fn entry_of(&self, name: &str) -> &Stream {
        let directory = self.nodes[0].directory().unwrap().applied();
        directory.get(directory.by_name(name).unwrap()).unwrap()
    }

    /// Returns the node that leads the group which keeps the stream.
    fn home(&self, name: &str) -> usize {
        match self.kept(0, name) {
            Some(Home::Elsewhere { group, .. }) => self.leaders[&group],
            _ => self.leaders[&ALL],
        }
    }

    fn moves_of(&self, name: &str) -> u32 {
        self.entry_of(name).moves().get()
    }

    fn messages_of(&self, name: &str) -> u64 {
        let all = (0..self.nodes.len()).filter_map(|node| self.messages(node, name));
        all.max().unwrap_or(0)
    }

    fn is_frozen(&self, name: &str) -> bool {
        let mut slots = self.nodes.iter().flat_map(|n| n.all_streams());
        slots.any(|s| {
            let streams = s.applied();
            let stream = streams.by_name(name).and_then(|id| streams.get(id));
            stream.is_some_and(Stream::is_frozen)
        })
    }

    /// Checks that no two groups serve a stream at the same moment.
    fn one_owner(&self) {
        let mut owners = BTreeMap::<String, GroupId>::new();
        for slot in self.nodes.iter().flat_map(|n| n.all_streams()) {
            if !slot.serves() {
                continue;
            }
            for stream in slot.applied().iter().filter(|s| slot.is_open_here(s)) {
                let before = owners.insert(stream.name().to_owned(), slot.group());
                assert_eq!(before, None, "{} and {}", slot.group(), stream.name());
            }
        }
    }

    /// Asks for an update, and returns its answer. The client may get answers to other requests at the same
    /// time.
    fn update_alone(&mut self, node: usize, name: &str, replicas: usize) -> Value {
        let body = config(name, replicas).to_string();
        let subject = format!("$JS.API.STREAM.UPDATE.{name}");
        self.publish(node, &subject, "r.v", &body);
        // The test waits, because the group that keeps the stream may take a while to carry out the update.
        (0..6).for_each(|_| self.settle());
        let heard = self.heard(node);
        let mut lines = heard.lines();
        let at = lines.find(|line| line.contains(&format!(" r.{node}.v ")));
        let body = at.and_then(|_| lines.next());
        let body = body.unwrap_or_else(|| panic!("no answer: {heard}"));
        serde_json::from_str(body).unwrap()
    }

    /// Returns the number of copies of the stream of this name that the groups have on all nodes together.
    fn copies(&self, name: &str) -> usize {
        let slots = self.nodes.iter().flat_map(|n| n.all_streams());
        let there = slots.filter(|s| {
            let streams = s.applied();
            let stream = streams.by_name(name).and_then(|id| streams.get(id));
            stream.is_some_and(|s| s.home().is_here())
        });
        there.count()
    }

    /// Returns the messages of a stream by sequence, and checks that all nodes of its home group have the
    /// same messages.
    fn content(&self, name: &str) -> BTreeMap<u64, String> {
        let mut all = Vec::new();
        let home = match self.kept(0, name) {
            Some(Home::Elsewhere { group, .. }) => group,
            _ => ALL,
        };
        for node in &self.nodes {
            for slot in node.all_streams().filter(|s| s.group() == home) {
                let streams = slot.applied();
                let stream = streams.by_name(name).and_then(|id| streams.get(id));
                let Some(stream) = stream.filter(|s| s.home().is_here()) else {
                    continue;
                };
                assert_eq!(stream.transit(), Transit::None);
                stream.check_invariants();
                let mut content = BTreeMap::new();
                let mut next = stream.next_at(StreamSeq::ZERO, &mut Filter::all());
                while let Some(seq) = next {
                    let place = stream.place(seq).unwrap();
                    let entry = self.entry(slot.group(), place.lsn);
                    let command = Command::read(entry, place.offset).unwrap();
                    let text = String::from_utf8(command.payload.to_vec()).unwrap();
                    content.insert(seq.get(), text);
                    next = stream.next_at(seq.next(), &mut Filter::all());
                }
                all.push((content, stream.last_seq(), stream.consumers().count()));
            }
        }
        assert!(all.windows(2).all(|w| w[0] == w[1]));
        all.remove(0).0
    }

    /// Collects the answers that publishers got since the last call: the sequence by payload, or `None` if
    /// the stream refused the message.
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
    // From now on the test loses every message from one node to another.
    let owner = w.owner_of("A");
    let (leader, elsewhere) = (w.leaders[&ALL], (owner + 1) % 3);
    if leader == owner {
        w.follow(ALL);
        w.lead(ALL, elsewhere);
        w.settle();
    }
    w.lost = 100;
    w.update(0, "A", 3);
    let mut other = config("A", 3);
    other["max_msgs"] = json!(7);
    let again = w.ask(0, "STREAM.UPDATE.A", &other);
    assert_eq!(again["error"]["err_code"], 10124, "{again}");
    // The group that kept the stream before the move still serves it.
    w.publish(2, "a.x", "r.p", "2");
    w.settle();
    assert!(w.heard(2).contains("\"seq\":2"));
    w.lost = 0;
    assert_eq!(w.answers(1, "STREAM.DELETE.A", &Value::Null).len(), 1);
    w.settle();
    assert_eq!((w.copies("A"), w.kept(0, "A")), (0, None));
    assert_eq!(w.create(1, "A", 1)["state"]["messages"], 0);
}

/// Creates nodes with a stream of ten messages and a durable consumer, and lets this number of turns pass
/// after the stream's move began.
fn under_way(nodes: usize, from: usize, to: usize, turns: usize) -> World {
    let mut w = World::of(nodes);
    w.create(0, "A", from);
    for n in 0..10 {
        w.publish(n % nodes, "a.x", "r.q", &n.to_string());
    }
    w.settle();
    (0..nodes).for_each(|n| drop(w.heard(n)));
    let durable =
        json!({"stream_name": "A", "config": {"durable_name": "D", "ack_policy": "explicit"}});
    w.ask(1, "CONSUMER.CREATE.A.D", &durable);
    (0..nodes).for_each(|n| drop(w.heard(n)));
    let body = config("A", to).to_string();
    w.publish(0, "$JS.API.STREAM.UPDATE.A", "r.u", &body);
    for _ in 0..turns {
        w.turn();
        w.one_owner();
    }
    w
}

/// Checks that the stream has this number of messages and takes the next one, and that its consumer delivers
/// that one.
fn is_served(w: &mut World, messages: u64) {
    let nodes = w.nodes.len();
    (0..nodes).for_each(|n| drop(w.heard(n)));
    w.publish(nodes - 1, "a.x", "r.q", &messages.to_string());
    w.settle();
    let heard = w.heard(nodes - 1);
    let wanted = format!("\"seq\":{}", messages + 1);
    assert!(heard.contains(&wanted), "{heard}");
    w.publish(
        0,
        "$JS.API.CONSUMER.MSG.NEXT.A.D",
        "r.n",
        "{\"batch\":1,\"no_wait\":true}",
    );
    w.settle();
    let heard = w.heard(0);
    assert!(heard.contains("$JS.ACK.A.D."), "{heard}");
    let wanted = (1..=messages + 1).map(|seq| (seq, (seq - 1).to_string()));
    assert!(w.content("A").into_iter().eq(wanted));
}

/// The courses of the test's moves: the number of nodes, the replicas before, the replicas that the client
/// asks for, and the replicas that it asks for instead.
const COURSES: [(usize, usize, usize, usize); 9] = [
    (3, 1, 3, 1),
    (3, 3, 1, 3),
    (5, 1, 5, 1),
    (5, 1, 5, 3),
    (5, 5, 1, 5),
    (5, 5, 1, 3),
    (5, 3, 1, 3),
    (5, 3, 1, 5),
    (5, 1, 3, 5),
];

#[test]
fn a_move_is_called_off_at_any_step() {
    let (mut before, mut after) = (0, 0);
    for (nodes, from, to, instead) in COURSES {
        for turns in 0..24 {
            let mut w = under_way(nodes, from, to, turns);
            let moves = w.moves_of("A");
            let updated = w.update_alone(turns % nodes, "A", instead);
            if !updated["error"].is_null() {
                // The move had not begun or was over when the client asked again, so the test repeats the
                // request.
                let code = &updated["error"]["err_code"];
                assert!(*code == 10124 || *code == 10069, "{updated}");
                let again = w.update_alone(0, "A", instead);
                assert!(again["error"].is_null(), "{again}");
            }
            match w.moves_of("A") == moves && instead == from {
                true => before += 1,
                false => after += 1,
            }
            w.arrive("A");
            let at = format!("{nodes} nodes: {from} to {to}, {instead} after {turns}");
            assert_eq!(w.members_of("A"), instead, "{at}");
            assert_eq!(w.copies("A"), instead, "{at}");
            (0..nodes).for_each(|n| drop(w.heard(n)));
            let info = w.ask(0, "STREAM.INFO.A", &Value::Null);
            assert_eq!(info["config"]["num_replicas"], instead, "{at}: {info}");
            is_served(&mut w, 10);
        }
    }
    // The test needs enough cases on either side, or else it would show little.
    assert!(before > 30 && after > 30, "{before} {after}");
}

#[test]
fn a_move_with_a_lost_target_is_given_up_and_done_when_it_is_back() {
    let (mut frozen, mut came) = (0, 0);
    for (nodes, from, to, _) in COURSES {
        for turns in 0..24 {
            let mut w = under_way(nodes, from, to, turns);
            let at = format!("{nodes} nodes: {from} to {to}, {turns}");
            let Some(moving) = w.entry_of("A").moving() else {
                continue;
            };
            let target = moving.to;
            if target == ALL {
                // The directory's leader goes with the target, so no leader can decide anything. The leader
                // comes back in time, and the cluster loses nothing.
                w.follow(target);
                (0..6).for_each(|_| w.settle());
                w.lead(target, 1);
            } else {
                frozen += usize::from(w.is_frozen("A"));
                w.follow(target);
                for _ in 0..200 {
                    w.now = w.now + std::time::Duration::from_millis(50);
                    w.turn();
                    w.one_owner();
                }
                let members = w.groups.iter().find(|g| g.number == target);
                let first = members.unwrap().members[0] as usize - 1;
                if w.kept(0, "A").is_some_and(|kept| kept.is_by(target)) {
                    // The target had the whole stream and the directory knew that, so the target alone keeps
                    // the stream.
                    w.lead(target, first);
                    w.settle();
                    is_served(&mut w, 10);
                    came += 1;
                    continue;
                }
                is_served(&mut w, 10);
                assert!(!w.is_frozen("A"), "{at}");
                w.lead(target, first);
            }
            w.arrive("A");
            assert_eq!((w.members_of("A"), w.copies("A")), (to, to), "{at}");
            let there = w.messages_of("A");
            is_served(&mut w, there);
        }
    }
    // The test needs enough cases, or else it would show little.
    assert!(frozen > 3 && came < frozen, "{frozen} {came}");
}

#[test]
fn a_move_with_an_absent_target_goes_elsewhere() {
    let (mut waited, mut frozen) = (0, 0);
    for (nodes, from, to) in [(3, 3, 1), (5, 5, 1), (5, 5, 3), (5, 3, 1), (5, 1, 3)] {
        for turns in (0..24).step_by(2) {
            let mut w = under_way(nodes, from, to, turns);
            let at = format!("{nodes} nodes: {from} to {to}, {turns}");
            let Some(moving) = w.entry_of("A").moving() else {
                continue;
            };
            w.follow(moving.to);
            w.settle();
            let calm = !w.is_frozen("A");
            // The directory's leader waits, because the node may only be restarting.
            (0..AWAY.as_secs() / 2).for_each(|_| w.settle());
            if w.kept(0, "A").is_some_and(|kept| kept.is_by(moving.to)) {
                continue;
            }
            if calm {
                assert_eq!(w.entry_of("A").moving(), Some(moving), "{at}");
                waited += 1;
            } else {
                frozen += 1;
            }
            w.arrive("A");
            assert!(!w.kept(0, "A").unwrap().is_by(moving.to), "{at}");
            assert_eq!(w.members_of("A"), to, "{at}");
            is_served(&mut w, 10);
            // The old target comes back, and deletes its part of the stream.
            let members = w.groups.iter().find(|g| g.number == moving.to);
            let first = members.unwrap().members[0] as usize - 1;
            w.lead(moving.to, first);
            w.settle();
            w.one_owner();
            assert_eq!(w.copies("A"), to, "{at}");
            is_served(&mut w, 11);
        }
    }
    assert!(waited > 3 && frozen > 3, "{waited} {frozen}");
}

#[test]
fn a_move_waits_for_its_target_where_there_is_no_other() {
    let mut w = under_way(3, 3, 1, 2);
    let moving = w.entry_of("A").moving().unwrap();
    let alone: Vec<_> = w
        .groups
        .iter()
        .filter(|g| g.members.len() == 1)
        .cloned()
        .collect();
    for group in &alone {
        w.follow(group.number);
    }
    (0..3 * AWAY.as_secs()).for_each(|_| w.settle());
    assert_eq!(w.entry_of("A").moving(), Some(moving));
    is_served(&mut w, 10);
    let target = alone.iter().find(|g| g.number == moving.to).unwrap();
    w.lead(moving.to, target.members[0] as usize - 1);
    w.arrive("A");
    assert!(w.kept(0, "A").unwrap().is_by(moving.to));
    is_served(&mut w, 11);
}

#[test]
fn a_stream_leaves_a_node_on_which_there_is_space_only_for_making_some() {
    for (nodes, to) in [(3, 3), (5, 3), (5, 5)] {
        let mut w = under_way(nodes, 1, 1, 0);
        let home = w.owner_of("A");
        // A node without space hands over the groups that another node can lead.
        for group in w.groups.clone() {
            let others = group.members.iter().map(|id| *id as usize - 1);
            let other = others.into_iter().find(|node| *node != home);
            if let Some(other) = other.filter(|_| w.leaders[&group.number] == home) {
                w.follow(group.number);
                w.lead(group.number, other);
            }
        }
        w.settle();
        // The client pulls, so that the consumer has a delta to propose.
        let pull = "$JS.API.CONSUMER.MSG.NEXT.A.D";
        w.publish(0, pull, "r.n", "{\"batch\":1,\"no_wait\":true}");
        w.turn();
        w.crowd(Some(home));
        w.settle();
        let updated = w.update_alone((home + 1) % nodes, "A", to);
        assert!(updated["error"].is_null(), "{updated}");
        w.arrive("A");
        assert_eq!((w.members_of("A"), w.copies("A")), (to, to), "{nodes}");
        w.crowd(None);
        is_served(&mut w, 10);
    }
}

#[test]
fn a_frozen_stream_thaws_where_there_is_space_only_for_making_some() {
    let mut frozen = 0;
    for (nodes, from, to) in [(5, 1, 3), (5, 3, 1)] {
        for turns in 0..24 {
            let mut w = under_way(nodes, from, to, turns);
            let moving = w.entry_of("A").moving();
            let Some(moving) = moving.filter(|_| w.is_frozen("A")) else {
                continue;
            };
            let home = w.home("A");
            w.crowd(Some(home));
            w.follow(moving.to);
            // The test leaves no other group a leader, because otherwise the directory would try the move
            // again elsewhere.
            let others = w.leaders.iter().filter(|(group, _)| **group != ALL);
            let others: Vec<GroupId> = others.map(|(group, _)| *group).collect();
            let kept = w.group_of("A");
            for group in others.into_iter().filter(|group| *group != kept) {
                w.follow(group);
            }
            (0..10).for_each(|_| w.settle());
            if w.group_of("A") == moving.to {
                // The target had the whole stream and the directory knew that, so the move is done.
                continue;
            }
            assert!(!w.is_frozen("A"), "{from} to {to}, {turns}");
            frozen += 1;
            w.crowd(None);
            is_served(&mut w, 10);
        }
    }
    assert!(frozen > 3, "{frozen}");
}

#[test]
fn a_target_that_hears_nothing_any_more_does_not_keep_a_stream_frozen() {
    let mut frozen = 0;
    for turns in 0..24 {
        let mut w = under_way(3, 3, 1, turns);
        let Some(moving) = w.entry_of("A").moving() else {
            continue;
        };
        // The target's leader goes on leading its group, although it hears nothing from other nodes any more.
        frozen += usize::from(w.is_frozen("A"));
        let members = w.groups.iter().find(|g| g.number == moving.to);
        let target = members.unwrap().members[0] as usize - 1;
        if w.leaders[&ALL] == target {
            continue;
        }
        w.hold(target);
        w.lost = 100;
        for _ in 0..200 {
            w.now = w.now + std::time::Duration::from_millis(50);
            w.turn();
            w.one_owner();
        }
        assert!(!w.is_frozen("A"), "{turns}");
        w.lost = 0;
        w.release(target);
        w.arrive("A");
        is_served(&mut w, 10);
    }
    assert!(frozen > 0);
}

/// Checks that the group freezes a stream only when little of it is left, for a stream and a copy time of any
/// size, unless the copy does not catch up.
#[test]
fn a_copy_that_comes_nearer_has_its_time() {
    let second = std::time::Duration::from_secs(1);
    let moving = Moving {
        to: GroupId::new(7),
        number: MoveNumber::new(1),
    };
    let (mut moves, mut now) = (Moves::default(), Time::from_nanos(1));
    let mut left: u64 = 10 << 30;
    while left > FREEZE_BYTES {
        moves.handle_left(now, DirectoryNumber::new(3), moving, left);
        assert_eq!(
            moves.left_max(DirectoryNumber::new(3), now),
            FREEZE_BYTES,
            "{left}"
        );
        now = now + second;
        left = left.saturating_sub(50 << 20);
    }
    // Publishers add as many bytes as the move copies, and now and then a little less.
    for n in 0..60 {
        moves.handle_left(now, DirectoryNumber::new(3), moving, (64 << 20) + (n % 7));
        now = now + second;
    }
    assert!(moves.left_max(DirectoryNumber::new(3), now) > 64 << 20);
    // The next move of the stream starts without this history.
    let next = Moving {
        number: MoveNumber::new(2),
        ..moving
    };
    moves.handle_left(now, DirectoryNumber::new(3), next, 64 << 20);
    assert_eq!(moves.left_max(DirectoryNumber::new(3), now), FREEZE_BYTES);
}

#[test]
fn messages_on_their_way_to_a_frozen_stream_are_answered() {
    let (mut refused, mut silent) = (0, 0);
    for turns in 0..24 {
        for (from, to, wants) in [(1, 3, true), (3, 1, true), (1, 3, false), (3, 1, false)] {
            let mut w = under_way(3, from, to, 0);
            let home = w.home("A");
            let asker = (0..3).rev().find(|n| *n != home).unwrap();
            for _ in 0..turns {
                w.turn();
            }
            w.slow.insert((asker, home));
            let connect = json!({"verbose": false, "headers": wants, "no_responders": wants});
            w.say(asker, format!("CONNECT {connect}\r\n"));
            drop(w.heard(asker));
            w.publish(asker, "a.x", "r.late", "10");
            for _ in 0..4 {
                w.turn();
            }
            let frozen = w.is_frozen("A") && w.entry_of("A").moving().is_some();
            w.hurry(asker, home);
            w.settle();
            let heard = w.heard(asker);
            let stored = heard.contains("\"seq\":11");
            if frozen {
                // A client without headers would see only an empty message, so the node sends it nothing.
                let told = !heard.is_empty();
                let refusal = heard.contains("503");
                assert!(
                    stored || (told == wants && refusal == wants),
                    "{turns}: {heard:?}"
                );
                refused += usize::from(!stored && wants);
                silent += usize::from(!stored && !wants);
            }
            w.arrive("A");
            (0..3).for_each(|_| w.settle());
            let there: Vec<u64> = w.content("A").into_keys().collect();
            let last = if stored { 11 } else { 10 };
            assert!(there.into_iter().eq(1..=last), "{turns}");
        }
    }
    assert!(refused > 0 && silent > 0, "none was on its way then");
}

#[test]
fn pulls_from_a_frozen_stream_are_answered_when_it_can_be_found() {
    let mut waited = 0;
    for turns in 0..24 {
        let mut w = under_way(3, 3, 1, turns);
        let frozen = w.is_frozen("A") && w.entry_of("A").moving().is_some();
        if !frozen || (0..3).any(|node| w.nodes[node].server_of("A").is_some()) {
            continue;
        }
        waited += 1;
        (0..3).for_each(|node| drop(w.heard(node)));
        // The client pulls at the group's leader and at its followers.
        for node in 0..3 {
            let pull = "{\"batch\":1,\"expires\":60000000000}";
            w.publish(node, "$JS.API.CONSUMER.MSG.NEXT.A.D", "r.n", pull);
            assert_eq!(w.heard(node), "", "{turns}: {node}");
        }
        w.arrive("A");
        (0..3).for_each(|_| w.settle());
        for node in 0..3 {
            let heard = w.heard(node);
            let statuses = heard.matches("NATS/1.0 ").count();
            assert_eq!(
                (statuses, heard.contains("NATS/1.0 409")),
                (1, true),
                "{turns}: {node}: {heard}"
            );
        }
        is_served(&mut w, 10);
    }
    assert!(waited > 0, "it was never frozen");
}

/// Changes leaders and loses messages in many orders. In each order, the stream has every acknowledged
/// message once, under the sequence of its acknowledgement.
#[test]
fn nothing_is_lost_under_any_leaders_and_lost_messages() {
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
            match below(14) {
                12 => w.now = w.now + std::time::Duration::from_secs(4),
                13 => {
                    let node = below(nodes as u64) as usize;
                    if w.held.contains_key(&node) {
                        w.release(node);
                    } else if w.leaders.get(&ALL) != Some(&node) {
                        w.hold(node);
                    }
                }
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
                        if group.number == ALL && w.held.contains_key(&(to as usize - 1)) {
                            w.release(to as usize - 1);
                        }
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
                w.one_owner();
            }
            w.told(&mut told);
        }
        w.lost = 0;
        for node in 0..nodes {
            if w.held.contains_key(&node) {
                w.release(node);
            }
        }
        for group in w.groups.clone() {
            if !w.leaders.contains_key(&group.number) {
                w.lead(group.number, group.members[0] as usize - 1);
            }
        }
        w.arrive("A");
        w.told(&mut told);
        let content = w.content("A");
        assert_eq!(w.copies("A"), w.members_of("A"), "seed {seed}");
        let directory = w.nodes[0].directory().unwrap().applied();
        let entry = directory.by_name("A").and_then(|id| directory.get(id));
        moves += entry.unwrap().moves().get();
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
    // The test needs enough moves, or else it would show little.
    assert!(moves > 150, "{moves}");
}

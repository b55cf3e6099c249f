//! Tests of queue groups with members at several nodes: each member must get its share of the messages that
//! clients publish at any node, and the group must get each message once. The remaining members must get the
//! share of a node or a member that leaves.

use std::collections::BTreeSet;
use std::sync::mpsc;

use serde_json::json;

use super::nodes::{Nodes, until};
use super::raw::{PATIENCE, Raw};

/// The members of a queue group, each connected to a node, and a publisher at the first node. Once the first
/// node knows all members, it gives each its share of the messages.
struct Group {
    publisher: Raw,
    members: Vec<Raw>,
}

impl Group {
    fn start(nodes: &Nodes, at: &[usize]) -> Self {
        let mut publisher = Raw::connect(&nodes.url(0)).unwrap();
        let mut members = Vec::new();
        for node in at {
            let mut member = Raw::connect(&nodes.url(*node)).unwrap();
            member
                .send(b"SUB work pool work\r\nSUB end end\r\n")
                .unwrap();
            // The answer to the mark shows that the member's node has the member's subscription.
            mark(&mut member);
            members.push(member);
        }
        // A node learns of another node's subscriptions in the order in which that node announces them. So a
        // node that knows this further subscription also knows the earlier ones.
        for (i, member) in members.iter_mut().enumerate() {
            // Each queue group uses another subject for this, because members of an earlier queue group still
            // listen.
            let known = format!("known.{i}.{}", member.inbox.trim_end_matches('.'));
            member
                .send(format!("SUB {known} known\r\n").as_bytes())
                .unwrap();
            reach(&mut publisher, &known);
            while member.message().unwrap().subject != known {}
        }
        Self { publisher, members }
    }

    /// Publishes these numbers as messages, and then a message for each member that marks the end.
    fn publish(&mut self, messages: std::ops::Range<u32>) {
        let text: String = messages
            .map(|n| n.to_string())
            .map(|n| format!("PUB work {}\r\n{n}\r\n", n.len()))
            .collect();
        self.publisher.send(text.as_bytes()).unwrap();
        self.publisher.send(b"PUB end 0\r\n\r\n").unwrap();
    }

    /// Returns the messages that a member got before its end mark.
    fn got(&mut self, member: usize) -> Vec<u32> {
        let mut got = Vec::new();
        loop {
            let message = self.members[member].message().unwrap();
            match message.subject.as_str() {
                "work" => got.push(number(&message.payload)),
                "end" => return got,
                _ => {}
            }
        }
    }
}

fn number(payload: &[u8]) -> u32 {
    std::str::from_utf8(payload).unwrap().parse().unwrap()
}

/// Waits until the server has handled all earlier operations of this client.
fn mark(raw: &mut Raw) {
    raw.publish(&format!("{}mark", raw.inbox.clone()), "none", b"")
        .unwrap();
    while !raw.message().unwrap().subject.ends_with("mark") {}
}

/// Waits until the client's node knows of a listener on this subject.
fn reach(raw: &mut Raw, subject: &str) {
    until("somebody to listen", || {
        raw.publish(subject, "reach", b"").unwrap();
        raw.publish(&format!("{}mark", raw.inbox.clone()), "none", b"")
            .unwrap();
        let mut unheard = false;
        loop {
            let message = raw.message().unwrap();
            if message.subject.ends_with("mark") {
                break;
            }
            unheard |= message.subject.ends_with("reach");
        }
        match unheard {
            true => Err(format!("nobody listens at {subject}")),
            false => Ok(()),
        }
    });
}

/// Checks that a member got its share of the messages, within five standard deviations and ten messages more.
fn assert_share(got: usize, of: u32, share: f64) {
    let of = f64::from(of);
    let bound = 5.0 * (of * share * (1.0 - share)).sqrt() + 10.0;
    let off = (got as f64 - of * share).abs();
    assert!(off < bound, "{got} of {of}, where {share} were expected");
}

#[test]
fn each_member_of_a_queue_group_gets_its_share() {
    let mut nodes = Nodes::start(3);
    // One member is connected to the publisher's node, two to the second node, and one to the third.
    let mut group = Group::start(&nodes, &[0, 1, 1, 2]);
    group.publish(0..10_000);
    let mut all = BTreeSet::new();
    for member in 0..4 {
        let got = group.got(member);
        assert_share(got.len(), 10_000, 0.25);
        // The messages of one publisher must reach a member in order.
        assert!(got.is_sorted());
        all.extend(got);
    }
    assert!(all.into_iter().eq(0..10_000), "each message once");
    // The test kills the third node. The remaining members must get its member's share.
    nodes.kill(2);
    let last = nodes.until("its share to be the others'", || {
        group.publish(0..1000);
        let got: Vec<_> = (0..3).map(|member| group.got(member).len()).collect();
        match got.iter().sum::<usize>() {
            1000 => Ok(got),
            _ => Err(format!("{got:?}")),
        }
    });
    for got in last {
        assert_share(got, 1000, 1.0 / 3.0);
    }
    // The test starts the third node again, and its member connects again.
    nodes.spawn(2);
    nodes.wait_healthy(2);
    group.members[3] = Group::start(&nodes, &[2]).members.remove(0);
    group.publish(0..4000);
    for member in 0..4 {
        let got = group.got(member);
        assert_share(got.len(), 4000, 0.25);
    }
}

#[test]
fn messages_on_their_way_to_a_leaving_member_are_not_lost() {
    let nodes = Nodes::start(3);
    let mut group = Group::start(&nodes, &[0, 1]);
    for round in 0..5 {
        let first = round * 10_000;
        group.publish(first..first + 1000);
        group.members[1].send(b"UNSUB work\r\n").unwrap();
        group.publish(first + 1000..first + 2000);
        let mut all: BTreeSet<u32> = group.got(1).into_iter().collect();
        all.extend(group.got(1));
        // If a message arrives at the leaving member too late, the other member gets the message, perhaps
        // only after its end mark.
        while all.len() < 2000 {
            let message = group.members[0].message().unwrap();
            if message.subject == "work" {
                assert!(all.insert(number(&message.payload)), "twice");
            }
        }
        assert!(all.into_iter().eq(first..first + 2000));
        mark(&mut group.members[0]);
        group.members[1].send(b"SUB work pool work\r\n").unwrap();
        mark(&mut group.members[1]);
    }
}

#[test]
fn a_consumer_delivers_to_a_group_at_all_nodes() {
    let nodes = Nodes::start(3);
    nodes.add_stream("G", "G.>");
    let mut members: Vec<Raw> = (0..3)
        .map(|node| Raw::connect(&nodes.url(node)).unwrap())
        .collect();
    for member in &mut members {
        member
            .send(b"SUB deliver.g pool work\r\nSUB end end\r\n")
            .unwrap();
        mark(member);
    }
    let leader = nodes.leader("G");
    let mut publisher = Raw::connect(&nodes.url(leader)).unwrap();
    for (i, member) in members.iter_mut().enumerate() {
        member
            .send(format!("SUB known.{i} known\r\n").as_bytes())
            .unwrap();
        reach(&mut publisher, &format!("known.{i}"));
        while member.message().unwrap().subject != format!("known.{i}") {}
    }
    let consumer = json!({"stream_name": "G", "config": {
        "durable_name": "D", "deliver_subject": "deliver.g", "deliver_group": "pool", "ack_policy": "explicit",
    }});
    let made = publisher.api("CONSUMER.DURABLE.CREATE.G.D", &consumer);
    assert!(made.get("error").is_none(), "{made}");
    for n in 1..=900u32 {
        publisher.publish("G.x", "ack", b"").unwrap();
        let ack = publisher.message().unwrap().json();
        assert_eq!(ack["seq"], n, "{ack}");
    }
    // Each member acknowledges every message that it gets; no message may come twice.
    let (tell, told) = mpsc::sync_channel(1024);
    let reading: Vec<_> = members
        .into_iter()
        .zip(0..)
        .map(|(member, at)| {
            let tell = tell.clone();
            std::thread::spawn(move || acknowledge(member, |seq| tell.send((at, seq)).unwrap()))
        })
        .collect();
    let (mut all, mut shares) = (BTreeSet::new(), [0; 3]);
    while all.len() < 900 {
        let (at, seq) = told.recv_timeout(PATIENCE).unwrap();
        assert!(all.insert(seq), "{seq} comes twice");
        let share: &mut usize = &mut shares[at];
        *share += 1;
    }
    assert!(all.into_iter().eq(1..=900));
    for share in shares {
        assert_share(share, 900, 1.0 / 3.0);
    }
    publisher.send(b"PUB end 0\r\n\r\n").unwrap();
    for thread in reading {
        thread.join().unwrap();
    }
}

/// Acknowledges a member's messages until the member gets its end mark.
fn acknowledge(mut member: Raw, mut seen: impl FnMut(u64)) {
    loop {
        let message = member.message().unwrap();
        if message.subject == "end" {
            return;
        }
        if let Some(reply) = message.reply.filter(|r| r.starts_with("$JS.ACK.")) {
            let words: Vec<&str> = reply.split('.').collect();
            seen(words[words.len() - 4].parse().unwrap());
            let ack = format!("PUB {reply} 0\r\n\r\n");
            member.send(ack.as_bytes()).unwrap();
        }
    }
}

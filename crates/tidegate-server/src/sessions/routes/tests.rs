//! Tests the messages and subscriptions that nodes exchange without sockets, and the clients that receive the
//! messages.

use proptest::prelude::*;
use tidegate_nats::connect::Info;
use tidegate_nats::subject::contains;

use super::super::STALL;
use super::super::joined::{self, ANY};
use super::*;
use crate::config::Settings;
use crate::party::ClientKey;
use crate::streams::context::Surroundings as _;

const NOW: Time = Time::from_nanos(1);

/// The nodes of a cluster, connected without sockets. A node's place in this list is the slot by which the
/// others know it.
struct Cluster {
    nodes: Vec<Node>,
}

impl Cluster {
    fn of(count: usize, max_pending: usize) -> Self {
        let node = |i| {
            let settings = Settings {
                max_pending,
                ..Settings::default()
            };
            let mut node = Node::new(settings, Info::default(), 1 + i as u64);
            node.join_cluster(vec![format!("n{i}:4222")]);
            node
        };
        let mut cluster = Self {
            nodes: (0..count).map(node).collect(),
        };
        joined::join(&mut cluster.nodes);
        cluster.pump();
        cluster
    }

    fn client(&mut self, node: usize) -> ClientKey {
        joined::client(&mut self.nodes[node], NOW)
    }

    fn say(&mut self, node: usize, key: ClientKey, text: &str) {
        joined::say(&mut self.nodes[node], NOW, key, text);
    }

    fn pump(&mut self) {
        joined::pump(&mut self.nodes, NOW, |_, _| false, |_| true);
    }

    fn hand_over(&mut self, from: usize, to: usize) {
        joined::hand_over(&mut self.nodes, NOW, (from, to), |_| true);
    }

    fn heard(&mut self, node: usize, key: ClientKey) -> String {
        joined::heard(&mut self.nodes[node], NOW, key)
    }
}

#[test]
fn the_same_message_goes_to_a_peer_once() {
    let mut c = Cluster::of(3, 1 << 20);
    let (a, b) = (c.client(0), c.client(1));
    c.say(1, b, "SUB x 1\r\nSUB > 2\r\nSUB x q 3\r\n");
    c.pump();
    c.say(
        0,
        a,
        "SUB reply 9\r\nHPUB x reply 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
    );
    assert_eq!(c.heard(0, a), "", "somebody listens");
    c.pump();
    let heard = c.heard(1, b);
    assert_eq!(
        heard.matches("NATS/1.0\r\n\r\nhi\r\n").count(),
        3,
        "{heard}"
    );
    assert!(heard.contains("HMSG x 3 reply 12 14\r\n"), "{heard}");
    let sent = c.nodes[0].peer_view(PeerSlot::new(1)).traffic.out_msgs;
    assert_eq!(
        (
            sent,
            c.nodes[0].peer_view(PeerSlot::new(2)).traffic.out_msgs
        ),
        (1, 0)
    );
    assert_eq!(c.nodes[1].peer_view(PeerSlot::new(0)).traffic.in_msgs, 1);
    // The loss of the peer's channel ends the subscriptions that the peer announced on it.
    c.nodes[0].handle_peer_lost(PeerSlot::new(1));
    c.say(0, a, "PUB x reply 2\r\nhi\r\n");
    assert!(c.heard(0, a).contains("503"));
    // The peer announces its subscriptions again after the channel has opened again.
    c.nodes[1].handle_peer_down(PeerSlot::new(0));
    c.nodes[1].handle_peer_up(PeerSlot::new(0));
    c.pump();
    c.say(0, a, "PUB x reply 2\r\nhi\r\n");
    assert_eq!(c.heard(0, a), "");
    c.nodes[0].check_invariants();
}

#[test]
fn a_peer_that_is_behind_makes_publishers_pause_and_is_cut_off_in_the_end() {
    let mut c = Cluster::of(2, 4096);
    let (a, b) = (c.client(0), c.client(1));
    c.say(1, b, "SUB x 1\r\n");
    c.pump();
    let publish = format!("PUB x 1000\r\n{}\r\n", "x".repeat(1000));
    let mut sent = 0;
    while c.nodes[0].reads(a) {
        c.say(0, a, &publish);
        sent += 1;
        assert!(sent < 5);
    }
    assert_eq!(c.nodes[0].stats().stalls, 1);
    let waiting = c.nodes[0].peer_view(PeerSlot::new(1)).pending_bytes;
    assert!(waiting > 3 * 1024 - 1000 && waiting <= 4096, "{waiting}");
    // The peer reads a part of its backlog, so the publisher resumes.
    c.pump();
    assert!(c.nodes[0].reads(a));
    assert_eq!(c.nodes[0].poll_resumed(), Some(a));
    // The node sends its own answers without a check for room, so the bound on the outbox must hold for them,
    // too.
    let payload = [0; 1000];
    let message = tidegate_nats::parse::Publish {
        subject: b"x",
        reply: None,
        headers: None,
        payload: &payload,
    };
    let much_later = NOW + TAKING;
    while c.nodes[0].say(much_later, b"x", &message).is_some() {}
    assert_eq!(c.nodes[0].poll_cut_off(), Some(PeerSlot::new(1)));
    assert_eq!(c.nodes[0].poll_cut_off(), None);
    assert!(c.nodes[0].peer_view(PeerSlot::new(1)).pending_bytes <= 4096);
    c.nodes[0].handle_peer_down(PeerSlot::new(1));
    assert_eq!(c.nodes[0].peer_view(PeerSlot::new(1)).pending_bytes, 0);
    assert_eq!(c.nodes[0].listeners(b"x", None), None);
}

#[test]
fn a_peer_that_takes_what_it_is_sent_is_waited_for() {
    let mut c = Cluster::of(2, 65_536);
    let b = c.client(1);
    c.say(1, b, "SUB x 1\r\n");
    let publishers: Vec<ClientKey> = (0..150).map(|_| c.client(0)).collect();
    // The peer takes bytes now, so that the node later waits for it as for a peer that takes bytes.
    c.say(0, publishers[0], "SUB y 1\r\n");
    c.pump();
    let publish = format!("PUB x reply 1000\r\n{}\r\n", "x".repeat(1000));
    let mut sent = 0;
    for _ in 0..5 {
        // More publishers send than the peer's outbox has room for, and each sends as much as the node reads.
        for publisher in &publishers {
            while c.nodes[0].reads(*publisher) {
                c.say(0, *publisher, &publish);
                sent += 1;
                assert!(sent < 2000);
            }
        }
        let waiting = c.nodes[0].peer_view(PeerSlot::new(1)).pending_bytes;
        assert!(waiting > 65_536 && waiting < 4 * 65_536, "{waiting}");
        // The peer has taken nothing yet, so no publisher resumes after the usual pause.
        c.nodes[0].handle_timeouts(NOW + STALL);
        assert!(publishers.iter().all(|p| !c.nodes[0].reads(*p)));
        // The peer takes all bytes but one, so some publishers resume. It takes the last byte, so all resume.
        let all = c.nodes[0].peer_outbox(PeerSlot::new(1)).unwrap().to_vec();
        while c.nodes[0].poll_dirty_peer().is_some() {}
        c.nodes[0].handle_peer_written(NOW, PeerSlot::new(1), all.len() - 1);
        let reads = |c: &Cluster| publishers.iter().filter(|p| c.nodes[0].reads(**p)).count();
        assert_eq!(reads(&c), RESUMED_AT_ONCE);
        c.nodes[0].handle_peer_written(NOW, PeerSlot::new(1), 1);
        assert_eq!(reads(&c), publishers.len());
    }
    assert!(sent > 900);
    assert_eq!(c.nodes[0].poll_cut_off(), None);
    assert_eq!(
        c.nodes[0].peer_view(PeerSlot::new(1)).traffic.out_msgs,
        sent
    );
    // A peer that takes no more bytes delays publishers no longer than any other receiver does.
    let later = NOW + TAKING;
    c.nodes[0].handle_timeouts(later);
    let (mut turns, mut now) = (0, later);
    while c.nodes[0].poll_cut_off().is_none() {
        now = now + STALL;
        c.nodes[0].handle_timeouts(now);
        for publisher in &publishers {
            let node = &mut c.nodes[0];
            if node.reads(*publisher) {
                node.handle_received(now, *publisher, publish.as_bytes(), ANY);
            }
        }
        turns += 1;
        assert!(turns < 10);
    }
}

#[test]
fn a_receiver_that_is_behind_makes_the_peer_wait() {
    let mut c = Cluster::of(2, 4096);
    let (a, b) = (c.client(0), c.client(1));
    c.say(1, b, "SUB x 1\r\n");
    c.pump();
    let publish = format!("PUB x 100\r\n{}\r\n", "x".repeat(100));
    let mut sent = 0;
    while c.nodes[1].reads_peer(PeerSlot::new(0)) {
        c.say(0, a, &publish);
        c.pump();
        sent += 1;
        assert!(sent < 40);
    }
    let due = c.nodes[1].deadline().unwrap();
    c.nodes[1].handle_timeouts(due);
    assert!(c.nodes[1].reads_peer(PeerSlot::new(0)));
    assert_eq!(c.nodes[1].poll_resumed_peer(), Some(PeerSlot::new(0)));
    c.say(0, a, &publish);
    c.pump();
    assert!(!c.nodes[1].reads_peer(PeerSlot::new(0)));
    // The pause ends early, because the receiver has read its backlog.
    let heard = c.heard(1, b);
    assert_eq!(heard.matches("MSG x 1 100").count(), sent + 1);
    assert!(c.nodes[1].reads_peer(PeerSlot::new(0)));
}

#[test]
fn announced_subjects_come_here() {
    let mut c = Cluster::of(2, 1 << 20);
    let a = c.client(0);
    let patterns = [&b"orders.>"[..], b"$JS.>"];
    c.nodes[1].announce(patterns);
    c.pump();
    assert_eq!(c.nodes[0].peer_view(PeerSlot::new(1)).interests, 2);
    c.say(0, a, "PUB orders.1 2\r\nhi\r\n");
    c.pump();
    assert_eq!(c.nodes[1].peer_view(PeerSlot::new(0)).traffic.in_msgs, 1);
    c.nodes[1].withdraw(patterns);
    c.pump();
    assert_eq!(c.nodes[0].peer_view(PeerSlot::new(1)).interests, 0);
    c.nodes[0].check_invariants();
}

#[test]
fn clients_are_told_where_else_to_connect() {
    let mut c = Cluster::of(1, 1 << 20);
    let a = c.client(0);
    c.say(
        0,
        a,
        "CONNECT {\"verbose\":false,\"protocol\":1}\r\nPING\r\n",
    );
    assert!(c.heard(0, a).contains("\"connect_urls\":[\"n0:4222\"]"));
    c.nodes[0].set_peer_urls(vec!["n1:4222".into()]);
    assert!(
        c.heard(0, a)
            .contains("\"connect_urls\":[\"n0:4222\",\"n1:4222\"]")
    );
    c.nodes[0].set_peer_urls(vec!["n1:4222".into()]);
    assert_eq!(c.heard(0, a), "");
    c.nodes[0].lame_duck(NOW);
    let last = c.heard(0, a);
    assert!(last.contains("\"connect_urls\":[\"n1:4222\"]") && last.contains("\"ldm\":true"));
}

/// Returns the number of messages that each of these clients has received since the last call.
fn shares(c: &mut Cluster, clients: &[(usize, ClientKey)]) -> Vec<usize> {
    let count = |(node, key): &(usize, ClientKey)| c.heard(*node, *key).matches("MSG ").count();
    clients.iter().map(count).collect()
}

/// Publishes `count` messages from a client at the first node.
fn publish(c: &mut Cluster, from: ClientKey, count: usize) {
    for _ in 0..count {
        c.say(0, from, "PUB work 1\r\nx\r\n");
        c.pump();
    }
}

#[test]
fn each_member_gets_its_share_wherever_it_is() {
    let mut c = Cluster::of(3, 1 << 20);
    let a = c.client(0);
    // Two members are clients of the publisher's node, one is a client of the second node, and one client of
    // the third node is a member twice.
    let members: Vec<_> = [0, 0, 1, 2].map(|node| (node, c.client(node))).into();
    for (node, key) in &members {
        c.say(*node, *key, "SUB work q 1\r\n");
    }
    c.say(2, members[3].1, "SUB work q 2\r\n");
    c.pump();
    publish(&mut c, a, 4000);
    let got = shares(&mut c, &members);
    assert_eq!(got.iter().sum::<usize>(), 4000);
    // The test allows five standard deviations of a binomial distribution, which are 127 and 155.
    for (got, share) in got.iter().zip([800, 800, 800, 1600]) {
        assert!(got.abs_diff(share) < 160, "{got} of {share}");
    }
    // Two members leave, and their shares go to the others.
    c.say(2, members[3].1, "UNSUB 2\r\n");
    c.say(0, members[0].1, "UNSUB 1\r\n");
    c.pump();
    publish(&mut c, a, 3000);
    let got = shares(&mut c, &members);
    assert_eq!((got[0], got.iter().sum::<usize>()), (0, 3000));
    assert!(
        got[1..].iter().all(|got| got.abs_diff(1000) < 140),
        "{got:?}"
    );
    // The loss of a peer's channel ends the peer's members, and the other members must get all messages.
    c.nodes[0].handle_peer_lost(PeerSlot::new(1));
    publish(&mut c, a, 100);
    let got = shares(&mut c, &members);
    assert_eq!((got[2], got.iter().sum::<usize>()), (0, 100));
}

#[test]
fn members_with_overlapping_patterns_are_one_group() {
    let mut c = Cluster::of(3, 1 << 20);
    let a = c.client(0);
    let members: Vec<_> = [0, 0, 1, 2].map(|node| (node, c.client(node))).into();
    for ((node, key), pattern) in members.iter().zip(["work.a", "work.*", "work.>", "*.a"]) {
        c.say(*node, *key, &format!("SUB {pattern} q 1\r\n"));
    }
    c.say(0, a, "SUB reply 9\r\n");
    // The client of the third node becomes a member a second time, by another pattern with the same group
    // name.
    c.say(2, members[3].1, "SUB > q 2\r\n");
    c.pump();
    let publish = |c: &mut Cluster, count| {
        for _ in 0..count {
            c.say(0, a, "PUB work.a reply 1\r\nx\r\n");
            c.pump();
        }
    };
    publish(&mut c, 4000);
    let got = shares(&mut c, &members);
    assert_eq!(got.iter().sum::<usize>(), 4000);
    // The test allows five standard deviations of a binomial distribution, which are 127 and 155.
    for (got, share) in got.iter().zip([800, 800, 800, 1600]) {
        assert!(got.abs_diff(share) < 160, "{got} of {share}");
    }
    // Three members leave. Messages must then go to the remaining member, which belongs to the same group
    // by other patterns.
    for (node, key) in &members[..3] {
        c.say(*node, *key, "UNSUB 1\r\n");
    }
    c.pump();
    for _ in 0..20 {
        c.say(0, a, "PUB work.a reply 1\r\nx\r\n");
        c.say(2, members[3].1, "UNSUB 1\r\n");
        c.pump();
        c.say(2, members[3].1, "SUB *.a q 1\r\n");
        c.pump();
    }
    assert_eq!(shares(&mut c, &members), [0, 0, 0, 20]);
    assert_eq!(c.heard(0, a), "");
}

#[test]
fn changes_of_a_number_are_told_once() {
    let mut c = Cluster::of(2, 1 << 20);
    let b = c.client(1);
    c.say(1, b, "SUB work q 1\r\n");
    c.pump();
    let many: String = (2..500)
        .map(|sid| format!("SUB work q {sid}\r\n"))
        .collect();
    c.say(1, b, &many);
    assert_eq!(c.nodes[1].peer_outbox(PeerSlot::new(0)).unwrap().len(), 0);
    assert_eq!(c.nodes[1].poll_dirty_peer(), Some(PeerSlot::new(0)));
    let told = c.nodes[1].peer_outbox(PeerSlot::new(0)).unwrap().len();
    assert_eq!(told, tidegate_cluster::wire::ENVELOPE_BYTES + 8 + 4);
    c.hand_over(1, 0);
    let all: Vec<_> = c.nodes[0].sublist.matches(b"work").iter().collect();
    let members = all.iter().map(|key| c.nodes[0].subs[*key as usize].members);
    let members: Vec<u32> = members.collect();
    assert_eq!(members, [499]);
}

#[test]
fn messages_for_members_that_left_are_passed_on_or_their_publishers_hear_of_it() {
    let mut c = Cluster::of(3, 1 << 20);
    let (a, b, d) = (c.client(0), c.client(1), c.client(2));
    c.say(0, a, "SUB reply 9\r\n");
    c.say(1, b, "SUB work q 1\r\n");
    c.pump();
    // The message is on its way to a node while the last member there leaves. The first node does not know
    // the member at the third node yet.
    c.say(2, d, "SUB work q 1\r\n");
    c.say(0, a, "PUB work reply 1\r\nx\r\n");
    c.hand_over(2, 1);
    c.say(1, b, "UNSUB 1\r\n");
    c.pump();
    assert_eq!((c.heard(0, a).as_str(), c.heard(1, b).as_str()), ("", ""));
    assert_eq!(c.heard(2, d), "MSG work 1 reply 1\r\nx\r\n");
    // The third node passes the message back to the first node, which now has a member itself.
    c.say(0, a, "SUB work q 3\r\n");
    c.pump();
    while c.nodes[0].peer_outbox(PeerSlot::new(2)).unwrap().is_empty() {
        c.say(0, a, "PUB work reply 1\r\ny\r\n");
    }
    c.heard(0, a);
    c.say(2, d, "UNSUB 1\r\n");
    c.hand_over(0, 2);
    c.pump();
    assert_eq!(c.heard(0, a), "MSG work 3 reply 1\r\ny\r\n");
    // A queue group that lost its members and gained a new one has another id, and must get the message.
    c.say(0, a, "UNSUB 3\r\n");
    c.say(2, d, "SUB work q 1\r\n");
    c.pump();
    c.say(0, a, "PUB work reply 1\r\nz\r\n");
    c.say(2, d, "UNSUB 1\r\nSUB work q 2\r\n");
    c.pump();
    assert_eq!(c.heard(2, d), "MSG work 2 reply 1\r\nz\r\n");
    // The group has no member left. A requester that asked for the status must get it once; a publisher
    // without a reply subject must not get it.
    for reply in ["reply ", ""] {
        c.say(0, a, &format!("PUB work {reply}1\r\nx\r\n"));
        c.say(2, d, "UNSUB 2\r\n");
        c.pump();
        let heard = c.heard(0, a);
        let told = heard
            .matches("NATS/1.0 503\r\nNats-Subject: work\r\n")
            .count();
        assert_eq!(told, usize::from(!reply.is_empty()), "{heard}");
        c.say(2, d, "SUB work q 2\r\n");
        c.pump();
    }
    // Another subscriber gets the message, so the requester must not get the status.
    c.say(1, b, "SUB work 5\r\n");
    c.pump();
    c.say(0, a, "PUB work reply 1\r\nx\r\n");
    c.say(2, d, "UNSUB 2\r\n");
    c.pump();
    assert_eq!(c.heard(0, a), "");
    assert_eq!(c.heard(1, b), "MSG work 5 reply 1\r\nx\r\n");
}

#[test]
fn a_peers_account_of_a_message_is_taken_over() {
    let mut c = Cluster::of(2, 1 << 20);
    let b = c.client(1);
    c.say(1, b, "SUB work 1\r\nSUB reply 2\r\n");
    c.pump();
    let routed = |subject: &'static [u8], handed: bool| Routed {
        plain: !handed,
        groups: &[],
        asks: true,
        handed,
        passed: u8::MAX,
        to: None,
        message: tidegate_nats::parse::Publish {
            subject,
            reply: Some(b"reply"),
            headers: None,
            payload: b"x",
        },
    };
    // The node must deliver a published message to its clients, however many nodes have passed the message
    // on.
    c.nodes[1].handle_routed(NOW, PeerSlot::new(0), &routed(b"work", false), ANY);
    assert_eq!(c.heard(1, b), "MSG work 1 reply 1\r\nx\r\n");
    // A message that a peer hands on also counts towards the limit, because this node writes the answer.
    c.nodes[1].take_gathered();
    let handed = routed(b"$JS.ACK.S.C.1.1.1.1.0", true);
    let enough = Load::new(2, u64::MAX);
    assert!(!c.nodes[1].handle_routed(NOW, PeerSlot::new(0), &handed, enough));
    assert!(c.nodes[1].handle_routed(NOW, PeerSlot::new(0), &handed, enough));
    let heard = c.heard(1, b);
    assert_eq!(heard.matches("NATS/1.0 503\r\n").count(), 2, "{heard}");
}

#[derive(Clone, Debug)]
enum Act {
    Subscribe(usize, &'static str, Option<&'static str>),
    Unsubscribe(usize),
    Publish(usize, &'static str),
    /// The channel from the first of these nodes to the second node closes and opens again.
    Reconnect(usize, usize),
}

fn act() -> impl Strategy<Value = Act> {
    let pattern = prop::sample::select(vec!["a", "a.b", "a.*", ">", "*.b", "b"]);
    let queue = prop::option::of(prop::sample::select(vec!["q", "r"]));
    let subject = prop::sample::select(vec!["a", "a.b", "b", "c.b", "a.b.c"]);
    prop_oneof![
        4 => (0..6_usize, pattern, queue).prop_map(|(c, p, q)| Act::Subscribe(c, p, q)),
        2 => any::<prop::sample::Index>().prop_map(|i| Act::Unsubscribe(i.index(1000))),
        4 => (0..6_usize, subject).prop_map(|(c, s)| Act::Publish(c, s)),
        1 => (0..3_usize, 1..3_usize).prop_map(|(i, d)| Act::Reconnect(i, (i + d) % 3)),
    ]
}

/// A subscription in the model: its client, its pattern, and its queue group.
type Sub = (usize, &'static str, Option<&'static str>);

proptest! {
    /// Compares the nodes with a plain model of the rules, as if all clients were connected to one node: each
    /// plain subscription receives a message once, and one member of each queue group receives it, at any
    /// node and by any pattern.
    #[test]
    fn three_nodes_are_as_one(acts in prop::collection::vec(act(), 1..60)) {
        let mut c = Cluster::of(3, 1 << 20);
        let clients: Vec<(usize, ClientKey)> = (0..6).map(|i| (i % 3, c.client(i % 3))).collect();
        let mut model: Vec<Option<Sub>> = Vec::new();
        for act in acts {
            match act {
                Act::Subscribe(who, pattern, queue) => {
                    let (node, key) = clients[who];
                    let sid = model.len();
                    c.say(node, key, &format!("SUB {pattern} {} {sid}\r\n", queue.unwrap_or("")));
                    model.push(Some((who, pattern, queue)));
                }
                Act::Unsubscribe(i) => {
                    let sid = i % model.len().max(1);
                    if let Some((who, ..)) = model.get_mut(sid).and_then(Option::take) {
                        let (node, key) = clients[who];
                        c.say(node, key, &format!("UNSUB {sid}\r\n"));
                    }
                }
                Act::Reconnect(from, to) => {
                    c.nodes[from].handle_peer_down(PeerSlot::new(to));
                    c.nodes[to].handle_peer_lost(PeerSlot::new(from));
                    c.nodes[from].handle_peer_up(PeerSlot::new(to));
                }
                Act::Publish(who, subject) => {
                    c.pump();
                    for (node, key) in &clients {
                        c.heard(*node, *key);
                    }
                    let (node, key) = clients[who];
                    c.say(node, key, &format!("PUB {subject} 1\r\nx\r\n"));
                    c.pump();
                    let mut got = vec![0; model.len()];
                    for (node, key) in &clients {
                        for line in c.heard(*node, *key).lines().filter(|l| l.starts_with("MSG")) {
                            let sid: usize = line.split(' ').nth(2).unwrap().parse().unwrap();
                            got[sid] += 1;
                        }
                    }
                    check(&model, &got, subject)?;
                }
            }
            c.pump();
        }
        for (node, key) in clients {
            c.nodes[node].handle_closed(NOW, key, tidegate_nats::session::CloseReason::ClientClosed);
            while c.nodes[node].deadline() == Some(Time::ZERO) {
                c.nodes[node].handle_timeouts(NOW);
            }
        }
        c.pump();
        for node in &c.nodes {
            prop_assert_eq!(node.sublist_stats().len, 0, "nothing is left behind");
        }
    }
}

fn check(model: &[Option<Sub>], got: &[u32], subject: &str) -> Result<(), TestCaseError> {
    let mut groups = std::collections::BTreeMap::<_, Vec<usize>>::new();
    for (sid, sub) in model.iter().enumerate() {
        let Some((_, pattern, queue)) = sub else {
            prop_assert_eq!(got[sid], 0);
            continue;
        };
        let matches = contains(pattern.as_bytes(), subject.as_bytes());
        match queue {
            Some(queue) if matches => groups.entry(queue).or_default().push(sid),
            _ => prop_assert_eq!(got[sid], u32::from(matches), "{} to {:?}", subject, sub),
        }
    }
    for (group, sids) in groups {
        let total: u32 = sids.iter().map(|sid| got[*sid]).sum();
        prop_assert_eq!(total, 1, "{} to {:?}", subject, group);
    }
    Ok(())
}

//! Tests how the streams of a node without sockets publish messages again: the work of a turn, and the nodes
//! that publish around a change of leaders.

use tidegate_cluster::slots::GroupSlot;
use tidegate_log::Lsn;
use tidegate_nats::connect::Info;
use tidegate_raft::replica::{Committed, EntryId, Index, Term};
use tidegate_stream::schema::config::StreamConfig;
use tidegate_stream::stream::{AccountLimits, Encoder, Kind, Streams};

use super::*;
use crate::config::{Settings, StreamSettings};
use crate::party::ClientKey;
use crate::sessions::Node;
use crate::streams::serving::live::Unread;
use tidegate::controller::Load;

const NOW: Time = Time::from_nanos(1);
const AT: GroupSlot = GroupSlot::DIRECTORY;
const CONFIG: &str =
    r#"{"name":"S","subjects":["s.>"],"republish":{"src":"s.*","dest":"{{wildcard(1)}}.x"}}"#;

/// A node with a stream that publishes again, and a client that listens at `*.x` to count the messages.
struct World {
    node: Node,
    client: ClientKey,
    index: u64,
}

impl World {
    fn new(config: &str) -> Self {
        let mut node = Node::new(Settings::default(), Info::default(), 1);
        let kept = StreamSettings::new("not used".into());
        let streams = JetStream::new(NOW, kept, Streams::new(AccountLimits::NONE), 1);
        node.attach_streams(streams);
        let client = node.handle_accepted(NOW, ([127, 0, 0, 1], 1).into(), false, false);
        let hello = b"CONNECT {\"headers\":true}\r\nSUB *.x 1\r\n";
        let any = Load::new(u64::MAX, u64::MAX);
        node.handle_received(NOW, client, hello, any);
        let mut this = Self {
            node,
            client,
            index: 0,
        };
        let parsed: StreamConfig = serde_json::from_str(config).unwrap();
        let kind = Kind::creating(&parsed);
        this.commit(
            1,
            &[Command::new(
                kind,
                StreamNumber::NONE,
                b"",
                config.as_bytes(),
            )],
        );
        this
    }

    /// Lets the group commit an entry with these commands and the time `time_us`, as another leader would
    /// propose it.
    fn commit(&mut self, time_us: u64, commands: &[Command<'_>]) {
        let mut entry = Vec::new();
        let mut encoder = Encoder::begin(&mut entry, time_us);
        for command in commands {
            encoder.command(command).unwrap();
        }
        self.committed(entry.into());
    }

    fn committed(&mut self, data: Bytes) {
        self.index += 1;
        let committed = Committed {
            index: Index::new(self.index),
            term: Term::new(1),
            lsn: Lsn::new(self.index * 4096),
            data,
        };
        self.node.handle_committed(AT, NOW, &committed).unwrap();
    }

    fn publish(&mut self, time_us: u64, subject: &str, count: usize) {
        let one = StreamNumber::FIRST;
        let command = Command::new(Kind::Publish, one, subject.as_bytes(), b"payload");
        self.commit(time_us, &vec![command; count]);
    }

    /// Returns the number of messages that the client has received since the last call.
    fn heard(&mut self) -> usize {
        let text = self.node.outbox(self.client).to_vec();
        self.node.handle_written(NOW, self.client, text.len());
        let text = String::from_utf8(text).unwrap();
        text.matches("HMSG ").count()
    }

    fn turn(&mut self) -> usize {
        self.node.serve_streams(AT, NOW, &Unread).unwrap();
        self.heard()
    }
}

#[test]
fn a_turn_publishes_a_bounded_number_of_messages() {
    let mut world = World::new(CONFIG);
    world.node.handle_leading(AT, NOW);
    world.turn();
    world.publish(2, "s.a", A_TURN + 10);
    assert_eq!(world.heard(), A_TURN);
    assert_eq!(world.node.streams_deadline(), Some(Time::ZERO));
    assert_eq!(world.turn(), 10);
    assert_eq!(world.node.streams_deadline(), None);
    world.publish(2, "s.a", 3);
    assert_eq!(world.heard(), 3);
    // The stream's source pattern does not match this subject, and the stream itself takes it, so the node
    // does not publish the message again.
    world.publish(2, "s.a.b", 1);
    assert_eq!((world.heard(), world.turn()), (0, 0));
}

#[test]
fn a_message_that_would_come_back_to_its_stream_is_left_out() {
    let config = CONFIG.replace("s.>", "*.x").replace("s.*", "*.x");
    let mut world = World::new(&config.replace(".x\"}", ".{{left(1,1)}}\"}"));
    world.node.handle_leading(AT, NOW);
    world.publish(2, "y.x", 1);
    world.publish(2, "x.x", 1);
    assert_eq!((world.heard(), world.turn()), (0, 0));
}

#[test]
fn only_the_nodes_around_a_lead_publish() {
    let mut world = World::new(CONFIG);
    world.publish(2, "s.a", 1);
    assert_eq!(world.heard(), 0, "a follower");
    world.node.set_wall_clock(NOW, RECENT_US * 2);
    world.node.streams_mut(AT).unwrap().set_elected(true);
    world.publish(RECENT_US - 1, "s.a", 1);
    assert_eq!(world.heard(), 0, "an old message");
    world.publish(RECENT_US, "s.a", 1);
    assert_eq!(world.heard(), 1, "a recent message");
    world.node.handle_leading(AT, NOW);
    world.publish(RECENT_US, "s.a", 1);
    assert_eq!(world.heard(), 1, "a leader");
    // The leader proposes a message, and no longer leads when the group commits it.
    let client = world.client;
    let any = Load::new(u64::MAX, u64::MAX);
    let publish = b"SUB r 2\r\nPUB s.a r 1\r\nx\r\n";
    world.node.handle_received(NOW, client, publish, any);
    let (entry, _) = world.node.poll_proposal(AT, NOW).unwrap();
    let there = EntryId::new(world.index + 1, 1);
    world.node.handle_proposed(AT, NOW, there, 1000);
    world.node.streams_mut(AT).unwrap().set_elected(false);
    world.node.handle_following(AT, NOW);
    world.committed(entry);
    assert_eq!(world.heard(), 1, "the node that proposed it");
}

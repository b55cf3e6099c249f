//! Connects nodes without sockets, for tests: a test hands the bytes in one node's outbox to another node.
//! Each node's slot at its peers is its index in the slice of nodes. The tests choose the nodes and all other
//! events.

use tidegate::Time;
use tidegate::controller::Load;
use tidegate_cluster::roster::PeerSlot;
use tidegate_cluster::wire::{FRAME_BYTES_MAX, Frame, Read, Routed, read};

use super::Node;
use crate::party::ClientKey;

pub(crate) const ANY: Load = Load::new(u64::MAX, u64::MAX);

/// Opens the channels from each node to each other node, as the driver does once the nodes are connected.
pub(crate) fn join(nodes: &mut [Node]) {
    for i in 0..nodes.len() {
        let others = (0..nodes.len()).filter(|j| *j != i);
        others.for_each(|j| nodes[i].handle_peer_up(PeerSlot::new(j)));
    }
}

/// Hands over the bytes that wait for peers until no outbox holds any, except between the pairs of nodes for
/// which `slow` returns true. Loses the messages for which `arrives` returns false, as a broken connection
/// would.
pub(crate) fn pump(
    nodes: &mut [Node],
    now: Time,
    slow: impl Fn(usize, usize) -> bool,
    mut arrives: impl FnMut(&Routed<'_>) -> bool,
) {
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for from in 0..nodes.len() {
            while let Some(to) = nodes[from].poll_dirty_peer() {
                let to = to.index();
                if !slow(from, to) {
                    moved = true;
                    hand_over(nodes, now, (from, to), &mut arrives);
                }
            }
        }
    }
}

/// Hands the node `to` all bytes that wait for it at the node `from`, as a connection would.
pub(crate) fn hand_over(
    nodes: &mut [Node],
    now: Time,
    (from, to): (usize, usize),
    mut arrives: impl FnMut(&Routed<'_>) -> bool,
) {
    let slot = PeerSlot::new(to);
    let bytes = nodes[from].peer_outbox(slot).unwrap().to_vec();
    nodes[from].handle_peer_written(now, slot, bytes.len());
    let slot = PeerSlot::new(from);
    let (mut rest, node) = (&bytes[..], &mut nodes[to]);
    while !rest.is_empty() {
        let Ok(Read::Frame(frame, used)) = read(rest, FRAME_BYTES_MAX) else {
            panic!("whole frames wait in outboxes");
        };
        rest = &rest[used..];
        match frame {
            Frame::Interest(told) => node.handle_interest(slot, &told).unwrap(),
            Frame::InterestMembers { id, members } => {
                node.handle_interest_members(slot, id, members);
            }
            Frame::InterestEnd { id } => node.handle_interest_end(slot, id),
            Frame::Message(message) => {
                if arrives(&message) {
                    node.handle_routed(now, slot, &message, ANY);
                }
            }
            other => panic!("{other:?}"),
        }
        spread(node, now);
        node.check_invariants();
    }
}

/// Connects a client to the node and returns the client's key, with which the test acts as the client.
pub(crate) fn client(node: &mut Node, now: Time) -> ClientKey {
    let key = node.handle_accepted(now, ([127, 0, 0, 1], 1).into(), false, false);
    let connect = "CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\n";
    say(node, now, key, connect);
    key
}

/// Lets the node continue until each message has reached all its receivers, as the driver does.
fn spread(node: &mut Node, now: Time) {
    while node.is_spreading() {
        node.handle_timeouts(now);
    }
}

/// Lets the node handle a text that a client sends, as the driver does, until all of it is used.
pub(crate) fn say(node: &mut Node, now: Time, key: ClientKey, text: impl AsRef<[u8]>) {
    let text = text.as_ref();
    let mut used = 0;
    loop {
        let received = node.handle_received(now, key, &text[used..], ANY);
        node.check_invariants();
        used += received.used;
        let waits = node.is_spreading();
        spread(node, now);
        if !received.full && !waits {
            break;
        }
    }
    assert_eq!(used, text.len(), "{}", String::from_utf8_lossy(text));
}

/// Takes the text that the node has sent to a client since the last call, as the driver would write it.
pub(crate) fn heard(node: &mut Node, now: Time, key: ClientKey) -> String {
    while node.poll_dirty().is_some() {}
    let bytes = node.outbox(key).to_vec();
    node.handle_written(now, key, bytes.len());
    String::from_utf8(bytes).unwrap()
}

//! Counts publishes by the time at which the event loop read them, so that the node measures the time from a
//! publish to its acknowledgement. Pure.
//!
//! The loop reads a connection at one time, so all publishes of one read share one entry. The entries stand
//! beside the waiters of a log entry, and then wait here until the loop has written the acknowledgements.

use tidegate::Time;

use crate::party::Party;

/// The most entries that wait for the loop's writes. The node does not measure further publishes, so that the
/// list stays bounded.
const ANSWERED_MAX: usize = 64 * 1024;

/// The publishes that the loop read from one publisher at the same time, and that one log entry stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Publishes {
    /// The time at which the loop read the publishes.
    pub(crate) at: Time,
    /// The client or the peer from which the loop read them, and to which the acknowledgements go.
    pub(crate) from: Party,
    /// The number of publishes.
    pub(crate) len: u32,
}

/// Counts one more publish that the loop read at `at` from `from`.
#[inline]
pub(super) fn count(list: &mut Vec<Publishes>, at: Time, from: Party) {
    match list.last_mut() {
        Some(last) if last.at == at && last.from == from => last.len += 1,
        _ => list.push(Publishes { at, from, len: 1 }),
    }
}

/// The publishes that the streams have answered, until the loop has written the acknowledgements.
#[derive(Debug, Default)]
pub(super) struct Answered(Vec<Publishes>);

impl Answered {
    /// Adds the publishes of an applied entry, as far as the bound of the list allows.
    pub(super) fn add(&mut self, publishes: &[Publishes]) {
        let room = ANSWERED_MAX.saturating_sub(self.0.len());
        self.0.extend(publishes.iter().take(room));
    }

    /// Takes all publishes out of the list, and keeps its memory for the next ones.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Publishes> {
        self.0.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_cluster::slots::GroupSlot;
    use tidegate_log::Lsn;
    use tidegate_nats::connect::Info;
    use tidegate_nats::session::CloseReason;
    use tidegate_raft::replica::{Committed, Index, Term};
    use tidegate_stream::api::answer::ClusterInfo;
    use tidegate_stream::stream::{AccountLimits, Streams};

    use super::*;
    use crate::config::{Settings, StreamSettings};
    use crate::party::ClientKey;
    use crate::sessions::Node;
    use crate::sessions::joined::{client, say};
    use crate::streams::JetStream;
    use crate::streams::serving::live::Unread;

    #[test]
    fn publishes_of_one_read_share_an_entry() {
        let [a, b] = [1, 2].map(|key| Party::Client(ClientKey::new(key)));
        let [early, late] = [5, 6].map(Time::from_nanos);
        let mut list = Vec::new();
        for (at, from) in [(early, a), (early, a), (early, b), (late, b), (late, b)] {
            count(&mut list, at, from);
        }
        let lens: Vec<u32> = list.iter().map(|p| p.len).collect();
        assert_eq!(lens, [2, 1, 2]);
    }

    /// The time from a publish to its acknowledgement goes from the read to the last write to the client, and
    /// a client that is gone does not count.
    #[test]
    fn a_publish_is_timed_from_its_read_to_the_write_of_its_acknowledgement() {
        const AT: GroupSlot = GroupSlot::DIRECTORY;
        let us = |us: u64| Time::from_nanos(us * 1000);
        let mut node = Node::new(Settings::default(), Info::default(), 1);
        let kept = StreamSettings::new("not used".into());
        let mut streams = JetStream::new(us(1), kept, Streams::new(AccountLimits::NONE), 1);
        streams.set_cluster(1, ClusterInfo::default(), None);
        node.attach_streams(streams);
        node.handle_leading(AT, us(1));
        let mut index = 0;
        let mut commit = |node: &mut Node, now: Time| {
            while let Some((data, _)) = node.poll_proposal(AT, now) {
                index += 1;
                let committed = Committed {
                    index: Index::new(index),
                    term: Term::new(1),
                    lsn: Lsn::new(index * 4096),
                    data,
                };
                node.handle_proposed(AT, now, committed.id(), 1);
                node.handle_committed(AT, now, &committed).unwrap();
            }
            node.serve_streams(AT, now, &Unread).unwrap();
        };
        let write = |node: &mut Node, now: Time, key: ClientKey| {
            let len = node.outbox(key).to_vec().len();
            node.handle_written(now, key, len);
            len
        };
        let [a, b] = [(); 2].map(|()| client(&mut node, us(1)));
        let config = r#"{"name":"S","subjects":["s"]}"#;
        let create = format!(
            "PUB $JS.API.STREAM.CREATE.S r {}\r\n{config}\r\n",
            config.len()
        );
        say(&mut node, us(2), a, format!("SUB r 1\r\n{create}"));
        say(&mut node, us(2), b, "SUB q 1\r\n");
        commit(&mut node, us(3));
        write(&mut node, us(4), a);
        node.handle_acks_written(us(4));
        assert_eq!(node.ack_times().len(), 0, "a request is no publish");
        say(&mut node, us(100), a, "PUB s r 1\r\nx\r\n".repeat(3));
        say(&mut node, us(200), b, "PUB s q 1\r\nx\r\n");
        say(&mut node, us(200), b, "PUB s 1\r\nx\r\n");
        commit(&mut node, us(900));
        assert!(write(&mut node, us(1100), a) > 0 && write(&mut node, us(5200), b) > 0);
        assert_eq!(
            node.ack_times().len(),
            0,
            "the loop has not ended its writes"
        );
        node.handle_acks_written(us(6000));
        let times = node.ack_times();
        assert_eq!(
            (times.len(), times.total_ns()),
            (4, 3 * 1_000_000 + 5_000_000)
        );
        say(&mut node, us(7000), b, "PUB s q 1\r\nx\r\n");
        node.handle_closed(us(7001), b, CloseReason::ClientClosed);
        commit(&mut node, us(7100));
        node.handle_acks_written(us(7200));
        assert_eq!(node.ack_times().len(), 4);
    }

    #[test]
    fn the_list_is_bounded() {
        let from = Party::Client(ClientKey::new(0));
        let one = Publishes {
            at: Time::ZERO,
            from,
            len: 1,
        };
        let mut answered = Answered::default();
        answered.add(&vec![one; ANSWERED_MAX - 1]);
        answered.add(&[one; 3]);
        assert_eq!(answered.drain().count(), ANSWERED_MAX);
        assert_eq!(answered.drain().count(), 0);
    }
}

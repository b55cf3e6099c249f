//! The context in which streams handle an event: the questions that they may ask the node meanwhile, and the
//! event's outputs, which the node carries out afterwards.
//!
//! An event goes into [`JetStream`], and outputs come out: messages to send, messages for other groups, and
//! messages for the store to read. The node polls proposals and timers. The node carries out the outputs of
//! one event, in their order, before it hands any streams the next event. Until then the questions of
//! [`Surroundings`] have the same answers as at the beginning of the event. Only [`Context::pending_at`] also
//! counts the messages that the event has already sent.

use tidegate_cluster::groups::GroupId;
use tidegate_cluster::roster::PeerSlot;
use tidegate_cluster::wire::PASSED_MAX;
use tidegate_nats::parse::Publish;
use tidegate_stream::api::SubjectPage;
use tidegate_stream::stream::Place;

use super::JetStream;
use super::subject_pages::PageJob;
use crate::streams::directory::leader_message::LeaderMessage;
use crate::streams::directory::leader_message::taking::Request;

/// The prefix of the subjects at which clients wait for answers. A stream may take such subjects, but it does
/// not store the messages that the streams themselves send there. So nearly all answers need no look for a
/// stream.
pub(crate) const INBOX: &[u8] = b"_INBOX.";

/// The number of bytes of sent messages after which the streams interrupt their handling of an event, so that
/// the node first writes these messages.
const BYTES_MAX: usize = 1024 * 1024;
/// The limit on the number of subjects for which [`Outputs`] remembers the listeners during an event, to save
/// questions to the node. Beyond the limit, [`Outputs`] forgets the subject about which the event asked
/// first.
const KNOWN_MAX: usize = 8;

/// The questions that the streams of one group ask the node. No question changes the node, so the answers
/// stay valid for the whole event.
pub(crate) trait Surroundings {
    /// Returns the listeners at this subject, on this node and on other nodes; `None` if no client listens,
    /// so that the streams send nothing there. With `group`, only the members of that queue group count.
    fn listeners(&self, to: &[u8], group: Option<&[u8]>) -> Option<Listeners>;

    /// Returns whether a stream of another group on this node takes messages of this subject, so that a
    /// message of these streams has a receiver there.
    fn collects(&self, subject: &[u8]) -> bool;

    /// Returns whether a stream of another group on this node takes messages of this subject, and so many
    /// bytes wait there that the streams should send it no more, so that its log can catch up.
    fn is_full_at(&self, subject: &[u8]) -> bool;

    /// Returns the streams of another group, if this node is a member of that group, so that a group can read
    /// the directory.
    fn streams_of(&self, group: GroupId) -> Option<&JetStream>;

    /// Returns whether this node or a peer leads the group; `None` if the node knows no leader. Streams ask
    /// this to find the node for a message.
    fn leader_of(&self, group: GroupId) -> Option<Leader>;

    /// Returns the peer that has announced that it serves the stream of this name; `None` if no peer has. A
    /// leader hands requests for the stream to that peer.
    fn server_of(&self, stream: &str) -> Option<PeerSlot>;

    /// Returns whether the node with this id has announced that its disk has no room for messages, so that no
    /// new stream goes there.
    fn is_full(&self, id: u64) -> bool;
}

/// The clients that listen at one subject, as two counts from which the streams see whether these clients
/// take more messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listeners {
    /// The number of bytes in the fullest outbox, which holds the bytes that a listener's connection has not
    /// written yet.
    pub(crate) pending: usize,
    /// The number of messages after which the last of the subscriptions at the subject ends, because it
    /// reaches its maximum; the highest `u64` if one of them has no maximum.
    pub(crate) left: u64,
}

/// The place of a group's leader, as this node knows it: on this node or on a peer, so that the streams know
/// where to send messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leader {
    /// This node itself leads the group, so the message stays on the node.
    Here,
    /// Another node leads the group, so the message goes to this peer.
    Peer {
        /// True if this node has an open channel to the peer, on which it can send messages.
        connected: bool,
    },
}

/// The facts about a message at `$JS.>` that travel with it from node to node, by which the last node knows
/// how to end it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// The number of nodes that have handed the message on. A node hands the message on only while this
    /// number is low, so that no message circles between nodes.
    pub(crate) passed: u8,
    /// True if the message's publisher wants a status when no client or node listens for the message.
    pub(crate) asks: bool,
}

impl Way {
    /// Returns whether this node may hand the message on to another node: fewer than [`PASSED_MAX`] nodes
    /// have done so, so that no message circles between nodes.
    pub(crate) const fn goes_on(self) -> bool {
        self.passed < PASSED_MAX
    }
}

/// The context in which streams handle one event: it gives them the node's answers to their questions, and
/// collects the event's outputs for the node.
pub(crate) struct Context<'a> {
    pub(crate) around: &'a dyn Surroundings,
    pub(crate) outputs: &'a mut Outputs,
}

impl Context<'_> {
    /// Returns this context, borrowed for a shorter time, so that the caller can use it again later.
    pub(super) fn again(&mut self) -> Context<'_> {
        Context {
            around: self.around,
            outputs: &mut *self.outputs,
        }
    }

    /// Returns the backlog in bytes of the fullest listener at `to`, with the messages that this event has
    /// sent there, so that the streams send a slow listener no more; `None` if no client listens. With
    /// `group`, only the members of that queue group count.
    pub(super) fn pending_at(&mut self, to: &[u8], group: Option<&[u8]>) -> Option<usize> {
        let known = self.outputs.known_at(self.around, to, group);
        Some(known?.pending)
    }

    /// Queues a message to the leader of a group. Returns whether the node can reach that leader, so that the
    /// caller can repeat the message later.
    pub(super) fn tell_group(
        &mut self,
        group: GroupId,
        reply: Option<&[u8]>,
        told: LeaderMessage,
    ) -> bool {
        let leader = self.around.leader_of(group);
        let reached = leader.is_some_and(|l| l != Leader::Peer { connected: false });
        if reached {
            let reply = reply.map(Into::into);
            self.outputs.list.push(Output::Tell { group, reply, told });
        }
        reached
    }
}

/// The outputs of an event: the steps that the streams ask for, and that the node carries out after the
/// event, in order.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    list: Vec<Output>,
    /// The bytes of the messages that the outputs in `list` send, one after the other. The outputs refer to
    /// them by their places.
    bytes: Vec<u8>,
    /// The listeners at the subjects about which the event asked last. The streams add the messages that they
    /// send during the event to these counts, so that the counts stay right.
    known: Vec<Known>,
}

/// One output of an event: a step that the node carries out after the event.
#[derive(Debug)]
pub(crate) enum Output {
    /// The node delivers the message to the subscribers at the subject to which the message goes.
    Say(Spans),
    /// The node sends a message to the leader of a group, which may be on another node.
    Tell {
        /// The group to which the message goes.
        group: GroupId,
        /// The reply subject at which a client waits for the leader's answer.
        reply: Option<Box<[u8]>>,
        /// The message that the node sends to the group's leader.
        told: LeaderMessage,
    },
    /// The node hands a client's message at `$JS.>` on to this peer, which handles it.
    Hand {
        /// The slot of the peer to which the node hands the client's message, because the peer serves the
        /// stream.
        peer: PeerSlot,
        /// The facts that travel with the message, such as the number of nodes that have handed it on, so
        /// that it does not circle.
        way: Way,
        /// The place of the client's message in the bytes of the outputs, from which the node reads it.
        message: Spans,
    },
    /// The store reads the message at this place into memory, so that the streams find it in a later turn,
    /// or, if the message is in memory, reads ahead from this place.
    Read(Place),
    /// The thread for other clusters fetches messages for this request.
    Fetch(Box<Request>),
    /// A thread of the pool encodes this page, because the work takes too long for a turn of the event loop.
    Encode(Box<PageJob>),
    /// The streams of another group on this node handle a message at `$JS.>`, because that group keeps the
    /// stream.
    Ask {
        /// The group on this node that handles the message.
        group: GroupId,
        /// The place of the message in the bytes of the outputs, from which the node reads it.
        message: Spans,
    },
}

/// The place of a message in the bytes of [`Outputs`], from which the node reads the message: its start, and
/// the lengths of its parts in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spans {
    start: usize,
    to: usize,
    /// The length of the message's own subject; `None` if that subject is the subject to which the message
    /// goes.
    subject: Option<usize>,
    reply: Option<usize>,
    headers: Option<usize>,
    payload: usize,
}

impl Spans {
    /// Returns the subject to which the node sends the output's message, and the message, both from the bytes
    /// of the outputs.
    pub(crate) fn read<'a>(&self, bytes: &'a [u8]) -> (&'a [u8], Publish<'a>) {
        let mut rest = &bytes[self.start..];
        let mut take = |len: usize| {
            let (part, behind) = rest.split_at(len);
            rest = behind;
            part
        };
        let to = take(self.to);
        let message = Publish {
            subject: self.subject.map_or(to, &mut take),
            reply: self.reply.map(&mut take),
            headers: self.headers.map(&mut take),
            payload: take(self.payload),
        };
        (to, message)
    }
}

/// The listeners at the subject `to`, as the node stated them. The streams add the messages that the event
/// has sent since to the counts of bytes and messages, so that they need not ask the node again.
#[derive(Debug)]
struct Known {
    to: Vec<u8>,
    group: Option<Box<[u8]>>,
    listeners: Option<Listeners>,
}

impl Outputs {
    /// Queues a message to the listeners at `to`. The listeners see the message's own subject, which may
    /// differ from `to`.
    pub(super) fn say(&mut self, to: &[u8], message: &Publish<'_>) {
        let spans = self.keep(to, message);
        self.list.push(Output::Say(spans));
        for known in self.known.iter_mut().filter(|known| known.to == to) {
            if let Some(listeners) = &mut known.listeners {
                listeners.pending += message.size();
                listeners.left = listeners.left.saturating_sub(1);
            }
            known.listeners = known.listeners.filter(|l| l.left > 0);
        }
    }

    /// Queues a message at `$JS.>` for the peer in this slot.
    pub(super) fn hand(&mut self, peer: PeerSlot, way: Way, message: &Publish<'_>) {
        let message = self.keep(message.subject, message);
        self.list.push(Output::Hand { peer, way, message });
    }

    /// Queues a message at `$JS.>` for the streams of another group on this node.
    pub(super) fn ask(&mut self, group: GroupId, message: &Publish<'_>) {
        let message = self.keep(message.subject, message);
        self.list.push(Output::Ask { group, message });
    }

    /// Lets the thread for other clusters fetch messages of an origin.
    pub(super) fn fetch(&mut self, request: Request) {
        self.list.push(Output::Fetch(Box::new(request)));
    }

    /// Queues the page that the client at `reply` asked for, so that a thread of the pool encodes it.
    pub(super) fn encode(&mut self, reply: Box<[u8]>, page: SubjectPage) {
        let job = PageJob { reply, page };
        self.list.push(Output::Encode(Box::new(job)));
    }

    /// Queues places of messages for the store: it reads each place, or reads ahead behind it.
    pub(super) fn read(&mut self, places: impl IntoIterator<Item = Place>) {
        self.list.extend(places.into_iter().map(Output::Read));
    }

    /// Returns whether the streams have sent so many bytes during the event that they must interrupt their
    /// work, so that the node first writes these bytes.
    pub(super) const fn are_many(&self) -> bool {
        self.bytes.len() >= BYTES_MAX
    }

    /// Takes the outputs in order, and returns them with the bytes of their messages, so that the node
    /// carries them out.
    pub(crate) fn parts(&mut self) -> (impl Iterator<Item = Output>, &[u8]) {
        (self.list.drain(..), &self.bytes)
    }

    /// Forgets all outputs, and keeps the buffers for the next event. After a large message the call frees
    /// most of the buffer's memory.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.known.clear();
        self.bytes.clear();
        self.bytes.shrink_to(BYTES_MAX);
    }

    fn keep(&mut self, to: &[u8], message: &Publish<'_>) -> Spans {
        let other = Some(message.subject).filter(|subject| *subject != to);
        let spans = Spans {
            start: self.bytes.len(),
            to: to.len(),
            subject: other.map(<[u8]>::len),
            reply: message.reply.map(<[u8]>::len),
            headers: message.headers.map(<[u8]>::len),
            payload: message.payload.len(),
        };
        self.bytes.extend_from_slice(to);
        for part in [other, message.reply, message.headers]
            .into_iter()
            .flatten()
        {
            self.bytes.extend_from_slice(part);
        }
        self.bytes.extend_from_slice(message.payload);
        spans
    }

    /// Returns the listeners at `to`, with the messages that the event has sent there so far, and asks the
    /// node only once; `None` if no client listens.
    fn known_at(
        &mut self,
        around: &dyn Surroundings,
        to: &[u8],
        group: Option<&[u8]>,
    ) -> Option<Listeners> {
        let same = |known: &Known| known.to == to && known.group.as_deref() == group;
        if let Some(known) = self.known.iter().find(|known| same(known)) {
            return known.listeners;
        }
        let listeners = around.listeners(to, group);
        if self.known.len() == KNOWN_MAX {
            self.known.remove(0);
        }
        self.known.push(Known {
            to: to.into(),
            group: group.map(Into::into),
            listeners,
        });
        listeners
    }
}

#[cfg(test)]
mod tests {
    use tidegate_cluster::groups::ALL;

    use super::*;
    use tidegate_stream::schema::number::DirectoryNumber;

    /// Surroundings with one listener, as a test sets them up.
    struct One(Listeners);

    impl Surroundings for One {
        fn listeners(&self, to: &[u8], _: Option<&[u8]>) -> Option<Listeners> {
            (to == b"a").then_some(self.0)
        }

        fn collects(&self, _: &[u8]) -> bool {
            false
        }

        fn is_full_at(&self, _: &[u8]) -> bool {
            false
        }

        fn streams_of(&self, _: GroupId) -> Option<&JetStream> {
            None
        }

        fn leader_of(&self, group: GroupId) -> Option<Leader> {
            (group == ALL).then_some(Leader::Peer { connected: true })
        }

        fn server_of(&self, _: &str) -> Option<PeerSlot> {
            None
        }

        fn is_full(&self, _: u64) -> bool {
            false
        }
    }

    fn message<'a>(subject: &'a [u8], payload: &'a [u8]) -> Publish<'a> {
        Publish {
            subject,
            reply: None,
            headers: None,
            payload,
        }
    }

    #[test]
    fn outputs_keep_their_order_and_their_bytes() {
        let mut outputs = Outputs::default();
        let whole = Publish {
            subject: b"subject",
            reply: Some(b"reply"),
            headers: Some(b"headers"),
            payload: b"payload",
        };
        outputs.say(b"to", &whole);
        outputs.say(b"a", &message(b"a", b""));
        outputs.hand(
            PeerSlot::new(3),
            Way {
                passed: 2,
                asks: true,
            },
            &whole,
        );
        outputs.ask(GroupId::new(7), &message(b"b", b"x"));
        let (list, bytes) = outputs.parts();
        let said: Vec<_> = list
            .map(|output| match output {
                Output::Say(spans) => ("say", 0, spans),
                Output::Hand { peer, message, .. } => ("hand", peer.index(), message),
                Output::Ask { group, message } => ("ask", group.get() as usize, message),
                Output::Tell { .. } | Output::Read(_) | Output::Encode(_) | Output::Fetch(_) => {
                    unreachable!("none was added")
                }
            })
            .map(|(what, whom, spans)| (what, whom, spans.read(bytes)))
            .collect();
        assert_eq!(said.len(), 4);
        assert_eq!(
            (said[0].0, said[0].2.0, said[0].2.1),
            ("say", &b"to"[..], whole)
        );
        assert_eq!((said[1].0, said[1].2.0), ("say", &b"a"[..]));
        assert_eq!(said[1].2.1, message(b"a", b""));
        assert_eq!((said[2].0, said[2].1, said[2].2.1), ("hand", 3, whole));
        assert_eq!(
            (said[3].0, said[3].1, said[3].2.1),
            ("ask", 7, message(b"b", b"x"))
        );
        outputs.clear();
        assert_eq!(outputs.parts().0.count(), 0);
    }

    #[test]
    fn a_listener_has_what_the_event_said_to_it() {
        let around = One(Listeners {
            pending: 10,
            left: 2,
        });
        let mut outputs = Outputs::default();
        let mut cx = Context {
            around: &around,
            outputs: &mut outputs,
        };
        assert_eq!(cx.pending_at(b"b", None), None);
        assert_eq!(cx.pending_at(b"a", None), Some(10));
        cx.outputs.say(b"a", &message(b"s", b"12345"));
        assert_eq!(cx.pending_at(b"a", None), Some(15));
        // The listener's subscription takes one more message, and ends because it has reached its maximum.
        cx.outputs.say(b"a", &message(b"s", b""));
        assert_eq!(cx.pending_at(b"a", None), None);
        // At the next event the outputs ask the surroundings again, so the earlier messages no longer count.
        cx.outputs.clear();
        assert_eq!(cx.pending_at(b"a", None), Some(10));
    }

    #[test]
    fn only_known_leaders_are_told() {
        let around = One(Listeners {
            pending: 0,
            left: 1,
        });
        let mut outputs = Outputs::default();
        let mut cx = Context {
            around: &around,
            outputs: &mut outputs,
        };
        assert!(!cx.tell_group(
            GroupId::new(2),
            None,
            LeaderMessage::Made(vec![DirectoryNumber::new(1)])
        ));
        assert!(cx.tell_group(
            ALL,
            Some(b"r"),
            LeaderMessage::Made(vec![DirectoryNumber::new(1)])
        ));
        let (mut list, _) = outputs.parts();
        assert!(matches!(
            list.next(),
            Some(Output::Tell {
                group: ALL,
                reply: Some(_),
                ..
            })
        ));
        assert!(list.next().is_none());
    }

    #[test]
    fn an_event_that_has_said_much_makes_a_pause() {
        let mut outputs = Outputs::default();
        let payload = vec![0; BYTES_MAX];
        assert!(!outputs.are_many());
        outputs.say(b"a", &message(b"a", &payload));
        assert!(outputs.are_many());
        outputs.clear();
        assert!(!outputs.are_many());
    }
}

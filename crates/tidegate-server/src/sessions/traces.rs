//! Traces the path of a message with headers that ask for it: `Nats-Trace-Dest` names the subject to which
//! each node on the path reports where the message came from and went to. With `Nats-Trace-Only` the message
//! reaches no receiver, because a receiver would take a test of the path for a real message.
//!
//! The node notes the receivers during the delivery. The thread that writes JSON for the system account
//! writes the report ([`Job::Trace`]).

use tidegate::Time;
use tidegate_cluster::roster::PeerSlot;
use tidegate_cluster::wire::Routed;
use tidegate_nats::headers::{lines, trace_of};
use tidegate_nats::op;
use tidegate_nats::parse::Publish;
use tidegate_nats::sublist::{Matches, SubKey};

use super::Node;
use super::fanout::Subscription;
use super::system::Job;
use crate::party::{ClientKey, Party};
use crate::streams::JetStream;

/// The most receivers in one report, which bounds its size.
const RECEIVERS_MAX: usize = 1024;

/// The name and the value of a header.
type Header = (Box<[u8]>, Box<[u8]>);

/// The report of one node about a message on its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    /// The subject to which the report goes.
    pub(crate) to: Box<[u8]>,
    /// The names and values of the message's headers.
    pub(crate) headers: Vec<Header>,
    /// The bytes of the message's headers and payload.
    pub(crate) size: usize,
    pub(crate) subject: Box<[u8]>,
    /// The client or the node from which the message came.
    pub(crate) from: End,
    /// The number of times that nodes have sent the message to other nodes before it came to this node.
    pub(crate) passed: u8,
    pub(crate) receivers: Vec<Receiver>,
    /// The stream that takes the message on this node.
    pub(crate) stream: Option<String>,
    /// True if the message reaches no receiver, because its publisher asks only for reports.
    pub(crate) only: bool,
    pub(crate) at: Time,
}

/// An end of a step of the path: a client of this node, or a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Client { cid: u64, name: String },
    Peer(PeerSlot),
}

/// A client or a peer to which the message goes, with the subscription for which it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Receiver {
    pub(crate) end: End,
    pub(crate) pattern: Box<[u8]>,
    pub(crate) queue: Option<Box<[u8]>>,
}

/// The notes that the node makes while it delivers a traced message.
#[derive(Debug)]
pub(super) struct Notes {
    /// True if the delivery only notes the receivers.
    pub(super) only: bool,
    noted: Vec<(Party, SubKey)>,
}

impl Notes {
    pub(super) fn note(&mut self, to: Party, sub: SubKey) {
        let peer_again = to.client().is_none() && self.noted.iter().any(|(party, _)| *party == to);
        if self.noted.len() < RECEIVERS_MAX && !peer_again {
            self.noted.push((to, sub));
        }
    }

    /// Notes the receivers of a message that has too many for one turn of the loop.
    pub(super) fn note_first(
        &mut self,
        matches: &Matches,
        owner: impl Fn(SubKey) -> Option<Party>,
    ) {
        for sub in matches.plain.iter().take(RECEIVERS_MAX) {
            if let Some(to) = owner(*sub) {
                self.note(to, *sub);
            }
        }
    }
}

impl Node {
    /// Delivers and reports a message with headers that ask for a trace. Leaves other messages to the caller,
    /// and those with reports to a subject that is none, unless they ask only for reports.
    /// `came` is the frame in which a peer sent the message.
    pub(super) fn publish_traced(
        &mut self,
        now: Time,
        from: Party,
        message: &Publish<'_>,
        came: Option<&Routed<'_>>,
    ) -> Traced {
        let Some(asked) = message.headers.and_then(trace_of) else {
            return Traced::No;
        };
        let Some(to) = asked.to else {
            // As in nats-server, a message that is only a test of the path is none without a place for the
            // reports, either.
            return match asked.only {
                true => Traced::Done,
                false => Traced::No,
            };
        };
        if let Party::Client(key) = from
            && !self.may_trace(key, to)
        {
            return Traced::Done;
        }
        self.tracing = Some(Box::new(Notes {
            only: asked.only,
            noted: Vec::new(),
        }));
        let heard = self.route(now, Some(from), message.subject, message, came);
        let notes = self.tracing.take();
        let subject = message.subject;
        let name = |streams: &mut JetStream| streams.stream_at(subject).map(str::to_owned);
        let stream = self.all_streams_mut().find_map(name);
        let trace = Trace {
            to: to.into(),
            headers: lines(message.headers.unwrap_or_default())
                .map(|(_, name, value)| (name.into(), value.into()))
                .collect(),
            size: message.size(),
            subject: subject.into(),
            from: self.end(from),
            passed: came.map_or(0, |came| came.passed),
            receivers: self.receivers(notes.map_or_else(Vec::new, |notes| notes.noted)),
            stream,
            only: asked.only,
            at: now,
        };
        self.push_job(Job::Trace(Box::new(trace)));
        match asked.only {
            true => Traced::Done,
            false => Traced::Delivered(heard.is_some()),
        }
    }

    /// Returns whether the client may publish to the subject of its trace. Tells the client if it may not.
    fn may_trace(&mut self, key: ClientKey, to: &[u8]) -> bool {
        let session = &mut self.entries[key].session;
        let may = session.permissions().is_none_or(|p| p.may_publish(to));
        if !may {
            op::publish_violation(&mut session.out, to);
        }
        may
    }

    fn end(&self, party: Party) -> End {
        match party {
            Party::Peer(slot) => End::Peer(slot),
            Party::Client(key) => {
                let session = &self.entries[key].session;
                End::Client {
                    cid: session.cid,
                    name: session.options.name.clone(),
                }
            }
        }
    }

    /// Describes the receivers that are still there after the delivery.
    fn receivers(&self, noted: Vec<(Party, SubKey)>) -> Vec<Receiver> {
        let described = |(to, key): (Party, SubKey)| {
            let sub: &Subscription = self.subs.get(key as usize)?;
            Some(Receiver {
                end: self.end(to),
                pattern: sub.pattern.clone(),
                queue: sub.queue.clone(),
            })
        };
        noted.into_iter().filter_map(described).collect()
    }
}

/// The outcome for a message that may ask for a trace.
pub(super) enum Traced {
    /// The message asks for no trace, so the node delivers it as any other.
    No,
    /// The node has delivered the message to its subscribers, if it has any, and streams may take it.
    Delivered(bool),
    /// The message goes no further.
    Done,
}

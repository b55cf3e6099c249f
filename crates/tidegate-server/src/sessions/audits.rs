//! Reports requests to the streams' API with their answers at `$JS.EVENT.ADVISORY.API`, for people who watch
//! the clients of a server.
//!
//! The node of the client notes the request. It makes the report once the answer passes through it on the way
//! to the client, so a report names the client also if another node answers. Without a listener the node
//! notes nothing.

use std::collections::VecDeque;

use tidegate::Time;
use tidegate_nats::parse::Publish;
use tidegate_nats::sublist::Matches;

use super::Node;
use super::system::{Connection, Job, connection};
use crate::party::ClientKey;
use crate::streams::JetStream;
use crate::streams::subjects::is_audited;

/// The subject of the reports.
pub(crate) const SUBJECT: &str = "$JS.EVENT.ADVISORY.API";
/// The most requests that wait for their answers, and (`BYTES_MAX`) the most bytes of their subjects and
/// bodies, so that they take bounded memory. The node drops the oldest request for a new one.
const WAITING_MAX: usize = 256;
const BYTES_MAX: usize = 1 << 20;

/// A request of a client with the server's answer.
#[derive(Clone, Debug)]
pub(crate) struct Audit {
    pub(crate) client: Connection,
    pub(crate) subject: Box<[u8]>,
    pub(crate) request: Box<[u8]>,
    pub(crate) response: Box<[u8]>,
}

/// The requests of clients that wait for their answers, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Audits {
    waiting: VecDeque<Waiting>,
    bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    reply: Box<[u8]>,
    client: Connection,
    subject: Box<[u8]>,
    request: Box<[u8]>,
}

impl Waiting {
    fn bytes(&self) -> usize {
        self.reply.len() + self.subject.len() + self.request.len()
    }
}

impl Audits {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn note(&mut self, request: Waiting) {
        self.bytes += request.bytes();
        self.waiting.push_back(request);
        while self.waiting.len() > WAITING_MAX || self.bytes > BYTES_MAX {
            self.remove(0);
        }
    }

    /// Takes the request with this reply subject.
    fn take(&mut self, reply: &[u8]) -> Option<Waiting> {
        let at = self.waiting.iter().position(|w| *w.reply == *reply)?;
        self.remove(at)
    }

    fn remove(&mut self, at: usize) -> Option<Waiting> {
        let removed = self.waiting.remove(at)?;
        self.bytes -= removed.bytes();
        Some(removed)
    }
}

impl Node {
    /// Notes a client's request to the streams' API, if a client or a stream listens to the reports.
    pub(super) fn note_request(&mut self, now: Time, key: ClientKey, message: &Publish<'_>) {
        let Some(reply) = message.reply else { return };
        if !is_audited(message.subject, self.domain()) || !self.hears_audits() {
            return;
        }
        let client = connection(&self.entries[key].session, now);
        self.audits.note(Waiting {
            reply: reply.into(),
            client,
            subject: message.subject.into(),
            request: message.payload.into(),
        });
    }

    /// Makes the report if `message` at `to` answers a noted request.
    #[cold]
    pub(super) fn audit_answer(&mut self, to: &[u8], message: &Publish<'_>) {
        if let Some(asked) = self.audits.take(to) {
            self.push_job(Job::Audit(Box::new(Audit {
                client: asked.client,
                subject: asked.subject,
                request: asked.request,
                response: message.payload.into(),
            })));
        }
    }

    fn hears_audits(&self) -> bool {
        let mut scratch = Matches::default();
        let subject = SUBJECT.as_bytes();
        let heard = !self.sublist.find(subject, &mut scratch).is_empty();
        heard || self.all_streams().any(|s: &JetStream| s.collects(subject))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_nats::session::Traffic;
    use tidegate_nats::settings::Account;

    use super::*;

    fn waiting(reply: &str, bytes: usize) -> Waiting {
        Waiting {
            reply: reply.as_bytes().into(),
            client: Connection {
                cid: 1,
                account: Account::Global,
                user: None,
                address: ([127, 0, 0, 1], 1).into(),
                name: String::new(),
                lang: String::new(),
                version: String::new(),
                since: Time::ZERO,
                until: Time::ZERO,
                traffic: Traffic::default(),
            },
            subject: b"$JS.API.INFO".as_slice().into(),
            request: vec![0; bytes].into(),
        }
    }

    #[test]
    fn requests_that_wait_take_bounded_memory() {
        let mut audits = Audits::default();
        for number in 0..WAITING_MAX + 10 {
            audits.note(waiting(&format!("r{number}"), 10));
        }
        assert_eq!(audits.waiting.len(), WAITING_MAX);
        assert!(audits.take(b"r9").is_none());
        assert!(audits.take(b"r10").is_some());
        assert!(audits.take(b"r10").is_none());
        audits.note(waiting("large", BYTES_MAX));
        assert!(audits.is_empty());
        assert_eq!(audits.bytes, 0);
    }
}

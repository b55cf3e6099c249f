//! The subscribers of one connection. The registry hands messages to them, and renews their subscriptions
//! after a reconnect.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::command::cmd;
use crate::conn::Conn;
use crate::pipeline::{Answer, Submission};
use crate::reply::Value;

/// A published message, as a subscription receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The channel to which the message was published.
    pub channel: Bytes,
    /// The pattern that the channel matched, if the subscription is to a pattern.
    pub pattern: Option<Bytes>,
    /// The bytes of the message.
    pub payload: Bytes,
}

/// The kind of a subscription's names: channels or patterns. It decides which commands the client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Channel,
    Pattern,
}

impl Kind {
    pub(super) const fn verb(self) -> &'static str {
        match self {
            Self::Channel => "SUBSCRIBE",
            Self::Pattern => "PSUBSCRIBE",
        }
    }

    pub(super) const fn undo(self) -> &'static str {
        match self {
            Self::Channel => "UNSUBSCRIBE",
            Self::Pattern => "PUNSUBSCRIBE",
        }
    }
}

pub(super) type Key = (Kind, Bytes);

#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) id: u64,
    pub(super) to: mpsc::Sender<Message>,
    pub(super) dropped: Arc<AtomicU64>,
}

/// The subscribers of one connection, by the channels and patterns to which they subscribed.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    subscribers: Mutex<HashMap<Key, Vec<Subscriber>>>,
    pub(super) next_id: AtomicU64,
    pub(super) interruptions: AtomicU64,
}

/// The greatest number of channels or patterns in one command with which the client renews subscriptions, so
/// that no command becomes very long.
const CHUNK: usize = 500;

impl Registry {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<Key, Vec<Subscriber>>> {
        self.subscribers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews all subscriptions after a reconnect, because the server forgets them with the connection.
    pub(crate) fn resubscribe(&self, conn: &Arc<Conn>) {
        let subscribers = self.lock();
        if subscribers.is_empty() {
            return;
        }
        self.interruptions.fetch_add(1, Ordering::Relaxed);
        for kind in [Kind::Channel, Kind::Pattern] {
            let names: Vec<Bytes> = subscribers
                .keys()
                .filter(|k| k.0 == kind)
                .map(|k| k.1.clone())
                .collect();
            for names in names.chunks(CHUNK) {
                tell(conn, kind.verb(), names);
            }
        }
    }

    /// Hands published messages to their subscribers. Drops pushes that are no messages.
    pub(crate) fn publish(&self, pushes: &mut Vec<Value>) {
        if pushes.is_empty() {
            return;
        }
        let subscribers = self.lock();
        for push in pushes.drain(..) {
            let Some((key, message)) = message(push) else {
                continue;
            };
            for s in subscribers.get(&key).into_iter().flatten() {
                if s.to.try_send(message.clone()).is_err() {
                    s.dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Ends all subscriptions, because the connection has closed for good and no message can arrive.
    pub(crate) fn close(&self) {
        self.lock().clear();
    }
}

/// Submits a command that subscribes or unsubscribes, without waiting for its confirmation.
pub(super) fn tell(conn: &Arc<Conn>, verb: &str, names: &[Bytes]) {
    let cmd = cmd(verb).arg(names);
    let what = submission(names.len(), false);
    // A refused submission is ignored: the connection is closed then, and no messages arrive anyway.
    let _ = conn.submit(what, |out| cmd.encode(out));
}

pub(super) fn submission(names: usize, wanted: bool) -> Submission {
    Submission {
        commands: u32::try_from(names).unwrap_or(u32::MAX),
        wanted,
        urgent: false,
        own: !wanted,
        answer: Answer::Pushes,
    }
}

fn message(push: Value) -> Option<(Key, Message)> {
    let Value::Push(items) = push else {
        return None;
    };
    let mut items = items.into_iter().map(|v| match v {
        Value::Bulk(b) | Value::Simple(b) => Some(b),
        _ => None,
    });
    let kind = items.next()??;
    let (kind, pattern) = match &kind[..] {
        b"message" => (Kind::Channel, None),
        b"pmessage" => (Kind::Pattern, Some(items.next()??)),
        _ => return None,
    };
    let (channel, payload) = (items.next()??, items.next()??);
    let key = (kind, pattern.clone().unwrap_or_else(|| channel.clone()));
    let message = Message {
        channel,
        pattern,
        payload,
    };
    Some((key, message))
}

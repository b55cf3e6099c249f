//! Pub/sub over the shared connection (RESP3): subscriptions with bounded channels, which the
//! client renews after a reconnect.
//!
//! Invariant: the registry of subscribers and the commands to the server change under one lock,
//! in the same order.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::client::Client;
use crate::command::cmd;
use crate::conn::{Conn, Pending};
use crate::error::CommandError;
use crate::pipeline::{Answer, Outcome, Submission};
use crate::reply::{ReplyError, Value};

/// A published message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The channel that it was published to.
    pub channel: Bytes,
    /// The pattern it matched, if the subscription is to a pattern.
    pub pattern: Option<Bytes>,
    /// The bytes of the message.
    pub payload: Bytes,
}

/// The kind of a subscription's names: channels or patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Channel,
    Pattern,
}

impl Kind {
    const fn verb(self) -> &'static str {
        match self {
            Self::Channel => "SUBSCRIBE",
            Self::Pattern => "PSUBSCRIBE",
        }
    }

    const fn undo(self) -> &'static str {
        match self {
            Self::Channel => "UNSUBSCRIBE",
            Self::Pattern => "PUNSUBSCRIBE",
        }
    }
}

type Key = (Kind, Bytes);

#[derive(Debug)]
struct Subscriber {
    id: u64,
    to: mpsc::Sender<Message>,
    dropped: Arc<AtomicU64>,
}

/// The subscriptions of one connection.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    subscribers: Mutex<HashMap<Key, Vec<Subscriber>>>,
    next_id: AtomicU64,
    interruptions: AtomicU64,
}

/// The number of channels in one command when the client renews subscriptions.
const CHUNK: usize = 500;

impl Registry {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Vec<Subscriber>>> {
        self.subscribers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews all subscriptions on a new connection.
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

    /// Hands messages to their subscribers, and drops other pushes.
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

    /// Ends all subscriptions, because the connection has closed for good.
    pub(crate) fn close(&self) {
        self.lock().clear();
    }
}

/// Sends a command to the server, without waiting for its confirmation.
fn tell(conn: &Arc<Conn>, verb: &str, names: &[Bytes]) {
    let cmd = cmd(verb).arg(names);
    let what = submission(names.len(), false);
    // An error means that the connection is closed, and then no messages arrive anyway.
    let _ = conn.submit(what, |out| cmd.encode(out));
}

fn submission(names: usize, wanted: bool) -> Submission {
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

/// A subscription, which yields the messages of its channels or patterns. Dropping it ends the subscription.
#[derive(Debug)]
pub struct Subscription {
    client: Client,
    registry: Arc<Registry>,
    keys: Vec<Key>,
    id: u64,
    messages: mpsc::Receiver<Message>,
    dropped: Arc<AtomicU64>,
    interruptions: u64,
}

impl Subscription {
    /// Returns the next message, or `None` once the client is closed.
    pub async fn next(&mut self) -> Option<Message> {
        self.messages.recv().await
    }

    /// Returns a message that has already arrived, if there is one.
    pub fn try_next(&mut self) -> Option<Message> {
        self.messages.try_recv().ok()
    }

    /// Returns the number of messages dropped because the channel was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns the number of reconnects since the subscription began. The subscription may have
    /// missed messages during each.
    #[must_use]
    pub fn interruptions(&self) -> u64 {
        self.registry.interruptions.load(Ordering::Relaxed) - self.interruptions
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut subscribers = self.registry.lock();
        for kind in [Kind::Channel, Kind::Pattern] {
            let mut left = Vec::new();
            for key in self.keys.iter().filter(|k| k.0 == kind) {
                if let Some(all) = subscribers.get_mut(key) {
                    all.retain(|s| s.id != self.id);
                    if all.is_empty() {
                        subscribers.remove(key);
                        left.push(key.1.clone());
                    }
                }
            }
            if !left.is_empty() {
                tell(&self.client.inner.conn, kind.undo(), &left);
            }
        }
    }
}

impl Client {
    /// Subscribes to channels. Up to `capacity` messages wait to be taken; further ones are
    /// dropped and counted.
    ///
    /// # Errors
    /// If the server refuses, or speaks only RESP2.
    pub async fn subscribe<I>(
        &self,
        channels: I,
        capacity: usize,
    ) -> Result<Subscription, CommandError>
    where
        I: IntoIterator,
        I::Item: Into<Bytes>,
    {
        self.subscribe_to(
            Kind::Channel,
            channels.into_iter().map(Into::into).collect(),
            capacity,
        )
        .await
    }

    /// Subscribes to all channels that match one of these patterns.
    ///
    /// # Errors
    /// Like [`subscribe`](Self::subscribe).
    pub async fn psubscribe<I>(
        &self,
        patterns: I,
        capacity: usize,
    ) -> Result<Subscription, CommandError>
    where
        I: IntoIterator,
        I::Item: Into<Bytes>,
    {
        self.subscribe_to(
            Kind::Pattern,
            patterns.into_iter().map(Into::into).collect(),
            capacity,
        )
        .await
    }

    async fn subscribe_to(
        &self,
        kind: Kind,
        mut names: Vec<Bytes>,
        capacity: usize,
    ) -> Result<Subscription, CommandError> {
        names.sort_unstable();
        names.dedup();
        let conn = &self.inner.conn;
        if conn.gauges.protocol.load(Ordering::Relaxed) < 3 {
            return Err(CommandError::NeedsResp3);
        }
        let Some(registry) = conn.registry.clone() else {
            return Err(CommandError::NotShared(
                "expected the shared connection of a client",
            ));
        };
        let (to, messages) = mpsc::channel(capacity.max(1));
        let dropped = Arc::new(AtomicU64::new(0));
        let id = registry.next_id.fetch_add(1, Ordering::Relaxed);
        let subscription = Subscription {
            client: self.clone(),
            keys: names.iter().map(|n| (kind, n.clone())).collect(),
            id,
            messages,
            dropped: Arc::clone(&dropped),
            interruptions: registry.interruptions.load(Ordering::Relaxed),
            registry: Arc::clone(&registry),
        };
        if names.is_empty() {
            return Ok(subscription);
        }
        let pending = {
            let mut subscribers = registry.lock();
            for key in &subscription.keys {
                subscribers
                    .entry(key.clone())
                    .or_default()
                    .push(Subscriber {
                        id,
                        to: to.clone(),
                        dropped: Arc::clone(&dropped),
                    });
            }
            let command = cmd(kind.verb()).arg(&names);
            Pending::new(Arc::clone(conn), submission(names.len(), true), |out| {
                command.encode(out)
            })
        };
        let refusal = match pending.await? {
            Some(Outcome::One(v @ Value::Error(_))) => Some(v),
            Some(Outcome::Many(values)) => {
                values.into_iter().find(|v| matches!(v, Value::Error(_)))
            }
            _ => None,
        };
        match refusal {
            // Dropping the subscription unsubscribes.
            Some(e) => Err(ReplyError::unexpected("a confirmation", &e).into()),
            None => Ok(subscription),
        }
    }
}

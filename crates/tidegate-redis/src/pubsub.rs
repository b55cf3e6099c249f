//! Pub/sub over the shared connection (RESP3): subscriptions with bounded channels, which the
//! client renews after a reconnect.
//!
//! Invariant: a change to the registry of subscribers and its command to the server happen under one lock, so
//! both see all changes in the same order.

pub(crate) mod registry;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::mpsc;

pub use self::registry::Message;
use self::registry::{Key, Kind, Registry, Subscriber, submission, tell};
use crate::client::Client;
use crate::command::cmd;
use crate::conn::Pending;
use crate::error::CommandError;
use crate::pipeline::Outcome;
use crate::reply::{ReplyError, Value};

/// A subscription, which yields the messages of its channels or patterns. The drop of this value ends the
/// subscription.
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

    /// Returns the number of messages that the client dropped because the subscription's buffer was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns the number of reconnects since the subscription began. The subscription may have missed
    /// messages during each reconnect.
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
    /// Subscribes to channels. Up to `capacity` messages wait for the program; the client drops and counts
    /// further messages.
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
            // The drop of `subscription` unsubscribes from the names that the server accepted.
            Some(e) => Err(ReplyError::unexpected("a confirmation", &e).into()),
            None => Ok(subscription),
        }
    }
}

//! The client's builder: every setting with its default and its range. The builder checks them before the
//! client connects.

use std::fmt;
use std::time::Duration;

use super::Client;
use crate::error::{ConfigError, ConnectError};
use crate::hello::SessionId;
use crate::hello::TOKEN_MAX;
use crate::proto::{Decide, Doubt};
use crate::tls::ClientTls;

/// The waits of a client between its attempts to connect again after a cut. The limit of a wait doubles with
/// each attempt, from `first` to `longest`. The client draws each wait at random between half of its limit
/// and the limit, so that many clients do not come back at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reconnect {
    /// The limit of the client's first wait before it connects again, 20 ms by default.
    pub first: Duration,
    /// The highest limit of a wait between two attempts to connect again, 2 s by default.
    pub longest: Duration,
    /// The time after a cut during which the client tries to connect again, one minute by default. After that
    /// time the client ends with an error.
    pub give_up: Duration,
}

impl Default for Reconnect {
    /// Returns the default: the client waits up to 20 ms at first and up to 2 s later, and ends its attempts
    /// one minute after a cut.
    fn default() -> Self {
        Self {
            first: Duration::from_millis(20),
            longest: Duration::from_secs(2),
            give_up: Duration::from_secs(60),
        }
    }
}

/// The callback with which a program decides about messages in doubt: the client had sent them before the
/// server lost the state of their session, and the server may or may not have handled them.
pub(crate) type OnDoubt = Box<dyn FnMut(&Doubt) -> Decide + Send>;

/// Builds a [`Client`] for a program. Every setting has a default.
pub struct ClientBuilder {
    pub(crate) session: Option<SessionId>,
    pub(crate) checked: bool,
    pub(crate) token: Vec<u8>,
    pub(crate) tls: Option<ClientTls>,
    pub(crate) frame_max: u32,
    pub(crate) buffer_bytes: usize,
    pub(crate) block_bytes: usize,
    pub(crate) queue_capacity: usize,
    pub(crate) stalled_after: Duration,
    pub(crate) answer_within: Duration,
    pub(crate) reconnect: Reconnect,
    pub(crate) on_doubt: OnDoubt,
    pub(crate) spin: Duration,
    pub(crate) plain: bool,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            session: None,
            checked: false,
            token: Vec::new(),
            tls: None,
            frame_max: 0,
            buffer_bytes: 4 << 20,
            block_bytes: 128 << 10,
            queue_capacity: 32 << 10,
            stalled_after: Duration::from_secs(60),
            answer_within: Duration::from_secs(5),
            reconnect: Reconnect::default(),
            on_doubt: Box::new(|_| Decide::Resend),
            spin: Duration::ZERO,
            plain: false,
        }
    }
}

impl ClientBuilder {
    /// Resumes the session `id`, which an earlier run of this program began, or which both sides derive from
    /// an agreed name. If not set, the client draws a new random session.
    #[must_use]
    pub const fn session(mut self, id: SessionId) -> Self {
        self.session = Some(id);
        self
    }

    /// Makes the client speak the plain protocol of 2015, which has no session. A broken connection then ends
    /// the client, and the error names the messages in doubt: those that the server may or may not have
    /// received.
    #[must_use]
    pub const fn plain(mut self) -> Self {
        self.plain = true;
        self
    }

    /// Puts a CRC32C on every message that the client sends. Off if not set: TCP has a checksum, and TLS has
    /// a better one.
    #[must_use]
    pub const fn checked(mut self, checked: bool) -> Self {
        self.checked = checked;
        self
    }

    /// Sets the token that the client shows to the server, at most 1024 bytes. The client sends it only
    /// inside TLS or to a loopback address.
    #[must_use]
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Self {
        self.token = token.into();
        self
    }

    /// Makes the client connect with TLS, so that the connection is encrypted and the server proves its name.
    #[must_use]
    pub fn tls(mut self, tls: ClientTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the longest message, in bytes, that this client will send. A server that allows less refuses the
    /// connection. If not set, the client accepts the server's limit.
    #[must_use]
    pub const fn frame_max(mut self, bytes: u32) -> Self {
        self.frame_max = bytes;
        self
    }

    /// Sets the greatest number of bytes of messages that the client keeps until the server acknowledges
    /// them, 4 MiB if not set. One more block of messages may wait beyond this bound. The server's window may
    /// allow fewer unacknowledged bytes.
    #[must_use]
    pub const fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = bytes;
        self
    }

    /// Sets the greatest length of a block in bytes, 128 KiB if not set. The client's senders gather messages
    /// in the block while the I/O task is busy with earlier messages.
    #[must_use]
    pub const fn block_bytes(mut self, bytes: usize) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// Sets the capacity, in messages, of the queue through which [producers](Client::producer) send, 32,768
    /// if not set.
    #[must_use]
    pub const fn queue_capacity(mut self, messages: usize) -> Self {
        self.queue_capacity = messages;
        self
    }

    /// Ends the client if messages wait and the server acknowledges none of them for `time`, time without a
    /// connection included. 60 s if not set.
    #[must_use]
    pub const fn stalled_after(mut self, time: Duration) -> Self {
        self.stalled_after = time;
        self
    }

    /// Sets the longest time that an attempt to connect may take, and the longest time that the server may
    /// take to answer the handshake; each is 5 s if not set.
    #[must_use]
    pub const fn answer_within(mut self, time: Duration) -> Self {
        self.answer_within = time;
        self
    }

    /// Sets the waits between the client's attempts to connect again after a cut, and the time after which
    /// the client gives up and ends with an error.
    #[must_use]
    pub const fn reconnect(mut self, reconnect: Reconnect) -> Self {
        self.reconnect = reconnect;
        self
    }

    /// Sets the callback that decides what the client does after the server has lost the state of the
    /// client's session: it is then unknown which of the unacknowledged messages the server had. If not set,
    /// the client sends all of these messages again: none is lost, and some may arrive twice.
    #[must_use]
    pub fn on_doubt(mut self, decide: impl FnMut(&Doubt) -> Decide + Send + 'static) -> Self {
        self.on_doubt = Box::new(decide);
        self
    }

    /// Makes the client's I/O task poll the socket for `time` before it sleeps while messages are
    /// unacknowledged. Polling spends a core's time to save the latency of a wake-up. No polling if not set.
    #[must_use]
    pub const fn spin(mut self, time: Duration) -> Self {
        self.spin = time;
        self
    }

    /// Connects to `address`, a name or an IP address with a port, and opens the session.
    ///
    /// # Errors
    /// Invalid settings, no connection, or a server that refuses the client. The client makes only one
    /// attempt.
    pub async fn connect(self, address: impl Into<String>) -> Result<Client, ConnectError> {
        self.check()?;
        Client::connect(self, address.into()).await
    }

    fn check(&self) -> Result<(), ConfigError> {
        let range = |what, given: u64, least: u64, most: u64| {
            if (least..=most).contains(&given) {
                Ok(())
            } else {
                Err(ConfigError::Range {
                    what,
                    given,
                    least,
                    most,
                })
            }
        };
        range("frame_max", self.frame_max.into(), 0, 1 << 30)?;
        range("buffer_bytes", self.buffer_bytes as u64, 1 << 10, 1 << 32)?;
        range("block_bytes", self.block_bytes as u64, 64, 1 << 30)?;
        range("queue_capacity", self.queue_capacity as u64, 1, 1 << 30)?;
        if self.token.len() > TOKEN_MAX {
            let len = self.token.len();
            return Err(ConfigError::TokenTooLong { len });
        }
        if self.plain {
            if self.session.is_some() {
                return Err(ConfigError::PlainHasNo("sessions"));
            }
            if self.checked {
                return Err(ConfigError::PlainHasNo("checksums"));
            }
            if !self.token.is_empty() {
                return Err(ConfigError::PlainHasNo("tokens"));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("session", &self.session)
            .field("plain", &self.plain)
            .field("buffer_bytes", &self.buffer_bytes)
            .finish_non_exhaustive()
    }
}

//! The server's builder: every setting with its default and its range. The builder checks them before the
//! server serves.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use tidegate::controller::Controller;
use tokio::net::TcpListener;

use super::handler::{Forgetful, Handler, Opened, SessionStore};
use super::patience::Patience;
use super::{Acks, Server};
use crate::error::{ConfigError, PeerError, ServeError};
use crate::hello::TOKEN_MAX;
use crate::proto::cadence;
use crate::tls::ServerTls;

/// The greatest number of bytes of memory for all read buffers of a server, unless the program sets a bound.
const BUFFERS_BYTES: usize = 256 << 20;
/// The greatest number of bytes that a frame adds to its payload, rounded up generously, to size buffers.
const FRAME_HEAD_MAX: usize = 64;

/// The function that makes the controller for one connection. The controller decides when acknowledgements
/// leave.
pub(crate) type MakeController = Box<dyn Fn() -> Box<dyn Controller> + Send + Sync>;

/// The callback that receives the reason why a peer's connection ended, for the program's log.
pub(crate) type OnError = Box<dyn Fn(SocketAddr, &PeerError) + Send + Sync>;

/// Builds a [`Server`] for a program. Every setting has a default.
pub struct ServerBuilder {
    pub(crate) window: u64,
    pub(crate) frame_max: u32,
    pub(crate) acks: Acks,
    pub(crate) connections_max: usize,
    pub(crate) sessions_max: usize,
    pub(crate) idle: Duration,
    pub(crate) hello_within: Duration,
    pub(crate) read_bytes: usize,
    pub(crate) buffers_max: Option<usize>,
    pub(crate) tls: Option<ServerTls>,
    pub(crate) token: Option<Vec<u8>>,
    pub(crate) store: Mutex<Box<dyn SessionStore>>,
    pub(crate) spin: Duration,
    pub(crate) plain: bool,
    pub(crate) controller: MakeController,
    pub(crate) on_error: OnError,
}

impl Default for ServerBuilder {
    fn default() -> Self {
        Self {
            window: 4 << 20,
            frame_max: 1 << 20,
            acks: Acks::OnReceipt,
            connections_max: 1024,
            sessions_max: 65_536,
            idle: Duration::from_secs(120),
            hello_within: Duration::from_secs(5),
            read_bytes: 256 << 10,
            buffers_max: None,
            tls: None,
            token: None,
            store: Mutex::new(Box::new(Forgetful)),
            spin: Duration::ZERO,
            plain: true,
            controller: Box::new(|| Box::new(Patience::new(cadence()))),
            on_error: Box::new(|_, _| {}),
        }
    }
}

impl ServerBuilder {
    /// Sets the greatest number of bytes that a client may have unacknowledged, 4 MiB if not set. The window
    /// holds at least two frames of the largest size.
    #[must_use]
    pub const fn window(mut self, bytes: u64) -> Self {
        self.window = bytes;
        self
    }

    /// Sets the length in bytes of the longest message that the server accepts, 1 MiB if not set. A
    /// connection takes that much memory when such a message arrives.
    #[must_use]
    pub const fn frame_max(mut self, bytes: u32) -> Self {
        self.frame_max = bytes;
        self
    }

    /// Sets the meaning of an acknowledgement, [`Acks::OnReceipt`] if not set.
    #[must_use]
    pub const fn acks(mut self, acks: Acks) -> Self {
        self.acks = acks;
        self
    }

    /// Sets the greatest number of connections at a time, 1024 if not set. The server refuses further
    /// connections, and tells a client that speaks the session protocol why.
    #[must_use]
    pub const fn connections_max(mut self, connections: usize) -> Self {
        self.connections_max = connections;
        self
    }

    /// Sets the greatest number of sessions that the server keeps, 65,536 if not set. If a further session
    /// opens, the server forgets the session that has had no connection for longest.
    #[must_use]
    pub const fn sessions_max(mut self, sessions: usize) -> Self {
        self.sessions_max = sessions;
        self
    }

    /// Closes a connection on which the server hears nothing for `time`, 120 s if not set. The server tells
    /// clients the time, and they send a sign of life.
    #[must_use]
    pub const fn idle(mut self, time: Duration) -> Self {
        self.idle = time;
        self
    }

    /// Sets the longest time that each step of a connection's start may take, 5 s if not set. The steps are
    /// the TLS handshake, the link's handshake, and the wait for the end of an older connection of the
    /// session.
    #[must_use]
    pub const fn hello_within(mut self, time: Duration) -> Self {
        self.hello_within = time;
        self
    }

    /// Sets the greatest number of bytes that the server reads at once from each connection, 256 KiB if not
    /// set.
    #[must_use]
    pub const fn read_bytes(mut self, bytes: usize) -> Self {
        self.read_bytes = bytes;
        self
    }

    /// Sets the greatest number of bytes of memory that the read buffers of all connections take together,
    /// beside 4 KiB for each: 256 MiB if not set, or four of the longest messages if that is more. If a
    /// message finds no room, the connection with the largest buffer gives its memory back. That connection
    /// ends with [`PeerError::Crowded`] if its buffer holds a part of a message; its client can connect
    /// again. Before a client has opened its session, its connection has only the 4 KiB.
    #[must_use]
    pub const fn buffers_max(mut self, bytes: usize) -> Self {
        self.buffers_max = Some(bytes);
        self
    }

    /// Makes the server speak only TLS, so that no connection is in clear.
    #[must_use]
    pub fn tls(mut self, tls: ServerTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Lets in only clients that show this token, at most 1024 bytes, and no plain connection, because the
    /// plain protocol has no token. Needs TLS, unless the server listens on a loopback address.
    #[must_use]
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sets the store that keeps the positions of sessions over a restart of the server. Without a store the
    /// sessions begin a new epoch at every restart.
    #[must_use]
    pub fn store(mut self, store: impl SessionStore) -> Self {
        self.store = Mutex::new(Box::new(store));
        self
    }

    /// Makes each connection's task poll its socket for `time` before it sleeps. Polling spends a core's time
    /// to save the latency of a wake-up. No polling if not set.
    #[must_use]
    pub const fn spin(mut self, time: Duration) -> Self {
        self.spin = time;
        self
    }

    /// Sets whether the server also accepts the plain protocol, which has no sessions. If not set, the server
    /// accepts it unless there is a token: the plain protocol cannot carry one.
    #[must_use]
    pub const fn plain(mut self, plain: bool) -> Self {
        self.plain = plain;
        self
    }

    /// Sets the function that makes the controller of each connection's acknowledgements. The default
    /// controller acknowledges a lone message at once, under load as often as one per cent of a core pays
    /// for, after 5 ms at the latest, and always at once for a client that waits for each acknowledgement.
    /// With any controller, an acknowledgement leaves before half of the window is used.
    #[must_use]
    pub fn controller(
        mut self,
        make: impl Fn() -> Box<dyn Controller> + Send + Sync + 'static,
    ) -> Self {
        self.controller = Box::new(make);
        self
    }

    /// Sets a callback, for a log, that the server calls for every connection that ends by a fault of its
    /// peer or its handler. Failures of the network are only counted. The connection's task calls it, so it
    /// should not block.
    #[must_use]
    pub fn on_error(
        mut self,
        hear: impl Fn(SocketAddr, &PeerError) + Send + Sync + 'static,
    ) -> Self {
        self.on_error = Box::new(hear);
        self
    }

    /// Serves on `listener`, in the background of the calling runtime. `make` makes the handler of each
    /// session and of each plain connection; an error of `make` refuses the session.
    ///
    /// # Errors
    /// Invalid settings.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn serve<H, M>(self, listener: TcpListener, make: M) -> Result<Server, ServeError>
    where
        H: Handler,
        M: Fn(Opened) -> Result<H, String> + Send + Sync + 'static,
    {
        self.check()?;
        Server::start(self, listener, make)
    }

    /// Returns the greatest number of bytes of memory for all read buffers of the server, by its settings.
    pub(super) fn buffers_bytes(&self) -> usize {
        let four = (self.frame_max as usize + FRAME_HEAD_MAX).saturating_mul(4);
        self.buffers_max.unwrap_or_else(|| four.max(BUFFERS_BYTES))
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
        range("frame_max", self.frame_max.into(), 1, 1 << 30)?;
        range("window", self.window, 1, 1 << 40)?;
        range("connections_max", self.connections_max as u64, 1, 1 << 30)?;
        range("sessions_max", self.sessions_max as u64, 1, 1 << 30)?;
        range("read_bytes", self.read_bytes as u64, 64, 1 << 30)?;
        let buffers = self.buffers_bytes() as u64;
        let least = self.frame_max as usize + FRAME_HEAD_MAX;
        range("buffers_max", buffers, least as u64, 1 << 50)?;
        let idle_ms = u64::try_from(self.idle.as_millis()).unwrap_or(u64::MAX);
        range("idle in ms", idle_ms, 1, u64::from(u32::MAX))?;
        let least = 2 * (u64::from(self.frame_max) + 8);
        if self.window < least {
            return Err(ConfigError::WindowBelowFrame {
                window: self.window,
                frame_max: self.frame_max,
                least,
            });
        }
        let token = self.token.as_ref().map_or(0, Vec::len);
        if token > TOKEN_MAX {
            return Err(ConfigError::TokenTooLong { len: token });
        }
        Ok(())
    }
}

impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder")
            .field("window", &self.window)
            .field("frame_max", &self.frame_max)
            .field("acks", &self.acks)
            .finish_non_exhaustive()
    }
}

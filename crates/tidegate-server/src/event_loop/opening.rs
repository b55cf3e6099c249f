//! Opens client connections up to the first operation: the server accepts or refuses a connection, sends
//! INFO, and completes the TLS handshake if the operator configured TLS.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use mio::Interest;
use tidegate::Time;
use tidegate_nats::op::text;
use tidegate_nats::session::CloseReason;

use super::net::Stream;
use super::read_queue::Share;
use super::{Conn, Server};
use crate::config::HandshakeFirst;
use crate::cures::openings_a_turn;
use crate::event_loop::socket::{Socket, bound_unsent};
use crate::event_loop::tokens::Owner;
use crate::party::ClientKey;

/// The time for which the loop accepts no connections after an error in accepting. Usually the process then
/// has no file descriptors left, and another attempt at once would fail, too.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// The greatest number of client connections that the loop accepts in one turn, so that no turn takes long.
const ACCEPTS_A_TURN: usize = 64;

/// The stage of a client connection's opening, which tells the loop how to treat the client's next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// The opening is over, or the server offers no TLS. The loop reads operations from now on.
    Done,
    /// The server waits for the client's first byte, which shows whether the client begins with TLS. The
    /// server has sent INFO (`info_at` is `None`), or sends it at `info_at` if the client stays silent.
    FirstByte { info_at: Option<Time> },
    /// The client begins with TLS, and the server has not begun the handshake, which waits for a free thread.
    /// If `info_after` is true, the server sends INFO after the handshake.
    Hello { info_after: bool },
    /// The client and the server are in the TLS handshake, so the loop reads no operations yet. If
    /// `info_after` is true, the server sends INFO after it.
    Handshake { info_after: bool },
}

impl Server {
    pub(super) fn accept(&mut self, now: Time) {
        for _ in 0..openings_a_turn(ACCEPTS_A_TURN) {
            let Some(listener) = &self.listener else {
                return;
            };
            match listener.accept() {
                Ok((stream, address)) => self.admit(now, stream, address),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) => {}
                Err(e) => {
                    if let Some(more) = self.not_accepted.due(now) {
                        tracing::error!(
                            "the server cannot accept connections of clients, and tries again soon: {e}{more}"
                        );
                    }
                    self.accept_again = Some(now + ACCEPT_REST);
                    return;
                }
            }
        }
        self.accept_again = Some(now);
    }

    pub(super) fn accept_later(&mut self, now: Time) {
        if self.accept_again.is_some_and(|at| at <= now) {
            self.accept_again = None;
            self.accept(now);
        }
    }

    fn admit(&mut self, now: Time, mut stream: Stream, address: SocketAddr) {
        if self.node.len() >= self.node.settings().max_connections {
            if let Some(more) = self.not_admitted.due(now) {
                tracing::warn!(
                    "{address}: the server refuses this client, because it has as many clients as it may have: {}{more}",
                    text::MAX_CONNECTIONS
                );
            }
            // The server tells a refused client the error in a single write, which suffices because a new
            // socket has room for so few bytes. A client that expects TLS could not read plain text, so it
            // gets no error.
            if self.tls.is_none() {
                let _ = io::Write::write(
                    &mut stream,
                    format!("-ERR '{}'\r\n", text::MAX_CONNECTIONS).as_bytes(),
                );
            }
            return;
        }
        // The server sets TCP_NODELAY on the client's socket, because otherwise small answers may wait in the
        // kernel for more bytes.
        let _ = stream.set_nodelay(true);
        bound_unsent(&stream);
        let (opening, greet) = match self.node.settings().tls.as_ref().map(|t| t.handshake_first) {
            None => (Opening::Done, true),
            Some(HandshakeFirst::Never) => (Opening::FirstByte { info_at: None }, true),
            Some(HandshakeFirst::Always) => (
                Opening::FirstByte {
                    info_at: Some(Time::NEVER),
                },
                false,
            ),
            Some(HandshakeFirst::After(d)) => (
                Opening::FirstByte {
                    info_at: Some(now + d),
                },
                false,
            ),
        };
        let key = self
            .node
            .handle_accepted(now, address, opening != Opening::Done, greet);
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(e) =
            self.poll
                .registry()
                .register(&mut stream, Owner::Client(key).token(), interest)
        {
            tracing::error!(
                "{address}: the server cannot serve this client, and closes the connection: {e}"
            );
            self.node.handle_closed(now, key, CloseReason::Io);
            return;
        }
        tracing::debug!(
            "{address}: a client has connected, and the server has accepted the connection"
        );
        if self.conns.len() <= key.index() {
            self.conns.resize_with(key.index() + 1, || None);
        }
        if let Opening::FirstByte { info_at: Some(at) } = opening
            && at != Time::NEVER
        {
            self.hellos.push_back((at, key));
        }
        self.conns[key.index()] = Some(Conn {
            socket: Socket::new(stream),
            address,
            input: Vec::new(),
            readable: false,
            writable: true,
            ended: false,
            listed: false,
            used: 0,
            share: Share::default(),
            cut: false,
            opening,
            place: None,
        });
    }

    /// Advances the opening of a connection as far as that needs no TLS computation. Puts a TLS handshake
    /// into the queue of handshakes, because a thread of the pool must compute it. Returns whether the loop
    /// can read operations from the connection.
    pub(super) fn open(&mut self, now: Time, key: ClientKey, scratch: &mut [u8]) -> bool {
        let Some(conn) = self.conns[key.index()].as_mut() else {
            return false;
        };
        let info_at = match conn.opening {
            Opening::Done => return true,
            Opening::FirstByte { info_at } => info_at,
            Opening::Hello { .. } | Opening::Handshake { .. } => {
                self.postpone(key);
                return false;
            }
        };
        match conn.socket.peek(&mut scratch[..1]) {
            // The client's first byte is the type of a TLS handshake record, so the server takes it that the
            // client begins with TLS.
            Ok(1..) if scratch[0] == 0x16 => {
                let tls = self.node.settings().tls.as_ref();
                let limit = tls.map_or(0, |tls| tls.connection_rate_limit);
                if !self.tls_rate.admits(now, limit) {
                    // Too many clients begin TLS at the moment. The server sends this error in plain text
                    // before the handshake, as nats-server does.
                    self.node.handle_closed(now, key, CloseReason::Throttled);
                    return false;
                }
                conn.opening = Opening::Hello {
                    info_after: info_at.is_some(),
                };
                self.postpone(key);
                false
            }
            Ok(1..) => {
                conn.opening = Opening::Done;
                let plain = self.node.settings().allow_non_tls && info_at.is_none();
                if plain {
                    self.node.handle_secured(now, key, false);
                } else {
                    self.node.handle_closed(now, key, CloseReason::Tls);
                }
                plain
            }
            Ok(0) => true,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                conn.readable = false;
                false
            }
            Err(_) => true,
        }
    }

    /// Completes the opening of a connection once its TLS handshake is over, so that the loop reads
    /// operations from it.
    pub(super) fn secured(&mut self, now: Time, key: ClientKey) {
        let Some(conn) = self.conns[key.index()].as_mut() else {
            return;
        };
        if let Opening::Handshake { info_after } = conn.opening
            && !conn.socket.is_handshaking()
        {
            conn.opening = Opening::Done;
            self.node.handle_secured(now, key, true);
            if info_after {
                self.node.handle_greet(key);
            }
        }
    }

    /// Sends INFO to the clients that have not begun TLS within the configured time, because these clients
    /// may expect INFO first.
    pub(super) fn greet_late(&mut self, now: Time) {
        while let Some((at, key)) = self.hellos.front().copied().filter(|(at, _)| *at <= now) {
            self.hellos.pop_front();
            let waits = Opening::FirstByte { info_at: Some(at) };
            // A new connection may have the key of a connection that has ended. So the loop sends INFO only
            // if the connection with this key waits for INFO at just this time.
            if let Some(conn) = self.conns[key.index()]
                .as_mut()
                .filter(|c| c.opening == waits)
            {
                conn.opening = Opening::FirstByte { info_at: None };
                self.node.handle_greet(key);
            }
        }
    }
}

//! The beginning of connections: the server accepts or refuses them, sends INFO, and completes TLS
//! where it serves it.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use mio::Interest;
use mio::net::TcpStream;
use tidegate::Time;
use tidegate_nats::op::text;
use tidegate_nats::session::CloseReason;

use super::read_queue::Share;
use super::{Conn, Server};
use crate::config::HandshakeFirst;
use crate::event_loop::socket::{Socket, bound_unsent};
use crate::event_loop::tokens::Owner;
use crate::party::ClientKey;

/// The pause in accepting after an error: usually the process has no file descriptors left.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// The most connections that the loop accepts in one turn.
const ACCEPTS_A_TURN: usize = 64;

/// The stage of a connection's opening, where the server offers TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// The opening is over, or needs no stages.
    Done,
    /// INFO is out, or goes out at that time if the client stays silent. The first byte shows
    /// whether the client speaks TLS.
    FirstByte { info_at: Option<Time> },
    /// The client begins with TLS, and its handshake has not begun here. With `info_after`, INFO
    /// follows the handshake.
    Hello { info_after: bool },
    /// The handshake is going on. With `info_after`, INFO follows the handshake.
    Handshake { info_after: bool },
}

impl Server {
    pub(super) fn accept(&mut self, now: Time) {
        for _ in 0..ACCEPTS_A_TURN {
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

    fn admit(&mut self, now: Time, mut stream: TcpStream, address: SocketAddr) {
        if self.node.len() >= self.node.settings().max_connections {
            if let Some(more) = self.not_admitted.due(now) {
                tracing::warn!(
                    "{address}: the server refuses this client: {}{more}",
                    text::MAX_CONNECTIONS
                );
            }
            // A new socket surely takes so few bytes. Under TLS the client could not read them.
            if self.tls.is_none() {
                let _ = io::Write::write(
                    &mut stream,
                    format!("-ERR '{}'\r\n", text::MAX_CONNECTIONS).as_bytes(),
                );
            }
            return;
        }
        // TCP_NODELAY, an old socket option: without it small answers may wait for more.
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
        tracing::debug!("{address}: the server has accepted the connection of this client");
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

    /// Advances the opening as far as that costs nothing. Returns whether the connection can be
    /// read. A handshake waits for its turn.
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
            // The record type of a ClientHello.
            Ok(1..) if scratch[0] == 0x16 => {
                let tls = self.node.settings().tls.as_ref();
                let limit = tls.map_or(0, |tls| tls.connection_rate_limit);
                if !self.tls_rate.admits(now, limit) {
                    // The error goes out in plain text, as nats-server's does.
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

    /// Completes the opening once its TLS handshake is over.
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

    /// Sends INFO to clients that did not begin with TLS in time.
    pub(super) fn greet_late(&mut self, now: Time) {
        while let Some((at, key)) = self.hellos.front().copied().filter(|(at, _)| *at <= now) {
            self.hellos.pop_front();
            let waits = Opening::FirstByte { info_at: Some(at) };
            // The key may belong to a new connection by now.
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

//! Handles the sockets of connections between nodes: registers them with the event loop, lists them for
//! reading, and writes as many bytes as they take.

use std::io::ErrorKind;

use mio::Interest;
use tidegate::Time;
use tidegate_cluster::Kind;
use tidegate_cluster::roster::PeerSlot;

use super::ending::Why;
use super::{Conn, Peers};
use crate::event_loop::tokens::{ChannelKey, Owner, Ready};
use crate::sessions::Node;

impl Peers {
    /// Registers a connection with the event loop's poller, so that the loop gets its events. Returns the
    /// connection's key; `None` if the operating system refuses.
    pub(super) fn register(&mut self, mut conn: Conn) -> Option<ChannelKey> {
        // The node sets TCP_NODELAY on the socket, because otherwise small frames may wait in the kernel for
        // more bytes.
        let _ = conn.socket.stream.set_nodelay(true);
        let entry = self.conns.vacant_entry();
        let key = ChannelKey::new(entry.key());
        let interest = Interest::READABLE | Interest::WRITABLE;
        let token = Owner::Channel(key).token();
        if let Err(e) = self
            .registry
            .register(&mut conn.socket.stream, token, interest)
        {
            tracing::error!(
                "{}: this node cannot serve the connection with another node, and closes the connection: {e}",
                conn.address
            );
            return None;
        }
        entry.insert(conn);
        Some(key)
    }

    /// Handles a socket event of a connection: notes that the connection is established, readable, writable,
    /// or over, so that the loop acts on it.
    pub(crate) fn take_event(&mut self, now: Time, key: ChannelKey, event: Ready, node: &mut Node) {
        let Some(conn) = self.conns.get_mut(key.index()) else {
            return;
        };
        if conn.connecting {
            let stream = &conn.socket.stream;
            let outcome = match stream.take_error() {
                Ok(None) => stream.peer_addr().and_then(|peer| {
                    // If the dialled port is on this machine and has no listener, the system may give the
                    // dialer that very port, so that the socket connects to itself. The node takes that for a
                    // refused connection.
                    match stream.local_addr()? == peer {
                        true => Err(ErrorKind::ConnectionRefused.into()),
                        false => Ok(()),
                    }
                }),
                Ok(Some(e)) | Err(e) => Err(e),
            };
            match outcome {
                Ok(()) => conn.connecting = false,
                Err(e) if e.kind() == ErrorKind::NotConnected => return,
                Err(e) => return self.end(now, key, node, &Why::Io(e)),
            }
        }
        conn.readable |= event.readable;
        conn.ended |= event.ended;
        if event.writable && !std::mem::replace(&mut conn.writable, true) {
            self.write(now, key, node);
        }
        self.list(key);
    }

    /// Adds a connection to the list that the loop reads in this turn, if its socket may have bytes and its
    /// handshake does not wait in the queue of handshakes.
    pub(super) fn list(&mut self, key: ChannelKey) {
        if let Some(conn) = self.conns.get_mut(key.index())
            && conn.readable
            && !conn.connecting
            && conn.place.is_none()
            && !std::mem::replace(&mut conn.listed, true)
        {
            self.ready.push(key);
        }
    }

    /// Lists the channel of the peer in this slot for reading again, because a pause of the node is over.
    pub(crate) fn resume(&mut self, slot: PeerSlot) {
        if let Some(key) = self.heard[slot.index()][Kind::Route.index()] {
            self.conns[key.index()].readable = true;
            self.list(key);
        }
    }

    pub(super) fn touch(&mut self, key: ChannelKey) {
        let conn = &mut self.conns[key.index()];
        let waits = !conn.channel.out.is_empty() || conn.socket.holds_back();
        if waits && !std::mem::replace(&mut conn.dirty, true) {
            self.dirty.push(key);
        }
    }

    /// Writes the frames in the channels' own outboxes to the sockets: greetings, pings and pongs, Raft
    /// messages and fetches, once in a turn.
    pub(crate) fn flush(&mut self, now: Time, node: &mut Node) {
        while let Some(key) = self.dirty.pop() {
            if let Some(conn) = self.conns.get_mut(key.index()) {
                conn.dirty = false;
                self.write(now, key, node);
            }
        }
    }

    /// Writes the node's outbox for a peer, which holds subscriptions and messages, to the peer's socket.
    pub(crate) fn write_route(&mut self, now: Time, slot: PeerSlot, node: &mut Node) {
        if let Some(key) = self.told[slot.index()][Kind::Route.index()] {
            self.write(now, key, node);
        }
    }

    /// Returns whether the sockets have taken all of the node's messages for peers, so that a stopping server
    /// may end.
    pub(crate) fn is_written(&self, node: &Node) -> bool {
        let told = PeerSlot::all(self.told.len()).zip(&self.told);
        let mut routes = told.filter_map(|(slot, conns)| Some((slot, conns[Kind::Route.index()]?)));
        routes.all(|(slot, key)| {
            let written = node.peer_outbox(slot).is_none_or(|out| out.is_empty());
            written && !self.conns[key.index()].socket.holds_back()
        })
    }

    /// Closes the channel to a peer for which too many bytes wait, so that they do not fill the node's
    /// memory.
    pub(crate) fn cut_off(&mut self, now: Time, slot: PeerSlot, node: &mut Node) {
        if let Some(key) = self.told[slot.index()][Kind::Route.index()] {
            self.end(now, key, node, &Why::Behind);
        }
    }

    fn write(&mut self, now: Time, key: ChannelKey, node: &mut Node) {
        let mut progress = false;
        loop {
            let Some(conn) = self.conns.get_mut(key.index()) else {
                return;
            };
            let route = conn.slot.filter(|_| conn.is_told(Kind::Route));
            // The loop writes the channel's own frames, such as greetings and pongs, before the frames of the
            // node, so that a long backlog does not delay them.
            let own = !conn.channel.out.is_empty();
            let theirs = route
                .filter(|_| !own)
                .and_then(|slot| node.peer_outbox(slot));
            let out = theirs.unwrap_or(&conn.channel.out);
            if out.is_empty() && !conn.socket.holds_back() {
                return conn.channel.handle_written(now, progress, false);
            }
            if conn.connecting || !conn.writable {
                return conn.channel.handle_written(now, progress, true);
            }
            match conn.socket.write(out) {
                Ok(written) => {
                    conn.writable = !written.blocked;
                    progress |= written.len > 0;
                    match route.filter(|_| !own) {
                        Some(slot) => node.handle_peer_written(now, slot, written.len),
                        None => conn.channel.out.take(written.len, &mut self.pool),
                    }
                }
                Err(e) => {
                    let why = conn.failure(e);
                    return self.end(now, key, node, &why);
                }
            }
        }
    }
}

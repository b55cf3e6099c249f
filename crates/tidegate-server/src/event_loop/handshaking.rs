//! The loop's part in TLS handshakes: queues the connections, and advances the next one.
//!
//! Decides nothing: [`Handshakes`] chooses the connections and their number. The system reports a readable
//! socket once, so a waiting connection stays `readable`, and the loop does not sleep while one waits.
//!
//! [`Handshakes`]: crate::event_loop::handshakes::Handshakes

use std::time::Duration;

use rustls::ServerConnection;
use tidegate::Time;
use tidegate_nats::session::CloseReason;

use super::Server;
use super::opening::Opening;
use crate::event_loop::handshakes::Waiting;
use crate::event_loop::tokens::ChannelKey;
use crate::party::ClientKey;

impl Server {
    /// Queues a client's handshake.
    pub(super) fn postpone(&mut self, key: ClientKey) {
        let Some(conn) = self.conns[key.index()].as_mut() else {
            return;
        };
        let waiting = match conn.opening {
            Opening::Handshake { .. } => Waiting::Begun(key),
            _ => Waiting::New(key),
        };
        if conn.place.is_none() {
            let source = conn.address.ip().into();
            conn.place = Some(self.handshakes.wait(waiting, source));
        }
    }

    /// Returns whether the loop must not read a peer's channel now, because its handshake waits for
    /// its turn or the channel has ended.
    pub(super) fn postpone_peer(&mut self, now: Time, key: ChannelKey) -> bool {
        let Some(peers) = &mut self.peers else {
            return true;
        };
        let handshakes = &mut self.handshakes;
        let wait = |address: std::net::SocketAddr| {
            let source = address.ip().into();
            handshakes.wait(Waiting::Peer(key), source)
        };
        peers.postpone(now, key, &mut self.node, wait)
    }

    /// Advances handshakes, as many as the turn's budget allows.
    pub(super) fn go_on_with_handshakes(&mut self) {
        if let Some(peers) = &mut self.peers {
            for place in peers.take_withdrawn() {
                self.handshakes.withdraw(&place);
            }
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut start = self.clock.now();
        while let Some(waiting) = self.handshakes.poll() {
            let worked = match waiting {
                Waiting::Peer(key) => self.go_on_with_peer(start, key, &mut scratch),
                Waiting::Begun(key) | Waiting::New(key) => {
                    self.go_on_with_client(start, key, &mut scratch)
                }
            };
            let end = self.clock.now();
            let cost = self.cost_of_handshake(worked, end - start);
            self.handshakes.handle_done(cost);
            start = end;
        }
        self.scratch = scratch;
    }

    #[cfg(not(test))]
    const fn cost_of_handshake(&self, _worked: bool, measured: Duration) -> Duration {
        measured
    }

    #[cfg(test)]
    fn cost_of_handshake(&mut self, worked: bool, measured: Duration) -> Duration {
        self.handshakes_gone_on_with += usize::from(worked);
        let fake = self.handshake_cost;
        fake.map_or(measured, |cost| cost * u32::from(worked))
    }

    /// Advances a client's handshake. Returns whether there was anything to do.
    fn go_on_with_client(&mut self, now: Time, key: ClientKey, scratch: &mut [u8]) -> bool {
        let Some(conn) = self.conns.get_mut(key.index()).and_then(Option::as_mut) else {
            return false;
        };
        conn.place = None;
        // The connection timed out.
        if !self.node.contains(key) || !self.node.reads(key) {
            return false;
        }
        if let Opening::Hello { info_after } = conn.opening {
            // A client that sends nothing more cannot end its handshake.
            if conn.ended {
                self.node.handle_closed(now, key, CloseReason::ClientClosed);
                return false;
            }
            let tls = self.tls.clone().map(ServerConnection::new);
            let Some(Ok(tls)) = tls else {
                self.node.handle_closed(now, key, CloseReason::Tls);
                return false;
            };
            conn.socket.tls = Some(Box::new(tls.into()));
            conn.opening = Opening::Handshake { info_after };
        }
        self.read_open(now, key, scratch);
        self.list_again(key);
        true
    }

    /// Advances a peer's handshake. Returns whether there was anything to do.
    fn go_on_with_peer(&mut self, now: Time, key: ChannelKey, scratch: &mut [u8]) -> bool {
        let Some(peers) = &mut self.peers else {
            return false;
        };
        let begun = peers.begin_tls(now, key, &mut self.node);
        if begun {
            self.read_peer(now, key, scratch);
        }
        begun
    }
}

#[cfg(test)]
mod tests;

//! Does the event loop's part in TLS handshakes and in checks of passwords: queues the handshakes, sends the
//! pool's threads their next jobs, and takes the outcomes.
//!
//! This module decides nothing: [`Handshakes`] and the node choose the connections. While a thread has the
//! TLS session of a connection, the loop neither reads nor writes that connection. The time that a client has
//! for its handshake runs only while the server waits for the client.
//!
//! [`Handshakes`]: crate::event_loop::handshakes::Handshakes

use rustls::{Error, ServerConnection};
use tidegate::Time;
use tidegate_nats::session::CloseReason;

use super::Server;
use super::opening::Opening;
use crate::event_loop::handshakes::Waiting;
use crate::event_loop::pool::{Job, Outcome, Step};
use crate::event_loop::tokens::ChannelKey;
use crate::party::ClientKey;

impl Server {
    /// Puts a client's TLS handshake into the queue for the pool's threads, unless the handshake is there or
    /// with a thread of the pool.
    pub(super) fn postpone(&mut self, key: ClientKey) {
        let Some(conn) = self.conns[key.index()].as_mut() else {
            return;
        };
        let waiting = match conn.opening {
            Opening::Handshake { .. } => Waiting::Begun(key),
            _ => Waiting::New(key),
        };
        if conn.place.is_none() && !conn.socket.is_away() {
            let source = conn.address.ip().into();
            conn.place = Some(self.handshakes.wait(waiting, source));
            self.node.handle_queued(self.clock.now(), key);
        }
    }

    /// Returns whether the loop must not read a peer's channel now, because its handshake waits in the queue
    /// or the channel has ended.
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

    /// Takes the outcomes of the pool's jobs, and sends the next jobs to free threads. If both passwords and
    /// handshakes wait, they take turns, so that neither starves.
    pub(super) fn turn_pool(&mut self) {
        while let Some(outcome) = self.pool.poll() {
            let now = self.clock.now();
            match outcome {
                Outcome::Password { key, cid, good } => {
                    self.node.handle_verified(now, key, cid, good);
                }
                Outcome::Handshake(step, failed) => self.end_step(now, step, failed),
                Outcome::Page { at, reply, body } => {
                    self.node.handle_page(now, at, &reply, body.as_deref());
                }
            }
        }
        if let Some(peers) = &mut self.peers {
            for place in peers.take_withdrawn() {
                self.handshakes.withdraw(&place);
            }
        }
        while self.pool.has_room() {
            let sent = match self.password_next {
                true => self.check_password() || self.begin_step(),
                false => self.begin_step() || self.check_password(),
            };
            if !sent {
                return;
            }
            self.password_next = !self.password_next;
        }
    }

    /// Sends the next page of subjects to a free thread of the pool. The loop calls this after the turn of
    /// the streams: that turn completes a page, and no event wakes the loop for the page.
    pub(super) fn send_page(&mut self) {
        if self.pool.may_encode()
            && let Some((at, job)) = self.node.poll_page()
        {
            self.pool.send(None, Job::Page(at, job));
        }
    }

    /// Sends the next password to the pool for a check. Returns whether the loop could send one.
    fn check_password(&mut self) -> bool {
        let pool = &mut self.pool;
        if !pool.may_check() {
            return false;
        }
        let next = self.node.poll_verify_of(|source| pool.may_run(source));
        let Some((source, verify)) = next else {
            return false;
        };
        pool.send(Some(source), Job::Password(verify));
        true
    }

    /// Sends the next step of a handshake to the pool. Returns whether the loop could send one, so that the
    /// caller knows if a thread is still free.
    fn begin_step(&mut self) -> bool {
        loop {
            let pool = &self.pool;
            let next = self.handshakes.poll(|source| pool.may_run(source));
            let Some((source, of)) = next else {
                return false;
            };
            let (now, number) = (self.clock.now(), self.pool.next_step());
            let mut scratch = std::mem::take(&mut self.scratch);
            let tls = match of {
                Waiting::Peer(key) => self.begin_step_of_peer(now, key, number, &mut scratch),
                Waiting::Begun(key) | Waiting::New(key) => {
                    self.begin_step_of_client(now, key, number, &mut scratch)
                }
            };
            self.scratch = scratch;
            if let Some(tls) = tls {
                self.pool
                    .send(Some(source), Job::Handshake(Step { of, number, tls }));
                return true;
            }
        }
    }

    /// Reads the bytes that a client has sent for its TLS handshake. Returns the connection's TLS session for
    /// a thread, if the session has bytes to process.
    fn begin_step_of_client(
        &mut self,
        now: Time,
        key: ClientKey,
        number: u64,
        scratch: &mut [u8],
    ) -> Option<Box<rustls::Connection>> {
        let conn = self.conns.get_mut(key.index())?.as_mut()?;
        conn.place = None;
        if !self.node.contains(key) || !self.node.reads(key) {
            return None;
        }
        self.node.handle_unqueued(now, key);
        if let Opening::Hello { info_after } = conn.opening {
            // A client that has closed its end cannot complete its handshake, so the server closes the
            // connection.
            if conn.ended {
                self.node.handle_closed(now, key, CloseReason::ClientClosed);
                return None;
            }
            let tls = self.tls.clone().map(ServerConnection::new);
            let Some(Ok(tls)) = tls else {
                self.node.handle_closed(now, key, CloseReason::Tls);
                return None;
            };
            conn.socket.begin_tls(Box::new(tls.into()));
            conn.opening = Opening::Handshake { info_after };
        }
        self.read_open(now, key, scratch);
        let conn = self.conns.get_mut(key.index())?.as_mut()?;
        let tls = conn.socket.take_step(number);
        if tls.is_some() {
            self.node.handle_queued(now, key);
        }
        tls
    }

    /// Reads the bytes that another node has sent for its TLS handshake. Returns the connection's TLS session
    /// for a thread, if the session has bytes to process.
    fn begin_step_of_peer(
        &mut self,
        now: Time,
        key: ChannelKey,
        number: u64,
        scratch: &mut [u8],
    ) -> Option<Box<rustls::Connection>> {
        let begun = self.peers.as_mut()?.begin_tls(now, key, &mut self.node);
        if begun {
            self.read_peer(now, key, scratch);
        }
        self.peers.as_mut()?.take_step(key, number)
    }

    /// Puts a TLS session back into its connection after a step of a thread, so that the loop reads and
    /// writes the connection again, unless it has ended in the meantime.
    fn end_step(&mut self, now: Time, step: Step, failed: Option<Error>) {
        let Step { of, number, tls } = step;
        match of {
            Waiting::Peer(key) => {
                if let Some(peers) = &mut self.peers {
                    peers.end_step(now, key, number, tls, failed, &mut self.node);
                }
            }
            Waiting::Begun(key) | Waiting::New(key) => {
                let conn = self.conns.get_mut(key.index()).and_then(Option::as_mut);
                let Some(conn) = conn.filter(|conn| conn.socket.is_at_step(number)) else {
                    return;
                };
                (conn.readable, conn.writable) = (true, true);
                match conn.socket.end_step(tls, failed) {
                    Ok(()) => {
                        self.node.handle_unqueued(now, key);
                        self.secured(now, key);
                        self.list_again(key);
                    }
                    Err(e) => {
                        tracing::debug!(
                            "the server closes the connection of a client, because the TLS handshake with the client failed: {e}"
                        );
                        self.node.handle_closed(now, key, CloseReason::Tls);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! The loop's writes: outboxes to sockets, in rounds that a turn may interrupt, and the sockets that close.

use std::time::Duration;

use tidegate::Time;
use tidegate::controller::Reason;
use tidegate_nats::session::CloseReason;

use super::{CLOSES_A_TURN, Round, Server};
use crate::cures::{cures, openings_a_turn};
use crate::party::ClientKey;

/// The longest time for which one turn writes outboxes, so that reads and timers do not wait longer, and
/// (`WRITES_A_LOOK`) the number of writes after which the loop reads the clock to check that time.
const WRITE_BUDGET: Duration = Duration::from_micros(500);
const WRITES_A_LOOK: usize = 4;

impl Server {
    /// Writes outboxes for the rest of the turn's [`WRITE_BUDGET`]. The loop continues a longer round of
    /// writes in the next turn, so that no turn takes long.
    pub(super) fn flush(&mut self, now: Time, reason: Reason) {
        if self.round.is_none() {
            let batch = self.node.take_gathered();
            if batch.items > 0 {
                self.flow.started(now, batch, reason);
                self.round = Some(Round {
                    items: batch.items,
                    spent_ns: 0,
                });
            }
        }
        let begun = self.clock.now();
        let (mut end, mut written) = (begun, 0);
        let left = WRITE_BUDGET.saturating_sub(self.writing);
        while (end - begun < left || !cures().write_budget)
            && let Some(key) = self.node.poll_dirty()
        {
            // The time of the last look is at most as old as the writes before the next look.
            self.write(end, key);
            written += 1;
            if written % WRITES_A_LOOK == 0 {
                end = self.clock.now();
            }
        }
        self.writing += end - begun;
        if let Some(peers) = &mut self.peers {
            while let Some(slot) = self.node.poll_dirty_peer() {
                peers.write_route(now, slot, &mut self.node);
            }
            while let Some(slot) = self.node.poll_cut_off() {
                peers.cut_off(now, slot, &mut self.node);
            }
        }
        if !self.node.is_dirty() {
            self.node.handle_acks_written(end);
        }
        if let Some(mut round) = self.round.take() {
            let end = self.clock.now();
            round.spent_ns += end.since(begun);
            if self.node.is_dirty() {
                self.round = Some(round);
                return;
            }
            self.flow.done(end, round.spent_ns);
            self.node.handle_flushed(end, round.items, round.spent_ns);
        }
    }

    /// Writes the outbox of one connection once, as far as its socket takes bytes. The rest of a long outbox
    /// waits until the loop has written the outboxes of other connections, so that these do not starve.
    pub(super) fn write(&mut self, now: Time, key: ClientKey) {
        let Some(conn) = self.conns.get_mut(key.index()).and_then(Option::as_mut) else {
            return;
        };
        if !self.node.contains(key) {
            return;
        }
        if !conn.writable {
            return self.node.handle_written(now, key, 0);
        }
        match conn.socket.write(self.node.outbox(key)) {
            Ok(written) => {
                conn.writable = !written.blocked;
                self.node.handle_written(now, key, written.len);
                if !written.blocked {
                    self.node.handle_more_to_write(key);
                }
            }
            Err(e) => {
                tracing::debug!(
                    "the server cannot write to a client, and closes the connection: {e}"
                );
                self.node.handle_closed(now, key, CloseReason::Io);
            }
        }
    }

    pub(super) fn drop_closed(&mut self) {
        for _ in 0..openings_a_turn(CLOSES_A_TURN) {
            let Some((key, reason)) = self.node.poll_closed() else {
                return;
            };
            if let Some(mut conn) = self.conns.get_mut(key.index()).and_then(Option::take) {
                if let Some(place) = conn.place.take() {
                    self.handshakes.withdraw(&place);
                }
                let _ = self.poll.registry().deregister(&mut conn.socket.stream);
                conn.socket.close();
                if reason.is_slow_consumer() {
                    tracing::warn!(
                        "{}: the server closes the connection of this client, because the client reads too slowly: {}",
                        conn.address,
                        reason.as_str()
                    );
                } else if reason.is_failed_login() {
                    if let Some(more) = self.failed_logins.due(self.clock.now()) {
                        let why = reason.as_str();
                        tracing::warn!("{}: a login failed: {why}{more}", conn.address);
                    }
                } else {
                    tracing::debug!(
                        "{}: the connection of this client has ended: {}",
                        conn.address,
                        reason.as_str()
                    );
                }
            }
        }
    }
}

//! Reads bytes from other nodes, as many as the turn's bounds allow, and gathers them into whole frames.

use std::io::ErrorKind;

use tidegate::Time;
use tidegate::controller::Load;
use tidegate_cluster::Kind;
use tidegate_cluster::channel::Effect;
use tidegate_cluster::proof::Side;

use super::Peers;
use super::ending::Why;
use super::frames::After;
use crate::event_loop::READ_BYTES;
use crate::event_loop::tokens::ChannelKey;
use crate::sessions::{Node, VISITS_A_STEP};

/// The most frames of one channel that the loop handles in a row, so that a peer does not keep it from its
/// clients. The rest of the bytes waits for the next turn. If the receivers take long to find, the loop stops
/// earlier ([`VISITS_A_STEP`]).
const FRAMES_MAX: u32 = 256;
/// The greatest number of times that the loop reads in a row for one large frame, together 1 MiB, so that
/// other connections do not wait long.
const GATHERS_MAX: usize = 16;

impl Peers {
    /// Takes the list of the connections to read in this turn, and empties the list.
    pub(crate) fn take_ready(&mut self) -> Vec<ChannelKey> {
        let ready = std::mem::take(&mut self.ready);
        for key in &ready {
            self.conns[key.index()].listed = false;
        }
        ready
    }

    /// Reads a connection once, and hands its frames to the modules that they concern. Returns whether enough
    /// messages have gathered in outboxes, so that the loop must write and then call this function again.
    pub(crate) fn read(
        &mut self,
        now: Time,
        key: ChannelKey,
        node: &mut Node,
        scratch: &mut [u8],
        limit: Load,
    ) -> bool {
        if self.waits(key, node) {
            return false;
        }
        let Some(conn) = self.conns.get_mut(key.index()) else {
            return false;
        };
        let kept = std::mem::take(&mut conn.input);
        // The loop handles the bytes of an earlier read before it reads further bytes. The loop kept them
        // because enough messages had gathered for a write.
        if !kept.is_empty() && kept.len() >= conn.need {
            return self.consume(now, key, &kept, node, limit);
        }
        if conn.need > scratch.len() {
            return self.gather(now, key, kept, node, scratch, limit);
        }
        let start = kept.len();
        scratch[..start].copy_from_slice(&kept);
        match self.read_some(now, key, node, &mut scratch[start..]) {
            Some(0) => {
                self.conns[key.index()].input = kept;
                false
            }
            Some(got) => self.consume(now, key, &scratch[..start + got], node, limit),
            None => false,
        }
    }

    /// Reads more bytes of a frame that is larger than one read, until the frame is complete, because the
    /// channel takes whole frames only.
    fn gather(
        &mut self,
        now: Time,
        key: ChannelKey,
        mut kept: Vec<u8>,
        node: &mut Node,
        scratch: &mut [u8],
        limit: Load,
    ) -> bool {
        let need = self.conns[key.index()].need;
        // The loop reads several times, because a part of a frame is of no use, but not without a bound,
        // because other connections wait.
        for _ in 0..GATHERS_MAX {
            let Some(got) = self.read_some(now, key, node, scratch) else {
                return false;
            };
            if kept.capacity() < need {
                // The buffer at most doubles, up to the frame's length, so that a peer must send as many
                // bytes as it makes the node reserve.
                let more = (2 * kept.len()).max(READ_BYTES);
                kept.reserve(more.min(need + READ_BYTES - kept.len()));
            }
            kept.extend_from_slice(&scratch[..got]);
            if kept.len() >= need {
                return self.consume(now, key, &kept, node, limit);
            }
            if !self.conns[key.index()].readable {
                break;
            }
        }
        self.conns[key.index()].input = kept;
        self.list(key);
        false
    }

    /// Reads the socket once. Returns the number of bytes, which is 0 for an empty socket; `None` if the loop
    /// has ended the connection.
    fn read_some(
        &mut self,
        now: Time,
        key: ChannelKey,
        node: &mut Node,
        into: &mut [u8],
    ) -> Option<usize> {
        let conn = self.conns.get_mut(key.index())?;
        let why = match conn.socket.read(into) {
            Ok(0) => Why::Closed,
            Ok(got) => {
                conn.readable &= !conn.socket.is_drained() || conn.ended;
                conn.channel.handle_activity(now);
                return self.go_on_with_tls(now, key, node).then_some(got);
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                conn.readable = false;
                return self.go_on_with_tls(now, key, node).then_some(0);
            }
            Err(e) => conn.failure(e),
        };
        self.end(now, key, node, &why);
        None
    }

    /// Returns whether the loop must not read the connection now: its TCP connection is not established, the
    /// node has paused the peer, or too many received messages wait.
    fn waits(&mut self, key: ChannelKey, node: &Node) -> bool {
        let Some(conn) = self.conns.get(key.index()).filter(|c| !c.connecting) else {
            return true;
        };
        match (conn.slot, conn.side, conn.kind) {
            (Some(slot), Side::Dialled, Kind::Route) => !node.reads_peer(slot),
            (Some(_), Side::Dialled, Kind::Raft) => {
                let full = self.raft.is_full() || self.fetches.is_full();
                self.raft.held_back |= full;
                full
            }
            _ => false,
        }
    }

    fn consume(
        &mut self,
        now: Time,
        key: ChannelKey,
        bytes: &[u8],
        node: &mut Node,
        limit: Load,
    ) -> bool {
        let (mut used, mut full) = (0, false);
        let (mut need, mut frames) = (0, 0);
        let visits = node.visits() + VISITS_A_STEP;
        while let Some(conn) = self.conns.get_mut(key.index()) {
            let (step, n) = match conn.channel.next(now, &bytes[used..], &self.roster) {
                Ok(next) => next,
                Err(e) => {
                    self.end(now, key, node, &Why::Channel(e));
                    return false;
                }
            };
            used += n;
            match step {
                Effect::Need(n) => {
                    need = n;
                    break;
                }
                Effect::Done => {}
                Effect::Open(theirs) => self.open(now, key, &theirs, node),
                Effect::Frame(frame) => {
                    if self.take_frame(now, key, &frame, node, limit) == After::Stop {
                        let slot = self.conns.get(key.index()).and_then(|c| c.slot);
                        full = slot.is_some_and(|slot| node.reads_peer(slot));
                        break;
                    }
                    frames += 1;
                    if frames == FRAMES_MAX || node.visits() >= visits {
                        if let Some(conn) = self.conns.get_mut(key.index()) {
                            conn.readable = true;
                        }
                        break;
                    }
                }
            }
        }
        if let Some(conn) = self.conns.get_mut(key.index()) {
            conn.need = need;
            conn.input.clear();
            conn.input.extend_from_slice(&bytes[used..]);
            if conn.input.is_empty() && conn.input.capacity() > READ_BYTES {
                conn.input = Vec::new();
            }
            full &= !conn.input.is_empty();
            self.touch(key);
            if !full {
                self.list(key);
            }
        }
        full
    }
}

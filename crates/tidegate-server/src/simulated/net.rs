//! Simulates the network: connections as pairs of byte queues with a bounded room, a latency, and notices to
//! the owners of their ends, as an edge-triggered poller gives them.
//!
//! An end holds the bytes that are on their way to it or wait there. The number of these bytes has a bound,
//! as the buffers of the two kernels have. So a reader that reads slowly, or never, makes its writer meet a
//! full pipe. The clients of the simulation use this module directly, and the servers through their sockets
//! (`simulated/sockets`).

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tidegate::Time;

use super::{Machine, Notice, Owner, with};

/// The most bytes that a connection holds in each direction, unless the simulation sets another bound, as the
/// kernel's buffers bound a real connection.
pub(crate) const ROOM: usize = 256 * 1024;

/// The connections and listeners of a simulated machine, by which servers and clients reach each other.
#[derive(Debug, Default)]
pub(crate) struct Network {
    ends: Vec<End>,
    listeners: BTreeMap<SocketAddr, Listening>,
    ports: u16,
    /// The time that bytes take from one end of a connection to the other end, as on a real network.
    pub(crate) latency: Duration,
}

/// A listener of a server, and the connections that wait until the server accepts them in a turn.
#[derive(Debug)]
struct Listening {
    owner: Owner,
    token: Option<usize>,
    waiting: VecDeque<(Time, usize)>,
}

/// One end of a connection, as a server or a client of the simulation holds it; the two ends together are the
/// pipe.
#[derive(Debug)]
struct End {
    /// The index of the other end of the connection, to which this end sends.
    peer: usize,
    /// The owner of this end and the token with which the owner registered the end; `None` before the
    /// registration.
    owner: Option<(Owner, usize)>,
    address: SocketAddr,
    /// The bytes that the other end has sent to this end, each part with the time of its arrival. The owner
    /// reads them from then on.
    inbound: VecDeque<(Time, Vec<u8>)>,
    /// The number of bytes of the first part that the owner of this end has read already, so that the next
    /// read begins after them.
    taken: usize,
    inbound_len: usize,
    /// The most bytes that may be on their way to this end or wait there. The other end cannot send more, and
    /// so meets a full pipe.
    room: usize,
    /// The time at which the owner of this end learns that the other end has closed the connection.
    ends_at: Option<Time>,
    /// True once the owner of this end has closed it, so that it sends and reads no more.
    closed: bool,
    /// True if the owner of this end has met a full pipe and waits for room. The network then tells it of
    /// room.
    waits: bool,
}

impl End {
    /// Returns the number of bytes that have arrived by `now` and that the owner has not read, which a read
    /// can take.
    fn arrived(&self, now: Time) -> usize {
        let parts = self.inbound.iter().take_while(|(at, _)| *at <= now);
        let len: usize = parts.map(|(_, bytes)| bytes.len()).sum();
        len.saturating_sub(self.taken)
    }
}

impl Machine {
    /// Connects the owner of `from` to a listener. Returns the new connection's end at that owner, with which
    /// the owner sends and reads.
    pub(super) fn connect(&mut self, from: SocketAddr, to: SocketAddr) -> io::Result<usize> {
        let arrives = self.now() + self.network.latency;
        let network = &mut self.network;
        let Some(listening) = network.listeners.get_mut(&to) else {
            return Err(ErrorKind::ConnectionRefused.into());
        };
        let here = network.ends.len();
        let end = |peer, address| End {
            peer,
            owner: None,
            address,
            inbound: VecDeque::new(),
            taken: 0,
            inbound_len: 0,
            room: ROOM,
            ends_at: None,
            closed: false,
            waits: false,
        };
        network.ends.push(end(here + 1, from));
        network.ends.push(end(here, to));
        listening.waiting.push_back((arrives, here + 1));
        if let Some(token) = listening.token {
            let owner = listening.owner;
            self.note(Notice {
                readable: true,
                ..Notice::new(arrives, owner, token)
            });
        }
        Ok(here)
    }

    /// Opens a listener at this address for the server that starts; port 0 takes a free port. Returns the
    /// address.
    pub(super) fn listen(&mut self, ip: IpAddr, port: u16) -> io::Result<SocketAddr> {
        let owner = Owner::Server(self.server);
        let network = &mut self.network;
        network.ports += 1;
        let port = if port == 0 {
            10_000 + network.ports
        } else {
            port
        };
        let address = SocketAddr::new(ip, port);
        let listening = Listening {
            owner,
            token: None,
            waiting: VecDeque::new(),
        };
        match network.listeners.insert(address, listening) {
            Some(_) => Err(ErrorKind::AddrInUse.into()),
            None => Ok(address),
        }
    }

    /// Removes the listeners of a server that has crashed, and closes the connections that wait there, so
    /// that their clients learn of the crash. The ends that the server had get no notices any more.
    pub(super) fn forget_server(&mut self, server: usize) {
        for end in &mut self.network.ends {
            end.owner
                .take_if(|(owner, _)| *owner == Owner::Server(server));
        }
        let mut waiting = Vec::new();
        self.network.listeners.retain(|_, listening| {
            let stays = listening.owner != Owner::Server(server);
            if !stays {
                waiting.extend(listening.waiting.drain(..).map(|(_, end)| end));
            }
            stays
        });
        waiting.into_iter().for_each(|end| self.close(end));
    }

    /// Takes the next connection that waits at a server's listener. Returns the server's end, and the address
    /// of the other end, as `accept` of the system does.
    pub(super) fn accept(&mut self, at: SocketAddr) -> io::Result<(usize, SocketAddr)> {
        let now = self.now();
        let listening = self.network.listeners.get_mut(&at);
        let waiting = listening.map(|l| &mut l.waiting);
        let next = waiting.filter(|w| w.front().is_some_and(|(at, _)| *at <= now));
        let (_, end) = next
            .and_then(VecDeque::pop_front)
            .ok_or(ErrorKind::WouldBlock)?;
        Ok((end, self.addresses(end).1))
    }

    /// Sets the token by which the machine tells the owner of a listener about connections; `None` ends the
    /// listener.
    pub(super) fn register_listener(&mut self, at: SocketAddr, token: Option<usize>) {
        match self.network.listeners.get_mut(&at) {
            Some(listening) if token.is_some() => listening.token = token,
            _ => drop(self.network.listeners.remove(&at)),
        }
    }

    /// Returns the addresses of an end and of the other end of its connection, which a socket reports.
    pub(super) fn addresses(&self, at: usize) -> (SocketAddr, SocketAddr) {
        let end = &self.network.ends[at];
        (end.address, self.network.ends[end.peer].address)
    }

    /// Ends the registration of an end, so that its owner learns of no further change.
    pub(super) fn deregister(&mut self, at: usize) {
        self.network.ends[at].owner = None;
    }

    /// Records the owner of an end, and gives the owner notices of everything that has happened to the end so
    /// far, as a poller does.
    pub(super) fn register(&mut self, at: usize, owner: Owner, token: usize) {
        let now = self.now();
        let end = &mut self.network.ends[at];
        end.owner = Some((owner, token));
        let arrivals: Vec<Time> = end.inbound.iter().map(|(at, _)| *at).collect();
        let ends_at = end.ends_at;
        // The end takes bytes once the connection is established, which needs the time there and back.
        let stands = now + 2 * self.network.latency;
        self.note(Notice {
            writable: true,
            ..Notice::new(stands, owner, token)
        });
        for arrives in arrivals {
            self.note(Notice {
                readable: true,
                ..Notice::new(arrives.max(now), owner, token)
            });
        }
        if let Some(ends) = ends_at {
            self.note(Notice {
                readable: true,
                ended: true,
                ..Notice::new(ends.max(now), owner, token)
            });
        }
    }

    /// Sends as many of these bytes as the pipe has room for, as a non-blocking socket does.
    pub(super) fn send(&mut self, from: usize, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let now = self.now();
        let arrives = now + self.network.latency;
        let end = &self.network.ends[from];
        if end.closed {
            return Err(ErrorKind::NotConnected.into());
        }
        if end.ends_at.is_some_and(|at| at <= now) {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let peer = end.peer;
        let other = &mut self.network.ends[peer];
        let mut room = other.room.saturating_sub(other.inbound_len);
        let mut bytes = Vec::new();
        for part in parts {
            let taken = part.len().min(room);
            bytes.extend_from_slice(&part[..taken]);
            room -= taken;
        }
        let wanted: usize = parts.iter().map(|part| part.len()).sum();
        let len = bytes.len();
        if len == 0 && wanted > 0 {
            self.network.ends[from].waits = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        self.network.ends[from].waits |= len < wanted;
        let other = &mut self.network.ends[peer];
        if len == 0 || other.closed {
            return Ok(len);
        }
        other.inbound.push_back((arrives, bytes));
        other.inbound_len += len;
        if let Some((owner, token)) = other.owner {
            self.note(Notice {
                readable: true,
                ..Notice::new(arrives, owner, token)
            });
        }
        Ok(len)
    }

    /// Copies bytes that have arrived at an end for its reader, and removes them if `take` is true. Returns 0
    /// if the other side has closed.
    pub(super) fn receive(&mut self, at: usize, into: &mut [u8], take: bool) -> io::Result<usize> {
        let now = self.now();
        let end = &mut self.network.ends[at];
        if end.closed {
            return Err(ErrorKind::NotConnected.into());
        }
        let len = into.len().min(end.arrived(now));
        if len == 0 {
            return match end.ends_at.is_some_and(|at| at <= now) || into.is_empty() {
                true => Ok(0),
                false => Err(ErrorKind::WouldBlock.into()),
            };
        }
        let mut copied = 0;
        let mut skip = end.taken;
        for (_, bytes) in &end.inbound {
            let part = &bytes[skip..];
            let n = part.len().min(len - copied);
            into[copied..copied + n].copy_from_slice(&part[..n]);
            copied += n;
            skip = 0;
            if copied == len {
                break;
            }
        }
        if take {
            self.drop_front(at, len);
        }
        Ok(len)
    }

    /// Removes bytes that the owner of an end has read, so that the pipe has room, and tells a waiting writer
    /// of it.
    fn drop_front(&mut self, at: usize, len: usize) {
        let end = &mut self.network.ends[at];
        end.inbound_len -= len;
        let mut left = len;
        while left > 0
            && let Some((_, bytes)) = end.inbound.front()
        {
            let rest = bytes.len() - end.taken;
            if rest > left {
                end.taken += left;
                break;
            }
            left -= rest;
            end.taken = 0;
            end.inbound.pop_front();
        }
        self.make_room(at);
    }

    /// Tells the writer to this end that it may send again, once at least a third of the pipe is free, as a
    /// kernel does.
    fn make_room(&mut self, at: usize) {
        let then = self.now() + self.network.latency;
        let end = &self.network.ends[at];
        let (free, peer) = (end.room.saturating_sub(end.inbound_len), end.peer);
        let roomy = 3 * free >= end.room;
        let writer = &mut self.network.ends[peer];
        if writer.waits
            && roomy
            && let Some((owner, token)) = writer.owner
        {
            writer.waits = false;
            self.note(Notice {
                writable: true,
                ..Notice::new(then, owner, token)
            });
        }
    }

    /// Closes an end. The owner of the other end learns of it after the bytes that are on their way, so that
    /// none is lost.
    pub(super) fn close(&mut self, at: usize) {
        let then = self.now() + self.network.latency;
        let end = &mut self.network.ends[at];
        if std::mem::replace(&mut end.closed, true) {
            return;
        }
        (end.inbound, end.inbound_len) = (VecDeque::new(), 0);
        let peer = end.peer;
        let other = &mut self.network.ends[peer];
        other.ends_at = Some(then);
        if let Some((owner, token)) = other.owner {
            self.note(Notice {
                readable: true,
                writable: true,
                ended: true,
                ..Notice::new(then, owner, token)
            });
        }
    }
}

/// Sets the time that bytes take from one end of a connection to the other end, for the simulation.
pub(crate) fn set_latency(latency: Duration) {
    with(|machine| machine.network.latency = latency);
}

/// Connects a client of the simulation from `from` to a server's address `to`. Returns the client's end;
/// `None` if no server listens there.
pub(crate) fn connect_client(client: usize, from: SocketAddr, to: SocketAddr) -> Option<usize> {
    with(|machine| {
        let end = machine.connect(from, to).ok()?;
        machine.register(end, Owner::Client(client), end);
        Some(end)
    })
    .flatten()
}

/// Sets the most bytes that may wait at a client's end or be on their way to it, so that the simulation can
/// play a slow reader.
pub(crate) fn set_room(end: usize, room: usize) {
    with(|machine| {
        machine.network.ends[end].room = room;
        machine.make_room(end);
    });
}

/// Sets the most bytes that may wait at the server's end of a client's connection or be on their way to it,
/// so that the simulation can play a slow network.
pub(crate) fn set_room_of_peer(end: usize, room: usize) {
    with(|machine| {
        let peer = machine.network.ends[end].peer;
        machine.network.ends[peer].room = room;
        machine.make_room(peer);
    });
}

/// Sends bytes from a client's end of a connection. Returns the number of bytes for which the pipe had room;
/// the client sends the rest later.
pub(crate) fn send(end: usize, bytes: &[u8]) -> usize {
    let sent = with(|machine| machine.send(end, &[IoSlice::new(bytes)]));
    sent.map_or(0, |sent| sent.unwrap_or_default())
}

/// Takes at most `most` of the bytes that have arrived at a client's end; `None` once the server has closed
/// the connection and no byte is left.
pub(crate) fn receive(end: usize, most: usize) -> Option<Vec<u8>> {
    with(|machine| {
        let arrived = machine.network.ends[end].arrived(machine.now());
        let mut bytes = vec![0; arrived.min(most)];
        if bytes.is_empty() {
            let ends_at = machine.network.ends[end].ends_at;
            let over = ends_at.is_some_and(|at| at <= machine.now());
            return (!over).then_some(bytes);
        }
        machine.receive(end, &mut bytes, true).ok()?;
        Some(bytes)
    })
    .flatten()
}

/// Closes a client's end of a connection, as a client that goes does.
pub(crate) fn close(end: usize) {
    with(|machine| machine.close(end));
}

//! Dials the routes to other nodes. A separate thread looks up a route's host name, because that may take
//! long, and the event loop then dials one of the addresses that the thread found.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tidegate::Time;
use tidegate_cluster::channel::Channel;
use tidegate_cluster::proof::Side;
use tidegate_cluster::{Kind, PEERS_MAX};

use super::listen::nonce;
use super::secured::{self, Securing};
use super::{Conn, Handle, Peers};
use crate::config::RouteAddress;
use crate::event_loop::net::Stream;

type Outcome = io::Result<SocketAddr>;

/// The lookups of host names in progress, at most one for each route and kind of channel.
#[derive(Debug)]
pub(super) struct Resolving {
    sender: SyncSender<(usize, Kind, Outcome)>,
    receiver: Receiver<(usize, Kind, Outcome)>,
    handle: Handle,
    /// The number of lookups so far. By it the node dials another address at each attempt, if a name has
    /// several, so that one wrong address does no harm.
    attempts: usize,
}

impl Resolving {
    pub(super) fn new(handle: Handle) -> Self {
        let (sender, receiver) = sync_channel(Kind::ALL.len() * (PEERS_MAX + 1));
        Self {
            sender,
            receiver,
            handle,
            attempts: 0,
        }
    }

    /// Takes the outcome of a lookup that has ended, so that the loop dials the address; `None` if no lookup
    /// has ended.
    pub(super) fn poll(&self) -> Option<(usize, Kind, Outcome)> {
        self.receiver.try_recv().ok()
    }

    /// Starts a thread that looks the host name up, so that the loop does not wait; [`Resolving::poll`]
    /// returns the outcome.
    fn start(&mut self, route: usize, kind: Kind, address: RouteAddress) -> io::Result<()> {
        let (sender, handle) = (self.sender.clone(), self.handle.clone());
        let attempt = self.attempts;
        self.attempts += 1;
        let look_up = move || {
            let all = (address.host.as_str(), address.port).to_socket_addrs();
            let outcome = all.and_then(|all| {
                let all: Vec<SocketAddr> = all.collect();
                let one = all.get(attempt % all.len().max(1)).copied();
                one.ok_or_else(|| io::Error::other("the name has no address"))
            });
            // The thread ignores an error, because the sending fails only if the event loop has ended.
            let _ = sender.send((route, kind, outcome));
            handle.wake();
        };
        let thread = std::thread::Builder::new().name("resolve".into());
        thread.spawn(look_up).map(drop)
    }
}

impl Peers {
    pub(super) fn dial(&mut self, now: Time, route: usize, kind: Kind) {
        let address = self.routes[route].clone();
        match address.host.parse::<IpAddr>() {
            Ok(ip) => self.dial_resolved(now, route, kind, Ok((ip, address.port).into())),
            Err(_) => {
                if let Err(e) = self.resolving.start(route, kind, address) {
                    self.dial_resolved(now, route, kind, Err(e));
                }
            }
        }
    }

    pub(super) fn dial_resolved(&mut self, now: Time, route: usize, kind: Kind, outcome: Outcome) {
        let dialled = outcome.and_then(|address| {
            let stream = Stream::connect(address)?;
            let nonce = nonce(&self.random)?;
            let handshake = self.tls.as_ref().map(|tls| tls.timeout);
            let (deadline, roster) = (self.write_deadline, &self.roster);
            let channel = Channel::dial(now, kind, nonce, deadline, handshake, roster);
            let mut conn = Conn {
                kind,
                route: Some(route),
                connecting: true,
                writable: false,
                ..Conn::new(stream, address, channel, Side::Dialer)
            };
            if let Some(tls) = &self.tls {
                conn.socket
                    .begin_tls(secured::dial(tls, &self.routes[route].host)?);
                conn.securing = Securing::Handshake;
            }
            let refused = || io::Error::other("the connection cannot be served");
            self.register(conn).ok_or_else(refused)
        });
        if let Err(e) = dialled {
            self.redial.handle_down(now, route, kind, false);
            let at = &self.routes[route];
            let line = format!("this node cannot reach the node at {at}, and tries again: {e}");
            if self.roster.is_news(now, &line) {
                tracing::info!("{line}");
            }
        }
    }
}

//! Starts a node in a cluster: reads the node's identity, listens for other nodes, and prepares the routes.
//! Also accepts the connections of other nodes.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use mio::{Interest, Registry};
use ring::rand::{SecureRandom, SystemRandom};
use slab::Slab;
use tidegate::Time;
use tidegate_cluster::channel::{Channel, PING_EVERY};
use tidegate_cluster::proof::{Secret, Side};
use tidegate_cluster::redial::Redial;
use tidegate_cluster::roster::{Me, Roster};
use tidegate_cluster::{Kind, PEERS_MAX};
use tidegate_log::Disk;
use tidegate_nats::outbox::Pool;

use super::dial::Resolving;
use super::inbox::Inbox;
use super::secured::Securing;
use super::{Conn, Peers, rejoining};
use crate::config::Settings;
use crate::config::host_port::joined;
use crate::event_loop::log_limit::LogLimit;
use crate::event_loop::members::{self, IdentityError};
use crate::event_loop::net::{self, Stream};
use crate::event_loop::tls;
use crate::event_loop::tokens::PEER_LISTENER;
use crate::event_loop::{Handle, StartError};

/// The greatest number of connections from and to other nodes. The node refuses more, so that strangers do
/// not use up its memory. Connections that have not completed the greeting count too.
const CONNS_MAX: usize = 4 * (PEERS_MAX + 1) + 32;
/// The greatest number of log lines in ten seconds about connections that end before a peer has identified
/// itself, because any program can cause them.
const STRANGERS_LOGGED: u32 = 16;

impl Peers {
    /// Listens for other nodes, and prepares to dial the configured routes; returns `None` for settings
    /// without a cluster. If the node has a data directory, this process must already hold its lock.
    ///
    /// # Errors
    /// The node cannot listen on the address, or the data directory belongs to another node.
    pub(crate) fn start(
        settings: &Settings,
        now: Time,
        clients: SocketAddr,
        registry: &Registry,
        handle: &Handle,
    ) -> Result<Option<Self>, StartError> {
        let data = settings.streams.as_ref().map(|s| s.directory.as_path());
        let identity_error = |source| StartError::Identity {
            directory: data.map(Into::into).unwrap_or_default(),
            source,
        };
        let disk = data.map(members::storage).transpose();
        let disk = disk.map_err(identity_error)?;
        let Some(cluster) = &settings.cluster else {
            if let Some(disk) = &disk {
                members::check_alone(disk).map_err(identity_error)?;
            }
            return Ok(None);
        };
        settings.check_cluster()?;
        let random = SystemRandom::new();
        let name = settings.server_name.clone().unwrap_or_default();
        let fresh = id(&random).map_err(StartError::Loop)?;
        let identify = |disk: Disk| {
            let file = members::identify(&disk, &cluster.name, &name, fresh)?;
            Ok::<_, IdentityError>((disk, file))
        };
        let identity = disk.map(identify).transpose().map_err(identity_error)?;
        let tls = cluster.tls.as_ref().map(tls::peer_tls).transpose();
        let tls = tls.map_err(StartError::ClusterTls)?;
        let listen = |source| StartError::Listen {
            host: cluster.host.clone(),
            port: cluster.port,
            source,
        };
        let (mut listener, address) = net::listen(&cluster.host, cluster.port).map_err(listen)?;
        registry
            .register(&mut listener, PEER_LISTENER, Interest::READABLE)
            .map_err(StartError::Loop)?;
        if !cluster.is_local() && cluster.secret.is_none() && tls.is_none() {
            tracing::warn!(
                "the cluster has no secret and no TLS, so any program that reaches {address} can join as a node: give the cluster a secret"
            );
        }
        let me = Me {
            cluster: cluster.name.clone(),
            name,
            id: identity.as_ref().map_or(fresh, |(_, file)| file.me.id),
            life: id(&random).map_err(StartError::Loop)?,
            streams: settings.streams.is_some(),
            // The cast loses nothing, because the number of groups of all nodes is at most `SHARDS_MAX`.
            shards: cluster.shards as u8,
            client_url: match cluster.no_advertise {
                true => String::new(),
                false => client_url(settings, clients).unwrap_or_else(|| {
                    // This URL has no host, so peers complete it with the address at which they see this
                    // node.
                    format!(":{}", clients.port())
                }),
            },
            tags: settings.tags.clone(),
            secret: Secret::new(cluster.secret.as_ref().map_or("", |s| s.reveal())),
        };
        let kinds: &[Kind] = match me.streams {
            true => &Kind::ALL,
            false => &[Kind::Route],
        };
        let formed = identity.as_ref().and_then(|(_, f)| f.members.clone());
        let routes = cluster.routes.clone();
        let life = me.life;
        let mut roster = Roster::new(me, routes.len(), formed);
        rejoining::begin(&mut roster, cluster.rejoins);
        Ok(Some(Self {
            registry: registry.try_clone().map_err(StartError::Loop)?,
            listener,
            address,
            redial: Redial::new(now, routes.len(), kinds, cluster.longest_pause, life),
            roster,
            routes,
            resolving: Resolving::new(handle.clone()),
            identity,
            vouched_term: None,
            conns: Slab::new(),
            told: vec![[None; 2]; PEERS_MAX],
            heard: vec![[None; 2]; PEERS_MAX],
            ready: Vec::new(),
            dirty: Vec::new(),
            withdrawn: Vec::new(),
            raft: Inbox::default(),
            fetches: Inbox::default(),
            events: VecDeque::new(),
            next_ping: now + PING_EVERY,
            pings: 0,
            pool: Pool::default(),
            tls,
            write_deadline: settings.sessions.write_deadline,
            random,
            strangers: LogLimit::of_lines(STRANGERS_LOGGED),
        }))
    }

    /// Accepts all connections of other nodes that wait at the port for nodes, as far as there is room for
    /// them.
    pub(crate) fn accept(&mut self, now: Time) {
        loop {
            match self.listener.accept() {
                Ok((_, address)) if self.conns.len() >= CONNS_MAX => {
                    if let Some(more) = self.strangers.due(now) {
                        tracing::warn!(
                            "this node refuses a connection from {}, because {CONNS_MAX} connections are open at the port for nodes, and this is the most that the node accepts{more}",
                            address.ip()
                        );
                    }
                }
                Ok((stream, address)) => self.admit(now, stream, address),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) => {}
                Err(e) => {
                    // If this node cannot accept a connection, it only logs that, because the other node
                    // dials again later.
                    let line = format!("this node cannot accept connections of other nodes: {e}");
                    if self.roster.is_news(now, &line) {
                        tracing::error!("{line}");
                    }
                    return;
                }
            }
        }
    }

    fn admit(&mut self, now: Time, stream: Stream, address: SocketAddr) {
        let Ok(nonce) = nonce(&self.random) else {
            return tracing::error!(
                "the operating system gives no random bytes: this node refuses the connection of {address}"
            );
        };
        let handshake = self.tls.as_ref().map(|tls| tls.timeout);
        let channel = Channel::answer(now, nonce, self.write_deadline, handshake);
        let mut conn = Conn::new(stream, address, channel, Side::Dialled);
        if handshake.is_some() {
            conn.securing = Securing::FirstBytes;
        }
        self.register(conn);
    }
}

/// Returns the URL at which clients connect to this node; `None` if neither the settings nor the address give
/// a host. Keeps a host name from the settings and does not replace it by an address, because certificates
/// are for names.
pub(crate) fn client_url(settings: &Settings, clients: SocketAddr) -> Option<String> {
    match &settings.client_advertise {
        Some(advertised) => {
            let port = advertised.port_or(clients.port());
            Some(joined(advertised.host(), port))
        }
        None => (!clients.ip().is_unspecified()).then(|| joined(&settings.host, clients.port())),
    }
}

/// Draws a random id for this node or this process, by which other nodes tell it apart; 0 means no id.
fn id(random: &SystemRandom) -> io::Result<u64> {
    loop {
        let bytes = nonce(random)?;
        let first = bytes.first_chunk().copied().unwrap_or_default();
        match u64::from_le_bytes(first) {
            0 => {}
            id => return Ok(id),
        }
    }
}

pub(super) fn nonce(random: &SystemRandom) -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    #[cfg(feature = "sim")]
    if let Some(drawn) = crate::simulated::random() {
        bytes[..8].copy_from_slice(&drawn.to_le_bytes());
        return Ok(bytes);
    }
    let filled = random.fill(&mut bytes);
    filled.map_err(|_| io::Error::other("no random bytes"))?;
    Ok(bytes)
}

//! Runs the nodes of one system as one unit: a single server, or a cluster of three on this machine.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::load;
use super::server::{Kind, Membership, PATIENCE, SLOW_SYNC, Server, Written};
use crate::proxy::Proxy;
use tidegate_cli::interrupt;

/// The nodes of one system, which the bench starts, measures and ends together.
pub(super) struct Servers {
    nodes: Vec<Server>,
    /// The proxies that delay the bytes between nodes, one in front of each node; empty if the bench adds no
    /// delay.
    _proxies: Vec<Proxy>,
}

impl Servers {
    /// Starts this many nodes with their files below `directory`, and waits until all nodes together serve
    /// streams.
    ///
    /// # Errors
    ///
    /// A node does not come up (the error has the last lines of its log), or the nodes do not form a cluster.
    pub(super) fn start(
        kind: Kind,
        nodes: usize,
        directory: &Path,
        nats_server: &Path,
    ) -> anyhow::Result<Self> {
        Self::start_slow(kind, nodes, directory, nats_server, None)
    }

    /// Starts the nodes as [`Servers::start`] does. `slow_sync` is the time that the kinds of our server with
    /// slow syncs add to each sync, instead of their usual one.
    ///
    /// # Errors
    ///
    /// As for [`Servers::start`].
    pub(super) fn start_slow(
        kind: Kind,
        nodes: usize,
        directory: &Path,
        nats_server: &Path,
        slow_sync: Option<&str>,
    ) -> anyhow::Result<Self> {
        // The bench binds all ports at once, so that the system gives different ports.
        let ports = (0..3 * nodes).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let ports: Vec<_> = ports.collect::<Result<_, _>>()?;
        let addrs = ports.iter().map(TcpListener::local_addr);
        let addrs: Vec<SocketAddr> = addrs.collect::<Result<_, _>>()?;
        let mut routes: Vec<SocketAddr> = addrs.iter().skip(2).step_by(3).copied().collect();
        let mut proxies = Vec::new();
        if !kind.round_trip().is_zero() {
            for route in &mut routes {
                let proxy = Proxy::start(*route, kind.round_trip())?;
                *route = proxy.addr();
                proxies.push(proxy);
            }
        }
        // The bench keeps the nodes' ports bound until now, so the proxies have other ports than the nodes.
        drop(ports);
        let start = |(n, of_it): (usize, &[SocketAddr])| {
            let membership = (nodes > 1).then(|| Membership {
                name: name(n),
                listen: of_it[2],
                routes: &routes,
            });
            let directory = directory.join(name(n));
            Server::start(
                kind,
                &directory,
                nats_server,
                (of_it[0], of_it[1]),
                membership,
                slow_sync.unwrap_or(SLOW_SYNC),
            )
        };
        let nodes = addrs.chunks(3).enumerate().map(start);
        let mut servers = Self {
            nodes: nodes.collect::<anyhow::Result<_>>()?,
            _proxies: proxies,
        };
        for server in &mut servers.nodes {
            server.wait_ready()?;
        }
        if servers.nodes.len() > 1 {
            servers.wait_formed()?;
        }
        Ok(servers)
    }

    /// Waits until each node can create a stream with replicas on all nodes, so that the cluster is ready.
    fn wait_formed(&self) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        for addr in self.addrs() {
            while let Err(e) = load::try_stream(addr, self.nodes.len()) {
                ensure!(
                    Instant::now() < until && !interrupt::asked(),
                    "the cluster does not form: {e:#}"
                );
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Returns the addresses of all nodes to which clients connect.
    pub(super) fn addrs(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Server::addr).collect()
    }

    /// Returns the address of the node that leads the stream; `None` if there is no such stream or no leader.
    ///
    /// # Errors
    ///
    /// The first node does not answer.
    pub(super) fn leader(&self, stream: &str) -> anyhow::Result<Option<SocketAddr>> {
        let any = self.nodes.first().context("no nodes")?;
        let leader = load::leader(any.addr(), stream)?;
        let mut nodes = self.nodes.iter().enumerate();
        let found = nodes.find(|(n, _)| leader.as_ref() == Some(&name(*n)));
        Ok(found.map(|(_, node)| node.addr()))
    }

    /// Returns the process id of each node.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.nodes.iter().map(Server::pid).collect()
    }

    /// Returns the processor time of each node so far, in seconds.
    ///
    /// # Errors
    ///
    /// A node is gone.
    pub(super) fn cpu_s(&self) -> anyhow::Result<Vec<f64>> {
        self.nodes.iter().map(Server::cpu_s).collect()
    }

    /// Returns the counters of each node's log so far.
    ///
    /// # Errors
    ///
    /// A node does not answer.
    pub(super) fn written(&self) -> anyhow::Result<Vec<Written>> {
        self.nodes.iter().map(Server::written).collect()
    }

    /// Returns the resident memory of all nodes together, in MiB.
    pub(super) fn rss_mb(&self) -> Option<f64> {
        self.nodes.iter().map(Server::rss_mb).sum()
    }

    /// Returns the number of subscriptions of all nodes, including those that the nodes make for themselves.
    ///
    /// # Errors
    ///
    /// A node does not answer.
    pub(super) fn subscriptions(&self) -> anyhow::Result<u64> {
        self.nodes.iter().map(Server::subscriptions).sum()
    }
}

fn name(node: usize) -> String {
    format!("n{}", node + 1)
}

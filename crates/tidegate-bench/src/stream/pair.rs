//! Runs the servers of the bench `compare`: two binaries of the product side by side, each as a server with a
//! directory of its own, under a load that the bench sends.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;

use super::field::Directory;
use super::load::Load;
use super::server::Server;
use super::syscalls::SyscallCounter;

/// The number of bytes in each message's payload.
const BYTES: usize = 1024;

/// The traffic of the clients in one row of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traffic {
    clients: usize,
    /// The number of messages that a client has in flight. With 1 the client waits for each acknowledgement.
    window: usize,
}

impl Traffic {
    pub(crate) const ALL: [Self; 4] = [
        Self {
            clients: 1,
            window: 1,
        },
        Self {
            clients: 10,
            window: 1,
        },
        Self {
            clients: 100,
            window: 1,
        },
        Self {
            clients: 10,
            window: 500,
        },
    ];

    pub(crate) fn name(self) -> String {
        match (self.clients, self.window) {
            (1, 1) => "1 caller".into(),
            (clients, 1) => format!("{clients} callers"),
            (clients, window) => format!("{clients} clients, {window} on the way"),
        }
    }
}

/// The figures of one measurement of one server, from which the bench takes ratios.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    /// The messages a second that the clients published.
    pub(crate) per_s: f64,
    /// The server's processor time for each message, in nanoseconds.
    pub(crate) cpu_ns: f64,
}

/// The servers of the two binaries. Their field comes before the directory, so that Rust drops the servers
/// first.
pub(crate) struct Pair {
    servers: [Server; 2],
    _directory: Directory,
}

impl Pair {
    /// Starts the servers of both binaries.
    ///
    /// # Errors
    ///
    /// A server does not come up.
    pub(crate) fn start(old: &Path, new: &Path) -> anyhow::Result<Self> {
        let directory = Directory::make()?;
        if directory.is_in_memory() {
            eprintln!(
                "tidegate-bench: the data is in memory, where syncs cost nothing; set TIDEGATE_BENCH_DIR"
            );
        }
        let start = |program: &Path, name: &str| {
            let [client, http] = free_addresses()?;
            let mut server =
                Server::start_product(program, &directory.path().join(name), (client, http))?;
            server.wait_ready()?;
            anyhow::Ok(server)
        };
        Ok(Self {
            servers: [start(old, "old")?, start(new, "new")?],
            _directory: directory,
        })
    }

    /// Returns the number of messages that the clients can publish in `window_ms` milliseconds. The search
    /// for the number also warms both servers up.
    pub(crate) fn calibrate(&mut self, traffic: Traffic, window_ms: u64) -> anyhow::Result<u64> {
        let mut messages = 20 * traffic.clients as u64;
        for side in [1, 0] {
            let rate = self.measure(side, traffic, messages)?.per_s;
            messages = messages.max((rate * window_ms as f64 / 1e3) as u64);
        }
        Ok(messages)
    }

    /// Publishes this many messages to one of the two servers, and measures their rate and cost.
    pub(crate) fn measure(
        &mut self,
        side: usize,
        traffic: Traffic,
        messages: u64,
    ) -> anyhow::Result<Measured> {
        let server = &self.servers[side];
        // The sync writes the data that the other server left in the cache, so that the first sync of this
        // server does not have to write it.
        rustix::fs::sync();
        let before = server.cpu_ns()?;
        let sample = load(traffic, messages).run(&[server.addr()])?;
        let cpu_ns = (server.cpu_ns()? - before) as f64 / messages as f64;
        Ok(Measured {
            per_s: sample.ops_per_s,
            cpu_ns,
        })
    }

    /// Returns the system calls of one server for each message, counted in a separate run; `None` if this
    /// machine has no program that counts them.
    pub(crate) fn syscalls(
        &mut self,
        side: usize,
        traffic: Traffic,
    ) -> anyhow::Result<Option<f64>> {
        let server = &self.servers[side];
        let file = self._directory.path().join("syscalls");
        let Some(counter) = SyscallCounter::attach(server.pid(), &file)? else {
            return Ok(None);
        };
        let messages = counter.messages();
        load(traffic, messages).run(&[server.addr()])?;
        let calls = counter.finish()?;
        Ok(calls.map(|calls| calls as f64 / messages as f64))
    }
}

fn load(traffic: Traffic, messages: u64) -> Load {
    Load {
        clients: traffic.clients,
        bytes: BYTES,
        streams: 1,
        replicas: 1,
        window: traffic.window,
        messages,
    }
}

fn free_addresses() -> anyhow::Result<[SocketAddr; 2]> {
    let ports = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let [a, b] = ports;
    Ok([a?.local_addr()?, b?.local_addr()?])
}

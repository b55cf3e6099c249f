//! Callers that publish to a stream and wait for each acknowledgement, on our server and on nats-server.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::bail;

use super::super::load::{self, Connection, FIRST_STREAM};
use super::super::server::Kind;
use super::super::servers::Servers;
use super::load::Caller;
use super::{Plan, Running};

/// One server or a cluster, with an empty stream.
pub(super) struct Nats {
    servers: Servers,
    addrs: Vec<SocketAddr>,
    bytes: usize,
}

impl Nats {
    /// Starts the nodes and creates the stream with a replica on each of them.
    pub(super) fn start(plan: &Plan, kind: Kind, directory: &Path) -> anyhow::Result<Self> {
        let program = match (&plan.programs, kind) {
            (Ok(programs), _) => programs.nats_server.as_path(),
            (Err(missing), Kind::Nats | Kind::NatsAlways) => bail!("{missing}"),
            // Ours needs no program of the rival.
            (Err(_), _) => Path::new(""),
        };
        let slow = plan.slow_sync.as_deref();
        let servers = Servers::start_slow(kind, plan.nodes, directory, program, slow)?;
        let addrs = servers.addrs();
        load::create_streams(addrs[0], 1, plan.nodes)?;
        Ok(Self {
            servers,
            addrs,
            bytes: plan.bytes,
        })
    }
}

impl Running for Nats {
    fn caller(&self, number: usize) -> anyhow::Result<Box<dyn Caller>> {
        let connection = Connection::open(self.addrs[number % self.addrs.len()])?;
        let request = connection.request(FIRST_STREAM, &vec![b'x'; self.bytes]);
        Ok(Box::new(Publisher {
            connection,
            request,
        }))
    }

    fn processes(&self) -> anyhow::Result<Vec<u32>> {
        Ok(self.servers.pids())
    }

    fn cpu_s(&self) -> anyhow::Result<Option<f64>> {
        Ok(Some(self.servers.cpu_s()?.iter().sum()))
    }
}

struct Publisher {
    connection: Connection,
    request: Vec<u8>,
}

impl Caller for Publisher {
    fn call(&mut self) -> anyhow::Result<()> {
        self.connection.send(&self.request)?;
        self.connection.ack()
    }
}

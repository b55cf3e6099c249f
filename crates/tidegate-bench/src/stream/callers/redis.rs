//! Callers that append to a stream of a Redis server with `appendfsync always`: Redis syncs its file before
//! it answers.

use std::path::Path;

use super::Running;
use super::load::Caller;
use crate::redis::server::{Connection, Persistence, Server, command};

/// A running Redis server.
pub(super) struct Redis {
    server: Server,
    bytes: usize,
}

impl Redis {
    /// Starts the server with its file in `directory`.
    pub(super) fn start(directory: &Path, bytes: usize) -> anyhow::Result<Self> {
        let server = Server::start(directory, Persistence::Always)?;
        Ok(Self { server, bytes })
    }
}

impl Running for Redis {
    fn caller(&self, _: usize) -> anyhow::Result<Box<dyn Caller>> {
        let payload = "x".repeat(self.bytes);
        let connection = Connection::open(self.server.addr())?;
        let request = command(&["XADD", "bench", "*", "m", &payload]);
        Ok(Box::new(Appender {
            connection,
            request,
        }))
    }

    fn processes(&self) -> anyhow::Result<Vec<u32>> {
        self.server.guard().processes()
    }

    fn cpu_s(&self) -> anyhow::Result<Option<f64>> {
        Ok(Some(self.server.guard().cpu_s()?))
    }
}

struct Appender {
    connection: Connection,
    request: Vec<u8>,
}

impl Caller for Appender {
    fn call(&mut self) -> anyhow::Result<()> {
        self.connection.call(&self.request)
    }
}

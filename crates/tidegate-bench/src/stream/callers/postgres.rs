//! Callers that insert single rows into PostgreSQL, each by a prepared statement in a transaction of its own.
//! With its default settings the server syncs its log before it answers.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use bytes::BytesMut;
use postgres_protocol::IsNull;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;

use super::Running;
use super::load::Caller;
use crate::guard::{cpu_s_below, processes_below};
use crate::postgres::{DATABASE, PATIENCE, Server, USER, programs};
use tidegate_cli::interrupt;

/// The statement that creates the table: as plain as a stream, with a number for each row and a payload.
const TABLE: &str = "CREATE TABLE message (seq bigserial PRIMARY KEY, payload bytea NOT NULL)";
const INSERT: &str = "INSERT INTO message (payload) VALUES ($1)";
/// The name of the prepared statement on each connection.
const STATEMENT: &str = "insert";
/// The object id of the type `bytea`.
const BYTEA: u32 = 17;

/// A running PostgreSQL server with an empty table.
pub(super) struct Postgres {
    server: Server,
    bytes: usize,
}

impl Postgres {
    /// Starts the server and creates the table.
    pub(super) fn start(directory: &Path, bytes: usize) -> anyhow::Result<Self> {
        let server = Server::start(directory)?;
        let postgres = Self { server, bytes };
        let until = Instant::now() + PATIENCE;
        let mut connection = loop {
            match Connection::open(&postgres.server) {
                Ok(connection) => break connection,
                Err(e) if Instant::now() > until || interrupt::asked() => {
                    return Err(e.context(format!(
                        "PostgreSQL does not come up{}",
                        postgres.server.said()
                    )));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        frontend::query(TABLE, &mut connection.out)?;
        connection.call()?;
        Ok(postgres)
    }
}

impl Running for Postgres {
    fn caller(&self, _: usize) -> anyhow::Result<Box<dyn Caller>> {
        let mut connection = Connection::open(&self.server)?;
        frontend::parse(STATEMENT, INSERT, [BYTEA], &mut connection.out)?;
        frontend::sync(&mut connection.out);
        connection.call()?;
        let mut request = BytesMut::new();
        let payload = vec![b'x'; self.bytes];
        let bound = frontend::bind(
            "",
            STATEMENT,
            [1],
            [&payload],
            |value, out| {
                out.extend_from_slice(value);
                Ok(IsNull::No)
            },
            [1],
            &mut request,
        );
        ensure!(bound.is_ok(), "a payload of {} bytes", self.bytes);
        frontend::execute("", 0, &mut request)?;
        frontend::sync(&mut request);
        Ok(Box::new(Inserter {
            connection,
            request,
        }))
    }

    fn processes(&self) -> anyhow::Result<Vec<u32>> {
        processes_below(self.server.guard_pid())
    }

    fn cpu_s(&self) -> anyhow::Result<Option<f64>> {
        Ok(Some(cpu_s_below(self.server.guard_pid())?))
    }
}

struct Inserter {
    connection: Connection,
    request: BytesMut,
}

impl Caller for Inserter {
    fn call(&mut self) -> anyhow::Result<()> {
        self.connection.socket.write_all(&self.request)?;
        self.connection.settle()
    }
}

/// A connection of the protocol's version 3. The crate `postgres-protocol` encodes and decodes its messages.
struct Connection {
    socket: TcpStream,
    out: BytesMut,
    read: BytesMut,
}

impl Connection {
    fn open(server: &Server) -> anyhow::Result<Self> {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port()))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut connection = Self {
            socket,
            out: BytesMut::new(),
            read: BytesMut::new(),
        };
        let named = [("user", USER), ("database", DATABASE)];
        frontend::startup_message(named, &mut connection.out)?;
        connection.log_in(server.password().as_bytes())?;
        Ok(connection)
    }

    fn log_in(&mut self, password: &[u8]) -> anyhow::Result<()> {
        let mut scram = ScramSha256::new(password, ChannelBinding::unsupported());
        self.send()?;
        loop {
            match self.message()? {
                Message::AuthenticationSasl(_) => {
                    frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), &mut self.out)?;
                }
                Message::AuthenticationSaslContinue(body) => {
                    scram.update(body.data())?;
                    frontend::sasl_response(scram.message(), &mut self.out)?;
                }
                Message::AuthenticationSaslFinal(body) => scram.finish(body.data())?,
                Message::ReadyForQuery(_) => return Ok(()),
                Message::ErrorResponse(_) => bail!("PostgreSQL refuses the connection"),
                _ => {}
            }
            self.send()?;
        }
    }

    fn send(&mut self) -> anyhow::Result<()> {
        self.socket.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    fn call(&mut self) -> anyhow::Result<()> {
        self.send()?;
        self.settle()
    }

    /// Reads until the server is ready for the next request.
    fn settle(&mut self) -> anyhow::Result<()> {
        let mut refused = false;
        loop {
            match self.message()? {
                Message::ErrorResponse(_) => refused = true,
                Message::ReadyForQuery(_) => break,
                _ => {}
            }
        }
        ensure!(!refused, "PostgreSQL refuses the statement");
        Ok(())
    }

    fn message(&mut self) -> anyhow::Result<Message> {
        loop {
            if let Some(message) = Message::parse(&mut self.read)? {
                return Ok(message);
            }
            let mut bytes = [0; 4096];
            let got = self.socket.read(&mut bytes)?;
            ensure!(got > 0, "PostgreSQL closed the connection");
            self.read
                .extend_from_slice(bytes.get(..got).context("a read beyond its end")?);
        }
    }
}

/// Returns the version of the PostgreSQL server that the bench starts; `None` without one.
pub(super) fn version() -> Option<String> {
    let program = programs().ok()?.join("postgres");
    let output = Command::new(program).arg("--version").output().ok()?;
    version_in(&String::from_utf8(output.stdout).ok()?)
}

/// Returns the version in a text such as `postgres (PostgreSQL) 15.8 (Debian 15.8-1)`.
fn version_in(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("(PostgreSQL) ")?;
    Some(rest.split_whitespace().next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read() {
        let text = "postgres (PostgreSQL) 15.8 (Debian 15.8-0+deb12u1)\n";
        assert_eq!(version_in(text).as_deref(), Some("15.8"));
        assert_eq!(version_in("none"), None);
    }
}

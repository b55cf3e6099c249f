//! Callers that append records to one partition of a single Kafka node with `log.flush.interval.messages=1`:
//! Kafka then syncs the partition's file after each append, before it answers.
//!
//! A caller has a producer of its own, or all callers share a producer, which sends the records of all
//! waiting callers as one batch. Kafka's own producer works in the second way. The bench sends Kafka's
//! requests itself, because its callers block, as those of every other system do, and because a JVM on the
//! callers' side would cost more than the requests.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail, ensure};

use super::load::Caller;
use super::{Running, kafka_wire as wire, peer};
use crate::guard::{Guard, free_ports};

/// The folder of Kafka's jars below bench/peers.
const JARS: &str = "kafka/_build/lib";
const TOPIC: &str = "bench";
/// The id of the cluster, which Kafka wants in base64.
const CLUSTER: &str = "dGlkZWdhdGUtYmVuY2gtMQ";
/// The options of the JVM that Kafka's own script sets.
const JVM: &[&str] = &[
    "-Xms1G",
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
];
/// The longest time that the server may take to start, and to answer.
const PATIENCE: Duration = Duration::from_secs(240);
/// The time for which the callers call before a measurement, so that the JVM compiles the path of a request.
const WARM_UP: Duration = Duration::from_secs(5);
/// The most bytes of an answer that the bench accepts, to bound its memory.
const ANSWER_MAX: usize = 1 << 20;

/// The producers of the callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Producers {
    /// Each caller has one.
    Each,
    /// All callers share one.
    Shared,
}

/// A running Kafka node.
pub(super) struct Kafka {
    guard: Guard,
    addr: SocketAddr,
    bytes: usize,
    shared: Option<Arc<Shared>>,
}

impl Kafka {
    /// Starts the node with its files in `directory`, and waits until it appends a record.
    pub(super) fn start(
        directory: &Path,
        bytes: usize,
        producers: Producers,
    ) -> anyhow::Result<Self> {
        let jars = peer(JARS, "kafka")?;
        let [addr, controller] = free_ports()?;
        let file = directory.join("server.properties");
        std::fs::write(&file, properties(addr, controller, &directory.join("data")))?;
        prepare(&jars, &file)?;
        let mut command = java(&jars, JVM);
        command.arg("kafka.Kafka").arg(&file);
        let guard = Guard::start(&command, &directory.join("log"))?;
        guard.wait_ready(PATIENCE, || {
            let mut connection = Connection::open(addr)?;
            wire::created(connection.ask(&wire::create_topic(TOPIC)?)?)?;
            let record = wire::produce(TOPIC, b"ready", 1, now_ms()?)?;
            wire::produced(connection.ask(&record)?)
        })?;
        let shared = match producers {
            Producers::Each => None,
            Producers::Shared => Some(Arc::new(Shared::new(Connection::open(addr)?, bytes))),
        };
        Ok(Self {
            guard,
            addr,
            bytes,
            shared,
        })
    }
}

impl Running for Kafka {
    fn caller(&self, _: usize) -> anyhow::Result<Box<dyn Caller>> {
        if let Some(shared) = &self.shared {
            return Ok(Box::new(Sharer(Arc::clone(shared))));
        }
        let payload = vec![b'x'; self.bytes];
        Ok(Box::new(Producer {
            connection: Connection::open(self.addr)?,
            request: wire::produce(TOPIC, &payload, 1, now_ms()?)?,
        }))
    }

    fn processes(&self) -> anyhow::Result<Vec<u32>> {
        self.guard.processes()
    }

    fn cpu_s(&self) -> anyhow::Result<Option<f64>> {
        Ok(Some(self.guard.cpu_s()?))
    }

    fn warm_up(&self) -> Duration {
        WARM_UP
    }
}

/// A caller with a producer of its own.
struct Producer {
    connection: Connection,
    request: Vec<u8>,
}

impl Caller for Producer {
    fn call(&mut self) -> anyhow::Result<()> {
        wire::produced(self.connection.ask(&self.request)?)
    }
}

/// A caller that shares a producer.
struct Sharer(Arc<Shared>);

impl Caller for Sharer {
    fn call(&mut self) -> anyhow::Result<()> {
        self.0.call()
    }
}

/// A producer with one request in flight. The callers that come meanwhile wait for the next request, which
/// has a record for each of them; one of them sends it.
struct Shared {
    payload: Vec<u8>,
    state: Mutex<State>,
    answered: Condvar,
}

struct State {
    /// The connection; `None` while a caller sends a request.
    connection: Option<Connection>,
    /// The callers that wait for the next request.
    waiting: usize,
    /// The number of the next request, and of requests that the server has answered.
    next: u64,
    done: u64,
    /// The reason for which the producer accepts nothing more.
    failure: Option<String>,
}

impl Shared {
    fn new(connection: Connection, bytes: usize) -> Self {
        Self {
            payload: vec![b'x'; bytes],
            state: Mutex::new(State {
                connection: Some(connection),
                waiting: 0,
                next: 0,
                done: 0,
                failure: None,
            }),
            answered: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self) -> anyhow::Result<()> {
        let mut state = self.state();
        let mine = state.next;
        state.waiting += 1;
        loop {
            if let Some(failure) = &state.failure {
                bail!("{failure}");
            }
            if state.done > mine {
                return Ok(());
            }
            let free = match state.next == mine {
                true => state.connection.take(),
                false => None,
            };
            let Some(mut connection) = free else {
                let woken = self.answered.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let records = std::mem::take(&mut state.waiting);
            state.next += 1;
            drop(state);
            let sent = self.send(&mut connection, records);
            state = self.state();
            state.connection = Some(connection);
            state.done = mine + 1;
            state.failure = sent.err().map(|e| format!("{e:#}"));
            self.answered.notify_all();
        }
    }

    fn send(&self, connection: &mut Connection, records: usize) -> anyhow::Result<()> {
        let request = wire::produce(TOPIC, &self.payload, records, now_ms()?)?;
        wire::produced(connection.ask(&request)?)
    }
}

/// A connection with one request in flight.
struct Connection {
    socket: TcpStream,
    answer: Vec<u8>,
}

impl Connection {
    fn open(addr: SocketAddr) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(addr)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            socket,
            answer: Vec::new(),
        })
    }

    /// Sends a request and returns its answer without the length.
    fn ask(&mut self, request: &[u8]) -> anyhow::Result<&[u8]> {
        self.socket.write_all(request)?;
        let mut bytes = [0; 4];
        self.socket.read_exact(&mut bytes)?;
        let bytes = usize::try_from(i32::from_be_bytes(bytes))?;
        ensure!(bytes <= ANSWER_MAX, "an answer of {bytes} bytes");
        self.answer.resize(bytes, 0);
        self.socket.read_exact(&mut self.answer)?;
        Ok(&self.answer)
    }
}

/// Returns the settings of a node that is its own controller, and that syncs each append.
fn properties(addr: SocketAddr, controller: SocketAddr, data: &Path) -> String {
    let data = data.display();
    format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         controller.quorum.voters=1@{controller}\n\
         listeners=PLAINTEXT://{addr},CONTROLLER://{controller}\n\
         advertised.listeners=PLAINTEXT://{addr}\n\
         controller.listener.names=CONTROLLER\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
         log.dirs={data}\n\
         log.flush.interval.messages=1\n\
         num.partitions=1\n\
         default.replication.factor=1\n\
         min.insync.replicas=1\n\
         offsets.topic.replication.factor=1\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n"
    )
}

/// Prepares the node's directory, which Kafka wants before its first start.
fn prepare(jars: &Path, file: &Path) -> anyhow::Result<()> {
    let mut command = java(jars, &[]);
    command.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c"]);
    let output = command
        .arg(file)
        .stdin(Stdio::null())
        .output()
        .context("java does not start: bench/peers/install.sh kafka")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    ensure!(
        output.status.success(),
        "Kafka does not format its directory: {}",
        last.unwrap_or("it says nothing")
    );
    Ok(())
}

fn java(jars: &Path, options: &[&str]) -> Command {
    let mut command = Command::new("java");
    command.args(options).arg("-cp").arg(jars.join("*"));
    command
}

fn now_ms() -> anyhow::Result<i64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(i64::try_from(since.as_millis())?)
}

/// Returns the version in the name of Kafka's jar; `None` without Kafka.
pub(super) fn version() -> Option<String> {
    let jars = std::fs::read_dir(peer(JARS, "kafka").ok()?).ok()?;
    let names = jars.flatten().map(|jar| PathBuf::from(jar.file_name()));
    names
        .into_iter()
        .find_map(|name| version_in(name.to_str()?))
}

/// Returns the version in a name such as `kafka_2.13-4.1.1.jar`.
fn version_in(name: &str) -> Option<String> {
    let (_, version) = name.strip_prefix("kafka_")?.split_once('-')?;
    Some(version.strip_suffix(".jar")?.to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_node_syncs_each_append() {
        let [addr, controller] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let text = properties(addr, controller, Path::new("/data"));
        for line in [
            "log.flush.interval.messages=1",
            "controller.quorum.voters=1@127.0.0.1:2",
            "log.dirs=/data",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }

    #[test]
    fn the_version_is_that_of_the_jar() {
        assert_eq!(version_in("kafka_2.13-4.1.1.jar").as_deref(), Some("4.1.1"));
        assert_eq!(version_in("kafka-clients-4.1.1.jar"), None);
    }

    /// Answers produce requests as Kafka does. Returns the number of requests and of records.
    fn serve(listener: &TcpListener) -> (usize, usize) {
        let (mut socket, _) = listener.accept().unwrap();
        let (mut requests, mut records) = (0, 0);
        let mut bytes = [0; 4];
        while socket.read_exact(&mut bytes).is_ok() {
            let mut request = vec![0; usize::try_from(i32::from_be_bytes(bytes)).unwrap()];
            socket.read_exact(&mut request).unwrap();
            // The head, the fields of the request and those of the batch before the number of records.
            let at = 10 + 2 + 2 + 4 + 4 + 2 + TOPIC.len() + 4 + 4 + 4 + 57;
            let count = request[at..at + 4].try_into().unwrap();
            requests += 1;
            records += usize::try_from(i32::from_be_bytes(count)).unwrap();
            let answer = [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            let bytes = i32::try_from(answer.len()).unwrap().to_be_bytes();
            socket.write_all(&[&bytes[..], &answer].concat()).unwrap();
        }
        (requests, records)
    }

    #[test]
    fn callers_of_a_shared_producer_are_answered_together() {
        const CALLERS: usize = 8;
        const CALLS: usize = 50;
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let connection = Connection::open(listener.local_addr().unwrap()).unwrap();
        let server = std::thread::spawn(move || serve(&listener));
        let shared = Shared::new(connection, 10);
        std::thread::scope(|scope| {
            for _ in 0..CALLERS {
                scope.spawn(|| (0..CALLS).for_each(|_| shared.call().unwrap()));
            }
        });
        drop(shared);
        let (requests, records) = server.join().unwrap();
        assert_eq!(records, CALLERS * CALLS);
        assert!(requests <= records);
    }

    #[test]
    fn a_failure_of_a_shared_producer_reaches_its_callers() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let connection = Connection::open(listener.local_addr().unwrap()).unwrap();
        drop(listener.accept().unwrap());
        let shared = Shared::new(connection, 10);
        assert!(shared.call().is_err() && shared.call().is_err());
    }
}

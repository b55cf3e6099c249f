//! Makes one measurement of the link: starts a server and its clients, and measures their throughput and
//! their cost.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use hdrhistogram::Histogram;
use tidegate_link::{Batch, Client, Server, ServerStats};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use super::{PAYLOAD, SPIN};
use crate::latency;
use crate::machine::Meter;
use crate::rounds::Sample;

/// The way in which the clients of a measurement send messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Each client sends many messages in one call of `send_many`, so that the link forms large batches.
    SendMany,
    /// Each client is one task, which sends one message after the other.
    Send,
    /// Each client is one thread, which sends many messages through the engine's queue.
    Producer,
    /// Each client sends many messages in one call of `send_many`, in the plain protocol, to compare both
    /// protocols of the link.
    Plain,
    /// Each client flushes each message before it sends the next message, so that each message travels in a
    /// batch of its own.
    Flushed,
    /// The server acknowledges each message of a client before the client sends the next, to measure round
    /// trips.
    LockStep { spin: bool },
    /// The server acknowledges each message of a client before the client sends the next, in the plain
    /// protocol.
    PlainLockStep,
}

impl Way {
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::SendMany => "send_many",
            Self::Send => "send",
            Self::Producer => "producer",
            Self::Plain => "plain send_many",
            Self::Flushed => "send, flush",
            Self::LockStep { .. } => "send_acked",
            Self::PlainLockStep => "plain send_acked",
        }
    }

    const fn spin(self) -> Duration {
        match self {
            Self::LockStep { spin: true } => SPIN,
            _ => Duration::ZERO,
        }
    }

    const fn is_plain(self) -> bool {
        matches!(self, Self::Plain | Self::PlainLockStep)
    }
}

/// Creates a tokio runtime of one thread, on which all clients of a measurement run.
pub(super) fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// A server of the link on a thread of its own. Its handler adds up the bytes of payloads, to check for
/// losses.
pub(super) struct Serving {
    pub(super) address: SocketAddr,
    pub(super) server: Arc<Server>,
    bytes: Arc<AtomicU64>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Serving {
    pub(super) fn start(spin: Duration) -> anyhow::Result<Self> {
        let bytes = Arc::new(AtomicU64::new(0));
        let sum = bytes.clone();
        let (end, ended) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let thread = thread::spawn(move || -> anyhow::Result<()> {
            runtime()?.block_on(async {
                let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
                let server = Server::builder().spin(spin).serve(listener, move |_| {
                    let sum = sum.clone();
                    Ok(move |batch: Batch<'_>| {
                        let bytes: usize = batch.map(<[u8]>::len).sum();
                        sum.fetch_add(bytes as u64, Relaxed);
                        Ok::<_, Infallible>(())
                    })
                })?;
                tell.send(Arc::new(server))?;
                // The server's thread waits here until the measurement drops its sender.
                let _ = ended.await;
                Ok(())
            })
        });
        let server = told.recv().context("the server did not start")?;
        Ok(Self {
            address: server.local_addr(),
            server,
            bytes,
            end: Some(end),
            thread: Some(thread),
        })
    }

    /// Ends the server. Returns the payload bytes that its handlers received, and its counters.
    pub(super) fn end(mut self) -> anyhow::Result<(u64, ServerStats)> {
        let stats = self.server.stats();
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok().context("the server panicked")??;
        }
        Ok((self.bytes.load(Relaxed), stats))
    }
}

/// Sends `messages` messages by `clients` clients, and measures the time up to the last acknowledgement.
pub(super) fn run(way: Way, clients: u64, messages: u64) -> anyhow::Result<Sample> {
    let serving = Serving::start(way.spin())?;
    let address = serving.address;
    let each = messages.div_ceil(clients);
    let (took, spent, trips, stats) = runtime()?.block_on(async {
        let mut linked = Vec::new();
        for _ in 0..clients {
            let builder = Client::builder().spin(way.spin());
            let builder = if way.is_plain() {
                builder.plain()
            } else {
                builder
            };
            linked.push(builder.connect(address.to_string()).await?);
        }
        let meter = Meter::start();
        let start = Instant::now();
        let tasks: Vec<_> = linked
            .into_iter()
            .map(|client| tokio::spawn(send(client, way, each)))
            .collect();
        let mut trips = latency::histogram();
        let (mut writes, mut bytes) = (0, 0);
        for task in tasks {
            let (of_one, stats) = task.await??;
            trips.add(of_one)?;
            writes += stats.writes;
            bytes += stats.bytes_written;
        }
        let took = start.elapsed();
        anyhow::Ok((took, meter.spent(), trips, (writes, bytes)))
    })?;
    let (seen, served) = serving.end()?;
    let sent = each * clients;
    anyhow::ensure!(
        seen == sent * PAYLOAD.len() as u64,
        "messages were lost or repeated"
    );
    let mut sample = Sample {
        ops_per_s: sent as f64 / took.as_secs_f64(),
        batches: Some(served.batches as f64),
        batch_mean: Some(sent as f64 / served.batches.max(1) as f64),
        cpu_s: Some(spent.cpu.as_secs_f64()),
        allocs: Some(spent.allocs as f64),
        ..Sample::default()
    };
    latency::put(&mut sample, &trips);
    let cpu_ns = spent.cpu.as_nanos() as f64 / sent as f64;
    let extra = [
        ("cpu_ns_a_message", cpu_ns),
        ("messages_an_ack", sent as f64 / served.acks.max(1) as f64),
        ("bytes_a_write", stats.1 as f64 / stats.0.max(1) as f64),
        (
            "bytes_a_read",
            served.bytes_read as f64 / served.reads.max(1) as f64,
        ),
        (
            "ack_core_share",
            served.ack_cost_ns as f64 / took.as_nanos() as f64,
        ),
    ];
    sample
        .extra
        .extend(extra.map(|(key, value)| (key.into(), value)));
    Ok(sample)
}

async fn send(
    client: Client,
    way: Way,
    messages: u64,
) -> anyhow::Result<(Histogram<u64>, tidegate_link::ClientStats)> {
    let mut trips = latency::histogram();
    match way {
        Way::SendMany | Way::Plain => {
            client.send_many((0..messages).map(|_| PAYLOAD)).await?;
        }
        Way::Send => {
            for _ in 0..messages {
                client.send(&PAYLOAD).await?;
            }
        }
        Way::Producer => {
            let mut producer = client.producer();
            let pushing = move || (0..messages).try_for_each(|_| producer.blocking_push(&PAYLOAD));
            tokio::task::spawn_blocking(pushing).await??;
        }
        Way::Flushed => {
            for _ in 0..messages {
                client.send(&PAYLOAD).await?;
                client.flush().await?;
            }
        }
        Way::LockStep { .. } | Way::PlainLockStep => {
            for _ in 0..messages {
                let sent = Instant::now();
                client.send_acked(&PAYLOAD).await?;
                // The histogram grows as needed, so `record` does not fail.
                let _ = trips.record(sent.elapsed().as_nanos() as u64);
            }
        }
    }
    let counted = client.clone();
    client.close().await?;
    Ok((trips, counted.stats()))
}

//! Measures actors with callers that are tasks: a lone call through both kinds of actor, beside the loop that
//! a user of tokio would write; and 16 or 64 callers of a handler that awaits a server.
//!
//! `cargo bench -p tidegate --features tokio --bench callers [-- [--json] [PART OF A NAME]]`. A cell is a
//! workload, and its contestants are programs that do it. Each round runs all contestants of a cell, one
//! after the other. A ratio compares two contestants in the same round; the bench prints the median of the
//! ratios, with the smallest and the largest.

use std::error::Error;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tidegate::batcher::{AsyncHandler, Batch, Builder, Flow, Handle, Handled, Handler, Op};
use tidegate::controller::{Fixed, Greedy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout_at;

type Failure = Box<dyn Error + Send + Sync>;

const ROUNDS: usize = 9;
const WARM: u64 = 2_000;
const LONE: u64 = 50_000;
const RUN: Duration = Duration::from_millis(800);
const LINGER: Duration = Duration::from_millis(1);
/// The default capacity of an actor.
const CAPACITY: usize = 16_384;

fn main() -> Result<(), Failure> {
    let is_json = std::env::args().any(|arg| arg == "--json");
    let mut args = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench" && arg != "--json");
    let only = args.next().unwrap_or_default();
    // `cargo test --benches` passes this flag, as to a bench of criterion. The program then measures nothing.
    if only == "--test" {
        return Ok(());
    }
    let cells = [lone_task(1), lone_task(2), lone_thread(1), lone_thread(2)]
        .into_iter()
        .chain([1, 2].into_iter().flat_map(|workers| {
            [4, 16, 64].map(|callers| round_trips(workers, callers, Duration::from_millis(1)))
        }))
        .chain([16, 64].map(|callers| round_trips(1, callers, Duration::from_millis(4))));
    let mut rows = Vec::new();
    for cell in cells.filter(|cell| cell.name.contains(&only)) {
        let rounds = cell.run()?;
        if is_json {
            eprintln!("{} (load {})", cell.name, load());
            rows.extend(cell.rows(&rounds));
        } else {
            cell.print(&rounds);
        }
    }
    if is_json {
        println!("{{\"bench\":\"callers\",\"rows\":[{}]}}", rows.join(","));
    }
    Ok(())
}

// ---- the cells (workloads) of the bench

/// A workload, with the contestants that do it. The ratios compare each contestant with the first.
struct Cell {
    name: String,
    /// The name of the figure that the ratios compare, for the printed line.
    figure: &'static str,
    contestants: Vec<(&'static str, Contestant)>,
}

/// A function that returns one figure of a sample.
type Figure = fn(&Sample) -> f64;

type Contestant = Box<dyn Fn() -> Result<Sample, Failure>>;

/// The result of one run of one contestant: the figure of the cell, and its costs.
#[derive(Clone, Copy)]
struct Sample {
    /// The value of the figure that the ratios compare.
    figure: f64,
    cpu_ns: f64,
    wall_ns: f64,
    /// The mean number of items in a batch; 0 if the contestant does not count its batches.
    batch: f64,
}

impl Cell {
    /// Runs all rounds. Returns the samples of each round, in the order of the contestants.
    fn run(&self) -> Result<Vec<Vec<Sample>>, Failure> {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let samples = self.contestants.iter().map(|(_, run)| run());
            rounds.push(samples.collect::<Result<Vec<_>, _>>()?);
        }
        Ok(rounds)
    }

    fn print(&self, rounds: &[Vec<Sample>]) {
        println!("{} (load {})", self.name, load());
        for (at, (name, _)) in self.contestants.iter().enumerate() {
            let of =
                |value: fn(&Sample) -> f64| spread(rounds.iter().map(|round| value(&round[at])));
            let ratios = rounds
                .iter()
                .map(|round| round[at].figure / round[0].figure);
            let (ratio, least, most) = spread(ratios);
            println!(
                "  {name:24} {}: {:9.0}, x {ratio:.2} ({least:.2}..{most:.2}); CPU {:6.0} ns a call, {:8.1} us each, batch {:.1}",
                self.figure,
                of(|s| s.figure).0,
                of(|s| s.cpu_ns).0,
                of(|s| s.wall_ns).0 / 1e3,
                of(|s| s.batch).0,
            );
        }
    }

    /// Formats a row for each contestant as JSON, in the form of the documents of `tidegate-bench`. The row
    /// of the default controller has the ratios of its figures to those of each other contestant.
    fn rows(&self, rounds: &[Vec<Sample>]) -> Vec<String> {
        let row = |at: usize| {
            let of =
                |value: fn(&Sample) -> f64| spread(rounds.iter().map(|round| value(&round[at]))).0;
            let (name, _) = self.contestants[at];
            let (system, controller) = match name.split_once(", ") {
                Some(("tidegate", controller)) => ("tidegate", format!("\"{controller}\"")),
                _ => (name, "null".to_owned()),
            };
            let calls = match self.figure {
                "calls/s" => of(|s| s.figure).to_string(),
                _ => "null".to_owned(),
            };
            let ratios = match name {
                "tidegate" => self.ratios(at, rounds),
                _ => String::new(),
            };
            format!(
                "{{\"system\":\"{system}\",\"controller\":{controller},\"case\":\"{}\",\"rounds\":{},\"ops_per_s\":{calls},\
                 \"mean_us\":{},\"client_cpu_us\":{},\"batch_mean\":{}{ratios}}}",
                self.name,
                rounds.len(),
                of(|s| s.wall_ns) / 1e3,
                of(|s| s.cpu_ns) / 1e3,
                of(|s| s.batch),
            )
        };
        (0..self.contestants.len()).map(row).collect()
    }

    /// Formats the medians of the ratios within the rounds, of the contestant at `ours` to each other.
    fn ratios(&self, ours: usize, rounds: &[Vec<Sample>]) -> String {
        let kinds: &[(&str, Figure)] = match self.figure {
            "calls/s" => &[
                ("ratio", |s| s.figure),
                ("mean_ratio", |s| s.wall_ns),
                ("cpu_ratio", |s| s.cpu_ns),
            ],
            _ => &[("mean_ratio", |s| s.wall_ns), ("cpu_ratio", |s| s.cpu_ns)],
        };
        let of_kind = |&(key, value): &(&str, Figure)| {
            let others = (0..self.contestants.len()).filter(|other| *other != ours);
            let ratios = others.map(|other| {
                let ratio = spread(
                    rounds
                        .iter()
                        .map(|round| value(&round[ours]) / value(&round[other])),
                )
                .0;
                format!(
                    "\"{}\":{ratio}",
                    self.contestants[other].0.replace("tidegate, ", "tidegate ")
                )
            });
            format!(",\"{key}\":{{{}}}", ratios.collect::<Vec<_>>().join(","))
        };
        kinds.iter().map(of_kind).collect()
    }
}

/// Returns the median, the smallest and the largest of `values`, to print a figure with its spread.
fn spread(values: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    (
        values[values.len() / 2],
        values[0],
        values[values.len() - 1],
    )
}

/// Compares contestants by calls that a task makes one after the other, with actors that are tasks.
fn lone_task(workers: usize) -> Cell {
    Cell {
        name: format!("lone call of a task actor, workers: {workers}"),
        figure: "CPU ns a call",
        contestants: vec![
            (
                "recv_many + oneshot",
                Box::new(move || on(workers, async { lone_calls(&Loop::start(Quick)).await })),
            ),
            (
                "tidegate",
                Box::new(move || {
                    on(workers, async {
                        lone_calls(&Builder::new().spawn_task(Echo).await?).await
                    })
                }),
            ),
            (
                "tidegate, greedy",
                Box::new(move || {
                    on(workers, async {
                        let builder = Builder::new().controller(Greedy.controller());
                        lone_calls(&builder.spawn_task(Echo).await?).await
                    })
                }),
            ),
        ],
    }
}

/// Compares contestants by calls that a task makes one after the other, with actors on threads.
fn lone_thread(workers: usize) -> Cell {
    Cell {
        name: format!("lone call of a thread actor by a task, workers: {workers}"),
        figure: "CPU ns a call",
        contestants: vec![
            (
                "std mpsc + oneshot",
                Box::new(move || on(workers, async { lone_calls(&Thread::start()).await })),
            ),
            (
                "tokio mpsc + oneshot",
                Box::new(move || on(workers, async { lone_calls(&BlockingLoop::start()).await })),
            ),
            (
                "tidegate",
                Box::new(move || {
                    on(workers, async {
                        lone_calls(&Builder::new().spawn(Echo)?).await
                    })
                }),
            ),
            (
                "tidegate, greedy",
                Box::new(move || {
                    on(workers, async {
                        let builder = Builder::new().controller(Greedy.controller());
                        lone_calls(&builder.spawn(Echo)?).await
                    })
                }),
            ),
        ],
    }
}

/// Compares contestants by callers in a closed loop, where the handler awaits a server. The server takes
/// `cost`, plus 10 us for each item, for a batch.
fn round_trips(workers: usize, callers: usize, cost: Duration) -> Cell {
    let closed = move |start: Start| -> Contestant {
        Box::new(move || {
            on(workers, async move {
                let server = Server::start(cost).await?;
                closed_loop(start, callers, server).await
            })
        })
    };
    Cell {
        name: format!(
            "{callers} callers, {} ms a batch, workers: {workers}",
            cost.as_millis()
        ),
        figure: "calls/s",
        contestants: vec![
            ("recv_many", closed(Start::Loop(false))),
            ("recv_many after a yield", closed(Start::Loop(true))),
            ("recv_many, linger 1 ms", closed(Start::Linger)),
            ("tidegate, linger 1 ms", closed(Start::Fixed)),
            ("tidegate, greedy", closed(Start::Greedy)),
            ("tidegate", closed(Start::Default)),
        ],
    }
}

/// Runs `future` as a task of a runtime of its own, so that all CPU time spent meanwhile belongs to this
/// task.
fn on<F>(workers: usize, future: F) -> Result<Sample, Failure>
where
    F: Future<Output = Result<Sample, Failure>> + Send + 'static,
{
    let runtime = runtime(workers)?;
    runtime.block_on(async { tokio::spawn(future).await })?
}

fn runtime(workers: usize) -> std::io::Result<Runtime> {
    match workers {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    }
    .worker_threads(workers)
    .enable_all()
    .build()
}

fn cpu_ns() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 * 1e9 + spent.tv_nsec as f64
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}

// ---- contestants for lone calls

/// A contestant that answers each call with the item of the call.
trait Callee: Send + Sync + 'static {
    fn call(&self, item: u64) -> impl Future<Output = Result<u64, Failure>> + Send;
}

impl Callee for Handle<u64, u64> {
    async fn call(&self, item: u64) -> Result<u64, Failure> {
        Ok(Self::call(self, item).await?)
    }
}

async fn lone_calls(callee: &impl Callee) -> Result<Sample, Failure> {
    for item in 0..WARM {
        callee.call(item).await?;
    }
    let (start, cpu) = (Instant::now(), cpu_ns());
    for item in 0..LONE {
        callee.call(item).await?;
    }
    let cpu_ns = (cpu_ns() - cpu) / LONE as f64;
    Ok(Sample {
        figure: cpu_ns,
        cpu_ns,
        wall_ns: start.elapsed().as_nanos() as f64 / LONE as f64,
        batch: 1.0,
    })
}

struct Echo;

impl Handler for Echo {
    type Item = u64;
    type Reply = u64;
    type Info = std::convert::Infallible;

    fn handle_batch(&mut self, batch: &mut Batch<u64, u64>) -> Handled {
        for op in batch.drain() {
            if let Op::Call(item, reply) = op {
                reply.send(item);
            }
        }
        Ok(Flow::Continue)
    }
}

struct Call {
    item: u64,
    answer: oneshot::Sender<u64>,
}

/// The work that a [`Loop`] does for each batch, in place of a handler.
trait Work: Send + 'static {
    fn work(&mut self, items: usize) -> impl Future<Output = Result<(), Failure>> + Send;
}

struct Quick;

impl Work for Quick {
    async fn work(&mut self, _: usize) -> Result<(), Failure> {
        Ok(())
    }
}

/// A contestant: the loop over a channel that a user of tokio writes in place of an actor.
struct Loop {
    calls: mpsc::Sender<Call>,
}

impl Loop {
    fn start(work: impl Work) -> Self {
        Self::start_with(work, None, false)
    }

    fn start_with(mut work: impl Work, linger: Option<usize>, yields: bool) -> Self {
        let (calls, mut received) = mpsc::channel::<Call>(CAPACITY);
        tokio::spawn(async move {
            let mut batch = Vec::new();
            let limit = linger.unwrap_or(1024);
            while received.recv_many(&mut batch, limit).await > 0 {
                let until = Instant::now() + LINGER;
                while linger.is_some() && batch.len() < limit {
                    let room = limit - batch.len();
                    let more = received.recv_many(&mut batch, room);
                    if !matches!(timeout_at(until.into(), more).await, Ok(1..)) {
                        break;
                    }
                }
                if work.work(batch.len()).await.is_err() {
                    return;
                }
                for call in batch.drain(..) {
                    let _ = call.answer.send(call.item);
                }
                if yields {
                    tokio::task::yield_now().await;
                }
            }
        });
        Self { calls }
    }
}

impl Callee for Loop {
    async fn call(&self, item: u64) -> Result<u64, Failure> {
        let (answer, answered) = oneshot::channel();
        self.calls.send(Call { item, answer }).await?;
        Ok(answered.await?)
    }
}

/// The contestant [`Loop`] on a thread, with the standard library's channel.
struct Thread {
    calls: std::sync::mpsc::SyncSender<Call>,
}

impl Thread {
    fn start() -> Self {
        let (calls, received) = std::sync::mpsc::sync_channel::<Call>(CAPACITY);
        std::thread::spawn(move || {
            let mut batch = Vec::new();
            while let Ok(call) = received.recv() {
                batch.push(call);
                batch.extend(received.try_iter().take(1023));
                for call in batch.drain(..) {
                    let _ = call.answer.send(call.item);
                }
            }
        });
        Self { calls }
    }
}

impl Callee for Thread {
    async fn call(&self, item: u64) -> Result<u64, Failure> {
        let (answer, answered) = oneshot::channel();
        self.calls.send(Call { item, answer })?;
        Ok(answered.await?)
    }
}

/// The contestant [`Loop`] on a thread, with tokio's channel.
struct BlockingLoop {
    calls: mpsc::Sender<Call>,
}

impl BlockingLoop {
    fn start() -> Self {
        let (calls, mut received) = mpsc::channel::<Call>(CAPACITY);
        std::thread::spawn(move || {
            let mut batch = Vec::new();
            while received.blocking_recv_many(&mut batch, 1024) > 0 {
                for call in batch.drain(..) {
                    let _ = call.answer.send(call.item);
                }
            }
        });
        Self { calls }
    }
}

impl Callee for BlockingLoop {
    async fn call(&self, item: u64) -> Result<u64, Failure> {
        let (answer, answered) = oneshot::channel();
        self.calls.send(Call { item, answer }).await?;
        Ok(answered.await?)
    }
}

// ---- contestants for callers in a closed loop

#[derive(Clone, Copy)]
enum Start {
    /// The loop with `recv_many`; true if the loop yields before it takes the next batch, so that callers can
    /// call again.
    Loop(bool),
    /// The loop with `recv_many`, with the number of callers as its limit and a linger of 1 ms.
    Linger,
    /// An actor with the same limit and linger as `Linger`.
    Fixed,
    Greedy,
    Default,
}

/// A server on a thread: it reads the number of items in a batch, sleeps, and answers.
struct Server {
    socket: tokio::net::TcpStream,
}

impl Server {
    async fn start(cost: Duration) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let at = listener.local_addr()?;
        std::thread::spawn(move || serve(listener, cost));
        let socket = tokio::net::TcpStream::connect(at).await?;
        socket.set_nodelay(true)?;
        Ok(Self { socket })
    }
}

fn serve(listener: TcpListener, cost: Duration) -> std::io::Result<()> {
    let (mut socket, _): (TcpStream, _) = listener.accept()?;
    socket.set_nodelay(true)?;
    let mut batch = [0; 8];
    loop {
        socket.read_exact(&mut batch)?;
        let items = u64::from_le_bytes(batch);
        std::thread::sleep(cost + Duration::from_micros(10 * items));
        socket.write_all(&batch)?;
    }
}

impl Work for Server {
    async fn work(&mut self, items: usize) -> Result<(), Failure> {
        let mut batch = (items as u64).to_le_bytes();
        self.socket.write_all(&batch).await?;
        self.socket.read_exact(&mut batch).await?;
        Ok(())
    }
}

/// A handler that awaits the server, and then answers the calls of its batch.
struct Remote {
    server: Server,
}

impl AsyncHandler for Remote {
    type Item = u64;
    type Reply = u64;
    type Info = std::convert::Infallible;

    async fn handle_batch(&mut self, batch: &mut Batch<u64, u64>) -> Handled {
        self.server.work(batch.len()).await?;
        Handler::handle_batch(&mut Echo, batch)
    }
}

async fn closed_loop(start: Start, callers: usize, server: Server) -> Result<Sample, Failure> {
    match start {
        Start::Loop(yields) => {
            let callee = Loop::start_with(server, None, yields);
            closed_calls(Arc::new(callee), callers).await
        }
        Start::Linger => {
            let callee = Loop::start_with(server, Some(callers), false);
            closed_calls(Arc::new(callee), callers).await
        }
        Start::Fixed => {
            let fixed = Fixed::new(callers as u64).with_linger(LINGER);
            ours(
                Builder::new().controller(fixed.controller()),
                callers,
                server,
            )
            .await
        }
        Start::Greedy => {
            let builder = Builder::new().controller(Greedy.controller());
            ours(builder, callers, server).await
        }
        Start::Default => ours(Builder::new(), callers, server).await,
    }
}

async fn ours(builder: Builder<u64>, callers: usize, server: Server) -> Result<Sample, Failure> {
    let handle = builder.spawn_task(Remote { server }).await?;
    let mut sample = closed_calls(Arc::new(handle.clone()), callers).await?;
    let stats = handle.stats();
    sample.batch = stats.items as f64 / stats.batches as f64;
    Ok(sample)
}

async fn closed_calls<C: Callee>(callee: Arc<C>, callers: usize) -> Result<Sample, Failure> {
    // Callers start one after the other, so that only the actor merges their calls.
    let mut tasks = Vec::new();
    let start = Instant::now() + RUN / 4;
    let end = start + RUN;
    for caller in 0..callers {
        let callee = Arc::clone(&callee);
        tasks.push(tokio::spawn(async move {
            tokio::time::sleep(Duration::from_micros(700 * caller as u64)).await;
            let mut calls = 0_u64;
            while Instant::now() < end {
                callee.call(calls).await?;
                calls += u64::from(Instant::now() >= start);
            }
            Ok::<_, Failure>(calls)
        }));
    }
    tokio::time::sleep_until(start.into()).await;
    let cpu = cpu_ns();
    let mut calls = 0;
    for task in tasks {
        calls += task.await??;
    }
    let calls = calls as f64;
    let took = start.elapsed().as_secs_f64();
    Ok(Sample {
        figure: calls / took,
        cpu_ns: (cpu_ns() - cpu) / calls,
        wall_ns: took * 1e9 * callers as f64 / calls,
        batch: 0.0,
    })
}

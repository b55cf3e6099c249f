//! `tidegate bench stream`: publishing into streams and reading them, ours beside nats-server as it comes and nats-server with a
//! sync before every acknowledgement, driven by the `nats` program where it can. Every server is a process with a directory of
//! its own and takes part in every round; processor time is the server's, from /proc, over the whole run of the load.

mod bare;
mod cell;
mod load;
mod nats;
mod server;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

use super::OURS;
use super::peers::Peers;
use super::rounds::{Contestant, Failure, Sample};
use super::session::Session;
use crate::args::{BenchArgs, Effort};
use cell::{Cell, Work, cells};
use load::Load;
use nats::Run;
use server::{Kind, Programs, Server};

/// The consumer `nats bench` reads through unless told otherwise.
const CONSUMER: &str = "nats-bench";
/// What a measurement should take. The first of a system finds out how many messages that is, and is not counted.
const WINDOW: Duration = Duration::from_millis(1500);

/// What this bench does unless told otherwise: three rounds where the cells are many.
pub(super) fn defaults(args: &BenchArgs) -> BenchArgs {
    let mut args = args.clone();
    if args.effort == Effort::Normal && args.full {
        args.rounds.get_or_insert(3);
    }
    args
}

/// Runs the cells.
pub(crate) fn run(session: &mut Session) -> anyhow::Result<()> {
    let programs = Programs::find()?;
    let version = programs.version();
    let window = if session.is_smoke() {
        Duration::from_millis(20)
    } else {
        WINDOW
    };
    let directory = Directory::make()?;
    session.say(&format!("data in {}", directory.0.display()));
    if directory.is_in_memory() {
        session.say("that is memory and no disk: syncs cost nothing there; set TIDEGATE_BENCH_DIR");
    }
    let field = RefCell::new(Field {
        programs,
        directory,
        servers: BTreeMap::new(),
        filled: BTreeMap::new(),
        window,
    });
    for cell in cells(session.args.full) {
        if session.wants(&cell.name) {
            let contestants = contestants(session.args.peers, version.as_ref(), &field, &cell);
            session.cell(&cell.name, contestants)?;
        }
    }
    Ok(())
}

/// Where the servers keep their files; gone with the bench.
struct Directory(PathBuf);

impl Directory {
    /// Below `TIDEGATE_BENCH_DIR`, or in the build directory, which is on a disk where the system's own may not be.
    fn make() -> anyhow::Result<Self> {
        let parent = match std::env::var_os("TIDEGATE_BENCH_DIR") {
            Some(directory) => PathBuf::from(directory),
            None => super::machine::upwards("target")
                .map_or_else(std::env::temp_dir, |root| root.join("target")),
        };
        let path = parent.join(format!("bench-stream-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }

    fn is_in_memory(&self) -> bool {
        const TMPFS: u64 = 0x0102_1994;
        rustix::fs::statfs(&self.0).is_ok_and(|fs| fs.f_type as u64 == TMPFS)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Left there it costs space and harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The servers, started when they are first wanted. They come before the directory: dropped first.
struct Field {
    servers: BTreeMap<Kind, Server>,
    /// Messages of this many bytes are in the reader's stream.
    filled: BTreeMap<Kind, (usize, u64)>,
    programs: Programs,
    directory: Directory,
    window: Duration,
}

impl Field {
    fn server(&mut self, kind: Kind) -> Result<&Server, Failure> {
        if !self.servers.contains_key(&kind) {
            let directory = self.directory.0.join(format!("{kind:?}"));
            let server = Server::start(kind, &directory, &self.programs.nats_server);
            let server = server.map_err(|e| format!("{e:#}"))?;
            self.servers.insert(kind, server);
        }
        self.servers.get(&kind).ok_or_else(|| "no server".into())
    }

    /// One run of so many messages, with what it cost the server.
    fn measure(&mut self, kind: Kind, cell: &Cell, messages: u64) -> Result<Sample, Failure> {
        if matches!(cell.work, Work::Consume | Work::Fetch) {
            self.fill(kind, cell, messages)?;
        }
        let program = self.programs.nats.clone();
        let server = self.server(kind)?;
        let text = |e: anyhow::Error| format!("{e:#}");
        // What another system left unwritten would be written by the first sync of this one.
        rustix::fs::sync();
        let before = server.cpu_s().map_err(text)?;
        let mut sample = load(&program, server, cell, messages)?;
        let cpu = server.cpu_s().map_err(text)? - before;
        sample.rss_mb = server.rss_mb();
        let mut put = |key: &str, value: f64| sample.extra.insert(key.into(), value);
        put("server_cpu_us", cpu * 1e6 / messages as f64);
        put("mb_per_s", sample.ops_per_s * cell.bytes as f64 / 1e6);
        Ok(sample)
    }

    /// Puts the messages there that a reader is to read.
    fn fill(&mut self, kind: Kind, cell: &Cell, messages: u64) -> Result<(), Failure> {
        let there = self.filled.get(&kind);
        if there.is_some_and(|(bytes, n)| *bytes == cell.bytes && *n >= messages) {
            return Ok(());
        }
        let program = self.programs.nats.clone();
        let server = self.server(kind)?;
        let args = publish("async", 10, cell.bytes, messages, "readers");
        Run::start(&program, server.addr(), &args)?.report()?;
        self.filled.insert(kind, (cell.bytes, messages));
        Ok(())
    }
}

/// Who takes part in a cell.
fn contestants<'a>(
    peers: bool,
    version: Option<&String>,
    field: &'a RefCell<Field>,
    cell: &'a Cell,
) -> Vec<Contestant<'a, Peers>> {
    let kinds: &[Kind] = match cell.work {
        Work::Slowed => &[Kind::OursSlow, Kind::OursSlowGreedy],
        _ if !peers => &[Kind::Ours],
        Work::Core { .. } => &[Kind::Ours, Kind::Nats],
        _ => &[Kind::Ours, Kind::Nats, Kind::NatsAlways],
    };
    let mut all: Vec<_> = kinds
        .iter()
        .map(|&kind| contestant(kind, version, field, cell))
        .collect();
    if cell.work == Work::Lone {
        all.push(Contestant {
            system: "bare write + fdatasync".into(),
            version: None,
            controller: None,
            subject: false,
            run: Box::new(move |_: &mut Peers| {
                let field = field.borrow();
                let (directory, window) = (field.directory.0.clone(), field.window);
                bare::run(&directory, cell.bytes, window).map_err(|e| format!("{e:#}"))
            }),
        });
    }
    all
}

fn contestant<'a>(
    kind: Kind,
    version: Option<&String>,
    field: &'a RefCell<Field>,
    cell: &'a Cell,
) -> Contestant<'a, Peers> {
    let (system, controller) = match kind {
        Kind::Ours | Kind::OursSlow => (OURS, None),
        Kind::OursSlowGreedy => (OURS, Some("without anticipation")),
        Kind::Nats => ("nats-server default", None),
        Kind::NatsAlways => ("nats-server always", None),
    };
    let version = match kind {
        Kind::Nats | Kind::NatsAlways => version.cloned(),
        _ => Some(env!("CARGO_PKG_VERSION").into()),
    };
    let mut messages = None;
    Contestant {
        system: system.into(),
        version,
        controller: controller.map(Into::into),
        subject: matches!(kind, Kind::Ours | Kind::OursSlow),
        run: Box::new(move |_: &mut Peers| {
            let mut field = field.borrow_mut();
            let messages = match messages {
                Some(messages) => messages,
                None => *messages.insert(calibrated(&mut field, kind, cell)?),
            };
            field.measure(kind, cell, messages)
        }),
    }
}

/// How many messages take the window: in two steps, for the first few are slower than the rest.
fn calibrated(field: &mut Field, kind: Kind, cell: &Cell) -> Result<u64, Failure> {
    let seconds = field.window.as_secs_f64();
    let (min, max) = (cell.messages_min(), cell.messages_max());
    let mut messages = min;
    for part in [0.2, 1.0] {
        let rate = field.measure(kind, cell, messages)?.ops_per_s;
        messages = ((rate * seconds * part) as u64).clamp(min, max);
    }
    Ok(messages)
}

fn load(program: &Path, server: &Server, cell: &Cell, messages: u64) -> Result<Sample, Failure> {
    let nats = |args: &[String]| Run::start(program, server.addr(), args)?.report();
    let raw = |streams, window| {
        let load = Load {
            clients: cell.clients,
            bytes: cell.bytes,
            streams,
            window,
            messages,
        };
        load.run(server.addr()).map_err(|e| format!("{e:#}"))
    };
    match cell.work {
        Work::Async => nats(&publish(
            "async",
            cell.clients,
            cell.bytes,
            messages,
            "bench",
        )),
        Work::Sync | Work::Slowed => nats(&publish(
            "sync",
            cell.clients,
            cell.bytes,
            messages,
            "bench",
        )),
        Work::Streams { streams, sync } => raw(streams, if sync { 1 } else { 500 }),
        Work::Lone => raw(1, 1),
        Work::Consume | Work::Fetch => {
            // The program leaves its consumer behind, with nothing left to read.
            let gone = load::delete_consumer(server.addr(), "readers", CONSUMER);
            gone.map_err(|e| format!("{e:#}"))?;
            let how = if cell.work == Work::Fetch {
                "fetch"
            } else {
                "consume"
            };
            nats(&read(how, messages))
        }
        Work::Core { subscribers } => core(program, server, cell.bytes, messages, subscribers),
    }
}

/// Messages a second at the subscribers, all together.
fn core(
    program: &Path,
    server: &Server,
    bytes: usize,
    messages: u64,
    subscribers: usize,
) -> Result<Sample, Failure> {
    let common = [
        format!("--msgs={messages}"),
        format!("--size={bytes}"),
        "--no-progress".into(),
    ];
    let args = |what: &str, more: &[String]| {
        let words = ["bench", what, "bench.core"].map(String::from);
        [&words[..], &common, more].concat()
    };
    let subscriptions = || server.subscriptions().map_err(|e| format!("{e:#}"));
    let wanted = subscriptions()? + subscribers as u64;
    let sub = Run::start(
        program,
        server.addr(),
        &args("sub", &[format!("--clients={subscribers}")]),
    )?;
    // They say that they are ready before they are: the server knows.
    for _ in 0..2000 {
        if subscriptions()? >= wanted {
            Run::start(program, server.addr(), &args("pub", &[]))?.report()?;
            return sub.report();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err("the subscribers do not come up".into())
}

fn publish(how: &str, clients: usize, bytes: usize, messages: u64, stream: &str) -> Vec<String> {
    let words = ["bench", "js", "pub", how, stream].map(String::from);
    let more = [
        format!("--stream={stream}"),
        format!("--clients={clients}"),
        format!("--msgs={messages}"),
        format!("--size={bytes}"),
    ];
    let fixed = [
        "--create",
        "--purge",
        "--maxbytes=8GB",
        "--replicas=1",
        "--storage=file",
        "--no-progress",
    ];
    [&words[..], &more, &fixed.map(String::from)].concat()
}

fn read(how: &str, messages: u64) -> Vec<String> {
    let words = [
        "bench",
        "js",
        how,
        "--stream=readers",
        "--batch=500",
        "--no-progress",
    ];
    let mut args = words.map(String::from).to_vec();
    args.push(format!("--msgs={messages}"));
    args
}

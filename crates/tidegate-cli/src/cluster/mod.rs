//! `tidegate cluster`: starts three or five nodes on this machine, each a `tidegate serve` process, to try
//! out a cluster.
//! This module prints the output of the nodes, and ends the nodes together with this process, even if this
//! process crashes. [`places`] makes the arguments of each node, and [`again`] the command that starts a node
//! by hand. `serve` implements the node itself.

mod again;
mod places;

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::Usage;
use crate::face;
use crate::interrupt;
use crate::output;
use crate::serve::{self, LogFormat};
use again::Again;
use places::{Place, Wanted, places};
use tidegate_nats::settings::{Account, User};
use tidegate_server::Settings;

/// The time that the nodes have to end by themselves, before this process kills them.
const PATIENCE: Duration = Duration::from_secs(60);

/// The arguments with which the user runs `tidegate cluster`.
#[derive(Args, Debug)]
pub(crate) struct ClusterArgs {
    /// Run this many nodes, to choose how many losses the cluster survives: three nodes survive the loss of
    /// one node, five nodes the loss of two.
    #[arg(long, value_name = "N", default_value = "3", value_parser = ["3", "5"])]
    nodes: String,
    /// Keep the nodes' streams in n1, n2, ... below this directory, also for the next start of the cluster.
    #[arg(long, value_name = "DIR", default_value = "tidegate-data")]
    data: PathBuf,
    /// Let the first node listen for clients on this address, and the other nodes on the next ports. Port 0
    /// lets the system choose free ports.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:4222")]
    listen: String,
    /// Let the first node's HTTP monitor listen on this port, and the other nodes' monitors on the next
    /// ports, for this machine only. 0 lets the system choose free ports.
    #[arg(long, alias = "http_port", value_name = "PORT", default_value_t = 8222)]
    http_port: u16,
    /// Let the first node listen for connections of the other nodes on this port, and the other nodes on the
    /// next ports, for this machine only. 0 lets the system choose free ports.
    #[arg(long, value_name = "PORT", default_value_t = 6222)]
    cluster_port: u16,
    /// Write each log line of a node in this form: as text behind the node's name, or as a JSON object with
    /// the members `node`, `timestamp`, `level` and `message`.
    #[arg(long, value_enum, value_name = "FORM", default_value_t)]
    log_format: LogFormat,
    /// Pass these further arguments to each `tidegate serve`, to set the nodes up in other ways.
    #[arg(last = true, value_name = "SERVE_FLAGS")]
    serve: Vec<OsString>,
}

/// An event of a node or of this process, which the main loop handles.
enum Event {
    Said(usize, String),
    /// The node of this index has ended and closed its output, so the user may need its command.
    Ended(usize),
    /// Every node reports on `/healthz` that it is healthy, so the cluster is ready for clients.
    Formed,
    /// The user or the system asked this process to end by a signal, so it must end the nodes.
    Asked,
}

/// The function that parses the words of a command line of `tidegate serve`, with the program's name first.
type ParseServe = fn(Vec<OsString>) -> Result<Box<serve::ServeArgs>, clap::Error>;

pub(crate) fn run(args: &ClusterArgs, parse: ParseServe) -> anyhow::Result<ExitCode> {
    let (host, port) = args
        .listen
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host, port.parse().ok()?)))
        .ok_or_else(|| Usage::new(format!("--listen {}: give HOST:PORT", args.listen)))?;
    let places = places(&Wanted {
        nodes: args.nodes.parse().map_err(Usage::new)?,
        host,
        ports: [port, args.http_port, args.cluster_port],
        data: &args.data,
    })?;
    let mut flags = args.serve.clone();
    if args.log_format == LogFormat::Json {
        flags.extend(["--log-format", "json"].map(OsString::from));
    }
    let settings = checked(&places, &flags, parse)?;
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let (sender, events) = sync_channel(256);
    let mut nodes = Nodes::default();
    for place in &places {
        std::fs::create_dir_all(&place.data).with_context(|| place.data.display().to_string())?;
        nodes.start(place, &places, &flags, &sender)?;
    }
    let asked = sender.clone();
    std::thread::spawn(move || {
        for _ in &mut signals {
            if asked.send(Event::Asked).is_err() {
                break;
            }
        }
    });
    nodes.watch(&places, &settings, &events, &sender)
}

/// Returns whether a node's log line is a warning or an error, in text or in JSON.
fn is_grave(line: &str) -> bool {
    [
        " WARN ",
        "ERROR ",
        "\"level\":\"WARN\"",
        "\"level\":\"ERROR\"",
    ]
    .iter()
    .any(|level| line.contains(level))
}

/// Returns a node's log line with the name of the node: as a member of a JSON object, else in front of the
/// line.
fn of_node(name: &str, line: &str) -> String {
    match line.strip_prefix('{') {
        // The names of the nodes are n1, n2 and so on, which need no escapes.
        Some(members) => format!("{{\"node\":\"{name}\",{members}"),
        None => format!("{name} | {line}"),
    }
}

/// Returns the arguments with which this process starts one node.
fn arguments(place: &Place, all: &[Place], more: &[OsString]) -> Vec<OsString> {
    let words = place.arguments(all).into_iter().chain(more.iter().cloned());
    serve::with_two_dashes(words)
}

/// Returns the settings of the first node, to check them before any node starts. The other nodes' settings
/// differ only in the addresses and the directory.
///
/// # Errors
/// A [`Usage`] for flags or settings that a start of the node would refuse.
fn checked(places: &[Place], more: &[OsString], parse: ParseServe) -> anyhow::Result<Settings> {
    let words = arguments(&places[0], places, more);
    let words = [OsString::from("tidegate")].into_iter().chain(words);
    match parse(words.collect()) {
        Ok(args) => args.checked(),
        Err(said) if said.use_stderr() => {
            let text = said.to_string();
            let lines = text.lines().take_while(|line| !line.is_empty()).map(str::trim);
            let text = lines.collect::<Vec<_>>().join(" ");
            let mistake = text.trim_start_matches("error: ");
            Err(Usage::new(format!("the flags after `--`: {mistake}")).into())
        }
        Err(_) => Err(Usage::new("the flags after `--`: give flags that start a node; `tidegate serve --help` lists them").into()),
    }
}

/// The nodes that this process has started and must end.
#[derive(Default)]
struct Nodes {
    children: Vec<Option<Child>>,
    /// The command line of each node, which this process prints if the node ends, so that the user can start
    /// it.
    commands: Vec<Again>,
}

impl Nodes {
    fn start(
        &mut self,
        place: &Place,
        all: &[Place],
        more: &[OsString],
        events: &SyncSender<Event>,
    ) -> anyhow::Result<()> {
        let program = std::env::current_exe()?;
        let arguments = arguments(place, all, more);
        self.commands.push(Again::new(&program, &arguments));
        let mut child = Command::new(program)
            .args(arguments)
            .args(["--with-parent", &std::process::id().to_string()])
            // Each node has a process group of its own, so that a Ctrl-C reaches this process only, which
            // asks the nodes to end.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", place.name))?;
        let log = child.stderr.take().context("no pipe")?;
        let (node, events) = (self.children.len(), events.clone());
        self.children.push(Some(child));
        std::thread::spawn(move || {
            for line in BufReader::new(log).lines().map_while(Result::ok) {
                if events.send(Event::Said(node, line)).is_err() {
                    return;
                }
            }
            // If the main loop has ended, the send fails, and no reader needs the event.
            let _ = events.send(Event::Ended(node));
        });
        Ok(())
    }

    /// Prints the nodes' events until all nodes have ended, also the nodes that the user started again by
    /// hand.
    fn watch(
        mut self,
        places: &[Place],
        settings: &Settings,
        events: &Receiver<Event>,
        sender: &SyncSender<Event>,
    ) -> anyhow::Result<ExitCode> {
        let mut ready = vec![false; places.len()];
        let mut stopping: Option<Instant> = None;
        let mut failed = None;
        let mut by_hand = false;
        while self.is_running() || stopping.is_none() && nodes_by_hand(places, &mut by_hand) {
            let event = match events.recv_timeout(Duration::from_millis(200)) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => {
                    if stopping.is_some_and(|since| since.elapsed() > PATIENCE) {
                        self.signal(Signal::KILL);
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            match event {
                Event::Said(node, line) => {
                    if face::chats() || is_grave(&line) {
                        face::complain(of_node(&places[node].name, &line));
                    }
                    if line.contains("Server is ready") && !ready[node] {
                        ready[node] = true;
                        if ready.iter().all(|ready| *ready) {
                            await_formed(places, sender.clone());
                        }
                    }
                }
                Event::Formed if stopping.is_none() => {
                    if let Err(error) = announce(places) {
                        // The nodes serve clients, also without this announcement.
                        face::complain(format_args!(
                            "tidegate: the nodes serve clients, but the command cannot print their addresses: {error:#}"
                        ));
                    }
                    if let Some(needed) = credentials(settings) {
                        face::note(needed);
                    }
                }
                Event::Formed => {}
                Event::Ended(node) => {
                    let Some(mut child) = self.children[node].take() else {
                        continue;
                    };
                    let status = child.wait()?;
                    if stopping.is_some() {
                        continue;
                    }
                    let name = &places[node].name;
                    let how = spelled(status);
                    if ready.iter().all(|ready| *ready) {
                        let again = &self.commands[node];
                        face::complain(format_args!("tidegate: {name} {how}; {again}"));
                        failed.get_or_insert_with(|| "every node has ended".to_owned());
                    } else {
                        failed = Some(format!("{name} {how} before it was ready"));
                        stopping = Some(Instant::now());
                        self.signal(Signal::TERM);
                    }
                }
                Event::Asked => {
                    failed = None;
                    stopping.get_or_insert_with(Instant::now);
                    self.signal(Signal::TERM);
                }
            }
        }
        match failed {
            Some(failure) => bail!(failure),
            None => Ok(interrupt::exit_code()),
        }
    }

    /// Returns whether a node runs that this process has started, so that the main loop must wait for it.
    fn is_running(&self) -> bool {
        self.children.iter().any(Option::is_some)
    }

    fn signal(&self, signal: Signal) {
        for child in self.children.iter().flatten() {
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                // This process has not reaped the child yet, so the id still belongs to the child, and the
                // signal reaches no other process.
                let _ = kill_process(pid, signal);
            }
        }
    }
}

/// Returns whether nodes run that the user started again. Prints a note about them the first time, because
/// this process cannot end them.
fn nodes_by_hand(places: &[Place], said: &mut bool) -> bool {
    let found = places.iter().any(|place| places::answers(place.http));
    if found && !std::mem::replace(said, true) {
        face::note(
            "only nodes that were started by hand are left: the command waits for their end",
        );
    }
    found
}

/// Asks each node's `/healthz` on a thread until all nodes are healthy, and then sends [`Event::Formed`].
fn await_formed(places: &[Place], events: SyncSender<Event>) {
    let at: Vec<_> = places.iter().map(|place| place.http).collect();
    std::thread::spawn(move || {
        while !at.iter().all(|at| places::is_healthy(*at)) {
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = events.send(Event::Formed);
    });
}

/// Prints only the addresses and the data directory of every node to standard output, for scripts.
fn announce(places: &[Place]) -> anyhow::Result<()> {
    let mut text = String::new();
    for place in places {
        let (name, url, data) = (&place.name, place.url(), place.data.display());
        text += &format!("{name}  {url}  http://{}  {data}\n", place.http);
    }
    let urls: Vec<_> = places.iter().map(Place::url).collect();
    text += &format!("the cluster is ready: {}\n", urls.join(","));
    output::print(text)
}

/// Returns a note that shows the form of a URL with the clients' credentials, without any secret; `None` if
/// clients need no credentials.
fn credentials(settings: &Settings) -> Option<String> {
    let sessions = &settings.sessions;
    if sessions.is_open() || sessions.no_auth_user.is_some() {
        return None;
    }
    let of_clients = |u: &&Arc<User>| u.account == Account::Global;
    let users: Vec<_> = sessions.users.iter().filter(of_clients).collect();
    let (what, form) = match &users[..] {
        [] => (
            "the token of --auth, TIDEGATE_AUTH or the configuration".into(),
            "TOKEN".into(),
        ),
        [one] => (
            format!("the password of the user {}", one.name),
            format!("{}:PASSWORD", one.name),
        ),
        _ => (
            "a user of the configuration".into(),
            "USER:PASSWORD".to_owned(),
        ),
    };
    Some(format!(
        "clients need {what}, as in nats://{form}@HOST:PORT"
    ))
}

fn spelled(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("has ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "has ended".into(),
    }
}

//! `tidegate-bench redis`: measures callers that share one client, ours beside the rivals, against a Redis
//! server that the bench starts. Every client runs in a process of its own, ours too, so that processor time
//! means the same for all clients. The bench reads Redis's own time and reads from its INFO before and after
//! the measured time. A proxy with a delay makes round trips that are longer than the machine's own.

mod cell;
mod compare;
mod ours;
mod plain;
pub(crate) mod server;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use super::OURS;
use super::peers::{self, Peers};
use super::rounds::{Contestant, Failure, Sample};
use super::session::Session;
use crate::options::{BenchArgs, Effort};
use crate::proxy::Proxy;
use cell::{Cell, cells};
pub(crate) use ours::serve_callers;
use server::Server;

/// The name of the contestant without a client, in which each caller has a bare connection.
const PLAIN: &str = "plain";

/// The time for which a client runs before its measurement. Each round measures new clients, so that all
/// rounds begin alike, and gives them this time to adapt.
const WARM_UP: Duration = Duration::from_millis(150);
const WINDOW: Duration = Duration::from_millis(400);

/// Returns the arguments with the default number of rounds of the bench `redis`. Without `--full` at normal
/// effort the number is three, because the bench has many cells.
pub(super) fn defaults(args: &BenchArgs) -> BenchArgs {
    let mut args = args.clone();
    if args.effort == Effort::Normal && !args.full {
        args.rounds.get_or_insert(3);
    }
    args
}

/// Runs all cells of the bench `redis`, and prints the rows of our client beside those of the rivals.
pub(crate) fn run(session: &mut Session) -> anyhow::Result<()> {
    let server = Server::start_without_files()?;
    session.say(&format!(
        "redis-server {}, without persistence",
        server.version()
    ));
    session.add_peer(OURS, &["redis-callers"])?;
    let mut network = Network {
        server: RefCell::new(server),
        proxies: BTreeMap::new(),
    };
    let times = if session.is_smoke() {
        Times {
            warm_up: Duration::from_millis(10),
            window: Duration::from_millis(20),
        }
    } else {
        Times {
            warm_up: WARM_UP,
            window: WINDOW,
        }
    };
    for cell in cells(session.args.full) {
        let case = cell.name();
        if session.wants(&case) {
            network.prepare(&cell)?;
            let contestants = contestants(session, &network, &cell, times);
            session.cell(&case, contestants)?;
        }
    }
    for table in compare::tables(session.rows()) {
        session.print(&table)?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Times {
    warm_up: Duration,
    window: Duration,
}

/// The Redis server, and the proxies that lead to it and lengthen the round trip.
struct Network {
    server: RefCell<Server>,
    /// The proxies that lengthen the round trip, by the time that each of them adds.
    proxies: BTreeMap<Duration, Proxy>,
}

impl Network {
    fn prepare(&mut self, cell: &Cell) -> anyhow::Result<()> {
        let server = self.server.get_mut();
        server.fill(cell.value_bytes)?;
        if !cell.round_trip.is_zero() && !self.proxies.contains_key(&cell.round_trip) {
            let proxy = Proxy::start(server.addr(), cell.round_trip)?;
            self.proxies.insert(cell.round_trip, proxy);
        }
        Ok(())
    }

    /// Measures one client under the load of one cell, and ends the client.
    fn measure(
        &self,
        peers: &mut Peers,
        who: &Who,
        cell: &Cell,
        times: Times,
    ) -> Result<Sample, Failure> {
        let proxy = self.proxies.get(&cell.round_trip);
        let mut server = self.server.borrow_mut();
        let addr = proxy.map_or_else(|| server.addr(), Proxy::addr);
        let load = format!(
            "load system={} addr={addr} {} {} warm_up={}",
            who.system,
            cell.request(),
            who.settings,
            times.warm_up.as_secs_f64()
        );
        peers.ask(&who.peer, &load, times.warm_up)?;
        let measured = (|| {
            let mut did = || server.did().map_err(|e| format!("{e:#}"));
            let proxy_cpu = || proxy.and_then(Proxy::cpu_s);
            let (before, proxy_before) = (did()?, proxy_cpu());
            let measure = format!("measure seconds={}", times.window.as_secs_f64());
            let answer = peers.ask(&who.peer, &measure, times.window)?;
            let (after, proxy_after) = (did()?, proxy_cpu());
            let mut sample = peers::sample(&answer)?;
            let proxy_cpu = proxy_after
                .zip(proxy_before)
                .map(|(after, before)| after - before);
            put_costs(&mut sample, before, after, proxy_cpu)?;
            Ok(sample)
        })();
        // The bench ends the client after each load, so that a failed load does not disturb the next one. If
        // a client hung, the bench has already killed it.
        peers.ask(&who.peer, "rest", Duration::ZERO)?;
        measured
    }
}

/// Adds the costs of an average command to the sample: the processor time, the allocations, and the calls
/// that read from the sockets.
fn put_costs(
    sample: &mut Sample,
    before: server::Did,
    after: server::Did,
    proxy_cpu_s: Option<f64>,
) -> Result<(), Failure> {
    let missing = |key: &str| format!("its answer has no {key}");
    let ops = sample.extra.remove("ops").ok_or_else(|| missing("ops"))?;
    let cpu_s = sample.cpu_s.take().ok_or_else(|| missing("cpu_s"))?;
    // Redis counts for a little longer than the client, so the bench divides Redis's costs by Redis's own
    // count of commands.
    let commands = (after.commands - before.commands).max(1.0);
    let redis_cpu_us = (after.cpu_s - before.cpu_s) * 1e6 / commands;
    let client_cpu_us = cpu_s * 1e6 / ops;
    let mut put = |key: &str, value: f64| sample.extra.insert(key.into(), value);
    put("client_cpu_us", client_cpu_us);
    put("redis_cpu_us", redis_cpu_us);
    put("redis_busy", redis_cpu_us * sample.ops_per_s / 1e6);
    put("ops_per_cpu_s", 1e6 / (client_cpu_us + redis_cpu_us));
    put(
        "commands_per_read",
        commands / (after.reads - before.reads).max(1.0),
    );
    if let Some(seconds) = proxy_cpu_s {
        put("proxy_cpu_us", seconds * 1e6 / commands);
    }
    if let Some(allocs) = sample.allocs.take() {
        put("allocs_per_op", allocs / ops);
    }
    if let Some(bytes) = sample.extra.remove("alloc_bytes") {
        sample
            .extra
            .insert("alloc_bytes_per_op".into(), bytes / ops);
    }
    Ok(())
}

/// A client with one setting, which the bench measures as a contestant of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Who {
    peer: String,
    system: String,
    version: Option<String>,
    controller: Option<String>,
    /// The client's settings, as words of the request `load` to the client's process.
    settings: String,
    subject: bool,
}

fn contestants<'a>(
    session: &Session,
    network: &'a Network,
    cell: &'a Cell,
    times: Times,
) -> Vec<Contestant<'a, Peers>> {
    let mut all = ours::settings(cell, session.args.full);
    let rivals = session.systems.iter().filter(|_| !cell.sweep);
    for system in rivals {
        for &(label, settings) in settings_of(&system.name, session.args.full) {
            all.push(Who {
                peer: system.peer.clone(),
                system: system.name.clone(),
                version: Some(system.version.clone()),
                controller: (!label.is_empty()).then(|| label.into()),
                settings: settings.into(),
                subject: false,
            });
        }
    }
    let contestant = |who: Who| Contestant {
        system: who.system.clone(),
        version: who.version.clone(),
        controller: who.controller.clone(),
        subject: who.subject,
        run: Box::new(move |peers: &mut Peers| network.measure(peers, &who, cell, times)),
    };
    all.into_iter().map(contestant).collect()
}

/// Returns the settings of a rival that get a row of their own: the delays of rueidis, and the numbers of
/// threads of a Rust client's runtime.
fn settings_of(system: &str, full: bool) -> &'static [(&'static str, &'static str)] {
    match (system, full) {
        ("rueidis", _) => &[
            ("no delay", "delay_us=0"),
            ("20 us", "delay_us=20"),
            ("100 us", "delay_us=100"),
        ],
        ("redis-rs" | "rustis", true) => &[("", ""), ("2 workers", "workers=2")],
        _ => &[("", "")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::Did;

    #[test]
    fn costs_are_an_operation_each() {
        let did = |commands, reads, cpu_s| Did {
            commands,
            reads,
            cpu_s,
        };
        let mut sample = Sample {
            ops_per_s: 1e6,
            cpu_s: Some(0.3),
            allocs: Some(200.0),
            extra: [("ops".into(), 100_000.0), ("alloc_bytes".into(), 1e6)].into(),
            ..Sample::default()
        };
        let (before, after) = (did(10.0, 5.0, 1.0), did(100_010.0, 1005.0, 1.1));
        put_costs(&mut sample, before, after, Some(0.05)).unwrap();
        for (key, value) in [
            ("client_cpu_us", 3.0),
            ("redis_cpu_us", 1.0),
            ("redis_busy", 1.0),
            ("ops_per_cpu_s", 250_000.0),
            ("commands_per_read", 100.0),
            ("proxy_cpu_us", 0.5),
            ("allocs_per_op", 0.002),
            ("alloc_bytes_per_op", 10.0),
        ] {
            let got = sample.extra[key];
            assert!((got / value - 1.0).abs() < 1e-9, "{key}: {got}");
        }
        let nothing = put_costs(&mut Sample::default(), before, after, None);
        assert_eq!(nothing.unwrap_err(), "its answer has no ops");
    }
}

//! `tidegate-bench link`: sends messages of five bytes over loopback TCP, each of them acknowledged, beside
//! bare sockets in the same rounds.
//!
//! The client and the server have a thread each, as programs on the two sides have; eight clients share one
//! thread. The bench measures throughput from the first message to the last acknowledgement. At light load
//! the clients send by a schedule, even if they are late, and latency counts from the due time of a message.

mod bare;
mod ours;
mod paced;

use std::time::Duration;

use super::OURS;
use super::latency;
use super::peers::Peers;
use super::rounds::{Contestant, Sample, calibrated};
use super::session::Session;
use ours::Way;

/// The payload of a message, equal to the payload in the published figures of other systems.
const PAYLOAD: [u8; 5] = *b"hello";
/// The number of bytes that a message with this payload takes on the wire, in the session protocol, so that
/// bare sockets send as many.
const FRAME_BYTES: usize = 9;
/// The number of bytes that an acknowledgement takes on the wire, so that bare sockets answer with as many.
const ACK_BYTES: usize = 12;
/// The time for which a spinning client or server of the link polls its socket before it sleeps.
const SPIN: Duration = Duration::from_micros(200);

/// Runs all cells of the bench `link`, and prints the rows of our link beside those of the rivals.
pub(crate) fn run(session: &mut Session) -> anyhow::Result<()> {
    for clients in [1, 2, 3, 8] {
        throughput_cell(session, clients)?;
    }
    single_writes_cell(session)?;
    lock_step_cell(session, false)?;
    lock_step_cell(session, true)?;
    lone_cell(session, 100)?;
    for rate in [100, 10_000] {
        light_cell(session, rate)?;
    }
    Ok(())
}

type Cell<'a> = Contestant<'a, Peers>;

/// Returns the intended duration of one measurement of throughput: short for tests, long enough otherwise.
fn target(session: &Session) -> Duration {
    Duration::from_millis(if session.is_smoke() { 2 } else { 400 })
}

/// Returns the link as a contestant of a cell, with `clients` clients that send messages in the way `way`.
fn tidegate<'a>(target: Duration, way: Way, clients: u64) -> Cell<'a> {
    Contestant {
        system: OURS.into(),
        version: Some(env!("CARGO_PKG_VERSION").into()),
        controller: Some(way.label().into()),
        subject: true,
        run: Box::new(calibrated(target, move |_: &mut Peers, messages| {
            ours::run(way, clients, messages).map_err(|e| format!("{e:#}"))
        })),
    }
}

/// Returns bare sockets as a contestant of a cell, which `run` measures.
fn sockets<'a>(what: &str, run: impl FnMut(&mut Peers) -> Result<Sample, String> + 'a) -> Cell<'a> {
    Contestant {
        system: "bare sockets".into(),
        version: None,
        controller: Some(what.into()),
        subject: false,
        run: Box::new(run),
    }
}

fn throughput_cell(session: &mut Session, clients: u64) -> anyhow::Result<()> {
    let plural = if clients == 1 { "" } else { "s" };
    let case = format!("batched, {clients} client{plural}");
    if !session.wants(&case) {
        return Ok(());
    }
    let target = target(session);
    let mut contestants = vec![tidegate(target, Way::SendMany, clients)];
    if clients == 1 {
        contestants.push(tidegate(target, Way::Send, clients));
    }
    contestants.push(tidegate(target, Way::Producer, clients));
    if clients == 1 {
        contestants.push(tidegate(target, Way::Plain, clients));
    }
    let drain = move |_: &mut Peers, messages: u64| {
        let bytes = messages * FRAME_BYTES as u64;
        let drained = bare::drain(bytes).map_err(|e| format!("{e:#}"))?;
        Ok(Sample {
            ops_per_s: drained / FRAME_BYTES as f64,
            ..Sample::default()
        })
    };
    contestants.push(sockets("writes drained", calibrated(target, drain)));
    session.cell(&case, contestants).map(drop)
}

fn single_writes_cell(session: &mut Session) -> anyhow::Result<()> {
    let case = "one write a message";
    if !session.wants(case) {
        return Ok(());
    }
    let target = target(session);
    let single = move |_: &mut Peers, messages: u64| {
        let rate = bare::single_writes(messages, FRAME_BYTES).map_err(|e| format!("{e:#}"))?;
        Ok(Sample {
            ops_per_s: rate,
            ..Sample::default()
        })
    };
    let contestants = vec![
        tidegate(target, Way::Flushed, 1),
        sockets("writes drained", calibrated(target, single)),
    ];
    session.cell(case, contestants).map(drop)
}

fn lock_step_cell(session: &mut Session, spin: bool) -> anyhow::Result<()> {
    let case = if spin {
        "lock-step, spinning"
    } else {
        "lock-step, sleeping"
    };
    if !session.wants(case) {
        return Ok(());
    }
    let target = target(session);
    let pong = move |_: &mut Peers, count: u64| {
        let (rate, trips) = bare::ping_pong(count, FRAME_BYTES, ACK_BYTES, spin, |_| {})
            .map_err(|e| format!("{e:#}"))?;
        let mut sample = Sample {
            ops_per_s: rate,
            ..Sample::default()
        };
        latency::put(&mut sample, &trips);
        Ok(sample)
    };
    let mut contestants = vec![tidegate(target, Way::LockStep { spin }, 1)];
    if !spin {
        contestants.push(tidegate(target, Way::PlainLockStep, 1));
    }
    contestants.push(sockets("ping-pong", calibrated(target, pong)));
    session.cell(case, contestants).map(drop)
}

fn lone_cell(session: &mut Session, rate: u64) -> anyhow::Result<()> {
    let case = format!("lone messages, {rate}/s");
    if !session.wants(&case) {
        return Ok(());
    }
    let (rate, seconds) = (rate as f64, schedule(session));
    let ours = Contestant {
        system: OURS.into(),
        version: Some(env!("CARGO_PKG_VERSION").into()),
        controller: Some("send_acked".into()),
        subject: true,
        run: Box::new(move |_: &mut Peers| {
            paced::lone(rate, seconds).map_err(|e| format!("{e:#}"))
        }),
    };
    let bare = sockets("ping-pong", move |_| {
        paced::bare_lone(rate, seconds).map_err(|e| format!("{e:#}"))
    });
    session.cell(&case, vec![ours, bare]).map(drop)
}

/// Returns the duration, in seconds, for which clients send messages at light load: shorter for tests.
fn schedule(session: &Session) -> f64 {
    if session.is_smoke() { 0.05 } else { 2.0 }
}

fn light_cell(session: &mut Session, rate: u64) -> anyhow::Result<()> {
    let case = format!("{rate} messages/s");
    if !session.wants(&case) {
        return Ok(());
    }
    let seconds = schedule(session);
    let mut contestants = vec![Contestant {
        system: OURS.into(),
        version: Some(env!("CARGO_PKG_VERSION").into()),
        controller: Some("send".into()),
        subject: true,
        run: Box::new(move |_: &mut Peers| {
            paced::ours(rate as f64, seconds).map_err(|e| format!("{e:#}"))
        }),
    }];
    contestants.push(sockets("ping-pong", move |_| {
        paced::bare(rate as f64, seconds).map_err(|e| format!("{e:#}"))
    }));
    session.cell(&case, contestants).map(drop)
}

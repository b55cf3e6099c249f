//! Attacks by a client with very many subscriptions, which the server must store and remove.

use std::time::Instant;

use super::{Deeds, Job, Strike};
use crate::wire::Wire;

/// The number of bytes of subscriptions that the attacker gathers before it writes them to the server.
const WRITE_BYTES: usize = 256 << 10;

/// Makes `subscriptions` subscriptions, every second with a wildcard, because servers index both kinds apart.
pub(super) fn subscribe(wire: &mut Wire, subscriptions: u64, until: Instant) -> anyhow::Result<()> {
    let lines = (1..=subscriptions).map(|n| match n % 2 {
        0 => format!("SUB many.{n}.x {n}\r\n"),
        _ => format!("SUB many.{n}.* {n}\r\n"),
    });
    write_all(wire, lines)?;
    wire.settle(until)
}

fn write_all(wire: &mut Wire, lines: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let mut out = Vec::with_capacity(WRITE_BYTES + 64);
    for line in lines {
        out.extend_from_slice(line.as_bytes());
        if out.len() >= WRITE_BYTES {
            wire.write(&out)?;
            out.clear();
        }
    }
    wire.write(&out)
}

/// Prepares the attack that makes subscriptions and removes them one by one, on a connection that stays open.
pub(super) fn come_and_go(job: &Job) -> anyhow::Result<Strike> {
    let (mut wire, subscriptions) = (job.wire()?, job.amount);
    Ok(Box::new(move |until| {
        let start = Instant::now();
        subscribe(&mut wire, subscriptions, until)?;
        let made = start.elapsed().as_secs_f64();
        write_all(
            &mut wire,
            (1..=subscriptions).map(|n| format!("UNSUB {n}\r\n")),
        )?;
        wire.settle(until)?;
        Ok(Deeds::default()
            .put("subscriptions", subscriptions as f64)
            .put("made_s", made))
    }))
}

/// Prepares the attack that closes a connection with many subscriptions: makes the subscriptions.
pub(super) fn leave(job: &Job, until: Instant) -> anyhow::Result<Strike> {
    let (mut wire, subscriptions) = (job.wire()?, job.amount);
    subscribe(&mut wire, subscriptions, until)?;
    Ok(Box::new(move |_| {
        drop(wire);
        Ok(Deeds::default().put("subscriptions", subscriptions as f64))
    }))
}

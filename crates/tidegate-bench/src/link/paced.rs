//! The link under light load: clients send messages by a schedule, even if they are late, and measure how
//! long each message waits for its acknowledgement. The server's counters give the cost of its
//! acknowledgements.

use std::io::{Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tidegate::Clock;
use tidegate_link::{Client, Seq};

use super::ours::{Serving, runtime};
use super::{ACK_BYTES, FRAME_BYTES, PAYLOAD, bare};
use crate::latency;
use crate::machine::Meter;
use crate::rounds::Sample;

/// Returns the due time of message `n`, counted from 0, in nanoseconds. The first message is due after 20 ms,
/// so that every thread runs by then.
fn due_ns(n: u64, rate: f64) -> u64 {
    20_000_000 + (n as f64 * 1e9 / rate) as u64
}

/// Sleeps until the due time, because a spinning thread would take a core from the measured threads. A late
/// wake-up counts as latency.
fn wait_until(due: u64, clock: Clock) {
    let left = due.saturating_sub(clock.now().as_nanos());
    if left > 0 {
        thread::sleep(Duration::from_nanos(left));
    }
}

/// Sends one message at a time through the link: each at its due time, and the next only after the
/// acknowledgement. Measures the latency of a lone message from the time at which the client sent it.
pub(super) fn lone(rate: f64, seconds: f64) -> anyhow::Result<Sample> {
    let serving = Serving::start(Duration::ZERO)?;
    let address = serving.address;
    let messages = ((rate * seconds) as u64).max(1);
    let clock = Clock::start();
    let (trips, spent) = runtime()?.block_on(async {
        let client = Client::builder().connect(address.to_string()).await?;
        let meter = Meter::start();
        let mut trips = latency::histogram();
        for n in 0..messages {
            let left = due_ns(n, rate).saturating_sub(clock.now().as_nanos());
            tokio::time::sleep(Duration::from_nanos(left)).await;
            let sent = Instant::now();
            client.send_acked(&PAYLOAD).await?;
            // The histogram grows as needed, so `record` does not fail.
            let _ = trips.record(sent.elapsed().as_nanos() as u64);
        }
        let spent = meter.spent();
        client.close().await?;
        anyhow::Ok((trips, spent))
    })?;
    serving.end()?;
    let mut sample = Sample {
        ops_per_s: rate,
        cpu_s: Some(spent.cpu.as_secs_f64()),
        allocs: Some(spent.allocs as f64),
        ..Sample::default()
    };
    latency::put(&mut sample, &trips);
    Ok(sample)
}

/// Measures lone messages over a bare socket, in the way in which [`lone`] measures them over the link.
pub(super) fn bare_lone(rate: f64, seconds: f64) -> anyhow::Result<Sample> {
    let messages = ((rate * seconds) as u64).max(1);
    let clock = Clock::start();
    let pace = |n| wait_until(due_ns(n, rate), clock);
    let (_, trips) = bare::ping_pong(messages, FRAME_BYTES, ACK_BYTES, false, pace)?;
    let mut sample = Sample {
        ops_per_s: rate,
        ..Sample::default()
    };
    latency::put(&mut sample, &trips);
    Ok(sample)
}

/// Measures the latency of `rate` messages a second through the link. A client sends the messages by a
/// schedule, even if it is late.
pub(super) fn ours(rate: f64, seconds: f64) -> anyhow::Result<Sample> {
    let serving = Serving::start(Duration::ZERO)?;
    let address = serving.address;
    let messages = ((rate * seconds) as u64).max(1);
    let clock = Clock::start();
    let (lags, spent, took) = runtime()?.block_on(async {
        let client = Client::builder().connect(address.to_string()).await?;
        let sender = client.clone();
        let meter = Meter::start();
        let start = Instant::now();
        let first_due = clock.now().as_nanos();
        let pacer = thread::spawn(move || {
            for n in 0..messages {
                wait_until(first_due + due_ns(n, rate), clock);
                sender.try_send(&PAYLOAD)?;
            }
            anyhow::Ok(())
        });
        let mut lags = latency::histogram();
        let mut watch = client.watch();
        let mut known = 0;
        while known < messages {
            watch.changed().await.context("the client ended")?;
            let acked: Seq = *watch.borrow_and_update();
            let now = clock.now().as_nanos();
            for n in known..acked.get() {
                // The histogram grows as needed, so `record` does not fail.
                let _ = lags.record(now.saturating_sub(first_due + due_ns(n, rate)));
            }
            known = acked.get();
        }
        let took = start.elapsed();
        pacer.join().ok().context("the pacer panicked")??;
        let spent = meter.spent();
        client.close().await?;
        anyhow::Ok((lags, spent, took))
    })?;
    let (_, served) = serving.end()?;
    let mut sample = Sample {
        ops_per_s: messages as f64 / took.as_secs_f64(),
        cpu_s: Some(spent.cpu.as_secs_f64()),
        allocs: Some(spent.allocs as f64),
        ..Sample::default()
    };
    latency::put(&mut sample, &lags);
    let extra = [
        (
            "messages_an_ack",
            messages as f64 / served.acks.max(1) as f64,
        ),
        (
            "ack_cost_us",
            served.ack_cost_ns as f64 / 1e3 / served.acks.max(1) as f64,
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

/// Measures requests and replies over a bare socket, which a client sends by the same schedule as [`ours`].
pub(super) fn bare(rate: f64, seconds: f64) -> anyhow::Result<Sample> {
    let (mut client, mut server) = bare::pair()?;
    let messages = ((rate * seconds) as u64).max(1);
    let clock = Clock::start();
    let meter = Meter::start();
    let start = Instant::now();
    let echo = thread::spawn(move || -> std::io::Result<()> {
        let (mut question, answer) = ([0; FRAME_BYTES], [0; ACK_BYTES]);
        for _ in 0..messages {
            server.read_exact(&mut question)?;
            server.write_all(&answer)?;
        }
        Ok(())
    });
    // Another thread reads the replies, so that a wait for a late reply does not delay the next message.
    let mut replies = client.try_clone()?;
    let first_due = clock.now().as_nanos();
    let reader = thread::spawn(move || -> std::io::Result<_> {
        let mut lags = latency::histogram();
        let mut answer = [0; ACK_BYTES];
        for n in 0..messages {
            replies.read_exact(&mut answer)?;
            let now = clock.now().as_nanos();
            // The histogram grows as needed, so `record` does not fail.
            let _ = lags.record(now.saturating_sub(first_due + due_ns(n, rate)));
        }
        Ok(lags)
    });
    for n in 0..messages {
        wait_until(first_due + due_ns(n, rate), clock);
        client.write_all(&[7; FRAME_BYTES])?;
    }
    let lags = reader.join().ok().context("the reader panicked")??;
    echo.join().ok().context("the echo panicked")??;
    let took = start.elapsed();
    let spent = meter.spent();
    let mut sample = Sample {
        ops_per_s: messages as f64 / took.as_secs_f64(),
        cpu_s: Some(spent.cpu.as_secs_f64()),
        ..Sample::default()
    };
    latency::put(&mut sample, &lags);
    Ok(sample)
}

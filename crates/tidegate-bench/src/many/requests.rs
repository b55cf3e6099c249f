//! Sends the load of the bench `many` on one connection: requests with a bounded number in flight, and single
//! publishes.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use hdrhistogram::Histogram;
use tidegate_cli::interrupt;

use super::cell::Request;
use super::figures::Tenths;
use crate::latency::histogram;
use crate::wire::{Op, Wire};

/// The longest time for which the bench waits for the answers to the requests in flight, once the time for
/// sending requests is over.
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// The pause between two checks of the server's process, which notice its end.
const LOOK: Duration = Duration::from_secs(1);

/// The outcome of many requests, for the figures of a cell.
#[derive(Debug)]
pub(crate) struct Made {
    /// The number of requests that the server carried out.
    pub(crate) count: u64,
    pub(crate) seconds: f64,
    pub(crate) tenths: Tenths,
    /// The error that ended the requests early; `None` if the server did all requests, or if only their time
    /// ran out.
    pub(crate) error: Option<String>,
}

/// The plan by which the bench sends many requests on one connection.
pub(crate) struct Requests<'a> {
    pub(crate) count: u64,
    pub(crate) in_flight: u64,
    /// The time after the start at which the bench stops sending requests.
    pub(crate) time: Duration,
    /// Checks the server; the bench calls this function once a second. An error of the function ends the
    /// requests.
    pub(crate) watch: &'a dyn Fn() -> anyhow::Result<()>,
}

impl Requests<'_> {
    /// Sends the request that `request` returns for each number from 0, and counts the answers.
    pub(crate) fn run(&self, wire: &mut Wire, request: impl Fn(u64) -> Request) -> Made {
        let start = Instant::now();
        let mut made = Made {
            count: 0,
            seconds: 0.0,
            tenths: Tenths::new(self.count),
            error: None,
        };
        let ended = self.send(wire, start, &mut made, request);
        made.seconds = start.elapsed().as_secs_f64();
        made.error = ended.err().map(|e| format!("{e:#}"));
        made
    }

    fn send(
        &self,
        wire: &mut Wire,
        start: Instant,
        made: &mut Made,
        request: impl Fn(u64) -> Request,
    ) -> anyhow::Result<()> {
        let inbox = format!("_INBOX.many{}", std::process::id());
        wire.write(format!("SUB {inbox}.* 5\r\n").as_bytes())?;
        let (end, mut looked, mut sent, mut out) = (start + self.time, start, 0, String::new());
        loop {
            let now = Instant::now();
            let last = if now < end { self.count } else { sent };
            if made.count == last {
                break;
            }
            if now - looked >= LOOK {
                looked = now;
                (self.watch)()?;
                ensure!(!interrupt::asked(), "interrupted");
            }
            out.clear();
            while sent < last && sent - made.count < self.in_flight {
                let (subject, body) = request(sent);
                let len = body.len();
                out += &format!("PUB {subject} {inbox}.{sent} {len}\r\n{body}\r\n");
                sent += 1;
            }
            if !out.is_empty() {
                wire.write(out.as_bytes())?;
            }
            let before = made.count;
            made.count += u64::from(answered(wire, &inbox, end + DRAIN_MAX)?);
            while wire.is_buffered()? {
                made.count += u64::from(answered(wire, &inbox, end + DRAIN_MAX)?);
            }
            if made.count > before {
                made.tenths.done(made.count, start.elapsed().as_secs_f64());
            }
        }
        wire.write(b"UNSUB 5\r\n")
    }
}

/// Reads one operation of the server. Returns true if the operation is the answer to a request.
///
/// # Errors
///
/// The server refused the request, or sends no operation until `until`.
fn answered(wire: &mut Wire, inbox: &str, until: Instant) -> anyhow::Result<bool> {
    wire.next(until, |op| match op {
        Op::Message {
            subject,
            headers,
            payload,
            ..
        } if subject.starts_with(inbox) => {
            let text = std::str::from_utf8(payload)?;
            if headers || text.contains("\"error\"") {
                let number = subject[inbox.len()..].trim_start_matches('.');
                bail!("request {number}: {}", text.trim());
            }
            Ok(true)
        }
        _ => Ok(false),
    })
}

/// Publishes `times` messages to `subject`, as a lone publisher: each message only after the acknowledgement
/// of the message before. Returns the latencies in nanoseconds.
///
/// # Errors
///
/// The server did not store a message, or did not acknowledge a message until `until`.
pub(crate) fn lone(
    wire: &mut Wire,
    subject: &str,
    times: u64,
    until: Instant,
) -> anyhow::Result<Histogram<u64>> {
    let inbox = format!("_INBOX.lone{}", std::process::id());
    wire.write(format!("SUB {inbox} 6\r\n").as_bytes())?;
    let mut latencies = histogram();
    for _ in 0..times {
        let start = Instant::now();
        wire.write(format!("PUB {subject} {inbox} 2\r\nxx\r\n").as_bytes())?;
        while !answered(wire, &inbox, until)? {}
        // The histogram grows with its values, so `record` does not fail.
        let _ = latencies.record(start.elapsed().as_nanos() as u64);
    }
    wire.write(b"UNSUB 6\r\n")?;
    Ok(latencies)
}

//! The attack by subscribers that never read, while another client publishes large messages for all of them.

use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size;

use super::{Deeds, Job, Strike};

const MESSAGES: u32 = 96;
const BYTES: usize = 60_000;
const OVER: Duration = Duration::from_secs(15);
/// The receive buffer of a subscriber in bytes: small, so that the kernel keeps few bytes for a client that
/// never reads.
const RECEIVE_BYTES: usize = 4096;

pub(super) fn prepare(job: &Job, until: Instant) -> anyhow::Result<Strike> {
    let mut wires = Vec::new();
    for _ in 0..job.amount {
        let mut wire = job.wire()?;
        set_socket_recv_buffer_size(&wire.stream, RECEIVE_BYTES)?;
        wire.write(b"SUB slow 1\r\n")?;
        wire.settle(until)?;
        wires.push(wire);
    }
    let (mut publisher, over) = (job.wire()?, OVER.mul_f64(job.scale.min(1.0)));
    Ok(Box::new(move |until| {
        let mut message = format!("PUB slow {BYTES}\r\n").into_bytes();
        message.resize(message.len() + BYTES, b'x');
        message.extend_from_slice(b"\r\n");
        let (start, mut sent, mut failure) = (Instant::now(), 0, None);
        for n in 0..MESSAGES {
            let due = start + over * n / MESSAGES;
            if Instant::now() >= until {
                failure = Some("time is up".to_owned());
                break;
            }
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if let Err(e) = publisher.write(&message) {
                failure = Some(format!("the publisher failed: {e:#}"));
                break;
            }
            sent += 1;
        }
        if failure.is_none()
            && let Err(e) = publisher.settle(until)
        {
            failure = Some(format!("the publisher failed: {e:#}"));
        }
        let deeds = Deeds::default()
            .put("subscribers", wires.len() as f64)
            .put("published", f64::from(sent));
        // The subscribers disconnect once the attack is over.
        drop(wires);
        Ok(match failure {
            Some(failure) => deeds.note(failure),
            None => deeds,
        })
    }))
}

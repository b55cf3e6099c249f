//! A fuzz target for the link's receiver, the server's half. The target sends the receiver any bytes, as a
//! client could. The receiver must hand out the client's messages once and in order, or end with an error,
//! and must stay within its bounds.

use std::time::Duration;

use tidegate::Time;
use tidegate_link::Seq;
use tidegate_link::frame::{Layout, Reply};
use tidegate_link::hello::{SessionId, VERSION, Welcome};
use tidegate_link::proto::{Receiver, ReceiverConfig, cadence};

/// Runs the fuzz target on one input. Panics if the tested code breaks a promise.
pub fn run(input: &[u8]) {
    let Some((&[kind, done_every, idle], mut input)) = input.split_first_chunk::<3>() else {
        return;
    };
    let when_done = kind & 1 != 0;
    let mut r = match kind >> 1 & 3 {
        0 => {
            let config = ReceiverConfig {
                frame_max: 100,
                window: 1000,
                when_done,
                idle: Duration::from_millis(idle.into()),
            };
            Receiver::plain(Time::ZERO, config, cadence())
        }
        n => {
            let welcome = Welcome {
                version: VERSION,
                checked: n == 2,
                when_done,
                session: SessionId([0; 16]),
                epoch: 1,
                received: Seq::new(done_every.into()),
                acked: Seq::new(u64::from(done_every / 2)),
                window: 1000,
                frame_max: 100,
                idle_ms: idle.into(),
            };
            Receiver::session(Time::ZERO, &welcome, cadence())
        }
    };
    let layout = r.layout();
    let (mut now, mut buf, mut ended) = (0u64, Vec::new(), false);
    let mut acked = r.acked();
    let mut unit = Vec::new();
    // Each step of the input tells the target how many bytes arrive, and which event follows.
    while let Some((&[len, what], rest)) = input.split_first_chunk::<2>() {
        let part = &rest[..rest.len().min(len as usize)];
        input = &rest[part.len()..];
        buf.extend_from_slice(part);
        let at = Time::from_nanos(now);
        while !ended {
            let first = r.received();
            match r.handle_read(at, &buf) {
                Ok(batch) => {
                    assert!(batch.first >= first.next() && batch.taken <= buf.len());
                    assert!(batch.frames.end <= batch.taken);
                    let frames = &buf[batch.frames.clone()];
                    assert_eq!(layout.payloads(frames).count() as u64, batch.count);
                    assert!(batch.count == 0 || r.received() == batch.first.plus(batch.count - 1));
                    buf.drain(..batch.taken);
                    if batch.taken == 0 {
                        break;
                    }
                }
                Err(e) => {
                    assert!(!e.to_string().is_empty());
                    ended = true;
                }
            }
            r.check_invariants();
        }
        // The receiver has taken all whole frames, so the buffer holds at most one incomplete frame.
        assert!(ended || buf.len() <= 100 + 12 + 12, "{}", buf.len());
        match what % 6 {
            0 => r.done(at, Seq::new(u64::from(what) * u64::from(done_every))),
            1 => now = now.saturating_add(u64::from(len) * 100_000),
            2 => ended |= r.handle_timeout(at).is_err(),
            3 if what > 250 => ended |= r.handle_eof(at, buf.len()).is_err(),
            n => {
                for _ in 0..n {
                    let Some(bytes) = r.poll_transmit(at) else {
                        break;
                    };
                    let take = bytes.len().min(1 + what as usize / 16);
                    unit.extend_from_slice(&bytes[..take]);
                    r.wrote(at, take, u64::from(what) * 100);
                }
            }
        }
        r.check_invariants();
        while let Some(bytes) = unit.first_chunk::<12>() {
            if let (Reply::Ack { latest, omitted }, true) =
                (Reply::decode(layout, bytes), layout != Layout::Plain)
            {
                assert_eq!(acked.plus(u64::from(omitted) + 1), Seq::new(latest));
                assert!(Seq::new(latest) <= r.received());
                acked = Seq::new(latest);
            }
            unit.drain(..12);
        }
        if r.is_finished() {
            return;
        }
    }
}

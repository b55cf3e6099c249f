//! A fuzz target for the link's sender, the client's half. The target answers the sender with any bytes, as
//! a server could. The sender must keep unacknowledged messages, accept no impossible answer, and stay
//! within its bounds.

use std::time::Duration;

use tidegate::Time;
use tidegate_link::Seq;
use tidegate_link::frame::Reply;
use tidegate_link::hello::{Answer, SessionId, VERSION, Welcome};
use tidegate_link::proto::{Block, Decide, Event, Sender, SenderConfig, SessionConfig, writes};

/// Runs the fuzz target on one input. Panics if the tested code breaks a promise.
pub fn run(input: &[u8]) {
    let Some((&[kind, hold], mut input)) = input.split_first_chunk::<2>() else {
        return;
    };
    let (plain, checked) = (kind & 1 != 0, kind & 2 != 0);
    let session = (!plain).then(|| SessionConfig {
        id: SessionId([0; 16]),
        life: 1,
        checked,
        frame_max: 20,
        token: Vec::new(),
    });
    let held_max = 500 + 10 * hold as usize;
    let config = SenderConfig {
        session,
        held_max,
        plain_window: 300,
        write_max: 1 << 16,
        opening: Duration::from_secs(1),
        stall: Duration::from_secs(20),
    };
    let mut s = Sender::new(Time::ZERO, config, writes(1 << 16));
    let (mut now, mut connected, mut begun) = (Time::ZERO, false, None);
    while let Some((&[what, n, m], rest)) = input.split_first_chunk::<3>() {
        input = rest;
        let acked = s.acked();
        let mut over = false;
        match what % 9 {
            0 if !connected => {
                s.handle_connected(now);
                connected = true;
            }
            // The target sends bytes of the input in place of the server.
            1 if connected => {
                let (part, rest) = input.split_at(input.len().min(n as usize));
                input = rest;
                over = s.handle_read(now, part).is_err();
            }
            // The server answers with a welcome. Its fields come from the input, so some contradict the
            // client.
            2 if connected => {
                let received = Seq::new(u64::from(n));
                let answer = Answer::Welcome(Welcome {
                    version: VERSION,
                    checked,
                    when_done: false,
                    session: SessionId([0; 16]),
                    epoch: 1 + u64::from(m >> 6),
                    received,
                    acked: Seq::new(received.get().saturating_sub(u64::from(m & 15))),
                    window: if m & 32 == 0 { 300 } else { u64::MAX },
                    frame_max: 20,
                    idle_ms: 1000,
                });
                over = s.handle_read(now, &answer.encode()).is_err();
            }
            3 if connected => {
                let latest = acked
                    .get()
                    .wrapping_add(u64::from(n))
                    .wrapping_sub(u64::from(plain));
                let reply = Reply::Ack {
                    latest,
                    omitted: m.into(),
                };
                over = s.handle_read(now, &reply.encode()).is_err();
            }
            4 => {
                if let Some(next) = begun {
                    let (mut bytes, count) = (Vec::with_capacity(300), u64::from(n % 8) + 1);
                    let layout = s.layout();
                    (next..next + count).for_each(|seq| {
                        layout.encode(Seq::new(seq), &[n; 20][..m as usize % 20], &mut bytes)
                    });
                    let first = Seq::new(next);
                    let block = Block {
                        bytes,
                        first,
                        count,
                    };
                    match s.push(now, block) {
                        Ok(()) => begun = Some(next + count),
                        Err(_) => assert!(s.held_bytes() >= held_max),
                    }
                }
            }
            5 => {
                let mut slices = [&[][..]; 3];
                let count = s.poll_transmit(now, &mut slices);
                let bytes: usize = slices[..count].iter().map(|b| b.len()).sum();
                s.wrote(now, bytes.min(n as usize), m.into());
            }
            6 => {
                now = now.after(u64::from(n) * u64::from(m) * 1_000_000);
                over = s.handle_timeout(now).is_err();
            }
            7 if connected => over = true,
            8 => {
                let decide = [Decide::Resend, Decide::Drop, Decide::Fail][n as usize % 3];
                over = s.decide(now, decide).is_err();
            }
            _ => {}
        }
        while let Some(event) = s.poll_event() {
            if let Event::Opened { received, .. } = event {
                begun.get_or_insert_with(|| received.get() + 1);
            }
        }
        s.check_invariants();
        assert!(s.acked() >= acked && s.held_bytes() < held_max + 300);
        assert!(s.acked() <= s.last());
        if over {
            let ended = s.handle_cut().is_err() || plain || s.is_ended();
            connected = false;
            if ended {
                return;
            }
        }
    }
}

//! Tests each half of the link with random operations, against its invariants and a simple model.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use tidegate::Time;
use tidegate_link::frame::{self, Layout, Reply};
use tidegate_link::hello::{Answer, Hello, VERSION, Welcome};
use tidegate_link::proto::{Block, Receiver, Sender, SenderConfig, SessionConfig, cadence, writes};
use tidegate_link::{Seq, SessionId};

const WINDOW: u64 = 2000;
const ID: SessionId = SessionId([1; 16]);

fn welcome(checked: bool, when_done: bool) -> Welcome {
    Welcome {
        version: VERSION,
        checked,
        when_done,
        session: ID,
        epoch: 1,
        received: Seq::NONE,
        acked: Seq::NONE,
        window: WINDOW,
        frame_max: 400,
        idle_ms: 10_000,
    }
}

fn payload(n: u64) -> Vec<u8> {
    vec![n as u8; (n % 5 * n % 90) as usize]
}

// ---- the receiver

#[derive(Clone, Debug)]
enum Given {
    /// The client encodes this many more messages.
    Messages(u8),
    Ping,
    /// This many of the encoded bytes arrive at the receiver.
    Arrive(u16),
    /// The handler reports this many more messages as done.
    Done(u8),
    /// The server's socket accepts this many bytes of replies.
    Take(u8),
    Pass(u32),
}

fn given() -> impl Strategy<Value = Given> {
    prop_oneof![
        (1..20u8).prop_map(Given::Messages),
        Just(Given::Ping),
        (1..400u16).prop_map(Given::Arrive),
        (1..30u8).prop_map(Given::Done),
        (1..40u8).prop_map(Given::Take),
        (0..3_000_000u32).prop_map(Given::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The receiver hands out the messages in order. Its acknowledgements are cumulative, count correctly,
    /// and never exceed the last message done.
    #[test]
    fn receiver(checked: bool, when_done: bool, ops in prop::collection::vec(given(), 1..200)) {
        let layout = if checked { Layout::Checked } else { Layout::Session };
        let mut r = Receiver::session(Time::ZERO, &welcome(checked, when_done), cadence());
        let (mut now, mut next) = (Time::ZERO, 1u64);
        let mut wire: VecDeque<u8> = VecDeque::new();
        let (mut buf, mut replies) = (Vec::new(), Vec::new());
        let (mut received, mut done, mut acked) = (0u64, 0u64, 0u64);
        let mut pings = 0i32;
        for op in ops {
            match op {
                // A client keeps to its window, so the messages in flight and not acknowledged are bounded.
                Given::Messages(n) => for _ in 0..n {
                    let mut frame = Vec::new();
                    layout.encode(Seq::new(next), &payload(next), &mut frame);
                    let out: usize = (acked + 1..next).map(|n| layout.framed(payload(n).len())).sum();
                    if (out + frame.len()) as u64 <= WINDOW {
                        wire.extend(frame);
                        next += 1;
                    }
                },
                Given::Ping => {
                    wire.extend(frame::control(frame::PING));
                    pings += 1;
                }
                Given::Arrive(n) => {
                    let n = wire.len().min(n as usize);
                    buf.extend(wire.drain(..n));
                    loop {
                        let batch = r.handle_read(now, &buf).expect("a good client");
                        prop_assert_eq!(batch.first.get(), received + 1);
                        for p in layout.payloads(&buf[batch.frames.clone()]) {
                            received += 1;
                            prop_assert_eq!(p, payload(received));
                        }
                        prop_assert_eq!(batch.first.get() + batch.count, received + 1);
                        buf.drain(..batch.taken);
                        r.check_invariants();
                        if batch.taken == 0 {
                            break;
                        }
                    }
                    if !when_done {
                        done = received;
                    }
                }
                Given::Done(n) => if when_done {
                    done = received.min(done + u64::from(n));
                    r.done(now, Seq::new(done));
                },
                Given::Take(mut n) => {
                    while n > 0 && let Some(unit) = r.poll_transmit(now) {
                        let take = unit.len().min(n as usize);
                        replies.extend_from_slice(&unit[..take]);
                        r.wrote(now, take, 7000);
                        n -= take as u8;
                    }
                }
                Given::Pass(ns) => {
                    now = now.after(ns.into());
                    r.handle_timeout(now).expect("time is short");
                }
            }
            r.check_invariants();
            while let Some(unit) = replies.first_chunk::<12>() {
                match Reply::decode(layout, unit) {
                    Reply::Ack { latest, omitted } => {
                        prop_assert_eq!(acked + u64::from(omitted) + 1, latest);
                        prop_assert!(latest <= done, "{} acknowledged, {} done", latest, done);
                        acked = latest;
                    }
                    Reply::Pong { received: n } => {
                        pings -= 1;
                        prop_assert!(n <= received);
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
                replies.drain(..12);
            }
            prop_assert!(received < next);
        }
        prop_assert!(pings >= 0);
        // The receiver acknowledges every message done within five milliseconds.
        now = now.after(5_000_000);
        while let Some(unit) = r.poll_transmit(now).map(<[u8]>::to_vec) {
            replies.extend_from_slice(&unit);
            r.wrote(now, unit.len(), 7000);
        }
        prop_assert_eq!(r.acked().get(), done);
    }
}

// ---- the sender

#[derive(Clone, Debug)]
enum Wanted {
    /// The client pushes a block of this many messages.
    Push(u8),
    /// The client's socket accepts this many bytes.
    Take(u16),
    /// The server acknowledges this many more of the messages that it has.
    Ack(u8),
    /// The connection breaks, and the client reconnects.
    Cut,
    Pass(u32),
}

fn wanted() -> impl Strategy<Value = Wanted> {
    prop_oneof![
        4 => (1..20u8).prop_map(Wanted::Push),
        6 => (1..600u16).prop_map(Wanted::Take),
        3 => (1..30u8).prop_map(Wanted::Ack),
        1 => Just(Wanted::Cut),
        1 => (0..1_000_000u32).prop_map(Wanted::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The server gets each message once and in order, and its client never sends more than the window beyond
    /// the last acknowledgement. After a cut the client sends no message that the server has.
    #[test]
    fn sender(checked: bool, ops in prop::collection::vec(wanted(), 1..200)) {
        let layout = if checked { Layout::Checked } else { Layout::Session };
        let config = SenderConfig {
            session: Some(SessionConfig { id: ID, life: 3, checked, frame_max: 0, token: Vec::new() }),
            held_max: 3000,
            plain_window: 0,
            write_max: 1 << 16,
            opening: Duration::from_secs(1),
            stall: Duration::ZERO,
        };
        let mut s = Sender::new(Time::ZERO, config, writes(1 << 16));
        let (mut now, mut next) = (Time::ZERO, 1u64);
        // The simulated server: the bytes of this connection, the messages that it has, and the messages that
        // it acknowledged, in all and on this connection.
        let (mut buf, mut received, mut acked) = (Vec::new(), 0u64, 0u64);
        let connect = |s: &mut Sender, now, received, acked| {
            s.handle_connected(now);
            let mut slices = [&[][..]; 2];
            assert_eq!(s.poll_transmit(now, &mut slices), 1);
            let hello = slices[0].to_vec();
            s.wrote(now, hello.len(), 100);
            let (hello, len) = Hello::decode(&hello).expect("a hello").expect("all of it");
            assert!(len > 0 && hello.acked.get() <= acked && hello.sent.get() >= received);
            let answer = Welcome { received: Seq::new(received), acked: Seq::new(acked), ..welcome(checked, true) };
            s.handle_read(now, &Answer::Welcome(answer).encode()).expect("a welcome");
            while s.poll_event().is_some() {}
        };
        connect(&mut s, now, received, acked);
        let bytes_of = |from: u64, to: u64| (from + 1..=to).map(|n| layout.framed(payload(n).len()) as u64).sum::<u64>();
        for op in ops {
            match op {
                Wanted::Push(n) => {
                    let mut bytes = s.take_spare().unwrap_or_else(|| Vec::with_capacity(1000));
                    (next..next + u64::from(n)).for_each(|n| layout.encode(Seq::new(n), &payload(n), &mut bytes));
                    let first = Seq::new(next);
                    let room = s.has_room();
                    let pushed = s.push(now, Block { bytes, first, count: n.into() });
                    prop_assert_eq!(pushed.is_ok(), room);
                    next += if room { u64::from(n) } else { 0 };
                }
                Wanted::Take(n) => {
                    let mut slices = [&[][..]; 3];
                    let count = s.poll_transmit(now, &mut slices);
                    let mut bytes = slices[..count].concat();
                    bytes.truncate(n.into());
                    s.wrote(now, bytes.len(), 3000);
                    buf.extend_from_slice(&bytes);
                    let scan = layout.scan(&buf, 400);
                    for p in layout.payloads(&buf[..scan.bytes]) {
                        received += 1;
                        prop_assert_eq!(p, payload(received));
                    }
                    buf.drain(..scan.bytes);
                    let out = bytes_of(acked, received) + buf.len() as u64;
                    prop_assert!(out <= WINDOW, "{} beyond the window", out);
                }
                Wanted::Ack(n) => {
                    let latest = received.min(acked + u64::from(n));
                    if latest > acked {
                        let omitted = (latest - acked - 1) as u32;
                        acked = latest;
                        s.handle_read(now, &Reply::Ack { latest, omitted }.encode()).expect("a good server");
                    }
                }
                Wanted::Cut => {
                    buf.clear();
                    s.handle_cut().expect("a session outlives a cut");
                    s.check_invariants();
                    connect(&mut s, now, received, acked);
                }
                Wanted::Pass(ns) => now = now.after(ns.into()),
            }
            s.check_invariants();
            prop_assert_eq!(s.acked().get(), acked);
            prop_assert_eq!(s.last().get(), next - 1);
            prop_assert_eq!(s.unacked_bytes(), bytes_of(acked, next - 1));
            prop_assert!(s.sent().get() >= received && s.sent().get() < next);
            prop_assert!(s.held_bytes() < 3000 + 4000);
        }
    }
}

//! Tests a receiver with hostile input of a client.

use std::time::Duration;

use tidegate::Time;
use tidegate_link::Seq;
use tidegate_link::frame::{self, CLOSE, Code, Layout, PING, Reply};
use tidegate_link::hello::Welcome;
use tidegate_link::proto::{Receiver, ReceiverConfig, ReceiverError, cadence};

use super::{T, WELCOME, messages};

const CONFIG: ReceiverConfig = ReceiverConfig {
    frame_max: 100,
    window: 1000,
    when_done: false,
    idle: Duration::from_secs(1),
};

pub(super) fn receiver(layout: Layout) -> Receiver {
    match layout {
        Layout::Plain => Receiver::plain(T, CONFIG, cadence()),
        _ => Receiver::session(
            T,
            &Welcome {
                checked: layout == Layout::Checked,
                ..WELCOME
            },
            cadence(),
        ),
    }
}

/// Feeds `bytes` in parts of `part` bytes; returns the number of messages before the error, and the error.
pub(super) fn feed(r: &mut Receiver, bytes: &[u8], part: usize) -> (u64, Option<ReceiverError>) {
    let (mut buf, mut count) = (Vec::new(), 0);
    for part in bytes.chunks(part) {
        buf.extend_from_slice(part);
        loop {
            match r.handle_read(T, &buf) {
                Ok(batch) => {
                    count += batch.count;
                    buf.drain(..batch.taken);
                    if batch.taken == 0 {
                        break;
                    }
                }
                Err(e) => return (count, Some(e)),
            }
            r.check_invariants();
        }
    }
    (count, r.handle_eof(T, buf.len()).err())
}

/// Returns the last replies of the receiver, up to its bye.
fn last_words(r: &mut Receiver, layout: Layout) -> Vec<Reply> {
    let mut out = Vec::new();
    while let Some(unit) = r.poll_transmit(T) {
        out.push(Reply::decode(layout, unit.first_chunk().expect("12 bytes")));
        r.wrote(T, 12, 1000);
    }
    assert!(r.is_finished());
    out
}

#[test]
fn hostile_frames_to_a_receiver() {
    use ReceiverError as E;
    let good = |layout| messages(layout, 3, 10);
    let with = |layout: Layout, tail: &[u8]| [&good(layout)[..], tail].concat();
    let mut damaged = messages(Layout::Checked, 4, 10);
    let at = damaged.len() - 5;
    damaged[at] ^= 1;
    let control = |n: u32| frame::control(n).to_vec();
    let cases: Vec<(&str, Layout, Vec<u8>, u64, E)> = vec![
        (
            "large",
            Layout::Session,
            with(Layout::Session, &101u32.to_le_bytes()),
            3,
            E::TooLarge {
                size: 101,
                max: 100,
            },
        ),
        (
            "large",
            Layout::Plain,
            with(
                Layout::Plain,
                &[[9; 8].as_slice(), &[0xF0, 0xFF, 0xFF, 0xFF]].concat(),
            ),
            3,
            E::TooLarge {
                size: 0xFFFF_FFF0,
                max: 100,
            },
        ),
        (
            "damaged",
            Layout::Checked,
            damaged,
            3,
            E::Checksum { seq: Seq::new(4) },
        ),
        (
            "control",
            Layout::Session,
            with(Layout::Session, &control(0xFFFF_FFF0)),
            3,
            E::Control(0xFFFF_FFF0),
        ),
        (
            "mark",
            Layout::Session,
            with(Layout::Session, &control(0xFFFF_FFFF)),
            3,
            E::Control(0xFFFF_FFFF),
        ),
        (
            "late skip",
            Layout::Session,
            with(Layout::Session, &frame::skip(Seq::new(9))),
            3,
            E::Skip {
                next: Seq::new(9),
                received: Seq::new(3),
            },
        ),
        (
            "skip to nowhere",
            Layout::Session,
            frame::skip(Seq::FIRST).to_vec(),
            0,
            E::Skip {
                next: Seq::FIRST,
                received: Seq::NONE,
            },
        ),
        (
            "after close",
            Layout::Session,
            with(Layout::Session, &[control(CLOSE), control(PING)].concat()),
            3,
            E::AfterClose,
        ),
        (
            "cut short",
            Layout::Session,
            with(Layout::Session, &[10, 0, 0, 0, 1]),
            3,
            E::Truncated { bytes: 5 },
        ),
        (
            "cut short",
            Layout::Plain,
            with(Layout::Plain, &[1; 11]),
            3,
            E::Truncated { bytes: 11 },
        ),
    ];
    for (name, layout, bytes, count, error) in cases {
        for part in [1, 2, 3, 7, 1000] {
            let mut r = receiver(layout);
            assert_eq!(
                feed(&mut r, &bytes, part),
                (count, Some(error.clone())),
                "{name} in parts of {part}"
            );
            assert!(!error.to_string().is_empty() && !error.to_string().ends_with('.'));
            let said = last_words(&mut r, layout);
            // The receiver acknowledges the messages before the error, then sends the client the reason.
            let truncated = matches!(error, E::Truncated { .. });
            if layout != Layout::Plain && !truncated {
                assert_eq!(said.last(), Some(&Reply::Bye(error.code())), "{name}");
            }
            let acked = said.iter().any(|r| matches!(r, Reply::Ack { .. }));
            assert_eq!(acked, count > 0, "{name}: {said:?}");
            // The receiver must stay closed and take no further message.
            assert_eq!(r.handle_read(T, &bytes).map(|b| b.count), Ok(0));
        }
    }
}

/// Tests that the window stops a client that continues to send while the receiver acknowledges nothing.
#[test]
fn more_than_the_window() {
    let welcome = Welcome {
        when_done: true,
        ..WELCOME
    };
    let mut r = Receiver::session(T, &welcome, cadence());
    let (count, error) = feed(&mut r, &messages(Layout::Session, 1000, 46), 50);
    assert_eq!(count, 20);
    assert_eq!(
        error,
        Some(ReceiverError::Window {
            unacked: 1050,
            window: 1000
        })
    );
}

/// The handler reports no message as done: the number of marks that the receiver keeps stays within its
/// limit.
#[test]
fn nothing_is_ever_done() {
    let welcome = Welcome {
        when_done: true,
        window: 1 << 40,
        ..WELCOME
    };
    let mut r = Receiver::session(T, &welcome, cadence());
    let message = messages(Layout::Session, 1, 5);
    for _ in 0..100_000 {
        r.handle_read(T, &message).expect("room");
    }
    r.check_invariants();
    r.done(T, Seq::new(u64::MAX));
    assert_eq!(
        r.ready(),
        Seq::new(100_000),
        "nothing beyond what was received is done"
    );
}

#[test]
fn silence_and_deafness() {
    let mut r = receiver(Layout::Session);
    let late = Time::from_nanos(1_000_000_000);
    assert_eq!(r.handle_timeout(late), Err(ReceiverError::Idle));
    let unit = r
        .poll_transmit(late)
        .and_then(|u| u.first_chunk().copied())
        .expect("a bye");
    assert_eq!(
        Reply::decode(Layout::Session, &unit),
        Reply::Bye(Code::Idle)
    );

    // Half an acknowledgement leaves, and the socket never accepts the rest.
    let mut r = receiver(Layout::Plain);
    feed(&mut r, &messages(Layout::Plain, 2, 5), 100);
    assert_eq!(r.poll_transmit(T).map(<[u8]>::len), Some(12));
    r.wrote(T, 5, 100);
    assert_eq!(r.poll_transmit(T).map(<[u8]>::len), Some(7));
    assert_eq!(r.handle_timeout(late), Err(ReceiverError::Stuck));
    assert!(r.is_finished());
}

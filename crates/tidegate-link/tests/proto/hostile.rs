//! Tests input that violates the protocol: every case must end with the error that names it, at any split of
//! the bytes.

mod opening;
mod receiver;
mod sender;

use tidegate::Time;
use tidegate_link::frame::{self, Layout};
use tidegate_link::hello::{Answer, HandshakeError, Hello, VERSION, Welcome};
use tidegate_link::proto::ReceiverError;
use tidegate_link::proto::opening::detect;
use tidegate_link::{Seq, SessionId};

use self::opening::hello;
use self::receiver::{feed, receiver};
use self::sender::{push, sender, transmit};

const T: Time = Time::ZERO;
const ID: SessionId = SessionId([7; 16]);

const WELCOME: Welcome = Welcome {
    version: VERSION,
    checked: false,
    when_done: false,
    session: ID,
    epoch: 9,
    received: Seq::NONE,
    acked: Seq::NONE,
    window: 1000,
    frame_max: 100,
    idle_ms: 1000,
};

fn messages(layout: Layout, n: u64, len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    (1..=n).for_each(|seq| layout.encode(Seq::new(seq), &vec![seq as u8; len], &mut out));
    out
}

/// Tests that numbers and windows of any size cause no panic and no overflow.
#[test]
fn enormous_numbers() {
    let mut s = sender(true);
    s.handle_connected(T);
    transmit(&mut s);
    let welcome = Welcome {
        window: u64::MAX,
        frame_max: u32::MAX,
        idle_ms: u32::MAX,
        received: Seq::LAST,
        acked: Seq::LAST,
        ..WELCOME
    };
    s.handle_read(T, &Answer::Welcome(welcome).encode())
        .expect("nothing is wrong with it");
    push(&mut s, Seq::LAST.next().get(), 5);
    assert_eq!(transmit(&mut s).len(), 45);
    s.check_invariants();

    let beyond = Seq::LAST.next();
    let bytes = Answer::Welcome(Welcome {
        received: beyond,
        ..welcome
    })
    .encode();
    assert_eq!(Answer::decode(&bytes), Err(HandshakeError::Body));
    let bytes = Hello {
        epoch: 1,
        sent: beyond,
        ..hello()
    }
    .encode();
    assert_eq!(detect(&bytes), Err(HandshakeError::Body));
    let mut r = receiver(Layout::Session);
    let (_, error) = feed(&mut r, &frame::skip(beyond), 100);
    assert!(matches!(error, Some(ReceiverError::Skip { .. })));
}

//! Tests a sender with hostile answers of a server.

use std::time::Duration;

use tidegate::Time;
use tidegate_link::frame::{Code, Reply};
use tidegate_link::hello::{Answer, HandshakeError, Hello, Refused, Welcome};
use tidegate_link::proto::{
    Block, Event, Sender, SenderConfig, SenderError, SessionConfig, writes,
};
use tidegate_link::{Seq, SessionId};

use super::{ID, T, WELCOME};

pub(super) fn sender(session: bool) -> Sender {
    let config = SenderConfig {
        session: session.then(|| SessionConfig {
            id: ID,
            life: 5,
            checked: false,
            frame_max: 50,
            token: b"secret".to_vec(),
        }),
        held_max: 10_000,
        plain_window: 1000,
        write_max: 1 << 16,
        opening: Duration::from_secs(1),
        stall: Duration::ZERO,
    };
    Sender::new(T, config, writes(1 << 16))
}

pub(super) fn transmit(s: &mut Sender) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let mut slices = [&[][..]; 4];
        let n = s.poll_transmit(T, &mut slices);
        if n == 0 {
            return out;
        }
        let bytes = slices[..n].concat();
        out.extend_from_slice(&bytes);
        s.wrote(T, bytes.len(), 1000);
    }
}

pub(super) fn push(s: &mut Sender, first: u64, count: u64) {
    let mut bytes = Vec::new();
    let layout = s.layout();
    (first..first + count).for_each(|n| layout.encode(Seq::new(n), &[n as u8; 5], &mut bytes));
    let first = Seq::new(first);
    s.push(
        T,
        Block {
            bytes,
            first,
            count,
        },
    )
    .expect("room");
}

/// Returns a connected sender that has sent five messages, to which a hostile server then answers.
fn sending(session: bool) -> Sender {
    let mut s = sender(session);
    s.handle_connected(T);
    transmit(&mut s);
    if session {
        s.handle_read(T, &Answer::Welcome(WELCOME).encode())
            .expect("a welcome");
    }
    push(&mut s, 1, 5);
    assert!(!transmit(&mut s).is_empty());
    s
}

fn ack(latest: u64, omitted: u32) -> Vec<u8> {
    Reply::Ack { latest, omitted }.encode().to_vec()
}

#[test]
fn hostile_answers_to_a_sender() {
    use SenderError as E;
    let seq = Seq::new;
    let unknown = [[0; 8].as_slice(), &0xFFFF_FFF7u32.to_le_bytes()].concat();
    let cases: Vec<(bool, Vec<Vec<u8>>, u64, E)> = vec![
        (
            true,
            vec![ack(6, 5)],
            0,
            E::Impossible {
                latest: seq(6),
                sent: seq(5),
            },
        ),
        (
            true,
            vec![ack(u64::MAX, 0)],
            0,
            E::Impossible {
                latest: seq(u64::MAX),
                sent: seq(5),
            },
        ),
        (
            true,
            vec![ack(2, 1), ack(2, 0)],
            2,
            E::Repeated {
                latest: seq(2),
                previous: seq(2),
            },
        ),
        (
            true,
            vec![ack(3, 2), ack(1, 0)],
            3,
            E::Repeated {
                latest: seq(1),
                previous: seq(3),
            },
        ),
        (
            true,
            vec![ack(0, 0)],
            0,
            E::Repeated {
                latest: seq(0),
                previous: seq(0),
            },
        ),
        (
            true,
            vec![ack(1, 0), ack(4, 1)],
            1,
            E::Missing {
                latest: seq(4),
                expected: seq(3),
            },
        ),
        (
            true,
            vec![ack(1, 0), ack(3, 2)],
            1,
            E::Missing {
                latest: seq(3),
                expected: seq(4),
            },
        ),
        (true, vec![ack(5, 4), unknown], 5, E::Reply(0xFFFF_FFF7)),
        // The plain protocol counts from 0 and has no control frames, so 0xFFFFFFFE is an ordinary count.
        (
            false,
            vec![ack(0, 0), ack(5, 4)],
            1,
            E::Impossible {
                latest: seq(6),
                sent: seq(5),
            },
        ),
        (
            false,
            vec![ack(4, 0)],
            0,
            E::Missing {
                latest: seq(5),
                expected: seq(1),
            },
        ),
        (
            false,
            vec![ack(u64::MAX, 0)],
            0,
            E::Repeated {
                latest: seq(0),
                previous: seq(0),
            },
        ),
        (
            false,
            vec![ack(1, 0xFFFF_FFFE)],
            0,
            E::Missing {
                latest: seq(2),
                expected: seq(0xFFFF_FFFF),
            },
        ),
    ];
    for (session, replies, acked, error) in cases {
        for part in [1, 5, 100] {
            let mut s = sending(session);
            let bytes = replies.concat();
            let result = bytes.chunks(part).try_for_each(|part| {
                let read = s.handle_read(T, part);
                s.check_invariants();
                read
            });
            assert_eq!(result, Err(error.clone()));
            assert!(
                !error.is_passing(),
                "a server that does this is not asked again"
            );
            assert_eq!(s.acked(), seq(acked));
            assert_eq!(s.poll_timeout(), None, "it has ended");
            assert_eq!(transmit(&mut s), b"");
        }
    }
}

#[test]
fn an_answer_that_is_none() {
    use HandshakeError as H;
    let good = Answer::Welcome(WELCOME).encode();
    let changed = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        bytes
    };
    let cases = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), H::Magic),
        (vec![0; 12], H::Magic),
        (changed(10, 0xFE), H::Magic),
        (
            changed(13, 0xFF),
            H::Length(u16::from_le_bytes([good[12], 0xFF])),
        ),
        (changed(40, 0xAA), H::Checksum),
    ];
    for (bytes, error) in cases {
        for part in [1, 8, 1000] {
            let mut s = sender(true);
            s.handle_connected(T);
            transmit(&mut s);
            let read = bytes
                .chunks(part)
                .try_for_each(|part| s.handle_read(T, part));
            assert_eq!(read, Err(SenderError::Handshake(error)));
        }
    }
}

#[test]
fn a_welcome_that_contradicts() {
    let fails = |welcome: Welcome| {
        let mut s = sender(true);
        s.handle_connected(T);
        transmit(&mut s);
        s.handle_read(T, &Answer::Welcome(welcome).encode())
            .expect_err("a contradiction")
    };
    let says = |welcome: Welcome| match fails(welcome) {
        SenderError::Welcome(text) => text,
        other => panic!("{other:?}"),
    };
    assert!(
        says(Welcome {
            session: SessionId([8; 16]),
            ..WELCOME
        })
        .contains("session")
    );
    assert!(
        says(Welcome {
            checked: true,
            ..WELCOME
        })
        .contains("checksums")
    );
    assert!(
        says(Welcome {
            frame_max: 49,
            ..WELCOME
        })
        .contains("smaller")
    );
    assert!(
        says(Welcome {
            window: 103,
            ..WELCOME
        })
        .contains("window")
    );
    assert_eq!(
        fails(Welcome {
            version: 2,
            ..WELCOME
        }),
        SenderError::Version(2)
    );
    let body = SenderError::Handshake(HandshakeError::Body);
    assert_eq!(
        fails(Welcome {
            epoch: 0,
            ..WELCOME
        }),
        body
    );
    assert_eq!(
        fails(Welcome {
            acked: Seq::new(1),
            ..WELCOME
        }),
        body
    );
}

#[test]
fn a_session_that_is_not_the_one_it_was() {
    for (received, fits) in [(1, false), (2, true), (5, true), (6, false)] {
        let mut s = sending(true);
        s.handle_read(T, &ack(2, 1)).expect("an acknowledgement");
        s.handle_cut().expect("a session outlives a cut");
        s.handle_connected(T);
        let hello = transmit(&mut s);
        let (hello, _) = Hello::decode(&hello).expect("a hello").expect("all of it");
        assert_eq!(
            (hello.epoch, hello.acked, hello.sent, hello.life),
            (9, Seq::new(2), Seq::new(5), 5)
        );
        let received = Seq::new(received);
        let read = s.handle_read(
            T,
            &Answer::Welcome(Welcome {
                received,
                ..WELCOME
            })
            .encode(),
        );
        let gap = SenderError::Gap {
            received,
            acked: Seq::new(2),
            sent: Seq::new(5),
        };
        assert_eq!(read, if fits { Ok(()) } else { Err(gap) });
        let rest = 5 - received.get().min(5);
        assert_eq!(
            transmit(&mut s).len() as u64,
            if fits { rest * 9 } else { 0 }
        );
    }
}

/// A new life begins after message 10, and the server then falls back to message 4. The client must not send
/// message 11 as message 5.
#[test]
fn a_server_that_fell_back_behind_where_a_life_began() {
    let mut s = sender(true);
    s.handle_connected(T);
    transmit(&mut s);
    let began = Welcome {
        received: Seq::new(10),
        acked: Seq::new(4),
        when_done: true,
        ..WELCOME
    };
    s.handle_read(T, &Answer::Welcome(began).encode())
        .expect("a welcome");
    push(&mut s, 11, 5);
    transmit(&mut s);
    s.handle_cut().expect("a session outlives a cut");
    s.handle_connected(T);
    transmit(&mut s);
    let fell = Welcome {
        received: Seq::new(4),
        ..began
    };
    let gap = SenderError::Gap {
        received: Seq::new(4),
        acked: Seq::new(10),
        sent: Seq::new(15),
    };
    let read = s.handle_read(T, &Answer::Welcome(fell).encode());
    assert_eq!(read, Err(gap));
    assert_eq!(transmit(&mut s), b"");
}

#[test]
fn a_refusal_says_why_and_whether_to_come_again() {
    for (code, passing) in [
        (Code::Token, false),
        (Code::Full, true),
        (Code::Closing, true),
        (Code::Other(99), false),
    ] {
        let mut s = sender(true);
        s.handle_connected(T);
        transmit(&mut s);
        let refused = Refused {
            code,
            text: "no\x1b[2J\nroom".into(),
        };
        let error = s
            .handle_read(T, &Answer::Refused(refused).encode())
            .expect_err("a refusal");
        assert_eq!(error.is_passing(), passing);
        assert_eq!(
            error.to_string(),
            "the server refuses the session: no [2J room",
            "it cannot write on a terminal"
        );
    }
}

#[test]
fn an_answer_that_never_comes() {
    let mut s = sender(true);
    s.handle_connected(T);
    transmit(&mut s);
    let at = s.poll_timeout().expect("a deadline");
    assert_eq!(at, Time::from_nanos(1_000_000_000));
    assert_eq!(s.handle_timeout(at), Err(SenderError::Unanswered));
    assert!(SenderError::Unanswered.is_passing());
}

#[test]
fn a_plain_server_that_stops_in_the_middle_of_a_reply() {
    let mut s = sending(false);
    s.handle_read(T, &[ack(4, 4), vec![1, 2]].concat())
        .expect("all and a bit");
    s.close();
    assert_eq!(s.handle_cut(), Err(SenderError::Truncated));
}

/// Tests that a bye replaces no earlier event that the client has not taken yet.
#[test]
fn a_bye_after_all_is_still_told() {
    let mut s = sending(true);
    let bytes = [ack(5, 4), Reply::Bye(Code::Closing).encode().to_vec()].concat();
    s.handle_read(T, &bytes).expect("a bye");
    assert!(matches!(s.poll_event(), Some(Event::Opened { .. })));
    assert_eq!(s.poll_event(), Some(Event::Bye(Code::Closing)));
    assert_eq!(s.poll_event(), None);
}

//! What the other side must not send: every case ends with the error that names it, however the bytes are split.

use std::time::Duration;

use tidegate::Time;
use tidegate_link::frame::{self, CLOSE, Code, Layout, PING, Reply};
use tidegate_link::hello::{
    Answer, HANDSHAKE_MAX, HandshakeError, Hello, Refused, VERSION, Welcome,
};
use tidegate_link::proto::opening::{Kept, Opening, Terms, admit, detect};
use tidegate_link::proto::{
    Block, Event, Receiver, ReceiverConfig, ReceiverError, Sender, SenderConfig, SenderError,
    SessionConfig, cadence, writes,
};
use tidegate_link::{Seq, SessionId};

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

const CONFIG: ReceiverConfig = ReceiverConfig {
    frame_max: 100,
    window: 1000,
    when_done: false,
    idle: Duration::from_secs(1),
};

fn receiver(layout: Layout) -> Receiver {
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

fn messages(layout: Layout, n: u64, len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    (1..=n).for_each(|seq| layout.encode(Seq::new(seq), &vec![seq as u8; len], &mut out));
    out
}

/// Feeds `bytes` in parts of `part`; answers how many messages came out before the error, and the error.
fn feed(r: &mut Receiver, bytes: &[u8], part: usize) -> (u64, Option<ReceiverError>) {
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

/// What the receiver says at the end.
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
fn what_a_receiver_is_sent() {
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
            // What was received before is acknowledged, then the client is told why.
            let truncated = matches!(error, E::Truncated { .. });
            if layout != Layout::Plain && !truncated {
                assert_eq!(said.last(), Some(&Reply::Bye(error.code())), "{name}");
            }
            let acked = said.iter().any(|r| matches!(r, Reply::Ack { .. }));
            assert_eq!(acked, count > 0, "{name}: {said:?}");
            // It stays closed.
            assert_eq!(r.handle_read(T, &bytes).map(|b| b.count), Ok(0));
        }
    }
}

/// A client that sends on without an acknowledgement is stopped at the window, when nothing acknowledges.
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

/// Messages that are never done are known by no more marks than there may be.
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

    // Half an acknowledgement went out, the rest is never taken.
    let mut r = receiver(Layout::Plain);
    feed(&mut r, &messages(Layout::Plain, 2, 5), 100);
    assert_eq!(r.poll_transmit(T).map(<[u8]>::len), Some(12));
    r.wrote(T, 5, 100);
    assert_eq!(r.poll_transmit(T).map(<[u8]>::len), Some(7));
    assert_eq!(r.handle_timeout(late), Err(ReceiverError::Stuck));
    assert!(r.is_finished());
}

// ---- the client's side

fn sender(session: bool) -> Sender {
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

fn transmit(s: &mut Sender) -> Vec<u8> {
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

fn push(s: &mut Sender, first: u64, count: u64) {
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

/// Connected, five messages sent.
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
fn what_a_sender_is_answered() {
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
        // Plain counts from 0, and 0xFFFFFFFE is a count as any other.
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

/// Numbers and windows of any size do no harm.
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

/// A life began after message 10, of which the server falls back to 4: it does not send message 11 as the fifth.
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

// ---- the opening

fn hello() -> Hello {
    Hello {
        version: VERSION,
        checked: false,
        session: ID,
        life: 5,
        epoch: 0,
        acked: Seq::NONE,
        sent: Seq::NONE,
        frame_max: 0,
        token: Vec::new(),
    }
}

#[test]
fn a_connection_shows_what_it_is_as_early_as_it_can() {
    let bytes = hello().encode();
    for end in 0..bytes.len() {
        assert_eq!(detect(&bytes[..end]), Ok(Opening::More));
    }
    let opened = Opening::Session {
        hello: hello(),
        bytes: bytes.len(),
    };
    assert_eq!(detect(&[&bytes[..], b"frames"].concat()), Ok(opened));
    assert_eq!(detect(&messages(Layout::Plain, 1, 5)), Ok(Opening::Plain));
    // With the mark of a session, but something else before it.
    let mut bytes = bytes;
    bytes[0] = b'T';
    assert_eq!(detect(&bytes[..12]), Err(HandshakeError::Magic));
    assert!(hello().encode().len() < HANDSHAKE_MAX);
    // A client that knows of no server has sent nothing; nobody has more acknowledged than sent.
    for (epoch, acked, sent) in [(0, 0, 1), (0, 1, 1), (3, 5, 4)] {
        let (acked, sent) = (Seq::new(acked), Seq::new(sent));
        let bytes = Hello {
            epoch,
            acked,
            sent,
            ..hello()
        }
        .encode();
        assert_eq!(detect(&bytes), Err(HandshakeError::Body));
    }
}

#[test]
fn who_is_let_in() {
    let terms = Terms {
        window: 1000,
        frame_max: 100,
        when_done: false,
        idle_ms: 0,
    };
    let kept = Kept {
        epoch: 9,
        received: Seq::new(50),
        acked: Seq::new(40),
        life: Some(5),
    };
    let code = |hello: &Hello, kept| admit(hello, kept, &terms, 77).map_err(|r| r.code);
    let known = Hello {
        epoch: 9,
        acked: Seq::new(30),
        sent: Seq::new(60),
        ..hello()
    };

    let w = code(&hello(), None).expect("a new session");
    assert_eq!((w.epoch, w.received, w.acked), (77, Seq::NONE, Seq::NONE));
    let w = code(&hello(), Some(kept)).expect("a new life");
    assert_eq!(
        (w.epoch, w.received, w.acked),
        (9, Seq::new(50), Seq::new(40))
    );
    let w = code(&known, Some(kept)).expect("the same life");
    assert_eq!(
        (w.epoch, w.received, w.acked),
        (9, Seq::new(50), Seq::new(40))
    );
    let w = code(&known, None).expect("a server that forgot");
    assert_eq!(
        (w.epoch, w.received, w.acked),
        (77, Seq::new(30), Seq::new(30))
    );
    let again = admit(&known, None, &terms, 9).expect("let in");
    assert!(
        again.epoch != 9 && again.epoch != 0,
        "another state never has the same epoch"
    );
    let w =
        code(&known, Some(Kept { life: None, ..kept })).expect("a server that forgot who it was");
    assert_eq!(w.received, Seq::new(50));

    assert_eq!(
        code(
            &Hello {
                life: 6,
                ..known.clone()
            },
            Some(kept)
        ),
        Err(Code::Displaced)
    );
    assert_eq!(
        code(
            &Hello {
                sent: Seq::new(49),
                ..known.clone()
            },
            Some(kept)
        ),
        Err(Code::Gap)
    );
    assert_eq!(
        code(
            &Hello {
                acked: Seq::new(51),
                ..known.clone()
            },
            Some(kept)
        ),
        Err(Code::Gap)
    );
    assert_eq!(
        code(
            &Hello {
                version: 2,
                ..hello()
            },
            None
        ),
        Err(Code::Version)
    );
    assert_eq!(
        code(
            &Hello {
                frame_max: 101,
                ..hello()
            },
            None
        ),
        Err(Code::TooLarge)
    );
}

/// An event is never lost to a later one that matters less.
#[test]
fn a_bye_after_all_is_still_told() {
    let mut s = sending(true);
    let bytes = [ack(5, 4), Reply::Bye(Code::Closing).encode().to_vec()].concat();
    s.handle_read(T, &bytes).expect("a bye");
    assert!(matches!(s.poll_event(), Some(Event::Opened { .. })));
    assert_eq!(s.poll_event(), Some(Event::Bye(Code::Closing)));
    assert_eq!(s.poll_event(), None);
}

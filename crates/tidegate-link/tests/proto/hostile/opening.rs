//! Tests the opening of a connection, and the admission of clients, with wrong or contradicting handshakes.

use tidegate_link::Seq;
use tidegate_link::frame::{Code, Layout};
use tidegate_link::hello::{HANDSHAKE_MAX, HandshakeError, Hello, VERSION};
use tidegate_link::proto::opening::{Kept, Opening, Terms, admit, detect};

use super::{ID, messages};

pub(super) fn hello() -> Hello {
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
    // The bytes have the mark of a session, but not the magic number before it.
    let mut bytes = bytes;
    bytes[0] = b'T';
    assert_eq!(detect(&bytes[..12]), Err(HandshakeError::Magic));
    assert!(hello().encode().len() < HANDSHAKE_MAX);
    // A client without an epoch has sent nothing yet, and no client has more messages acknowledged than sent.
    // So these hellos contradict themselves.
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
fn peers_with_the_secret_are_let_in() {
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

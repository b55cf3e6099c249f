//! The start of a connection on the server's side: detects the protocol, and decides
//! whether to let a session's client in.
//!
//! Pure: the driver passes in the kept state of the session and a random number for a new epoch.

use crate::Seq;
use crate::frame::Code;
use crate::hello::{HandshakeError, Hello, Refused, VERSION, Welcome, opens_session};

/// The protocol a connection speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Too early to tell: the driver reads on. The decision needs at most
    /// [`HANDSHAKE_MAX`](crate::hello::HANDSHAKE_MAX) bytes.
    More,
    /// The connection speaks the plain protocol, from its first byte on.
    Plain,
    /// The connection opens a session.
    Session {
        /// The client's hello.
        hello: Hello,
        /// The number of bytes of the hello; frames follow.
        bytes: usize,
    },
}

/// Detects the protocol from `bytes`, all bytes read so far.
///
/// # Errors
/// As soon as the bytes fit neither protocol.
pub fn detect(bytes: &[u8]) -> Result<Opening, HandshakeError> {
    match opens_session(bytes) {
        None => Ok(Opening::More),
        Some(false) => Ok(Opening::Plain),
        Some(true) => Ok(match Hello::decode(bytes)? {
            None => Opening::More,
            Some((hello, bytes)) => Opening::Session { hello, bytes },
        }),
    }
}

/// The state a server kept of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The name of this state: never 0.
    pub epoch: u64,
    /// The highest number received with none missing.
    pub received: Seq,
    /// The highest number acknowledged, by the server's rule: at most `received`.
    pub acked: Seq,
    /// The life of the client that had the session last; `None` if the server no longer knows it.
    pub life: Option<u64>,
}

/// The terms a server offers every session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The most bytes of frames a client may have unacknowledged.
    pub window: u64,
    /// The largest message.
    pub frame_max: u32,
    /// True if acknowledgements wait for the handler.
    pub when_done: bool,
    /// The milliseconds of silence after which the server closes: see [`Welcome::idle_ms`].
    pub idle_ms: u32,
}

/// Decides whether the server lets in the client that said `hello`, and at which message the client
/// continues. The caller has checked the token.
///
/// `fresh` is a random number: the epoch if the server has no state of this session. The session then begins
/// after the messages that the client knows to be acknowledged.
///
/// # Errors
/// The refusal that the caller sends to the client.
pub fn admit(
    hello: &Hello,
    kept: Option<Kept>,
    terms: &Terms,
    fresh: u64,
) -> Result<Welcome, Refused> {
    if hello.version != VERSION {
        let text = format!(
            "expected version {VERSION} of the session protocol, not {}",
            hello.version
        );
        return Err(refused(Code::Version, text));
    }
    if hello.frame_max > terms.frame_max {
        let text = format!(
            "messages of up to {} bytes are too large: at most {} are allowed",
            hello.frame_max, terms.frame_max
        );
        return Err(refused(Code::TooLarge, text));
    }
    let kept = match kept {
        Some(kept) => returned(hello, kept)?,
        None => Kept {
            epoch: another(fresh, hello.epoch),
            received: hello.acked,
            acked: hello.acked,
            life: None,
        },
    };
    Ok(Welcome {
        version: VERSION,
        checked: hello.checked,
        when_done: terms.when_done,
        session: hello.session,
        epoch: kept.epoch,
        received: kept.received,
        acked: kept.acked,
        window: terms.window,
        frame_max: terms.frame_max,
        idle_ms: terms.idle_ms,
    })
}

/// Returns `fresh`, or another number if `fresh` is 0, which is no epoch, or `gone`, the epoch of the lost
/// state.
const fn another(fresh: u64, gone: u64) -> u64 {
    match fresh {
        0 => another(1, gone),
        n if n == gone => another(n.wrapping_add(1), gone),
        n => n,
    }
}

/// Admits a client that returns to a session the server knows.
fn returned(hello: &Hello, kept: Kept) -> Result<Kept, Refused> {
    // A client in a new life asks for the session's position and takes over.
    if hello.epoch == 0 {
        return Ok(kept);
    }
    if kept.life.is_some_and(|life| life != hello.life) {
        let text = "another client has opened this session since".to_owned();
        return Err(refused(Code::Displaced, text));
    }
    if kept.received < hello.acked || kept.received > hello.sent {
        let text = format!(
            "the server has everything up to {}, the client had {} acknowledged and sent up to {}: they do not know the same session",
            kept.received, hello.acked, hello.sent
        );
        return Err(refused(Code::Gap, text));
    }
    Ok(kept)
}

/// Returns the answer that refuses a client for this reason, with a text for people.
#[must_use]
pub fn refused(code: Code, text: impl Into<String>) -> Refused {
    Refused {
        code,
        text: text.into(),
    }
}

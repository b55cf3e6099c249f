//! The start of a connection on the server's side: detects the protocol, and decides whether to let a
//! session's client in.
//!
//! Pure: the driver passes in the kept state of the session and a random number for a new epoch.

use crate::Seq;
use crate::frame::Code;
use crate::hello::{HandshakeError, Hello, Refused, VERSION, Welcome, opens_session};

/// The protocol that a client's connection speaks, by its first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening {
    /// The bytes are too few to tell the protocol: the driver reads on. The decision needs at most
    /// [`HANDSHAKE_MAX`](crate::hello::HANDSHAKE_MAX) bytes.
    More,
    /// The connection speaks the plain protocol, from its first byte on.
    Plain,
    /// The connection opens a session.
    Session {
        /// The hello that the client sent.
        hello: Hello,
        /// The length of the hello in bytes; the client's first frames follow it.
        bytes: usize,
    },
}

/// Detects a connection's protocol from `bytes`, all bytes read so far.
///
/// # Errors
/// An error as soon as the bytes fit neither protocol.
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

/// The state of a session that a server keeps between connections, so that a returning client can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The epoch that names this state of the session, so that a client detects a lost state: never 0.
    pub epoch: u64,
    /// The highest message number that the server has received with none missing: the client goes on after
    /// it.
    pub received: Seq,
    /// The highest message number acknowledged, on receipt or when done, as the server is set: at most
    /// `received`.
    pub acked: Seq,
    /// The life of the client that had the session last, to tell it from another client; `None` if the server
    /// no longer knows that client.
    pub life: Option<u64>,
}

/// The terms of every session, which the server sets and names in its welcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The greatest number of bytes of frames that a client may have unacknowledged.
    pub window: u64,
    /// The longest message that the server accepts from a client, in bytes.
    pub frame_max: u32,
    /// True if the server acknowledges a message only once its handler is done with the message.
    pub when_done: bool,
    /// The milliseconds without a sign of the client after which the server closes the connection: see
    /// [`Welcome::idle_ms`].
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

/// Returns `fresh` as a new epoch. Returns another number if `fresh` is 0, which is no epoch, or equals
/// `gone`, the epoch of the lost state.
const fn another(fresh: u64, gone: u64) -> u64 {
    match fresh {
        0 => another(1, gone),
        n if n == gone => another(n.wrapping_add(1), gone),
        n => n,
    }
}

/// Decides about a client that returns to a session of which the server has the state: lets it in or refuses
/// it.
fn returned(hello: &Hello, kept: Kept) -> Result<Kept, Refused> {
    // A client in a new life (epoch 0), such as a restarted program, knows nothing of the session: it asks
    // for the session's position and takes the session over.
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

/// Returns the answer that refuses a client for the reason `code`, with a text for people.
#[must_use]
pub fn refused(code: Code, text: impl Into<String>) -> Refused {
    Refused {
        code,
        text: text.into(),
    }
}

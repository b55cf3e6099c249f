//! The bytes of the handshake: the hello, with which a client opens a session, and the server's answer.
//!
//! All handshakes have one envelope: `tidegate`, 0xFFFFFFFF (in the place of a plain message's size, where no
//! valid size is this large), the length of the body (u16), the body, and the CRC32C of everything before it.
//! Later versions may lengthen bodies: a decoder ignores the unknown bytes after the known fields. `proto`
//! interprets the fields.

use std::fmt;

use crate::Seq;
use crate::frame::Code;

/// The version of the session protocol that this crate speaks. A side that gets another version refuses it.
pub const VERSION: u16 = 1;
/// The greatest number of bytes that a client's token may have, so that a handshake stays short.
pub const TOKEN_MAX: usize = 1024;
/// The greatest number of bytes that a hello or the server's answer may have, envelope included, so that a
/// reader knows when to give up.
pub const HANDSHAKE_MAX: usize = HEAD + BODY_MAX + 4;

const MAGIC: &[u8; 8] = b"tidegate";
const MARK: u32 = 0xFFFF_FFFF;
const HEAD: usize = 14;
const BODY_MAX: usize = 2048;
const TEXT_MAX: usize = 512;

const FLAG_CHECKED: u16 = 1;
const FLAG_DONE: u16 = 2;

const KIND_WELCOME: u16 = 1;
const KIND_REFUSED: u16 = 2;

/// The id of a session, by which the server finds its state: 128 random bits, or an id that a program derives
/// from a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct SessionId(pub [u8; 16]);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The hello: the message with which a client opens a connection of the session protocol.
#[derive(Clone, PartialEq, Eq)]
pub struct Hello {
    /// The protocol version that the client speaks, which the server must speak, too.
    pub version: u16,
    /// True if the client wants a CRC32C on each frame, against damage on the way.
    pub checked: bool,
    /// The id of the session that the client opens or resumes.
    pub session: SessionId,
    /// A random number that the client draws once in its life. By this number a server tells a client that
    /// connects again from another client of the same session.
    pub life: u64,
    /// The epoch in the last welcome that the client got from a server, so that a server detects that it lost
    /// the state; 0 before the first welcome.
    pub epoch: u64,
    /// The highest message number that the client knows to be acknowledged. The client may no longer have the
    /// messages up to it.
    pub acked: Seq,
    /// The highest number of a message that the client ever sent, whole or in part: the server cannot have
    /// more.
    pub sent: Seq,
    /// The longest message, in bytes, that the client wants to send; 0 for the server's limit.
    pub frame_max: u32,
    /// The secret token that the client shows to the server to be let in; may be empty.
    pub token: Vec<u8>,
}

/// Prints a hello for debugging without its token, which is a secret.
impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hello")
            .field("version", &self.version)
            .field("checked", &self.checked)
            .field("session", &self.session)
            .field("life", &self.life)
            .field("epoch", &self.epoch)
            .field("acked", &self.acked)
            .field("sent", &self.sent)
            .field("frame_max", &self.frame_max)
            .field("token_bytes", &self.token.len())
            .finish()
    }
}

/// The welcome: the server's answer to a hello that lets the client in, with the terms of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The protocol version of this connection, which both sides speak.
    pub version: u16,
    /// True if each frame on this connection carries a CRC32C, as the client asked.
    pub checked: bool,
    /// True if the server acknowledges a message only once its handler is done with it, and not on receipt.
    pub when_done: bool,
    /// The id of the session that the client has opened, as a check of the answer.
    pub session: SessionId,
    /// The name of the server's state of this session: a new epoch means that the server lost the old state.
    pub epoch: u64,
    /// The highest message number that the server has received with none missing: the client goes on after
    /// it.
    pub received: Seq,
    /// The highest message number that the server has acknowledged: the client forgets the messages up to it.
    pub acked: Seq,
    /// The greatest number of bytes of frames that the client may have unacknowledged; then it must wait.
    pub window: u64,
    /// The longest message that the server allows the client to send, in bytes.
    pub frame_max: u32,
    /// The server closes the connection when it hears nothing for this many milliseconds; 0 for never.
    pub idle_ms: u32,
}

/// The refusal: the server's answer to a hello that refuses the client, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The reason for the refusal as a code.
    pub code: Code,
    /// The reason for the refusal as text for people.
    pub text: String,
}

/// The server's answer to a hello: it lets the client in or refuses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The server lets the client in.
    Welcome(Welcome),
    /// The server refuses the client.
    Refused(Refused),
}

/// The reasons why the bytes that one side received are no valid handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The first bytes are not `tidegate` and the mark, with which every handshake begins.
    Magic,
    /// The handshake's body is longer than the 2048 bytes that this version allows; holds its length.
    Length(u16),
    /// The checksum at the end of the handshake does not match its bytes.
    Checksum,
    /// The handshake's body ends too early, or a field in it has a value that it cannot have.
    Body,
    /// The server's answer to the hello is of a kind that this version does not know; holds the kind.
    Kind(u16),
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str(
                "expected a handshake of the session protocol: the other side speaks something else, or TLS on one side only",
            ),
            Self::Length(n) => write!(
                f,
                "a handshake of {n} bytes: at most {BODY_MAX} are allowed"
            ),
            Self::Checksum => f.write_str("the checksum of the handshake is wrong: it was damaged on its way"),
            Self::Body => f.write_str("the handshake's body is cut short or contradicts itself"),
            Self::Kind(n) => write!(f, "an answer of kind {n}, expected a welcome (1) or a refusal (2)"),
        }
    }
}

impl std::error::Error for HandshakeError {}

/// Returns whether a connection that begins with `bytes` opens a session, or `None` while there are fewer
/// than 12 bytes. A connection without a session speaks the plain protocol.
#[must_use]
pub fn opens_session(bytes: &[u8]) -> Option<bool> {
    let size = bytes.get(8..12)?.first_chunk()?;
    Some(u32::from_le_bytes(*size) == MARK)
}

/// Returns the body of the handshake at the start of `bytes`, and the length of the whole envelope in bytes.
/// Returns `None` while the envelope is not complete, and an error as soon as the bytes cannot become an
/// envelope, so that no reader waits in vain.
fn open(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, HandshakeError> {
    let begins = MAGIC.iter().chain(&[0xFF; 4]);
    if bytes.iter().zip(begins).any(|(a, b)| a != b) {
        return Err(HandshakeError::Magic);
    }
    let Some(len) = bytes.get(12..).and_then(<[u8]>::first_chunk) else {
        return Ok(None);
    };
    let len = u16::from_le_bytes(*len);
    let end = HEAD + len as usize;
    if len as usize > BODY_MAX {
        return Err(HandshakeError::Length(len));
    }
    let Some(sum) = bytes.get(end..).and_then(<[u8]>::first_chunk) else {
        return Ok(None);
    };
    let body = &bytes[HEAD..end];
    if crc32c::crc32c(&bytes[..end]) != u32::from_le_bytes(*sum) {
        return Err(HandshakeError::Checksum);
    }
    Ok(Some((body, end + 4)))
}

fn seal(body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(body.len()).expect("the lengths of tokens and texts are bounded");
    let mut out = Vec::with_capacity(HEAD + body.len() + 4);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&MARK.to_le_bytes());
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(body);
    let sum = crc32c::crc32c(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// The bytes of a handshake's body that the decoder has not read yet. Each method takes one field off the
/// front of these bytes.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], HandshakeError> {
        let (field, rest) = self.0.split_first_chunk().ok_or(HandshakeError::Body)?;
        self.0 = rest;
        Ok(*field)
    }

    fn u16(&mut self) -> Result<u16, HandshakeError> {
        self.bytes().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, HandshakeError> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, HandshakeError> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], HandshakeError> {
        let (field, rest) = self.0.split_at_checked(len).ok_or(HandshakeError::Body)?;
        self.0 = rest;
        Ok(field)
    }
}

impl Hello {
    /// Encodes the hello. A token is cut at [`TOKEN_MAX`] bytes, and then matches no server's token.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let token = &self.token[..self.token.len().min(TOKEN_MAX)];
        let mut body = Vec::with_capacity(64 + token.len());
        body.extend_from_slice(&self.version.to_le_bytes());
        body.extend_from_slice(&u16::from(self.checked).to_le_bytes());
        body.extend_from_slice(&self.session.0);
        for n in [self.life, self.epoch, self.acked.get(), self.sent.get()] {
            body.extend_from_slice(&n.to_le_bytes());
        }
        body.extend_from_slice(&self.frame_max.to_le_bytes());
        body.extend_from_slice(&(token.len() as u16).to_le_bytes());
        body.extend_from_slice(token);
        seal(&body)
    }

    /// Returns the hello at the start of `bytes` and its length in bytes; `None` while the hello is not
    /// complete.
    ///
    /// # Errors
    /// An error as soon as the bytes cannot become a hello.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, HandshakeError> {
        let Some((body, len)) = open(bytes)? else {
            return Ok(None);
        };
        let mut f = Fields(body);
        let version = f.u16()?;
        let flags = f.u16()?;
        let hello = Self {
            version,
            checked: flags & FLAG_CHECKED != 0,
            session: SessionId(f.bytes()?),
            life: f.u64()?,
            epoch: f.u64()?,
            acked: Seq::new(f.u64()?),
            sent: Seq::new(f.u64()?),
            frame_max: f.u32()?,
            token: {
                let len = f.u16()? as usize;
                if len > TOKEN_MAX {
                    return Err(HandshakeError::Body);
                }
                f.take(len)?.to_vec()
            },
        };
        let never = hello.epoch == 0 && (hello.sent > Seq::NONE || hello.acked > Seq::NONE);
        if never || hello.acked > hello.sent || hello.sent > Seq::LAST {
            return Err(HandshakeError::Body);
        }
        Ok(Some((hello, len)))
    }
}

impl Answer {
    /// Encodes the answer for the wire. Cuts the text of a refusal at 512 bytes, so that the handshake stays
    /// short.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(64);
        match self {
            Self::Welcome(w) => {
                let flags =
                    u16::from(w.checked) * FLAG_CHECKED + u16::from(w.when_done) * FLAG_DONE;
                for n in [KIND_WELCOME, w.version, flags] {
                    body.extend_from_slice(&n.to_le_bytes());
                }
                body.extend_from_slice(&w.session.0);
                for n in [w.epoch, w.received.get(), w.acked.get(), w.window] {
                    body.extend_from_slice(&n.to_le_bytes());
                }
                body.extend_from_slice(&w.frame_max.to_le_bytes());
                body.extend_from_slice(&w.idle_ms.to_le_bytes());
            }
            Self::Refused(r) => {
                body.extend_from_slice(&KIND_REFUSED.to_le_bytes());
                body.extend_from_slice(&r.code.get().to_le_bytes());
                let end = r.text.floor_char_boundary_at(TEXT_MAX);
                body.extend_from_slice(&r.text.as_bytes()[..end]);
            }
        }
        seal(&body)
    }

    /// Returns the answer at the start of `bytes` and its length in bytes; `None` while the answer is not
    /// complete.
    ///
    /// # Errors
    /// An error as soon as the bytes cannot become an answer.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, HandshakeError> {
        let Some((body, len)) = open(bytes)? else {
            return Ok(None);
        };
        let mut f = Fields(body);
        let answer = match f.u16()? {
            KIND_WELCOME => Self::Welcome(Self::welcome(&mut f)?),
            KIND_REFUSED => {
                let code = Code::from(f.u16()?);
                let text = &f.0[..f.0.len().min(TEXT_MAX)];
                let text = String::from_utf8_lossy(text).replace(|c: char| c.is_control(), " ");
                Self::Refused(Refused { code, text })
            }
            kind => return Err(HandshakeError::Kind(kind)),
        };
        Ok(Some((answer, len)))
    }

    fn welcome(f: &mut Fields<'_>) -> Result<Welcome, HandshakeError> {
        let version = f.u16()?;
        let flags = f.u16()?;
        let welcome = Welcome {
            version,
            checked: flags & FLAG_CHECKED != 0,
            when_done: flags & FLAG_DONE != 0,
            session: SessionId(f.bytes()?),
            epoch: f.u64()?,
            received: Seq::new(f.u64()?),
            acked: Seq::new(f.u64()?),
            window: f.u64()?,
            frame_max: f.u32()?,
            idle_ms: f.u32()?,
        };
        if welcome.epoch == 0 || welcome.acked > welcome.received || welcome.received > Seq::LAST {
            return Err(HandshakeError::Body);
        }
        Ok(welcome)
    }
}

/// Finds the last place at or before an offset where a text may be cut without splitting a character.
trait CharBoundary {
    fn floor_char_boundary_at(&self, at: usize) -> usize;
}

impl CharBoundary for str {
    fn floor_char_boundary_at(&self, at: usize) -> usize {
        (0..=at.min(self.len()))
            .rev()
            .find(|&i| self.is_char_boundary(i))
            .unwrap_or(0)
    }
}

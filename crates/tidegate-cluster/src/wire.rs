//! Encodes and decodes the bytes between nodes: frames, which the node writes into an [`Outbox`] and decodes
//! in place.
//!
//! ```text
//! u32  bytes of kind and body          all numbers little-endian
//! u8   kind
//!      body
//! u32  CRC32C of everything before it
//! ```
//!
//! This module owns only the layout of frames. The reader refuses a frame that is too long by its first four
//! bytes, before it buffers any byte of the body. These four bytes also expose a peer that speaks another
//! protocol.

use crate::groups::GroupId;
use bytes::Bytes;
use tidegate_nats::outbox::Outbox;
use tidegate_nats::parse::Publish;
use tidegate_nats::{subject, system};

use super::interest::InterestUpdate;

/// The greatest number of nodes that pass a message on, one after the other, so that no message circles
/// forever. A node passes a message on if the message's receivers on this node have just unsubscribed.
pub const PASSED_MAX: u8 = 8;

/// The greatest number of bytes of kind and body of a frame: room for the largest message, with its subjects.
pub const FRAME_BYTES_MAX: usize = 72 * 1024 * 1024;
/// The greatest number of bytes of kind and body of a frame before the greeting is over, so that a stranger
/// cannot fill a node's memory.
pub const GREETING_BYTES_MAX: usize = 4096;
/// The greatest number of bytes of the text in a `Refused` frame, so that the frame fits into a greeting.
const TEXT_BYTES_MAX: usize = 1024;

/// The number of bytes that a frame has besides its body: length, kind and checksum. A node counts them,
/// too, when it counts the bytes of its frames.
pub const ENVELOPE_BYTES: usize = 9;

const HELLO: u8 = 1;
const CHALLENGE: u8 = 2;
const PROOF: u8 = 3;
const WELCOME: u8 = 4;
const REFUSED: u8 = 5;
const PING: u8 = 8;
const PONG: u8 = 9;
const MEMBERS: u8 = 10;
const VOUCH: u8 = 11;
const INTEREST: u8 = 16;
const INTEREST_END: u8 = 17;
const MESSAGE: u8 = 18;
const INTEREST_MEMBERS: u8 = 19;
const RAFT: u8 = 32;
const FETCH: u8 = 33;

const PLAIN: u8 = 1;
const REPLY: u8 = 2;
const HEADERS: u8 = 4;
const TO: u8 = 8;
const ASKS: u8 = 16;
const HANDED: u8 = 32;

/// The id of a pattern to which a peer's clients subscribe, by which frames name the pattern. The peer
/// chooses the id, and never uses it twice on a channel.
pub type InterestId = u64;

/// One frame from a node to a peer: the unit in which nodes exchange data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The first frame of a greeting: the dialer's introduction.
    Hello(&'a [u8]),
    /// The second frame of a greeting: the dialled node's introduction, with which it answers the dialer.
    Challenge(&'a [u8]),
    /// The third frame of a greeting: the dialer's proof that it knows the cluster's secret.
    Proof(&'a [u8; 32]),
    /// The last frame of a greeting: the dialled node admits the dialer, and proves that it knows the
    /// cluster's secret, too.
    Welcome(&'a [u8; 32]),
    /// The sender refuses the peer, tells it the reason, and then closes the connection.
    Refused {
        /// The number of the refusal, see [`Refusal::code`](crate::refusal::Refusal::code), for programs.
        code: u16,
        /// The reason of the refusal as a text, for people.
        text: &'a [u8],
    },
    /// The dialer sends this frame at intervals to show that it is alive.
    Ping,
    /// The dialled node sends this frame at intervals to show that it is alive.
    Pong,
    /// The sender reports the members of the cluster as it knows them, so that the nodes can agree on them.
    Members(&'a [u8]),
    /// The sender tells a node that lost its disk that it has been in no later term than `term`, so that the
    /// node begins in a higher term.
    Vouch {
        /// The latest term of Raft that the sender has been in.
        term: u64,
    },
    /// Clients of the sender subscribe to a pattern from now on, so that the receiver must send matching
    /// messages.
    Interest(InterestUpdate<'a>),
    /// No client of the sender subscribes to the pattern any more, so that the receiver stops sending
    /// messages for it.
    InterestEnd {
        /// The id that the sender gave the pattern in [`Frame::Interest`].
        id: InterestId,
    },
    /// The number of members of a queue group among the sender's clients has changed, so that the receiver
    /// shares out messages by the new number.
    InterestMembers {
        /// The id that the sender gave the queue group's pattern in [`Frame::Interest`].
        id: InterestId,
        /// The new number of the queue group's members at the sender.
        members: u32,
    },
    /// The sender passes on a message for subscriptions of the receiver's clients, or for the receiver's
    /// streams.
    Message(Routed<'a>),
    /// The sender's member of a Raft group sends a message to the receiver's member. This module does not
    /// look into the message.
    Raft {
        /// The number of the Raft group to which the payload belongs.
        group: GroupId,
        /// The bytes of the Raft message.
        payload: &'a [u8],
    },
    /// The sender asks for a part of the state of a Raft group in a catch-up, or answers such a request.
    /// This module does not look into either.
    Fetch {
        /// The number of the Raft group to which the payload belongs.
        group: GroupId,
        /// The bytes of the request or the answer, in the form of the catch-up protocol.
        payload: &'a [u8],
    },
}

/// A message on its way to one peer, with the subscriptions at the peer that must receive it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routed<'a> {
    /// True if each subscription of the peer's clients that matches outside of queue groups gets a copy of
    /// the message.
    pub plain: bool,
    /// The ids of the queue groups at the peer that get a copy, for one member each: 8 bytes an id, see
    /// [`ids`].
    pub groups: &'a [u8],
    /// True if the peer must send the publisher a *no responders* status in case it has no receiver for the
    /// message. The publisher wants that status, and no other node can send it: the message goes only to this
    /// peer, for a member of one queue group or because the sender hands the message over. With `plain` the
    /// peer sends the status only if it has frozen the message's stream.
    pub asks: bool,
    /// True if the message is for streams alone: the sender hands it to the node that serves the stream named
    /// in the message, or that leads the directory.
    pub handed: bool,
    /// The number of nodes that have passed the message on since a client published it. A node drops the
    /// message beyond [`PASSED_MAX`].
    pub passed: u8,
    /// The subject against which the peer matches subscriptions; `None` if that is the message's subject.
    pub to: Option<&'a [u8]>,
    /// The message as a client published it.
    pub message: Publish<'a>,
}

impl<'a> Routed<'a> {
    /// Returns the subject against which the peer matches subscriptions: `to`, or the message's subject.
    #[must_use]
    pub fn matched_by(&self) -> &'a [u8] {
        self.to.unwrap_or(self.message.subject)
    }

    /// Returns whether a member of the queue group with this id must receive the message.
    #[must_use]
    pub fn serves(&self, group: InterestId) -> bool {
        ids(self.groups).any(|id| id == group)
    }
}

/// Iterates over the ids of queue groups in `bytes`, which a message carries with 8 bytes an id
/// ([`Routed::groups`]).
pub fn ids(bytes: &[u8]) -> impl Iterator<Item = InterestId> {
    let (all, _) = bytes.as_chunks::<8>();
    all.iter().map(|id| u64::from_le_bytes(*id))
}

/// The reason why this node cannot read a peer's bytes as a frame. The node then closes the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The frame's length is 0, or more than any node sends. The fields are the length and the maximum, in
    /// bytes.
    #[error(
        "a frame of {0} bytes where at most {1} are allowed: the other side speaks something else, or another version"
    )]
    Length(usize, usize),
    /// The frame's checksum is wrong, because the network has damaged the frame.
    #[error("a frame's checksum is wrong: it was damaged on its way")]
    Checksum,
    /// The frame has a kind that this version of the protocol does not know. The field is the number of the
    /// kind.
    #[error("a frame of kind {0}: use versions that know each other")]
    Kind(u8),
    /// The body of the frame is cut short, or contradicts itself. The field is the number of the frame's
    /// kind.
    #[error("the body of a frame of kind {0} is cut short or contradicts itself")]
    Body(u8),
}

/// The result of [`read`], after which the caller handles a frame or reads more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read<'a> {
    /// A complete frame, and the number of bytes that the frame takes in the input.
    Frame(Frame<'a>, usize),
    /// A part of a frame: the reader can go on once the input holds this number of bytes.
    Need(usize),
}

/// Decodes the frame at the start of a peer's bytes `input`. Refuses more than `max` bytes of kind and body.
///
/// # Errors
///
/// See [`WireError`]: the bytes cannot begin a frame. The function returns the error as soon as that is
/// certain, before the whole frame has arrived.
pub fn read(input: &[u8], max: usize) -> Result<Read<'_>, WireError> {
    let Some(len) = input.first_chunk() else {
        return Ok(Read::Need(4));
    };
    let len = u32::from_le_bytes(*len) as usize;
    if len == 0 || len > max {
        return Err(WireError::Length(len, max));
    }
    let end = 4 + len;
    let Some(sum) = input.get(end..).and_then(<[u8]>::first_chunk) else {
        return Ok(Read::Need(end + 4));
    };
    if crc32c::crc32c(&input[..end]) != u32::from_le_bytes(*sum) {
        return Err(WireError::Checksum);
    }
    let kind = input[4];
    let frame = body(kind, &input[5..end]).map_err(|Cut| WireError::Body(kind))?;
    let frame = frame.ok_or(WireError::Kind(kind))?;
    Ok(Read::Frame(frame, end + 4))
}

fn body(kind: u8, body: &[u8]) -> Result<Option<Frame<'_>>, Cut> {
    let mut f = Fields(body);
    let frame = match kind {
        HELLO => Frame::Hello(f.rest()),
        CHALLENGE => Frame::Challenge(f.rest()),
        PROOF => Frame::Proof(f.array()?),
        WELCOME => Frame::Welcome(f.array()?),
        REFUSED => Frame::Refused {
            code: f.u16()?,
            text: f.rest(),
        },
        PING => Frame::Ping,
        PONG => Frame::Pong,
        MEMBERS => Frame::Members(f.rest()),
        VOUCH => Frame::Vouch { term: f.u64()? },
        INTEREST => {
            let id = f.u64()?;
            let members = f.u32()?;
            let pattern = f.text()?;
            let queue = f.rest();
            if !subject::is_pattern(system::outer(pattern)) {
                return Err(Cut);
            }
            Frame::Interest(InterestUpdate {
                id,
                members,
                pattern,
                queue: Some(queue).filter(|q| !q.is_empty()),
            })
        }
        INTEREST_END => Frame::InterestEnd { id: f.u64()? },
        INTEREST_MEMBERS => Frame::InterestMembers {
            id: f.u64()?,
            members: f.u32()?,
        },
        MESSAGE => Frame::Message(routed(&mut f)?),
        RAFT | FETCH => {
            let group = GroupId::new(f.u32()?);
            let payload = f.rest();
            match kind {
                RAFT => Frame::Raft { group, payload },
                _ => Frame::Fetch { group, payload },
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(frame))
}

fn routed<'a>(f: &mut Fields<'a>) -> Result<Routed<'a>, Cut> {
    let [flags, passed] = *f.array()?;
    let groups = f.u32()? as usize;
    let groups = f.take(groups.checked_mul(8).ok_or(Cut)?)?;
    let subject = f.text()?;
    let mut optional = |flag| match flags & flag != 0 {
        true => f.text().map(Some),
        false => Ok(None),
    };
    let (to, reply, headers) = (optional(TO)?, optional(REPLY)?, optional(HEADERS)?);
    Ok(Routed {
        plain: flags & PLAIN != 0,
        groups,
        asks: flags & ASKS != 0,
        handed: flags & HANDED != 0,
        passed,
        to,
        message: Publish {
            subject,
            reply,
            headers,
            payload: f.rest(),
        },
    })
}

impl Frame<'_> {
    /// Appends this frame to `out`, the outbox of the channel to the peer.
    pub fn write(&self, out: &mut Outbox) {
        match self {
            Self::Hello(body) => put(out, HELLO, &[body]),
            Self::Challenge(body) => put(out, CHALLENGE, &[body]),
            Self::Proof(proof) => put(out, PROOF, &[*proof]),
            Self::Welcome(proof) => put(out, WELCOME, &[*proof]),
            Self::Refused { code, text } => {
                let text = &text[..text.len().min(TEXT_BYTES_MAX)];
                put(out, REFUSED, &[&code.to_le_bytes(), text]);
            }
            Self::Ping => put(out, PING, &[]),
            Self::Pong => put(out, PONG, &[]),
            Self::Members(body) => put(out, MEMBERS, &[body]),
            Self::Vouch { term } => put(out, VOUCH, &[&term.to_le_bytes()]),
            Self::Interest(told) => {
                let (id, members) = (told.id.to_le_bytes(), told.members.to_le_bytes());
                let length = len(told.pattern);
                let queue = told.queue.unwrap_or_default();
                put(
                    out,
                    INTEREST,
                    &[&id, &members, &length, told.pattern, queue],
                );
            }
            Self::InterestEnd { id } => put(out, INTEREST_END, &[&id.to_le_bytes()]),
            Self::InterestMembers { id, members } => put(
                out,
                INTEREST_MEMBERS,
                &[&id.to_le_bytes(), &members.to_le_bytes()],
            ),
            Self::Message(routed) => Envelope::default().write(out, routed),
            Self::Raft { group, payload } => put(out, RAFT, &[&group.get().to_le_bytes(), payload]),
            Self::Fetch { group, payload } => {
                put(out, FETCH, &[&group.get().to_le_bytes(), payload])
            }
        }
    }
}

/// Writes messages as frames into outboxes. An envelope keeps the buffer for a frame's head from one message
/// to the next, so that a message costs no allocation.
#[derive(Debug, Default)]
pub struct Envelope(Vec<u8>);

impl Envelope {
    /// Appends a message as a frame to the outbox of the channel to the peer.
    pub fn write(&mut self, out: &mut Outbox, routed: &Routed<'_>) {
        let message = &routed.message;
        let flag = |on: bool, flag| if on { flag } else { 0 };
        let flags = flag(routed.plain, PLAIN)
            | flag(routed.to.is_some(), TO)
            | flag(message.reply.is_some(), REPLY)
            | flag(message.headers.is_some(), HEADERS)
            | flag(routed.asks, ASKS)
            | flag(routed.handed, HANDED);
        let head = &mut self.0;
        head.clear();
        head.extend_from_slice(&[flags, routed.passed]);
        head.extend_from_slice(&((routed.groups.len() / 8) as u32).to_le_bytes());
        head.extend_from_slice(routed.groups);
        for text in [Some(message.subject), routed.to, message.reply]
            .into_iter()
            .flatten()
        {
            head.extend_from_slice(&len(text));
            head.extend_from_slice(text);
        }
        if let Some(headers) = message.headers {
            head.extend_from_slice(&len(headers));
        }
        put(
            out,
            MESSAGE,
            &[head, message.header_block(), message.payload],
        );
    }
}

/// Appends a [`Frame::Raft`] with the parts in `payload` as its payload, one after the other, so that the
/// caller need not join them.
pub fn put_raft(out: &mut Outbox, group: GroupId, payload: &[Bytes]) {
    let bytes = 1 + 4 + payload.iter().map(Bytes::len).sum::<usize>();
    debug_assert!(bytes <= FRAME_BYTES_MAX, "nothing that large is sent");
    let size = (bytes as u32).to_le_bytes();
    let group = group.get().to_le_bytes();
    let head = [&size[..], &[RAFT], &group].concat();
    let sum = payload.iter().fold(crc32c::crc32c(&head), |sum, part| {
        crc32c::crc32c_append(sum, part)
    });
    out.append(&[&head]);
    for part in payload {
        out.append(&[part]);
    }
    out.append(&[&sum.to_le_bytes()]);
}

/// Appends a frame of this kind with `parts` as its body, one after the other.
fn put(out: &mut Outbox, kind: u8, parts: &[&[u8]]) {
    let bytes: usize = 1 + parts.iter().map(|p| p.len()).sum::<usize>();
    debug_assert!(bytes <= FRAME_BYTES_MAX, "nothing that large is sent");
    let size = (bytes as u32).to_le_bytes();
    let head = [size[0], size[1], size[2], size[3], kind];
    let mut all: [&[u8]; 7] = [&[]; 7];
    all[0] = &head;
    all[1..=parts.len()].copy_from_slice(parts);
    let sum = all.iter().fold(0, |sum, p| crc32c::crc32c_append(sum, p));
    let sum = sum.to_le_bytes();
    all[parts.len() + 1] = &sum;
    out.append(&all);
}

/// Returns the length of a text in bytes, as the four bytes that precede the text in a frame. No text reaches
/// 4 GiB.
fn len(text: &[u8]) -> [u8; 4] {
    (text.len() as u32).to_le_bytes()
}

/// The error if a frame's body ends before a field that the decoder needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut;

/// Takes fields from the front of a frame's body, one after the other, for the decoder.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], Cut> {
        let (field, rest) = self.0.split_first_chunk().ok_or(Cut)?;
        self.0 = rest;
        Ok(field)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Cut> {
        self.array().map(|b| u16::from_le_bytes(*b))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Cut> {
        self.array().map(|b| u32::from_le_bytes(*b))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Cut> {
        self.array().map(|b| u64::from_le_bytes(*b))
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Cut> {
        let (field, rest) = self.0.split_at_checked(len).ok_or(Cut)?;
        self.0 = rest;
        Ok(field)
    }

    /// Takes a text or other bytes of variable length from the front of the body: a length of four bytes, and
    /// then as many bytes.
    pub(super) fn text(&mut self) -> Result<&'a [u8], Cut> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    pub(super) const fn rest(&mut self) -> &'a [u8] {
        let rest = self.0;
        self.0 = &[];
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(frame: &Frame<'_>) -> Vec<u8> {
        let mut out = Outbox::default();
        frame.write(&mut out);
        out.to_vec()
    }

    fn message<'a>(reply: Option<&'a [u8]>, headers: Option<&'a [u8]>) -> Publish<'a> {
        Publish {
            subject: b"a.b",
            reply,
            headers,
            payload: b"hello",
        }
    }

    #[test]
    fn every_frame_comes_back_as_it_went() {
        let groups = [7_u64, u64::MAX].map(u64::to_le_bytes).concat();
        let routed = |plain, groups, to, message| {
            Frame::Message(Routed {
                plain,
                groups,
                asks: !plain,
                handed: plain,
                passed: if plain { 0 } else { 3 },
                to,
                message,
            })
        };
        let frames = [
            Frame::Hello(b"h"),
            Frame::Challenge(b""),
            Frame::Proof(&[3; 32]),
            Frame::Welcome(&[4; 32]),
            Frame::Refused {
                code: 9,
                text: b"no",
            },
            Frame::Ping,
            Frame::Pong,
            Frame::Members(b"m"),
            Frame::Vouch { term: 7 },
            Frame::Interest(InterestUpdate {
                id: 5,
                members: 1,
                pattern: b"a.>",
                queue: None,
            }),
            Frame::Interest(InterestUpdate {
                id: 6,
                members: 70_000,
                pattern: b"*",
                queue: Some(b"q"),
            }),
            Frame::InterestMembers { id: 6, members: 2 },
            Frame::InterestEnd { id: 6 },
            routed(true, &[], None, message(None, None)),
            routed(
                false,
                &groups,
                Some(b"to"),
                message(Some(b"r"), Some(b"NATS/1.0\r\n\r\n")),
            ),
            Frame::Raft {
                group: GroupId::new(1),
                payload: b"x",
            },
            Frame::Fetch {
                group: GroupId::new(2),
                payload: b"",
            },
        ];
        for frame in frames {
            let bytes = written(&frame);
            assert_eq!(
                read(&bytes, FRAME_BYTES_MAX),
                Ok(Read::Frame(frame, bytes.len()))
            );
            for cut in 0..bytes.len() {
                let Ok(Read::Need(need)) = read(&bytes[..cut], FRAME_BYTES_MAX) else {
                    panic!("{frame:?} cut at {cut}");
                };
                assert!(need > cut && need <= bytes.len());
            }
            for at in 4..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x10;
                assert_eq!(read(&damaged, FRAME_BYTES_MAX), Err(WireError::Checksum));
            }
        }
        let bytes = written(&routed(false, &groups, None, message(None, None)));
        let Ok(Read::Frame(Frame::Message(m), _)) = read(&bytes, 99) else {
            panic!("a message");
        };
        assert!(m.serves(7) && m.serves(u64::MAX) && !m.serves(8));
    }

    #[test]
    fn others_are_known_by_their_first_bytes() {
        for text in [&b"GET / HTTP/1.1"[..], b"INFO {}", b"CONNECT {}", &[0; 9]] {
            assert!(matches!(
                read(text, FRAME_BYTES_MAX),
                Err(WireError::Length(..))
            ));
        }
        let bad = |kind, body: &[u8]| {
            let mut out = Outbox::default();
            put(&mut out, kind, &[body]);
            read(&out.to_vec(), FRAME_BYTES_MAX).unwrap_err()
        };
        assert_eq!(bad(99, b""), WireError::Kind(99));
        assert_eq!(bad(PROOF, &[0; 31]), WireError::Body(PROOF));
        let a_space = [&[1; 12][..], &len(b"a b"), b"a b"].concat();
        assert_eq!(bad(INTEREST, &a_space), WireError::Body(INTEREST));
        let groups = [&[0; 2][..], &u32::MAX.to_le_bytes()].concat();
        assert_eq!(bad(MESSAGE, &groups), WireError::Body(MESSAGE));
    }

    proptest! {
        /// Reads frames with arbitrary kinds and bodies. If the reader accepts a frame, the frame must stay
        /// the same when it is written and read again.
        #[test]
        fn any_body(kind in any::<u8>(), body in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut out = Outbox::default();
            put(&mut out, kind, &[&body]);
            let bytes = out.to_vec();
            if let Ok(Read::Frame(frame, used)) = read(&bytes, FRAME_BYTES_MAX) {
                prop_assert_eq!(used, bytes.len());
                let again = written(&frame);
                if let Ok(Read::Frame(same, _)) = read(&again, FRAME_BYTES_MAX) {
                    prop_assert_eq!(same, frame);
                } else {
                    prop_assert!(false, "a decoded frame cannot be encoded");
                }
            }
        }
    }

    #[test]
    fn a_message_in_parts_is_the_same_frame() {
        let (mut whole, mut parts) = (Outbox::default(), Outbox::default());
        let frame = Frame::Raft {
            group: GroupId::new(7),
            payload: b"headpayload",
        };
        frame.write(&mut whole);
        let payload = [Bytes::from_static(b"head"), Bytes::from_static(b"payload")];
        put_raft(&mut parts, GroupId::new(7), &payload);
        assert_eq!(whole.to_vec(), parts.to_vec());
    }
}

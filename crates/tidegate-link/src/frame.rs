//! The bytes of messages and replies: the frames of both protocols. The module encodes them into blocks and
//! decodes them in place.
//!
//! Decoding allocates nothing, and no function here keeps state or decides when to send a frame. The
//! handshake's bytes are in `hello`, the rules in `proto`. docs/link-protocol.md has tables of the bytes.

use crate::Seq;

/// The layout of the frames that a client sends on one connection, by which both sides encode and decode
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// The plain protocol: id (8 bytes), size of the payload (4), payload.
    Plain,
    /// The session protocol: size of the payload (4 bytes), payload.
    Session,
    /// The session protocol with checksums: size of the payload (4 bytes), payload, and CRC32C (4) over the
    /// message's number, the size and the payload.
    Checked,
}

/// The lowest value of a size or count field that is no number. In a session frame, a size field of this
/// value or above marks a control frame. In a reply, a count field of this value or above marks a reply that
/// is no acknowledgement.
pub const CONTROL: u32 = 0xFFFF_FFF0;
/// The size field of the close frame, with which a client says that it sends nothing more. The server then
/// acknowledges everything.
pub const CLOSE: u32 = 0xFFFF_FFFE;
/// The size field of a ping, with which a client asks the server for a pong. Also the count field of that
/// pong.
pub const PING: u32 = 0xFFFF_FFFD;
/// The size field of a skip frame, with which a client gives up messages. The number of the client's next
/// message follows in 8 bytes: the server no longer waits for the messages before it.
pub const SKIP: u32 = 0xFFFF_FFFC;
/// The greatest number of bytes that a message's payload may have in the session protocol: larger size fields
/// mark control frames.
pub const SIZE_MAX: u32 = CONTROL - 1;
/// The length in bytes of each reply that a server sends, of any kind.
pub const REPLY_BYTES: usize = 12;
/// The greatest number of acknowledgements that a server may leave out between two that it sends: larger
/// counts mark other replies.
pub const OMITTED_MAX: u32 = CONTROL - 1;

impl Layout {
    /// Returns the number of bytes of a frame before its payload (the header), to find the payload.
    #[must_use]
    pub const fn header(self) -> usize {
        match self {
            Self::Plain => 12,
            Self::Session | Self::Checked => 4,
        }
    }

    /// Returns the number of bytes of a frame after its payload (the checksum, if any), in this layout.
    #[must_use]
    pub const fn trailer(self) -> usize {
        match self {
            Self::Plain | Self::Session => 0,
            Self::Checked => 4,
        }
    }

    /// Returns the number of bytes that a frame adds to its payload, to compute the room that a message
    /// needs.
    #[must_use]
    pub const fn overhead(self) -> usize {
        self.header() + self.trailer()
    }

    /// Returns the number of bytes that a message with a payload of `len` bytes takes on the wire, to compute
    /// room.
    #[must_use]
    pub const fn framed(self, len: usize) -> usize {
        self.overhead() + len
    }

    /// Appends the frame of message `seq` to `out`. The caller has checked the payload against the
    /// connection's maximum.
    ///
    /// # Panics
    /// If the length of the payload does not fit the size field of a frame.
    #[inline]
    pub fn encode(self, seq: Seq, payload: &[u8], out: &mut Vec<u8>) {
        let size = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        assert!(size <= SIZE_MAX, "a payload of {} bytes", payload.len());
        match self {
            Self::Plain => {
                out.extend_from_slice(&plain_id(seq).to_le_bytes());
                append(out, payload);
            }
            Self::Session => append(out, payload),
            Self::Checked => {
                append(out, payload);
                out.extend_from_slice(&checksum(seq, payload).to_le_bytes());
            }
        }
    }

    /// Counts the whole frames at the start of `bytes`, up to the first frame with a payload larger than
    /// `frame_max`. Does not verify checksums.
    #[must_use]
    pub fn scan(self, bytes: &[u8], frame_max: u32) -> Scan {
        self.walk(bytes, frame_max, usize::MAX, u64::MAX)
    }

    /// Counts whole frames like [`scan`](Self::scan), but at most `count` of them, so that a batch stays
    /// bounded.
    #[must_use]
    pub fn scan_some(self, bytes: &[u8], frame_max: u32, count: u64) -> Scan {
        self.walk(bytes, frame_max, usize::MAX, count)
    }

    /// Returns the length in bytes of the first `count` frames of `bytes`, which holds at least that many
    /// whole frames, to cut a batch there.
    #[must_use]
    pub fn span(self, bytes: &[u8], count: u64) -> usize {
        self.walk(bytes, SIZE_MAX, usize::MAX, count).bytes
    }

    /// Counts the frames of `bytes` that begin before the offset `before`. Returns their number and the
    /// offset at which the last of them ends. The caller passes bytes that hold all of these frames whole.
    #[must_use]
    pub fn begun(self, bytes: &[u8], before: usize) -> (u64, usize) {
        let scan = self.walk(bytes, SIZE_MAX, before, u64::MAX);
        (scan.count, scan.bytes)
    }

    fn walk(self, bytes: &[u8], frame_max: u32, before: usize, count: u64) -> Scan {
        match self {
            Self::Plain => walk::<12, 0>(bytes, frame_max, before, count),
            Self::Session => walk::<4, 0>(bytes, frame_max, before, count),
            Self::Checked => walk::<4, 4>(bytes, frame_max, before, count),
        }
    }

    /// Returns an iterator over the payloads of the frames in `bytes`. The caller passes whole frames only.
    #[must_use]
    pub const fn payloads(self, bytes: &[u8]) -> Payloads<'_> {
        Payloads {
            bytes,
            at: 0,
            header: self.header(),
            overhead: self.overhead(),
            size: 0,
            known: 0,
        }
    }
}

/// The result of a scan that counts whole frames, from which the receiver makes a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The number of whole frames that the scan has found.
    pub count: u64,
    /// The number of bytes that the whole frames found by the scan take together, up to which the reader may
    /// go on.
    pub bytes: usize,
    /// The offset in bytes at which the last whole frame found by a scan begins.
    pub last: usize,
    /// The reason why the scan of frames ended: the next step of the reader depends on it.
    pub stop: Stop,
}

/// The reasons why a scan of frames ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The next frame is not complete. Holds the length of the whole frame in bytes, or 0 if its size field
    /// has not arrived yet.
    Incomplete(usize),
    /// The size field of the next frame is above the maximum. In a session that frame may be a control frame;
    /// otherwise it is an error.
    Size(u32),
    /// The scan has found as many frames as the caller asked for, or has reached the offset that the caller
    /// asked for.
    Enough,
}

#[inline]
fn size_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*field))
}

/// The number of frames that a scan checks at once while sizes repeat: the scan guesses that the next frames
/// are as large as the last one. The processor can then load their size fields independently of each other.
/// Without the guess it must wait for one size before it can load the next, which is the main cost of a walk
/// from frame to frame.
const GUESS: usize = 8;

fn walk<const H: usize, const T: usize>(
    bytes: &[u8],
    frame_max: u32,
    before: usize,
    most: u64,
) -> Scan {
    let (mut at, mut count) = (0, 0);
    let (mut size_before, mut last) = (u32::MAX, 0);
    let stop = loop {
        if count >= most || at >= before {
            break Stop::Enough;
        }
        let Some(size) = size_at(bytes, at + H - 4) else {
            break Stop::Incomplete(0);
        };
        if size > frame_max {
            break Stop::Size(size);
        }
        let stride = H + T + size as usize;
        if bytes.len() - at < stride {
            break Stop::Incomplete(stride);
        }
        last = at;
        at += stride;
        count += 1;
        if size == size_before {
            let room = bytes.len().min(before);
            while let Some(run) = room
                .checked_sub(at)
                .is_some_and(|left| left >= GUESS * stride)
                .then(|| &bytes[at..at + GUESS * stride])
                .filter(|_| most - count >= GUESS as u64)
            {
                let same = |i: usize| size_at(run, i * stride + H - 4) == Some(size);
                if !(0..GUESS).fold(true, |all, i| all & same(i)) {
                    break;
                }
                at += GUESS * stride;
                last = at - stride;
                count += GUESS as u64;
            }
        }
        size_before = size;
    };
    Scan {
        count,
        bytes: at,
        last,
        stop,
    }
}

/// An iterator over the payloads of a batch, in order, borrowed from the read buffer, so that no message is
/// copied.
#[derive(Clone, Debug)]
pub struct Payloads<'a> {
    bytes: &'a [u8],
    at: usize,
    header: usize,
    overhead: usize,
    /// The payload size of the frame that the iterator returned last, and the number of following frames that
    /// are known to have the same size.
    size: usize,
    known: usize,
}

impl Payloads<'_> {
    /// Finds the payload size of the next frame, and whether the frames after it have that size, too, so that
    /// the iterator reads fewer size fields.
    fn look(&mut self) -> Option<()> {
        let field = self.at + self.header - 4;
        let size = size_at(self.bytes, field)?;
        let stride = self.overhead + size as usize;
        let same = |i: usize| size_at(self.bytes, field + i * stride) == Some(size);
        self.known = 1;
        if size as usize == self.size && (1..GUESS).fold(true, |all, i| all & same(i)) {
            self.known = GUESS;
        }
        self.size = size as usize;
        Some(())
    }
}

impl<'a> Iterator for Payloads<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.known == 0 {
            self.look()?;
        }
        self.known -= 1;
        let start = self.at + self.header;
        self.at += self.overhead + self.size;
        // The caller promises whole frames. If a frame is cut short at the end all the same, the iterator
        // does not return it.
        self.bytes.get(..self.at)?;
        self.bytes.get(start..start + self.size)
    }
}

/// Returns the id that this crate's plain clients give message `seq`, for its frame: ids count from 0,
/// numbers from 1.
#[must_use]
pub const fn plain_id(seq: Seq) -> u64 {
    seq.get().wrapping_sub(1)
}

/// Returns the number of the message to which this crate's plain clients gave `id`, so that the sender counts
/// plain messages like those of a session.
#[must_use]
pub const fn plain_seq(id: u64) -> Seq {
    Seq::new(id.wrapping_add(1))
}

/// Returns the id of the plain frame that begins at the offset `at`, for its acknowledgement.
#[must_use]
pub fn id_at(frames: &[u8], at: usize) -> u64 {
    let id = frames.get(at..).and_then(<[u8]>::first_chunk);
    id.map_or(0, |id| u64::from_le_bytes(*id))
}

/// Returns the CRC32C of message `seq`, which detects damage on the way: over its number (u64), the size of
/// its payload (u32) and its payload.
#[must_use]
pub fn checksum(seq: Seq, payload: &[u8]) -> u32 {
    let mut head = [0; 12];
    head[..8].copy_from_slice(&seq.get().to_le_bytes());
    head[8..].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&head), payload)
}

/// Returns the bytes of a control frame: only its size field, `control`.
#[must_use]
pub const fn control(control: u32) -> [u8; 4] {
    control.to_le_bytes()
}

/// Returns the bytes of the skip frame with which a client gives up all messages before `next`.
#[must_use]
pub fn skip(next: Seq) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&SKIP.to_le_bytes());
    bytes[4..].copy_from_slice(&next.get().to_le_bytes());
    bytes
}

/// A reply that a server sends on an open connection, mostly an acknowledgement: always 12 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Acknowledges every message up to `latest`. The server left out `omitted` acknowledgements since its
    /// previous one.
    Ack {
        /// The latest message that the server acknowledges: its id in the plain protocol, its number in a
        /// session.
        latest: u64,
        /// The number of acknowledgements that the server left out: the `latest` of its previous
        /// acknowledgement + `omitted` + 1 = this `latest`.
        omitted: u32,
    },
    /// Tells the client why the server closes the connection. Session protocol only.
    Bye(Code),
    /// Tells the client that the server is alive, and how far it has received. Session protocol only.
    Pong {
        /// The highest message number that the server has received with none missing, for a client that
        /// waits.
        received: u64,
    },
    /// A reply of a kind that this version does not know; holds its count field. Session protocol only.
    Unknown(u32),
}

impl Reply {
    /// Returns the 12 bytes of the reply.
    ///
    /// # Panics
    /// On [`Reply::Unknown`]: this version only receives such a reply.
    #[must_use]
    pub fn encode(self) -> [u8; REPLY_BYTES] {
        let (value, n) = match self {
            Self::Ack { latest, omitted } => (latest, omitted),
            Self::Bye(code) => (u64::from(code.get()), CLOSE),
            Self::Pong { received } => (received, PING),
            Self::Unknown(n) => panic!("a reply of kind {n:#x} is not ours to send"),
        };
        let mut bytes = [0; REPLY_BYTES];
        bytes[..8].copy_from_slice(&value.to_le_bytes());
        bytes[8..].copy_from_slice(&n.to_le_bytes());
        bytes
    }

    /// Decodes the 12 bytes of a reply, for a client on a connection of `layout`.
    #[must_use]
    pub fn decode(layout: Layout, bytes: &[u8; REPLY_BYTES]) -> Self {
        let (value, n) = bytes.split_at(8);
        let value = value.first_chunk().map_or(0, |v| u64::from_le_bytes(*v));
        let n = n.first_chunk().map_or(0, |n| u32::from_le_bytes(*n));
        match n {
            n if n < CONTROL || layout == Layout::Plain => Self::Ack {
                latest: value,
                omitted: n,
            },
            CLOSE => Self::Bye(Code::from(u16::try_from(value).unwrap_or(u16::MAX))),
            PING => Self::Pong { received: value },
            n => Self::Unknown(n),
        }
    }
}

/// The reason why a server refuses or closes a connection, as the client gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// Code 0: the client closed, and the server has acknowledged everything.
    Drained,
    /// Code 1: another client has taken the session over.
    Displaced,
    /// Code 2: the server heard nothing from the client for the idle time that it had named.
    Idle,
    /// Code 3: the server is closing.
    Closing,
    /// Code 4: the server has as many connections or sessions as it may.
    Full,
    /// Code 5: the client speaks a version of the protocol that this server does not speak.
    Version,
    /// Code 6: the client's token is missing or is not the server's.
    Token,
    /// Code 7: the server lacks messages that the client no longer has, or has messages that the client never
    /// sent.
    Gap,
    /// Code 8: a frame of the client, or the maximum that the client asked for, is larger than the server
    /// allows.
    TooLarge,
    /// Code 9: the checksum of a client's frame is wrong.
    Checksum,
    /// Code 10: the client sent more unacknowledged bytes than the window allows.
    Window,
    /// Code 11: the client sent bytes that the protocol does not allow.
    Malformed,
    /// Code 12: the handler of the session failed.
    Failed,
    /// A code with any other number, which this version does not know.
    Other(u16),
}

/// Every code that has a name, in the order of their numbers on the wire, so that the index is the number.
const CODES: [Code; 13] = [
    Code::Drained,
    Code::Displaced,
    Code::Idle,
    Code::Closing,
    Code::Full,
    Code::Version,
    Code::Token,
    Code::Gap,
    Code::TooLarge,
    Code::Checksum,
    Code::Window,
    Code::Malformed,
    Code::Failed,
];

impl Code {
    /// Returns the code's number on the wire, by which the other side recognizes it.
    #[must_use]
    pub fn get(self) -> u16 {
        match self {
            Self::Other(n) => n,
            named => {
                let place = CODES.iter().position(|c| *c == named);
                place.expect("each named code has a number") as u16
            }
        }
    }

    /// Returns whether the client may succeed if it connects again, because the reason passes.
    #[must_use]
    pub const fn is_passing(self) -> bool {
        matches!(self, Self::Idle | Self::Closing | Self::Full)
    }
}

impl From<u16> for Code {
    fn from(n: u16) -> Self {
        CODES.get(n as usize).copied().unwrap_or(Self::Other(n))
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Drained => "everything is acknowledged",
            Self::Displaced => "another client has taken the session over",
            Self::Idle => "nothing was heard for too long",
            Self::Closing => "the server closes",
            Self::Full => "the server has as many connections as it may",
            Self::Version => "the server does not speak this version",
            Self::Token => "the token is missing or wrong",
            Self::Gap => "the server lacks messages the client no longer has",
            Self::TooLarge => "a frame is larger than the server allows",
            Self::Checksum => "a frame's checksum is wrong",
            Self::Window => "more than the window was sent without an acknowledgement",
            Self::Malformed => "the server received bytes that are no frame of the protocol",
            Self::Failed => "the server's handler failed",
            Self::Other(n) => return write!(f, "code {n}"),
        })
    }
}

/// The longest payload, in bytes, that the encoder copies by way of registers, which is faster than a call.
const SMALL: usize = 16;
/// The number of bytes that the encoder writes for a small payload, before it cuts the block to the payload's
/// length.
const ROOM: usize = 24;

/// Appends the size field and the payload of a frame.
///
/// A copy of a length the compiler knows is a few moves; a copy of an unknown length is a call, which for a
/// few bytes costs as much as the rest of the encoding. So a small payload goes through registers, in whole
/// words with zeros behind it, and the function then cuts the block to the payload's length. The words need
/// some room in the block. Without that room the function copies plainly, because a block must not grow for
/// bytes that are cut off.
#[inline]
fn append(out: &mut Vec<u8>, payload: &[u8]) {
    let len = payload.len();
    let start = out.len();
    if len <= SMALL && out.capacity() - start >= ROOM {
        let (low, high) = match payload.split_first_chunk::<8>() {
            Some((low, high)) => (u64::from_le_bytes(*low), word(high)),
            None => (word(payload), 0),
        };
        out.extend_from_slice(&(len as u64 | low << 32).to_le_bytes());
        out.extend_from_slice(&(low >> 32 | high << 32).to_le_bytes());
        if len > 12 {
            out.extend_from_slice(&(high >> 32).to_le_bytes());
        }
        out.truncate(start + 4 + len);
    } else {
        out.reserve(4 + len);
        out.extend_from_slice(&(len as u32).to_le_bytes());
        out.extend_from_slice(payload);
    }
}

/// Returns at most 8 bytes as a little-endian number. The function loads each byte once, in the same pieces
/// in which a copy of this length stored them. A load across two stores in progress waits for both, which
/// takes longer than the rest of the encoding.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    if let Some(all) = bytes.first_chunk::<8>() {
        return u64::from_le_bytes(*all);
    }
    let (mut n, mut shift, mut rest) = (0, 0, bytes);
    if let Some((piece, after)) = rest.split_first_chunk::<4>() {
        n = u64::from(u32::from_le_bytes(*piece));
        (shift, rest) = (32, after);
    }
    if let Some((piece, after)) = rest.split_first_chunk::<2>() {
        n |= u64::from(u16::from_le_bytes(*piece)) << shift;
        (shift, rest) = (shift + 16, after);
    }
    if let Some(last) = rest.first() {
        n |= u64::from(*last) << shift;
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(layout: Layout, lens: &[usize], capacity: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(capacity);
        for (i, &len) in lens.iter().enumerate() {
            let payload: Vec<u8> = (0..len).map(|b| (b + i) as u8).collect();
            layout.encode(Seq::new(i as u64 + 1), &payload, &mut out);
        }
        out
    }

    #[test]
    fn every_length_is_copied_whole_with_and_without_room() {
        let lens: Vec<usize> = (0..40).collect();
        for layout in [Layout::Plain, Layout::Session, Layout::Checked] {
            let roomy = frames(layout, &lens, 1 << 16);
            assert_eq!(roomy, frames(layout, &lens, 0));
            let payloads: Vec<&[u8]> = layout.payloads(&roomy).collect();
            assert_eq!(payloads.len(), lens.len());
            for (i, p) in payloads.iter().enumerate() {
                let want: Vec<u8> = (0..lens[i]).map(|b| (b + i) as u8).collect();
                assert_eq!(*p, want, "{layout:?}");
            }
        }
    }

    #[test]
    fn a_block_with_room_for_its_frames_never_grows() {
        for len in 0..20 {
            let mut out = Vec::with_capacity(10 * (4 + len));
            let capacity = out.capacity();
            for n in 1..=10 {
                Layout::Session.encode(Seq::new(n), &[1; 20][..len], &mut out);
            }
            assert_eq!((out.len(), out.capacity()), (10 * (4 + len), capacity));
        }
    }

    /// Tests that the guess of equal sizes does not change the result of a scan: runs of one size, broken
    /// anywhere, cut anywhere.
    #[test]
    fn a_scan_finds_what_a_walk_finds() {
        for layout in [Layout::Plain, Layout::Session, Layout::Checked] {
            for odd in 0..40 {
                let mut lens = vec![5; 40];
                lens[odd] = odd % 7;
                let bytes = frames(layout, &lens, 0);
                for end in 0..=bytes.len() {
                    let (mut at, mut count) = (0, 0);
                    for len in &lens {
                        if at + layout.framed(*len) > end {
                            break;
                        }
                        at += layout.framed(*len);
                        count += 1;
                    }
                    let scan = layout.scan(&bytes[..end], 1000);
                    assert_eq!((scan.count, scan.bytes), (count, at));
                    assert_eq!(layout.payloads(&bytes[..end]).count() as u64, count);
                    assert_eq!(layout.span(&bytes, count), at);
                    let begun = lens.iter().scan(0, |pos, len| {
                        let start = *pos;
                        *pos += layout.framed(*len);
                        Some(start)
                    });
                    let begun = begun.filter(|&start| start < end).count() as u64;
                    assert_eq!(layout.begun(&bytes, end).0, begun);
                }
            }
        }
    }

    #[test]
    fn replies_come_back_as_they_went() {
        let ack = |latest, omitted| Reply::Ack { latest, omitted };
        for reply in [
            ack(7, 0),
            ack(u64::MAX, OMITTED_MAX),
            Reply::Bye(Code::Gap),
            Reply::Pong { received: 9 },
        ] {
            assert_eq!(Reply::decode(Layout::Session, &reply.encode()), reply);
        }
        let mut bytes = ack(3, 0).encode();
        bytes[8..].copy_from_slice(&0xFFFF_FFFFu32.to_le_bytes());
        assert_eq!(
            Reply::decode(Layout::Session, &bytes),
            Reply::Unknown(u32::MAX)
        );
        // The plain protocol has only acknowledgements, so every reply decodes as an acknowledgement.
        assert_eq!(Reply::decode(Layout::Plain, &bytes), ack(3, u32::MAX));
        for n in 0..20 {
            assert_eq!(Code::from(n).get(), n);
        }
    }
}

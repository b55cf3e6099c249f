//! The bytes of a spool, all little-endian.
//!
//! A segment holds records, one after the other: the length of the payload, u32; the CRC32C of the record's
//! number (u64) and its payload, u32; the payload.
//!
//! The manifest says which session the records belong to and how far they are durable. It lies in `session`,
//! in two slots of fixed places. The writer fills them in turn, and the newest whole one counts, so a torn
//! write costs the other one nothing. Generation g lies in slot g % 2.
//!
//! ```text
//! slot   0  "TGSPOOL2"               56  number of the oldest record, u64
//!        8  generation, u64          64  first record of the newest segment, u64
//!       16  session of the name      72  durable bytes of that segment, u64
//!       32  session on the wire      80  number of the next record, u64
//!       48  base, u64                88  CRC32C of everything before, u32; zeros up to 128
//! ```
//!
//! The first format has "TGSPOOL1", two slots of 60 bytes side by side, and nothing between the base and the
//! CRC32C. The first manifest of the new format gets an odd generation: it lies behind both old slots, so
//! they count until it is durable.

/// The distance between the two slots: each has a page of its own.
const STRIDE: u64 = 4096;
/// The bytes of one slot. They cover both slots of the first format.
const SLOT: usize = 128;
/// The bytes of `session` that the manifest's slots span.
pub(super) const MANIFEST: usize = STRIDE as usize + SLOT;
/// The generation of the first manifest.
pub(super) const GENERATION: u64 = 1;

const MAGIC: &[u8; 7] = b"TGSPOOL";
const VERSION: u8 = b'2';
const CRC_AT: usize = 88;
const OLD_SLOT: usize = 60;
const OLD_CRC_AT: usize = 56;
const HEAD: usize = 8;

/// The session that the records belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// The session the spool was begun for.
    pub(super) name: u128,
    /// The session that the records travel in: another one after a receiver forgot the first.
    pub(super) session: u128,
    /// Record n travels under the number n - base.
    pub(super) base: u64,
}

/// The range of durable records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// The oldest record; segments before it may be removed.
    pub(super) first: u64,
    /// The first record of the newest segment.
    pub(super) segment: u64,
    /// The bytes of that segment that are durable.
    pub(super) bytes: u64,
    /// The number after the last durable record.
    pub(super) next: u64,
}

/// The manifest: see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) generation: u64,
    pub(super) owner: Owner,
    pub(super) extent: Extent,
}

/// The contents of `session`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The newest whole manifest, and whether the other slot is whole, too.
    Manifest(Manifest, bool),
    /// The newest whole slot of the first format, which has no extent.
    Old(Owner),
    /// A later version of the program wrote it.
    Later(char),
    /// No slot is whole; a crash during the first write may leave this.
    Nothing,
    /// No slot is whole, and the bytes are not those of a spool.
    Foreign,
}

impl Manifest {
    /// Returns the offset of this manifest's slot.
    pub(super) const fn offset(&self) -> u64 {
        self.generation % 2 * STRIDE
    }

    /// Encodes the manifest.
    pub(super) fn encode(&self) -> [u8; SLOT] {
        let Self {
            generation,
            owner,
            extent,
        } = self;
        let mut bytes = Vec::with_capacity(SLOT);
        bytes.extend_from_slice(MAGIC);
        bytes.push(VERSION);
        bytes.extend_from_slice(&generation.to_le_bytes());
        bytes.extend_from_slice(&owner.name.to_le_bytes());
        bytes.extend_from_slice(&owner.session.to_le_bytes());
        for number in [
            owner.base,
            extent.first,
            extent.segment,
            extent.bytes,
            extent.next,
        ] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        let mut slot = [0; SLOT];
        slot[..bytes.len()].copy_from_slice(&bytes);
        slot
    }

    fn decode(slot: &[u8]) -> Option<Self> {
        let mut rest = whole(slot, VERSION, CRC_AT)?;
        Some(Self {
            generation: number(&mut rest)?,
            owner: owner(&mut rest)?,
            extent: Extent {
                first: number(&mut rest)?,
                segment: number(&mut rest)?,
                bytes: number(&mut rest)?,
                next: number(&mut rest)?,
            },
        })
    }
}

/// Reads the manifest from the first [`MANIFEST`] bytes of `session`, or fewer if the file is shorter.
pub(super) fn find(bytes: &[u8]) -> Found {
    let slots = [bytes, bytes.get(STRIDE as usize..).unwrap_or_default()];
    let both = slots.map(Manifest::decode);
    let both_whole = both.iter().all(Option::is_some);
    if let Some(newest) = both
        .into_iter()
        .flatten()
        .max_by_key(|manifest| manifest.generation)
    {
        return Found::Manifest(newest, both_whole);
    }
    let old = [bytes, bytes.get(OLD_SLOT..).unwrap_or_default()];
    let owners = old.iter().filter_map(|slot| {
        let mut rest = whole(slot, b'1', OLD_CRC_AT)?;
        Some((number(&mut rest)?, owner(&mut rest)?))
    });
    if let Some((_, newest)) = owners.max_by_key(|(generation, _)| *generation) {
        return Found::Old(newest);
    }
    let later = slots.iter().find_map(|slot| {
        let version = *slot.strip_prefix(MAGIC)?.first()?;
        (version > VERSION && version.is_ascii_digit()).then_some(char::from(version))
    });
    if let Some(version) = later {
        return Found::Later(version);
    }
    // A torn slot begins with the magic, or with the zeros of a hole.
    let begun = |slot: &[u8]| {
        let head = &slot[..slot.len().min(MAGIC.len())];
        head.iter().all(|byte| *byte == 0) || MAGIC.iter().zip(head).all(|(a, b)| *b == 0 || a == b)
    };
    match slots.into_iter().all(begun) {
        true => Found::Nothing,
        false => Found::Foreign,
    }
}

/// Returns the fields of a slot of this version, if its CRC32C at `crc_at` matches.
fn whole(slot: &[u8], version: u8, crc_at: usize) -> Option<&[u8]> {
    let (body, rest) = slot.split_at_checked(crc_at)?;
    let crc = u32::from_le_bytes(*rest.first_chunk()?);
    let fields = body.strip_prefix(MAGIC)?.strip_prefix(&[version])?;
    (crc == crc32c::crc32c(body)).then_some(fields)
}

fn owner(rest: &mut &[u8]) -> Option<Owner> {
    Some(Owner {
        name: u128::from_le_bytes(take(rest)?),
        session: u128::from_le_bytes(take(rest)?),
        base: number(rest)?,
    })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_le_bytes)
}

/// Appends record `number` to `out`.
pub(super) fn encode(number: u64, payload: &[u8], out: &mut Vec<u8>) {
    // A frame's length is a `u32`, and no record is larger than a frame.
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc(number, payload).to_le_bytes());
    out.extend_from_slice(payload);
}

/// Splits record `number` off the front, if it is there and whole.
pub(super) fn decode(number: u64, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (sum, rest) = rest.split_first_chunk()?;
    let (payload, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    (crc(number, payload) == u32::from_le_bytes(*sum)).then_some((payload, rest))
}

/// Returns the length of the record in front, by its own length field.
pub(super) fn bytes(bytes: &[u8]) -> Option<u64> {
    let len = u32::from_le_bytes(*bytes.first_chunk()?);
    Some(HEAD as u64 + u64::from(len))
}

fn crc(number: u64, payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), payload)
}

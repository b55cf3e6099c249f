//! The bytes of a spool. A record: its length, u32; the CRC32C of its number (u64) and its payload, u32; the payload. Whose
//! they are, in two slots written in turn of which the newest that is whole counts: "TGSPOOL1"; generation, u64; the session
//! the spool was begun for, u128; the session its records travel in, u128; base, u64; the CRC32C of all that, u32.
//! All little-endian.

/// Bytes of one slot.
pub(super) const OWNER: usize = 60;

const MAGIC: &[u8; 8] = b"TGSPOOL1";
const HEAD: usize = 8;

/// Whose records they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) generation: u64,
    /// The session it was begun for.
    pub(super) name: u128,
    /// The session its records travel in: another one, if a receiver forgot that.
    pub(super) session: u128,
    /// Record n travels under the number n - base.
    pub(super) base: u64,
}

impl Owner {
    /// Where it is written.
    pub(super) const fn offset(&self) -> u64 {
        self.generation % 2 * OWNER as u64
    }

    /// Its bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.name.to_le_bytes());
        bytes.extend_from_slice(&self.session.to_le_bytes());
        bytes.extend_from_slice(&self.base.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    fn decode(slot: &[u8]) -> Option<Self> {
        let (magic, rest) = slot.split_first_chunk::<8>()?;
        let (generation, rest) = rest.split_first_chunk()?;
        let (name, rest) = rest.split_first_chunk()?;
        let (session, rest) = rest.split_first_chunk()?;
        let (base, rest) = rest.split_first_chunk()?;
        let crc = u32::from_le_bytes(*rest.first_chunk()?);
        let whole = magic == MAGIC && crc == crc32c::crc32c(&slot[..OWNER - 4]);
        whole.then(|| Self {
            generation: u64::from_le_bytes(*generation),
            name: u128::from_le_bytes(*name),
            session: u128::from_le_bytes(*session),
            base: u64::from_le_bytes(*base),
        })
    }

    /// The newest whole one.
    pub(super) fn find(bytes: &[u8]) -> Option<Self> {
        let (first, second) = bytes.split_at(bytes.len().min(OWNER));
        let both = Self::decode(first).into_iter().chain(Self::decode(second));
        both.max_by_key(|owner| owner.generation)
    }
}

/// Adds record `number`.
pub(super) fn encode(number: u64, payload: &[u8], out: &mut Vec<u8>) {
    // No record is larger than a frame may be, whose length is a u32.
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc(number, payload).to_le_bytes());
    out.extend_from_slice(payload);
}

/// Takes record `number` off the front, if it is there, whole.
pub(super) fn decode(number: u64, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (sum, rest) = rest.split_first_chunk()?;
    let (payload, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    (crc(number, payload) == u32::from_le_bytes(*sum)).then_some((payload, rest))
}

/// How many bytes the record in front has, by what it says itself.
pub(super) fn bytes(bytes: &[u8]) -> Option<u64> {
    let len = u32::from_le_bytes(*bytes.first_chunk()?);
    Some(HEAD as u64 + u64::from(len))
}

fn crc(number: u64, payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), payload)
}

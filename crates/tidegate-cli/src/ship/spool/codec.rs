//! The bytes of a spool. A record: its length, u32; the CRC32C of its number (u64) and its payload, u32; the payload. The
//! session: "TGSPOOL1", its id (u128), the CRC32C of both, u32. All little-endian.

/// Bytes of the session file.
pub(super) const OWNER: usize = 28;

const MAGIC: &[u8; 8] = b"TGSPOOL1";
const HEAD: usize = 8;

/// The session a spool belongs to.
pub(super) fn owner(bytes: &[u8]) -> Option<u128> {
    let (magic, rest) = bytes.split_first_chunk::<8>()?;
    let (session, rest) = rest.split_first_chunk::<16>()?;
    let crc = u32::from_le_bytes(*rest.first_chunk()?);
    let whole = magic == MAGIC && crc == crc32c::crc32c(&bytes[..24]);
    whole.then(|| u128::from_le_bytes(*session))
}

/// The same as bytes.
pub(super) fn encode_owner(session: u128) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&session.to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes
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

//! Computes the key slots of Redis Cluster, for programs that route commands themselves.

use crc::{CRC_16_XMODEM, Crc};

/// Returns the cluster slot of a key, 0 to 16383. In a key such as `{user1}.name` only the part in the first
/// braces counts.
///
/// ```
/// use tidegate_redis::key_slot;
///
/// assert_eq!(key_slot(b"{user1}.name"), key_slot(b"{user1}.mail"));
/// ```
#[must_use]
pub fn key_slot(key: &[u8]) -> u16 {
    CRC.checksum(hashed(key)) % SLOTS
}

/// The number of key slots, to which keys are mapped; it is equal in every Redis Cluster.
const SLOTS: u16 = 16384;
/// The checksum that the specification of Redis Cluster prescribes under "Keys distribution model".
const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// Returns the part of a key that selects its slot: the text in the first braces, unless the text is empty or
/// the braces are never closed.
fn hashed(key: &[u8]) -> &[u8] {
    let tag = || {
        let open = key.iter().position(|&b| b == b'{')?;
        let rest = &key[open + 1..];
        let close = rest.iter().position(|&b| b == b'}')?;
        (close > 0).then_some(&rest[..close])
    };
    tag().unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Redis Cluster specification gives the check value: CRC16 of "123456789" is 0x31C3, below 16384.
    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(key_slot(b"123456789"), 0x31C3);
        assert_eq!(key_slot(b"foo"), 12182);
        assert_eq!(key_slot(b"{foo}bar"), 12182);
        // Empty braces select nothing, so the whole key counts.
        assert_ne!(key_slot(b"{}a"), key_slot(b"{}b"));
        assert_eq!(key_slot(b""), 0);
        // A brace that is never closed selects nothing. If there are several pairs of braces, only the first
        // pair counts.
        assert_ne!(key_slot(b"{foo"), key_slot(b"foo"));
        assert_eq!(key_slot(b"a{foo}{bar}"), 12182);
        assert_eq!(key_slot(b"{{foo}}"), key_slot(b"{foo"));
    }
}

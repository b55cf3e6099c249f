//! Key slots of Redis Cluster, for programs that route commands themselves.

/// Returns the slot of a key, 0 to 16383. In a key such as `{user1}.name` only the part in the
/// first braces counts.
///
/// ```
/// use tidegate_redis::key_slot;
///
/// assert_eq!(key_slot(b"{user1}.name"), key_slot(b"{user1}.mail"));
/// ```
#[must_use]
pub fn key_slot(key: &[u8]) -> u16 {
    resp_rs::cluster::hash_slot(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the Redis Cluster specification: CRC16 of "123456789" is 0x31C3, below 16384.
    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(key_slot(b"123456789"), 0x31C3);
        assert_eq!(key_slot(b"foo"), 12182);
        assert_eq!(key_slot(b"{foo}bar"), 12182);
        // Empty braces select nothing, so the whole key counts.
        assert_ne!(key_slot(b"{}a"), key_slot(b"{}b"));
        assert_eq!(key_slot(b""), 0);
    }
}

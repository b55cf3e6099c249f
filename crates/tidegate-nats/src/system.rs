//! Keeps the subjects of the system account apart from the subjects of other clients, by a token in front of
//! them.
//!
//! The server has two accounts: messages of one never reach the clients of the other. Inside the server each
//! subject and pattern of the system account begins with a token of its own. No client can name this token,
//! because [`is_valid`](super::subject::is_valid) refuses it, and no wildcard of another account matches it
//! ([`Sublist`](super::sublist::Sublist)). So one list of subscriptions serves both accounts. Clients see
//! subjects without the token.

/// The only byte of the first token of a subject in the system account, inside the server. Subjects of
/// clients never contain this byte.
pub const MARK: u8 = 1;
/// The first token, with its dot, of every subject and pattern in the system account, inside the server.
pub const PREFIX: &[u8] = &[MARK, b'.'];

/// Returns the inner form of a subject or pattern of the system account, in which the server keeps it.
#[must_use]
pub fn inner(subject: &[u8]) -> Vec<u8> {
    [PREFIX, subject].concat()
}

/// Returns whether this subject or pattern, in its form inside the server, belongs to the system account.
#[inline]
#[must_use]
pub fn is_inner(subject: &[u8]) -> bool {
    subject.starts_with(PREFIX)
}

/// Returns the subject or pattern as clients see it: without the token of the system account.
#[inline]
#[must_use]
pub fn outer(subject: &[u8]) -> &[u8] {
    subject.strip_prefix(PREFIX).unwrap_or(subject)
}

#[cfg(test)]
mod tests {
    use super::super::subject::is_pattern;
    use super::super::sublist::Sublist;
    use super::*;

    #[test]
    fn the_accounts_are_apart() {
        let mut list = Sublist::new();
        list.insert(b">", None, 1);
        list.insert(b"*.a", None, 2);
        list.insert(b"a", None, 3);
        list.insert(&inner(b">"), None, 4);
        list.insert(&inner(b"*"), Some(b"q"), 5);
        let mut found = |subject: &[u8]| {
            let mut keys: Vec<u32> = list.matches(subject).iter().collect();
            keys.sort_unstable();
            keys
        };
        assert_eq!(found(b"a"), [1, 3]);
        assert_eq!(found(&inner(b"a")), [4, 5]);
        assert_eq!(found(&inner(b"b.c")), [4]);
        assert!(!is_pattern(&inner(b"a")));
        assert_eq!(outer(&inner(b"a.b")), b"a.b");
        assert!(is_inner(&inner(b"a")) && !is_inner(b"a"));
    }
}

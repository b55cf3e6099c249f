//! Subjects and patterns of subjects: decides which are well formed, and which subjects a pattern matches.
//!
//! Dots separate tokens, and no token may be empty. In a pattern the token `*` matches one token, and `>` as
//! the last token matches one or more. A token that contains `*` or `>` beside other bytes is literal.

use super::system::MARK;

/// Returns whether `subject` is well formed, as a subject or a pattern: each token has at least one byte,
/// and none contains white space, a zero byte or the byte that marks the system account inside the server.
#[must_use]
pub fn is_valid(subject: &[u8]) -> bool {
    let blank = |b: &u8| matches!(*b, b' ' | b'\t' | b'\r' | b'\n' | b'\x0c' | 0 | MARK);
    !subject.iter().any(blank) && tokens(subject).all(|t| !t.is_empty())
}

/// Returns whether `subject` is well formed and has no wildcard, so that clients can publish to it.
#[must_use]
pub fn is_literal(subject: &[u8]) -> bool {
    is_valid(subject) && !has_wildcard(subject)
}

/// Returns whether `pattern` is well formed and has `>` only as its last token, so that clients can subscribe
/// to it.
#[must_use]
pub fn is_pattern(pattern: &[u8]) -> bool {
    let closing = |t: &[u8]| t == b">";
    let mut seen = false;
    is_valid(pattern) && tokens(pattern).all(|t| !std::mem::replace(&mut seen, closing(t)))
}

/// Returns whether a token of `subject` is a wildcard, `*` or `>`, so that it is a pattern for several
/// subjects.
#[must_use]
pub fn has_wildcard(subject: &[u8]) -> bool {
    // The function first searches for the bytes `*` and `>`, because this is cheap and most subjects contain
    // neither.
    memchr::memchr2(b'*', b'>', subject).is_some()
        && tokens(subject).any(|t| t == b"*" || t == b">")
}

/// Iterates over the tokens of `subject`, which dots separate.
pub fn tokens(subject: &[u8]) -> impl Iterator<Item = &[u8]> {
    subject.split(|b| *b == b'.')
}

/// Returns whether the pattern `outer` matches every subject that `inner` matches. If `inner` is a literal
/// subject, returns whether `outer` matches this subject.
#[must_use]
pub fn contains(outer: &[u8], inner: &[u8]) -> bool {
    // The function is one fast loop over the bytes, because a node may compare a million subjects with a
    // pattern. `o` and `i` are the places in the two texts. At the top of the loop, both are at the
    // beginning of a token.
    let (mut o, mut i) = (0, 0);
    let is_end = |text: &[u8], at: usize| text.get(at).is_none_or(|b| *b == b'.');
    loop {
        match outer.get(o) {
            Some(b'>') if is_end(outer, o + 1) => return true,
            Some(b'*') if is_end(outer, o + 1) => {
                if inner.get(i) == Some(&b'>') && is_end(inner, i + 1) {
                    return false;
                }
                o += 1;
                while !is_end(inner, i) {
                    i += 1;
                }
            }
            _ => {
                while !is_end(outer, o) {
                    if outer.get(o) != inner.get(i) {
                        return false;
                    }
                    (o, i) = (o + 1, i + 1);
                }
            }
        }
        match (outer.get(o), inner.get(i)) {
            (None, None) => return true,
            (Some(b'.'), Some(b'.')) => (o, i) = (o + 1, i + 1),
            _ => return false,
        }
    }
}

/// Returns whether at least one subject matches both patterns, so that two streams or rules would share it.
#[must_use]
pub fn overlaps(a: &[u8], b: &[u8]) -> bool {
    let (mut a, mut b) = (tokens(a), tokens(b));
    loop {
        match (a.next(), b.next()) {
            (Some(b">"), Some(_)) | (Some(_), Some(b">")) | (None, None) => return true,
            (Some(b"*"), Some(_)) | (Some(_), Some(b"*")) => {}
            (Some(x), Some(y)) if x == y => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        for good in [
            "a",
            "a.b",
            "*",
            ">",
            "a.*.c",
            "a.>",
            "foo*",
            "a>b.c",
            "*.>",
            "$JS.API.INFO",
        ] {
            assert!(is_pattern(good.as_bytes()), "{good}");
        }
        for bad in ["", ".", "a.", ".a", "a..b", ">.a", "a.>.b", "a b"] {
            assert!(!is_pattern(bad.as_bytes()), "{bad}");
        }
        assert!(
            is_literal(b"foo*.a>b")
                && !is_literal(b"a.*")
                && !is_literal(b"a.>")
                && !is_literal(b"a..b")
        );
    }

    #[test]
    fn containing() {
        let yes = [
            ("a.b", "a.b"),
            ("a.*", "a.b"),
            ("a.>", "a.b.c"),
            (">", "a"),
            ("a.*", "a.*"),
            ("a.>", "a.*.>"),
            ("*.>", "a.>"),
        ];
        let no = [
            ("a.b", "a.c"),
            ("a.*", "a"),
            ("a.*", "a.b.c"),
            ("a.>", "a"),
            ("a.b", "a.*"),
            ("a.*", "a.>"),
            ("*", "a.b"),
        ];
        for (outer, inner) in yes {
            assert!(
                contains(outer.as_bytes(), inner.as_bytes()),
                "{outer} {inner}"
            );
        }
        for (outer, inner) in no {
            assert!(
                !contains(outer.as_bytes(), inner.as_bytes()),
                "{outer} {inner}"
            );
        }
    }

    proptest::proptest! {
        /// Checks that the loop over bytes and a simple comparison of tokens agree on any two texts.
        #[test]
        fn containing_as_tokens_do(outer in "[ab*>.]{0,7}", inner in "[ab*>.]{0,7}") {
            let by_tokens = || {
                let (mut outer, mut inner) = (tokens(outer.as_bytes()), tokens(inner.as_bytes()));
                loop {
                    match (outer.next(), inner.next()) {
                        (Some(b">"), Some(_)) | (None, None) => return true,
                        (Some(b"*"), Some(b">")) => return false,
                        (Some(b"*"), Some(_)) => {}
                        (Some(o), Some(i)) if o == i => {}
                        _ => return false,
                    }
                }
            };
            proptest::prop_assert_eq!(contains(outer.as_bytes(), inner.as_bytes()), by_tokens());
        }
    }

    #[test]
    fn overlapping() {
        let yes = [
            ("a.*", "*.b"),
            ("a.>", "*.b"),
            ("a.b", "a.b"),
            (">", "a"),
            ("a.>", "a.b.c.>"),
        ];
        let no = [
            ("a.*", "b.*"),
            ("a", "a.>"),
            ("a.*", "a.b.c"),
            ("a.b", "a.c"),
        ];
        for (a, b) in yes {
            assert!(
                overlaps(a.as_bytes(), b.as_bytes()) && overlaps(b.as_bytes(), a.as_bytes()),
                "{a} {b}"
            );
        }
        for (a, b) in no {
            assert!(
                !overlaps(a.as_bytes(), b.as_bytes()) && !overlaps(b.as_bytes(), a.as_bytes()),
                "{a} {b}"
            );
        }
    }
}

//! The token with which a reader of the monitor may read messages.

/// The least length of the token in bytes, so that many tries do not guess it.
const BYTES_MIN: usize = 16;
/// The greatest length of the token in bytes.
const BYTES_MAX: usize = 256;

/// The token with which a reader of the monitor may read messages of streams. Its debug output hides the
/// text, so that no log shows the token.
#[derive(Clone, PartialEq, Eq)]
pub struct MessageToken(String);

impl MessageToken {
    /// Creates the token with this text, which the operator configured; `None` if the text is no token: it
    /// needs 16 to 256 printable ASCII characters without blanks, because readers send it in a header.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let fits = (BYTES_MIN..=BYTES_MAX).contains(&text.len());
        (fits && text.bytes().all(|b| b.is_ascii_graphic())).then(|| Self(text.to_owned()))
    }

    /// Returns whether a reader has given this token. Takes a time that depends only on the lengths, so that
    /// the time tells nothing about the token.
    #[must_use]
    pub fn admits(&self, given: &[u8]) -> bool {
        let token = self.0.as_bytes();
        let differ = token.iter().zip(given).fold(0, |d, (a, b)| d | (a ^ b));
        token.len() == given.len() && std::hint::black_box(differ) == 0
    }
}

impl std::fmt::Debug for MessageToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_right() {
        let token = MessageToken::new("0123456789abcdef").unwrap();
        assert!(token.admits(b"0123456789abcdef"));
        for wrong in [
            "",
            "0123456789abcde",
            "0123456789abcdeF",
            "0123456789abcdef0",
        ] {
            assert!(!token.admits(wrong.as_bytes()), "{wrong}");
        }
        assert_eq!(format!("{token:?}"), "(secret)");
    }

    #[test]
    fn short_and_strange_texts_are_no_tokens() {
        let long = "x".repeat(BYTES_MAX + 1);
        for text in [
            "",
            "0123456789abcde",
            "0123456789 abcdef",
            "0123456789abcdeé",
            &long,
        ] {
            assert_eq!(MessageToken::new(text), None, "{text}");
        }
    }
}

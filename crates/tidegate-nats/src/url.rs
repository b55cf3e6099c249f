//! Decodes the credentials in a URL, in which `%` and two hexadecimal digits stand for a byte: `p%40ss` is
//! `p@ss`. Source: RFC 3986, section 2.1, as Go's `net/url` reads it for nats.go and nats-server.

/// The reason why a program cannot decode the credentials in a URL. The texts do not reveal the credentials,
/// because they may reach a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EscapeError {
    /// A percent sign lacks the two hexadecimal digits behind it, so it stands for no byte.
    #[error(
        "the credentials have a `%` without two hexadecimal digits behind it: write a percent sign as %25"
    )]
    Malformed,
    /// The decoded bytes are not UTF-8, so they cannot be the text of a credential.
    #[error("the credentials have escapes that are not UTF-8")]
    Text,
}

/// Decodes the user, the password or the token of a URL, for a program that connects to the URL.
///
/// ```
/// use tidegate_nats::url::unescape;
///
/// assert_eq!(unescape("us%40er")?, "us@er");
/// assert!(unescape("100%").is_err());
/// # Ok::<(), tidegate_nats::url::EscapeError>(())
/// ```
///
/// # Errors
/// See [`EscapeError`].
pub fn unescape(text: &str) -> Result<String, EscapeError> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let escape = part.as_bytes().first_chunk::<2>();
        let byte = escape.and_then(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
        bytes.push(byte.ok_or(EscapeError::Malformed)?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| EscapeError::Text)
}

fn digit(letter: u8) -> Option<u8> {
    let digit = char::from(letter).to_digit(16)?;
    u8::try_from(digit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_stand_for_bytes() {
        for (text, decoded) in [
            ("", ""),
            ("plain+text", "plain+text"),
            ("us%40er", "us@er"),
            ("%3a%2C%2f", ":,/"),
            ("100%25", "100%"),
            ("%25%34%30", "%40"),
            ("n%C3%A4%c3%a4", "nää"),
            ("ä%0a", "ä\n"),
        ] {
            assert_eq!(unescape(text).as_deref(), Ok(decoded), "{text}");
        }
        for text in ["%", "a%", "%4", "%4g", "%zz", "%%40", "%+1", "%ä", "%4ä"] {
            assert_eq!(unescape(text), Err(EscapeError::Malformed), "{text}");
        }
        assert_eq!(unescape("%ff"), Err(EscapeError::Text));
    }
}

//! Makes foreign text printable, such as words and names of clients: escapes all bytes that are no visible
//! text, so that different texts look different and no text changes the terminal.

use std::fmt::Write as _;

/// The longest word that the output shows whole, in characters of the escaped text; longer words are cut.
const SHOWN_MAX: usize = 200;

/// Escapes a word for the terminal: bytes that are not UTF-8 become `\xNN`, invisible characters become
/// `\u{..}`, and a backslash is doubled. Cuts a very long word and adds its length.
pub(crate) fn escape(word: &[u8]) -> String {
    let mut text = String::new();
    for chunk in word.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '"' | '\'' => text.push(c),
                c if c.is_ascii_control() => {
                    let _ = write!(text, "\\x{:02x}", u32::from(c));
                }
                // The escape also covers combining marks, which would join the text printed before the word,
                // and characters that change the direction of text.
                c => text.extend(c.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
        if text.len() > 8 * SHOWN_MAX {
            break;
        }
    }
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], word.len()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn only_text_is_shown_as_it_is() {
        assert_eq!(escape("naïve日本'\"".as_bytes()), "naïve日本'\"");
        assert_eq!(escape(b"a\xffb\xc3"), "a\\xffb\\xc3");
        assert_eq!(escape(b"\x1b[31m\x00\x7f"), "\\x1b[31m\\x00\\x7f");
        assert_eq!(escape("\u{202e}\u{85}".as_bytes()), "\\u{202e}\\u{85}");
        assert_eq!(escape(b"c:\\d"), "c:\\\\d");
        let long = escape(&[b'x'; 1 << 20]);
        assert!(long.ends_with("xxx... (1048576 bytes)") && long.len() < 300);
    }
}

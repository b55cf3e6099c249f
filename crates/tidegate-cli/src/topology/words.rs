//! Splits text into words for the splitters. A word is a maximal run of bytes other than 0x09-0x0D and 0x20.
//! The split works on bytes, not characters, so that the topology can count any file.

use std::ops::Range;

/// Returns whether `byte` separates words: a blank, or one of the control characters from 0x09 to 0x0D.
pub(crate) const fn is_space(byte: u8) -> bool {
    matches!(byte, 0x09..=0x0D | b' ')
}

/// Returns the ranges of the words of `text`, in order, so that the splitter copies no words.
pub(crate) const fn words(text: &[u8]) -> Words<'_> {
    Words { text, at: 0 }
}

/// The iterator that [`words`] returns, over the ranges of the words in a text.
pub(crate) struct Words<'a> {
    text: &'a [u8],
    at: usize,
}

impl Iterator for Words<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let rest = self.text.get(self.at..)?;
        let start = self.at + rest.iter().position(|&byte| !is_space(byte))?;
        let rest = &self.text[start..];
        let end = start
            + rest
                .iter()
                .position(|&byte| is_space(byte))
                .unwrap_or(rest.len());
        // `end` is the offset of the space behind the word, or the end of the text, so the next search starts
        // after it.
        self.at = end + 1;
        Some(start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(text: &[u8]) -> Vec<&[u8]> {
        words(text).map(|word| &text[word]).collect()
    }

    #[test]
    fn six_bytes_separate_and_no_other() {
        assert_eq!(split(b""), Vec::<&[u8]>::new());
        assert_eq!(split(b" \t\n\x0b\x0c\r "), Vec::<&[u8]>::new());
        assert_eq!(split(b"a  b\r\nc"), [&b"a"[..], b"b", b"c"]);
        assert_eq!(split(b" \xa0\x85\x1c\x00 "), [&b"\xa0\x85\x1c\x00"[..]]);
        assert_eq!((0..=255).filter(|&byte| is_space(byte)).count(), 6);
    }

    proptest! {
        #[test]
        fn as_the_standard_split(text in proptest::collection::vec(prop_oneof![Just(b' '), Just(b'\n'), 0u8..=40, any::<u8>()], 0..200)) {
            let plain: Vec<_> = text.split(|&byte| is_space(byte)).filter(|word| !word.is_empty()).collect();
            prop_assert_eq!(split(&text), plain);
        }
    }
}

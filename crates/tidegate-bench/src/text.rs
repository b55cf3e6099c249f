//! Provides the text for the bench `topology`: from the user's file, or generated with the word frequencies
//! of a natural language.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;

use tidegate_cli::topology::{Blocks, Feed};

/// A text in memory for our topology, and in a file for rivals that must read it from a file.
pub(crate) struct Text {
    blocks: Vec<Arc<[u8]>>,
    path: PathBuf,
    /// True if this program wrote the file, so that the drop removes it.
    generated: bool,
}

impl Text {
    /// Loads the text of `file`, or generates a text of `bytes` bytes.
    pub(crate) fn load(file: Option<&Path>, bytes: usize) -> anyhow::Result<Self> {
        let (text, path) = match file {
            Some(path) => (
                std::fs::read(path).with_context(|| path.display().to_string())?,
                path.to_path_buf(),
            ),
            None => {
                let path =
                    std::env::temp_dir().join(format!("tidegate-bench-{}.txt", std::process::id()));
                (generate(bytes), path)
            }
        };
        if file.is_none() {
            write_new(&path, &text).with_context(|| path.display().to_string())?;
        }
        let mut source = Blocks::new(&text[..], 64 * 1024);
        let mut blocks = Vec::new();
        while !source.ended() {
            blocks.extend(source.read()?);
        }
        anyhow::ensure!(!blocks.is_empty(), "{}: no text in it", path.display());
        Ok(Self {
            blocks,
            path,
            generated: file.is_none(),
        })
    }

    /// Returns the path of the file with the text, for the request to a rival.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the text as blocks, repeated endlessly.
    pub(crate) fn endless(&self) -> Endless<'_> {
        Endless {
            blocks: &self.blocks,
            next: 0,
        }
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        if self.generated {
            // The file is in the system's temporary directory, so a leftover file does no harm.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// An endless sequence of the blocks of a text: see [`Text::endless`].
pub(crate) struct Endless<'a> {
    blocks: &'a [Arc<[u8]>],
    next: usize,
}

impl Feed for Endless<'_> {
    fn next(&mut self) -> Option<Arc<[u8]>> {
        let block = self.blocks.get(self.next).cloned();
        self.next = (self.next + 1) % self.blocks.len();
        block
    }
}

/// Creates a new file and writes the text. First removes an existing file of this name, because in a
/// directory that all users share the name may be a link to another user's file.
fn write_new(path: &Path, text: &[u8]) -> std::io::Result<()> {
    if let Err(e) = std::fs::remove_file(path)
        && e.kind() != std::io::ErrorKind::NotFound
    {
        return Err(e);
    }
    std::fs::File::create_new(path)?.write_all(text)
}

/// Generates lines of 8 to 14 words, with 50,000 different words. The word of rank r is about 1/r as frequent
/// as the first word. Every machine generates the same text, so that figures are comparable.
fn generate(bytes: usize) -> Vec<u8> {
    let mut random = SplitMix::new(1);
    let words: Vec<Vec<u8>> = (0..50_000u64).map(|rank| word(rank, &mut random)).collect();
    let mut text = Vec::with_capacity(bytes + 200);
    while text.len() < bytes {
        for _ in 0..8 + random.next() % 7 {
            // The rank is 50,000^u for a uniform random u, so that the logarithm of the rank is uniform.
            let rank = (words.len() as f64).powf(random.share()) as usize - 1;
            text.extend_from_slice(&words[rank.min(words.len() - 1)]);
            text.push(b' ');
        }
        text.pop();
        text.push(b'\n');
    }
    text
}

/// Generates the word of this rank; more frequent words are shorter.
fn word(rank: u64, random: &mut SplitMix) -> Vec<u8> {
    let len = 2 + u64::from((rank + 1).ilog2()) / 3 + random.next() % 4;
    (0..len)
        .map(|_| b'a' + (random.next() % 26) as u8)
        .collect()
}

/// Steele's generator of random numbers (SplitMix): a seed gives the same numbers on every machine.
pub(crate) struct SplitMix(u64);

impl SplitMix {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a random number from 0 to below 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_words_are_most_of_the_text() {
        let text = generate(100_000);
        let mut counts = std::collections::HashMap::<&[u8], usize>::new();
        for word in text
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty())
        {
            *counts.entry(word).or_default() += 1;
        }
        let words: usize = counts.values().sum();
        assert!(
            counts
                .values()
                .max()
                .is_some_and(|&most| most > words / 30 && most < words / 8)
        );
        assert!(counts.len() > words / 10);
        assert_eq!(text, generate(100_000));
    }
}

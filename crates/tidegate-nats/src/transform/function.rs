//! The mapping functions of a transform's destination: parses their texts, and writes the tokens that they
//! make from a subject.

use super::TransformError;

/// A token of a destination: a function that makes a part of the new subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Function {
    /// The function writes this token unchanged.
    Literal(Vec<u8>),
    /// The function writes the token of the subject at this position. Here and below, tokens are given by
    /// their positions in the subject.
    Wildcard(usize),
    /// The function writes the hash of the tokens modulo `count`, so that equal tokens get equal numbers.
    /// Without tokens, it hashes the whole subject.
    Partition { count: u32, tokens: Vec<usize> },
    /// The function writes a random number below `count`.
    Random { count: u32 },
    /// The function splits a token at the delimiters, and writes the parts as tokens of their own.
    Split { token: usize, delimiter: Vec<u8> },
    /// The function cuts a token at `bytes` in the way `cut`, and writes the parts as tokens. Numbers below
    /// 1 leave the token whole.
    Cut { cut: Cut, token: usize, bytes: i32 },
}

/// A way in which a function cuts a token of the subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// The function splits the token into its first bytes and the rest.
    SplitFromLeft,
    /// The function splits the token into its last bytes and the rest before them.
    SplitFromRight,
    /// The function cuts the token into parts of equal length from the left; the last part may be shorter.
    SliceFromLeft,
    /// The function cuts the token into parts of equal length from the right; the first part may be shorter.
    SliceFromRight,
    /// The function keeps only the first bytes of the token.
    Left,
    /// The function keeps only the last bytes of the token.
    Right,
}

/// The names of the cuts in a destination. A destination may write each capital letter also as a small one.
const CUTS: [(&str, Cut); 6] = [
    ("SplitFromLeft", Cut::SplitFromLeft),
    ("SplitFromRight", Cut::SplitFromRight),
    ("SliceFromLeft", Cut::SliceFromLeft),
    ("SliceFromRight", Cut::SliceFromRight),
    ("Left", Cut::Left),
    ("Right", Cut::Right),
];

/// The facts about a transform's source that the parser of functions needs.
pub(super) struct Source<'a> {
    /// The positions of the tokens `*` in the source, which functions name by their number.
    pub(super) wildcards: &'a [usize],
    /// True if the source has no wildcard, so that functions cannot name one.
    pub(super) is_literal: bool,
}

/// The characters that count as white space around the names and arguments of functions.
const SPACES: [char; 5] = [' ', '\t', '\n', '\x0c', '\r'];

/// Returns whether a token of a destination is in double braces, so that it must be a function.
pub(super) fn is_function(token: &str) -> bool {
    token.len() > 4 && token.starts_with("{{") && token.ends_with("}}")
}

impl Function {
    /// Parses one token of a destination. A token without the form of a function is a literal token.
    pub(super) fn parse(token: &str, source: &Source<'_>) -> Result<Self, TransformError> {
        let text = || token.to_owned();
        let wildcard = |n: i64| {
            let known = usize::try_from(n).ok().filter(|_| !source.is_literal);
            match known {
                Some(0) => Ok(0),
                Some(n) if n <= source.wildcards.len() => Ok(source.wildcards[n - 1]),
                _ => {
                    let text = format!("{token}: [{n}]");
                    Err(TransformError::WildcardOutOfRange(text))
                }
            }
        };
        if let Some(n) = token.strip_prefix('$').and_then(|n| n.parse().ok()) {
            return wildcard(n).map(Self::Wildcard);
        }
        if !is_function(token) {
            return Ok(Self::Literal(token.as_bytes().to_vec()));
        }
        let unknown = || TransformError::UnknownFunction(text());
        let (name, args) = call(token).ok_or_else(unknown)?;
        let number = |at: usize| -> Result<i64, TransformError> {
            let arg = args[at].trim_matches(' ');
            let parsed = arg.parse::<i64>();
            parsed.map_err(|_| TransformError::InvalidArgument(text()))
        };
        let count = |at: usize| {
            let count = number(at)?;
            let count = i32::try_from(count)
                .ok()
                .and_then(|n| u32::try_from(n).ok());
            count.ok_or_else(|| TransformError::InvalidArgument(text()))
        };
        let expect = |len: usize| {
            if args.len() < len {
                return Err(TransformError::NotEnoughArguments(text()));
            }
            if args.len() > len {
                return Err(TransformError::TooManyArguments(text()));
            }
            Ok(())
        };

        if is_named(name, "Wildcard") {
            if args == [""] {
                return Err(TransformError::NotEnoughArguments(text()));
            }
            expect(1)?;
            return wildcard(number(0)?).map(Self::Wildcard);
        }
        if is_named(name, "Partition") {
            let numbers: Vec<_> = (1..args.len()).map(number).collect::<Result<_, _>>()?;
            // A source without wildcards matches only one subject, so the function hashes the whole subject,
            // as nats-server does.
            let tokens = match source.is_literal {
                true => Vec::new(),
                false => numbers
                    .into_iter()
                    .map(wildcard)
                    .collect::<Result<_, _>>()?,
            };
            let count = count(0)?;
            return Ok(Self::Partition { count, tokens });
        }
        if is_named(name, "Random") {
            expect(1)?;
            return Ok(Self::Random { count: count(0)? });
        }
        if is_named(name, "Split") {
            expect(2)?;
            let token = number(0)?;
            if args[1].contains(' ') {
                return Err(TransformError::InvalidArgument(text()));
            }
            return Ok(Self::Split {
                token: wildcard(token)?,
                delimiter: args[1].as_bytes().to_vec(),
            });
        }
        let cut = CUTS.into_iter().find(|(full, _)| is_named(name, full));
        let (_, cut) = cut.ok_or_else(unknown)?;
        expect(2)?;
        let (token, bytes) = (number(0)?, number(1)?);
        let bytes = i32::try_from(bytes).map_err(|_| TransformError::InvalidArgument(text()))?;
        let token = wildcard(token)?;
        Ok(Self::Cut { cut, token, bytes })
    }

    /// Writes the tokens that this function makes from the subject `subject` with the tokens `tokens`. A
    /// random function uses the number `random`, and `at`, the function's place in the destination.
    pub(super) fn write(
        &self,
        subject: &[u8],
        tokens: &[&[u8]],
        random: u64,
        at: u64,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::Literal(token) => out.extend_from_slice(token),
            Self::Wildcard(token) => out.extend_from_slice(tokens[*token]),
            Self::Partition { count, tokens: ns } => {
                let hash = match ns.is_empty() {
                    true => fnv1a([subject].into_iter()),
                    false => fnv1a(ns.iter().map(|n| tokens[*n])),
                };
                write_number(hash.checked_rem(*count).unwrap_or(0), out);
            }
            Self::Random { count } => {
                let drawn = (mix(random, at) >> 33) as u32;
                write_number(drawn.checked_rem(*count).unwrap_or(0), out);
            }
            Self::Split { token, delimiter } => split(tokens[*token], delimiter, out),
            Self::Cut { cut, token, bytes } => {
                let token = tokens[*token];
                match usize::try_from(*bytes) {
                    Ok(bytes) if bytes > 0 && bytes < token.len() => cut.write(token, bytes, out),
                    _ => out.extend_from_slice(token),
                }
            }
        }
    }
}

impl Cut {
    /// Writes the parts into which this cut divides the token. The token must be longer than `bytes`, and
    /// `bytes` not 0.
    fn write(self, token: &[u8], bytes: usize, out: &mut Vec<u8>) {
        let len = token.len();
        let (head, tail) = match self {
            Self::SplitFromLeft | Self::SliceFromLeft | Self::Left => token.split_at(bytes),
            Self::SplitFromRight | Self::Right => token.split_at(len - bytes),
            Self::SliceFromRight if !len.is_multiple_of(bytes) => token.split_at(len % bytes),
            Self::SliceFromRight => token.split_at(bytes),
        };
        match self {
            Self::Left => out.extend_from_slice(head),
            Self::Right => out.extend_from_slice(tail),
            Self::SplitFromLeft | Self::SplitFromRight => join([head, tail].into_iter(), out),
            Self::SliceFromLeft | Self::SliceFromRight => {
                join([head].into_iter().chain(tail.chunks(bytes)), out);
            }
        }
    }
}

/// Splits the text of a function, `{{ name ( a, b ) }}`, into its name and its arguments. Removes white
/// space before an argument.
fn call(token: &str) -> Option<(&str, Vec<&str>)> {
    let inner = token.strip_prefix("{{")?.strip_suffix("}}")?;
    let (name, args) = inner.trim_matches(SPACES).split_once('(')?;
    let mut args: Vec<_> = args.strip_suffix(')')?.split(',').collect();
    for arg in args.iter_mut().skip(1) {
        *arg = arg.trim_start_matches(SPACES);
    }
    Some((name.trim_end_matches(SPACES), args))
}

/// Returns whether a destination's text `name` is the name `full` of a function. `name` may have small
/// letters in place of the capital letters of `full`.
fn is_named(name: &str, full: &str) -> bool {
    let same = |(a, b): (u8, u8)| a == b || (b.is_ascii_uppercase() && a.to_ascii_uppercase() == b);
    name.len() == full.len() && name.bytes().zip(full.bytes()).all(same)
}

/// Writes the parts of a token between the delimiters as tokens, and leaves out empty parts, because a
/// subject has no empty tokens. If the delimiter is empty, each character is a part.
fn split(token: &[u8], delimiter: &[u8], out: &mut Vec<u8>) {
    let mut parts = Vec::new();
    if delimiter.is_empty() {
        for chunk in token.utf8_chunks() {
            let valid = chunk.valid();
            parts.extend(
                valid
                    .char_indices()
                    .map(|(at, c)| &valid.as_bytes()[at..at + c.len_utf8()]),
            );
            parts.extend(chunk.invalid().chunks(1));
        }
    } else {
        let mut from = 0;
        for at in memchr::memmem::find_iter(token, delimiter) {
            parts.push(&token[from..at]);
            from = at + delimiter.len();
        }
        parts.push(&token[from..]);
    }
    join(parts.into_iter().filter(|part| !part.is_empty()), out);
}

/// Writes these tokens with dots between them, as in a subject.
fn join<'a>(tokens: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    for (at, token) in tokens.enumerate() {
        if at > 0 {
            out.push(b'.');
        }
        out.extend_from_slice(token);
    }
}

fn write_number(number: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(number.to_string().as_bytes());
}

/// Returns the 32-bit FNV-1a hash of these texts in a row. nats-server uses this hash, so both servers give
/// equal partitions.
fn fnv1a<'a>(texts: impl Iterator<Item = &'a [u8]>) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    texts.flatten().fold(0x811c_9dc5, step)
}

/// Mixes the caller's number with a place in the destination (SplitMix64), so that the random tokens of a
/// destination differ.
fn mix(random: u64, at: u64) -> u64 {
    let z = random.wrapping_add((at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

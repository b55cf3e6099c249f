//! The mapping functions of a transform's destination: their texts, and the tokens that they give.

use super::TransformError;

/// A token of a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Function {
    /// The token itself.
    Literal(Vec<u8>),
    /// A token of the subject. Tokens are positions in the subject, here and below.
    Wildcard(usize),
    /// The hash of the tokens modulo `count`; without tokens, of the subject.
    Partition { count: u32, tokens: Vec<usize> },
    /// A number below `count`.
    Random { count: u32 },
    /// The parts of a token between delimiters.
    Split { token: usize, delimiter: Vec<u8> },
    /// A token, cut at `bytes` in this way. Numbers below 1 leave the token whole.
    Cut { cut: Cut, token: usize, bytes: i32 },
}

/// A way to cut a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// Into the first bytes and the others.
    SplitFromLeft,
    /// Into the last bytes and the others.
    SplitFromRight,
    /// Into parts of equal length, and what remains behind them.
    SliceFromLeft,
    /// Into parts of equal length, and what remains before them.
    SliceFromRight,
    /// Only the first bytes.
    Left,
    /// Only the last bytes.
    Right,
}

/// The names of the cuts. A letter that is large here may be large or small in a destination.
const CUTS: [(&str, Cut); 6] = [
    ("SplitFromLeft", Cut::SplitFromLeft),
    ("SplitFromRight", Cut::SplitFromRight),
    ("SliceFromLeft", Cut::SliceFromLeft),
    ("SliceFromRight", Cut::SliceFromRight),
    ("Left", Cut::Left),
    ("Right", Cut::Right),
];

/// The part of a transform's source that functions refer to.
pub(super) struct Source<'a> {
    /// The positions of the tokens `*`.
    pub(super) wildcards: &'a [usize],
    /// True if the source has no wildcard at all.
    pub(super) is_literal: bool,
}

/// The white space that may surround names and arguments.
const SPACES: [char; 5] = [' ', '\t', '\n', '\x0c', '\r'];

/// Returns whether a token of a destination is in double braces, so that it must be a function.
pub(super) fn is_function(token: &str) -> bool {
    token.len() > 4 && token.starts_with("{{") && token.ends_with("}}")
}

impl Function {
    /// Reads one token of a destination. A token that looks like no function is a literal one.
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
            // A source without wildcards has one subject, so nats-server hashes it whole.
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

    /// Writes the tokens that this function gives for a subject, of which `tokens` are the tokens. A random
    /// function takes the number `random`, and `at`, its place in the destination.
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
    /// Writes the parts of a token that is longer than `bytes`, which is not 0.
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

/// Returns the name of a function and its arguments: `{{ name ( a, b ) }}`. White space before an argument is
/// not part of it.
fn call(token: &str) -> Option<(&str, Vec<&str>)> {
    let inner = token.strip_prefix("{{")?.strip_suffix("}}")?;
    let (name, args) = inner.trim_matches(SPACES).split_once('(')?;
    let mut args: Vec<_> = args.strip_suffix(')')?.split(',').collect();
    for arg in args.iter_mut().skip(1) {
        *arg = arg.trim_start_matches(SPACES);
    }
    Some((name.trim_end_matches(SPACES), args))
}

/// Returns whether `name` is the name `full` of a function. A large letter of `full` may be small in `name`.
fn is_named(name: &str, full: &str) -> bool {
    let same = |(a, b): (u8, u8)| a == b || (b.is_ascii_uppercase() && a.to_ascii_uppercase() == b);
    name.len() == full.len() && name.bytes().zip(full.bytes()).all(same)
}

/// Writes the parts of a token between the delimiters, and leaves out empty parts. If the delimiter is empty,
/// each character is a part.
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

/// Writes tokens with dots between them.
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

/// Returns the FNV-1a hash of these texts in a row, in 32 bits.
fn fnv1a<'a>(texts: impl Iterator<Item = &'a [u8]>) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    texts.flatten().fold(0x811c_9dc5, step)
}

/// Returns a number that the caller's number and a place determine (SplitMix64), so that the random tokens of
/// a destination differ.
fn mix(random: u64, at: u64) -> u64 {
    let z = random.wrapping_add((at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

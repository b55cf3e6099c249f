//! Subject transforms: rules by which streams replace the subjects of messages that they store or republish.
//! A transform has a source, which is a pattern, and a destination, which describes the new subject of each
//! message with a matching subject.
//!
//! A destination is a subject with mapping functions among its tokens. The module `function` reads these
//! functions. `n` is the number of a wildcard `*` of the source, from 1; 0 stands for the first token of the
//! subject.
//!
//! - `$n`, `{{wildcard(n)}}`: the token that the wildcard matches.
//! - `{{partition(count, n, ...)}}`: the FNV-1a hash of these tokens modulo `count`; without `n`, the hash of
//!   the whole subject.
//! - `{{random(count)}}`: a number below `count`, computed from a random number that the caller passes in.
//! - `{{split(n, delimiter)}}`: the parts of the token between the delimiters.
//! - `{{splitfromleft(n, at)}}`, `{{splitfromright(n, at)}}`: the token in two parts; the left or the right
//!   part has `at` bytes.
//! - `{{slicefromleft(n, size)}}`, `{{slicefromright(n, size)}}`: the token in parts of `size` bytes; the
//!   last or the first part may be shorter.
//! - `{{left(n, bytes)}}`, `{{right(n, bytes)}}`: the first or the last bytes of the token.
//!
//! If the source ends with `>`, so does the destination, and the tokens that the source's `>` matches follow
//! there. Cuts count bytes, as nats-server's do, and leave a token whole if it is not longer than the cut.
//!
//! A transform reads no random source: the caller draws the number. The node that proposes an entry applies
//! the transform, because all members must apply equal entries.

mod function;
#[cfg(test)]
mod tests;

use crate::subject;
use function::Function;
use thiserror::Error;

/// The greatest length in bytes of a destination, and of a subject that a transform makes. The bound keeps a
/// transform from blowing up subjects.
pub const TRANSFORMED_BYTES_MAX: usize = 16 << 10;

/// The reason why a source and a destination form no transform, for the client that configures a stream. The
/// texts are those of nats-server, as far as nats-server has one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TransformError {
    /// The source is no pattern, the destination has a wildcard `*`, or only one of the two ends with `>`.
    #[error("invalid subject")]
    Subject,
    /// The destination has an empty token, a token behind `>`, or white space outside a function.
    #[error("invalid mapping destination: invalid transform{}", of(.0))]
    Destination(String),
    /// The destination is longer than [`TRANSFORMED_BYTES_MAX`], so the server refuses it.
    #[error("invalid mapping destination: {bytes} bytes, expected at most {max}")]
    TooLong {
        /// The length of the refused destination in bytes.
        bytes: usize,
        /// The greatest length that the server accepts: [`TRANSFORMED_BYTES_MAX`].
        max: usize,
    },
    /// A token in double braces names no function that the server knows.
    #[error("invalid mapping destination: unknown function in {0}")]
    UnknownFunction(String),
    /// A function names a wildcard that the source does not have.
    #[error("invalid mapping destination: wildcard index out of range in {0}")]
    WildcardOutOfRange(String),
    /// A function lacks an argument.
    #[error("invalid mapping destination: not enough arguments passed to the function in {0}")]
    NotEnoughArguments(String),
    /// A function has more arguments than it takes.
    #[error("invalid mapping destination: too many arguments passed to the function in {0}")]
    TooManyArguments(String),
    /// An argument of a function is no number in the range of the function, or is no delimiter.
    #[error(
        "invalid mapping destination: function argument is invalid or in the wrong format in {0}"
    )]
    InvalidArgument(String),
}

/// Returns the part of an error's text that names the wrong token; empty without a token.
fn of(token: &str) -> String {
    if token.is_empty() {
        return String::new();
    }
    format!(" in {token}")
}

/// A compiled transform, which a stream applies to the subjects of its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transform {
    /// The pattern of the subjects that the transform changes.
    source: Vec<u8>,
    /// The functions that make the new subject, one for each token of the destination. An empty list leaves
    /// the subject as it is.
    functions: Vec<Function>,
    /// The number of the source's tokens before its `>`; `None` without a `>`. The subject's tokens behind
    /// these follow at the end of the new subject.
    rest_from: Option<usize>,
}

impl Transform {
    /// Compiles a transform from the texts of a stream's configuration. An empty source stands for `>`. An
    /// empty destination changes no subject.
    pub fn compile(source: &str, destination: &str) -> Result<Self, TransformError> {
        let source = if source.is_empty() { ">" } else { source };
        if !subject::is_pattern(source.as_bytes()) {
            return Err(TransformError::Subject);
        }
        let mut this = Self {
            source: source.as_bytes().to_vec(),
            functions: Vec::new(),
            rest_from: None,
        };
        if destination.is_empty() {
            return Ok(this);
        }
        check_destination(destination)?;
        let tokens: Vec<_> = source.split('.').collect();
        let has_rest = tokens.last() == Some(&">");
        let mut mapped: Vec<_> = destination.split('.').collect();
        if mapped.contains(&"*") || (mapped.last() == Some(&">")) != has_rest {
            return Err(TransformError::Subject);
        }
        if has_rest {
            mapped.pop();
            this.rest_from = Some(tokens.len() - 1);
        }
        let star = |(at, token): (usize, &&str)| (*token == "*").then_some(at);
        let wildcards: Vec<_> = tokens.iter().enumerate().filter_map(star).collect();
        let source = function::Source {
            wildcards: &wildcards,
            is_literal: wildcards.is_empty() && !has_rest,
        };
        for token in mapped {
            this.functions.push(Function::parse(token, &source)?);
        }
        Ok(this)
    }

    /// Returns whether the source matches `subject`, so that the transform applies to messages of this
    /// subject.
    #[must_use]
    pub fn matches(&self, subject: &[u8]) -> bool {
        subject::contains(&self.source, subject)
    }

    /// Returns whether the destination has a random token, so that the result depends on the number that the
    /// caller passes in.
    #[must_use]
    pub fn is_random(&self) -> bool {
        let is_random = |f: &Function| matches!(f, Function::Random { .. });
        self.functions.iter().any(is_random)
    }

    /// Returns the subject that replaces `subject`. Computes all random tokens from `random`, a number that
    /// the caller draws for each message.
    ///
    /// Returns `None` if the source does not match the subject, and if the result is no literal subject of at
    /// most [`TRANSFORMED_BYTES_MAX`] bytes: a function may cut a token into an empty one or into a wildcard.
    #[must_use]
    pub fn apply(&self, subject: &[u8], random: u64) -> Option<Vec<u8>> {
        if !subject::is_literal(subject) || !self.matches(subject) {
            return None;
        }
        if self.functions.is_empty() && self.rest_from.is_none_or(|at| at == 0) {
            return Some(subject.to_vec());
        }
        let tokens: Vec<_> = subject::tokens(subject).collect();
        let mut out = Vec::with_capacity(subject.len());
        for (at, function) in self.functions.iter().enumerate() {
            if at > 0 {
                out.push(b'.');
            }
            function.write(subject, &tokens, random, at as u64, &mut out);
            if out.len() > TRANSFORMED_BYTES_MAX {
                return None;
            }
        }
        let rest = self.rest_from.map_or(&[][..], |at| &tokens[at..]);
        for (at, token) in rest.iter().enumerate() {
            if at > 0 || !self.functions.is_empty() {
                out.push(b'.');
            }
            out.extend_from_slice(token);
        }
        (out.len() <= TRANSFORMED_BYTES_MAX && subject::is_literal(&out)).then_some(out)
    }
}

/// Checks each token of a destination: no token may be empty or follow `>`, and only functions may have
/// white space.
fn check_destination(destination: &str) -> Result<(), TransformError> {
    if destination.len() > TRANSFORMED_BYTES_MAX {
        return Err(TransformError::TooLong {
            bytes: destination.len(),
            max: TRANSFORMED_BYTES_MAX,
        });
    }
    let mut closed = false;
    for token in destination.split('.') {
        let is_bad = !function::is_function(token) && !subject::is_valid(token.as_bytes());
        if closed || is_bad {
            return Err(TransformError::Destination(token.to_owned()));
        }
        closed = token == ">";
    }
    Ok(())
}

//! Fixed bounds on the commands in an entry and on the entries in flight. Measurements set them in place of
//! the engine's choice, to compare both.

use std::fmt;
use std::str::FromStr;

/// The fixed bounds that a measurement sets for each group: on the commands in an entry, and on the entries
/// in flight. The product's bound on the bytes of an entry still applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FixedEntries {
    /// The greatest number of commands that the leader puts into one entry; at least 1.
    pub commands: u64,
    /// The greatest number of entries in flight: proposed by the leader, and not applied yet; at least 1.
    pub in_flight: usize,
}

impl fmt::Display for FixedEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.commands, self.in_flight)
    }
}

/// The error for a text that does not give fixed bounds: two numbers of at least 1 with an `x` between them,
/// such as `64x4`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no size and number of entries: give two numbers of at least 1, such as 64x4")]
pub struct FixedEntriesError(String);

impl FromStr for FixedEntries {
    type Err = FixedEntriesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (commands, in_flight) = text.split_once('x')?;
            let (commands, in_flight) = (commands.parse().ok()?, in_flight.parse().ok()?);
            (commands > 0 && in_flight > 0).then_some(Self {
                commands,
                in_flight,
            })
        };
        parse().ok_or_else(|| FixedEntriesError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_as_they_are_written() {
        let pair = FixedEntries {
            commands: 64,
            in_flight: 4,
        };
        assert_eq!(pair.to_string().parse(), Ok(pair));
        for text in ["", "64", "64x", "x4", "0x4", "64x0", "64x4x2", "-1x4"] {
            let error = text.parse::<FixedEntries>().unwrap_err();
            assert!(error.to_string().contains("such as 64x4"), "{error}");
        }
    }
}

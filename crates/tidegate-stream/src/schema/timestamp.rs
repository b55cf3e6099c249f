//! Points in time, which the API reads and writes in this form: RFC 3339, UTC, up to nine fractional digits.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::convert::saturating_u64;

/// A point in time, in nanoseconds since the Unix epoch, from the year 1 to the year 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i128);

impl Timestamp {
    /// The time by which the API means *never*, the zero time of Go: `0001-01-01T00:00:00Z`.
    pub const ZERO: Self = Self(-62_135_596_800_000_000_000);

    /// The latest time that RFC 3339 can express, because its years have four digits.
    const LAST: Self = Self(253_402_300_799_999_999_999);

    /// Creates the time from microseconds since the Unix epoch, the unit of times in log entries. Times
    /// beyond the year 9999 become its last moment.
    #[must_use]
    pub fn from_micros(us: u64) -> Self {
        Self(i128::from(us) * 1000).min(Self::LAST)
    }

    /// Returns the time in microseconds since the Unix epoch, rounded down; a time before the epoch becomes
    /// 0, because log entries have no earlier time.
    #[must_use]
    pub fn as_micros(self) -> u64 {
        saturating_u64(self.0.div_euclid(1000).max(0).unsigned_abs())
    }

    /// Returns the time in microseconds since the Unix epoch, rounded up, so that no action that is due at
    /// this time happens early.
    #[must_use]
    pub fn as_micros_up(self) -> u64 {
        saturating_u64((self.0 + 999).div_euclid(1000).max(0).unsigned_abs())
    }

    /// Returns this point in time as nanoseconds since the Unix epoch, which may be negative, for differences
    /// between times.
    #[must_use]
    pub fn as_nanos(self) -> i128 {
        self.0
    }

    /// Parses a time in the form of RFC 3339 with any offset from UTC; `None` if the text is no such time, or
    /// the time lies outside the years 1 to 9999. The server then refuses the request.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
        let at = Self(at.unix_timestamp_nanos());
        (Self::ZERO..=Self::LAST).contains(&at).then_some(at)
    }
}

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = OffsetDateTime::from_unix_timestamp_nanos(self.0).map_err(|_| std::fmt::Error)?;
        f.write_str(&at.format(&Rfc3339).map_err(|_| std::fmt::Error)?)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| de::Error::custom(format!("expected an RFC 3339 time, got {text:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for text in [
            "0001-01-01T00:00:00Z",
            "1970-01-01T00:00:00Z",
            "2026-08-21T10:00:00.123456789Z",
            "2026-08-21T10:00:00.1Z",
            "9999-12-31T23:59:59.999999999Z",
        ] {
            assert_eq!(Timestamp::parse(text).unwrap().to_string(), text);
        }
        let offset = Timestamp::parse("2026-08-21T12:00:00+02:00").unwrap();
        assert_eq!(offset.to_string(), "2026-08-21T10:00:00Z");
    }

    #[test]
    fn refused() {
        for text in [
            "",
            "now",
            "2026-13-01T00:00:00Z",
            "2026-08-21",
            "0000-01-01T00:00:00Z",
        ] {
            assert_eq!(Timestamp::parse(text), None, "{text}");
        }
    }

    #[test]
    fn micros() {
        let at = Timestamp::from_micros(1_000_001);
        assert_eq!(
            (at.as_micros(), at.as_micros_up(), at.as_nanos()),
            (1_000_001, 1_000_001, 1_000_001_000)
        );
        let finer = Timestamp::parse("1970-01-01T00:00:00.000001001Z").unwrap();
        assert_eq!((finer.as_micros(), finer.as_micros_up()), (1, 2));
        assert_eq!(Timestamp::ZERO.as_micros(), 0);
        assert_eq!(Timestamp::from_micros(u64::MAX).to_string().len(), 30);
    }
}

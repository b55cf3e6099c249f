//! Parses the values of flags that have a unit: numbers of bytes, and durations.

use std::time::Duration;

/// Parses a number of bytes with an optional unit: KiB, MiB or GiB.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text[digits.len()..].trim_start() {
        "" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    let number: Option<u64> = digits.parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(unit?));
    let bytes = bytes.filter(|bytes| (1..=1 << 50).contains(bytes));
    bytes.ok_or_else(|| "give bytes, or a number with KiB, MiB or GiB, up to 2^50 bytes".into())
}

pub(crate) fn record_bytes(text: &str) -> Result<u32, String> {
    let bytes = bytes(text)?;
    let bytes = u32::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes <= 512 << 20);
    bytes.ok_or_else(|| "give at most 512MiB".into())
}

/// Parses a duration with its unit: ms, s, m, h or d.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let ms = match &text[digits.len()..] {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    };
    let number: Option<u32> = digits.parse().ok();
    let duration = number.and_then(|number| Some(Duration::from_millis(u64::from(number) * ms?)));
    duration.ok_or_else(|| "give a whole number with ms, s, m, h or d".into())
}

//! Parses and writes durations in the notation of Go (`1m0s`, `1.5s`, `300ms`), which the clients and
//! statuses of NATS use.
//!
//! This module converts durations from and to nanoseconds, in which the server computes.

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The most digits of a fraction that the parser of durations uses; it ignores further digits, which are
/// smaller than a nanosecond.
const FRACTION_MAX: usize = 18;

/// Parses a duration, such as `5s`, `1h2m` or `-1.5ms`, into nanoseconds, as Go's parser does; `None` if the
/// text is invalid or the duration does not fit into an `i64`.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total = 0_i128;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.');
        let (name, next) = after.split_at(end.unwrap_or(after.len()));
        let unit = i128::from(UNITS.iter().find(|(n, _)| *n == name)?.1);
        if !whole.is_empty() {
            total += i128::from(whole.parse::<u64>().ok()?) * unit;
        }
        let fraction = &fraction[..fraction.len().min(FRACTION_MAX)];
        if !fraction.is_empty() {
            let scale = 10_i128.pow(fraction.len() as u32);
            total += i128::from(fraction.parse::<u64>().ok()?) * unit / scale;
        }
        if total > i128::from(i64::MAX) {
            return None;
        }
        rest = next;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text.split_at(end.unwrap_or(text.len()))
}

/// Writes a duration of `ns` nanoseconds as Go does: in one unit below a second, and in hours, minutes and
/// seconds above. Clients in Go parse it.
pub(crate) fn text(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let n = ns.unsigned_abs();
    let one = |n: u64, unit: u64, name: &str| {
        let width = unit.ilog10() as usize;
        let fraction = format!("{:0width$}", n % unit);
        let fraction = fraction.trim_end_matches('0');
        let dot = if fraction.is_empty() || width == 0 {
            ""
        } else {
            "."
        };
        let fraction = if width == 0 { "" } else { fraction };
        format!("{}{dot}{fraction}{name}", n / unit)
    };
    let unsigned = match n {
        0 => "0s".to_owned(),
        1..1_000 => one(n, 1, "ns"),
        1_000..1_000_000 => one(n, 1_000, "µs"),
        1_000_000..1_000_000_000 => one(n, 1_000_000, "ms"),
        _ => {
            let minutes = n / 60_000_000_000;
            let seconds = one(n % 60_000_000_000, 1_000_000_000, "s");
            match (minutes / 60, minutes % 60) {
                (0, 0) => seconds,
                (0, m) => format!("{m}m{seconds}"),
                (h, m) => format!("{h}h{m}m{seconds}"),
            }
        }
    };
    format!("{sign}{unsigned}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_go_writes_them() {
        let cases = [
            (0, "0s"),
            (7, "7ns"),
            (1_500, "1.5µs"),
            (30_000_000, "30ms"),
            (1_000_000_000, "1s"),
            (1_500_000_000, "1.5s"),
            (60_000_000_000, "1m0s"),
            (60_500_000_000, "1m0.5s"),
            (3_600_000_000_000, "1h0m0s"),
            (-90_000_000_000, "-1m30s"),
            (i64::MAX, "2562047h47m16.854775807s"),
        ];
        for (ns, expected) in cases {
            assert_eq!(text(ns), expected);
            assert_eq!(parse(expected), Some(ns), "{expected}");
        }
    }

    #[test]
    fn as_go_reads_them() {
        assert_eq!(parse(".5s"), Some(500_000_000));
        assert_eq!(parse("+1.s"), Some(1_000_000_000));
        assert_eq!(parse("1h1ns"), Some(3_600_000_000_001));
        assert_eq!(parse("0"), Some(0));
        assert_eq!(parse("0.1234567890123456789999s"), Some(123_456_789));
        for bad in [
            "",
            "-",
            "5",
            "s",
            ".s",
            "1x",
            "1s ",
            "9999999h",
            "99999999999999999999s",
            "é",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}

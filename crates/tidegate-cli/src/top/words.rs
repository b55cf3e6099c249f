//! Numbers, times and foreign names as short text, pure.

use std::time::Duration;

use crate::escape::escape;

/// Formats a name or another text of a server or its clients, so that it cannot change the terminal.
pub(crate) fn name(text: &str) -> String {
    escape(text.as_bytes())
}

/// Formats a count or a rate with at least three digits, and the thousands apart.
pub(crate) fn count(value: f64) -> String {
    match value.abs() {
        v if v >= 1e18 => format!("{value:.2e}"),
        v if v >= 1e15 => format!("{:.2}P", value / 1e15),
        v if v >= 1e12 => format!("{:.2}T", value / 1e12),
        v if v >= 1e9 => format!("{:.2}G", value / 1e9),
        v if v >= 1e6 => format!("{:.2}M", value / 1e6),
        v if v >= 99.95 || value.fract() == 0.0 => grouped(value),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.005 => format!("{value:.2}"),
        v if v > 0.0 => format!("{value:.0e}"),
        _ => "0".into(),
    }
}

/// Formats a number of things; `many` is their name in the plural, which ends in `s`.
pub(crate) fn several(value: f64, many: &str) -> String {
    let one = many.strip_suffix('s').unwrap_or(many);
    format!("{} {}", count(value), if value == 1.0 { one } else { many })
}

fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    if value < 0.0 {
        text.push('-');
    }
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats an amount of bytes.
pub(crate) fn bytes(value: f64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut scaled = value;
    let mut unit = "B";
    for next in UNITS {
        if scaled.abs() < 1024.0 {
            break;
        }
        (scaled, unit) = (scaled / 1024.0, next);
    }
    match unit {
        "B" => format!("{scaled:.0} B"),
        _ if scaled.abs() >= 1e6 => format!("{scaled:.1e} {unit}"),
        _ if scaled.abs() >= 99.95 => format!("{scaled:.0} {unit}"),
        _ => format!("{scaled:.1} {unit}"),
    }
}

/// Formats a cost in nanoseconds.
pub(crate) fn ns(value: f64) -> String {
    match value.abs() {
        v if v >= 60e9 => span(value / 1e9),
        v if v >= 1e9 => format!("{:.2} s", value / 1e9),
        v if v >= 1e6 => format!("{} ms", three(value / 1e6)),
        v if v >= 1e3 => format!("{} us", three(value / 1e3)),
        v if v >= 100.0 || value.fract() == 0.0 => format!("{value:.0} ns"),
        _ => format!("{} ns", three(value)),
    }
}

fn three(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats a time in seconds with its two largest units.
pub(crate) fn span(seconds: f64) -> String {
    if seconds >= 1e12 {
        return "more than 30,000 years".into();
    }
    let s = seconds.max(0.0) as u64;
    let (d, h, m) = (s / 86_400, s / 3600 % 24, s / 60 % 60);
    match (d, h, m, s % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} min {s} s"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, ..) if d < 1000 => format!("{d} d {h} h"),
        (d, ..) => format!("{} d", grouped(d as f64)),
    }
}

/// Formats the time since an event.
pub(crate) fn since(now: Duration, at: Duration) -> String {
    span(now.saturating_sub(at).as_secs_f64())
}

/// Formats a share in per cent.
pub(crate) fn percent(part: f64, whole: f64) -> String {
    match part / whole * 100.0 {
        share if !share.is_finite() => "-".into(),
        share if share > 0.0 && share < 0.05 => "<0.1 %".into(),
        share if share >= 9.95 || share == 0.0 => format!("{share:.0} %"),
        share => format!("{share:.1} %"),
    }
}

/// Draws the last values of a series as `width` bars, the greatest one the highest. Zeros have no bar.
pub(crate) fn spark(values: impl DoubleEndedIterator<Item = f64>, width: usize) -> String {
    const BARS: [char; 8] = [
        '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}',
        '\u{2588}',
    ];
    let mut last: Vec<f64> = values.rev().take(width).collect();
    last.reverse();
    let most = last.iter().copied().fold(0.0, f64::max);
    let bar = |value: &f64| match *value > 0.0 {
        true => BARS[((value / most * 8.0).ceil() as usize).clamp(1, 8) - 1],
        false => ' ',
    };
    let bars: String = last.iter().map(bar).collect();
    format!("{bars:>width$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        for (value, text) in [
            (0.0, "0"),
            (7.0, "7"),
            (0.004, "4e-3"),
            (0.25, "0.25"),
            (14.26, "14.3"),
            (999.6, "1,000"),
            (65_536.0, "65,536"),
            (1_234_567.0, "1.23M"),
            (9.5e9, "9.50G"),
            (1e300, "1.00e300"),
            (-1234.0, "-1,234"),
        ] {
            assert_eq!(count(value), text);
        }
    }

    #[test]
    fn one_thing_has_no_plural() {
        assert_eq!(several(1.0, "streams"), "1 stream");
        assert_eq!(several(2000.0, "streams"), "2,000 streams");
    }

    #[test]
    fn amounts_and_times() {
        assert_eq!(bytes(1023.0), "1023 B");
        assert_eq!(bytes(133.0 * 1048576.0), "133 MiB");
        assert_eq!(bytes(1536.0), "1.5 KiB");
        assert_eq!(bytes(1e300), "8.9e284 PiB");
        assert_eq!(ns(0.0), "0 ns");
        assert_eq!(ns(2.5), "2.50 ns");
        assert_eq!(ns(312_400.0), "312 us");
        assert_eq!(ns(1_210.0), "1.21 us");
        assert_eq!(ns(1.5e9), "1.50 s");
        assert_eq!(ns(120e9), "2 min 0 s");
        assert_eq!(span(59.9), "59 s");
        assert_eq!(span(3.0 * 3600.0 + 61.0), "3 h 1 min");
        assert_eq!(span(90_061.0), "1 d 1 h");
        assert_eq!(span(1e11), "1,157,407 d");
        assert_eq!(span(f64::MAX), "more than 30,000 years");
        assert_eq!(span(-5.0), "0 s");
        assert_eq!(percent(1.0, 0.0), "-");
        assert_eq!(percent(1.0, 3.0), "33 %");
        assert_eq!(percent(1.0, 300.0), "0.3 %");
        assert_eq!(percent(1.0, 30_000.0), "<0.1 %");
    }

    #[test]
    fn sparks() {
        let spark = |values: &[f64], width| spark(values.iter().copied(), width);
        assert_eq!(spark(&[], 3), "   ");
        assert_eq!(spark(&[0.0, 4.0, 8.0], 3), " \u{2584}\u{2588}");
        assert_eq!(spark(&[9.0, 0.001, 1.0], 2), "\u{2581}\u{2588}");
        assert_eq!(spark(&[0.0, 0.0], 4), "    ");
        assert_eq!(spark(&[1.0], 0), "");
    }

    #[test]
    fn names_are_harmless() {
        assert_eq!(name("a\x1b[2J\u{202e}"), "a\\x1b[2J\\u{202e}");
    }
}

//! Parses the values of flags, such as numbers of bytes and durations, and names the expected form in errors.

use std::num::NonZeroUsize;
use std::time::Duration;

/// Parses a number of bytes with an optional unit. As in the `nats` program, each unit is a power of 1024,
/// its letters may be small, and `B` and `iB` behind it change nothing.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = text[digits.len()..].trim_start().to_ascii_lowercase();
    let unit = match &*unit {
        "" | "b" => Some(1),
        "k" | "kb" | "kib" => Some(1 << 10),
        "m" | "mb" | "mib" => Some(1 << 20),
        "g" | "gb" | "gib" => Some(1 << 30),
        "t" | "tb" | "tib" => Some(1 << 40),
        _ => None,
    };
    let number: Option<u64> = digits.parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(unit?));
    let bytes = bytes.filter(|bytes| (1..=1 << 50).contains(bytes));
    bytes.ok_or_else(|| {
        "give bytes, or a whole number with K, M, G or T, such as 512K or 10GB, in powers of 1024 and up to 2^50 bytes"
            .into()
    })
}

pub(crate) fn record_bytes(text: &str) -> Result<u32, String> {
    let bytes = bytes(text)?;
    let bytes = u32::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes <= 512 << 20);
    bytes.ok_or_else(|| "give at most 512MiB".into())
}

/// Parses a latency above 0 with its unit, up to an hour: a number with us, ms or s. Returns nanoseconds.
pub(crate) fn latency_ns(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_ns = match &text[number.len()..] {
        "us" => Some(1e3),
        "ms" => Some(1e6),
        "s" => Some(1e9),
        _ => None,
    };
    let plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let number: Option<f64> = number.parse().ok().filter(|_| plain);
    let ns = number.and_then(|number| Some(number * unit_ns?));
    let ns = ns.filter(|ns| (1e3..=3.6e12).contains(ns));
    ns.ok_or_else(|| "give a time from 1us to 3600s: a number with us, ms or s, such as 5ms".into())
}

/// Parses a latency as [`latency_ns`] does.
#[cfg(feature = "lab")]
pub(crate) fn latency(text: &str) -> Result<Duration, String> {
    latency_ns(text).map(|ns| Duration::from_nanos(ns as u64))
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

/// Parses a duration above 0 with its unit, for flags for which 0 has no meaning.
pub(crate) fn some_time(text: &str) -> Result<Duration, String> {
    let time = duration(text).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| "give a whole number above 0 with ms, s, m, h or d".into())
}

/// Parses the sequence of a message in its stream, which is at least 1.
pub(crate) fn sequence(text: &str) -> Result<u64, String> {
    let seq = text.parse().ok().filter(|seq| *seq > 0);
    seq.ok_or_else(|| "give the sequence of a message: the first message of a stream has 1".into())
}

/// Parses a limit of a stream: a number of messages or consumers, or -1 for no limit.
pub(crate) fn limit(text: &str) -> Result<i64, String> {
    let limit = text.parse().ok().filter(|limit| *limit == -1 || *limit > 0);
    limit.ok_or_else(|| "give a whole number from 1 on, or -1 for no limit".into())
}

/// Parses the number of nodes on which a cluster keeps a stream.
pub(crate) fn replicas(text: &str) -> Result<u8, String> {
    let replicas = text.parse().ok().filter(|replicas| *replicas > 0);
    replicas.ok_or_else(|| "give a number of nodes from 1 on".into())
}

/// Parses the number of words that `tidegate count` shows.
pub(crate) fn top(text: &str) -> Result<NonZeroUsize, String> {
    let top = text.parse();
    top.map_err(|_| "give a whole number from 1 on".into())
}

/// Parses a port. As in nats-server, -1 lets the system choose a free port, as 0 does.
pub(crate) fn port(text: &str) -> Result<u16, String> {
    if text == "-1" {
        return Ok(0);
    }
    let port = text.parse();
    port.map_err(|_| "give a port from 0 to 65535, or -1 for any free one".into())
}

/// Parses the name of a server or a cluster, with the rule of the configuration file.
pub(crate) fn name(text: &str) -> Result<String, String> {
    match text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        true => Err("give a name without blanks and control characters".into()),
        false => Ok(text.to_owned()),
    }
}

/// Parses the name of a session of `tidegate send`. Unlike a server's name, it may contain blanks.
pub(crate) fn session(text: &str) -> Result<String, String> {
    match text.is_empty() || text.contains(char::is_control) {
        true => Err("give a name without line feeds and other control characters".into()),
        false => Ok(text.to_owned()),
    }
}

/// Parses the host of an address on which a server listens.
pub(crate) fn host(text: &str) -> Result<String, String> {
    match text.is_empty() {
        true => Err("give a host name or an IP address, such as 127.0.0.1".into()),
        false => Ok(text.to_owned()),
    }
}

/// Checks that the text is a host with a port, and returns it unchanged. An IPv6 address needs brackets.
pub(crate) fn host_and_port(text: &str) -> Result<String, String> {
    let good = text.rsplit_once(':').is_some_and(|(host, port)| {
        let is_bare = !host.contains(':') || host.starts_with('[') && host.ends_with(']');
        is_bare && !host.is_empty() && port.parse::<u16>().is_ok()
    });
    match good {
        true => Ok(text.to_owned()),
        false => {
            Err("give HOST:PORT, with a port up to 65535 and an IPv6 address in brackets".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_refused() {
        assert_eq!((limit("-1"), limit("5")), (Ok(-1), Ok(5)));
        assert!(["0", "-2", "x", ""].iter().all(|text| limit(text).is_err()));
        assert_eq!((port("-1"), port("4222")), (Ok(0), Ok(4222)));
        assert!(
            ["-2", "70000", "abc", ""]
                .iter()
                .all(|text| port(text).is_err())
        );
        assert!(sequence("0").is_err() && replicas("0").is_err() && top("0").is_err());
        assert!(some_time("0s").is_err() && some_time("1ms").is_ok());
    }

    #[test]
    fn sizes_have_the_units_of_the_nats_program() {
        let all = [
            ("1", 1),
            ("7B", 7),
            ("512k", 512 << 10),
            ("64KiB", 64 << 10),
            ("10M", 10 << 20),
            ("10mb", 10 << 20),
            ("1GB", 1 << 30),
            ("1 GiB", 1 << 30),
            ("1G", 1 << 30),
            ("2T", 2 << 40),
            ("1024T", 1 << 50),
        ];
        for (text, wanted) in all {
            assert_eq!(bytes(text), Ok(wanted), "{text}");
        }
        for text in [
            "", "0", "G", "-1", "1.5G", "1P", "1KK", "1 G B", "1025T", "1é", "1K2",
        ] {
            assert!(
                bytes(text).unwrap_err().contains("such as 512K or 10GB"),
                "{text}"
            );
        }
        assert_eq!(record_bytes("512M"), Ok(512 << 20));
        assert!(record_bytes("1G").is_err());
    }

    #[test]
    fn names_are_visible() {
        assert_eq!(name("n1"), Ok("n1".to_owned()));
        assert_eq!(session("a b"), Ok("a b".to_owned()));
        for bad in ["", "a\nb", "a\u{1b}[2Jb", "a\u{85}"] {
            assert!(name(bad).is_err() && session(bad).is_err(), "{bad:?}");
        }
        assert!(name("a b").is_err());
    }

    #[test]
    fn hosts_with_ports() {
        for good in ["h:1", "127.0.0.1:0", "[::1]:65535"] {
            assert_eq!(host_and_port(good), Ok(good.to_owned()));
        }
        for bad in ["foo", "127.0.0.1:99999", "::1:5", ":5", "h:", "h:x", ""] {
            assert!(host_and_port(bad).is_err(), "{bad}");
        }
    }
}

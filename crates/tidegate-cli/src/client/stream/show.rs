//! Formats streams as text for the people who run `tidegate stream`.

use crate::client::jetstream::{StreamConfig, StreamInfo};
use crate::report::Table;

/// Formats a list of streams as a table, one stream a line, for `tidegate stream ls`.
pub(super) fn list(streams: &[StreamInfo]) -> String {
    let mut table = Table::new([
        "name",
        "subjects",
        "storage",
        "messages",
        "bytes",
        "consumers",
        "last",
    ]);
    for StreamInfo { config, state, .. } in streams {
        table.row([
            config.name.clone(),
            config.subjects.join(" "),
            config.storage.clone(),
            state.messages.to_string(),
            bytes(state.bytes),
            state.consumer_count.to_string(),
            time(&state.last_ts),
        ]);
    }
    table.print()
}

/// Formats the configuration and the state of one stream, for `tidegate stream info`.
pub(super) fn one(info: &StreamInfo) -> String {
    let StreamInfo { config, state, .. } = info;
    let mut lines = vec![
        ("name", config.name.clone()),
        ("description", config.description.clone()),
        ("subjects", config.subjects.join(" ")),
        ("storage", storage(config)),
        ("replicas", config.num_replicas.to_string()),
        ("retention", config.retention.clone()),
        ("discard", config.discard.clone()),
        ("created", time(&info.created)),
        ("messages at most", limit(config.max_msgs)),
        ("bytes at most", limit_bytes(config.max_bytes)),
        ("age at most", age(config.max_age)),
        ("a message at most", limit_bytes(config.max_msg_size)),
        ("a subject at most", limit(config.max_msgs_per_subject)),
        ("consumers at most", limit(config.max_consumers)),
        ("duplicate window", age(config.duplicate_window)),
        ("also", switches(config)),
        ("messages", state.messages.to_string()),
        ("bytes", bytes(state.bytes)),
        (
            "first",
            format!("{}  {}", state.first_seq, time(&state.first_ts)),
        ),
        (
            "last",
            format!("{}  {}", state.last_seq, time(&state.last_ts)),
        ),
        ("subjects in use", state.num_subjects.to_string()),
        ("deleted between", state.num_deleted.to_string()),
        ("consumers", state.consumer_count.to_string()),
    ];
    lines.retain(|(_, value)| !value.is_empty());
    let mut text = String::new();
    for (name, value) in lines {
        text += &format!("{name:<18} {}\n", value.trim_end());
    }
    text
}

fn storage(config: &StreamConfig) -> String {
    match config.storage.as_str() {
        "memory" => "memory (gone when the server ends)".into(),
        other => other.into(),
    }
}

/// Returns the names of a stream's settings that are switched on, for the line that lists them.
fn switches(config: &StreamConfig) -> String {
    let on = config.rest.iter().filter(|(_, value)| **value == true);
    on.map(|(name, _)| name.as_str())
        .collect::<Vec<_>>()
        .join(" ")
}

fn limit(value: i64) -> String {
    match value {
        ..=0 => String::new(),
        value => value.to_string(),
    }
}

fn limit_bytes(value: i64) -> String {
    match u64::try_from(value) {
        Ok(value) if value > 0 => bytes(value),
        _ => String::new(),
    }
}

/// Formats a duration of `nanos` nanoseconds in the largest unit that divides it, so that the text stays
/// short.
fn age(nanos: u64) -> String {
    let units = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1, "ns"),
    ];
    let fits = units.iter().find(|(unit, _)| nanos.is_multiple_of(*unit));
    match fits {
        Some((unit, name)) if nanos > 0 => format!("{}{name}", nanos / unit),
        _ => String::new(),
    }
}

/// Shortens a time of the server to whole seconds, for people. Returns an empty string for the zero time,
/// because the server means no time by it.
fn time(text: &str) -> String {
    if text.starts_with("0001-") {
        return String::new();
    }
    match text.split_once('.') {
        Some((seconds, _)) => format!("{}Z", seconds.replace('T', " ")),
        None => text.replace('T', " "),
    }
}

fn bytes(value: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| value >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", value as f64 / *unit as f64),
        None => format!("{value} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn for_people() {
        assert_eq!(
            (bytes(0), bytes(1023), bytes(1536)),
            ("0 B".into(), "1023 B".into(), "1.5 KiB".into())
        );
        assert_eq!(age(120_000_000_000), "2m");
        assert_eq!(age(90_000_000_000), "90s");
        assert_eq!(age(0), "");
        assert_eq!(
            time("2026-08-21T10:00:00.123456789Z"),
            "2026-08-21 10:00:00Z"
        );
        assert_eq!(time("2026-08-21T10:00:00Z"), "2026-08-21 10:00:00Z");
        assert_eq!(time("0001-01-01T00:00:00Z"), "");
    }

    #[test]
    fn a_stream_with_unknown_settings() {
        let info: StreamInfo = serde_json::from_value(serde_json::json!({
            "config": {"name": "S", "subjects": ["a.*", "b"], "storage": "memory", "max_msgs": 5, "allow_direct": true, "later": {"x": 1}},
            "created": "2026-08-21T10:00:00Z",
            "state": {"messages": 2, "bytes": 2048, "first_seq": 1, "first_ts": "2026-08-21T10:00:00Z", "last_seq": 2, "last_ts": "2026-08-21T10:00:01Z", "consumer_count": 0},
        }))
        .unwrap();
        let text = one(&info);
        for part in [
            "name               S\n",
            "subjects           a.* b\n",
            "memory (gone when the server ends)",
            "messages at most   5\n",
            "also               allow_direct\n",
            "last               2  2026-08-21 10:00:01Z\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("bytes at most"), "{text}");
        assert!(list(&[info]).contains("2.0 KiB"));
    }
}

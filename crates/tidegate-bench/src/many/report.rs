//! Formats the results of the bench `many` as tables for the user, at most 120 columns wide. Pure.

use tidegate_cli::report::{Column, OURS, Row, Table, count, number};

use super::cell::Cell;

/// The greatest number of columns of a table and of a note, so that they fit a terminal.
const COLUMNS: usize = 120;

/// Formats the rows of one cell as tables: first the time and the memory that the server took to make the
/// things, then the other times, then the notes.
pub(super) fn table(cell: &Cell, rows: &[Row]) -> String {
    const MADE: [Column; 8] = [
        ("made", |row| row.extra("made").map(count)),
        ("made/s", |row| row.ops_per_s.map(count)),
        ("first 10%", |row| row.extra("first_tenth_per_s").map(count)),
        ("last 10%", |row| row.extra("last_tenth_per_s").map(count)),
        ("CPU us each", |row| row.extra("server_cpu_us").map(number)),
        ("bytes each", |row| row.extra("bytes_each").map(number)),
        ("RSS MiB", |row| row.rss_mb.map(number)),
        ("idle CPU %", |row| {
            row.extra("idle_cpu_percent").map(number)
        }),
    ];
    const ACKS: [Column; 6] = [
        ("ack us p50", |row| row.p50_us.map(number)),
        ("p99", |row| row.p99_us.map(number)),
        ("sync us", |row| row.extra("sync_us").map(number)),
        ("alone: p50", |row| row.extra("alone_p50_us").map(number)),
        ("p99", |row| row.extra("alone_p99_us").map(number)),
        ("sync us", |row| row.extra("alone_sync_us").map(number)),
    ];
    const STARTS: [Column; 5] = [
        ("killed: start ms", |row| {
            row.extra("start_after_kill_ms").map(number)
        }),
        ("RSS MiB", |row| row.extra("rss_after_kill_mb").map(number)),
        ("stop ms", |row| row.extra("stop_ms").map(number)),
        ("stopped: start ms", |row| {
            row.extra("start_after_stop_ms").map(number)
        }),
        ("RSS MiB", |row| row.extra("rss_after_stop_mb").map(number)),
    ];
    const ASKED: [Column; 4] = [
        ("consumer ms", |row| row.extra("consumer_ms").map(number)),
        ("filtered consumer ms", |row| {
            row.extra("filtered_consumer_ms").map(number)
        }),
        ("last consumer ms", |row| {
            row.extra("last_consumer_ms").map(number)
        }),
        ("info ms", |row| row.extra("info_ms").map(number)),
    ];
    let mut text = format!("{}: {}\n", cell.name, cell.text());
    for columns in [&MADE[..], &ACKS, &STARTS, &ASKED] {
        let of = |row: &Row| -> Vec<String> {
            let cells = columns.iter().map(|(_, of)| of(row));
            cells.map(Option::unwrap_or_default).collect()
        };
        if rows.iter().all(|row| of(row).iter().all(String::is_empty)) {
            continue;
        }
        let heads = columns.iter().map(|(head, _)| *head);
        let mut table = Table::new(std::iter::once("").chain(heads));
        for row in rows {
            table.row(std::iter::once(label(row)).chain(of(row)));
        }
        text += &table.print();
    }
    for row in rows {
        if let Some(note) = row.note() {
            text += &wrapped(&format!("{}: {note}", label(row)));
        }
    }
    text
}

fn label(row: &Row) -> String {
    match &row.version {
        Some(version) if row.system != OURS => format!("{} ({version})", row.system),
        _ => row.system.clone(),
    }
}

/// Breaks the text of a note into lines between words, and indents all lines but the first.
fn wrapped(text: &str) -> String {
    let (mut all, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            all += &line;
            all.push('\n');
            line = "  ".into();
        } else if !line.is_empty() {
            line.push(' ');
        }
        // A word longer than a line, such as an answer in JSON, is cut off at the end of its line.
        line.extend(word.chars().take(COLUMNS - 2));
    }
    all + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::cell::{More, cells};
    use super::*;
    use serde_json::json;

    fn row(system: &str, version: &str) -> Row {
        let mut row = Row {
            system: system.into(),
            version: Some(version.into()),
            ops_per_s: Some(123_456.0),
            p50_us: Some(123_456.0),
            p99_us: Some(123_456.0),
            rss_mb: Some(12_345.6),
            ..Row::default()
        };
        for key in [
            "made",
            "first_tenth_per_s",
            "last_tenth_per_s",
            "server_cpu_us",
            "bytes_each",
            "idle_cpu_percent",
            "alone_p50_us",
            "alone_p99_us",
            "sync_us",
            "alone_sync_us",
            "rss_after_kill_mb",
            "rss_after_stop_mb",
            "start_after_kill_ms",
            "start_after_stop_ms",
            "stop_ms",
        ] {
            row.extra.insert(key.into(), json!(123_456.0));
        }
        row
    }

    #[test]
    fn tables_and_notes_are_narrow() {
        let mut nats = row("nats-server default", "2.15.2");
        let note = "made 5 of 9 within 120 s; ".repeat(20) + &"{".repeat(300);
        nats.extra.insert("note".into(), json!(note));
        let text = table(&cells(1.0, More::default())[2], &[row(OURS, "1"), nats]);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(
            widest.is_some_and(|widest| widest <= COLUMNS),
            "{widest:?}\n{text}"
        );
        assert!(text.starts_with("streams-100k: 100000 streams"), "{text}");
        assert!(
            text.contains("nats-server default (2.15.2): made 5 of 9"),
            "{text}"
        );
        // The table does not name the version of our server, because the document names it.
        assert!(text.contains("\ntidegate  "), "{text}");
        assert!(!text.contains("info ms"), "{text}");
    }

    #[test]
    fn a_server_without_figures_has_only_its_note() {
        let mut row = Row {
            system: "nats-server default".into(),
            ..Row::default()
        };
        row.extra.insert("note".into(), json!("no nats-server"));
        let text = table(&cells(1.0, More::default())[0], &[row]);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            text.ends_with("nats-server default: no nats-server\n"),
            "{text}"
        );
    }
}

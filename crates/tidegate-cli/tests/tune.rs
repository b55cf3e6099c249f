//! Tests of `tidegate tune` as a user runs it, on traces that the tests write.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn tune(args: &[&str], trace: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("tune").args(args).arg("--trace").arg(trace);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns a trace of two boundaries: `rows` with batches of 1 to 8 items, and `entries` without arrivals.
fn trace() -> String {
    let decision = "> 64 1000000 1 now drained";
    let mut text = String::from("tidegate-decisions 1\n");
    for name in ["rows", "entries"] {
        let _ = writeln!(text, "{name} begins 1 64 1000000 1000000000 1");
    }
    for id in 0..400u64 {
        let (at, items) = (id * 10_000, 1 + id % 8);
        let (cost, end) = (1000 + 100 * items, at + 1000 + 100 * items);
        let _ = write!(
            text,
            "rows {at} arrived {items} 0 {decision}\n\
             rows {at} ready {items} 0 {at} {decision}\n\
             rows {at} started {id} {items} 0 0 0 drained {decision}\n\
             entries {at} started {id} {items} 0 0 0 drained {decision}\n\
             rows {end} done {id} {cost} 1 {decision}\n\
             entries {end} done {id} {cost} 1 {decision}\n"
        );
    }
    text
}

#[test]
fn a_trace_gives_a_table_for_each_boundary() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace.log");
    // The last line is cut off, as after a crash.
    std::fs::write(&file, format!("{}rows 99", trace())).unwrap();
    let output = tune(&[], &file);
    let said = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{said}{}",
        text(&output.stderr)
    );
    for part in [
        "2403 lines, 2 boundaries",
        "the last line is cut off",
        "rows: 400 batches of 1800 items",
        "arrivals are taken as given: they do not depend on the answers",
        "costs about 1.00 us + n * 0.1000 us",
        "\nrecorded",
        "\nknee:throughput",
        "\nexponential",
        "\nkeep the default: nothing here is better by more than 5 %",
        "entries: no prediction: this boundary reports neither arrivals nor a backlog",
    ] {
        assert!(said.contains(part), "no `{part}` in {said}");
    }
    let output = tune(
        &[
            "--json",
            "--boundary",
            "rows",
            "--objective",
            "p99=5us",
            "--controller",
            "greedy",
        ],
        &file,
    );
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["last_line_cut"], true);
    let rows = &document["boundaries"][0];
    let names: Vec<_> = rows["predictions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| &p["controller"])
        .collect();
    assert_eq!(names, ["knee", "knee:p99=5us", "greedy"]);
    let (real, same) = (
        &rows["recorded"]["p99_us"],
        &rows["predictions"][2]["p99_us"],
    );
    let ratio = same.as_f64().unwrap() / real.as_f64().unwrap();
    assert!((ratio - 1.0).abs() < 0.1, "{rows}");
    // No boundary of the trace gives a prediction.
    let output = tune(&["--boundary", "entries"], &file);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_file_that_is_no_trace_gives_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace.log");
    let whole = trace();
    let broken = whole.replace("rows 20000 ready", "rows 20000 \u{1b}[31m");
    for (content, args, code, says) in [
        ("", &[][..], 1, "trace.log: the trace is empty"),
        ("\u{7f}ELF", &[], 1, "trace.log: not a trace"),
        ("tidegate-decisions 7\n", &[], 1, "a trace of version 7"),
        ("tidegate-decisions 1\n", &[], 1, "a header and no entry"),
        (&broken, &[], 1, "trace.log: line 17: not an entry"),
        (
            &whole,
            &["--boundary", "sync"],
            2,
            "no boundary `sync`: it has rows, entries",
        ),
        (&whole, &["--objective", "fast"], 2, "give one of lean"),
        (&whole, &["--controller", "fixed:0"], 2, "fixed:1000"),
    ] {
        std::fs::write(&file, content).unwrap();
        let output = tune(args, &file);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(says), "no `{says}` in {said}");
        assert!(
            output.stdout.is_empty() && !said.contains('\u{1b}'),
            "{said}"
        );
    }
    let output = tune(&[], &directory.path().join("missing"));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("missing"), "{output:?}");
}

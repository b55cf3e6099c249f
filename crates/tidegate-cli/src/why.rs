//! `tidegate why`: explains why an acknowledged message took its time, from the answer of a server's monitor.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use serde_json::Value;

use crate::monitor::{self, Monitor, Url, encoded};
use crate::{face, output, values};

const EXIT_CODES: &str = "Exit codes: 0 explained, 1 failed, 2 wrong arguments, 3 forgotten, 4 durable before the server's start, 5 on other nodes only, 6 a stream in memory, 7 no such stream, 8 the message is removed, 9 no such message yet, 10 the message was copied or fetched since, 11 the server has no streams";

/// The arguments of `tidegate why`.
#[derive(Args, Debug)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct WhyArgs {
    /// Explain a message of this stream.
    #[arg(value_name = "STREAM")]
    stream: String,
    /// Explain the message with this sequence, which its acknowledgement names.
    #[arg(value_name = "SEQ", value_parser = values::sequence)]
    seq: u64,
    /// Ask the monitor of the server at this address: the node that leads the stream knows most.
    #[arg(
        value_name = "URL",
        default_value = monitor::DEFAULT,
        env = "TIDEGATE_MONITOR"
    )]
    url: String,
    /// Print the monitor's answer as JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Asks the monitor and prints its answer. The exit code tells why there is no explanation.
pub(crate) fn run(args: &WhyArgs) -> anyhow::Result<ExitCode> {
    let path = format!("/why?stream={}&seq={}", encoded(&args.stream), args.seq);
    let (_, answer) = Monitor::new(Url::parse(&args.url)?)?.get(&path)?;
    let code = code(&answer).with_context(|| {
        format!(
            "{}: the answer names no outcome: is this the monitor of a tidegate server?",
            args.url
        )
    })?;
    if args.json {
        output::print(format_args!("{answer:#}\n"))?;
    } else if code == 0 {
        output::print(text(&answer).context("the monitor's answer lacks a field")?)?;
    } else {
        let text = answer["text"].as_str().unwrap_or_default();
        let (stream, seq) = (args.stream.escape_debug(), args.seq);
        face::complain(format_args!("tidegate: message {seq} of {stream}: {text}"));
    }
    Ok(ExitCode::from(code))
}

/// Returns the exit code for the outcome in the monitor's answer; `None` if the answer has none.
fn code(answer: &Value) -> Option<u8> {
    Some(match answer["outcome"].as_str()? {
        "found" => 0,
        "forgotten" => 3,
        "before_start" => 4,
        "elsewhere" => 5,
        "memory" => 6,
        "unknown_stream" => 7,
        "removed" => 8,
        "not_yet" => 9,
        "moved" | "fetched" => 10,
        "no_streams" => 11,
        _ => 1,
    })
}

/// Writes the explanation for people; `None` if the answer lacks a field.
fn text(answer: &Value) -> Option<String> {
    let (sync, entry) = (&answer["sync"], &answer["entry"]);
    let took = sync["took_ns"].as_f64()?;
    let mut text = format!(
        "message {} of {}: in an entry of {}, closed {}\n",
        answer["seq"].as_u64()?,
        answer["stream"].as_str()?.escape_debug(),
        bytes(&entry["bytes"])?,
        entry["time"].as_str().unwrap_or("at an unknown time"),
    );
    let mut line = |head: &str, line: String| {
        // The write goes to memory and does not fail.
        let _ = writeln!(text, "  {head:8}{line}");
    };
    let wait = &answer["wait"];
    match (wait["behind_sync_ns"].as_f64(), wait["held_ns"].as_f64()) {
        (Some(behind), Some(held)) => line(
            "durable",
            format!(
                "{} after its entry closed: {} behind the sync before, {} until the next one, {} in it",
                time(behind + held + took),
                time(behind),
                time(held),
                time(took),
            ),
        ),
        _ => line(
            "durable",
            "the waits are not known: a clock was set between the entry and its sync".into(),
        ),
    }
    let reason = sync["reason"].as_str()?;
    let callers = match sync["callers"].as_u64()? {
        1 => "1 caller".to_owned(),
        n => format!("{n} callers"),
    };
    line(
        "sync",
        format!(
            "{} for {} and {}, started {}",
            time(took),
            callers,
            bytes(&sync["bytes"])?,
            sync["started"].as_str()?,
        ),
    );
    line("cut", format!("{reason}: {}", meaning(reason)));
    let fit = &answer["fit"];
    match (
        fit["sync_ns"].as_f64(),
        fit["byte_ns"].as_f64(),
        fit["expected_ns"].as_f64(),
    ) {
        (Some(a), Some(b), Some(expected)) => line(
            "fit",
            format!(
                "a sync takes {} and {} a KiB, so {} expected and {} measured",
                time(a),
                time(b * 1024.0),
                time(expected),
                time(took),
            ),
        ),
        _ => line(
            "fit",
            "none: the controller had not measured enough syncs yet".into(),
        ),
    }
    let greedy = &answer["greedy"];
    if let (Some(least), Some(most)) = (
        greedy["done_after_ns_min"].as_f64(),
        greedy["done_after_ns_max"].as_f64(),
    ) {
        let range = match time(least) == time(most) {
            true => time(least),
            false => format!("{} to {}", time(least), time(most)),
        };
        line(
            "greedy",
            format!(
                "a sync as soon as the disk was free: durable {range} after the entry closed, by the same fit"
            ),
        );
    }
    if answer["leads"].as_bool() == Some(false) {
        line(
            "node",
            "this node follows, and another leads the stream: its own sync may have come first"
                .into(),
        );
    }
    Some(text)
}

/// Returns the meaning of a reason for people.
fn meaning(reason: &str) -> &'static str {
    match reason {
        "drained" => "the sync took all that waited",
        "anticipate" => "the log waited for callers that were about to return",
        "linger" | "age" => "the wait for further records ended",
        "probe" => "the controller tried another size, to learn its cost",
        "limit" | "efficiency" => "more waited, but a larger sync would hardly be cheaper",
        "memory" => "more waited than one sync may cover",
        "drain_chunk" => "the controller cut a backlog into parts",
        "backlog" => "the backlog grew, so the controller allowed a larger sync",
        "convexity" => "larger syncs were measured to be worse",
        _ => "docs/controllers.md has the reasons",
    }
}

fn bytes(value: &Value) -> Option<String> {
    let bytes = value.as_f64()?;
    Some(match bytes {
        b if b >= 1048576.0 => format!("{:.2} MiB", b / 1048576.0),
        b if b >= 10_240.0 => format!("{:.1} KiB", b / 1024.0),
        b => format!("{b:.0} B"),
    })
}

/// Formats nanoseconds with three digits.
pub(crate) fn time(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        n if n >= 1e9 => (ns / 1e9, "s"),
        n if n >= 1e6 => (ns / 1e6, "ms"),
        n if n >= 1e3 => (ns / 1e3, "us"),
        _ => (ns, "ns"),
    };
    match value.abs() {
        v if v >= 100.0 || v == 0.0 => format!("{value:.0} {unit}"),
        v if v >= 10.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.2} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found() -> Value {
        json!({
            "outcome": "found", "stream": "A\u{1b}", "seq": 7, "leads": false, "message_bytes": 100,
            "entry": {"time": "2026-01-02T03:04:05Z", "bytes": 20480, "position": 64},
            "sync": {"started": "2026-01-02T03:04:06Z", "took_ns": 1_500_000, "callers": 3, "bytes": 4096,
                     "reason": "drained"},
            "wait": {"behind_sync_ns": 200_000, "held_ns": 0},
            "fit": {"sync_ns": 1e6, "byte_ns": 0.5, "expected_ns": 1_002_048.0},
            "greedy": {"done_after_ns_min": 1.2e6, "done_after_ns_max": 1.3e6},
        })
    }

    #[test]
    fn an_explanation_names_each_part() {
        let said = text(&found()).unwrap();
        for part in [
            "message 7 of A\\u{1b}: in an entry of 20.0 KiB",
            "1.70 ms after its entry closed: 200 us behind the sync before, 0 ns until",
            "1.50 ms for 3 callers and 4096 B",
            "took all that waited",
            "1.00 ms and 512 ns a KiB, so 1.00 ms expected and 1.50 ms measured",
            "durable 1.20 ms to 1.30 ms after",
            "another leads",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn unknown_parts_are_said_or_left_out() {
        let mut answer = found();
        for key in ["wait", "fit", "greedy"] {
            answer[key] = Value::Null;
        }
        let said = text(&answer).unwrap();
        assert!(
            said.contains("not known") && said.contains("none:"),
            "{said}"
        );
        assert!(!said.contains("greedy"), "{said}");
        answer["sync"] = json!("cut off");
        assert_eq!(text(&answer), None);
        assert_eq!(code(&json!({"server_id": "x"})), None);
        assert_eq!(code(&json!({"outcome": "later version"})), Some(1));
    }
}

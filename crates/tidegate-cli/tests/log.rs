//! Tests of `tidegate log` on a data directory with a stream: without damage, with damage, and repaired.

// Clippy knows tests by their attribute; the helpers here are tests too.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use serde_json::Value;
use tidegate_raft::store::{Due, GroupSlot, Opening, Options};
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::stream::{self, AccountLimits, Encoder, Kind, Streams};

const MESSAGES: u64 = 50;

fn log(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("log").args(args).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn json(args: &[&str]) -> (Value, Option<i32>) {
    let output = log(args);
    let value = serde_json::from_slice(&output.stdout);
    (
        value.unwrap_or_else(|e| panic!("{e}: {}", text(&output))),
        output.status.code(),
    )
}

/// Creates a data directory with a stream. Each message has one KiB and an entry of its own. Writes a
/// checkpoint if `checkpoint` is true.
fn make(dir: &Path, checkpoint: bool) {
    let options = Options {
        checkpoint_bytes_min: 1 << 40,
        ..Options::default()
    };
    let opening = Opening::begin(dir, options, Arc::new(|| ())).unwrap();
    let mut store = opening.replay(|_, _, _| ()).unwrap();
    let mut streams = Streams::new(AccountLimits {
        streams: u64::MAX,
        file_bytes: u64::MAX,
        memory_bytes: u64::MAX,
        replicated: false,
    });
    let config = br#"{"name":"orders","subjects":["orders.>"],"retention":"limits","max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_age":0,"max_msgs_per_subject":-1,"max_msg_size":-1,"discard":"old","storage":"file","num_replicas":1,"duplicate_window":0}"#;
    for seq in 0..=MESSAGES {
        let mut entry = Vec::new();
        let payload = [seq as u8; 1024];
        let command = match seq {
            0 => stream::Command::new(Kind::CreateStream, StreamNumber::NONE, b"", config),
            _ => stream::Command::new(Kind::Publish, StreamNumber::FIRST, b"orders.new", &payload),
        };
        Encoder::begin(&mut entry, 1_000_000 + seq)
            .command(&command)
            .unwrap();
        let index = store
            .propose(GroupSlot::DIRECTORY, entry.into(), 1)
            .unwrap()
            .index;
        loop {
            store.poll().unwrap();
            let Some((_, Due::Entry(entry))) = store.poll_due() else {
                std::thread::yield_now();
                continue;
            };
            let (mut outcomes, mut effects) = (Vec::new(), Vec::new());
            streams
                .apply(entry.lsn.get(), &entry.data, &mut outcomes, &mut effects)
                .unwrap();
            assert_eq!(entry.index, index);
            break;
        }
    }
    assert_eq!(streams.by_name("orders"), Some(StreamNumber::new(1)));
    if checkpoint {
        store.begin_checkpoint(GroupSlot::DIRECTORY);
        store.checkpoint(GroupSlot::DIRECTORY, Box::new(streams.snapshot().chunks()));
    }
    store.close().unwrap();
}

/// Returns the path of the log's first segment.
fn segment(dir: &Path) -> PathBuf {
    let log = dir.join("tidegate/log");
    let names = fs::read_dir(log).unwrap().map(|f| f.unwrap().path());
    let segments = names.filter(|p| p.extension().is_some_and(|e| e == "seg"));
    segments.min().unwrap()
}

/// Changes one byte in the payload of message 20, in the log's first segment.
fn damage(dir: &Path) {
    let path = segment(dir);
    let bytes = fs::read(&path).unwrap();
    let at = bytes.windows(900).position(|w| w.iter().all(|b| *b == 20));
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0xff], at.unwrap() as u64).unwrap();
}

#[test]
fn a_sound_log_is_inspected_and_verified_and_needs_no_repair() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), true);
    let data = dir.path().to_str().unwrap();
    for verb in ["inspect", "verify"] {
        let (found, code) = json(&[verb, data, "--json"]);
        assert_eq!(
            (code, &found["sound"]),
            (Some(0), &Value::Bool(true)),
            "{found}"
        );
        let group = &found["segments"][0]["groups"][0];
        // The two further entries are those of the election and of the stream's creation.
        assert_eq!(group["last_index"], MESSAGES + 2, "{found}");
        assert_eq!(found["checkpoints"][0]["index"], MESSAGES + 2);
        let output = log(&[verb, data]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        assert!(text(&output).contains("end: clean"), "{}", text(&output));
    }
    let aside = tempfile::tempdir().unwrap();
    let output = log(&[
        "repair",
        data,
        "--quarantine",
        aside.path().to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        text(&output).contains("nothing was changed"),
        "{}",
        text(&output)
    );
}

#[test]
fn damage_is_told_and_a_repair_lists_what_is_gone_of_which_stream() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), true);
    damage(dir.path());
    let data = dir.path().to_str().unwrap();
    let (found, code) = json(&["verify", data, "--json"]);
    assert_eq!((code, &found["sound"]), (Some(1), &Value::Bool(false)));
    assert!(
        found["damage"]["segments"][0]["lost"][0]["from"].is_u64(),
        "{found}"
    );
    let output = log(&["verify", data]);
    assert!(
        text(&output).contains("tidegate log repair"),
        "{}",
        text(&output)
    );
    // A start of the server must also refuse the log, with an error that says that the log is damaged.
    let refused = Opening::begin(dir.path(), Options::default(), Arc::new(|| ()));
    assert!(refused.err().unwrap().to_string().contains("damaged"));

    let aside = tempfile::tempdir().unwrap();
    let before = fs::read(segment(dir.path())).unwrap();
    let repair = [
        "repair",
        data,
        "--quarantine",
        aside.path().to_str().unwrap(),
    ];
    let (mended, code) = json(&[&repair[..], &["--json"]].concat());
    assert_eq!(code, Some(1), "something is gone: {mended}");
    let gone = &mended["missing"]["streams"][0];
    assert_eq!(gone["stream"], "orders");
    assert_eq!(
        (&gone["messages"], &gone["seqs"][0][0]),
        (&Value::from(1), &Value::from(20))
    );
    let name = segment(dir.path());
    let kept = fs::read(aside.path().join(name.file_name().unwrap())).unwrap();
    assert!(kept == before, "the quarantine has the file as it was");
    // The repaired log must be without damage, and the server must start on it.
    let (found, code) = json(&["verify", data, "--json"]);
    assert_eq!(code, Some(0), "{found}");
    let output = log(&repair);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

#[test]
fn entries_in_no_checkpoint_are_named() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), false);
    damage(dir.path());
    let data = dir.path().to_str().unwrap();
    let aside = tempfile::tempdir().unwrap();
    let output = log(&[
        "repair",
        data,
        "--quarantine",
        aside.path().to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output);
    assert!(told.contains("entries 22 to 22 are gone"), "{told}");
}

#[test]
fn impossible_requests_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    for verb in ["inspect", "verify"] {
        let output = log(&[verb, data]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output).contains("holds no log"), "{}", text(&output));
    }
    make(dir.path(), false);
    let inside = dir.path().join("tidegate/aside");
    let output = log(&["repair", data, "--quarantine", inside.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let opening = Opening::begin(dir.path(), Options::default(), Arc::new(|| ())).unwrap();
    let output = log(&["verify", data]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("in use"), "{}", text(&output));
    drop(opening);
}

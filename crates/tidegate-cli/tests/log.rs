//! Tests of `tidegate log` on the data directory of a stream: undamaged, damaged, and repaired.

// Clippy knows tests by their attribute, and does not know that the helpers here belong to tests.
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
    make_with(dir, checkpoint, Options::default());
}

fn make_with(dir: &Path, checkpoint: bool, options: Options) {
    let options = Options {
        checkpoint_bytes_min: 1 << 40,
        ..options
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
    assert_eq!(code, Some(3), "something is gone: {mended}");
    let gone = &mended["missing"]["streams"][0];
    assert_eq!(gone["stream"], "orders");
    assert_eq!(
        (&gone["messages"], &gone["seqs"][0][0]),
        (&Value::from(1), &Value::from(20))
    );
    let name = segment(dir.path());
    let kept = fs::read(aside.path().join(name.file_name().unwrap())).unwrap();
    assert!(kept == before, "the quarantine has the file as it was");
    // The repaired log must be undamaged, and the server must start with it.
    let (found, code) = json(&["verify", data, "--json"]);
    assert_eq!(code, Some(0), "{found}");
    let output = log(&repair);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

/// Creates a damaged data directory with segments of 1 MiB, so that a test can copy and repair it often.
fn damaged(dir: &Path) {
    let options = Options {
        segment_bytes: 1 << 20,
        ..Options::default()
    };
    make_with(dir, true, options);
    damage(dir);
}

/// A repair that Ctrl-C has interrupted: the directory, the quarantine, and the repair's outcome.
struct Interrupted {
    dir: tempfile::TempDir,
    aside: tempfile::TempDir,
    code: Option<i32>,
    errors: String,
    /// The number of times that the repair got Ctrl-C.
    signals: usize,
}

impl Interrupted {
    /// Repairs a copy of the directory `from` under strace, which sends Ctrl-C at the calls `call` that
    /// `when` names (see strace, `inject`). With `path`, only calls count that use this file.
    fn at(from: &Path, (call, when): (&str, &str), path: Option<&str>) -> Self {
        let (dir, aside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let copied = Command::new("cp")
            .args(["-a", "--sparse=always"])
            .args([from.join("tidegate"), dir.path().join("tidegate")])
            .status();
        assert!(copied.unwrap().success());
        let trace = aside.path().join("trace");
        let mut command = Command::new("strace");
        command.args(["-f", "-o", trace.to_str().unwrap()]);
        command.args(["-e", &format!("trace={call}")]);
        command.args(["-e", &format!("inject={call}:signal=INT:when={when}")]);
        if let Some(path) = path {
            command.args([Path::new("-P"), &dir.path().join(path)]);
        }
        let output = command
            .args([env!("CARGO_BIN_EXE_tidegate"), "log", "repair"])
            .args([dir.path(), Path::new("--quarantine"), aside.path()])
            .output()
            .unwrap();
        let trace = fs::read_to_string(trace).unwrap();
        Self {
            dir,
            aside,
            code: output.status.code(),
            errors: String::from_utf8(output.stderr).unwrap(),
            signals: trace.matches("--- SIGINT").count(),
        }
    }

    /// Runs a further command of `tidegate log`. Returns its exit code and its text.
    fn then(&self, verb: &str) -> (Option<i32>, String) {
        let data = self.dir.path().to_str().unwrap();
        let output = match verb {
            "repair" => log(&[
                verb,
                data,
                "--quarantine",
                self.aside.path().to_str().unwrap(),
            ]),
            _ => log(&[verb, data]),
        };
        (output.status.code(), text(&output))
    }
}

fn strace_works() -> bool {
    let run = Command::new("strace").args(["-f", "true"]).output();
    let works = run.is_ok_and(|run| run.status.success());
    if !works {
        tidegate_testing::missing("strace (make deps-system), and leave to trace");
    }
    works
}

/// The calls by which a repair changes files, each of which the tests interrupt.
const CHANGES: [&str; 4] = ["pwritev", "fdatasync", "fsync", "rename"];

/// Returns the names and bytes of all files of a data directory.
fn files(dir: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let all = ["tidegate", "tidegate/log"].map(|d| fs::read_dir(dir.join(d)).unwrap());
    let paths = all.into_iter().flatten().map(|f| f.unwrap().path());
    let files = paths.filter(|p| p.is_file());
    let mut files: Vec<_> = files
        .map(|p| (p.file_name().unwrap().to_owned(), fs::read(p).unwrap()))
        .collect();
    files.sort();
    files
}

/// The line with which a repair ends at Ctrl-C before its first change.
const UNCHANGED: &str = "tidegate: no file is changed: interrupted\n";

#[test]
fn ctrl_c_before_the_first_change_leaves_every_file_as_it_was() {
    if !strace_works() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    damaged(dir.path());
    let name = segment(dir.path());
    let path = name.strip_prefix(dir.path()).unwrap();
    let first_read = ("pread64", "1");
    let ended = Interrupted::at(dir.path(), first_read, path.to_str());
    assert_eq!((ended.code, ended.signals), (Some(130), 1));
    // One line says what became of the directory.
    assert_eq!(ended.errors, UNCHANGED);
    assert!(files(dir.path()) == files(ended.dir.path()));
    let (code, said) = ended.then("repair");
    assert_eq!(code, Some(3), "{said}");
}

#[test]
fn ctrl_c_in_the_middle_of_the_changes_leaves_a_repaired_directory() {
    if !strace_works() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    damaged(dir.path());
    let (mut interrupted, mut told) = (0, 0);
    for call in CHANGES {
        for n in 1.. {
            let ended = Interrupted::at(dir.path(), (call, &n.to_string()), None);
            if ended.errors == UNCHANGED {
                // The repair syncs the newest segment before it reads it, which changes nothing.
                assert_eq!(ended.code, Some(130), "{call} {n}");
                assert!(files(dir.path()) == files(ended.dir.path()), "{call} {n}");
                continue;
            }
            if ended.signals > 1 {
                // strace counts the calls of each thread, so the repair got a second signal.
                continue;
            }
            assert_eq!(ended.code, Some(3), "{call} {n}: {}", ended.errors);
            let (code, said) = ended.then("verify");
            assert_eq!(code, Some(0), "{call} {n}: {said}");
            assert_eq!(refused(ended.dir.path()), None, "{call} {n}");
            if ended.signals == 0 {
                break;
            }
            interrupted += 1;
            match ended.errors.lines().collect::<Vec<_>>()[..] {
                // No read came behind the signal: the report says all that there is to say.
                [] => {}
                [line] => {
                    assert!(line.contains("it goes on to its end"), "{line}");
                    told += 1;
                }
                _ => panic!("{call} {n}: {}", ended.errors),
            }
        }
    }
    assert!(interrupted > 4 && told > 2, "{interrupted} {told}");
}

#[test]
fn a_second_ctrl_c_ends_the_repair_and_the_next_repair_ends_the_work() {
    if !strace_works() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    damaged(dir.path());
    let mut ended_early = 0;
    for call in CHANGES {
        for n in 1.. {
            // Every call from the one with the number n on sends Ctrl-C.
            let ended = Interrupted::at(dir.path(), (call, &format!("{n}+")), None);
            match ended.signals {
                0 => break,
                1 if ended.errors != UNCHANGED => {
                    assert_eq!(ended.code, Some(3), "{call} {n}: {}", ended.errors);
                }
                _ => {
                    assert_eq!(ended.code, Some(130), "{call} {n}: {}", ended.errors);
                    ended_early += 1;
                }
            }
            let (code, said) = ended.then("verify");
            assert!([Some(0), Some(1)].contains(&code), "{call} {n}: {said}");
            assert_eq!(
                code == Some(1),
                said.contains("tidegate log repair"),
                "{said}"
            );
            let (code, said) = ended.then("repair");
            assert!([Some(0), Some(3)].contains(&code), "{call} {n}: {said}");
            assert_eq!(refused(ended.dir.path()), None, "{call} {n}");
        }
    }
    assert!(ended_early > 2, "{ended_early}");
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
    assert_eq!(output.status.code(), Some(3));
    let told = text(&output);
    assert!(told.contains("entries 22 to 22 are gone"), "{told}");
}

#[test]
fn a_lost_segment_is_no_good_news_and_its_list_survives_a_full_output() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), true);
    fs::remove_file(segment(dir.path())).unwrap();
    let aside = tempfile::tempdir().unwrap();
    let mut repair = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    repair.args(["log", "repair"]).arg(dir.path());
    repair.arg("--quarantine").arg(aside.path());
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = repair.stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(text(&output).contains("lost.txt"), "{}", text(&output));
    let list = fs::read_to_string(aside.path().join("lost.txt")).unwrap();
    assert!(list.contains("cannot be listed"), "{list}");
    assert!(!list.contains("no message is gone"), "{list}");
    let kept = fs::read_dir(aside.path()).unwrap();
    let names: Vec<_> = kept.map(|f| f.unwrap().file_name()).collect();
    let checkpoints = names
        .iter()
        .filter(|n| n.to_string_lossy().starts_with("state-"));
    assert_eq!(checkpoints.count(), 1, "{names:?}");
}

/// Returns the only checkpoint in the directory.
fn checkpoint(dir: &Path) -> PathBuf {
    let names = fs::read_dir(dir.join("tidegate")).unwrap();
    let mut paths = names.map(|f| f.unwrap().path());
    let is_checkpoint = |p: &PathBuf| {
        p.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("state-")
    };
    paths.find(is_checkpoint).unwrap()
}

/// Changes one bit in the middle of a file.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 0x40;
    fs::write(path, bytes).unwrap();
}

/// Repairs the directory. Returns the exit code, the printed text, and the quarantine.
fn repair(dir: &Path) -> (Option<i32>, String, tempfile::TempDir) {
    let aside = tempfile::tempdir().unwrap();
    let quarantine = aside.path().to_str().unwrap();
    let output = log(&["repair", dir.to_str().unwrap(), "--quarantine", quarantine]);
    (output.status.code(), text(&output), aside)
}

/// Returns the error with which a start of the server refuses the directory; `None` if it starts.
fn refused(dir: &Path) -> Option<String> {
    let opening = Opening::begin(dir, Options::default(), Arc::new(|| ()));
    opening.err().map(|e| e.to_string())
}

/// Checks that `inspect` and `verify` report the fault with the words of the error of a start.
fn reported(dir: &Path, words: &str) {
    let data = dir.to_str().unwrap();
    let looks = ["inspect", "verify"].map(|verb| log(&[verb, data]));
    // The start comes last, because it may change files.
    let error = refused(dir).unwrap();
    assert!(error.contains(words), "{error}");
    for (verb, output) in ["inspect", "verify"].iter().zip(looks) {
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        let line = format!("a server does not start: {error}");
        assert!(
            text(&output).lines().any(|l| l == line),
            "{}",
            text(&output)
        );
        let (found, code) = json(&[verb, data, "--json"]);
        assert_eq!((code, &found["sound"]), (Some(1), &Value::Bool(false)));
        let refusal = found["refusals"][0].as_str().unwrap();
        assert!(refusal.contains(words), "{found}");
    }
}

#[test]
fn a_version_that_cannot_be_read_is_written_again() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), true);
    let version = dir.path().join("tidegate/version");
    fs::write(&version, "q\n").unwrap();
    reported(dir.path(), "holds no version");
    let (code, said, aside) = repair(dir.path());
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("written again: the file `version`"), "{said}");
    assert_eq!(fs::read(aside.path().join("version")).unwrap(), b"q\n");
    assert_eq!(refused(dir.path()), None);
    // A newer program writes a higher number, so the number is no damage.
    fs::write(&version, "7\n").unwrap();
    reported(dir.path(), "has format 7");
    let (code, said, _aside) = repair(dir.path());
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("not repaired: the data directory has format 7"),
        "{said}"
    );
    assert_eq!(fs::read(&version).unwrap(), b"7\n");
}

/// Removes the end of the log's first segment, from message 41 on.
fn cut(dir: &Path) {
    let first = segment(dir);
    let bytes = fs::read(&first).unwrap();
    let cut = bytes.windows(900).position(|w| w.iter().all(|b| *b == 41));
    let file = fs::File::options().write(true).open(&first).unwrap();
    file.set_len(cut.unwrap() as u64).unwrap();
}

/// Tests that the note of an ended repair does not let a later start drop a checkpoint.
#[test]
fn only_a_cut_repair_excuses_a_checkpoint_behind_the_log() {
    for (note, excuses) in [
        ("a repair was begun\n", true),
        ("a repair was begun\nlost: 1..2\nthe repair ended\n", false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), true);
        cut(dir.path());
        let kept = checkpoint(dir.path());
        let file = dir.path().join("tidegate/repaired");
        fs::write(&file, note).unwrap();
        if excuses {
            assert_eq!(refused(dir.path()), None);
            let note = fs::read_to_string(&file).unwrap();
            assert!(note.ends_with("\nthe repair ended\n"), "{note}");
        } else {
            reported(dir.path(), "the log ends at");
        }
        assert_eq!(kept.exists(), !excuses);
    }
}

#[test]
fn a_log_that_ends_before_its_checkpoint_is_reported_and_repaired() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), true);
    cut(dir.path());
    reported(dir.path(), "the log ends at");
    let (code, said, aside) = repair(dir.path());
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("stream orders: 10 messages are gone: 41-50"),
        "{said}"
    );
    let list = fs::read_to_string(aside.path().join("lost.txt")).unwrap();
    assert!(list.contains("41-50"), "{list}");
    let note = fs::read_to_string(dir.path().join("tidegate/repaired")).unwrap();
    assert!(note.ends_with("\nthe repair ended\n"), "{note}");
    assert_eq!(refused(dir.path()), None);
    let (found, code) = json(&["verify", dir.path().to_str().unwrap(), "--json"]);
    assert_eq!(code, Some(0), "{found}");
    let (code, said, _aside) = repair(dir.path());
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_damaged_checkpoint_that_the_log_replaces_is_moved_away() {
    damaged_checkpoint(None);
}

/// In a directory of several groups, the names of checkpoints hold the group.
#[test]
fn a_damaged_checkpoint_of_one_of_several_groups_is_found() {
    damaged_checkpoint(Some("state-1-00000000000000000052-00000000000000060000"));
}

/// Damages the checkpoint, which first gets the name `new`.
fn damaged_checkpoint(new: Option<&str>) {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), true);
    let old = checkpoint(dir.path());
    let path =
        old.with_file_name(new.unwrap_or_else(|| old.file_name().unwrap().to_str().unwrap()));
    fs::rename(&old, &path).unwrap();
    flip(&path);
    let name = path.file_name().unwrap().to_str().unwrap();
    let data = dir.path().to_str().unwrap();
    for verb in ["inspect", "verify"] {
        let output = log(&[verb, data]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        let line = format!("{name}: the checkpoint is cut off or damaged");
        assert!(
            text(&output).lines().any(|l| l == line),
            "{}",
            text(&output)
        );
        assert!(!text(&output).contains("is sound"), "{}", text(&output));
    }
    let (code, said, aside) = repair(dir.path());
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains(&format!("moved to quarantine: {name}")),
        "{said}"
    );
    assert!(aside.path().join(name).exists() && !path.exists());
    let (found, code) = json(&["verify", data, "--json"]);
    assert_eq!(code, Some(0), "{found}");
    assert_eq!(refused(dir.path()), None);
}

/// Tests a damaged members' file: the commands must report the file, because a repair cannot restore a node's
/// identity.
#[test]
fn a_damaged_members_file_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), true);
    fs::write(
        dir.path().join("tidegate/members"),
        "tidegate members 2\nx\n",
    )
    .unwrap();
    let output = log(&["verify", dir.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let line = "a server does not start: the file `members` is damaged";
    assert!(text(&output).contains(line), "{}", text(&output));
    let (code, said, _aside) = repair(dir.path());
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("not repaired: the file `members` is damaged"),
        "{said}"
    );
}

#[test]
fn a_log_whose_files_are_gone_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), false);
    let log = dir.path().join("tidegate/log");
    fs::remove_dir_all(&log).unwrap();
    fs::create_dir(&log).unwrap();
    reported(dir.path(), "all files of the log are gone");
    let (code, said, _aside) = repair(dir.path());
    assert_eq!(code, Some(1), "{said}");
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
    for inside in ["tidegate/aside", "aside", "a/b", "tidegate/../aside"] {
        let inside = dir.path().join(inside);
        let output = log(&["repair", data, "--quarantine", inside.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains("outside of the data directory"));
        assert!(!inside.exists(), "the refusal comes before the directory");
    }
    let opening = Opening::begin(dir.path(), Options::default(), Arc::new(|| ())).unwrap();
    let output = log(&["verify", data]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("in use"), "{}", text(&output));
    drop(opening);
}

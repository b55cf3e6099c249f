//! Tests of the program `tidegate count`: its exact counts, its output, and its exit codes after errors.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use proptest::prelude::*;

fn tidegate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    tidegate(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn file(directory: &Path, name: &str, text: &[u8]) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// Parses the printed words with their counts, up to the empty line.
fn top(text: &str) -> Vec<(String, u64)> {
    let lines = text
        .lines()
        .take_while(|line| !line.is_empty() && !line.starts_with("total"));
    let entry = |line: &str| {
        let (count, word) = line.trim_start().split_once("  ").unwrap();
        (word.to_owned(), count.replace(',', "").parse().unwrap())
    };
    lines.map(entry).collect()
}

fn total(text: &str) -> &str {
    text.lines().find(|line| line.starts_with("total")).unwrap()
}

/// Counts the words with a plain loop. Returns the most frequent words first, and words of the same count in
/// the order of their bytes.
fn plain(texts: &[&[u8]]) -> Vec<(String, u64)> {
    let mut counts: BTreeMap<&[u8], u64> = BTreeMap::new();
    for text in texts {
        let words = text
            .split(|byte| matches!(byte, 9..=13 | b' '))
            .filter(|word| !word.is_empty());
        words.for_each(|word| *counts.entry(word).or_default() += 1);
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
        .into_iter()
        .map(|(word, count)| (String::from_utf8(word.to_vec()).unwrap(), count))
        .collect()
}

fn generated(words: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut text = Vec::new();
    for at in 0..words {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let word = (state >> 33) % (1 + (state >> 60) * (state >> 50) % 40_000);
        text.extend_from_slice(format!("w{word}").as_bytes());
        text.push(if at % 11 == 0 { b'\n' } else { b' ' });
    }
    text
}

#[test]
fn every_controller_gives_the_counts_of_a_plain_count() {
    let directory = tempfile::tempdir().unwrap();
    let text = generated(200_000);
    let path = file(directory.path(), "text", &text);
    let path = path.to_str().unwrap();
    let expected = plain(&[&text, &text]);
    for controller in [
        "knee",
        "knee:p99=5ms",
        "fixed:1",
        "fixed:100,2ms",
        "fixed:100000",
        "storm-aimd:1000",
        "greedy",
        "exponential",
        "aimd:64",
        "rueidis-stats:100us",
    ] {
        for split in ["1", "3"] {
            let output = run(&[
                "count",
                "--controller",
                controller,
                "--split",
                split,
                "--top",
                "1000000",
                path,
                path,
            ]);
            assert!(output.status.success(), "{}", stderr(&output));
            let text = stdout(&output);
            assert_eq!(top(&text), expected, "{controller}");
            let words = format!(
                "total    400,000 words, {} distinct, in 2 files",
                expected.len()
            );
            // The program also prints the number of distinct words with commas.
            assert_eq!(total(&text).replace(',', ""), words.replace(',', ""));
            assert!(
                stderr(&output).is_empty(),
                "no progress bar without a terminal"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn as_a_plain_count_of_anything(
        texts in proptest::collection::vec("[a-c \t\n\u{b}\u{c}\r\u{a0}é]{0,400}", 1..4),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let paths: Vec<_> = texts.iter().enumerate()
            .map(|(at, text)| file(directory.path(), &at.to_string(), text.as_bytes())).collect();
        let mut args = vec!["count", "--top", "100000"];
        args.extend(paths.iter().map(|path| path.to_str().unwrap()));
        let output = run(&args);
        prop_assert!(output.status.success());
        let texts: Vec<_> = texts.iter().map(String::as_bytes).collect();
        let shown: Vec<_> = plain(&texts).into_iter()
            // The program prints an invisible character as an escape.
            .map(|(word, count)| (word.replace('\u{a0}', "\\u{a0}"), count)).collect();
        prop_assert_eq!(top(&stdout(&output)), shown);
    }
}

#[test]
fn words_of_two_files_do_not_join() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (
        file(directory.path(), "a", b"x one"),
        file(directory.path(), "b", b"two x"),
    );
    let output = run(&["count", a.to_str().unwrap(), b.to_str().unwrap()]);
    assert_eq!(
        top(&stdout(&output)),
        [("x".into(), 2), ("one".into(), 1), ("two".into(), 1)]
    );
}

#[test]
fn standard_input_in_pieces() {
    let mut child = tidegate(&["count", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    for piece in [&b"al"[..], b"pha be", b"ta\nal", b"pha"] {
        input.write_all(piece).unwrap();
        input.flush().unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(
        top(&stdout(&output)),
        [("alpha".into(), 2), ("beta".into(), 1)]
    );
}

#[test]
fn a_missing_file_and_a_directory_are_named_and_the_others_counted() {
    let directory = tempfile::tempdir().unwrap();
    let there = file(directory.path(), "there", b"a b a");
    let missing = directory.path().join("missing");
    let [missing, there, inside] =
        [missing.as_path(), &there, directory.path()].map(|path| path.to_str().unwrap());
    let output = run(&["count", missing, there, inside]);
    assert_eq!(output.status.code(), Some(1));
    let errors = stderr(&output);
    assert_eq!(
        errors,
        format!(
            "tidegate: {missing}: No such file or directory\ntidegate: {inside}: Is a directory\n"
        )
    );
    let text = stdout(&output);
    assert_eq!(top(&text), [("a".into(), 2), ("b".into(), 1)]);
    assert_eq!(
        total(&text),
        "total    3 words, 2 distinct, in 1 file; 2 of 3 could not be read, see above"
    );
}

#[test]
fn bytes_that_are_no_text_are_counted_and_shown_escaped() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(
        directory.path(),
        "odd",
        b"\xff\xfe \x1b[0m \xff\xfe caf\xc3\xa9 a\\b \x00",
    );
    let output = run(&["count", path.to_str().unwrap()]);
    let words = [
        ("\\xff\\xfe", 2),
        ("\\x00", 1),
        ("\\x1b[0m", 1),
        ("a\\\\b", 1),
        ("café", 1),
    ];
    assert_eq!(
        top(&stdout(&output)),
        words.map(|(word, count)| (word.to_owned(), count))
    );
}

#[test]
fn an_empty_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "empty", b"");
    let output = run(&["count", path.to_str().unwrap()]);
    assert!(output.status.success());
    assert!(
        stdout(&output).starts_with("total    0 words, 0 distinct, in 1 file\n"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn a_word_longer_than_any_buffer() {
    let directory = tempfile::tempdir().unwrap();
    let mut text = b"x ".to_vec();
    text.resize(3_000_002, b'w');
    let huge = text[2..].to_vec();
    text.extend_from_slice(b" x ");
    text.extend_from_slice(&huge);
    let path = file(directory.path(), "huge", &text);
    let output = run(&["count", path.to_str().unwrap()]);
    let text = stdout(&output);
    assert!(
        text.starts_with("2  wwww") && text.contains("... (3000000 bytes)\n2  x\n"),
        "{}",
        &text[..500]
    );
    assert!(text.contains("total    4 words, 2 distinct, in 1 file\n"));
}

#[test]
fn ties_are_in_byte_order_also_where_the_top_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "ties", "b a Z é z b a Z é z ü".as_bytes());
    let output = run(&["count", "--top", "3", path.to_str().unwrap()]);
    assert_eq!(
        top(&stdout(&output)),
        [("Z".into(), 2), ("a".into(), 2), ("b".into(), 2)]
    );
}

#[test]
fn an_unknown_controller_says_what_there_is() {
    let output = run(&["count", "--controller", "clever", "/dev/null"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("unknown controller `clever`: give one of knee, "),
        "{}",
        stderr(&output)
    );
    for (name, allowed) in [
        ("fixed:0", "such as fixed:1000,5ms"),
        ("knee:p99=0ms", "above 0"),
        ("storm-aimd", "such as storm-aimd:1000"),
    ] {
        let output = run(&["count", "--controller", name, "/dev/null"]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(
            stderr(&output).contains(allowed),
            "{name}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn zeros_are_refused_with_what_is_allowed() {
    for (option, allowed) in [
        ("--split", "1..=64"),
        ("--rate", "1..=1000000000"),
        ("--top", "a whole number from 1 on"),
    ] {
        let output = run(&["count", option, "0", "/dev/null"]);
        assert_eq!(output.status.code(), Some(2), "{option}");
        assert!(
            stderr(&output).contains(allowed),
            "{option}: {}",
            stderr(&output)
        );
    }
    assert_eq!(run(&["count"]).status.code(), Some(2));
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "text", &generated(100_000));
    let mut child = tidegate(&["count", "--top", "100000", path.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut errors = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut errors)
        .unwrap();
    assert_eq!(
        (child.wait().unwrap().code(), errors.as_str()),
        (Some(0), "")
    );
}

#[test]
fn paced_lines_are_all_counted_and_timed() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "lines", "one two\n".repeat(50).as_bytes());
    let output = run(&["count", "--rate", "10000", path.to_str().unwrap()]);
    let text = stdout(&output);
    assert_eq!(top(&text), [("one".into(), 50), ("two".into(), 50)]);
    assert!(text.contains("its last word counted (50 lines)"), "{text}");
}

#[test]
fn every_edge_tells_its_batches() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "text", &generated(10_000));
    let text = stdout(&run(&["count", path.to_str().unwrap()]));
    for edge in [
        "batches  reader -> splitters: ",
        "batches  splitters -> counters: 10,000 items, ",
    ] {
        let line = text.lines().find(|line| line.starts_with(edge)).unwrap();
        assert!(
            line.contains(" batches, mean ") && line.contains(", max "),
            "{line}"
        );
    }
    assert!(
        text.contains("latency  mean ") && text.contains(" p99 ") && text.contains(" words/s, "),
        "{text}"
    );
}

#[test]
fn interrupted_it_says_what_it_has() {
    // The test keeps standard input open, so that only the signal ends the program.
    let mut child = tidegate(&["count", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // Once the program has read more than the pipe holds, it also listens for the signal.
    input.write_all(&b"word\n".repeat(400_000)).unwrap();
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let mut text = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(
        total(&text).ends_with("; interrupted before the end"),
        "{text}"
    );
    assert!(!top(&text).is_empty());
}

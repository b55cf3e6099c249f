//! Tests of `tidegate-bench report`: its steps, its results on disk and its resumption.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn report(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
        .args(["report", "--quick", "--out", "out"])
        .args(args)
        .current_dir(directory)
        .env("TIDEGATE_BENCH_DIR", directory.join("files"))
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn kept(directory: &Path, step: &str) -> Value {
    let path = directory.join("out/steps").join(format!("{step}.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Steps that need no peer and no server: one in virtual time, and one of real handlers.
const STEPS: &str = "response,handlers-append";

#[test]
fn steps_are_measured_once_and_the_report_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let first = report(
        directory.path(),
        &["--only", STEPS, "--markdown", "copy.md"],
    );
    let errors = text(&first.stderr);
    assert_eq!(first.status.code(), Some(0), "{errors}");
    assert!(errors.contains("2 steps to measure, 0 kept"), "{errors}");
    assert!(
        errors.contains("step 1 of 2: handlers-append, ") && errors.contains(" left"),
        "{errors}"
    );
    assert_eq!(text(&first.stdout).trim(), "out/report.html");
    let response = kept(directory.path(), "response");
    assert_eq!(response["complete"], true);
    assert_eq!(response["output"]["bench"], "response");
    assert!(response["machine"]["sync_us"].as_f64().unwrap() > 0.0);
    assert!(
        response["machine"]["model"]
            .as_str()
            .unwrap()
            .contains("cores")
    );
    let handlers = kept(directory.path(), "handlers-append");
    let rows = handlers["output"]["rows"].as_array().unwrap();
    assert!(
        rows.iter()
            .any(|row| row["system"] == "tidegate" && row["ratio"].is_object()),
        "{rows:?}"
    );
    for (file, wanted) in [
        ("out/report.html", "<svg "),
        ("out/report.md", "## Where we lose"),
        ("copy.md", "| "),
    ] {
        let page = std::fs::read_to_string(directory.path().join(file)).unwrap();
        assert!(page.contains(wanted), "{file}");
        assert!(
            page.contains("no result yet: tidegate-bench report --only mailbox"),
            "{file}"
        );
    }
    // One file is gone, so the second report measures its step again, and keeps the other.
    std::fs::remove_file(directory.path().join("out/steps/response.json")).unwrap();
    let second = report(directory.path(), &["--only", STEPS]);
    let errors = text(&second.stderr);
    assert!(
        errors.contains("1 step to measure, 1 kept") && errors.contains("step 1 of 1: response"),
        "{errors}"
    );
    assert_eq!(kept(directory.path(), "handlers-append"), handlers);
    assert_eq!(
        kept(directory.path(), "response")["output"],
        response["output"]
    );
    let third = report(directory.path(), &["--only", STEPS]);
    assert!(
        text(&third.stderr).contains("0 steps to measure, 2 kept"),
        "{}",
        text(&third.stderr)
    );
}

#[test]
fn an_interrupt_keeps_the_finished_cells() {
    let directory = tempfile::tempdir().unwrap();
    let mut running = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
        .args([
            "report",
            "--quick",
            "--out",
            "out",
            "--only",
            "handlers-append",
        ])
        .current_dir(directory.path())
        .env("TIDEGATE_BENCH_DIR", directory.path().join("files"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let cells = directory.path().join("out/cells");
    let finished = || {
        let files = std::fs::read_dir(&cells).into_iter().flatten().flatten();
        let text =
            |file: std::fs::DirEntry| std::fs::read_to_string(file.path()).unwrap_or_default();
        files
            .map(text)
            .collect::<String>()
            .matches("\"cell\":{")
            .count()
    };
    while finished() == 0 {
        assert!(
            running.try_wait().unwrap().is_none(),
            "it ended before it was interrupted"
        );
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&running);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(130));
    let cut = kept(directory.path(), "handlers-append");
    assert_eq!(
        (&cut["complete"], &cut["failure"]),
        (&Value::Bool(false), &Value::from("interrupted"))
    );
    assert!(!cut["output"]["rows"].as_array().unwrap().is_empty());
    let page = std::fs::read_to_string(directory.path().join("out/report.md")).unwrap();
    assert!(page.contains("| handlers-append | interrupted |"), "{page}");
    // The next report goes on with the cells that are left.
    let before = finished();
    let next = report(directory.path(), &["--only", "handlers-append"]);
    assert_eq!(next.status.code(), Some(0), "{}", text(&next.stderr));
    let whole = kept(directory.path(), "handlers-append");
    assert_eq!(whole["complete"], true);
    let rows = |kept: &Value| kept["output"]["rows"].as_array().unwrap().clone();
    assert_eq!(
        rows(&whole)[..rows(&cut).len()],
        rows(&cut)[..],
        "{before} cells were kept"
    );
}

#[test]
fn a_broken_result_is_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let made = report(directory.path(), &["--only", "response"]);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    let path = directory.path().join("out/steps/response.json");
    let whole = std::fs::read_to_string(&path).unwrap();
    let foreign = whole.replacen("\"format\": 1", "\"format\": 2", 1);
    for (broken, said) in [
        (&whole[..whole.len() / 2], "cut short"),
        (&foreign, "has format 2"),
    ] {
        std::fs::write(&path, broken).unwrap();
        for args in [&["--render"][..], &["--only", "costs"], &["--list"]] {
            let output = report(directory.path(), args);
            let errors = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{errors}");
            assert_eq!(errors.lines().count(), 1, "{errors}");
            assert!(
                errors.contains("out/steps/response.json: ") && errors.contains(said),
                "{errors}"
            );
        }
    }
}

#[test]
fn steps_are_listed_and_an_unknown_one_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let listed = report(directory.path(), &["--list"]);
    let names = text(&listed.stdout);
    for name in [
        "mailbox",
        "redis-get",
        "stream",
        "handlers-http",
        "arena",
        "response",
        "steps, about",
    ] {
        assert!(names.contains(name), "{name}: {names}");
    }
    let refused = report(directory.path(), &["--only", "nosuch"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("no step has `nosuch` in its name: mailbox, "));
}

#[test]
fn a_step_that_cannot_run_says_why_and_is_measured_again() {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        // Nothing here has the `nats` program, which drives this bench.
        let output = report(directory.path(), &["--only", "stream"]);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains("1 step to measure, 0 kept"), "{errors}");
    }
    let failed = kept(directory.path(), "stream");
    assert_eq!(
        (&failed["complete"], &failed["output"]),
        (&Value::Bool(false), &Value::Null)
    );
    let page = std::fs::read_to_string(directory.path().join("out/report.md")).unwrap();
    assert!(
        page.contains("is not built: bench/peers/install.sh go-nats |"),
        "{page}"
    );
}

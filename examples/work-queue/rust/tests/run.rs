//! Runs one work queue from Go, Python, JavaScript and Rust, all against one server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use example_servers::{find, run, tidegate, tidegate_program};
use tidegate_testing::{missing, python_with_nats};

const JOBS_EACH: usize = 100;

/// The program of one language, with its arguments before `add` and `work`.
struct Language {
    name: &'static str,
    program: PathBuf,
    args: Vec<String>,
}

/// Returns the programs of all languages that this machine has. Builds the program in Go, and installs the
/// packages of the one in JavaScript, as their lock files pin them.
fn languages(scratch: &Path) -> Vec<Language> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let rust = env!("CARGO_BIN_EXE_example-work-queue").into();
    let mut languages = vec![Language { name: "rust", program: rust, args: vec![] }];
    if find("go", &[]).is_some() {
        let program = scratch.join("work-queue-go");
        run(
            "go",
            &[
                "-C",
                text(&examples.join("go")),
                "build",
                "-mod=readonly",
                "-o",
                text(&program),
                ".",
            ],
        );
        languages.push(Language { name: "go", program, args: vec![] });
    } else {
        missing("Go 1.25 or later (golang.org)");
    }
    if let Some(python) = python_with_nats() {
        let script = examples.join("python/work_queue.py");
        languages.push(Language {
            name: "python",
            program: python,
            args: vec![text(&script).into()],
        });
    }
    if let (Some(node), Some(_)) = (find("node", &[]), find("npm", &[])) {
        for file in ["package.json", "package-lock.json", "work-queue.js"] {
            std::fs::copy(examples.join("javascript").join(file), scratch.join(file)).unwrap();
        }
        run("npm", &["ci", "--prefix", text(scratch), "--no-fund", "--no-audit", "--silent"]);
        let script = scratch.join("work-queue.js");
        languages.push(Language {
            name: "javascript",
            program: node,
            args: vec![text(&script).into()],
        });
    } else {
        missing("Node.js 20 or later, with npm");
    }
    languages
}

#[test]
fn each_job_of_every_language_is_done_once_by_any_worker() {
    let scratch = tempfile::tempdir().unwrap();
    let languages = languages(scratch.path());
    let (server, monitor) = tidegate();
    let stream = [
        "stream",
        "add",
        "JOBS",
        "--subjects",
        "jobs.>",
        "--retention",
        "workqueue",
        "-s",
        &server.url,
    ];
    run(tidegate_program(), &stream);

    let all_at_once = |words: &[&str]| -> Vec<String> {
        let start = |language: &Language| {
            Command::new(&language.program)
                .args(&language.args)
                .args(words)
                .env("NATS_URL", &server.url)
                .env("MONITOR_URL", &monitor)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let started: Vec<_> = languages.iter().map(start).collect();
        started.into_iter().map(|child| said(&child.wait_with_output().unwrap())).collect()
    };
    let added = all_at_once(&["add", &JOBS_EACH.to_string()]);
    for (language, said) in languages.iter().zip(&added) {
        assert!(
            said.starts_with(&format!("{}: {JOBS_EACH} jobs are synced", language.name)),
            "{said}"
        );
        assert!(said.contains("the server's syncs: "), "{said}");
    }

    let worked = all_at_once(&["work"]).concat();
    let mut done: BTreeMap<(String, String), usize> = BTreeMap::new();
    for line in worked.lines().filter(|line| line.contains(" jobs.")) {
        let mut words = line.split(' ').skip(1);
        let subject = words.next().unwrap().to_owned();
        *done.entry((subject, words.collect())).or_default() += 1;
    }
    assert_eq!(done.len(), JOBS_EACH * languages.len(), "{worked}");
    assert!(done.values().all(|times| *times == 1), "a job came twice:\n{worked}");
    // The queue keeps no job that is done. The last acknowledgements become durable a moment after the
    // workers' ends.
    let until = Instant::now() + Duration::from_secs(30);
    while kept(&server.url) > 0 {
        assert!(Instant::now() < until, "the queue keeps {} jobs", kept(&server.url));
    }
}

/// Returns the number of jobs in the queue.
fn kept(url: &str) -> u64 {
    let info = run(tidegate_program(), &["stream", "info", "JOBS", "--json", "-s", url]);
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    let messages = info.pointer("/state/messages").or_else(|| info.get("messages"));
    messages.and_then(serde_json::Value::as_u64).unwrap_or_else(|| panic!("{info}"))
}

fn said(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

//! Tests of `serve --record`, which records the decisions of the server's controllers: new controllers must
//! make the same decisions from the recorded events.

use rustix::process::{Pid, Signal, kill_process};
use tidegate::boundary::read_decisions;
use tidegate::controller::{Bounded, Bounds, Choice, Controller, Knee, Objective, replay};

use super::server::{Server, other};

/// Returns a new controller, equal to the server's controller at this boundary.
fn controller(boundary: &str, bounds: Bounds) -> Box<dyn Controller> {
    let knee = |objective| Knee::new(objective, bounds).unwrap();
    match boundary {
        "sockets" => Choice::KNEE.build(bounds).unwrap(),
        "entries" => Box::new(knee(Objective::Lean).in_bytes().unwrap()),
        "acks" => Box::new(knee(Objective::CostBudget(0.01))),
        "sync" => Box::new(knee(Objective::Lean).in_bytes().unwrap().anticipating()),
        name => panic!("no boundary has the name {name}"),
    }
}

#[test]
fn a_server_records_decisions_that_replay() {
    if other().is_some() {
        println!("a flag of our own, so not asked of nats-server");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("decisions");
    let record = ["--record", file.to_str().unwrap()];
    let server = Server::start_with(&directory.path().join("data"), &record);
    server.good(&["stream", "add", "S", "--subjects", "s"]);
    let lines = directory.path().join("lines");
    std::fs::write(&lines, "one line\n".repeat(20_000)).unwrap();
    server.good(&["pub", "s", "--lines", lines.to_str().unwrap()]);
    server.good(&["consume", "S", "--until-end"]);
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    server.wait();
    let text = std::fs::read_to_string(&file).unwrap();
    let runs = read_decisions(&text).unwrap();
    let mut names: Vec<_> = runs.iter().map(|run| &*run.boundary).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names, ["acks", "entries", "sockets", "sync"]);
    for run in &runs {
        assert!(
            run.boundary == "acks" || run.entries.len() > 10,
            "{}",
            run.boundary
        );
        assert!(!run.is_cut, "{}", run.boundary);
        let inner = controller(&run.boundary, run.bounds);
        let mut again = Bounded::new(inner, run.bounds).unwrap();
        let replayed = replay(&mut again, &run.entries);
        replayed.unwrap_or_else(|e| panic!("{}: {e}", run.boundary));
    }
}

#[test]
fn a_file_has_one_server() {
    if other().is_some() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("decisions");
    let record = ["--record", file.to_str().unwrap()];
    let first = Server::start_with(&directory.path().join("a"), &record);
    let header = std::fs::read(&file).unwrap();
    let said = Server::refused(&directory.path().join("b"), &record);
    assert!(said.contains("another server writes to the file"), "{said}");
    assert!(std::fs::read(&file).unwrap().starts_with(&header));
    drop(first);
    // The lock of the file ends with the server, so another server can record into it.
    Server::start_with(&directory.path().join("a"), &record);
}

/// Tests a second start with the data directory of a running server: it must fail, leave the file of another
/// run unchanged, and create no file.
#[test]
fn a_start_that_fails_leaves_the_file_alone() {
    if other().is_some() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let _first = Server::start_with(&data, &[]);
    let kept = directory.path().join("kept");
    std::fs::write(&kept, "decisions of an earlier run\n").unwrap();
    let new = directory.path().join("new");
    for file in [&kept, &new] {
        let said = Server::refused(&data, &["--record", file.to_str().unwrap()]);
        assert!(said.contains("in use"), "{said}");
    }
    let text = std::fs::read_to_string(&kept).unwrap();
    assert_eq!(text, "decisions of an earlier run\n");
    assert!(!new.exists());
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    if other().is_some() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let nowhere = directory.path().join("no/such/file");
    let said = Server::refused(&data, &["--record", nowhere.to_str().unwrap()]);
    assert!(said.contains("cannot record decisions in"), "{said}");
    assert!(said.contains("no/such/file: No such file"), "{said}");
}

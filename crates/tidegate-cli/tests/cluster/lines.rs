//! Tests of `tidegate pub --lines` and `tidegate consume` with the URLs of a cluster, while the test kills
//! nodes.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::nodes::{Nodes, other};

#[test]
fn lines_arrive_once_and_in_order_while_leaders_die() {
    if other().is_some() {
        println!("the publisher counts on every ack, so not asked of nats-server");
        return;
    }
    let mut nodes = Nodes::start(3);
    nodes.add_stream("L", "l");
    let urls = nodes.urls().join(",");
    let tidegate = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .args(args)
            .args(["-s", &urls])
            .env_remove("NATS_URL");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let mut publisher = tidegate(&["pub", "l", "--lines", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = publisher.stdin.take().unwrap();
    let mut text = String::new();
    for round in 0..3 {
        for line in 0..20_000 {
            let line = format!("round {round}, line {line}\n");
            input.write_all(line.as_bytes()).unwrap();
            text += &line;
        }
        let leader = nodes.leader("L");
        nodes.kill(leader);
        // The test keeps writing lines while the other nodes elect a leader.
        for line in 0..1000 {
            let line = format!("round {round}, without {leader}: {line}\n");
            input.write_all(line.as_bytes()).unwrap();
            text += &line;
        }
        nodes.spawn(leader);
        nodes.wait_current("L");
    }
    drop(input);
    let output = publisher.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}\n{}", nodes.logs());
    let read = tidegate(&["consume", "L", "--until-end"]).output().unwrap();
    assert!(
        read.stdout == text.as_bytes(),
        "{} bytes of {}",
        read.stdout.len(),
        text.len()
    );
}

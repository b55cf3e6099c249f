//! Tests of mistakes that operators make: the cluster must lose no message, the mistake must disturb the
//! other nodes only briefly, and the log must name the mistake.

use std::net::TcpStream;
use std::process::Command;

use super::load::{Acked, Load, check, same_everywhere};
use super::nodes::{Nodes, Place, other};

const PUBLISHERS: usize = 4;

#[test]
fn a_copy_of_a_running_nodes_directory_is_not_let_in() {
    if other().is_some() {
        return println!("how nodes greet each other is ours: not asked of another server");
    }
    let mut nodes = Nodes::start(3);
    nodes.add_stream("Y", "Y.>");
    let (mut acked, mut next) = (Acked::new(), vec![0; PUBLISHERS]);
    let load = Load::new("Y", PUBLISHERS, 8);
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("copy");
    let (node, urls) = (nodes.leader("Y"), nodes.urls());
    acked.extend(load.run(&urls, &mut next, || {
        load.wait_acked(&nodes, 300);
        // The copy of the paused node's directory equals a snapshot of its disk.
        nodes.pause(node);
        let copied = Command::new("cp")
            .arg("-a")
            .args([nodes.data(node), &copy])
            .status();
        nodes.resume(node);
        assert!(copied.unwrap().success());
        load.wait_acked(&nodes, 300);
        let second = nodes.add(Place {
            name: nodes.name(node).into(),
            data: Some(copy.clone()),
            ..Place::here(9)
        });
        nodes.spawn(second);
        for member in 0..3 {
            nodes.until("the copy to be refused", || {
                match nodes.said(member, "copies of one data directory")[..] {
                    [] => Err("nothing was said".into()),
                    _ => Ok(()),
                }
            });
        }
        load.wait_acked(&nodes, 1000);
        for member in (0..3).filter(|member| *member != node) {
            let news = nodes.said(member, "copies of one data directory");
            // The log repeats the line at most once a minute.
            assert!(news.len() < 5, "{news:?}");
            let route = format!("the route connection to `{}`", nodes.name(node));
            let lost = nodes.said(member, &route);
            assert!(lost.last().unwrap().ends_with("is up"), "{lost:?}");
        }
        nodes.remove(second);
    }));
    check(&same_everywhere(&nodes, "Y"), &acked, &next);
}

/// Tests that clients with many connections cannot take the file descriptors that the log needs.
#[test]
fn connections_leave_descriptors_to_the_log() {
    if other().is_some() {
        return println!("nats-server lets in as many as it is told to: not asked of it");
    }
    let mut places: Vec<_> = (0..3).map(Place::here).collect();
    places[0].under = ["prlimit", "--nofile=400:400"].map(String::from).into();
    places[0].flags = ["--segment-bytes", "8MiB"].map(String::from).into();
    let nodes = Nodes::start_at(places);
    nodes.add_stream("Z", "Z.>");
    let crowd: Vec<_> = (0..150)
        .map(|_| TcpStream::connect(nodes.url(0)).unwrap())
        .collect();
    nodes.until("the last to be refused", || {
        match nodes.said(0, "maximum connections exceeded")[..] {
            [] => Err("nobody was".into()),
            _ => Ok(()),
        }
    });
    let (mut acked, mut next) = (Acked::new(), vec![0; PUBLISHERS]);
    let load = Load::new("Z", PUBLISHERS, 64);
    let urls: Vec<_> = (1..3).map(|node| nodes.url(node)).collect();
    // The load fills a few segments, so that the log needs new descriptors.
    acked.extend(load.run(&urls, &mut next, || load.wait_acked(&nodes, 40_000)));
    nodes.wait_healthy(0);
    assert!(nodes.said(0, "maximum connections exceeded").len() < 20);
    drop(crowd);
    check(&same_everywhere(&nodes, "Z"), &acked, &next);
}

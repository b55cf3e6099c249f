//! Tests in which the disk of a node hangs or is full: the other nodes must continue, and the node must take
//! part again once its disk works.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::json;

use super::load::{Acked, Load, check, same_everywhere};
use super::nodes::{Nodes, Place, other};
use super::placed::{create, keepers, publish, publish_soon};
use super::raw::Raw;

const PUBLISHERS: usize = 4;

/// A file system in a file, as the disk of one node. The test needs root for the mount, and removes it at its
/// end.
struct Disk {
    directory: tempfile::TempDir,
}

impl Disk {
    fn new(mib: u64) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let (image, at) = (
            directory.path().join("image"),
            directory.path().join("disk"),
        );
        std::fs::create_dir(&at).unwrap();
        let file = std::fs::File::create(&image).unwrap();
        file.set_len(mib << 20).unwrap();
        let (image, at) = (image.to_str().unwrap(), at.to_str().unwrap());
        let made = run("mkfs.ext4", &["-q", image]) && run("mount", &["-o", "loop", image, at]);
        if !made {
            tidegate_testing::missing("mounts of loop devices (root)");
        }
        made.then_some(Self { directory })
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("disk")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run("umount", &["-l", self.path().to_str().unwrap()]);
    }
}

/// Freezes the file system while this value lives, so that no write completes, as on a disk that hangs.
struct Frozen(PathBuf);

impl Frozen {
    fn new(path: &Path) -> Self {
        assert!(run("fsfreeze", &["-f", path.to_str().unwrap()]));
        Self(path.into())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        run("fsfreeze", &["-u", self.0.to_str().unwrap()]);
    }
}

fn run(program: &str, args: &[&str]) -> bool {
    let output = Command::new(program).args(args).output();
    output.is_ok_and(|output| output.status.success())
}

/// Starts three nodes. The first one has its data on `disk`, and leads the stream.
fn start(disk: &Disk, stream: &str) -> Nodes {
    let mut places: Vec<_> = (0..3).map(Place::here).collect();
    places[0].data = Some(disk.path().join("data"));
    let nodes = Nodes::start_at(places);
    nodes.add_stream(stream, &format!("{stream}.>"));
    nodes.lead(stream, 0);
    nodes.wait_current(stream);
    nodes
}

#[test]
fn a_leader_with_a_hanging_disk_stops_no_other_node() {
    leader_with_a_hanging_disk("H", PUBLISHERS, 8);
}

/// With one publisher that waits for each acknowledgement, the event loop's own thread syncs the log, and
/// hangs.
#[test]
fn a_leader_that_hangs_in_a_sync_for_a_lone_publisher_stops_no_other_node() {
    leader_with_a_hanging_disk("L", 1, 1);
}

fn leader_with_a_hanging_disk(stream: &str, publishers: usize, window: usize) {
    if other().is_some() {
        println!("what becomes of a hanging disk is asked of ours alone");
        return;
    }
    let Some(disk) = Disk::new(1024) else { return };
    let nodes = start(&disk, stream);
    let (mut acked, mut next) = (Acked::new(), vec![0; publishers]);
    let load = Load::new(stream, publishers, window);
    acked.extend(load.run(&nodes.urls(), &mut next, || {
        load.wait_acked(&nodes, 200);
        let frozen = Frozen::new(&disk.path());
        let wait = load.wait_resumed(&nodes, Instant::now());
        println!(
            "the leader's disk hangs: publishing went on after {} ms",
            wait.all.as_millis()
        );
        Raw::connect(&nodes.url(0)).expect("the node whose disk hangs answers clients");
        load.wait_acked(&nodes, 500);
        nodes.until("another leader", || match nodes.leader(stream) {
            0 => Err("the node whose disk hangs still leads".into()),
            _ => Ok(()),
        });
        drop(frozen);
        load.wait_acked(&nodes, 200);
    }));
    check(&same_everywhere(&nodes, stream), &acked, &next);
}

#[test]
fn a_follower_with_a_full_disk_stops_no_other_node() {
    if other().is_some() {
        println!("nats-server stops JetStream when its disk is full, so this is not asked of it");
        return;
    }
    let Some(disk) = Disk::new(1024) else { return };
    let nodes = start(&disk, "D");
    nodes.lead("D", 1);
    let (mut acked, mut next) = (Acked::new(), vec![0; PUBLISHERS]);
    let load = Load::new("D", PUBLISHERS, 8);
    let filler = disk.path().join("filler");
    fill(&filler);
    nodes.add_stream("G", "G.>");
    let mut raw = Raw::connect(&nodes.url(1)).unwrap();
    acked.extend(load.run(&nodes.urls(), &mut next, || {
        load.wait_acked(&nodes, 3000);
        // These messages have far more bytes than the node buffers, so that it must stop answering while its
        // disk hangs.
        for _ in 0..160 {
            publish_soon(&mut raw, "G.x", &"x".repeat(500_000));
        }
        let full = nodes.until("the full node to be silent", || {
            let info = nodes.info("D");
            let replicas = info["cluster"]["replicas"].as_array().unwrap();
            let full = replicas.iter().find(|r| r["name"] == nodes.name(0));
            let silent = |r: &&serde_json::Value| r["active"].as_u64() > Some(3_000_000_000);
            full.filter(silent).cloned().ok_or_else(|| info.to_string())
        });
        assert_ne!(full["offline"], true, "{full}");
        assert!(full["lag"].as_u64() > Some(0), "{full}");
        std::fs::remove_file(&filler).unwrap();
        load.wait_acked(&nodes, 200);
    }));
    check(&same_everywhere(&nodes, "D"), &acked, &next);
}

#[test]
fn a_full_disk_stops_what_its_node_keeps_alone_and_nothing_else() {
    if other().is_some() {
        println!("nats-server stops JetStream when its disk is full, so this is not asked of it");
        return;
    }
    let Some(disk) = Disk::new(1024) else { return };
    let nodes = start(&disk, "R");
    nodes.add_stream("G", "G.>");
    // The cluster gives streams of one replica to the nodes in turn, so one of three such streams is on the
    // full node.
    let mut made = (0..3).map(|n| (n, create(&nodes, 1, &format!("K{n}"), 1)));
    let (kept, _) = made
        .find(|(_, made)| keepers(&nodes, made)[0] == 0)
        .unwrap();
    let kept = format!("K{kept}");
    nodes.lead("R", 0);
    let filler = disk.path().join("filler");
    fill(&filler);
    shorten(&filler);
    let mut raw = Raw::connect(&nodes.url(1)).unwrap();
    let (subject, large) = (format!("{kept}.x"), "x".repeat(500_000));
    let mut stored = publish_soon(&mut raw, &subject, &large);
    let refused = loop {
        match publish(&mut raw, &subject, &large) {
            Ok(seq) => stored = seq,
            Err(error) => break error,
        }
    };
    assert!(refused.contains("10047"), "{refused}");
    let (mut acked, mut next) = (Acked::new(), vec![0; PUBLISHERS]);
    let load = Load::new("R", PUBLISHERS, 8);
    acked.extend(load.run(&nodes.urls(), &mut next, || {
        load.wait_acked(&nodes, 500);
        assert_ne!(nodes.leader("R"), 0, "it has no room to lead");
        // These messages have far more bytes than the full node has space for.
        for _ in 0..80 {
            publish_soon(&mut raw, "G.x", &large);
        }
        let elsewhere = create(&nodes, 1, "NEW", 1);
        assert_ne!(keepers(&nodes, &elsewhere)[0], 0, "{elsewhere}");
        let refused = publish(&mut raw, &subject, "x").unwrap_err();
        assert!(refused.contains("10047"), "{refused}");
        // A purge must still work, and the stream must use the space that it frees.
        let purged = raw.api(&format!("STREAM.PURGE.{kept}"), &json!({}));
        assert_eq!(purged["purged"], stored, "{purged}");
        assert_eq!(publish_soon(&mut raw, &subject, "x"), stored + 1);
        load.wait_acked(&nodes, 100);
        std::fs::remove_file(&filler).unwrap();
    }));
    check(&same_everywhere(&nodes, "R"), &acked, &next);
    assert_eq!(same_everywhere(&nodes, "G").len(), 80);
}

#[test]
fn messages_without_room_on_most_nodes_are_refused_and_streams_can_be_emptied() {
    if other().is_some() {
        println!("nats-server stops JetStream when its disk is full, so this is not asked of it");
        return;
    }
    let disks = [Disk::new(1024), Disk::new(1024)];
    let [Some(one), Some(two)] = disks else {
        return;
    };
    let mut places: Vec<_> = (0..3).map(Place::here).collect();
    places[0].data = Some(one.path().join("data"));
    places[1].data = Some(two.path().join("data"));
    let nodes = Nodes::start_at(places);
    nodes.add_stream("M", "M.>");
    nodes.lead("M", 2);
    nodes.wait_current("M");
    let fillers = [&one, &two].map(|disk| disk.path().join("filler"));
    for filler in &fillers {
        fill(filler);
        shorten(filler);
    }
    let mut raw = Raw::connect(&nodes.url(2)).unwrap();
    let large = "x".repeat(500_000);
    let mut stored = publish_soon(&mut raw, "M.x", &large);
    let refused = loop {
        match publish(&mut raw, "M.x", &large) {
            Ok(seq) => stored = seq,
            Err(error) => break error,
        }
    };
    assert!(refused.contains("10047"), "{refused}");
    // The node with free space leads. It refuses messages because the other two nodes have no space, and
    // still accepts a purge, which frees space on all of them.
    assert_eq!(nodes.leader("M"), 2);
    let purged = raw.api("STREAM.PURGE.M", &json!({}));
    assert_eq!(purged["purged"], stored, "{purged}");
    for filler in &fillers {
        std::fs::remove_file(filler).unwrap();
    }
    assert_eq!(publish_soon(&mut raw, "M.x", "x"), stored + 1);
    // All nodes have space again, and must get all messages.
    nodes.wait_current("M");
    for node in 0..nodes.len() {
        nodes.lead("M", node);
        assert_eq!(nodes.info("M")["state"]["messages"], 1);
    }
}

fn fill(path: &Path) {
    use std::io::Write as _;
    let mut file = std::fs::File::create(path).unwrap();
    let block = vec![0; 1 << 16];
    while file.write_all(&block).is_ok() {}
}

/// Frees space that is too small for a whole segment of the log, and large enough for checkpoints.
fn shorten(filler: &Path) {
    let file = std::fs::File::options().write(true).open(filler).unwrap();
    let bytes = file.metadata().unwrap().len();
    file.set_len(bytes - (16 << 20)).unwrap();
}

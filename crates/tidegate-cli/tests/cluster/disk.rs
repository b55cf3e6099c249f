//! A node whose disk hangs or is full: the others go on, and it comes back.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::load::{Acked, Load, check, same_everywhere};
use super::nodes::{Nodes, Place, other};

const PUBLISHERS: usize = 4;

/// A file system of a node's own, in a file; gone with the test. Root is needed.
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
            println!("mounting is not allowed here, so not run");
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

/// While it is there nothing can be written to the file system.
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

/// Three nodes, the first with a disk of its own, which leads.
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
fn a_leader_whose_disk_hangs_stops_nobody() {
    if other().is_some() {
        println!("what becomes of a hanging disk is asked of ours alone");
        return;
    }
    let Some(disk) = Disk::new(1024) else { return };
    let nodes = start(&disk, "H");
    let (mut acked, mut next) = (Acked::new(), vec![0; PUBLISHERS]);
    let load = Load::new("H", PUBLISHERS, 8);
    acked.extend(load.run(&nodes.urls(), &mut next, || {
        load.wait_acked(&nodes, 200);
        let frozen = Frozen::new(&disk.path());
        let wait = load.wait_resumed(&nodes, Instant::now());
        println!(
            "the leader's disk hangs: publishing went on after {} ms",
            wait.all.as_millis()
        );
        load.wait_acked(&nodes, 500);
        nodes.until("another leader", || match nodes.leader("H") {
            0 => Err("the node whose disk hangs still leads".into()),
            _ => Ok(()),
        });
        drop(frozen);
        load.wait_acked(&nodes, 200);
    }));
    check(&same_everywhere(&nodes, "H"), &acked, &next);
}

#[test]
fn a_follower_whose_disk_is_full_stops_nobody() {
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
    acked.extend(load.run(&nodes.urls(), &mut next, || {
        load.wait_acked(&nodes, 3000);
        std::fs::remove_file(&filler).unwrap();
        load.wait_acked(&nodes, 200);
    }));
    check(&same_everywhere(&nodes, "D"), &acked, &next);
}

fn fill(path: &Path) {
    use std::io::Write as _;
    let mut file = std::fs::File::create(path).unwrap();
    let block = vec![0; 1 << 16];
    while file.write_all(&block).is_ok() {}
}

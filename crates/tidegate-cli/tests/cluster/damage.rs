//! Tests that damage the files of one stopped node: they flip a bit, cut a file short or remove it. The other
//! nodes serve the stream throughout. The damaged node must either refuse to start, with an error of one
//! line, or fetch the missing entries from the others and serve no damaged message.
//!
//! With `POWER_SECONDS` set, the tests cover more kinds of damage, and damage behind a checkpoint.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::faults::number;
use super::load::{Acked, Load, check, same_everywhere};
use super::nodes::{Nodes, other};
use super::raw::Raw;

const PUBLISHERS: usize = 2;
/// The length in bytes of a message that fills segments, and (`FILLERS`) the number of such messages that
/// fill one segment.
const FILLER_BYTES: usize = 1_000_000;
const FILLERS: usize = 68;
/// The number of filler messages after which a checkpoint is due.
const FILLERS_BEHIND: usize = 275;
/// Bytes that occur only in the messages of the load.
const LOADED: &[u8] = b"abcdefgabcdefg";
/// The longest wait for one acknowledgement.
const ATTEMPT: Duration = Duration::from_secs(10);

/// A kind of damage to a data directory, and the expected reaction of the node.
struct Harm {
    name: &'static str,
    does: fn(&Path),
    /// Words of the error line with which the node must refuse to start; `None` if it must start.
    refused: Option<&'static str>,
}

const fn starts(name: &'static str, does: fn(&Path)) -> Harm {
    Harm {
        name,
        does,
        refused: None,
    }
}

const fn refused(name: &'static str, words: &'static str, does: fn(&Path)) -> Harm {
    Harm {
        name,
        does,
        refused: Some(words),
    }
}

/// The kinds of damage in a node without a checkpoint: its start reads all of the log, and so finds the
/// damage. A short run of the test applies only the first ones.
const HARMS: [Harm; 18] = [
    refused(
        "a bit of a message in the last segment flipped",
        // The log must have no later write than this message. Otherwise the log could take the damage for a
        // torn last write, and only the other nodes could find it.
        "log",
        |data| {
            let path = last(data);
            flip(&path, find(&path, LOADED)[0]);
        },
    ),
    // The zeros look as if the log had never written these entries. The log cannot tell, but the leader knows
    // that this node acknowledged the entries.
    refused(
        "the last segment's end made zeros",
        "it has acknowledged entries up to",
        |data| {
            let path = last(data);
            let all = find(&path, LOADED);
            let from = all[all.len() / 2];
            let bytes = all.last().unwrap() + (1 << 16) - from;
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&vec![0; bytes as usize], from).unwrap();
        },
    ),
    refused(
        "the last segment cut where it was durable",
        "lost its end",
        |data| {
            let path = last(data);
            let all = find(&path, LOADED);
            cut(&path, all[all.len() / 2]);
        },
    ),
    refused("the log's files deleted", "gone", |data| {
        for entry in fs::read_dir(data.join("tidegate/log")).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }),
    // Without this check the node would start as a new node under its old identity, without its votes and
    // acknowledgements.
    refused("everything but the members' file deleted", "gone", |data| {
        for entry in fs::read_dir(data.join("tidegate")).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => fs::remove_dir_all(path).unwrap(),
                false if path.ends_with("members") => {}
                false => fs::remove_file(path).unwrap(),
            }
        }
    }),
    refused("the last segment deleted", "missing", |data| {
        fs::remove_file(last(data)).unwrap();
    }),
    refused(
        "a bit of a message in a closed segment flipped",
        "cannot be read",
        |data| {
            let path = first(data);
            flip(&path, find(&path, LOADED)[0]);
        },
    ),
    starts("a bit of a closed segment's index flipped", |data| {
        let path = first(data);
        flip(&path, fs::metadata(&path).unwrap().len() - 30);
    }),
    refused("a closed segment cut in half", "damaged", |data| {
        let path = first(data);
        cut(&path, fs::metadata(&path).unwrap().len() / 2);
    }),
    refused("a closed segment deleted", "missing", |data| {
        fs::remove_file(first(data)).unwrap();
    }),
    refused("a bit of a batch's header flipped", "the log ", |data| {
        flip(&first(data), 4096 + 20)
    }),
    refused(
        "a bit of a closed segment's header flipped",
        "header",
        |data| flip(&first(data), 20),
    ),
    refused("all segments deleted", "missing", |data| {
        for path in segments(data) {
            fs::remove_file(path).unwrap();
        }
    }),
    refused("a bit of the catalog flipped", "catalog", |data| {
        flip(&data.join("tidegate/log/catalog"), 30);
    }),
    refused("the catalog deleted", "catalog", |data| {
        fs::remove_file(data.join("tidegate/log/catalog")).unwrap();
    }),
    refused(
        "a bit of the members' file flipped",
        "`members` is damaged",
        |data| flip(&data.join("tidegate/members"), 30),
    ),
    refused(
        "the members' file deleted",
        "lost its file `members`",
        |data| fs::remove_file(data.join("tidegate/members")).unwrap(),
    ),
    refused("a bit of the version flipped", "version", |data| {
        flip(&data.join("tidegate/version"), 0);
    }),
];
/// The number of kinds of damage that a short run applies.
const HARMS_SHORT: usize = 8;

/// The kinds of damage in a node with a checkpoint: the node reads entries before the checkpoint only on
/// request. Damage with which the node can start stays on its disk.
const HARMS_BEHIND: [Harm; 6] = [
    starts("a bit of a message before the checkpoint flipped", |data| {
        let path = first(data);
        flip(&path, find(&path, LOADED)[0]);
    }),
    starts("a bit of the checkpoint flipped", |data| {
        let path = checkpoint(data);
        flip(&path, fs::metadata(&path).unwrap().len() / 2);
    }),
    starts("the checkpoint cut in half", |data| {
        let path = checkpoint(data);
        cut(&path, fs::metadata(&path).unwrap().len() / 2);
    }),
    refused(
        "a segment before the checkpoint cut in half",
        "damaged",
        |data| {
            let path = first(data);
            cut(&path, fs::metadata(&path).unwrap().len() / 2);
        },
    ),
    refused(
        "a segment before the checkpoint deleted",
        "missing",
        |data| fs::remove_file(first(data)).unwrap(),
    ),
    starts("the checkpoint deleted", |data| {
        fs::remove_file(checkpoint(data)).unwrap();
    }),
];

/// Returns the path of the newest checkpoint of the group of all nodes, which keeps the stream.
fn checkpoint(data: &Path) -> PathBuf {
    let files = fs::read_dir(data.join("tidegate")).unwrap();
    let names = files.map(|entry| entry.unwrap().path());
    let is_one = |path: &PathBuf| path.to_str().unwrap().contains("/state-1-0");
    names.filter(is_one).max().expect("there is a checkpoint")
}

fn segments(data: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(data.join("tidegate/log")).unwrap();
    let mut all: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.extension().is_some_and(|e| e == "seg"));
    all.sort();
    all
}

/// Returns the paths of the log's segments that have records.
fn used(data: &Path) -> Vec<PathBuf> {
    let mut all = segments(data);
    all.retain(|path| {
        let mut magic = [0; 4];
        File::open(path)
            .unwrap()
            .read_exact_at(&mut magic, 0)
            .unwrap();
        &magic == b"TgS1"
    });
    assert!(all.len() >= 2, "no segment is closed");
    all
}

fn first(data: &Path) -> PathBuf {
    used(data).swap_remove(0)
}

fn last(data: &Path) -> PathBuf {
    used(data).pop().unwrap()
}

fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

fn cut(path: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(bytes).unwrap();
}

/// Returns every offset at which the file has these bytes.
fn find(path: &Path, bytes: &[u8]) -> Vec<u64> {
    let all = fs::read(path).unwrap();
    let found = memchr::memmem::find_iter(&all, bytes);
    found.map(|at| at as u64).collect()
}

/// Copies a data directory, so that the test can restore it after the damage.
fn copy(from: &Path, to: &Path) {
    let words = ["-a", "--sparse=always"];
    let status = Command::new("cp").args(words).arg(from).arg(to).status();
    assert!(status.unwrap().success());
}

/// Starts three nodes, and fills the log of each until it has a closed segment. That segment and the last one
/// have messages of the stream `S`.
fn start(fillers: usize, acked: &mut Acked, next: &mut [u64]) -> Nodes {
    let nodes = Nodes::start(3);
    nodes.add_stream("S", "S.>");
    nodes.add_stream("FILL", "FILL");
    let load = Load::new("S", PUBLISHERS, 8);
    acked.extend(load.run(&nodes.urls(), next, || load.wait_acked(&nodes, 100)));
    let mut raw = Raw::connect_within(&nodes.url(nodes.leader("FILL")), ATTEMPT).unwrap();
    for _ in 0..fillers {
        raw.publish("FILL", "filled", &vec![b'.'; FILLER_BYTES])
            .unwrap();
        let answer = raw.message().unwrap().json();
        assert!(answer["seq"].is_u64(), "{answer}");
    }
    acked.extend(load.run(&nodes.urls(), next, || load.wait_acked(&nodes, 100)));
    nodes.wait_current("S");
    nodes
}

#[test]
fn damaged_files_of_one_node() {
    if other().is_some() {
        println!("whose files these are is asked of ours alone");
        return;
    }
    match number("POWER_SECONDS") {
        None => suffer(&HARMS[..HARMS_SHORT], FILLERS),
        Some(_) => {
            suffer(&HARMS, FILLERS);
            suffer(&HARMS_BEHIND, FILLERS_BEHIND);
        }
    }
}

/// Applies each kind of damage to one node, in turn, and checks the reaction of the node.
fn suffer(harms: &[Harm], fillers: usize) {
    let (mut acked, mut next) = (Acked::new(), vec![0; PUBLISHERS]);
    let mut nodes = start(fillers, &mut acked, &mut next);
    let load = Load::new("S", PUBLISHERS, 8);
    let kept = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for (n, harm) in harms.iter().enumerate() {
        // The nodes take turns as the victim, so the victim may also be the leader.
        let victim = n % nodes.len();
        let mut urls = nodes.urls();
        urls.remove(victim);
        nodes.kill(victim);
        let data = nodes.data(victim).to_path_buf();
        let copied = kept.path().join("data");
        copy(&data, &copied);
        (harm.does)(&data);
        nodes.spawn(victim);
        acked.extend(load.run(&urls, &mut next, || load.wait_acked(&nodes, 50)));
        let line = nodes.wait_refused(victim, "S");
        println!("{}: {}", harm.name, line.as_deref().unwrap_or("it starts"));
        let good = match (&line, harm.refused) {
            (None, None) => true,
            (Some(line), Some(words)) => line.contains(words),
            _ => false,
        };
        if line.is_some() {
            // A second start must refuse with the same line.
            nodes.spawn(victim);
            assert_eq!(nodes.wait_refused(victim, "S"), line);
        }
        if !good {
            wrong.push((harm.name, line.clone()));
        }
        match line {
            // In the first round the test deletes the victim's data, so that the node fetches everything from
            // the others.
            Some(_) if n == 0 => {
                fs::remove_dir_all(&copied).unwrap();
                nodes.lose_disk(victim);
                nodes.spawn_with(victim, &["--rejoin"]);
            }
            // In the other rounds the test restores the victim's data as it was before the damage.
            Some(_) => {
                fs::remove_dir_all(&data).unwrap();
                fs::rename(&copied, &data).unwrap();
                nodes.spawn(victim);
            }
            None => fs::remove_dir_all(&copied).unwrap(),
        }
        nodes.wait_current("S");
        check(&same_everywhere(&nodes, "S"), &acked, &next);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

//! Tests in which one node, two nodes or all lose their power under load, on simulated disks that keep only
//! synced data. Every node must then have each acknowledged message once, in order.
//!
//! `POWER_SECONDS=600 cargo test -p tidegate-cli --test cluster power -- --nocapture` runs for that long with
//! random losses; `POWER_SEED` repeats their choice.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::faults::number;
use super::load::{Acked, Load, check, same_everywhere};
use super::mounted::Mounted;
use super::nodes::{Nodes, Place, other};
use super::volume::{Loss, Lost, Names};

const PUBLISHERS: usize = 3;
/// The number of losses of power that the test applies to one stream, before it continues with a new stream.
const CHAPTER: usize = 4;

/// Three nodes, each with a simulated disk of its own. The drop ends the nodes before it unmounts the disks.
struct Cluster {
    nodes: Nodes,
    disks: Vec<Mounted>,
}

impl Cluster {
    /// Prepares the nodes and their disks, and does not start the nodes.
    fn new(names: Names, server: Option<&Path>) -> Option<Self> {
        let disks: Option<Vec<_>> = (0..3).map(|_| Mounted::new(names)).collect();
        let disks = disks?;
        let place = |(node, disk): (usize, &Mounted)| Place {
            data: Some(disk.data()),
            server: server.map(Path::to_path_buf),
            ..Place::here(node)
        };
        let places = disks.iter().enumerate().map(place).collect();
        Some(Self {
            nodes: Nodes::at(places),
            disks,
        })
    }

    fn spawn(&mut self, who: &[usize]) {
        who.iter().for_each(|node| self.nodes.spawn(*node));
    }

    /// Cuts the power of these nodes and their disks: from one moment on no write reaches the disks, although
    /// the processes may still run. Then ends the processes, and restores the power.
    fn lose_power(&mut self, who: &[usize], mut loss: impl FnMut() -> Loss) -> Lost {
        for node in who {
            self.disks[*node].volume().cut_after(0);
        }
        who.iter().for_each(|node| self.nodes.kill(*node));
        let mut lost = Lost::default();
        for node in who {
            lost += self.disks[*node].volume().lose_power(loss());
        }
        lost
    }

    /// Starts these nodes, and cuts the power again once one of their disks has seen the number of changes
    /// and syncs that `calls` draws.
    fn start_in_vain(&mut self, who: &[usize], mut calls: impl FnMut() -> u64) {
        for node in who {
            self.disks[*node].volume().cut_after(calls());
        }
        self.spawn(who);
        let disks = &self.disks;
        self.nodes.until("the power to go", || {
            match who.iter().any(|node| disks[*node].volume().is_off()) {
                true => Ok(()),
                false => Err("none has done so much".into()),
            }
        });
    }
}

/// The nodes that lose power. One node of the cluster leads, and two follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    All,
    Leader,
    Followers,
    /// All nodes lose power, and lose it again while they start.
    AllTwice,
    Follower,
    LeaderAndFollower,
    /// The leader loses power, and loses it again while it starts.
    LeaderTwice,
}

/// All kinds of losses; a short run of the test applies only the first ones.
const FAULTS: [Fault; 7] = [
    Fault::All,
    Fault::Leader,
    Fault::Followers,
    Fault::AllTwice,
    Fault::Follower,
    Fault::LeaderAndFollower,
    Fault::LeaderTwice,
];

impl Fault {
    /// Cuts the power of the nodes, starts them again, and waits until publishers continue.
    fn happen(self, cluster: &mut Cluster, stream: &str, load: &Load, chance: &mut Chance) -> Lost {
        let leader = cluster.nodes.leader(stream);
        let [follower, third] = [1, 2].map(|n| (leader + n) % 3);
        let who: &[usize] = match self {
            Self::All | Self::AllTwice => &[leader, follower, third],
            Self::Leader | Self::LeaderTwice => &[leader],
            Self::Follower => &[follower],
            Self::Followers => &[follower, third],
            Self::LeaderAndFollower => &[leader, follower],
        };
        let mut lost = cluster.lose_power(who, || chance.loss());
        if who.len() == 1 {
            load.wait_resumed(&cluster.nodes, Instant::now());
        }
        if matches!(self, Self::AllTwice | Self::LeaderTwice) {
            cluster.start_in_vain(who, || 1 + chance.draw() % 20);
            lost += cluster.lose_power(who, || chance.loss());
        }
        cluster.spawn(who);
        let wait = load.wait_resumed(&cluster.nodes, Instant::now());
        let ms = wait.all.as_millis();
        println!("{self:?}: {lost:?}; all publishers were acknowledged {ms} ms after the start");
        lost
    }
}

/// The random choices of a run, which the seed decides (xorshift), so that a user can repeat the run.
struct Chance(u64);

impl Chance {
    /// Takes the seed from the environment (`POWER_SEED`) or else from the clock.
    fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let seed = number("POWER_SEED").unwrap_or(now.as_nanos() as u64);
        println!("POWER_SEED={seed}");
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 8
    }

    fn loss(&mut self) -> Loss {
        match self.draw() % 3 {
            0 => Loss::All,
            _ => Loss::Some(self.draw()),
        }
    }
}

/// Prepares three nodes of our own server. Returns `None` if the tests run another server, or the machine
/// does not allow mounts.
fn ours() -> Option<Cluster> {
    if other().is_some() {
        println!("nats-server syncs every two minutes, so this is not asked of it");
        return None;
    }
    Cluster::new(Names::OfDirectory, None)
}

#[test]
fn power_lost() {
    let Some(mut cluster) = ours() else { return };
    let mut chance = Chance::new();
    let limit = number("POWER_SECONDS").map(Duration::from_secs);
    let start = Instant::now();
    cluster.spawn(&[0, 1, 2]);
    cluster.nodes.wait_serving();
    let urls = cluster.nodes.urls();
    let (mut all, mut lost) = (0, Lost::default());
    for chapter in 0.. {
        if chapter > 0 && limit.is_none_or(|limit| start.elapsed() > limit) {
            break;
        }
        let faults: Vec<_> = match limit {
            None => FAULTS[..CHAPTER].to_vec(),
            Some(_) => (0..CHAPTER)
                .map(|_| FAULTS[chance.draw() as usize % FAULTS.len()])
                .collect(),
        };
        let stream = format!("W{chapter}");
        cluster.nodes.add_stream(&stream, &format!("{stream}.>"));
        let (mut acked, mut next) = (Acked::new(), vec![0; PUBLISHERS]);
        for fault in faults {
            let load = Load::new(&stream, PUBLISHERS, [1, 16][chance.draw() as usize % 2]);
            acked.extend(load.run(&urls, &mut next, || {
                load.wait_acked(&cluster.nodes, 100);
                lost += fault.happen(&mut cluster, &stream, &load, &mut chance);
            }));
            // Without this wait, the next loss of power could hit the only node that has all messages.
            cluster.nodes.wait_current(&stream);
            all += 1;
        }
        check(&same_everywhere(&cluster.nodes, &stream), &acked, &next);
        cluster.nodes.remove_stream(&stream);
    }
    println!(
        "{all} losses of power in {} s: {lost:?}",
        start.elapsed().as_secs()
    );
    assert!(
        lost.pages + lost.torn > 0,
        "nothing was ever lost, so nothing was proved"
    );
}

/// Tests losses of power while nodes meet for the first time: their identities and their membership must be
/// durable before any node relies on them.
#[test]
fn power_lost_while_the_cluster_forms() {
    let rounds = number("POWER_SECONDS").map_or(3, |seconds| seconds / 10);
    let mut chance = Chance::new();
    let mut lost = Lost::default();
    for _ in 0..rounds {
        let Some(mut cluster) = ours() else { return };
        for _ in 0..3 {
            cluster.start_in_vain(&[0, 1, 2], || 1 + chance.draw() % 40);
            lost += cluster.lose_power(&[0, 1, 2], || chance.loss());
        }
        cluster.spawn(&[0, 1, 2]);
        cluster.nodes.wait_serving();
    }
    println!("{lost:?}");
}

/// Tests the checks themselves: on disks that ignore syncs, they must find the lost messages.
#[test]
fn power_lost_under_a_disk_that_lies_is_found() {
    let Some(mut cluster) = ours() else { return };
    cluster.spawn(&[0, 1, 2]);
    cluster.nodes.wait_serving();
    cluster.nodes.add_stream("L", "L.>");
    let (mut acked, mut next) = (Acked::new(), vec![0; PUBLISHERS]);
    let load = Load::new("L", PUBLISHERS, 4);
    let urls = cluster.nodes.urls();
    acked.extend(load.run(&urls, &mut next, || load.wait_acked(&cluster.nodes, 100)));
    cluster
        .disks
        .iter()
        .for_each(|disk| disk.volume().ignore_syncs());
    acked.extend(load.run(&urls, &mut next, || load.wait_acked(&cluster.nodes, 100)));
    cluster.lose_power(&[0, 1, 2], || Loss::All);
    cluster.spawn(&[0, 1, 2]);
    cluster.nodes.wait_serving();
    let content = same_everywhere(&cluster.nodes, "L");
    assert!(content.len() >= 100, "what was synced is there");
    let found = std::panic::catch_unwind(|| check(&content, &acked, &next));
    assert!(
        found.is_err(),
        "{} of {} are there, and nothing was missed",
        content.len(),
        acked.len()
    );
}

/// Tests the simulated disk with a server that acknowledges messages before it syncs them (`nats-server` with
/// its defaults): that server must lose messages.
#[cfg(feature = "lab")]
#[test]
fn power_lost_under_nats_server() {
    let program = tidegate_testing::root().join("bench/peers/go-nats/bin/nats-server");
    if !program.exists() {
        tidegate_testing::missing("nats-server (make deps-peers)");
        return;
    }
    let Some(mut cluster) = Cluster::new(Names::WithAnySync, Some(&program)) else {
        return;
    };
    cluster.spawn(&[0, 1, 2]);
    cluster.nodes.wait_serving();
    cluster.nodes.add_stream("N", "N.>");
    let mut next = vec![0; PUBLISHERS];
    // The test makes the stream durable on all disks before the first message to it.
    for disk in &cluster.disks {
        disk.volume().settle();
    }
    let load = Load::new("N", PUBLISHERS, 4);
    let urls = cluster.nodes.urls();
    let acked = load.run(&urls, &mut next, || load.wait_acked(&cluster.nodes, 300));
    let lost = cluster.lose_power(&[0, 1, 2], || Loss::All);
    cluster.spawn(&[0, 1, 2]);
    // The server may also have lost the stream itself.
    let there = cluster.nodes.until("an answer", || {
        match cluster.nodes.ask("STREAM.INFO.N", &serde_json::json!({})) {
            Ok(info) => Ok(info["state"]["messages"].as_u64().unwrap()),
            Err(e) if e.contains("10059") => Ok(0),
            Err(e) => Err(e),
        }
    });
    println!(
        "nats-server acknowledged {}, and has {there}: {lost:?}",
        acked.len()
    );
    assert!(there < acked.len() as u64, "this file system loses nothing");
}

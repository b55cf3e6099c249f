//! Tests with nodes in network namespaces that cannot reach each other: every node must have each
//! acknowledged message once, conditional publishes must be linearizable, and publishers must be able to
//! continue as long as a majority of the nodes is connected.
//!
//! `PARTITION_SECONDS=600 cargo test -p tidegate-cli --test cluster cut_off -- --nocapture` runs for that
//! long with random faults, kills and pauses among them; `PARTITION_SEED` repeats their choice.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::conditional::Fight;
use super::faults::number;
use super::load::{Acked, Load, check, same_everywhere};
use super::net::Net;
use super::nodes::Nodes;

const PUBLISHERS: usize = 3;
/// The number of faults that the test applies to one stream, before it continues with a new stream.
const CHAPTER: u64 = 3;

/// A fault in a cluster of three nodes, of which one leads the stream and two follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The network cuts the leader off from both other nodes, in both directions.
    LeaderCutOff,
    /// The network drops everything that the leader sends; the leader still gets the frames of the others.
    LeaderUnheard,
    /// The network drops all frames to the leader; the other nodes still get the leader's frames.
    LeaderDeaf,
    /// The network cuts one follower off from both other nodes.
    FollowerCutOff,
    /// The network drops everything that one follower sends.
    FollowerUnheard,
    /// The network cuts the leader and one follower off from each other; both still reach the third node.
    Symmetric,
    /// The network cuts every node off from every other one.
    All,
    LeaderKilled,
    LeaderPaused,
    AllKilled,
}

/// All kinds of faults; a short run of the test applies only the first ones.
const FAULTS: [Fault; 10] = [
    Fault::LeaderCutOff,
    Fault::LeaderDeaf,
    Fault::Symmetric,
    Fault::LeaderUnheard,
    Fault::FollowerCutOff,
    Fault::FollowerUnheard,
    Fault::All,
    Fault::LeaderKilled,
    Fault::LeaderPaused,
    Fault::AllKilled,
];

impl Fault {
    /// Applies the fault, waits until publishers continue or until they cannot continue, and ends the fault.
    fn happen(self, nodes: &mut Nodes, net: &Net, stream: &str, load: &Load) {
        let leader = nodes.leader(stream);
        let [follower, third] = [1, 2].map(|n| (leader + n) % nodes.len());
        let all = [leader, follower, third];
        match self {
            Self::LeaderCutOff => net.isolate(leader, &all),
            Self::LeaderUnheard => [follower, third]
                .into_iter()
                .for_each(|n| net.cut(leader, n)),
            Self::LeaderDeaf => [follower, third]
                .into_iter()
                .for_each(|n| net.cut(n, leader)),
            Self::FollowerCutOff => net.isolate(follower, &all),
            Self::FollowerUnheard => [leader, third]
                .into_iter()
                .for_each(|n| net.cut(follower, n)),
            Self::Symmetric => net.isolate(leader, &[follower]),
            Self::All => all.into_iter().for_each(|n| net.isolate(n, &all)),
            Self::LeaderKilled => nodes.kill(leader),
            Self::LeaderPaused => nodes.pause(leader),
            Self::AllKilled => all.into_iter().for_each(|n| nodes.kill(n)),
        }
        let since = Instant::now();
        if !matches!(self, Self::All | Self::AllKilled) {
            let wait = load.wait_resumed(nodes, since);
            println!(
                "{self:?}: publishing went on after {} ms",
                wait.all.as_millis()
            );
            load.wait_acked(nodes, 50);
        }
        net.heal();
        match self {
            Self::LeaderKilled => nodes.spawn(leader),
            Self::LeaderPaused => nodes.resume(leader),
            Self::AllKilled => all.into_iter().for_each(|n| nodes.spawn(n)),
            _ => {}
        }
        let wait = load.wait_resumed(nodes, Instant::now());
        println!(
            "{self:?}: over, and all publishers were acknowledged {} ms later",
            wait.all.as_millis()
        );
    }
}

#[test]
fn nodes_cut_off() {
    let Some(net) = Net::new(3) else { return };
    let seconds = number("PARTITION_SECONDS");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut state = number("PARTITION_SEED").unwrap_or(now.as_nanos() as u64) | 1;
    println!("PARTITION_SEED={state}");
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        FAULTS[(state % FAULTS.len() as u64) as usize]
    };
    let mut nodes = Nodes::start_at(net.places());
    let start = Instant::now();
    let limit = seconds.map(Duration::from_secs);
    for chapter in 0.. {
        if chapter > 0 && limit.is_none_or(|limit| start.elapsed() > limit) {
            println!(
                "{} faults in {} s",
                chapter * CHAPTER,
                start.elapsed().as_secs()
            );
            break;
        }
        let faults: Vec<_> = match limit {
            None => FAULTS[..CHAPTER as usize].to_vec(),
            Some(_) => (0..CHAPTER).map(|_| draw()).collect(),
        };
        let (plain, conditional) = (format!("P{chapter}"), format!("Q{chapter}"));
        nodes.add_stream(&plain, &format!("{plain}.>"));
        nodes.add_stream(&conditional, &format!("{conditional}.*"));
        let (mut acked, mut next) = (Acked::new(), vec![0; PUBLISHERS]);
        let fight = Fight::default();
        let urls = nodes.urls();
        fight.run(&conditional, &urls, || {
            for fault in &faults {
                let load = Load::new(&plain, PUBLISHERS, 4);
                acked.extend(load.run(&urls, &mut next, || {
                    load.wait_acked(&nodes, 50);
                    fault.happen(&mut nodes, &net, &plain, &load);
                }));
                nodes.wait_current(&plain);
            }
        });
        check(&same_everywhere(&nodes, &plain), &acked, &next);
        fight.check(&nodes, &conditional);
        for stream in [plain, conditional] {
            nodes.remove_stream(&stream);
        }
    }
}

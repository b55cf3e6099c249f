//! Damages a disk while its machine is off: on a copy of the disk, beside the run, a bit flips, or a file is
//! cut or gone. The node must then refuse to start, or serve the stored messages; it must do nothing else.

use tidegate_cluster::groups::GroupOf;
use tidegate_log::{SimDisk, Storage};

use crate::coverage::Coverage;
use crate::dice::Dice;
use crate::node::{Disks, Up};
use crate::oracle::{Oracles, Verdict, ensure};
use crate::world::{Node, Plan};

/// Damages one place on a disk, and returns a name of the damage for the coverage.
fn damage(disk: &SimDisk, dice: &mut Dice) -> Option<&'static str> {
    let mut names = disk.list().ok()?;
    names.sort();
    let name = &names[dice.below(names.len() as u64) as usize];
    let content = disk.content(name);
    // The harness damages nothing after the last written byte, because these bytes do not matter.
    let used = content.iter().rposition(|b| *b != 0)? as u64 + 1;
    Some(match dice.below(10) {
        0 => {
            disk.remove(name).ok()?;
            "a file is gone"
        }
        1 | 2 => {
            disk.cut(name, dice.below(used) as usize);
            "a file is cut off"
        }
        _ => {
            disk.flip(name, dice.below(used * 8) as usize);
            "a bit flips"
        }
    })
}

/// Starts a copy of a stopped node on damaged disks, and checks all messages that it serves.
pub(crate) fn damaged(
    node: &Node,
    groups: Vec<GroupOf>,
    now: u64,
    plan: Plan,
    oracles: &mut Oracles,
    dice: &mut Dice,
    seen: &mut Coverage,
) -> Verdict {
    let disks = Disks {
        state: node.disks.state.copy(),
        log: node.disks.log.copy(),
    };
    let of = if dice.chance(300) {
        &disks.state
    } else {
        &disks.log
    };
    let Some(what) = damage(of, dice) else {
        return Ok(());
    };
    let copy = node.on(disks);
    // The world's oracles judge this copy from outside only, because the code below checks for silent loss.
    let plan = Plan {
        blind: true,
        ..plan
    };
    let mut up = match Up::open(&copy, groups, now, plan, oracles) {
        Ok(Ok(up)) => up,
        Ok(Err(_)) => {
            seen.hit("damaged disks: refused");
            return Ok(());
        }
        Err(wrong) => return Err(format!("node {}, where {what}: {wrong}", node.id)),
    };
    if up.store.log().durable() < node.ledgers.durable {
        // The harness accepts the lack of the last sync: no record on the disk shows yet that the sync was
        // done, so a start cannot tell the damage from a torn write.
        seen.hit("damaged disks: the last sync is gone");
        return Ok(());
    }
    let mut refused = 0;
    for at in up.members.slots() {
        let (group, streams) = (up.members[at].group, &up.members[at].streams);
        let places: Vec<_> = streams
            .iter()
            .flat_map(|stream| {
                let state = stream.state();
                let seqs = state.first_seq.up_to(state.last_seq.next());
                seqs.filter_map(|seq| Some((stream.id(), seq, stream.place(seq)?)))
            })
            .collect();
        for (stream, seq, place) in places {
            let read = loop {
                match up.members[at].message(&mut up.store, place) {
                    Ok(Some(crc)) => break Some(crc),
                    Ok(None) => {
                        up.work();
                        up.store.poll().map_err(|e| e.to_string())?;
                    }
                    Err(_) => break None,
                }
            };
            let model = oracles.of(group).model.streams.get(&stream.get());
            let stored = model.and_then(|s| s.messages.get(&seq.get())).copied();
            ensure!(
                read.is_none() || read == stored,
                "node {}, where {what}, serves message {seq} of stream {stream} of group {group} as another",
                node.id
            );
            refused += u64::from(read.is_none());
        }
    }
    seen.hit(match refused {
        0 => "damaged disks: nothing needed was hit",
        _ => "damaged disks: messages refused",
    });
    Ok(())
}

//! Three members of a group in one process: shows how they elect a leader, and how the leader commits an
//! entry as soon as two disks have it.
//!
//! `cargo run -p tidegate-raft --example three_members`

use std::error::Error;

use bytes::Bytes;
use tidegate_cluster::groups::ALL;
use tidegate_log::{Lsn, batch_bytes};
use tidegate_raft::lab::Lab;
use tidegate_raft::replica::{Group, GroupOptions, Restored};

/// A member of the group, and the position at which its simulated log ends.
struct Member(Group, u64);

impl Member {
    fn open(id: u64) -> Self {
        let options = GroupOptions {
            group: ALL,
            id,
            voters: vec![1, 2, 3],
            uncommitted_bytes_max: 16 << 20,
            tail_bytes_max: 1 << 20,
            batch_bytes_max: 1 << 20,
            rejoined: None,
            lab: Lab::NONE,
        };
        Self(Group::open(options, Restored::default()), 0)
    }

    /// Acts as the log of the member: writes and syncs all records that the group hands out, at once.
    fn sync(&mut self) {
        let Self(group, end) = self;
        while let Some(batch) = group.poll_append() {
            let (mut at, mut positions) = (*end + 48, Vec::new());
            for record in &batch.records {
                positions.push(Lsn::new(at));
                at += record.stored_bytes();
            }
            *end += batch_bytes(&batch.records);
            group.handle_appended(&positions, Lsn::new(*end));
        }
        group.handle_durable(Lsn::new(*end));
    }
}

/// Syncs every log and delivers every message, until no message is left.
fn settle(members: &mut [Member]) {
    let mut moved = true;
    while moved {
        moved = false;
        for from in 0..members.len() {
            members[from].sync();
            while let Some((to, message)) = members[from].0.poll_message() {
                let to = usize::try_from(to).expect("an id of 1 to 3") - 1;
                // A member refuses an outdated message, and the example ignores that.
                let _ = members[to].0.step(message);
                moved = true;
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut members = [1, 2, 3].map(Member::open);
    while !members.iter().any(|member| member.0.leads()) {
        members.iter_mut().for_each(|member| member.0.tick());
        settle(&mut members);
    }
    let leader = members
        .iter()
        .position(|member| member.0.leads())
        .ok_or("no leader")?;
    let proposed = members[leader]
        .0
        .propose(Bytes::from_static(b"an entry"), 1)?;
    settle(&mut members);
    println!(
        "member {} leads and proposed entry {}",
        leader + 1,
        proposed.index
    );
    println!(
        "it has committed up to entry {}",
        members[leader].0.committed_index()
    );
    assert!(members[leader].0.committed_index() >= proposed.index);
    Ok(())
}

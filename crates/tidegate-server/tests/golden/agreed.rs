//! What all nodes of a cluster have to agree on, which is what the version of the protocol between nodes
//! stands for: what can be on the wire and in the replicated log, and what an entry does. A difference in any
//! of it needs another number: nodes of different numbers refuse each other, and nodes of one number must not
//! come to different states.

use std::fmt::Write as _;

use tidegate_server::cluster::VERSION;
use tidegate_server::stream::VERSION as ENTRY_VERSION;

use super::commands::{self, kinds, name_of};
use super::{catch_up, consensus, fixture, frames, hex};

#[test]
fn what_nodes_agree_on_has_the_protocol_s_number() {
    let mut text = String::new();
    let _ = writeln!(text, "protocol between nodes, version {VERSION}\n");
    let _ = writeln!(text, "frames: {:?}", frames::kinds());
    let _ = writeln!(text, "messages of Raft: {:?}", consensus::kinds());
    let _ = writeln!(
        text,
        "questions and answers of a node that is behind: {:?}",
        catch_up::kinds()
    );
    let _ = writeln!(text, "entries: version {ENTRY_VERSION}, with the commands");
    for kind in kinds() {
        let _ = writeln!(text, "  {} {}", kind as u8, name_of(kind));
    }
    let _ = writeln!(
        text,
        "\nwhat the entries of entries/v1 lead to:\n{}",
        commands::outcomes()
    );
    hex::check(&fixture("cluster", VERSION, "agreed.txt"), &text);
}

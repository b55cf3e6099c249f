//! Fixes the formats and rules on which all nodes of a cluster must agree, and which the version of the
//! protocol between nodes names: the frames on the wire, the entries in the replicated log, and the effect of
//! an entry. A difference in any of them needs another number: nodes with different numbers refuse each
//! other, and nodes with one number must not come to different states.

use std::fmt::Write as _;

use tidegate_cluster::VERSION;
use tidegate_stream::stream::VERSION as ENTRY_VERSION;

use super::commands::{self, kinds, name_of};
use super::{catch_up, consensus, fixture, frames, hex};

#[test]
fn the_protocol_number_covers_everything_nodes_agree_on() {
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
        commands::outcomes("entries.hex")
    );
    let _ = writeln!(
        text,
        "what the entries of entries/v1/retaining.hex lead to:\n{}",
        commands::outcomes("retaining.hex")
    );
    let _ = writeln!(
        text,
        "what the entries of entries/v1/restoring.hex lead to:\n{}",
        commands::outcomes("restoring.hex")
    );
    let _ = writeln!(
        text,
        "what the entries of entries/v1/origins.hex lead to:\n{}",
        commands::outcomes("origins.hex")
    );
    let _ = writeln!(
        text,
        "what the entries of entries/v1/flow.hex lead to:\n{}",
        commands::outcomes("flow.hex")
    );
    hex::check(&fixture("cluster", VERSION, "agreed.txt"), &text);
}

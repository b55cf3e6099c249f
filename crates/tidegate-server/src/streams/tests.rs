//! Tests how commands become entries, by the product's rules and by the rules of earlier steps of the lab.

use tidegate_raft::lab::{Lab, RaftStep};
use tidegate_stream::api::answer::ClusterInfo;
use tidegate_stream::stream::{AccountLimits, Command, Kind};

use super::*;

const NOW: Time = Time::from_nanos(1_000_000);

fn streams(step: RaftStep) -> JetStream {
    let settings = StreamSettings {
        lab: Lab {
            raft_step: step,
            ..Lab::NONE
        },
        ..StreamSettings::new("none".into())
    };
    JetStream::new(NOW, settings, Streams::new(AccountLimits::NONE), 1)
}

/// Adds this number of commands of 100 KiB. By the product's rules five of them fill an entry, by those of an
/// earlier step two.
fn add(streams: &mut JetStream, commands: usize) {
    for _ in 0..commands {
        let payload = vec![b'x'; 100 << 10];
        let command = Command::new(Kind::Publish, StreamNumber::FIRST, b"a", &payload);
        streams.command(NOW, false, &command, None);
    }
}

/// Returns the number of commands in the next entry. The entry stays the next one until the test's group
/// takes it.
fn next(streams: &mut JetStream) -> Option<usize> {
    let (entry, _) = streams.poll_proposal(NOW)?;
    Some(Entry::decode(&entry).unwrap().commands().count())
}

fn take(streams: &mut JetStream) {
    streams.handle_proposed(NOW, EntryId::new(1, 1), 1000);
}

#[test]
fn the_rest_of_full_entries_goes_with_later_commands_until_they_are_taken() {
    for (step, full, entries) in [
        (RaftStep::All, 5, &[5, 2][..]),
        (RaftStep::Combined, 2, &[2, 2]),
        (RaftStep::Unblocked, 2, &[2, 1, 1]),
    ] {
        let mut streams = streams(step);
        add(&mut streams, full + 1);
        assert_eq!(next(&mut streams), Some(full), "{step}");
        // The test's group takes the entry only after the node has added this command.
        add(&mut streams, 1);
        let taken = std::iter::from_fn(|| {
            let commands = next(&mut streams)?;
            take(&mut streams);
            Some(commands)
        });
        assert_eq!(taken.collect::<Vec<_>>(), entries, "{step}");
    }
}

#[test]
fn where_the_log_blocks_each_command_is_an_entry() {
    for (step, entries) in [
        (RaftStep::Baseline, &[1, 1, 1][..]),
        (RaftStep::OneWrite, &[1, 1, 1]),
        (RaftStep::Leftovers, &[1, 1, 1]),
        (RaftStep::Unblocked, &[2, 1]),
        (RaftStep::All, &[3]),
    ] {
        let mut streams = streams(step);
        add(&mut streams, 3);
        let taken = std::iter::from_fn(|| {
            let commands = next(&mut streams)?;
            take(&mut streams);
            Some(commands)
        });
        assert_eq!(taken.collect::<Vec<_>>(), entries, "{step}");
    }
}

#[test]
fn a_node_that_has_not_heard_from_the_others_is_not_healthy() {
    let mut streams = streams(RaftStep::All);
    assert!(streams.behind().is_some());
    streams.set_cluster(3, ClusterInfo::default(), None);
    assert_eq!(streams.behind(), None);
}

//! Tests a group with a simulated log that only assigns positions. The tests check which records the group
//! writes, in which order, and when it returns an entry as committed.

use std::collections::VecDeque;

use proptest::prelude::*;
use tidegate_cluster::groups::ALL;
use tidegate_log::Lsn;

use super::*;
use crate::lab::Lab;
use crate::replica::StepError;
use crate::replica::records::{KIND_ENTRY, KIND_HARD_STATE};

fn options() -> GroupOptions {
    GroupOptions {
        group: ALL,
        id: 1,
        voters: vec![1],
        uncommitted_bytes_max: 1000,
        tail_bytes_max: 500,
        batch_bytes_max: 300,
        rejoined: None,
        lab: Lab::NONE,
    }
}

/// Returns the next committed entry that a caller proposed, and skips the empty entries of Raft.
fn decided(group: &mut Group) -> Option<Committed> {
    std::iter::from_fn(|| group.poll_committed()).find(|c| !c.data.is_empty())
}

/// A log that assigns positions and keeps the appended records.
#[derive(Default)]
struct Paper {
    end: u64,
    ends: VecDeque<u64>,
    records: Vec<(Lsn, Record)>,
}

impl Paper {
    /// Accepts the group's next batch, if there is one, and gives the group the positions of its records.
    fn accept(&mut self, group: &mut Group) -> bool {
        let Some(batch) = group.poll_append() else {
            return false;
        };
        let mut positions = Vec::new();
        self.end += 48;
        for record in &batch.records {
            positions.push(Lsn::new(self.end));
            self.records.push((Lsn::new(self.end), record.clone()));
            self.end += record.stored_bytes();
        }
        self.ends.push_back(self.end);
        group.handle_appended(&positions, Lsn::new(self.end));
        true
    }
}

fn entry(n: u8, len: usize) -> Bytes {
    Bytes::from(vec![n; len])
}

#[test]
fn alone_it_leads_at_once_and_its_vote_stands_before_its_first_entry() {
    let mut group = Group::open(options(), Restored::default());
    assert!(group.leads());
    let batch = group.poll_append().unwrap();
    let kinds: Vec<_> = batch.records.iter().map(|r| r.kind).collect();
    assert_eq!(kinds, [KIND_HARD_STATE, KIND_ENTRY]);
    assert_eq!((batch.records[0].term, batch.records[0].index), (1, 1));
    let first = &batch.records[1];
    assert_eq!((first.term, first.index, first.payload.len()), (1, 1, 0));
    let mut log = Paper::default();
    assert!(log.accept(&mut group) && !log.accept(&mut group));
    group.handle_durable(Lsn::new(log.end));
    let committed = group.poll_committed().unwrap();
    assert_eq!((committed.index.get(), committed.data.len()), (1, 0));
    assert_eq!(group.poll_committed(), None);
    assert_eq!(group.poll_append(), None);
}

#[test]
fn nothing_is_committed_before_it_is_durable_and_all_of_it_once_it_is() {
    let mut group = Group::open(options(), Restored::default());
    let mut log = Paper::default();
    log.accept(&mut group);
    let first = group.propose(entry(1, 10), 3).unwrap();
    assert_eq!(group.poll_append().unwrap().callers, 3);
    let second = group.propose(entry(2, 10), 1).unwrap();
    assert_eq!((first.index.get(), second.index.get()), (2, 3));
    while log.accept(&mut group) {}
    let (before_last, end) = (log.ends[log.ends.len() - 2], log.end);
    group.handle_durable(Lsn::new(before_last - 1));
    assert_eq!(decided(&mut group), None);
    group.handle_durable(Lsn::new(before_last));
    let committed = decided(&mut group).unwrap();
    assert_eq!(committed.id(), first);
    assert_eq!(group.cached(committed.lsn), Some(&entry(1, 10)));
    assert_eq!(decided(&mut group), None);
    group.handle_durable(Lsn::new(end));
    assert_eq!(decided(&mut group).unwrap().data, entry(2, 10));
    assert_eq!(group.uncommitted_bytes(), 0);
}

#[test]
fn too_much_at_once_is_refused_until_something_was_taken() {
    let mut group = Group::open(options(), Restored::default());
    let mut log = Paper::default();
    group.propose(entry(1, 700), 1).unwrap();
    let refused = group.propose(entry(2, 400), 1);
    assert_eq!(refused, Err(ProposeError::Full { missing_bytes: 100 }));
    while log.accept(&mut group) {}
    group.handle_durable(Lsn::new(log.end));
    assert!(group.propose(entry(2, 400), 1).is_err(), "not yet applied");
    assert!(decided(&mut group).is_some());
    group
        .propose(entry(2, 2000), 1)
        .expect("a single one may be larger");
}

#[test]
fn a_restart_goes_on_behind_what_was_there_in_a_later_term() {
    let restored = Restored {
        hard_state: HardState {
            term: Term::new(4),
            vote: 1,
        },
        applied: EntryId::new(17, 4),
        ..Restored::default()
    };
    let mut group = Group::open(options(), restored);
    let term = Term::new(5);
    assert_eq!(group.hard_state(), HardState { term, vote: 1 });
    let proposed = group.propose(entry(1, 1), 1).unwrap();
    assert_eq!(proposed, EntryId::new(19, 5));
}

#[test]
fn a_member_with_others_does_not_lead_by_itself() {
    let options = GroupOptions {
        voters: vec![1, 2, 3],
        ..options()
    };
    let mut group = Group::open(options, Restored::default());
    assert!(!group.leads());
    let refused = group.propose(entry(1, 1), 1);
    assert_eq!(refused, Err(ProposeError::NotLeader));
}

/// Builds an answer of this kind to a message, in the message's term.
fn answer(to: &Message, kind: MessageType, index: u64) -> Message {
    let mut answer = Message::default();
    answer.set_msg_type(kind);
    (answer.from, answer.to, answer.term) = (to.to, to.from, to.term);
    answer.index = index;
    answer
}

/// Builds the leader of a group of three members, of which only follower 2 answers. The leader is settled: no
/// batch and no message of it waits any more.
fn leader(options: GroupOptions) -> (Group, Paper) {
    let (mut group, mut log) = (Group::open(options, Restored::default()), Paper::default());
    group.campaign();
    for _ in 0..20 {
        while log.accept(&mut group) {}
        group.handle_durable(Lsn::new(log.end));
        while let Some((to, message)) = group.poll_message() {
            let last = message.entries.last().map_or(message.index, |e| e.index);
            let (kind, index) = match message.get_msg_type() {
                MessageType::MsgRequestPreVote => (MessageType::MsgRequestPreVoteResponse, 0),
                MessageType::MsgRequestVote => (MessageType::MsgRequestVoteResponse, 0),
                MessageType::MsgAppend => (MessageType::MsgAppendResponse, last),
                kind => panic!("{kind:?}"),
            };
            if to == 2 {
                group.step(answer(&message, kind, index)).unwrap();
            }
        }
    }
    assert!(group.leads_settled() && group.is_durable());
    (group, log)
}

#[cfg(not(feature = "lab"))]
const LABS: [(Lab, bool); 1] = [(Lab::NONE, false)];
#[cfg(feature = "lab")]
const LABS: [(Lab, bool); 2] = {
    let lab = Lab {
        raft_step: crate::lab::RaftStep::OneWrite,
        ..Lab::NONE
    };
    [(Lab::NONE, false), (lab, true)]
};

#[test]
fn a_leader_sends_before_it_syncs_unless_it_is_to_send_after_that() {
    for (lab, sends_after_sync) in LABS {
        let (mut group, mut log) = leader(GroupOptions {
            voters: vec![1, 2, 3],
            lab,
            ..options()
        });
        let sent = |group: &mut Group| {
            let all: Vec<_> = std::iter::from_fn(|| group.poll_message()).collect();
            all.iter().map(|(_, m)| m.entries.len()).sum::<usize>()
        };
        group.propose(entry(1, 10), 1).unwrap();
        assert!(!group.is_durable());
        let before = sent(&mut group);
        assert!(log.accept(&mut group) && !group.is_durable());
        group.handle_durable(Lsn::new(log.end));
        assert!(group.is_durable());
        let after = sent(&mut group);
        let expected = if sends_after_sync { (0, 1) } else { (1, 0) };
        assert_eq!((before, after), expected);
        assert_eq!(decided(&mut group), None, "nobody else has it");
    }
}

#[test]
fn uncommitted_entries_are_written_again_and_count_once_durable() {
    for durable in [false, true] {
        let voters = vec![1, 2, 3];
        let (mut group, mut log) = leader(GroupOptions {
            voters,
            ..options()
        });
        while decided(&mut group).is_some() {}
        assert!(!group.renew(), "nothing waits");
        for n in 1..=2 {
            group.propose(entry(n, 10), 1).unwrap();
        }
        assert!(!group.renew(), "they are on their way");
        while log.accept(&mut group) {}
        group.handle_durable(Lsn::new(log.end));
        let sent: Vec<_> = std::iter::from_fn(|| group.poll_message()).collect();
        let (first, end) = (group.unapplied_from().unwrap(), Lsn::new(log.end));
        assert!(first < end && group.renew() && !group.renew());
        while log.accept(&mut group) {}
        let last = group.last_index().get();
        let again: Vec<_> = log.records.iter().filter(|r| r.0 >= end).collect();
        let terms = again.iter().map(|(_, r)| (r.kind, r.index, r.term));
        let term = group.term().get();
        let twice = [last - 1, last].map(|index| (KIND_ENTRY, index, term));
        assert!(terms.eq(twice), "{again:?}");
        if durable {
            group.handle_durable(Lsn::new(log.end));
            assert!(group.unapplied_from().unwrap() >= end);
        }
        let (_, to_second) = sent.iter().find(|(to, _)| *to == 2).unwrap();
        let answer = answer(to_second, MessageType::MsgAppendResponse, last);
        group.step(answer).unwrap();
        for n in 1..=2 {
            let committed = decided(&mut group).unwrap();
            assert_eq!(committed.data, entry(n, 10));
            assert_eq!(committed.lsn >= end, durable, "{committed:?}");
        }
        group.handle_durable(Lsn::new(log.end));
        assert!(group.is_durable());
        assert_eq!((group.unapplied_from(), group.unapplied_bytes()), (None, 0));
    }
}

/// Generates a message to member 1 with random fields, some of which may be valid.
fn any_message() -> impl Strategy<Value = Message> {
    let kinds = prop::sample::select(vec![
        MessageType::MsgHup,
        MessageType::MsgPropose,
        MessageType::MsgAppend,
        MessageType::MsgAppend,
        MessageType::MsgAppend,
        MessageType::MsgAppendResponse,
        MessageType::MsgAppendResponse,
        MessageType::MsgRequestVote,
        MessageType::MsgRequestVoteResponse,
        MessageType::MsgSnapshot,
        MessageType::MsgHeartbeat,
        MessageType::MsgHeartbeatResponse,
        MessageType::MsgTransferLeader,
        MessageType::MsgTimeoutNow,
        MessageType::MsgReadIndex,
        MessageType::MsgReadIndexResp,
        MessageType::MsgRequestPreVote,
        MessageType::MsgRequestPreVoteResponse,
    ]);
    let number = || prop_oneof![9 => 0..8u64, 1 => any::<u64>()];
    let fields = [(); 6].map(|()| number());
    let entries = prop::collection::vec((number(), 0..20usize), 0..4);
    (kinds, 1..5u64, fields, any::<bool>(), entries).prop_map(
        |(kind, from, fields, reject, entries)| {
            let [term, log_term, index, commit, commit_term, hint] = fields;
            let mut message = Message::default();
            message.set_msg_type(kind);
            (message.from, message.to, message.term) = (from, 1, term);
            (message.log_term, message.index) = (log_term, index);
            (message.commit, message.commit_term) = (commit, commit_term);
            (message.reject, message.reject_hint) = (reject, hint);
            let of = message.mut_snapshot().mut_metadata();
            (of.index, of.term) = (index, log_term);
            let entries = entries.into_iter().zip(index.saturating_add(1)..);
            let entries = entries.map(|((term, len), index)| {
                let mut entry = Entry::default();
                (entry.term, entry.index) = (term.max(log_term).min(message.term), index);
                entry.data = vec![1; len].into();
                entry
            });
            let entries: Vec<Entry> = entries.collect();
            message.set_entries(entries.into());
            message
        },
    )
}

#[derive(Clone, Debug)]
enum Happens {
    Message(Box<Message>),
    Tick(u8),
    Accept,
    Durable,
    Poll,
    Renew,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        8 => any_message().prop_map(|m| Happens::Message(Box::new(m))),
        2 => (0..20u8).prop_map(Happens::Tick),
        3 => Just(Happens::Accept),
        3 => Just(Happens::Durable),
        1 => Just(Happens::Poll),
        1 => Just(Happens::Renew),
    ]
}

#[derive(Clone, Debug)]
enum Op {
    Propose(usize),
    Accept,
    /// The log makes this many batches durable, and a part of the next batch.
    Durable(usize),
    Poll,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (1..400usize).prop_map(Op::Propose),
        Just(Op::Accept),
        (0..3usize).prop_map(Op::Durable),
        Just(Op::Poll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_message_whatsoever_ends_the_process(all in prop::collection::vec(happens(), 1..60)) {
        let options = GroupOptions { voters: vec![1, 2, 3], ..options() };
        let mut group = Group::open(options, Restored::default());
        let mut log = Paper::default();
        for happens in all {
            match happens {
                Happens::Message(message) => drop(group.step(*message)),
                Happens::Tick(times) => (0..times).for_each(|_| group.tick()),
                Happens::Accept => while log.accept(&mut group) {},
                Happens::Durable => group.handle_durable(Lsn::new(log.end)),
                Happens::Poll => while decided(&mut group).is_some() {},
                Happens::Renew => drop(group.renew()),
            }
            while let Some((to, message)) = group.poll_message() {
                prop_assert!(to != 1);
                prop_assert!(crate::replica::wire::encode(ALL, &message).is_ok());
            }
        }
    }
}

proptest! {
    #[test]
    fn proposals_come_out_in_order_and_durable(ops in prop::collection::vec(op(), 1..200)) {
        let mut group = Group::open(options(), Restored::default());
        let mut log = Paper::default();
        let (mut durable, mut proposed, mut taken) = (0, Vec::new(), 0);
        for (n, op) in ops.into_iter().enumerate() {
            match op {
                Op::Propose(len) => {
                    let data = entry(n as u8, len);
                    if let Ok(at) = group.propose(data.clone(), 1) {
                        proposed.push((at, data));
                    }
                }
                Op::Accept => { log.accept(&mut group); }
                Op::Durable(batches) => {
                    let count = batches.min(log.ends.len());
                    durable = log.ends.drain(..count).next_back().unwrap_or(durable);
                    let part = log.ends.front().map_or(0, |end| (end - durable) / 2);
                    group.handle_durable(Lsn::new(durable + part));
                }
                Op::Poll => while let Some(committed) = decided(&mut group) {
                    let (at, data) = &proposed[taken];
                    prop_assert_eq!(committed.id(), *at);
                    prop_assert_eq!(&committed.data, data);
                    let end = committed.lsn.after(records::entry(ALL, EntryId::ZERO, data.clone()).stored_bytes());
                    prop_assert!(end.get() <= durable, "committed and not durable");
                    let written = log.records.iter().find(|(lsn, _)| *lsn == committed.lsn);
                    prop_assert_eq!(&written.unwrap().1.payload, data);
                    taken += 1;
                },
            }
            let waiting: usize = proposed[taken..].iter().map(|(_, data)| data.len()).sum();
            prop_assert_eq!(group.uncommitted_bytes(), waiting as u64);
        }
        // At the end the log accepts and syncs all batches, so the group returns every proposed entry as
        // committed.
        while log.accept(&mut group) {}
        group.handle_durable(Lsn::new(log.end));
        while decided(&mut group).is_some() {
            taken += 1;
        }
        prop_assert_eq!(taken, proposed.len());
        let indices = log.records.iter().filter(|(_, r)| r.kind == KIND_ENTRY).map(|(_, r)| r.index);
        prop_assert!(indices.eq(1..=proposed.len() as u64 + 1));
    }
}

#[test]
fn a_member_that_lost_acknowledged_entries_hears_it_from_those_that_count_on_it() {
    let options = GroupOptions {
        voters: vec![1, 2, 3],
        ..options()
    };
    let mut group = Group::open(options, Restored::default());
    let mut message = Message::default();
    message.set_msg_type(MessageType::MsgHeartbeat);
    (message.from, message.to, message.term) = (2, 1, 5);
    group.step(message.clone()).unwrap();
    message.commit = 7;
    // The commit index of an earlier term's leader has no effect.
    let mut old = message.clone();
    old.term = 4;
    group.step(old).unwrap();
    let forgotten = StepError::Forgotten {
        acknowledged: Index::new(7),
        last: Index::ZERO,
    };
    assert_eq!(group.step(message), Err(forgotten));
}

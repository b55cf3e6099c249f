//! Lets a member that is behind all logs take over another member's state. The harness hands over the data
//! that connections carry in the server, a little in each tick, as far as the network lets it through.

use std::collections::BTreeMap;

use tidegate_cluster::slots::GroupSlot;
use tidegate_raft::store::{Fetch, Fetched, InstallError, Store};
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{AccountLimits, Place, Streams};

use crate::coverage::Coverage;
use crate::member::Member;

/// The most messages that the member asks for at once.
const ASKED_MAX: usize = 200;

/// The data that the member has fetched so far. Messages stay valid if the member asks another node next.
#[derive(Default)]
pub(crate) struct CatchingUp {
    places: BTreeMap<(StreamNumber, StreamSeq), Place>,
    /// The state that the store installs now, and the index of its last entry.
    pub(crate) installing: Option<(u64, Streams)>,
}

/// Returns all messages of some streams, with their places, so that the member can compare them with its own.
fn messages(streams: &Streams) -> Vec<(StreamNumber, StreamSeq, Place, u32)> {
    let mut all = Vec::new();
    for stream in streams.iter() {
        let state = stream.state();
        for seq in state.first_seq.up_to(state.last_seq.next()) {
            let message = stream.message(seq);
            all.extend(message.map(|m| (stream.id(), seq, m.place, m.bytes)));
        }
    }
    all
}

impl CatchingUp {
    /// Ends the catch-up, because the member needs no state any more or the store gave it up.
    pub(crate) fn end(member: &mut Member, store: &mut Store, seen: &mut Coverage) {
        if member.catching_up.installing.is_none() {
            store.abandon_catch_up(member.at);
            let before = std::mem::take(&mut member.catching_up);
            seen.add(
                "states not fetched to the end",
                u64::from(!before.places.is_empty()),
            );
        }
    }

    /// Advances the catch-up of `ours` with the group's state of `theirs`.
    pub(crate) fn step(
        ours: (&mut Member, &mut Store),
        theirs: (&Member, &mut Store),
        seen: &mut Coverage,
    ) -> Result<(), String> {
        let ((member, store), (other, of_other)) = (ours, theirs);
        if member.catching_up.installing.is_some() {
            return Ok(());
        }
        let Some(needed) = store.poll_catch_up(member.at) else {
            return Ok(());
        };
        if !store.begin_catch_up(member.at) {
            return Ok(());
        }
        while let Some(fetched) = store.poll_fetched(member.at) {
            let places = &mut member.catching_up.places;
            places.insert((fetched.stream, fetched.seq), fetched.place);
        }
        let of = of_other.applied(other.at);
        if of.index < needed.index {
            return Ok(());
        }
        let mut lacking = Vec::new();
        let mut moves = Vec::new();
        for (stream, seq, place, bytes) in messages(&other.streams) {
            let ours = member.streams.get(stream).and_then(|s| s.place(seq));
            let ours = ours.or_else(|| member.catching_up.places.get(&(stream, seq)).copied());
            // The member has the message already, because it fetched the message before a restart.
            match ours.or_else(|| store.apart(member.at).place(stream, seq)) {
                Some(ours) => moves.push((stream, seq, place, ours, bytes)),
                None => lacking.push((stream, seq, place)),
            }
        }
        if !lacking.is_empty() {
            fetch((member.at, store), (other.at, of_other), &lacking);
            return Ok(());
        }
        let bytes = other
            .streams
            .snapshot()
            .chunks()
            .collect::<Vec<_>>()
            .concat();
        let state = Streams::restore(&bytes, AccountLimits::NONE);
        let mut state = state.map_err(|e| format!("a state that was fetched: {e}"))?;
        let mut live = store.fresh_live();
        for (stream, seq, theirs, ours, bytes) in moves {
            state.relocate(stream, seq, theirs, ours);
            live.stored(ours, bytes);
        }
        let parts = Box::new(state.snapshot().chunks());
        match store.install(member.at, of, live, parts) {
            Ok(()) => {
                seen.hit("states taken over");
                member.catching_up.installing = Some((of.index.get(), state));
            }
            Err(InstallError::Unneeded) => {
                store.abandon_catch_up(member.at);
                member.catching_up = Self::default();
            }
            Err(_) => {}
        }
        Ok(())
    }
}

fn fetch(
    ours: (GroupSlot, &mut Store),
    theirs: (GroupSlot, &mut Store),
    lacking: &[(StreamNumber, StreamSeq, Place)],
) {
    let ((at, store), (of, other)) = (ours, theirs);
    if store.log().stats().pending_bytes > 0 {
        // The member waits, because the messages that it fetched before are not durable yet.
        return;
    }
    let (mut messages, mut bytes) = (Vec::new(), 0);
    for &(stream, seq, place) in lacking.iter().take(ASKED_MAX) {
        if let Fetch::Ready(entry) = other.read_alone(of, place) {
            bytes += entry.len() + 64;
            messages.push(Fetched { stream, seq, entry });
        }
        if bytes > 16 << 10 {
            break;
        }
    }
    if !messages.is_empty() {
        // If the log has no room, the member tries again in the next step.
        let _ = store.append_fetched(at, &messages);
    }
}

//! A node that is behind everybody's log takes over the state of another: what connections carry in the server is handed over here,
//! a little in each tick, where the network lets it through.

use std::collections::BTreeMap;

use tidegate_server::store::{Fetch, Fetched, InstallError};
use tidegate_server::stream::{AccountLimits, Place, Streams};

use crate::coverage::Coverage;
use crate::node::Up;

/// The most messages asked for at once.
const ASKED_MAX: usize = 200;

/// What was fetched so far. Messages stay good whoever is asked next.
#[derive(Default)]
pub(crate) struct CatchingUp {
    places: BTreeMap<(u32, u64), Place>,
    /// The state that is being taken over, and the entry it is as of.
    pub(crate) installing: Option<(u64, Streams)>,
}

/// All messages of some streams, and where they lie.
fn messages(streams: &Streams) -> Vec<(u32, u64, Place, u32)> {
    let mut all = Vec::new();
    for stream in streams.iter() {
        let state = stream.state();
        for seq in state.first_seq..=state.last_seq {
            let message = stream.message(seq);
            all.extend(message.map(|m| (stream.id(), seq, m.place, m.bytes)));
        }
    }
    all
}

impl CatchingUp {
    /// A step of `node`, which needs it, with what `other` has.
    pub(crate) fn step(
        &mut self,
        node: &mut Up,
        other: &mut Up,
        seen: &mut Coverage,
    ) -> Result<(), String> {
        let Some(needed) = node.store.poll_catch_up() else {
            return Ok(());
        };
        if self.installing.is_some() || !node.store.begin_catch_up() {
            return Ok(());
        }
        while let Some(fetched) = node.store.poll_fetched() {
            self.places
                .insert((fetched.stream, fetched.seq), fetched.place);
        }
        let of = other.store.applied();
        if of.0 < needed.index {
            return Ok(());
        }
        let mut lacking = Vec::new();
        let mut moves = Vec::new();
        for (stream, seq, place, bytes) in messages(&other.streams) {
            let ours = node.streams.get(stream).and_then(|s| s.place(seq));
            match ours.or_else(|| self.places.get(&(stream, seq)).copied()) {
                Some(ours) => moves.push((stream, seq, place, ours, bytes)),
                None => lacking.push((stream, seq, place)),
            }
        }
        if !lacking.is_empty() {
            fetch(node, other, &lacking);
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
        let mut live = node.store.fresh_live();
        for (stream, seq, theirs, ours, bytes) in moves {
            state.relocate(stream, seq, theirs, ours);
            live.stored(ours, bytes);
        }
        let parts = Box::new(state.snapshot().chunks());
        match node.store.install(of, live, parts) {
            Ok(()) => {
                seen.hit("states taken over");
                self.installing = Some((of.0, state));
            }
            Err(InstallError::Unneeded) => {
                node.store.abandon_catch_up();
                *self = Self::default();
            }
            Err(_) => {}
        }
        Ok(())
    }
}

fn fetch(node: &mut Up, other: &mut Up, lacking: &[(u32, u64, Place)]) {
    if node.store.log().stats().pending_bytes > 0 {
        // What was asked for before is not durable yet.
        return;
    }
    let (mut messages, mut bytes) = (Vec::new(), 0);
    for &(stream, seq, place) in lacking.iter().take(ASKED_MAX) {
        if let Fetch::Ready(entry) = other.store.read_alone(place) {
            bytes += entry.len() + 64;
            messages.push(Fetched { stream, seq, entry });
        }
        if bytes > 16 << 10 {
            break;
        }
    }
    if !messages.is_empty() {
        // Without room it is tried again.
        let _ = node.store.append_fetched(&messages);
    }
}

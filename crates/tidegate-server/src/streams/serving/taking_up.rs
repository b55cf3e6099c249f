//! Takes up the consumers of a group in parts when this node begins to lead it: a group may have a hundred
//! thousand consumers that are awake, and the first turn of a leader must not take long.
//!
//! A consumer that the node has not taken up yet is like a sleeping consumer: the node answers requests about
//! it, and takes it up at once if a client pulls from it, acknowledges or resets. A consumer counts its
//! pending messages when the node takes it up, so it misses none that come before.

use tidegate::Time;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::stream::Transit;

use super::asleep::may_sleep;
use crate::cost::{Work, spend};
use crate::cures::{cures, part};
use crate::streams::JetStream;

/// The number of consumers that a new leader takes up in one turn.
pub(super) const TAKEN_UP_A_TURN: usize = if cfg!(test) { 8 } else { 256 };
/// The number of streams and consumers at which a new leader looks in one turn to find consumers that are
/// awake.
const LOOKED_AT_A_TURN: usize = 4096;

/// The place in the list of all consumers at which a new leader goes on: behind this stream, or behind this
/// consumer of the stream.
#[derive(Debug, Default)]
pub(crate) struct Place {
    stream: Option<String>,
    consumer: Option<String>,
}

impl JetStream {
    /// Begins to take up all consumers of the group that are awake, because this node leads from now on. The
    /// first part follows at once, so that few consumers need no further turn.
    pub(crate) fn begin_taking_up(&mut self, now: Time) {
        self.role.taking_up = Some(Place::default());
        self.go_on_taking_up(now);
    }

    /// Takes up the next part of the consumers, if this node has begun to lead and has not taken up all of
    /// them.
    pub(crate) fn go_on_taking_up(&mut self, now: Time) {
        let Some(place) = self.role.taking_up.take() else {
            return;
        };
        let most = part(cures().taking_up, TAKEN_UP_A_TURN);
        let (found, next) = self.to_take_up(place, most);
        self.role.taking_up = next;
        spend(Work::TakeUp, found.len() as u64);
        for (stream, name) in found {
            self.take_up_logged(now, stream, &name);
        }
    }

    /// Finds the next consumers that are awake, at most `most` of them, from `place` on. Returns also the
    /// place behind them; `None` after the last consumer.
    fn to_take_up(
        &self,
        place: Place,
        most: usize,
    ) -> (Vec<(StreamNumber, String)>, Option<Place>) {
        let (mut found, mut looked) = (Vec::new(), 0);
        let most_looked = most.saturating_mul(LOOKED_AT_A_TURN / TAKEN_UP_A_TURN);
        // A client may have deleted the stream of the place since, and then the next stream follows.
        let begun = place.stream.as_deref().filter(|_| place.consumer.is_some());
        let begun = begun.and_then(|name| self.streams.by_name(name));
        let begun = begun.and_then(|id| self.streams.get(id));
        let mut after = place.consumer.as_deref().filter(|_| begun.is_some());
        let others = self.streams.iter_after(place.stream.as_deref());
        for stream in begun.into_iter().chain(others) {
            // The node does not serve the consumers of a stream that moves to or from another group.
            let serves = stream.transit() == Transit::None;
            let mut names = stream.consumers_after(after.take()).filter(|_| serves);
            let mut last = None;
            looked += 1;
            while found.len() < most
                && looked < most_looked
                && let Some(name) = names.next()
            {
                looked += 1;
                last = Some(name);
                let known = stream.consumer(name);
                if known.is_some_and(|known| !may_sleep(known.config(), known.state())) {
                    found.push((stream.id(), name.to_owned()));
                }
            }
            if found.len() >= most || looked >= most_looked {
                let place = Place {
                    stream: Some(stream.name().to_owned()),
                    consumer: last.map(str::to_owned),
                };
                return (found, Some(place));
            }
        }
        (found, None)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate_cluster::groups::ALL;

    use super::*;
    use crate::streams::directory::tests::World;

    /// Creates nodes with three streams of three replicas. Each stream has ten consumers that are awake on
    /// their leader, and a consumer that is asleep.
    fn world() -> World {
        let mut w = World::of(3);
        for stream in ["A", "B", "C"] {
            w.create(0, stream, 3);
            for n in 0..11 {
                let subject = format!("{}.>", stream.to_lowercase());
                let filter = if n == 5 { String::new() } else { subject };
                let name = format!("c{n:02}");
                let config = json!({"durable_name": name, "ack_policy": "explicit", "filter_subject": filter});
                let body = json!({"stream_name": stream, "config": config});
                let what = format!("CONSUMER.DURABLE.CREATE.{stream}.{name}");
                let made = w.ask(0, &what, &body);
                assert_eq!(made["name"], name, "{made}");
            }
            w.publish(0, &format!("{}.x", stream.to_lowercase()), "r.p", "x");
            w.settle();
            w.heard(0);
        }
        w
    }

    fn awake(w: &World, node: usize) -> usize {
        let streams = w.nodes[node].streams(w.slot(node, ALL));
        streams.unwrap().consumers.keys().len()
    }

    fn is_taking_up(w: &World, node: usize) -> bool {
        let streams = w.nodes[node].streams(w.slot(node, ALL)).unwrap();
        let due = streams.deadline(true) == Some(Time::ZERO);
        let taking_up = streams.role.taking_up.is_some();
        assert!(!taking_up || due, "the loop starts another turn");
        taking_up
    }

    #[test]
    fn a_new_leader_takes_up_its_consumers_in_parts() {
        let mut w = world();
        assert_eq!(awake(&w, 0), 30);
        w.follow(ALL);
        w.lead(ALL, 1);
        let (mut before, mut turns) = (0, 0);
        while is_taking_up(&w, 1) {
            let now = awake(&w, 1);
            assert!(now <= before + TAKEN_UP_A_TURN, "{before} and then {now}");
            before = now;
            w.turn();
            turns += 1;
        }
        assert_eq!(awake(&w, 1), 30);
        assert!(turns >= 30 / TAKEN_UP_A_TURN);
        // A node that leads no longer takes up no further consumer.
        w.follow(ALL);
        assert!(!is_taking_up(&w, 1));
        assert_eq!(awake(&w, 1), 0);
    }

    #[test]
    fn consumers_that_wait_to_be_taken_up_serve_clients() {
        let mut w = world();
        w.follow(ALL);
        w.lead(ALL, 1);
        assert!(is_taking_up(&w, 1) && awake(&w, 1) == TAKEN_UP_A_TURN);
        let info = r#"{"batch":1,"no_wait":true}"#;
        w.publish(1, "$JS.API.CONSUMER.MSG.NEXT.C.c10", "r.m", info);
        w.publish(1, "$JS.API.STREAM.DELETE.B", "r.d", "");
        w.settle();
        let heard = w.heard(1);
        assert!(heard.contains("$JS.ACK.C.c10.1.1.1."), "{heard}");
        assert!(heard.contains("\"success\":true"), "{heard}");
        assert!(!is_taking_up(&w, 1));
        assert_eq!(awake(&w, 1), 20);
    }
}

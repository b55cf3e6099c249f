//! Decides when a node dials its routes, the configured addresses of its peers: at the start at once, and
//! after each failure following a pause. The pause doubles up to a bound, so that an unreachable peer costs
//! little. Each pause varies a little, so that two nodes do not always dial at the same moment.

use std::time::Duration;

use tidegate::Time;

use super::Kind;

/// The pause between the first failed dial of a route and the next dial: short, because the peer may just be
/// starting.
const FIRST: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dial {
    /// The node dials the route at this time, after this many failures in a row.
    Due(Time, u32),
    /// A dial of the route is under way, after this many failures in a row.
    Trying(u32),
    Up,
    /// The route needs no channel of this kind, so the node does not dial it.
    Off,
}

/// Plans the dials of all routes: knows for each route and kind of channel the time of the next dial, or
/// that the channel is open.
#[derive(Clone, Debug)]
pub struct Redial {
    routes: Vec<[Dial; 2]>,
    longest: Duration,
    random: u64,
}

impl Redial {
    /// Creates the state of `routes` routes with channels of these kinds. The node must dial each of these
    /// channels now. The pauses between two dials of a route double up to `longest`; each pause then becomes
    /// up to a quarter longer or shorter, by chance.
    #[must_use]
    pub fn new(now: Time, routes: usize, kinds: &[Kind], longest: Duration, seed: u64) -> Self {
        let one = Kind::ALL.map(|kind| match kinds.contains(&kind) {
            true => Dial::Due(now, 0),
            false => Dial::Off,
        });
        Self {
            routes: vec![one; routes],
            longest,
            random: seed | 1,
        }
    }

    /// Returns a route that the node must dial now, with the kind of channel; `None` if no dial is due. The
    /// caller must then report the result of the dial.
    pub fn poll(&mut self, now: Time) -> Option<(usize, Kind)> {
        for (route, dials) in self.routes.iter_mut().enumerate() {
            for kind in Kind::ALL {
                if let Dial::Due(at, failures) = dials[kind.index()]
                    && at <= now
                {
                    dials[kind.index()] = Dial::Trying(failures);
                    return Some((route, kind));
                }
            }
        }
        None
    }

    /// Returns the time at which the node must next dial a route; `None` if no dial is planned.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let due = |d: &Dial| match d {
            Dial::Due(at, _) => Some(*at),
            _ => None,
        };
        self.routes.iter().flatten().filter_map(due).min()
    }

    /// Records that the channel of this kind to the route's peer is open, so that the node need not dial it.
    pub fn handle_up(&mut self, route: usize, kind: Kind) {
        self.routes[route][kind.index()] = Dial::Up;
    }

    /// Records that the dial of a route failed or that its channel is over. After a refusal the next pause is
    /// the longest one, because an operator has to remove the cause of a refusal.
    pub fn handle_down(&mut self, now: Time, route: usize, kind: Kind, refused: bool) {
        let failures = match self.routes[route][kind.index()] {
            Dial::Trying(failures) => failures,
            Dial::Up => 0,
            Dial::Due(..) | Dial::Off => return,
        };
        let pause = match refused {
            true => self.longest,
            false => (FIRST * 2_u32.saturating_pow(failures.min(16))).min(self.longest),
        };
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        // The pause varies from three quarters to five quarters of its length, so that two nodes do not dial
        // in step.
        let pause = pause * 3 / 4 + pause / 2 * (self.random >> 56) as u32 / 256;
        self.routes[route][kind.index()] = Dial::Due(now + pause, failures.saturating_add(1));
    }

    /// Ends the pause of a route, so that the node dials the route at once. The node calls this when the
    /// route's peer has dialled it, because the peer is then reachable.
    pub fn hurry(&mut self, now: Time, route: usize) {
        for dial in &mut self.routes[route] {
            if let Dial::Due(at, _) = dial {
                *at = now.min(*at);
            }
        }
    }

    /// Stops dialling the route, for both kinds of channel, because the route leads to this node itself or to
    /// a peer that another route already reaches.
    pub fn give_up(&mut self, route: usize) {
        self.routes[route] = [Dial::Off; 2];
    }

    /// Returns whether the channel of this kind to the route's peer is open, so that the node can send to
    /// the peer.
    #[must_use]
    pub fn is_up(&self, route: usize, kind: Kind) -> bool {
        self.routes[route][kind.index()] == Dial::Up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_differ() {
        let mut now = Time::from_nanos(1);
        let longest = Duration::from_secs(2);
        let mut redial = Redial::new(now, 1, &[Kind::Route], longest, 7);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            assert_eq!(redial.poll(now), Some((0, Kind::Route)));
            assert_eq!((redial.poll(now), redial.deadline()), (None, None));
            redial.handle_down(now, 0, Kind::Route, false);
            let due = redial.deadline().unwrap();
            pauses.push((due - now).as_millis());
            now = due;
        }
        for (i, pause) in pauses.iter().enumerate() {
            let middle = (50 << i).min(2000);
            assert!(
                (middle * 3 / 4..=middle * 5 / 4).contains(pause),
                "{pauses:?}"
            );
        }
        assert_ne!(pauses[7], pauses[8]);
        redial.hurry(Time::from_nanos(2), 0);
        assert_eq!(redial.poll(Time::from_nanos(2)), Some((0, Kind::Route)));
        redial.handle_up(0, Kind::Route);
        assert!(redial.is_up(0, Kind::Route) && redial.deadline().is_none());
        // After the end of an open channel the pause is the shortest one, after a refusal the longest one.
        redial.handle_down(now, 0, Kind::Route, false);
        assert!(redial.deadline().unwrap() - now < Duration::from_millis(63));
        now = redial.deadline().unwrap();
        redial.poll(now).unwrap();
        redial.handle_down(now, 0, Kind::Route, true);
        assert!(redial.deadline().unwrap() - now >= Duration::from_millis(1500));
        redial.give_up(0);
        assert_eq!(redial.deadline(), None);
    }
}

//! Simulates the network between nodes and from clients: a message arrives later, twice, out of order, or
//! never, as the current faults decide. The network decides only the times; the world carries the messages.

use crate::dice::Dice;

/// The state of the network and its present faults.
#[derive(Clone, Debug)]
pub(crate) struct Net {
    /// True where the network carries no message from the first node to the second, by their places among the
    /// nodes.
    cut: Vec<Vec<bool>>,
    /// The shortest and the longest delay of a message, in microseconds.
    pub(crate) delay_us: (u64, u64),
    /// The number of messages of a thousand that the network loses, delivers twice (`twice`), or delays for
    /// much longer (`late`).
    pub(crate) lost: u64,
    pub(crate) twice: u64,
    pub(crate) late: u64,
    /// The time of the last arrival on each link, by which the network keeps the order of messages that are
    /// not late.
    last: Vec<Vec<u64>>,
}

impl Net {
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            cut: vec![vec![false; nodes]; nodes],
            delay_us: (50, 500),
            lost: 0,
            twice: 0,
            late: 0,
            last: vec![vec![0; nodes]; nodes],
        }
    }

    /// Ends all faults of the network.
    pub(crate) fn heal(&mut self) {
        self.cut.iter_mut().for_each(|row| row.fill(false));
        (self.lost, self.twice, self.late) = (0, 0, 0);
        self.delay_us = (50, 500);
    }

    pub(crate) fn cut(&mut self, from: usize, to: usize) {
        self.cut[from][to] = true;
    }

    pub(crate) fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cut[from][to]
    }

    /// Draws the arrival times of a message between nodes: none, one or two.
    pub(crate) fn arrivals(&mut self, dice: &mut Dice, now: u64, link: (usize, usize)) -> Vec<u64> {
        let (from, to) = link;
        if self.cut[from][to] || dice.chance(self.lost) {
            return Vec::new();
        }
        let at = now + dice.range(self.delay_us.0, self.delay_us.1);
        let mut arrivals = if dice.chance(self.late) {
            // A late message overtakes no message, and other messages overtake it.
            vec![at + dice.range(1_000, 400_000)]
        } else {
            let at = at.max(self.last[from][to]);
            self.last[from][to] = at;
            vec![at]
        };
        if dice.chance(self.twice) {
            arrivals.push(at + dice.range(0, 300_000));
        }
        arrivals
    }
}

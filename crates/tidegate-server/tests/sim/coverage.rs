//! Counts the situations that seeds reach, because a situation that no seed reached is not tested.

use std::collections::BTreeMap;
use std::fmt;

/// The counts of situations by name: how often, and in how many seeds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage(BTreeMap<&'static str, (u64, u64)>);

impl Coverage {
    pub(crate) fn hit(&mut self, what: &'static str) {
        self.add(what, 1);
    }

    pub(crate) fn add(&mut self, what: &'static str, times: u64) {
        if times > 0 {
            let count = self.0.entry(what).or_insert((0, 1));
            count.0 += times;
        }
    }

    pub(crate) fn of(&self, what: &'static str) -> u64 {
        self.0.get(what).map_or(0, |c| c.0)
    }

    /// Adds the counts of another seed to these counts.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (what, (times, seeds)) in &other.0 {
            let count = self.0.entry(what).or_default();
            count.0 += times;
            count.1 += seeds;
        }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, (times, seeds)) in &self.0 {
            writeln!(f, "  {what:<44} {times:>10} in {seeds:>6} seeds")?;
        }
        Ok(())
    }
}

//! Reads the table of costs: the time that each work of the event loop takes, as measured on a machine.
//! `tidegate-bench costs` prints the table, and the simulation reads it.

use crate::cost::Work;

/// The cost of each work of the event loop, in picoseconds, by which the simulation advances its clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs([u64; Work::ALL.len()]);

/// The reason why the simulation cannot read a text as a table of costs, so that a mistake in the file is
/// found at once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CostsError {
    /// The table is wrong in the line with this number, which is neither empty, nor a comment, nor the name
    /// of a work and its cost.
    #[error("line {0} is not the name of a work and its cost in picoseconds, such as `Copy 90000`")]
    Line(usize),
    /// The table has no cost for the work of this name.
    #[error("the table of costs has no line for the work {0}")]
    Missing(String),
}

impl Costs {
    /// Reads a table for the simulation: a line for each work, with its name and its cost in picoseconds.
    /// Lines that begin with `#` are comments, which name the machine and the date.
    ///
    /// # Errors
    /// A line that is no cost, or a work without a line.
    pub fn parse(text: &str) -> Result<Self, CostsError> {
        let mut costs = [None; Work::ALL.len()];
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || CostsError::Line(at + 1);
            let (name, cost) = line.split_once(' ').ok_or_else(wrong)?;
            let named = |work: &&Work| format!("{work:?}") == name;
            let work = Work::ALL.iter().find(named).ok_or_else(wrong)?;
            costs[*work as usize] = Some(cost.trim().parse::<u64>().map_err(|_| wrong())?);
        }
        let mut table = [0; Work::ALL.len()];
        for work in Work::ALL {
            let cost = costs[work as usize];
            table[work as usize] = cost.ok_or_else(|| CostsError::Missing(format!("{work:?}")))?;
        }
        Ok(Self(table))
    }

    /// Returns the table with another cost of one work, in picoseconds, so that a test can make a work dear.
    #[must_use]
    pub const fn with(mut self, work: Work, ps: u64) -> Self {
        self.0[work as usize] = ps;
        self
    }

    /// Returns the cost of one work of the event loop, in picoseconds, by which the machine advances its
    /// clock.
    #[must_use]
    pub const fn ps(&self, work: Work) -> u64 {
        self.0[work as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_line_for_each_work() {
        let text: Vec<String> = Work::ALL
            .iter()
            .map(|work| format!("{work:?} {}", 7 + *work as u64))
            .collect();
        let text = text.join("\n");
        let costs = Costs::parse(&format!("# a machine\n\n{text}")).unwrap();
        assert_eq!(costs.ps(Work::Turn), 7);
        assert_eq!(costs.ps(Work::Page), 6 + Work::ALL.len() as u64);
        let missing = text.replace("Turn 7\n", "");
        let missing = Costs::parse(&missing);
        assert_eq!(missing, Err(CostsError::Missing("Turn".into())));
        let wrong = text.replace("Turn 7", "Turn soon");
        assert_eq!(Costs::parse(&wrong), Err(CostsError::Line(1)));
    }
}

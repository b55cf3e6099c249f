//! A text log of the decisions of several boundaries, written while the boundaries decide, so that a
//! developer can read or replay them later.
//!
//! ```text
//! tidegate-decisions 1
//! sync begins 1 18446744073709551615 8388608 1000000000 1
//! sync 1500 ready 40 0 1200 > 32 18446744073709551615 1 now limit
//! sync lost 12
//! ```
//!
//! Each line names its boundary. `begins` has the bounds: the least and the greatest number of items in a
//! batch, bytes, age in nanoseconds, and batches in flight. Each other line has an entry, in the form of a
//! [log of one controller](crate::controller::write_log). `lost` counts the entries that came faster than the
//! writer of the text could take them.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use crate::controller::{Bounds, Decision, Entry, Event, LogError};
use crate::{Time, nanos};

/// The first line of the text of a decision log, by which a reader recognizes the format and its version.
pub const DECISIONS_HEADER: &str = "tidegate-decisions 1";

/// Takes the decisions of boundaries, for a thread that writes them: see [`Boundary::log_to`].
///
/// ```
/// use tidegate::Time;
/// use tidegate::boundary::{Boundary, Cut, DECISIONS_HEADER, DecisionLog, read_decisions};
/// use tidegate::controller::{Bounded, Bounds, Greedy, Load, replay};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (log, mut lines) = DecisionLog::new(1000);
/// let mut boundary = Boundary::new(Greedy.controller(), Bounds::items(1, 64))?;
/// boundary.log_to(&log, "rows");
/// boundary.poll(Time::ZERO, Load::items(3), Time::ZERO)?;
/// boundary.ran(Time::ZERO, Load::items(3), Load::default(), Cut::Drained, 500, true)?;
///
/// // A thread of its own would write these lines to a file.
/// let mut text = format!("{DECISIONS_HEADER}\n");
/// while let Some(line) = lines.try_next() {
///     text += &format!("{line}\n");
/// }
/// let runs = read_decisions(&text)?;
/// assert_eq!((&*runs[0].boundary, runs[0].entries.len()), ("rows", 3));
/// let mut again = Bounded::new(Greedy.controller(), runs[0].bounds)?;
/// replay(&mut again, &runs[0].entries)?;
/// # Ok(())
/// # }
/// ```
///
/// [`Boundary::log_to`]: super::Boundary::log_to
#[derive(Clone, Debug)]
pub struct DecisionLog {
    lines: SyncSender<DecisionLine>,
}

impl DecisionLog {
    /// Creates a log that holds at most `capacity` lines, of some 150 bytes each, until they are read. If the
    /// log is full, a boundary leaves its entry out and counts it.
    #[must_use]
    pub fn new(capacity: usize) -> (Self, DecisionLines) {
        let (sender, receiver) = sync_channel(capacity);
        (Self { lines: sender }, DecisionLines { receiver })
    }
}

/// The reading end of a [`DecisionLog`], for the thread that writes its lines.
#[derive(Debug)]
pub struct DecisionLines {
    receiver: Receiver<DecisionLine>,
}

impl DecisionLines {
    /// Returns the next line of the log without waiting; `None` if no line is ready.
    pub fn try_next(&mut self) -> Option<DecisionLine> {
        self.receiver.try_recv().ok()
    }
}

impl Iterator for DecisionLines {
    type Item = DecisionLine;

    /// Waits for the next line; returns `None` once the log and all its boundaries are gone.
    fn next(&mut self) -> Option<DecisionLine> {
        self.receiver.recv().ok()
    }
}

/// One line of the text of a decision log; `Display` writes it without a line feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionLine {
    boundary: Arc<str>,
    content: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Begins(Bounds),
    Entry(Entry),
    Lost(u64),
}

impl fmt::Display for DecisionLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.boundary)?;
        match &self.content {
            Content::Begins(bounds) => {
                let Bounds {
                    items_min,
                    items_max,
                    bytes_max,
                    age_max,
                    in_flight_max: _,
                } = bounds;
                let (age, in_flight) = (nanos(*age_max), bounds.in_flight());
                write!(
                    f,
                    "begins {items_min} {items_max} {bytes_max} {age} {in_flight}"
                )
            }
            Content::Entry(entry) => write!(f, "{entry}"),
            Content::Lost(entries) => write!(f, "lost {entries}"),
        }
    }
}

/// The writer of one boundary's decisions into a [`DecisionLog`], which other boundaries share.
#[derive(Clone, Debug)]
pub(super) struct Track {
    boundary: Arc<str>,
    lines: SyncSender<DecisionLine>,
    /// The number of entries that the boundary has left out of the log since its last line there, because the
    /// log was full. A line `lost` then reports this number.
    lost: u64,
}

impl Track {
    pub(super) fn new(log: &DecisionLog, boundary: &str, bounds: Bounds) -> Self {
        let mut track = Self {
            boundary: boundary.into(),
            lines: log.lines.clone(),
            lost: 0,
        };
        track.put(Content::Begins(bounds));
        track
    }

    pub(super) fn note(&mut self, now: Time, event: Event, decision: Decision) {
        if self.lost > 0 {
            let lost = self.lost;
            if !self.put(Content::Lost(lost)) {
                return;
            }
            self.lost = 0;
        }
        self.put(Content::Entry(Entry {
            now,
            event,
            decision,
        }));
    }

    /// Adds a line to the log, or counts it as lost if the log is full, so that a boundary never waits for
    /// the reader. Returns whether there was room.
    fn put(&mut self, content: Content) -> bool {
        let boundary = Arc::clone(&self.boundary);
        match self.lines.try_send(DecisionLine { boundary, content }) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.lost += 1;
                false
            }
            // No thread reads the lines any more, so the boundary drops the line without counting it.
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}

/// The decisions of one controller of a boundary, as [`read_decisions`] finds them, for a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The name of the boundary that made the decisions, as the driver gave it to `log_to`.
    pub boundary: String,
    /// The bounds within which the controller decided, for a controller that replays the decisions.
    pub bounds: Bounds,
    /// The decisions of the controller, from its first decision to the first gap in the log, for a replay.
    pub entries: Vec<Entry>,
    /// True if the log lacks decisions after `entries`, because it was full when the boundary made them.
    pub is_cut: bool,
}

/// Reads the decisions of all boundaries from the text of a decision log. A boundary that began several times
/// has several runs. An incomplete last line is left out.
///
/// # Errors
/// The text is not a log of decisions, or a line is not one of its lines. The error has the number of the
/// first such line.
pub fn read_decisions(text: &str) -> Result<Vec<Run>, LogError> {
    let mut lines = text.split_inclusive('\n').enumerate();
    match lines.next() {
        Some((_, first)) if first.trim_end() == DECISIONS_HEADER => {}
        _ => return Err(LogError::Header),
    }
    let mut runs: Vec<Run> = Vec::new();
    for (at, line) in lines {
        let Some(line) = line.strip_suffix('\n') else {
            break;
        };
        let wrong = LogError::Line { line: at + 1 };
        let (boundary, rest) = line.split_once(' ').ok_or(wrong)?;
        if let Some(bounds) = rest.strip_prefix("begins ") {
            runs.push(Run {
                boundary: boundary.to_owned(),
                bounds: parse_bounds(bounds).ok_or(wrong)?,
                entries: Vec::new(),
                is_cut: false,
            });
            continue;
        }
        let run = runs.iter_mut().rev().find(|run| run.boundary == boundary);
        let run = run.ok_or(wrong)?;
        if let Some(lost) = rest.strip_prefix("lost ") {
            lost.parse::<u64>().map_err(|_| wrong)?;
            run.is_cut = true;
        } else {
            let entry = rest.parse().map_err(|_| wrong)?;
            if !run.is_cut {
                run.entries.push(entry);
            }
        }
    }
    Ok(runs)
}

/// Parses the numbers of a line `begins`.
pub(crate) fn parse_bounds(text: &str) -> Option<Bounds> {
    let numbers: Option<Vec<u64>> = text.split(' ').map(|word| word.parse().ok()).collect();
    let [items_min, items_max, bytes_max, age, in_flight] = numbers?[..] else {
        return None;
    };
    Some(Bounds {
        items_min,
        items_max,
        bytes_max,
        age_max: Duration::from_nanos(age),
        in_flight_max: Some(in_flight.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::{Boundary, Cut};
    use crate::controller::{Bounded, Knee, Load, Objective, replay};

    const BOUNDS: Bounds = Bounds::items(1, 64);

    fn knee() -> Knee {
        Knee::new(Objective::Lean, BOUNDS).unwrap().anticipating()
    }

    fn drive(boundary: &mut Boundary<Knee>, from: u64, batches: u64) {
        for n in from..from + batches {
            let now = Time::from_nanos(n * 10_000);
            let load = Load::items(1 + n * 7 % 40);
            boundary.arrived(now, load).unwrap();
            boundary.poll(now, load, now).unwrap();
            let cost = 2000 + 100 * load.items;
            let cut = Cut::Drained;
            boundary
                .ran(now, load, Load::default(), cut, cost, true)
                .unwrap();
        }
    }

    fn text(lines: &mut DecisionLines) -> String {
        let mut text = format!("{DECISIONS_HEADER}\n");
        while let Some(line) = lines.try_next() {
            text += &format!("{line}\n");
        }
        text
    }

    #[test]
    fn the_decisions_of_two_boundaries_replay() {
        let (log, mut lines) = DecisionLog::new(10_000);
        let mut boundaries = ["rows", "acks"].map(|name| {
            let mut boundary = Boundary::new(knee(), BOUNDS).unwrap();
            boundary.log_to(&log, name);
            (name, boundary)
        });
        for from in 0..20 {
            for (_, boundary) in &mut boundaries {
                drive(boundary, from * 10, 10);
            }
        }
        // A new boundary with a new controller takes the same name, so the text has another line `begins` for
        // it.
        boundaries[0].1 = Boundary::new(knee(), BOUNDS).unwrap();
        boundaries[0].1.log_to(&log, "rows");
        drive(&mut boundaries[0].1, 0, 10);
        let text = text(&mut lines);
        let runs = read_decisions(&text).unwrap();
        let found: Vec<_> = runs
            .iter()
            .map(|r| (&*r.boundary, r.entries.len()))
            .collect();
        assert_eq!(found, [("rows", 800), ("acks", 800), ("rows", 40)]);
        for run in &runs {
            assert!(!run.is_cut);
            let mut again = Bounded::new(knee(), run.bounds).unwrap();
            replay(&mut again, &run.entries).unwrap();
        }
        // The last line may be half written; any other line must be whole.
        let half = &text[..text.len() - 9];
        assert_eq!(read_decisions(half).unwrap()[2].entries.len(), 39);
        for (wrong, error) in [
            ("", LogError::Header),
            ("tidegate-log 2\n", LogError::Header),
            (
                "tidegate-decisions 1\nrows begins 1 2\n",
                LogError::Line { line: 2 },
            ),
            (
                "tidegate-decisions 1\nrows lost 1\n",
                LogError::Line { line: 2 },
            ),
            (
                "tidegate-decisions 1\nrows begins 1 2 3 4 1\nrows lost x\n",
                LogError::Line { line: 3 },
            ),
        ] {
            assert_eq!(read_decisions(wrong), Err(error), "{wrong}");
        }
    }

    #[test]
    fn a_full_log_counts_the_decisions_that_it_lacks() {
        let (log, mut lines) = DecisionLog::new(10);
        let mut boundary = Boundary::new(knee(), BOUNDS).unwrap();
        boundary.log_to(&log, "rows");
        drive(&mut boundary, 0, 10);
        let mut whole = text(&mut lines);
        drive(&mut boundary, 10, 1);
        let rest = text(&mut lines);
        assert!(rest.contains("rows lost 31\n"), "{rest}");
        whole += rest.split_once('\n').unwrap().1;
        let runs = read_decisions(&whole).unwrap();
        assert!(runs[0].is_cut && runs[0].entries.len() == 9, "{runs:?}");
        let mut again = Bounded::new(knee(), runs[0].bounds).unwrap();
        replay(&mut again, &runs[0].entries).unwrap();
        // Without a reader of the log the boundary decides as before.
        drop(lines);
        drive(&mut boundary, 11, 10);
    }
}

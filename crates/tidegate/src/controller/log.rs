//! The event log of a controller: every event and the decision on it, so that the decisions replay bit for
//! bit.
//!
//! Each entry is one line, so that ordinary tools can read, cut and compare logs:
//!
//! ```text
//! tidegate-log 2
//! 1500 ready 40 0 1200 > 32 18446744073709551615 1 now limit
//! 1500 started 7 32 0 8 0 limit > 32 18446744073709551615 1 now limit
//! ```
//!
//! An entry has the time in nanoseconds, the event with its numbers in the order of its fields, `>`, then the
//! limits, the start and the reason.

use std::fmt;
use std::str::{FromStr, SplitAsciiWhitespace};

use super::{BatchId, Controller, Decision, Event, Load, Reason, SizeCosts, Snapshot, When};
use crate::Time;

/// The start of the header line in every version of the log. The number of the version follows, so that a
/// reader can name a version that it does not know.
const HEADER: &str = "tidegate-log ";

/// The version of the log's format that this release writes and reads. A reader refuses other versions.
const VERSION: u32 = 2;

/// One event of a controller and the decision on that event: a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The time of the event.
    pub now: Time,
    /// The event that the driver reported to the controller.
    pub event: Event,
    /// The decision with which the controller answered the event.
    pub decision: Decision,
}

/// Records the first events and decisions of a controller, from its creation on, up to a number of entries.
///
/// The log holds neither the objective nor the bounds: a replay needs a controller that is built with the
/// same objective and bounds. An actor reports the arrivals of calls only, so casts leave no
/// [`Event::Arrived`] in its log.
///
/// ```
/// use tidegate::Time;
/// use tidegate::controller::{Controller, Event, Fixed, Load, Recorder, read_log, replay, write_log};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut recorder = Recorder::new(Fixed::new(10).controller(), 1000);
/// let backlog = Load::items(8);
/// recorder.on(Time::ZERO, Event::Ready { backlog, oldest: Time::ZERO });
/// let text = write_log(recorder.log());
/// assert_eq!(read_log(&text)?, recorder.log());
///
/// // The same rule decides the same; another one is named by its first other decision.
/// replay(&mut Fixed::new(10).controller(), recorder.log())?;
/// assert!(replay(&mut Fixed::new(9).controller(), recorder.log()).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Recorder<C> {
    inner: C,
    log: Vec<Entry>,
    capacity: usize,
    omitted: u64,
}

impl<C: Controller> Recorder<C> {
    /// Records the first `capacity` entries of `inner`, a controller; a rule becomes a controller by its
    /// method `controller()`. A replay needs the log from the start, so the recorder leaves later entries out
    /// and counts them ([`omitted`](Self::omitted)): the log of a long run shows only its beginning. Each
    /// event is one entry of some 120 bytes.
    #[must_use]
    pub fn new(inner: C, capacity: usize) -> Self {
        Self {
            inner,
            log: Vec::with_capacity(capacity.min(1024)),
            capacity,
            omitted: 0,
        }
    }

    /// Returns the entries that the recorder has recorded so far, the oldest first.
    pub fn log(&self) -> &[Entry] {
        &self.log
    }

    /// Returns the number of entries that the recorder left out because the log was full.
    pub const fn omitted(&self) -> u64 {
        self.omitted
    }

    /// Returns the controller that the recorder wraps, to read its state.
    pub const fn inner(&self) -> &C {
        &self.inner
    }

    /// Returns the controller that the recorder wraps, for further use, and drops the log.
    #[must_use]
    pub fn into_inner(self) -> C {
        self.inner
    }
}

impl<C: Controller> Controller for Recorder<C> {
    fn on(&mut self, now: Time, event: Event) -> Decision {
        let decision = self.inner.on(now, event);
        if self.log.len() < self.capacity {
            self.log.push(Entry {
                now,
                event,
                decision,
            });
        } else {
            self.omitted += 1;
        }
        decision
    }

    fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }

    fn size_costs(&self) -> SizeCosts {
        self.inner.size_costs()
    }

    fn wants_arrivals(&self) -> bool {
        self.inner.wants_arrivals()
    }

    fn stuck_at(&self) -> Time {
        self.inner.stuck_at()
    }
}

/// Runs `controller` through the log again, from its state at the beginning of the log.
///
/// # Errors
/// The first entry of the log that `controller` decides differently.
pub fn replay(controller: &mut impl Controller, log: &[Entry]) -> Result<(), Box<Divergence>> {
    for (at, entry) in log.iter().enumerate() {
        let decided = controller.on(entry.now, entry.event);
        if decided != entry.decision {
            return Err(Box::new(Divergence {
                at,
                entry: *entry,
                decided,
            }));
        }
    }
    Ok(())
}

/// The first entry that a replay decides differently from the log, as the error of the replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The index of the entry in the log that the replay decides differently.
    pub at: usize,
    /// The entry as the log has it.
    pub entry: Entry,
    /// The decision that the replay made instead of the logged decision.
    pub decided: Decision,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "entry {} was decided differently: logged `{}`, replayed `{}`",
            self.at,
            self.entry,
            Text(self.decided)
        )
    }
}

impl std::error::Error for Divergence {}

/// Writes the log as text: a header line, then one line for each entry.
#[must_use]
pub fn write_log(log: &[Entry]) -> String {
    use fmt::Write as _;
    let mut out = format!("{HEADER}{VERSION}\n");
    for entry in log {
        // Writing to a `String` cannot fail, so the result needs no check.
        let _ = writeln!(out, "{entry}");
    }
    out
}

/// Reads the entries of a log from its text.
///
/// # Errors
/// The text is not an event log or has another version, or a line is not an entry. The error has the
/// number of the first such line.
pub fn read_log(text: &str) -> Result<Vec<Entry>, LogError> {
    let mut lines = text.lines();
    let version = lines.next().and_then(|first| first.strip_prefix(HEADER));
    let version = version.and_then(|v| v.parse().ok());
    match version.ok_or(LogError::Header)? {
        VERSION => {}
        found => {
            let expected = VERSION;
            return Err(LogError::Version { found, expected });
        }
    }
    lines
        .enumerate()
        .map(|(i, l)| {
            l.parse()
                .map_err(|_: EntryError| LogError::Line { line: i + 2 })
        })
        .collect()
}

/// The errors of a text that is not an event log of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogError {
    /// The first line is not the header of an event log.
    Header,
    /// The text is an event log of another version.
    Version {
        /// The version of the format that the header of the text names.
        found: u32,
        /// The version of the format that this release reads.
        expected: u32,
    },
    /// A line of the text is not an entry.
    Line {
        /// The number of the line that is not an entry, counted from 1.
        line: usize,
    },
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => write!(
                f,
                "not an event log: the first line is not `{HEADER}{VERSION}`"
            ),
            Self::Version { found, expected } => write!(
                f,
                "an event log of version {found}: this release reads version {expected}, record the log again"
            ),
            Self::Line { line } => write!(f, "line {line} is not an entry of an event log"),
        }
    }
}

impl std::error::Error for LogError {}

struct Text<T>(T);

impl fmt::Display for Text<Decision> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let d = self.0;
        write!(f, "{} {} {} ", d.limit_items, d.limit_bytes, d.in_flight)?;
        match d.when {
            When::Now => write!(f, "now")?,
            When::At(t) => write!(f, "at {}", t.as_nanos())?,
            When::After { items, until } => write!(f, "after {items} {}", until.as_nanos())?,
        }
        write!(f, " {}", d.reason)
    }
}

impl fmt::Display for Text<Load> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.items, self.0.bytes)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.now.as_nanos())?;
        match self.event {
            Event::Arrived(load) => write!(f, "arrived {}", Text(load))?,
            Event::Ready { backlog, oldest } => {
                write!(f, "ready {} {}", Text(backlog), oldest.as_nanos())?
            }
            Event::Started {
                id,
                batch,
                left,
                reason,
            } => {
                let id = id.get();
                write!(f, "started {id} {} {} {reason}", Text(batch), Text(left))?;
            }
            Event::Done { id, cost_ns, ok } => {
                write!(f, "done {} {cost_ns} {}", id.get(), u8::from(ok))?;
            }
            Event::Blocking => write!(f, "blocking")?,
            Event::Replied {
                items,
                batch,
                took_ns,
            } => write!(f, "replied {items} {batch} {took_ns}")?,
            Event::Expected { items } => write!(f, "expected {items}")?,
        }
        write!(f, " > {}", Text(self.decision))
    }
}

impl FromStr for Entry {
    type Err = EntryError;

    /// Reads one line of an event log as an entry.
    fn from_str(line: &str) -> Result<Self, EntryError> {
        let mut w = Words(line.split_ascii_whitespace());
        let now = w.time()?;
        let event = match w.word()? {
            "arrived" => Event::Arrived(w.load()?),
            "ready" => Event::Ready {
                backlog: w.load()?,
                oldest: w.time()?,
            },
            "started" => Event::Started {
                id: w.id()?,
                batch: w.load()?,
                left: w.load()?,
                reason: w.reason()?,
            },
            "done" => Event::Done {
                id: w.id()?,
                cost_ns: w.number()?,
                ok: w.number()? == 1,
            },
            "blocking" => Event::Blocking,
            "replied" => Event::Replied {
                items: w.number()?,
                batch: w.number()?,
                took_ns: w.number()?,
            },
            "expected" => Event::Expected { items: w.number()? },
            found => return Err(EntryError::new("an event", Some(found))),
        };
        match w.word()? {
            ">" => {}
            found => return Err(EntryError::new("`>`", Some(found))),
        }
        let (limit_items, limit_bytes) = (w.number()?, w.number()?);
        let in_flight = w.parse("a number below 2^32")?;
        let when = match w.word()? {
            "now" => When::Now,
            "at" => When::At(w.time()?),
            "after" => When::After {
                items: w.number()?,
                until: w.time()?,
            },
            found => {
                let expected = "`now`, `at` or `after`";
                return Err(EntryError::new(expected, Some(found)));
            }
        };
        let decision = Decision {
            limit_items,
            limit_bytes,
            in_flight,
            when,
            reason: w.reason()?,
        };
        match w.0.next() {
            None => Ok(Self {
                now,
                event,
                decision,
            }),
            found => Err(EntryError::new("the end of the line", found)),
        }
    }
}

/// The error of a line that is not an entry of an event log, with the word that the reader expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryError {
    expected: &'static str,
    /// The start of the unexpected word; `None` if the line ended too early.
    found: Option<String>,
}

impl EntryError {
    fn new(expected: &'static str, found: Option<&str>) -> Self {
        let found = found.map(|word| word.chars().take(FOUND_MAX).collect());
        Self { expected, found }
    }
}

/// The greatest number of characters of an unexpected word that the error repeats, so that its text stays
/// short.
const FOUND_MAX: usize = 40;

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "not an entry of an event log: expected {}, ",
            self.expected
        )?;
        match &self.found {
            Some(word) => write!(f, "found `{}`", word.escape_debug()),
            None => f.write_str("found the end of the line"),
        }
    }
}

impl std::error::Error for EntryError {}

struct Words<'a>(SplitAsciiWhitespace<'a>);

impl<'a> Words<'a> {
    fn next(&mut self, expected: &'static str) -> Result<&'a str, EntryError> {
        self.0.next().ok_or_else(|| EntryError::new(expected, None))
    }

    fn word(&mut self) -> Result<&'a str, EntryError> {
        self.next("a word")
    }

    fn parse<N: FromStr>(&mut self, expected: &'static str) -> Result<N, EntryError> {
        let word = self.next(expected)?;
        word.parse()
            .map_err(|_| EntryError::new(expected, Some(word)))
    }

    fn number(&mut self) -> Result<u64, EntryError> {
        self.parse("a number")
    }

    fn time(&mut self) -> Result<Time, EntryError> {
        self.number().map(Time::from_nanos)
    }

    fn id(&mut self) -> Result<BatchId, EntryError> {
        self.number().map(BatchId::new)
    }

    fn load(&mut self) -> Result<Load, EntryError> {
        Ok(Load::new(self.number()?, self.number()?))
    }

    fn reason(&mut self) -> Result<Reason, EntryError> {
        let name = self.next("a reason")?;
        let reason = Reason::ALL.iter().find(|reason| reason.as_str() == name);
        reason
            .copied()
            .ok_or_else(|| EntryError::new("a reason", Some(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_of_another_version_is_refused_by_its_number() {
        let read = |text: &str| read_log(text).unwrap_err();
        let of_version = |found| LogError::Version { found, expected: 2 };
        assert_eq!(read("tidegate-log 1\n5 blocking"), of_version(1));
        assert_eq!(read("tidegate-log 3\n"), of_version(3));
        assert!(of_version(1).to_string().contains("version 1"));
        for text in [
            "",
            "\n",
            "tidegate-log",
            "tidegate-log two",
            "1500 blocking",
        ] {
            assert_eq!(read(text), LogError::Header, "{text:?}");
        }
        assert_eq!(read("tidegate-log 2\nnonsense"), LogError::Line { line: 2 });
        assert_eq!(read_log("tidegate-log 2\n"), Ok(Vec::new()));
    }

    #[test]
    fn a_line_that_is_no_entry_says_where_it_goes_wrong() {
        let says = |line: &str, what: &str| {
            let error = line.parse::<Entry>().unwrap_err();
            let error: Box<dyn std::error::Error> = Box::new(error);
            assert!(error.to_string().contains(what), "{line}: {error}");
        };
        let good = "5 blocking > 1 1 1 now drained";
        assert_eq!(good.parse::<Entry>().unwrap().to_string(), good);
        says("", "expected a number, found the end of the line");
        says("soon", "expected a number, found `soon`");
        says("5 sleeping", "expected an event, found `sleeping`");
        says("5 blocking < 1", "expected `>`, found `<`");
        says("5 blocking > 1 1 4294967296", "below 2^32");
        says("5 blocking > 1 1 1 later", "found `later`");
        says("5 blocking > 1 1 1 now tired", "expected a reason");
        says("5 blocking > 1 1 1 now drained 6", "found `6`");
        says(&"x".repeat(1000), &format!("`{}`", "x".repeat(40)));
    }
}

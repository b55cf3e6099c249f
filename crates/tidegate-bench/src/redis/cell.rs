//! Lists the cells of the bench `redis`: combinations of a command, a size of values, a round trip and a
//! number of callers. The callers either call again as soon as they have an answer (a closed loop), or send
//! commands at a fixed rate (an open loop).

use std::time::Duration;

/// One cell of the bench `redis`, in which the bench compares the clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell {
    command: &'static str,
    pub(super) value_bytes: usize,
    pub(super) round_trip: Duration,
    callers: usize,
    /// The number of commands that are due in a second in an open loop; `None` in a closed loop.
    pub(super) rate: Option<u32>,
    /// True if the cell compares our client's policy with many fixed delays of our own client (a sweep)
    /// instead of the rivals.
    pub(super) sweep: bool,
}

/// Each command that callers send in the cells: its name in reports, and its name in requests to peers.
const COMMANDS: [(&str, &str); 4] = [
    ("PUBLISH", "publish"),
    ("GET", "get"),
    ("SET", "set"),
    ("GET:SET 80:20", "mix"),
];

/// The suffix of the names of cells that compare a policy with many fixed delays.
pub(super) const SWEEP: &str = ", sweep";

const RATE: u32 = 100_000;
/// The low rate of open loops, in commands a second. Pipelining cannot help at this rate, so its cells show
/// the cost of a connection for each caller.
const RATE_LOW: u32 = 1_000;
const CALLERS_LOW: [usize; 2] = [1, 8];

/// The round trip in milliseconds and the number of callers of each cell that compares a policy with many
/// fixed delays.
const SWEEPS: [(u64, usize); 6] = [(0, 1), (0, 16), (0, 256), (1, 1), (1, 16), (1, 128)];

/// Returns the cells of a run. The most important cells come first, because the time of a run may be too
/// short.
pub(super) fn cells(full: bool) -> Vec<Cell> {
    let micros = |us: &[u64]| us.iter().map(|&us| Duration::from_micros(us)).collect();
    let (values, round_trips, callers): (_, Vec<_>, _) = if full {
        (
            &[64, 4 << 10, 64 << 10][..],
            micros(&[0, 200, 1000]),
            &[1, 2, 8, 16, 64, 256, 1024][..],
        )
    } else {
        (&[64][..], micros(&[0, 1000]), &[2, 16, 256][..])
    };
    let mut cells = Vec::new();
    for &value_bytes in values {
        for &round_trip in &round_trips {
            for (_, command) in COMMANDS {
                let cell = Cell {
                    command,
                    value_bytes,
                    round_trip,
                    callers: 0,
                    rate: None,
                    sweep: false,
                };
                cells.extend(callers.iter().map(|&callers| Cell { callers, ..cell }));
                let open = Cell {
                    rate: Some(RATE),
                    ..cell
                };
                if command == "get" && value_bytes == 64 && round_trip.is_zero() {
                    cells.extend(CALLERS_LOW.map(|callers| Cell {
                        callers,
                        rate: Some(RATE_LOW),
                        ..cell
                    }));
                }
                cells.extend(
                    open_callers(value_bytes, full)
                        .iter()
                        .map(|&callers| Cell { callers, ..open })
                        .filter(|cell| full || cell.command == "publish"),
                );
            }
        }
    }
    cells.extend(SWEEPS.map(|(round_trip_ms, callers)| Cell {
        command: "get",
        value_bytes: 64,
        round_trip: Duration::from_millis(round_trip_ms),
        callers,
        rate: None,
        sweep: true,
    }));
    cells
}

/// Returns the numbers of callers of an open loop. With a round trip of a millisecond, fewer callers could
/// not keep the rate. With values of 64 KiB there is no open loop, because the rate would be 6.5 GB/s, more
/// than a connection on this machine carries.
fn open_callers(value_bytes: usize, full: bool) -> &'static [usize] {
    match (value_bytes, full) {
        (65536.., _) => &[],
        (_, true) => &[256, 1024],
        (_, false) => &[256],
    }
}

impl Cell {
    pub(super) fn name(&self) -> String {
        let command = COMMANDS
            .iter()
            .find(|(_, command)| *command == self.command);
        let command = command.map_or(self.command, |(name, _)| name);
        let bytes = match self.value_bytes {
            bytes @ 1024.. => format!("{} KiB", bytes / 1024),
            bytes => format!("{bytes} B"),
        };
        let round_trip = match self.round_trip.as_micros() {
            0 => "RTT 0".into(),
            us => format!("RTT {} ms", us as f64 / 1e3),
        };
        let callers = match self.callers {
            1 => "1 caller".into(),
            callers => format!("{callers} callers"),
        };
        let rate = match self.rate {
            Some(rate) => format!(", {} k/s", rate / 1000),
            None if self.sweep => SWEEP.into(),
            None => String::new(),
        };
        format!("{command} {bytes}, {round_trip}, {callers}{rate}")
    }

    /// Returns whether the cell gets a row for callers with a connection each, to compare with a shared
    /// client.
    pub(super) const fn compares_plain(&self) -> bool {
        matches!(self.rate, Some(RATE_LOW))
    }

    /// Returns the fields of the `load` request to a peer that describe the cell.
    pub(super) fn request(&self) -> String {
        let Self {
            command,
            value_bytes,
            callers,
            ..
        } = self;
        let rate = self.rate.unwrap_or(0);
        format!("command={command} value={value_bytes} callers={callers} rate={rate}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_call_keeps_to_few_cells() {
        let short = cells(false);
        assert_eq!(short.len(), 4 * 2 * 3 + 2 + 2 + SWEEPS.len());
        assert_eq!(short[0].name(), "PUBLISH 64 B, RTT 0, 2 callers");
        assert_eq!(short[3].name(), "PUBLISH 64 B, RTT 0, 256 callers, 100 k/s");
        assert_eq!(
            short[3].request(),
            "command=publish value=64 callers=256 rate=100000"
        );
        let full = cells(true);
        assert_eq!(full.len(), 4 * 3 * (3 * 7 + 2 * 2) + 2 + SWEEPS.len());
        let last = full.iter().rfind(|cell| !cell.sweep).map(Cell::name);
        assert_eq!(
            last.as_deref(),
            Some("GET:SET 80:20 64 KiB, RTT 1 ms, 1024 callers")
        );
        // Every cell of a short run is also a cell of a full run, so that a resumed run does not measure the
        // cell again.
        assert!(short.iter().all(|cell| full.contains(cell)));
        let mut names: Vec<_> = full.iter().map(Cell::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), full.len());
    }
}

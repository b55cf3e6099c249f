//! The cells: the kind of work, the number of clients, and the sizes of messages.

use std::time::Duration;

/// The work of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// `nats bench js pub async`: each client has 500 messages in flight.
    Async,
    /// `nats bench js pub sync`: each client waits for each acknowledgement.
    Sync,
    /// Publishing to many streams, which the `nats` program cannot do: a load of the bench.
    Streams { streams: usize, sync: bool },
    /// A lone synchronous client of the bench, beside a bare write and sync of the same bytes.
    Lone,
    /// Synchronous clients with syncs that take 5 ms longer, with and without anticipation.
    Slowed,
    /// `nats bench js pub async` up to a step of the replication, also with syncs that take 5 ms longer.
    Steps { slow: bool },
    /// A load of the bench at the leader of nodes that are this round trip apart; each client has `window`
    /// messages in flight.
    Distant { round_trip: Duration, window: usize },
    /// `nats bench js consume`: a durable pull consumer with 500 messages in flight.
    Consume,
    /// `nats bench js fetch`: 500 messages at a time.
    Fetch,
    /// `nats bench pub` to this many `nats bench sub`.
    Core { subscribers: usize },
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) name: String,
    pub(super) work: Work,
    pub(super) clients: usize,
    /// The bytes of a message.
    pub(super) bytes: usize,
    /// The replicas of each stream.
    pub(super) replicas: usize,
    /// True if the clients of a stream connect to the stream's leader, not to any node.
    pub(super) at_leader: bool,
}

impl Cell {
    fn new(replicas: usize, work: Work, clients: usize, bytes: usize) -> Self {
        let many = |clients: usize| match clients {
            1 => "1 client".to_owned(),
            n => format!("{n} clients"),
        };
        let of = |sync: bool| if sync { "sync" } else { "async" };
        let size = match bytes {
            b if b >= 1024 => format!("{} KiB", b / 1024),
            b => format!("{b} B"),
        };
        let name = match work {
            // The most important cells have the short names.
            Work::Async | Work::Sync if (clients, bytes) == (10, 1024) => {
                format!("R{replicas} {}", of(work == Work::Sync))
            }
            Work::Async | Work::Sync => {
                let how = of(work == Work::Sync);
                format!("R{replicas} {how}, {}, {size}", many(clients))
            }
            Work::Streams { streams, sync } => {
                format!(
                    "R{replicas} {}, {streams} streams, {}, {size}",
                    of(sync),
                    many(clients)
                )
            }
            Work::Lone => format!("R{replicas} lone sync, {size}"),
            Work::Slowed => format!("R{replicas} sync, disk + 5 ms, {}, {size}", many(clients)),
            Work::Steps { slow: false } => format!("R{replicas} async by steps, this disk"),
            Work::Steps { slow: true } => format!("R{replicas} async by steps, disk + 5 ms"),
            Work::Distant { round_trip, window } => {
                let ms = round_trip.as_millis();
                format!(
                    "R{replicas} {}, {}, {ms} ms apart",
                    of(window == 1),
                    many(clients)
                )
            }
            Work::Consume => format!("consume, {size}"),
            Work::Fetch => format!("fetch, {size}"),
            Work::Core { subscribers } => format!("core 1:{subscribers}, {size}"),
        };
        Self {
            name,
            work,
            clients,
            bytes,
            replicas,
            at_leader: false,
        }
    }

    fn at_leader(mut self) -> Self {
        self.name += ", at the leader";
        self.at_leader = true;
        self
    }

    /// Returns the fewest messages of a measurement of this cell.
    pub(super) fn messages_min(&self) -> u64 {
        let each = match self.work {
            Work::Sync | Work::Slowed | Work::Streams { sync: true, .. } | Work::Lone => 20,
            Work::Steps { .. } => 20,
            Work::Distant { window, .. } => window.max(4) as u64,
            Work::Async | Work::Streams { .. } => 500,
            Work::Consume | Work::Fetch | Work::Core { .. } => 20_000,
        };
        each * self.clients as u64
    }

    /// Returns the number of windows that a measurement takes: a slow step needs more than a handful of
    /// messages.
    pub(super) const fn windows(&self) -> f64 {
        match self.work {
            Work::Steps { .. } => 4.0,
            _ => 1.0,
        }
    }

    /// Returns the most messages of a measurement, so that neither a disk nor a stream's limit fills up.
    pub(super) fn messages_max(&self) -> u64 {
        if matches!(self.work, Work::Steps { .. }) {
            // The pull request measured with this number of messages.
            return 100_000;
        }
        let bytes = self.bytes * self.replicas;
        (BYTES_MAX / bytes as u64).max(self.messages_min())
    }
}

/// The most bytes of all messages of one measurement, on all disks.
const BYTES_MAX: u64 = 3 << 30;

/// Returns the cells of `tidegate-bench stream`; the most important come first, in case time runs out.
pub(super) fn cells(full: bool) -> Vec<Cell> {
    let mut cells = most_wanted(1);
    cells.push(Cell::new(1, Work::Lone, 1, 1024));
    if !full {
        return cells;
    }
    cells.extend(grid(1));
    cells.extend([10, 100].map(|clients| Cell::new(1, Work::Slowed, clients, 1024)));
    cells.extend([Work::Consume, Work::Fetch].map(|work| Cell::new(1, work, 1, 1024)));
    for bytes in [16, 128, 1024] {
        cells.extend([1, 4].map(|subscribers| Cell::new(1, Work::Core { subscribers }, 1, bytes)));
    }
    each_once(cells)
}

/// Returns the cells of `tidegate-bench cluster`.
pub(super) fn cells_of_clusters(replicas: usize, full: bool) -> Vec<Cell> {
    let mut cells = most_wanted(replicas);
    if !full {
        return cells;
    }
    cells.extend(most_wanted(replicas).into_iter().map(Cell::at_leader));
    // Clients that set no number of replicas get one replica: some node keeps the stream, and the clients
    // connect to any node.
    cells.extend(most_wanted(1));
    cells.extend(grid(replicas));
    each_once(cells)
}

/// Returns the cells of `tidegate-bench raft`: the pull request's workload.
pub(super) fn cells_of_steps(replicas: usize) -> [Cell; 2] {
    [false, true].map(|slow| Cell::new(replicas, Work::Steps { slow }, 10, 1024))
}

/// Returns the cells of clusters with distant nodes: many clients that wait for each acknowledgement, and
/// ten with 500 messages in flight, at each round trip.
pub(super) fn cells_of_distances(replicas: usize) -> Vec<Cell> {
    let cell = |ms, (window, clients)| {
        let round_trip = Duration::from_millis(ms);
        let work = Work::Distant { round_trip, window };
        let mut cell = Cell::new(replicas, work, clients, 1024);
        cell.at_leader = true;
        cell
    };
    let at = |ms| [(1, 100), (500, 10)].map(|load| cell(ms, load));
    [0, 1, 10, 50].into_iter().flat_map(at).collect()
}

fn most_wanted(replicas: usize) -> Vec<Cell> {
    let wanted = [(Work::Async, 10), (Work::Sync, 10), (Work::Sync, 100)];
    let cell = |(work, clients)| Cell::new(replicas, work, clients, 1024);
    wanted.map(cell).into()
}

/// Returns a cell for every size with every number of clients, into one stream and into many.
fn grid(replicas: usize) -> Vec<Cell> {
    let many = |sync| Work::Streams { streams: 50, sync };
    let mut all = Vec::new();
    for works in [[Work::Async, Work::Sync], [many(false), many(true)]] {
        for bytes in [16, 1024, 64 << 10] {
            for clients in [1, 10, 100] {
                all.extend(works.map(|work| Cell::new(replicas, work, clients, bytes)));
            }
        }
    }
    all
}

fn each_once(mut cells: Vec<Cell>) -> Vec<Cell> {
    let mut seen = std::collections::BTreeSet::new();
    cells.retain(|cell| seen.insert(cell.name.clone()));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_cells_apart() {
        let names: Vec<_> = cells(false).into_iter().map(|cell| cell.name).collect();
        assert_eq!(
            names,
            [
                "R1 async",
                "R1 sync",
                "R1 sync, 100 clients, 1 KiB",
                "R1 lone sync, 1 KiB"
            ]
        );
        // 18 and 18, the lone client, 2 slowed, 2 readers, 6 of core.
        assert_eq!(cells(true).len(), 47);
        let names: Vec<_> = cells_of_clusters(3, true)
            .into_iter()
            .map(|cell| cell.name)
            .collect();
        let apart = cells_of_distances(3);
        assert_eq!(apart[0].name, "R3 sync, 100 clients, 0 ms apart");
        assert_eq!(apart[7].name, "R3 async, 10 clients, 50 ms apart");
        assert_eq!(names.len(), 42);
        assert_eq!(names[..2], ["R3 async", "R3 sync"]);
        assert!(
            names.contains(&"R3 async, at the leader".into()),
            "{names:?}"
        );
    }
}

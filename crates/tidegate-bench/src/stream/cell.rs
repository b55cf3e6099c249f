//! The cells: what is published or read, by how many clients, in which sizes.

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// `nats bench js pub async`: 500 messages of each client on the way.
    Async,
    /// `nats bench js pub sync`: each client waits for each acknowledgement.
    Sync,
    /// The same over many streams, which the `nats` program cannot: our own load.
    Streams { streams: usize, sync: bool },
    /// A lone synchronous client of our own, beside a bare write and sync of the same bytes.
    Lone,
    /// Synchronous clients while every sync takes 5 ms longer, with and without anticipation.
    Slowed,
    /// `nats bench js pub async` as far as a step of the replication goes, perhaps with syncs that take 5 ms
    /// longer.
    Steps { slow: bool },
    /// `nats bench js consume`: a durable pull consumer, 500 messages on the way.
    Consume,
    /// `nats bench js fetch`: 500 messages at a time.
    Fetch,
    /// `nats bench pub` to so many `nats bench sub`.
    Core { subscribers: usize },
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) name: String,
    pub(super) work: Work,
    pub(super) clients: usize,
    /// Of a message.
    pub(super) bytes: usize,
    /// Of each stream.
    pub(super) replicas: usize,
    /// The clients of a stream are where its leader is, and not anywhere.
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
            // What the figures are mostly asked for has the short names.
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

    /// The fewest messages worth a measurement.
    pub(super) fn messages_min(&self) -> u64 {
        let each = match self.work {
            Work::Sync | Work::Slowed | Work::Streams { sync: true, .. } | Work::Lone => 20,
            Work::Steps { .. } => 20,
            Work::Async | Work::Streams { .. } => 500,
            Work::Consume | Work::Fetch | Work::Core { .. } => 20_000,
        };
        each * self.clients as u64
    }

    /// How many windows a measurement is to take: a step that is slow is to have more than a handful of
    /// messages.
    pub(super) const fn windows(&self) -> f64 {
        match self.work {
            Work::Steps { .. } => 4.0,
            _ => 1.0,
        }
    }

    /// The most, so that neither a disk nor a stream's limit is filled.
    pub(super) fn messages_max(&self) -> u64 {
        if matches!(self.work, Work::Steps { .. }) {
            // What the pull request published with.
            return 100_000;
        }
        let bytes = self.bytes * self.replicas;
        (BYTES_MAX / bytes as u64).max(self.messages_min())
    }
}

/// Of all messages of one measurement, on all disks.
const BYTES_MAX: u64 = 3 << 30;

/// Those of a call of `tidegate-bench stream`; the first matter most should time run out.
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

/// Those of a call of `tidegate-bench cluster`.
pub(super) fn cells_of_clusters(replicas: usize, full: bool) -> Vec<Cell> {
    let mut cells = most_wanted(replicas);
    if !full {
        return cells;
    }
    cells.extend(most_wanted(replicas).into_iter().map(Cell::at_leader));
    // What clients ask for who say nothing of replicas: some node keeps it, and they are at any.
    cells.extend(most_wanted(1));
    cells.extend(grid(replicas));
    each_once(cells)
}

/// Those of a call of `tidegate-bench raft`: the pull request's workload.
pub(super) fn cells_of_steps(replicas: usize) -> [Cell; 2] {
    [false, true].map(|slow| Cell::new(replicas, Work::Steps { slow }, 10, 1024))
}

fn most_wanted(replicas: usize) -> Vec<Cell> {
    let wanted = [(Work::Async, 10), (Work::Sync, 10), (Work::Sync, 100)];
    let cell = |(work, clients)| Cell::new(replicas, work, clients, 1024);
    wanted.map(cell).into()
}

/// Every size with every number of clients, into one stream and into many.
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
        // 18 and 18, the lone one, 2 slowed, 2 readers, 6 of core.
        assert_eq!(cells(true).len(), 47);
        let names: Vec<_> = cells_of_clusters(3, true)
            .into_iter()
            .map(|cell| cell.name)
            .collect();
        assert_eq!(names.len(), 42);
        assert_eq!(names[..2], ["R3 async", "R3 sync"]);
        assert!(
            names.contains(&"R3 async, at the leader".into()),
            "{names:?}"
        );
    }
}

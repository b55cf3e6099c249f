//! Lists the cells of the benches of streams (`stream`, `cluster`, `raft`). A cell is a kind of work, with a
//! number of clients and a size of messages.

use std::time::Duration;

/// The kind of work that the clients do in a cell, which decides how the bench loads the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// The clients are `nats bench js pub async`: each client has 500 messages in flight.
    Async,
    /// The clients are `nats bench js pub sync`: each client waits for each acknowledgement.
    Sync,
    /// The clients publish to many streams. The `nats` program cannot do that, so the bench itself sends the
    /// load.
    Streams { streams: usize, sync: bool },
    /// The work of one client of the bench itself, which waits for each acknowledgement. The cell also
    /// measures a bare write and sync of the same bytes.
    Lone,
    /// The clients wait for each acknowledgement. Our server has syncs that take 5 ms longer. It runs once as
    /// usual, with a short delay of each sync for clients that are about to publish again, and once without
    /// this delay.
    Slowed,
    /// The clients are `nats bench js pub async`. The bench compares several variants of our server, which
    /// have taken some of the steps (`RaftStep`) from nats-server's way of writing replicated streams to
    /// ours. `slow` adds 5 ms to each sync.
    Steps { slow: bool },
    /// The bench itself sends the load to the leader of a cluster. Messages between two nodes and back take
    /// `round_trip`. Each client has `window` messages in flight.
    Distant { round_trip: Duration, window: usize },
    /// The client is `nats bench js consume`: a durable pull consumer with 500 messages in flight.
    Consume,
    /// The client is `nats bench js fetch`, with 500 messages at a time.
    Fetch,
    /// The clients are one `nats bench pub`, and as many subscribers (`nats bench sub`) as this number; no
    /// stream takes part.
    Core { subscribers: usize },
}

/// One cell of a bench of streams, in which the bench compares the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) name: String,
    pub(super) work: Work,
    pub(super) clients: usize,
    /// The number of bytes in each message's payload.
    pub(super) bytes: usize,
    /// The number of replicas of each stream.
    pub(super) replicas: usize,
    /// True if the clients of a stream connect to the stream's leader, false if they connect to any node.
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
            // The most important cells, with 10 clients and 1 KiB, get the short names.
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

    /// Returns the least number of messages in a measurement of this cell, so that each client has some.
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

    /// Returns the duration of a measurement of this cell as a number of the bench's windows. A server with
    /// slow steps of the replication needs several windows to store enough messages.
    pub(super) const fn windows(&self) -> f64 {
        match self.work {
            Work::Steps { .. } => 4.0,
            _ => 1.0,
        }
    }

    /// Returns the greatest number of messages in a measurement of this cell, which fills neither a disk nor
    /// a stream up to its limit.
    pub(super) fn messages_max(&self) -> u64 {
        if matches!(self.work, Work::Steps { .. }) {
            // The measurement of nats-server's pull request 7355 published this number of messages, so the
            // bench publishes no more.
            return 100_000;
        }
        let bytes = self.bytes * self.replicas;
        (BYTES_MAX / bytes as u64).max(self.messages_min())
    }
}

/// The greatest number of bytes that all messages of one measurement may take on the disks of all nodes
/// together.
const BYTES_MAX: u64 = 3 << 30;

/// Returns the cells of `tidegate-bench stream`. The most important cells come first, because the time of a
/// run may be too short.
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

/// Returns the cells of `tidegate-bench cluster` in which the nodes are on one machine without a delay
/// between them.
pub(super) fn cells_of_clusters(replicas: usize, full: bool) -> Vec<Cell> {
    let mut cells = most_wanted(replicas);
    if !full {
        return cells;
    }
    cells.extend(most_wanted(replicas).into_iter().map(Cell::at_leader));
    // If a client sets no number of replicas, the stream gets one: some node keeps the stream, and the
    // clients connect to any node.
    cells.extend(most_wanted(1));
    cells.extend(grid(replicas));
    each_once(cells)
}

/// Returns the cells of `tidegate-bench raft`: the workload of nats-server's pull request 7355.
pub(super) fn cells_of_steps(replicas: usize) -> [Cell; 2] {
    [false, true].map(|slow| Cell::new(replicas, Work::Steps { slow }, 10, 1024))
}

/// Returns the cells of clusters with a delay between the nodes. At each round trip there are 100 clients
/// that wait for each acknowledgement, and ten clients with 500 messages in flight.
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

/// Returns a cell for every size of messages with every number of clients, for one stream and for many
/// streams.
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
        // The test expects 18 cells of one stream, 18 of many streams, the lone client, 2 with slowed syncs,
        // 2 readers and 6 without streams.
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

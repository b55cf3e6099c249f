//! Simulates the machine under the event loop for simulations: a virtual clock that the works of the loop
//! advance, a network in memory, disks in memory, and a seeded source of random numbers. Compiled with the
//! feature `sim` only.
//!
//! The machine belongs to the thread, so that the loop finds it without a parameter that the product would
//! carry, too. A simulation installs it for its life ([`Machine::install`]); before and after, the loop on
//! this thread runs on the real machine. All servers of a simulation share one machine: the simulation runs
//! the turn of one server at a time, and sets the clock to the time of that server first.

pub(crate) mod costs;
pub(crate) mod net;
pub(crate) mod sockets;

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use tidegate::Time;
use tidegate_log::{SimDisk, Steps};
use tidegate_raft::store::{OpenError, Opening, Options};

use self::costs::Costs;
use self::net::Network;
use crate::cost::Work;
use crate::cures::Cures;

/// The wall-clock time at the virtual time zero, in microseconds since the Unix epoch, fixed so that each run
/// of a simulation is equal.
const EPOCH_US: u64 = 1_700_000_000_000_000;

thread_local! {
    static MACHINE: RefCell<Option<Machine>> = const { RefCell::new(None) };
}

/// The owner of one end of a connection: a server, or a client of the simulation, to which the network gives
/// notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// The server with this index in the simulation owns the end, so its next turn gets the notices.
    Server(usize),
    /// The client with this index in the simulation owns the end, so the test gets the notices.
    Client(usize),
}

/// A change of a socket, which the machine reports to the socket's owner at a given time, as a poller does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Notice {
    /// The time at which the owner learns of the change.
    pub(crate) at: Time,
    /// The number of the notice, by which the machine keeps notices of one time in order.
    number: u64,
    /// The owner of the socket, to which the machine gives the notice.
    pub(crate) owner: Owner,
    /// The token with which the owner registered the socket, by which the owner finds the socket.
    pub(crate) token: usize,
    /// True if the socket has bytes to read, or has ended, so that the owner should read.
    pub(crate) readable: bool,
    /// True if the socket takes bytes again, so that the owner may go on writing.
    pub(crate) writable: bool,
    /// True if the other side has closed the connection, so that the owner should end it.
    pub(crate) ended: bool,
}

/// The simulated disks of a server, and the log's work on them, which the simulation runs in steps.
#[derive(Default)]
pub(crate) struct Disks {
    state: SimDisk,
    log: SimDisk,
    /// The steps of the server's log, which the simulation runs; `None` until the server has opened the log.
    pub(crate) steps: Option<Steps>,
}

/// The simulated machine, which replaces clock, network and disks of the real one; the [module](self)
/// describes its use.
pub(crate) struct Machine {
    /// The virtual time, in picoseconds, because some works cost less than a nanosecond.
    now_ps: u64,
    /// The server that runs a turn or starts at this moment, and so becomes the owner of new sockets.
    server: usize,
    costs: Costs,
    cures: Cures,
    random: u64,
    network: Network,
    notices: BinaryHeap<Reverse<Notice>>,
    numbers: u64,
    disks: Vec<Disks>,
    /// The number of times that the loop has done each work since the last [`take_done`].
    done: [u64; Work::ALL.len()],
}

impl Machine {
    /// Installs a machine on this thread, so that the event loop runs on it from now on.
    pub(crate) fn install(seed: u64, costs: Costs, cures: Cures) {
        let machine = Self {
            now_ps: 0,
            server: 0,
            costs,
            cures,
            random: seed,
            network: Network::default(),
            notices: BinaryHeap::new(),
            numbers: 0,
            disks: Vec::new(),
            done: [0; Work::ALL.len()],
        };
        MACHINE.set(Some(machine));
    }

    /// Removes the machine from this thread, so that the event loop runs on the real machine again.
    pub(crate) fn remove() {
        MACHINE.set(None);
    }

    const fn now(&self) -> Time {
        Time::from_nanos(self.now_ps / 1000)
    }

    /// Draws the next number of the seeded source (SplitMix64), so that each run with a seed is equal.
    const fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Removes the listeners of a server, and the notices that it has not taken: after its next start its
    /// sockets may get the same tokens.
    fn network_forgets(&mut self, server: usize) {
        self.forget_server(server);
        let owner = Owner::Server(server);
        self.notices.retain(|notice| notice.0.owner != owner);
    }

    fn note(&mut self, notice: Notice) {
        self.numbers += 1;
        let number = self.numbers;
        self.notices.push(Reverse(Notice { number, ..notice }));
    }
}

impl Notice {
    /// Creates a notice without a change, to which the caller adds the change.
    pub(crate) const fn new(at: Time, owner: Owner, token: usize) -> Self {
        Self {
            at,
            number: 0,
            owner,
            token,
            readable: false,
            writable: false,
            ended: false,
        }
    }
}

/// Calls `f` with the machine of this thread; returns `None` if this thread has none, because the loop runs
/// on the real machine.
fn with<T>(f: impl FnOnce(&mut Machine) -> T) -> Option<T> {
    MACHINE.with_borrow_mut(|machine| machine.as_mut().map(f))
}

/// Returns whether the event loop on this thread runs on a simulated machine, and must use its network and
/// disks.
pub(crate) fn is_on() -> bool {
    with(|_| ()).is_some()
}

/// Returns the virtual time, which replaces the clock; `None` if the loop runs on the real machine.
pub(crate) fn now() -> Option<Time> {
    with(|machine| machine.now())
}

/// Sets the clock to the time of a server and names that server, because it runs a turn from now on.
pub(crate) fn begin(now: Time, server: usize) {
    with(|machine| {
        machine.now_ps = now.as_nanos() * 1000;
        machine.server = server;
    });
}

/// Returns the virtual wall-clock time in microseconds since the Unix epoch; `None` if the loop runs on the
/// real machine.
pub(crate) fn wall_clock_us() -> Option<u64> {
    with(|machine| EPOCH_US + machine.now().as_nanos() / 1000)
}

/// Advances the virtual clock by the cost of `n` works of this kind, which the loop does now.
pub(crate) fn spend(work: Work, n: u64) {
    with(|machine| {
        machine.now_ps += machine.costs.ps(work) * n;
        machine.done[work as usize] += n;
    });
}

/// Counts `n` works that another thread does, which costs the loop no time. Returns the time that they take.
pub(crate) fn spend_elsewhere(work: Work, n: u64) -> Duration {
    let took = with(|machine| {
        machine.done[work as usize] += n;
        Duration::from_nanos(machine.costs.ps(work) * n / 1000)
    });
    took.unwrap_or_default()
}

/// Returns how often the loop did each work since the last call, in the order of [`Work::ALL`], for the
/// simulation's checks.
pub(crate) fn take_done() -> [u64; Work::ALL.len()] {
    const NONE: [u64; Work::ALL.len()] = [0; Work::ALL.len()];
    with(|machine| std::mem::replace(&mut machine.done, NONE)).unwrap_or(NONE)
}

/// Returns the cures that the simulated loop has, by which the loop works; all cures if the loop runs on the
/// real machine.
pub(crate) fn cures() -> Cures {
    with(|machine| machine.cures).unwrap_or(Cures::ALL)
}

/// Turns cures of the loop off or on again, so that a simulation can show the effect of each cure.
pub(crate) fn set_cures(cures: Cures) {
    with(|machine| machine.cures = cures);
}

/// Draws a random number from the seeded source, so that runs of a seed are equal; `None` if the loop runs on
/// the real machine.
pub(crate) fn random() -> Option<u64> {
    with(Machine::draw)
}

/// Makes the machine wake the server that runs a turn, at the time `at`, by an event with this token, as a
/// thread's waker would.
pub(crate) fn wake(at: Time, token: usize) {
    with(|machine| {
        let owner = Owner::Server(machine.server);
        machine.note(Notice {
            readable: true,
            ..Notice::new(at, owner, token)
        });
    });
}

/// Takes the next notice if its time is at most `until`, so that the simulation hands it to the owner.
pub(crate) fn poll_notice(until: Time) -> Option<Notice> {
    with(|machine| {
        let due = machine.notices.peek().is_some_and(|n| n.0.at <= until);
        due.then(|| machine.notices.pop().map(|n| n.0)).flatten()
    })
    .flatten()
}

/// Adds empty disks to the machine, for one more server.
pub(crate) fn add_disks() {
    with(|machine| machine.disks.push(Disks::default()));
}

/// Ends a server's hold on the machine, as the kill of its process does: its listeners, its notices and its
/// log's threads are gone. With `power_lost` its disks lose the bytes that were not durable, except sectors
/// that the seed keeps; otherwise they keep all written bytes.
pub(crate) fn crash(server: usize, power_lost: bool) {
    let gone = with(|machine| {
        machine.network_forgets(server);
        let old = std::mem::take(&mut machine.disks[server]);
        let mut after = |disk: &SimDisk| match power_lost {
            true => disk.crash(false, |_, _| machine.draw() & 1 == 1),
            false => disk.killed(),
        };
        let (state, log) = (after(&old.state), after(&old.log));
        machine.disks[server] = Disks {
            state,
            log,
            steps: None,
        };
        old
    });
    // The steps of the log go only now, when the machine is free for what their end may do.
    drop(gone);
}

/// Returns the space that the files of a server take on its disks, in bytes.
pub(crate) fn space(server: usize) -> u64 {
    let of = |machine: &mut Machine| {
        let disks = &machine.disks[server];
        disks.state.space() + disks.log.space()
    };
    with(of).unwrap_or_default()
}

/// Calls `f` with the steps of this server's log, so that the simulation runs them; `None` if the server has
/// not opened its log.
pub(crate) fn with_steps<T>(server: usize, f: impl FnOnce(&mut Steps) -> T) -> Option<T> {
    let take = |machine: &mut Machine| machine.disks.get_mut(server)?.steps.take();
    let mut steps = with(take).flatten()?;
    let result = f(&mut steps);
    with(|machine| machine.disks[server].steps = Some(steps));
    Some(result)
}

/// Opens the store of the server that starts, on its simulated disks and without threads, so that the
/// simulation decides their moments; `None` if the loop runs on the real machine.
pub(crate) fn open_store(options: &Options) -> Option<Result<Opening, OpenError>> {
    let (now, server, seed, disks) = with(|machine| {
        let seed = machine.draw();
        let disks = &machine.disks[machine.server];
        let disks = (disks.state.clone(), disks.log.clone());
        (machine.now(), machine.server, seed, disks)
    })?;
    let options = Options {
        seed: Some(seed),
        ..options.clone()
    };
    let opened = Opening::stepped(Arc::new(disks.0), Arc::new(disks.1), options, now);
    Some(opened.map(|(opening, steps)| {
        with(|machine| machine.disks[server].steps = Some(steps));
        opening
    }))
}

//! The simulated machine under the event loop: a virtual clock that the works of the loop advance, a network
//! in memory, disks in memory, and a seeded source of random numbers. Compiled with the feature `sim` only.
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

/// The wall-clock time at the virtual time zero, in microseconds since the Unix epoch.
const EPOCH_US: u64 = 1_700_000_000_000_000;

thread_local! {
    static MACHINE: RefCell<Option<Machine>> = const { RefCell::new(None) };
}

/// The owner of one end of a connection: a server, or a client of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// The server with this index.
    Server(usize),
    /// The client with this index.
    Client(usize),
}

/// A change of a socket that its owner learns of at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Notice {
    /// The time at which the owner learns of the change.
    pub(crate) at: Time,
    /// The number of the notice, by which notices of one time keep their order.
    number: u64,
    /// The owner of the socket.
    pub(crate) owner: Owner,
    /// The token with which the owner registered the socket.
    pub(crate) token: usize,
    /// True if the socket has bytes to read, or has ended.
    pub(crate) readable: bool,
    /// True if the socket takes bytes again.
    pub(crate) writable: bool,
    /// True if the other side has closed the connection.
    pub(crate) ended: bool,
}

/// The disks of a server, and the log's work on them in steps.
#[derive(Default)]
pub(crate) struct Disks {
    state: SimDisk,
    log: SimDisk,
    /// The steps of the log, once the server has opened it.
    pub(crate) steps: Option<Steps>,
}

/// The simulated machine; the [module](self) describes its use.
pub(crate) struct Machine {
    /// The virtual time, in picoseconds.
    now_ps: u64,
    /// The server that runs a turn, or that starts.
    server: usize,
    costs: Costs,
    cures: Cures,
    random: u64,
    network: Network,
    notices: BinaryHeap<Reverse<Notice>>,
    numbers: u64,
    disks: Vec<Disks>,
    /// How often each work was done since the last [`take_done`].
    done: [u64; Work::ALL.len()],
}

impl Machine {
    /// Installs a machine on this thread.
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

    /// Removes the machine from this thread.
    pub(crate) fn remove() {
        MACHINE.set(None);
    }

    const fn now(&self) -> Time {
        Time::from_nanos(self.now_ps / 1000)
    }

    /// Draws a number (SplitMix64).
    const fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn note(&mut self, notice: Notice) {
        self.numbers += 1;
        let number = self.numbers;
        self.notices.push(Reverse(Notice { number, ..notice }));
    }
}

impl Notice {
    /// Creates a notice without a change.
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

/// Calls `f` with the machine of this thread; returns `None` without a machine.
fn with<T>(f: impl FnOnce(&mut Machine) -> T) -> Option<T> {
    MACHINE.with_borrow_mut(|machine| machine.as_mut().map(f))
}

/// Returns whether this thread has a simulated machine.
pub(crate) fn is_on() -> bool {
    with(|_| ()).is_some()
}

/// Returns the virtual time; `None` without a machine.
pub(crate) fn now() -> Option<Time> {
    with(|machine| machine.now())
}

/// Sets the clock, and names the server that runs a turn from now on.
pub(crate) fn begin(now: Time, server: usize) {
    with(|machine| {
        machine.now_ps = now.as_nanos() * 1000;
        machine.server = server;
    });
}

/// Returns the wall-clock time in microseconds since the Unix epoch; `None` without a machine.
pub(crate) fn wall_clock_us() -> Option<u64> {
    with(|machine| EPOCH_US + machine.now().as_nanos() / 1000)
}

/// Advances the clock by the cost of `n` works of this kind.
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

/// Returns how often each work was done since the last call, in the order of [`Work::ALL`].
pub(crate) fn take_done() -> [u64; Work::ALL.len()] {
    with(|machine| std::mem::take(&mut machine.done)).unwrap_or_default()
}

/// Returns the cures of the simulated loop; all cures without a machine.
pub(crate) fn cures() -> Cures {
    with(|machine| machine.cures).unwrap_or(Cures::ALL)
}

/// Turns cures off, or on again.
pub(crate) fn set_cures(cures: Cures) {
    with(|machine| machine.cures = cures);
}

/// Draws a random number; `None` without a machine.
pub(crate) fn random() -> Option<u64> {
    with(Machine::draw)
}

/// Wakes the server that runs a turn, at this time, by an event with this token.
pub(crate) fn wake(at: Time, token: usize) {
    with(|machine| {
        let owner = Owner::Server(machine.server);
        machine.note(Notice {
            readable: true,
            ..Notice::new(at, owner, token)
        });
    });
}

/// Takes the next notice, if its time is at most `until`.
pub(crate) fn poll_notice(until: Time) -> Option<Notice> {
    with(|machine| {
        let due = machine.notices.peek().is_some_and(|n| n.0.at <= until);
        due.then(|| machine.notices.pop().map(|n| n.0)).flatten()
    })
    .flatten()
}

/// Adds empty disks for one more server.
pub(crate) fn add_disks() {
    with(|machine| machine.disks.push(Disks::default()));
}

/// Calls `f` with the steps of this server's log, if the server has opened its log.
pub(crate) fn with_steps<T>(server: usize, f: impl FnOnce(&mut Steps) -> T) -> Option<T> {
    let take = |machine: &mut Machine| machine.disks.get_mut(server)?.steps.take();
    let mut steps = with(take).flatten()?;
    let result = f(&mut steps);
    with(|machine| machine.disks[server].steps = Some(steps));
    Some(result)
}

/// Opens the store of the server that starts, on its simulated disks and without threads; `None` without a
/// machine.
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

//! Simulated worlds on which no controller was tuned: each has any cost curve, noise, server and load, and
//! runs in virtual time.
//!
//! A [`World`] is a value. The named worlds are cases that once failed; [`World::random`] makes a world from
//! a seed. [`run`] lets any controller serve a world and returns the callers' view of it. [`oracle`] finds
//! the best fixed setting of limit, linger and number in flight on the same world with other seeds.
//!
//! A [`Cell`] is a generated world that satisfies the premises. [`Cell::play`] gives a controller the time to
//! learn and then measures it, [`Cell::regret`] compares it with the best fixed settings, and
//! [`Cell::stability`] judges its backlog mode by mode.
//!
//! # Generated worlds
//!
//! | part | drawn from |
//! | --- | --- |
//! | costs | one of nine [families](Family); a batch of one: 0.05 to 10 ms, an item: 1/2000 to 1 of that |
//! | noise | none (1 in 4), log-normal (cv 0.05 to 1), bimodal (5 to 30 % cost 2 to 5 times the rest) |
//! | drift | none (7 in 10), or one or two changes: another curve of the family, 0.25 to 4 times the cost |
//! | server | serial (6 in 10), 1 to 64 slots, contended (each other batch adds 2 to 200 %), rate-limited |
//! | load | Poisson at 10 to 95 % of the capacity, bursts, 1 to 256 callers, a full queue |
//!
//! Each draw is uniform, on a logarithmic scale where it spans more than a factor of four. A mode lasts 4 to
//! 5 times as long as learning may take, see [`Premises`].
//!
//! # Premises
//!
//! [`Premises::of`] names the first premise that a world does not satisfy. Under the premises, and after L
//! batches of the best fixed setting, the default controller must keep the backlog stable:
//!
//! 1. The world is feasible: some setting of the grid completes at least 1.05 times the arrivals, in every
//!    mode.
//! 2. Costs differ at most 8-fold between neighbouring sizes of the half-octave grid.
//! 3. The coefficient of variation cv of the costs at one size is at most 1.
//! 4. Costs depend on the size, the number in flight and the mode only.
//! 5. A mode lasts at least 4 L batches, where learning may take L = 300 + 30 (cv/slack)² batches of the best
//!    fixed setting, and at least the time of 30 such batches one after the other.

mod cell;
mod engine;
mod generate;
mod oracle;
mod premises;
mod run;
mod stability;
mod table;
mod world;

pub use cell::{Best, Cell, Effort, Kind, Marks, Regret, SEEDS};
pub use generate::{Family, UnknownFamily};
pub use oracle::{Setting, best_saturated, capacity, grid, oracle};
pub use premises::{Breach, Premises};
pub use run::{Outcome, Span, run};
pub use stability::{Backlog, SLOPE_MAX, Stability};
pub use table::{Entry, EntryError, FIXED_EFFORT, fixed_cells};
pub use world::{Curve, Demand, Noise, Server, World};

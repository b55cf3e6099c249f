//! Worlds that no controller was designed for: any cost curve, noise, server and load, in virtual time.
//!
//! A [`World`] is a value: named ones are the cases that once went wrong, [`World::random`] makes one of a
//! seed. [`run`] lets any controller serve it and answers what the callers saw. [`oracle`] finds the best
//! fixed setting of limit, linger and number in flight on the same world with other seeds.

mod cell;
mod engine;
mod generate;
mod oracle;
mod premises;
mod run;
mod stability;
mod world;

pub use cell::{Best, Cell, Effort, Kind, Marks, Regret, SEEDS};
pub use generate::{Family, UnknownFamily};
pub use oracle::{Setting, best_saturated, capacity, grid, oracle};
pub use premises::{Breach, Premises};
pub use run::{Outcome, Span, run};
pub use stability::{Backlog, SLOPE_MAX, Stability};
pub use world::{Curve, Demand, Noise, Server, World};

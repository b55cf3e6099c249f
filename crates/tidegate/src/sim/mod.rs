//! Virtual time: arrivals, servers and callers to try controllers on, without a clock and without waiting.
//!
//! [`Scenario`] names the workloads that the controllers were designed on; [`Scenario::run`] returns their
//! tables. The parts ([`serve`], [`commit`], [`produce`], [`acknowledge`], [`pipeline`]) run any
//! [`Controller`](crate::controller::Controller), including one of your own. All random numbers are seeded,
//! so the same call gives the same result. Times are simulated: a figure here shows the decisions of a
//! controller under a cost model, never the speed of this machine.
//!
//! ```
//! use tidegate::controller::{Bounds, Exponential, Knee, Objective};
//! use tidegate::sim::{Cost, serve};
//!
//! let backlog = vec![0.0; 100_000];
//! let mut exponential = Exponential::new().controller();
//! let theirs = serve(&backlog, &mut exponential, &mut Cost::linear(0.0, 7), 0.0);
//! let mut knee = Knee::new(Objective::Lean, Bounds::items(32, 8192))?;
//! let ours = serve(&backlog, &mut knee, &mut Cost::linear(0.0, 7), 0.0);
//! assert_eq!((theirs.batches, theirs.batch_max), (20, 8192));
//! assert!(ours.ops_per_s > 0.97 * theirs.ops_per_s && ours.batch_max <= 4096);
//! # Ok::<(), tidegate::controller::KneeError>(())
//! ```

mod ack;
pub mod arena;
mod client;
mod commit;
pub mod headroom;
mod load;
mod producer;
mod rng;
mod scenario;
mod server;
mod tables;
pub mod tune;

pub use ack::{ACK_NS, AckRun, acknowledge};
pub use client::{ClientRun, Requests, pipeline};
pub use commit::{Callers, CommitRun, commit};
pub use load::{A_MS, B_MS, CAPACITY, Cost, bursts, clumps, poisson};
pub use producer::{COST_NS, ProducerRun, produce};
pub use rng::Rng;
pub use scenario::{Scenario, UnknownScenario};
pub use server::{Run, serve};
pub use tables::{Row, Table};

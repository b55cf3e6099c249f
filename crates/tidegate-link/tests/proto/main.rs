//! Tests of the pure core: both halves as a pair on a virtual clock, simulations with cuts,
//! models, golden bytes, hostile input.

mod acks;
mod golden;
mod hostile;
mod model;
mod pair;
mod scenarios;
mod simulation;

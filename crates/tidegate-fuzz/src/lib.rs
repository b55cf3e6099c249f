//! The bodies of the fuzz targets, for the programs of the fuzzer and for the test `replay`. Each target is
//! a function of an input, and panics if the tested code breaks a promise.
//!
//! The directory `fuzz` of the repository has a libFuzzer program for each target, which `make fuzz` runs,
//! and a corpus of inputs for each. The test `replay` runs the targets on their corpora with any toolchain.

pub mod api;
pub mod backup;
pub mod catch_up;
pub mod checkpoint;
pub mod choice;
pub mod cluster_wire;
pub mod command;
pub mod consumer;
pub mod controller;
pub mod entry;
pub mod event_log;
pub mod ingest;
pub mod link_codec;
pub mod link_receiver;
pub mod link_sender;
pub mod log;
pub mod nats;
pub mod nats_config;
pub mod raft_message;
pub mod resp;
pub mod streams;
pub mod trace;
pub mod transform;

/// A fuzz target: a function that runs the tested code on an input, and panics if the code breaks a promise.
pub type Target = fn(&[u8]);

/// All fuzz targets, for the test `replay`. The name of a target is also the name of its libFuzzer program,
/// and of its directory in `fuzz/corpus`.
pub const TARGETS: &[(&str, Target)] = &[
    ("api", api::run),
    ("backup", backup::run),
    ("catch_up", catch_up::run),
    ("checkpoint", checkpoint::run),
    ("choice", choice::run),
    ("cluster_wire", cluster_wire::run),
    ("command", command::run),
    ("consumer", consumer::run),
    ("controller", controller::run),
    ("entry", entry::run),
    ("event_log", event_log::run),
    ("ingest", ingest::run),
    ("link_codec", link_codec::run),
    ("link_receiver", link_receiver::run),
    ("link_sender", link_sender::run),
    ("log", log::run),
    ("nats", nats::run),
    ("nats_config", nats_config::run),
    ("raft_message", raft_message::run),
    ("resp", resp::run),
    ("streams", streams::run),
    ("trace", trace::run),
    ("transform", transform::run),
];

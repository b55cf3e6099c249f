//! See `tidegate_fuzz::raft_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::raft_message::run(data));

//! See `tidegate_fuzz::cluster_wire`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::cluster_wire::run(data));

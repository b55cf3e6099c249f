//! See `tidegate_fuzz::nats_config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::nats_config::run(data));

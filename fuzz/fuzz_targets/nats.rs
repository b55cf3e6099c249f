//! See `tidegate_fuzz::nats`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::nats::run(data));

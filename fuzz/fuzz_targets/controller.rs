//! See `tidegate_fuzz::controller`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::controller::run(data));

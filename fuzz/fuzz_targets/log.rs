//! See `tidegate_fuzz::log`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::log::run(data));

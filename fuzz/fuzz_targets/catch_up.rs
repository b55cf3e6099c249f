//! See `tidegate_fuzz::catch_up`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::catch_up::run(data));

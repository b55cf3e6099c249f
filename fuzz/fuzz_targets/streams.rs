//! See `tidegate_fuzz::streams`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::streams::run(data));

//! See `tidegate_fuzz::backup`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::backup::run(data));

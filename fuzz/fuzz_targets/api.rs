//! See `tidegate_fuzz::api`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::api::run(data));

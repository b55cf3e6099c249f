//! See `tidegate_fuzz::consumer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::consumer::run(data));

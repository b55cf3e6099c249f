//! See `tidegate_fuzz::ingest`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::ingest::run(data));

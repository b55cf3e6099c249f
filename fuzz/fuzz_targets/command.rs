//! See `tidegate_fuzz::command`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::command::run(data));

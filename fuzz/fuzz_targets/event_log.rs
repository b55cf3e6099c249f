//! See `tidegate_fuzz::event_log`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::event_log::run(data));

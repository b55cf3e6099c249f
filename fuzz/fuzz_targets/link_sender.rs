//! See `tidegate_fuzz::link_sender`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::link_sender::run(data));

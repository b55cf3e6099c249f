//! See `tidegate_fuzz::link_receiver`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::link_receiver::run(data));

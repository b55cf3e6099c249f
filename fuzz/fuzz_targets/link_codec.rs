//! See `tidegate_fuzz::link_codec`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::link_codec::run(data));

//! An event log is refused, or reads back as it was written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::controller::{read_log, write_log};

fuzz_target!(|text: &str| {
    if let Ok(log) = read_log(text) {
        assert_eq!(read_log(&write_log(&log)), Ok(log));
    }
});

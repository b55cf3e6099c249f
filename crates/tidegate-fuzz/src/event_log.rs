//! A fuzz target for the reader of a controller's event log. The target gives the reader any text. The
//! reader must refuse the text, or return a log that stays the same when the target writes it and reads it
//! again.

use tidegate::controller::{read_log, write_log};

/// Runs the fuzz target on one input. Panics if the tested code breaks a promise.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(log) = read_log(text) {
        assert_eq!(read_log(&write_log(&log)), Ok(log));
    }
}

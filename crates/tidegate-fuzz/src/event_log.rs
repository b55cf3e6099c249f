//! The reader refuses a text, or reads an event log that it reads again after a write.

use tidegate::controller::{read_log, write_log};

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(log) = read_log(text) {
        assert_eq!(read_log(&write_log(&log)), Ok(log));
    }
}

//! A fuzz target for the decoder of entries. The target gives the decoder any bytes. The decoder must return
//! the commands in the entry, or an error. Decoded commands must encode to the same bytes.

use tidegate_stream::stream::{Command, Encoder, Entry};

/// Runs the fuzz target on one input. Panics if the tested code breaks a promise.
pub fn run(bytes: &[u8]) {
    let Ok(entry) = Entry::decode(bytes) else {
        return;
    };
    let mut again = Vec::new();
    let mut encoder = Encoder::begin(&mut again, entry.time_us());
    for command in entry.commands() {
        let Ok(command) = command else { return };
        assert_eq!(Command::read(bytes, command.offset), Ok(command));
        assert_eq!(encoder.command(&command), Ok(command.offset));
    }
    assert_eq!(again, bytes);
}

//! Any bytes as an entry: the decoder returns its commands or an error; decoded commands encode to the same
//! bytes.

use tidegate_stream::stream::{Command, Encoder, Entry};

/// Runs the target on one input.
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

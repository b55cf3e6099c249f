//! Any name of a controller builds a controller or is refused with a message.

use tidegate::controller::{Bounds, Choice};

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match text.parse::<Choice>() {
        Ok(choice) => drop(
            choice
                .build(Bounds::default())
                .expect("what parses can be built"),
        ),
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}

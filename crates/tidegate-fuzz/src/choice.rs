//! A fuzz target for the parser of controllers' names. The target gives the parser any text. The parser must
//! refuse the text with a message, or return a choice from which a controller can be built.

use tidegate::controller::{Bounds, Choice};

/// Runs the fuzz target on one input. Panics if the tested code breaks a promise.
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

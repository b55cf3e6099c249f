//! Any name of a controller builds a controller or is refused with a message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::controller::{Bounds, Choice};

fuzz_target!(|text: &str| {
    match text.parse::<Choice>() {
        Ok(choice) => drop(choice.build(Bounds::default()).expect("what parses can be built")),
        Err(e) => assert!(!e.to_string().is_empty()),
    }
});

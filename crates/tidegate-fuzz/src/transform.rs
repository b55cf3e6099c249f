//! A fuzz target for subject transforms. The input is a source, a destination and a subject, with zero bytes
//! between them. If source and destination compile, the transform must return a literal subject of bounded
//! length, or none.

use tidegate_nats::subject;
use tidegate_nats::transform::{TRANSFORMED_BYTES_MAX, Transform};

/// Runs the fuzz target on one input. Panics if the tested code breaks a promise.
pub fn run(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == 0);
    let (Some(source), Some(destination), Some(published)) =
        (parts.next(), parts.next(), parts.next())
    else {
        return;
    };
    let (Ok(source), Ok(destination)) = (
        std::str::from_utf8(source),
        std::str::from_utf8(destination),
    ) else {
        return;
    };
    let transform = match Transform::compile(source, destination) {
        Ok(transform) => transform,
        Err(e) => return assert!(!e.to_string().is_empty()),
    };
    let random = crc32c::crc32c(data).into();
    let Some(mapped) = transform.apply(published, random) else {
        return;
    };
    assert!(transform.matches(published) && subject::is_literal(&mapped));
    assert!(mapped.len() <= TRANSFORMED_BYTES_MAX);
    assert_eq!(transform.apply(published, random), Some(mapped));
}

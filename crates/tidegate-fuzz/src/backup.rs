//! A fuzz target for the reader of backups, because clients send backups. The target gives the reader any
//! bytes as compressed data. If the lowest bit of the first byte is set, the target puts the bytes into
//! chunks with right checksums, so that the fuzzer gets past the decompression. The reader must return items
//! or an error, and the numbers of the messages must rise.

use tidegate_stream::backup::{Item, Reader, Step};

/// Runs the fuzz target on one input. Panics if the tested code breaks a promise.
pub fn run(bytes: &[u8]) {
    let Some((form, rest)) = bytes.split_first() else {
        return;
    };
    let part = usize::from(form >> 1) * 16 + 1;
    let input = match form & 1 {
        0 => rest.to_vec(),
        _ => chunks(rest),
    };
    let mut reader = Reader::new("ORDERS");
    let mut parts = input.chunks(part);
    let mut last = 0;
    let mut steps = 0_usize;
    while let Ok(step) = reader.step() {
        steps += 1;
        // A chunk of a few bytes may decompress to megabytes, 32 KiB in each step, so the bound on steps is
        // generous.
        assert!(
            steps < 10_000 + 300 * input.len(),
            "the reader makes no progress"
        );
        match step {
            Step::Item(Item::End) => break,
            Step::Item(Item::Message(message)) => {
                assert!(message.seq.get() > last, "the numbers do not rise");
                last = message.seq.get();
            }
            Step::Item(_) | Step::On => {}
            Step::Hungry => match parts.next() {
                Some(part) => reader.feed(part),
                None => reader.finish(),
            },
        }
    }
}

/// Puts plain bytes into uncompressed chunks of the compression format S2, with right checksums.
fn chunks(plain: &[u8]) -> Vec<u8> {
    let mut out = b"\xff\x06\x00\x00S2sTwO".to_vec();
    for part in plain.chunks(1 << 16) {
        let crc = crc32c::crc32c(part).rotate_right(15);
        out.push(1);
        let len = u32::try_from(part.len() + 4).unwrap_or(u32::MAX);
        out.extend_from_slice(&len.to_le_bytes()[..3]);
        out.extend_from_slice(&crc.wrapping_add(0xa282_ead8).to_le_bytes());
        out.extend_from_slice(part);
    }
    out
}

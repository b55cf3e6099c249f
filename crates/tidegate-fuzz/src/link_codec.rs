//! A fuzz target for the codecs of the link. The target gives the codecs any bytes as frames, replies or
//! handshakes. The scan for frames guesses the sizes of frames, and must find the same frames with any
//! guess. Decoded values must encode to the same bytes.

use tidegate_link::Seq;
use tidegate_link::frame::{Layout, REPLY_BYTES, Reply};
use tidegate_link::hello::{Answer, Hello};
use tidegate_link::proto::opening::{Opening, detect};

/// Runs the fuzz target on one input. Panics if the tested code breaks a promise.
pub fn run(bytes: &[u8]) {
    for layout in [Layout::Plain, Layout::Session, Layout::Checked] {
        frames(layout, bytes);
        if let Some(unit) = bytes.first_chunk::<REPLY_BYTES>() {
            match Reply::decode(layout, unit) {
                Reply::Unknown(_) => {}
                // The server ends a connection with a bye, a reply with a code of 16 bits. The decoder maps
                // all larger codes to one value, so these do not encode to the same bytes, and the target
                // skips them.
                Reply::Bye(_) if unit[2..8] != [0; 6] => {}
                reply => assert_eq!(reply.encode(), *unit),
            }
        }
    }
    if let Ok(Some((hello, len))) = Hello::decode(bytes) {
        // The encoder writes only the known fields and flags, so it may write fewer bytes than the decoder
        // read.
        let again = hello.encode();
        assert!(again.len() <= len);
        assert_eq!(
            Hello::decode(&again),
            Ok(Some((hello.clone(), again.len())))
        );
        assert_eq!(detect(bytes), Ok(Opening::Session { hello, bytes: len }));
    }
    if let Ok(Some((answer, _))) = Answer::decode(bytes) {
        let again = answer.encode();
        assert_eq!(Answer::decode(&again), Ok(Some((answer, again.len()))));
    }
    // The target adds a valid checksum to the bytes, so that the fuzzer gets past the decoder's check.
    let mut sealed = bytes.to_vec();
    let sum = crc(&sealed);
    sealed.extend_from_slice(&sum.to_le_bytes());
    let _ = (
        Hello::decode(&sealed),
        Answer::decode(&sealed),
        detect(&sealed),
    );
}

/// Checks that the scan finds the same frames as a walk from frame to frame, although the scan guesses the
/// sizes of frames.
fn frames(layout: Layout, bytes: &[u8]) {
    let max = 300;
    let (mut at, mut count) = (0, 0);
    let mut payloads = layout.payloads(bytes);
    let mut again = Vec::new();
    while let Some(size) = bytes
        .get(at + layout.header() - 4..)
        .and_then(<[u8]>::first_chunk)
    {
        let size = u32::from_le_bytes(*size);
        if size > max || bytes.len() - at < layout.framed(size as usize) {
            break;
        }
        let start = at + layout.header();
        let payload = &bytes[start..start + size as usize];
        assert_eq!(payloads.next(), Some(payload));
        at += layout.framed(size as usize);
        count += 1;
        layout.encode(Seq::new(count), payload, &mut again);
    }
    let scan = layout.scan(bytes, max);
    assert_eq!((scan.count, scan.bytes), (count, at));
    assert_eq!(again.len(), at);
    assert_eq!(layout.scan(&again, max).count, count);
    assert_eq!(layout.span(bytes, count), at);
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, b| {
        (0..8).fold(crc ^ u32::from(*b), |c, _| {
            if c & 1 == 1 {
                c >> 1 ^ 0x82F6_3B78
            } else {
                c >> 1
            }
        })
    })
}

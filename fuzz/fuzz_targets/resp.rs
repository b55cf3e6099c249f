//! Replies are refused or read, and then as the oracle reads them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_protocol::resp3::decode::complete::decode;
use tidegate_redis::Value;

fuzz_target!(|wire: &[u8]| {
    let Ok(values) = tidegate_redis::decode(wire) else {
        return;
    };
    // What both read as one flat reply must be the same reply.
    let Some(Ok(first)) = values.first().map(shape) else {
        return;
    };
    if let Ok(Some((frame, _))) = decode(wire) {
        assert_eq!(first, frame.to_string().unwrap_or_default());
    }
});

/// The text of a flat reply; an error for those whose text the oracle writes in its own way.
fn shape(value: &Value) -> Result<String, ()> {
    match value {
        Value::Int(n) => Ok(n.to_string()),
        Value::Bulk(b) | Value::Simple(b) => String::from_utf8(b.to_vec()).map_err(drop),
        _ => Err(()),
    }
}

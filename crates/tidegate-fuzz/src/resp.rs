//! A fuzz target for the decoder of Redis replies. The target gives the decoder any bytes. The decoder must
//! return replies or an error, and must read a reply without nested values as the crate redis-protocol does.

use redis_protocol::resp3::decode::complete::decode;
use redis_protocol::resp3::types::OwnedFrame;
use tidegate_redis::Value;

/// Runs the fuzz target on one input. Panics if the tested code breaks a promise.
pub fn run(wire: &[u8]) {
    let Ok(values) = tidegate_redis::decode(wire) else {
        return;
    };
    let Some(first) = values.first() else {
        return;
    };
    match (first, decode(wire)) {
        (Value::Int(ours), Ok(Some((OwnedFrame::Number { data, .. }, _)))) => {
            assert_eq!(*ours, data);
        }
        (Value::Bulk(ours), Ok(Some((OwnedFrame::BlobString { data, .. }, _)))) => {
            assert_eq!(ours[..], data[..]);
        }
        (Value::Simple(ours), Ok(Some((OwnedFrame::SimpleString { data, .. }, _)))) => {
            assert_eq!(ours[..], data[..]);
        }
        _ => {}
    }
}

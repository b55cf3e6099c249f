//! Replies are refused or read; flat replies read as in the oracle.
#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_protocol::resp3::decode::complete::decode;
use redis_protocol::resp3::types::OwnedFrame;
use tidegate_redis::Value;

fuzz_target!(|wire: &[u8]| {
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
});

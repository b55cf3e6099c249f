//! Nested replies, which the crate `resp-rs` builds from frames that the scanner has measured and bounded.
//!
//! No other file uses that crate to decode replies. `resp` handles flat replies and incomplete ones.

use bytes::Bytes;
use resp_rs::resp3::{Frame, parse_frame};

use crate::reply::{ServerError, Value};
use crate::resp::{ProtocolError, double};

/// Builds the value of one whole frame.
pub(crate) fn build(frame: Bytes) -> Result<Value, ProtocolError> {
    match parse_frame(frame) {
        Ok((frame, rest)) if rest.is_empty() => value(frame),
        _ => Err(ProtocolError::Unsupported),
    }
}

fn value(frame: Frame) -> Result<Value, ProtocolError> {
    Ok(match frame {
        Frame::SimpleString(s) => Value::Simple(s),
        Frame::Error(line) | Frame::BlobError(line) => Value::Error(ServerError::parse(&line)),
        Frame::Integer(n) => Value::Int(n),
        Frame::BulkString(Some(b)) => Value::Bulk(b),
        Frame::BulkString(None) | Frame::Null | Frame::Array(None) => Value::Nil,
        Frame::Double(x) => Value::Double(x),
        Frame::SpecialFloat(s) => Value::Double(double(&s)?),
        Frame::Boolean(b) => Value::Bool(b),
        Frame::BigNumber(n) => Value::BigNumber(n),
        // Three letters of format and a colon precede the text.
        Frame::VerbatimString { payload } if payload.len() >= 4 => Value::Bulk(payload.slice(4..)),
        Frame::Array(Some(items)) => Value::Array(values(items)?),
        Frame::Set(items) => Value::Set(values(items)?),
        Frame::Push(items) => Value::Push(values(items)?),
        Frame::Map(pairs) => Value::Map(
            pairs
                .into_iter()
                .map(|(k, v)| Ok((value(k)?, value(v)?)))
                .collect::<Result<_, _>>()?,
        ),
        _ => return Err(ProtocolError::Unsupported),
    })
}

fn values(items: Vec<Frame>) -> Result<Vec<Value>, ProtocolError> {
    items.into_iter().map(value).collect()
}

//! Builds the values of nested RESP replies, such as lists of lists, from bytes that the scanner of `resp`
//! has measured and bounded.
//!
//! The scanner has checked lengths, depth and line ends. `resp` handles flat replies and incomplete replies.

use bytes::Bytes;

use crate::reply::{ServerError, Value};
use crate::resp::{ProtocolError, length, line_len, line_value};

/// Builds the value of one whole nested reply. Its strings share the memory of `frame`, without a copy.
pub(crate) fn build(frame: &Bytes) -> Result<Value, ProtocolError> {
    let mut rest = Rest { frame, at: 0 };
    let value = rest.value()?;
    match rest.at == frame.len() {
        true => Ok(value),
        false => Err(ProtocolError::Unsupported),
    }
}

/// The part of a nested reply for which the decoder has built no values yet.
struct Rest<'a> {
    frame: &'a Bytes,
    at: usize,
}

impl Rest<'_> {
    /// Builds the next value of the nested reply. The scanner bounds the depth of the reply, and with it the
    /// recursion.
    fn value(&mut self) -> Result<Value, ProtocolError> {
        let (kind, line) = self.line()?;
        Ok(match kind {
            b'$' | b'!' | b'=' => match length(&line)? {
                Some(len) => self.bulk(kind, len)?,
                None => Value::Nil,
            },
            b'*' => match length(&line)? {
                Some(len) => Value::Array(self.values(len)?),
                None => Value::Nil,
            },
            b'~' => Value::Set(self.values(present(&line)?)?),
            b'>' => Value::Push(self.values(present(&line)?)?),
            b'%' => Value::Map(self.pairs(present(&line)?)?),
            kind => line_value(kind, line)?,
        })
    }

    /// Returns the type byte of the reply's next line, and the rest of that line, from which the value is
    /// built.
    fn line(&mut self) -> Result<(u8, Bytes), ProtocolError> {
        let left = &self.frame[self.at..];
        let (Some(&kind), Some(len)) = (left.first(), line_len(left)?) else {
            return Err(ProtocolError::Unsupported);
        };
        if len == 0 {
            return Err(ProtocolError::UnknownType(kind));
        }
        let line = self.frame.slice(self.at + 1..self.at + len);
        self.at += len + 2;
        Ok((kind, line))
    }

    fn bulk(&mut self, kind: u8, len: u64) -> Result<Value, ProtocolError> {
        let end = usize::try_from(len)
            .ok()
            .and_then(|n| self.at.checked_add(n));
        let Some(end) = end.filter(|end| end + 2 <= self.frame.len()) else {
            return Err(ProtocolError::BadEnd);
        };
        let bytes = self.frame.slice(self.at..end);
        self.at = end + 2;
        match kind {
            b'!' => Ok(Value::Error(ServerError::parse(&bytes))),
            // A verbatim string begins with a format of three letters and a colon, as in `txt:`.
            b'=' if bytes.len() >= 4 => Ok(Value::Bulk(bytes.slice(4..))),
            b'=' => Err(ProtocolError::Unsupported),
            _ => Ok(Value::Bulk(bytes)),
        }
    }

    // A server may announce a longer list than it sends, so the announced length does not set the size of an
    // allocation: the vectors grow with the values read.
    fn values(&mut self, len: u64) -> Result<Vec<Value>, ProtocolError> {
        (0..len).map(|_| self.value()).collect()
    }

    fn pairs(&mut self, len: u64) -> Result<Vec<(Value, Value)>, ProtocolError> {
        (0..len)
            .map(|_| Ok((self.value()?, self.value()?)))
            .collect()
    }
}

/// Parses the length of a set, a map or a push, which a server cannot send as null.
fn present(line: &[u8]) -> Result<u64, ProtocolError> {
    length(line)?.ok_or(ProtocolError::Unsupported)
}

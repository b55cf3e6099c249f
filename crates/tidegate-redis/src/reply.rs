//! Replies: the values that a server sends ([`Value`], [`ServerError`]), and the conversion to
//! a program's types ([`FromReply`]).
//!
//! `resp` decodes the bytes. If a reply has another shape than the program asked for, the error names both.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash};

use bytes::Bytes;

/// A reply of the server, by the type that the protocol gives it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Nil: the reply in place of a value that does not exist, such as a missing key, or of an aborted
    /// transaction.
    Nil,
    /// A reply that is an integer.
    Int(i64),
    /// A reply that is a status, such as `OK`.
    Simple(Bytes),
    /// A reply that is a string of bytes.
    Bulk(Bytes),
    /// The server's refusal of the command.
    Error(ServerError),
    /// A reply that is a number with a fraction.
    Double(f64),
    /// A reply that is true or false.
    Bool(bool),
    /// A reply that is an integer of any length, in decimal digits.
    BigNumber(Bytes),
    /// A reply that is a list of replies.
    Array(Vec<Self>),
    /// A reply that is a set of replies.
    Set(Vec<Self>),
    /// A reply that consists of pairs of a key and a value, in the server's order.
    Map(Vec<(Self, Self)>),
    /// A push: data that the server sends without a request, such as a message of pub/sub or the news that a
    /// cached key has changed.
    Push(Vec<Self>),
}

impl Value {
    /// Returns the bytes of a string or a status; `None` for any other value.
    #[must_use]
    pub const fn as_bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Bulk(b) | Self::Simple(b) => Some(b),
            _ => None,
        }
    }

    /// Names the kind of value, for error messages.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Nil => "nil",
            Self::Int(_) => "an integer",
            Self::Simple(_) => "a status",
            Self::Bulk(_) => "a string",
            Self::Error(_) => "an error",
            Self::Double(_) => "a double",
            Self::Bool(_) => "a boolean",
            Self::BigNumber(_) => "a big number",
            Self::Array(_) => "an array",
            Self::Set(_) => "a set",
            Self::Map(_) => "a map",
            Self::Push(_) => "a push",
        }
    }
}

/// The kind of a server's refusal, which the first word of the error reply names, so that a program can react
/// to it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerErrorKind {
    /// `ERR`: a wrong command or wrong arguments.
    Err,
    /// `WRONGTYPE`: the key holds a value of another type.
    WrongType,
    /// `OOM`: the server is at its memory limit, and refuses commands that need memory.
    OutOfMemory,
    /// `READONLY`: the program sent a write to a replica.
    ReadOnly,
    /// `NOAUTH`: the server wants a password first.
    NoAuth,
    /// `WRONGPASS`: the user or the password is wrong.
    WrongPass,
    /// `NOPERM`: the user may not execute the command, or not with these keys or channels.
    NoPerm,
    /// `LOADING`: the server still loads its data; try again later.
    Loading,
    /// `BUSY`: the server runs a script, and executes no other command meanwhile.
    Busy,
    /// `NOSCRIPT`: the server knows no script with this digest.
    NoScript,
    /// `EXECABORT`: the transaction was dropped because a command in it was refused.
    ExecAbort,
    /// `TRYAGAIN`: the cluster is moving the key slot; try again later.
    TryAgain,
    /// `CLUSTERDOWN`: the cluster does not serve this key slot now.
    ClusterDown,
    /// `CROSSSLOT`: the command has keys of different key slots, and a cluster executes it for one slot only.
    CrossSlot,
    /// `MASTERDOWN`: the replica has lost its master, and may not answer with old data.
    MasterDown,
    /// `MISCONF`: the server cannot persist and refuses writes.
    Misconf,
    /// `NOPROTO`: the server does not speak the protocol asked for.
    NoProto,
    /// `MOVED`: another node owns this key slot permanently, so the program sends the command there.
    Moved {
        /// The key slot of the command.
        slot: u16,
        /// The host and port of the node that owns the key slot, to which the program sends the command.
        node: String,
    },
    /// `ASK`: another node owns this key for the moment. The program sends `ASKING` to that node, then the
    /// command.
    Ask {
        /// The key slot of the command.
        slot: u16,
        /// The host and port of the node that owns the key for the moment.
        node: String,
    },
    /// The refusal begins with any other word.
    Other,
}

/// The refusal of a command by the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError(Box<Refusal>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    kind: ServerErrorKind,
    line: String,
}

impl ServerError {
    pub(crate) fn parse(line: &[u8]) -> Self {
        let line = String::from_utf8_lossy(line).into_owned();
        let mut words = line.split(' ');
        let kind = match words.next().unwrap_or_default() {
            "ERR" => ServerErrorKind::Err,
            "WRONGTYPE" => ServerErrorKind::WrongType,
            "OOM" => ServerErrorKind::OutOfMemory,
            "READONLY" => ServerErrorKind::ReadOnly,
            "NOAUTH" => ServerErrorKind::NoAuth,
            "WRONGPASS" => ServerErrorKind::WrongPass,
            "NOPERM" => ServerErrorKind::NoPerm,
            "LOADING" => ServerErrorKind::Loading,
            "BUSY" => ServerErrorKind::Busy,
            "NOSCRIPT" => ServerErrorKind::NoScript,
            "EXECABORT" => ServerErrorKind::ExecAbort,
            "TRYAGAIN" => ServerErrorKind::TryAgain,
            "CLUSTERDOWN" => ServerErrorKind::ClusterDown,
            "CROSSSLOT" => ServerErrorKind::CrossSlot,
            "MASTERDOWN" => ServerErrorKind::MasterDown,
            "MISCONF" => ServerErrorKind::Misconf,
            "NOPROTO" => ServerErrorKind::NoProto,
            moved @ ("MOVED" | "ASK") => {
                match (words.next().and_then(|s| s.parse().ok()), words.next()) {
                    (Some(slot), Some(node)) if moved == "MOVED" => ServerErrorKind::Moved {
                        slot,
                        node: node.to_owned(),
                    },
                    (Some(slot), Some(node)) => ServerErrorKind::Ask {
                        slot,
                        node: node.to_owned(),
                    },
                    _ => ServerErrorKind::Other,
                }
            }
            _ => ServerErrorKind::Other,
        };
        Self(Box::new(Refusal { kind, line }))
    }

    /// Returns the kind of the server's refusal.
    #[must_use]
    pub fn kind(&self) -> &ServerErrorKind {
        &self.0.kind
    }

    /// Returns the whole line of the server's error reply, with the server's own text.
    #[must_use]
    pub fn line(&self) -> &str {
        &self.0.line
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server refused: {}", self.0.line)
    }
}

impl std::error::Error for ServerError {}

/// The reasons why a reply does not convert to the type that the program asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyError {
    /// The server refused the command, or a command of a transaction or pipeline.
    Server(ServerError),
    /// The reply does not convert to the type that the program asked for.
    Unexpected {
        /// The kind of reply that converts to the type that the program asked for.
        wanted: &'static str,
        /// The kind of reply that the server sent instead.
        got: &'static str,
    },
}

impl ReplyError {
    /// Returns the error for a reply `got` in place of `wanted`, for implementations of [`FromReply`].
    #[must_use]
    pub fn unexpected(wanted: &'static str, got: &Value) -> Self {
        match got {
            Value::Error(e) => Self::Server(e.clone()),
            other => Self::Unexpected {
                wanted,
                got: other.kind(),
            },
        }
    }
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(e) => e.fmt(f),
            Self::Unexpected { wanted, got } => {
                write!(
                    f,
                    "expected {wanted}, the server sent {got}: ask for another type"
                )
            }
        }
    }
}

impl std::error::Error for ReplyError {}

/// A type that a reply converts to. Implement it for types of your own:
///
/// ```
/// use tidegate_redis::{FromReply, ReplyError, Value};
///
/// struct Celsius(f64);
///
/// impl FromReply for Celsius {
///     fn from_reply(value: Value) -> Result<Self, ReplyError> {
///         f64::from_reply(value).map(Self)
///     }
/// }
/// ```
pub trait FromReply: Sized {
    /// Converts `value` to this type.
    ///
    /// # Errors
    /// A refusal of the server, or a reply of another shape.
    fn from_reply(value: Value) -> Result<Self, ReplyError>;
}

impl FromReply for Value {
    /// Returns any reply unchanged, and a refusal as an error.
    fn from_reply(value: Value) -> Result<Self, ReplyError> {
        match value {
            Self::Error(e) => Err(ReplyError::Server(e)),
            other => Ok(other),
        }
    }
}

impl FromReply for () {
    /// Accepts any reply except a refusal of the server, and ignores its content, for programs that need only
    /// success.
    fn from_reply(value: Value) -> Result<Self, ReplyError> {
        Value::from_reply(value).map(drop)
    }
}

impl FromReply for Bytes {
    fn from_reply(value: Value) -> Result<Self, ReplyError> {
        match value {
            Value::Bulk(b) | Value::Simple(b) | Value::BigNumber(b) => Ok(b),
            Value::Int(n) => Ok(Self::copy_from_slice(
                itoa::Buffer::new().format(n).as_bytes(),
            )),
            Value::Double(x) => Ok(Self::from(x.to_string())),
            other => Err(ReplyError::unexpected("a string", &other)),
        }
    }
}

impl FromReply for Vec<u8> {
    fn from_reply(value: Value) -> Result<Self, ReplyError> {
        Bytes::from_reply(value).map(Self::from)
    }
}

impl FromReply for String {
    fn from_reply(value: Value) -> Result<Self, ReplyError> {
        Self::from_utf8(Vec::from_reply(value)?).map_err(|_| ReplyError::Unexpected {
            wanted: "text in UTF-8",
            got: "other bytes",
        })
    }
}

impl FromReply for bool {
    fn from_reply(value: Value) -> Result<Self, ReplyError> {
        match value {
            Value::Bool(b) => Ok(b),
            Value::Int(n @ (0 | 1)) => Ok(n == 1),
            // The reply to `SET ... NX` is OK if the server set the key, and nil if it did not.
            Value::Simple(s) if s == "OK" => Ok(true),
            Value::Nil => Ok(false),
            other => Err(ReplyError::unexpected("a boolean", &other)),
        }
    }
}

macro_rules! numbers {
    ($what:literal: $($int:ty),*) => {$(
        impl FromReply for $int {
            fn from_reply(value: Value) -> Result<Self, ReplyError> {
                match &value {
                    Value::Int(n) => Self::try_from(*n).ok(),
                    Value::Bulk(b) | Value::Simple(b) | Value::BigNumber(b) => {
                        std::str::from_utf8(b).ok().and_then(|s| s.parse().ok())
                    }
                    _ => None,
                }
                .ok_or_else(|| ReplyError::unexpected($what, &value))
            }
        }
    )*};
}
numbers!("an integer of this size": i8, i16, i32, i64, u8, u16, u32, u64, usize, isize, i128, u128);

impl FromReply for f64 {
    fn from_reply(value: Value) -> Result<Self, ReplyError> {
        match &value {
            Value::Double(x) => Some(*x),
            Value::Int(n) => Some(*n as Self),
            Value::Bulk(b) | Value::Simple(b) => {
                std::str::from_utf8(b).ok().and_then(|s| s.parse().ok())
            }
            _ => None,
        }
        .ok_or_else(|| ReplyError::unexpected("a number", &value))
    }
}

impl<T: FromReply> FromReply for Option<T> {
    /// Returns `None` for nil, and otherwise converts the reply.
    fn from_reply(value: Value) -> Result<Self, ReplyError> {
        match value {
            Value::Nil => Ok(None),
            other => T::from_reply(other).map(Some),
        }
    }
}

/// Implements [`FromReply`] for `Vec`s of the named element types only. An implementation for all element
/// types would include `Vec<u8>`, which is a string.
macro_rules! lists {
    ($($item:ty),*) => {$(
        impl FromReply for Vec<$item> {
            fn from_reply(value: Value) -> Result<Self, ReplyError> {
                list(value)
            }
        }
    )*};
}
lists!(
    Value,
    Bytes,
    String,
    Vec<u8>,
    bool,
    i64,
    u64,
    f64,
    Option<Bytes>,
    Option<String>,
    Option<Vec<u8>>,
    Option<i64>,
    Option<u64>,
    Option<f64>
);

/// Converts the elements of an array, a set or a push to a list. A program uses it in [`FromReply`] for a
/// list of its own type.
///
/// # Errors
/// Like [`FromReply::from_reply`].
pub fn list<T: FromReply>(value: Value) -> Result<Vec<T>, ReplyError> {
    match value {
        Value::Array(items) | Value::Set(items) | Value::Push(items) => {
            items.into_iter().map(T::from_reply).collect()
        }
        other => Err(ReplyError::unexpected("a list", &other)),
    }
}

impl<K, V, S> FromReply for HashMap<K, V, S>
where
    K: FromReply + Eq + Hash,
    V: FromReply,
    S: BuildHasher + Default,
{
    /// Converts a map, or a RESP2 list of alternating keys and values.
    fn from_reply(value: Value) -> Result<Self, ReplyError> {
        match value {
            Value::Map(pairs) => pairs
                .into_iter()
                .map(|(k, v)| Ok((K::from_reply(k)?, V::from_reply(v)?)))
                .collect(),
            Value::Array(items) if items.len().is_multiple_of(2) => {
                let mut map = Self::with_capacity_and_hasher(items.len() / 2, S::default());
                let mut items = items.into_iter();
                while let (Some(k), Some(v)) = (items.next(), items.next()) {
                    map.insert(K::from_reply(k)?, V::from_reply(v)?);
                }
                Ok(map)
            }
            other => Err(ReplyError::unexpected("a map", &other)),
        }
    }
}

macro_rules! tuples {
    ($($n:literal: $($t:ident)*),*) => {$(
        impl<$($t: FromReply),*> FromReply for ($($t,)*) {
            fn from_reply(value: Value) -> Result<Self, ReplyError> {
                match value {
                    Value::Array(items) if items.len() == $n => {
                        let mut items = items.into_iter();
                        Ok(($($t::from_reply(items.next().unwrap_or(Value::Nil))?,)*))
                    }
                    other => Err(ReplyError::unexpected(concat!("a list of ", $n), &other)),
                }
            }
        }
    )*};
}
tuples!(1: A, 2: A B, 3: A B C, 4: A B C D, 5: A B C D E, 6: A B C D E F);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_become_what_is_asked_for() {
        let bulk = |s: &str| Value::Bulk(Bytes::copy_from_slice(s.as_bytes()));
        assert_eq!(i64::from_reply(bulk("-7")), Ok(-7));
        assert!(u8::from_reply(Value::Int(300)).is_err());
        assert_eq!(Option::<String>::from_reply(Value::Nil), Ok(None));
        assert_eq!(String::from_reply(bulk("x")), Ok("x".to_owned()));
        let pairs = Value::Array(vec![bulk("a"), Value::Int(1), bulk("b"), Value::Int(2)]);
        let map = HashMap::<String, i64>::from_reply(pairs).unwrap();
        assert_eq!((map["a"], map["b"]), (1, 2));
        let t = <(i64, String)>::from_reply(Value::Array(vec![Value::Int(1), bulk("z")]));
        assert_eq!(t, Ok((1, "z".to_owned())));
        assert_eq!(
            Vec::<i64>::from_reply(Value::Int(1))
                .unwrap_err()
                .to_string(),
            "expected a list, the server sent an integer: ask for another type"
        );
    }

    #[test]
    fn refusals_are_told_apart() {
        let e = ServerError::parse(b"MOVED 3999 127.0.0.1:6381");
        assert_eq!(
            *e.kind(),
            ServerErrorKind::Moved {
                slot: 3999,
                node: "127.0.0.1:6381".into()
            }
        );
        assert_eq!(*ServerError::parse(b"ASK x").kind(), ServerErrorKind::Other);
        assert_eq!(
            *ServerError::parse(b"WRONGTYPE no").kind(),
            ServerErrorKind::WrongType
        );
        assert_eq!(*ServerError::parse(b"\xff").kind(), ServerErrorKind::Other);
    }
}

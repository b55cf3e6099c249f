//! Redis commands: the name, the arguments and the hints of a command, encoded as the program builds it.
//!
//! This module encodes arguments, and knows by name the commands that only read and those that block. Short
//! commands allocate nothing.

use std::time::Duration;

use bytes::Bytes;

use crate::resp;
use crate::wire::Wire;

/// A Redis command that a program builds and sends: `cmd("SET").arg("key").arg(1)`.
#[derive(Clone, Debug)]
pub struct Cmd {
    /// The name and the arguments of the command, each encoded as a RESP bulk string, ready for the
    /// connection.
    body: Wire,
    args: u32,
    pub(crate) hints: Hints,
    pub(crate) timeout: Option<Duration>,
}

/// The writer through which implementations of [`ToArgs`] append the arguments of a command.
#[derive(Debug)]
pub struct Args<'a> {
    out: &'a mut Wire,
    count: u32,
}

impl Args<'_> {
    /// Appends one argument to the command, in the encoding of the wire.
    pub fn push(&mut self, arg: &[u8]) {
        self.count += 1;
        resp::put_bulk(self.out.block(), arg);
    }

    /// Appends one argument. The client sends an argument of 16 KiB or more from the caller's memory, without
    /// a copy.
    pub fn push_bytes(&mut self, arg: &Bytes) {
        self.count += 1;
        resp::put_bulk_header(self.out.block(), arg.len());
        self.out.put(arg);
        self.out.block().extend_from_slice(b"\r\n");
    }
}

/// Writes a whole command in RESP to `out`, ready for the server, with the arguments that `write` gives.
pub(crate) fn encode(out: &mut Wire, write: impl FnOnce(&mut Args<'_>)) {
    let block = out.block();
    let head = block.len();
    block.extend_from_slice(b"*0\r\n");
    let mut args = Args { out, count: 0 };
    write(&mut args);
    let count = args.count;
    match u8::try_from(count) {
        Ok(n @ 0..=9) => out.block()[head + 1] = b'0' + n,
        _ => out.replace(head + 1, itoa::Buffer::new().format(count).as_bytes()),
    }
}

/// A caller's hints about one command: whether the client flushes it at once, which connection it takes, and
/// whether it only reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hints {
    pub(crate) urgent: bool,
    pub(crate) bulk: bool,
    /// True if the program says that the command only reads, so that the client may repeat it. If `None`, the
    /// command's name decides.
    pub(crate) read_only: Option<bool>,
}

/// Starts a command of this name, without arguments, which the program then adds.
#[must_use]
pub fn cmd(name: &str) -> Cmd {
    Cmd::new(name)
}

impl Cmd {
    /// Starts a command of this name, without arguments. A name of several words (`CLIENT
    /// SETNAME`) becomes several arguments.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut cmd = Self {
            body: Wire::with_capacity(64),
            args: 0,
            hints: Hints::default(),
            timeout: None,
        };
        if name.contains(' ') {
            for word in name.split_ascii_whitespace() {
                cmd.push(word.as_bytes());
            }
        } else {
            cmd.push(name.as_bytes());
        }
        cmd
    }

    /// Builds a command from the arguments that `write` gives, the name first, as typed methods do.
    pub(crate) fn of(write: impl FnOnce(&mut Args<'_>)) -> Self {
        let mut body = Wire::default();
        let mut args = Args {
            out: &mut body,
            count: 0,
        };
        write(&mut args);
        let args = args.count;
        Self {
            body,
            args,
            hints: Hints::default(),
            timeout: None,
        }
    }

    /// Adds an argument to the command, or several arguments (a slice, an array, a `Vec`), or none (an
    /// `Option` without a value).
    #[must_use]
    pub fn arg(mut self, arg: impl ToArgs) -> Self {
        let mut args = Args {
            out: &mut self.body,
            count: self.args,
        };
        arg.write_args(&mut args);
        self.args = args.count;
        self
    }

    fn push(&mut self, arg: &[u8]) {
        self.args += 1;
        resp::put_bulk(self.body.block(), arg);
    }

    /// Makes the client flush the command at once, regardless of the policy.
    #[must_use]
    pub const fn urgent(mut self) -> Self {
        self.hints.urgent = true;
        self
    }

    /// Marks the command or its reply as large: the command takes a connection of the pool, so that small
    /// commands do not queue behind it.
    #[must_use]
    pub const fn bulk(mut self) -> Self {
        self.hints.bulk = true;
        self
    }

    /// Sets whether the command only reads. If it does, the client may send it a second time after the
    /// connection broke (`Config::retry_reads`). The client knows the usual commands by name; a program sets
    /// this for commands of modules and scripts.
    #[must_use]
    pub const fn read_only(mut self, yes: bool) -> Self {
        self.hints.read_only = Some(yes);
        self
    }

    /// Makes the client wait at most `after` for the reply to the command. On the shared connection the
    /// client's own timeout still applies if it is shorter.
    #[must_use]
    pub const fn timeout(mut self, after: Duration) -> Self {
        self.timeout = Some(after);
        self
    }

    /// Returns the command's bytes on the wire, for tools and tests.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Wire::default();
        self.encode(&mut out);
        out.to_vec()
    }

    /// Appends the command's bytes on the wire to `out`, with the header that counts its arguments.
    pub(crate) fn encode(&self, out: &mut Wire) {
        resp::put_header(out.block(), self.args);
        out.append(&self.body);
    }

    /// Returns the argument at index `at` as the program gave it, to recognize the command; index 0 is the
    /// command's name.
    pub(crate) fn get(&self, at: usize) -> Option<&[u8]> {
        let mut next = 0;
        for n in 0.. {
            let rest = self.body.block_from(next);
            let head = rest.iter().position(|&b| b == b'\r')?;
            let len: usize = std::str::from_utf8(&rest[1..head]).ok()?.parse().ok()?;
            let (arg, after) = self.body.piece(next + head + 2, len)?;
            if n == at {
                return Some(arg);
            }
            next = after + 2;
        }
        None
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.hints
            .read_only
            .unwrap_or_else(|| self.get(0).is_some_and(|name| is_one_of(name, READ_ONLY)))
    }

    /// Returns the reason why the command needs a connection of its own: it blocks, or it changes the state
    /// of its connection. `None` if the command fits the shared connection.
    pub(crate) fn needs_own_connection(&self) -> Option<Kind> {
        let name = self.get(0)?;
        if is_one_of(name, BLOCKING) {
            let xread =
                name.eq_ignore_ascii_case(b"XREAD") || name.eq_ignore_ascii_case(b"XREADGROUP");
            if xread
                && !(1..self.args as usize).any(|i| {
                    self.get(i)
                        .is_some_and(|a| a.eq_ignore_ascii_case(b"BLOCK"))
                })
            {
                return None;
            }
            return Some(Kind::Blocking);
        }
        is_one_of(name, STATEFUL).then_some(Kind::Stateful)
    }
}

/// The reasons why a command needs a connection of its own instead of the shared connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The command blocks until another client writes, as `BLPOP` does.
    Blocking,
    /// The command changes the state of its connection, as `SELECT` does, or the kind of its replies, as
    /// `SUBSCRIBE` does.
    Stateful,
}

fn is_one_of(name: &[u8], list: &[&str]) -> bool {
    list.iter().any(|n| name.eq_ignore_ascii_case(n.as_bytes()))
}

const BLOCKING: &[&str] = &[
    "BLPOP",
    "BRPOP",
    "BLMOVE",
    "BRPOPLPUSH",
    "BLMPOP",
    "BZPOPMIN",
    "BZPOPMAX",
    "BZMPOP",
    "XREAD",
    "XREADGROUP",
    "WAIT",
    "WAITAOF",
];

const STATEFUL: &[&str] = &[
    "MULTI",
    "EXEC",
    "DISCARD",
    "WATCH",
    "UNWATCH",
    "SELECT",
    "AUTH",
    "HELLO",
    "RESET",
    "QUIT",
    "MONITOR",
    "SUBSCRIBE",
    "UNSUBSCRIBE",
    "PSUBSCRIBE",
    "PUNSUBSCRIBE",
    "SSUBSCRIBE",
    "SUNSUBSCRIBE",
    "SYNC",
    "PSYNC",
    "ASKING",
    "READONLY",
    "READWRITE",
];

const READ_ONLY: &[&str] = &[
    "GET",
    "MGET",
    "STRLEN",
    "GETRANGE",
    "EXISTS",
    "TTL",
    "PTTL",
    "TYPE",
    "HGET",
    "HMGET",
    "HGETALL",
    "HLEN",
    "HEXISTS",
    "HKEYS",
    "HVALS",
    "LLEN",
    "LRANGE",
    "LINDEX",
    "SCARD",
    "SISMEMBER",
    "SMEMBERS",
    "SMISMEMBER",
    "SRANDMEMBER",
    "ZCARD",
    "ZCOUNT",
    "ZRANGE",
    "ZRANK",
    "ZSCORE",
    "ZMSCORE",
    "BITCOUNT",
    "GETBIT",
    "PING",
    "ECHO",
    "DBSIZE",
    "SCAN",
    "HSCAN",
    "SSCAN",
    "ZSCAN",
    "XLEN",
    "XRANGE",
    "KEYS",
    "TIME",
    "EXPIRETIME",
    "PFCOUNT",
    "GEOPOS",
    "GEODIST",
];

/// A type that converts to arguments of a command: most types to one argument, a list to several, and `None`
/// to none. An implementation must only append the arguments, because the connection is locked while it runs.
pub trait ToArgs {
    /// Appends the arguments that this value stands for to the command, so that `Cmd::arg` takes the value.
    fn write_args(&self, args: &mut Args<'_>);
}

impl<T: ToArgs + ?Sized> ToArgs for &T {
    fn write_args(&self, args: &mut Args<'_>) {
        (**self).write_args(args);
    }
}

macro_rules! byte_args {
    ($($t:ty),*) => {$(
        impl ToArgs for $t {
            fn write_args(&self, args: &mut Args<'_>) {
                args.push(self.as_ref());
            }
        }
    )*};
}
byte_args!(str, String, [u8], Vec<u8>);

impl ToArgs for Bytes {
    /// Appends the bytes as one argument; the client does not copy bytes of 16 KiB or more.
    fn write_args(&self, args: &mut Args<'_>) {
        args.push_bytes(self);
    }
}

impl<const N: usize> ToArgs for [u8; N] {
    fn write_args(&self, args: &mut Args<'_>) {
        args.push(self);
    }
}

macro_rules! int_args {
    ($($t:ty),*) => {$(
        impl ToArgs for $t {
            fn write_args(&self, args: &mut Args<'_>) {
                args.push(itoa::Buffer::new().format(*self).as_bytes());
            }
        }
    )*};
}
int_args!(i16, i32, i64, isize, u16, u32, u64, usize, i128, u128);

impl ToArgs for f64 {
    fn write_args(&self, args: &mut Args<'_>) {
        args.push(self.to_string().as_bytes());
    }
}

impl<T: ToArgs> ToArgs for Option<T> {
    /// Appends the arguments of the value; appends nothing for `None`.
    fn write_args(&self, args: &mut Args<'_>) {
        if let Some(arg) = self {
            arg.write_args(args);
        }
    }
}

macro_rules! many_args {
    ($($t:ty),*) => {$(
        impl ToArgs for [$t] {
            fn write_args(&self, args: &mut Args<'_>) {
                self.iter().for_each(|a| a.write_args(args));
            }
        }
        impl ToArgs for Vec<$t> {
            fn write_args(&self, args: &mut Args<'_>) {
                self[..].write_args(args);
            }
        }
        impl<const N: usize> ToArgs for [$t; N] {
            fn write_args(&self, args: &mut Args<'_>) {
                self[..].write_args(args);
            }
        }
    )*};
}
many_args!(&str, String, &[u8], Vec<u8>, Bytes, i64, u64, usize, f64);

impl<K: ToArgs, V: ToArgs> ToArgs for [(K, V)] {
    /// Appends each key, followed by its value, as arguments of the command.
    fn write_args(&self, args: &mut Args<'_>) {
        for (key, value) in self {
            key.write_args(args);
            value.write_args(args);
        }
    }
}

impl<K: ToArgs, V: ToArgs> ToArgs for Vec<(K, V)> {
    fn write_args(&self, args: &mut Args<'_>) {
        self[..].write_args(args);
    }
}

impl<K: ToArgs, V: ToArgs, const N: usize> ToArgs for [(K, V); N] {
    fn write_args(&self, args: &mut Args<'_>) {
        self[..].write_args(args);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(cmd: &Cmd) -> String {
        String::from_utf8(cmd.to_bytes()).unwrap()
    }

    #[test]
    fn commands_are_arrays_of_bulks() {
        let set = cmd("SET")
            .arg("k")
            .arg(-5)
            .arg(Some("EX"))
            .arg(None::<i64>)
            .arg(10u64);
        assert_eq!(
            wire(&set),
            "*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n-5\r\n$2\r\nEX\r\n$2\r\n10\r\n"
        );
        assert_eq!(
            wire(&cmd("MSET").arg([("a", 1), ("b", 2)])),
            "*5\r\n$4\r\nMSET\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n2\r\n"
        );
        assert_eq!(
            wire(&cmd("CLIENT ID")),
            "*2\r\n$6\r\nCLIENT\r\n$2\r\nID\r\n"
        );
        assert_eq!(set.get(4), Some(&b"10"[..]));
        assert_eq!(set.get(5), None);
    }

    #[test]
    fn commands_are_known_by_name() {
        assert!(cmd("get").arg("k").is_read_only());
        assert!(!cmd("incr").arg("k").is_read_only());
        assert!(cmd("FCALL_RO").read_only(true).is_read_only());
        assert_eq!(cmd("blpop").needs_own_connection(), Some(Kind::Blocking));
        assert_eq!(cmd("XREAD").arg("STREAMS").needs_own_connection(), None);
        assert_eq!(
            cmd("XREAD").arg("block").needs_own_connection(),
            Some(Kind::Blocking)
        );
        assert_eq!(
            cmd("SELECT").arg(1).needs_own_connection(),
            Some(Kind::Stateful)
        );
        assert_eq!(cmd("GET").needs_own_connection(), None);
    }
}

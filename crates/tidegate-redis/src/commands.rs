//! Typed methods of the client for the everyday Redis commands.

use std::time::Duration;

use crate::call::Reply;
use crate::client::Client;
use crate::command::{Args, ToArgs};
use crate::reply::FromReply;

impl Client {
    /// Returns the value of a key. If the key may be missing, ask for an `Option`.
    pub fn get<T: FromReply>(&self, key: impl ToArgs) -> Reply<T> {
        self.call(move |args| {
            "GET".write_args(args);
            key.write_args(args);
        })
    }

    /// Sets a key to a value. [`set_with`](Self::set_with) takes options.
    pub fn set(&self, key: impl ToArgs, value: impl ToArgs) -> Reply<()> {
        self.call(move |args| {
            "SET".write_args(args);
            key.write_args(args);
            value.write_args(args);
        })
    }

    /// Sets a key with options. A reply of type `bool` says whether the server set the key.
    pub fn set_with<T: FromReply>(
        &self,
        key: impl ToArgs,
        value: impl ToArgs,
        options: SetOptions,
    ) -> Reply<T> {
        self.call(move |args| {
            "SET".write_args(args);
            key.write_args(args);
            value.write_args(args);
            options.write_args(args);
        })
    }

    /// Returns the values of several keys, in the order of the keys.
    pub fn mget<T: FromReply>(&self, keys: impl ToArgs) -> Reply<T> {
        self.call(move |args| {
            "MGET".write_args(args);
            keys.write_args(args);
        })
    }

    /// Sets several keys, given as pairs of a key and a value: `&[("a", 1), ("b", 2)]`.
    pub fn mset(&self, pairs: impl ToArgs) -> Reply<()> {
        self.call(move |args| {
            "MSET".write_args(args);
            pairs.write_args(args);
        })
    }

    /// Adds one to a key; returns the new value.
    pub fn incr(&self, key: impl ToArgs) -> Reply<i64> {
        self.call(move |args| {
            "INCR".write_args(args);
            key.write_args(args);
        })
    }

    /// Adds `by` to a key; returns the new value.
    pub fn incr_by(&self, key: impl ToArgs, by: i64) -> Reply<i64> {
        self.call(move |args| {
            "INCRBY".write_args(args);
            key.write_args(args);
            by.write_args(args);
        })
    }

    /// Removes keys; returns how many existed.
    pub fn del(&self, keys: impl ToArgs) -> Reply<u64> {
        self.call(move |args| {
            "DEL".write_args(args);
            keys.write_args(args);
        })
    }

    /// Returns how many of the keys exist.
    pub fn exists(&self, keys: impl ToArgs) -> Reply<u64> {
        self.call(move |args| {
            "EXISTS".write_args(args);
            keys.write_args(args);
        })
    }

    /// Sets a key's time to live, in whole milliseconds; returns whether the key exists.
    pub fn expire(&self, key: impl ToArgs, after: Duration) -> Reply<bool> {
        self.call(move |args| {
            "PEXPIRE".write_args(args);
            key.write_args(args);
            millis(after).write_args(args);
        })
    }

    /// Returns the value of one field of a hash.
    pub fn hget<T: FromReply>(&self, key: impl ToArgs, field: impl ToArgs) -> Reply<T> {
        self.call(move |args| {
            "HGET".write_args(args);
            key.write_args(args);
            field.write_args(args);
        })
    }

    /// Sets fields of a hash, given as pairs of a field and a value: `&[("name", "x")]`. Returns how many of
    /// the fields are new.
    pub fn hset(&self, key: impl ToArgs, pairs: impl ToArgs) -> Reply<u64> {
        self.call(move |args| {
            "HSET".write_args(args);
            key.write_args(args);
            pairs.write_args(args);
        })
    }

    /// Returns all fields of a hash, as a `HashMap`.
    pub fn hgetall<T: FromReply>(&self, key: impl ToArgs) -> Reply<T> {
        self.call(move |args| {
            "HGETALL".write_args(args);
            key.write_args(args);
        })
    }

    /// Puts values at the head of a list; returns the list's new length.
    pub fn lpush(&self, key: impl ToArgs, values: impl ToArgs) -> Reply<u64> {
        self.call(move |args| {
            "LPUSH".write_args(args);
            key.write_args(args);
            values.write_args(args);
        })
    }

    /// Removes the last value of a list, and returns it.
    pub fn rpop<T: FromReply>(&self, key: impl ToArgs) -> Reply<T> {
        self.call(move |args| {
            "RPOP".write_args(args);
            key.write_args(args);
        })
    }

    /// Publishes a message; returns the number of this server's subscribers that received it.
    pub fn publish(&self, channel: impl ToArgs, message: impl ToArgs) -> Reply<u64> {
        self.call(move |args| {
            "PUBLISH".write_args(args);
            channel.write_args(args);
            message.write_args(args);
        })
    }

    /// Sends `PING`, to check that the server answers.
    pub fn ping(&self) -> Reply<()> {
        self.call(move |args| {
            "PING".write_args(args);
        })
    }
}

/// The options of the command `SET`, such as an expiry or a condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetOptions {
    expire: Option<Expire>,
    only: Option<&'static str>,
    get: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expire {
    After(u64),
    Keep,
}

impl SetOptions {
    /// Returns options that ask for nothing: `SET` then replaces the key's old value and removes its expiry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the key expire after this time, in whole milliseconds.
    #[must_use]
    pub fn expire(mut self, after: Duration) -> Self {
        self.expire = Some(Expire::After(millis(after)));
        self
    }

    /// Makes `SET` keep the current expiry of the key.
    #[must_use]
    pub const fn keep_expiry(mut self) -> Self {
        self.expire = Some(Expire::Keep);
        self
    }

    /// Makes `SET` set the key only if it does not exist.
    #[must_use]
    pub const fn if_missing(mut self) -> Self {
        self.only = Some("NX");
        self
    }

    /// Makes `SET` set the key only if it exists.
    #[must_use]
    pub const fn if_present(mut self) -> Self {
        self.only = Some("XX");
        self
    }

    /// Makes the server reply with the key's old value.
    #[must_use]
    pub const fn get_old(mut self) -> Self {
        self.get = true;
        self
    }
}

impl ToArgs for SetOptions {
    fn write_args(&self, args: &mut Args<'_>) {
        match self.expire {
            Some(Expire::After(ms)) => {
                "PX".write_args(args);
                ms.write_args(args);
            }
            Some(Expire::Keep) => "KEEPTTL".write_args(args),
            None => {}
        }
        self.only.write_args(args);
        self.get.then_some("GET").write_args(args);
    }
}

/// Converts a time to live to whole milliseconds, at least 1 because Redis refuses 0.
fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX).max(1)
}

//! Parses and checks the requests that a bench sends to a program of rivals: `verb key=value ...`. This
//! module does no I/O.

use std::collections::HashMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// The command that the callers of a load send to Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// PUBLISH to a channel that has no subscribers.
    Publish,
    /// GET of a key that exists.
    Get,
    /// SET of the caller's key, again and again.
    Set,
    /// Four GET commands to one SET command.
    Mix,
}

/// A request for a load: the client, the callers' command, their number and their rate.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The name of the client to measure, one of the systems of this process.
    pub system: String,
    /// The host and port of Redis, or of a proxy before it.
    pub addr: String,
    /// The command that all callers send.
    pub command: Command,
    /// The length of a value in bytes.
    pub value_bytes: usize,
    /// The number of callers, each with one command at a time.
    pub callers: usize,
    /// The number of commands that are due each second, of all callers together; `None` if each caller sends
    /// its next command as soon as it has the answer to the previous one.
    pub rate: Option<f64>,
    /// The number of threads of the runtime on which the callers run. With one thread it is a current-thread
    /// runtime.
    pub workers: usize,
    /// True if each caller is an operating-system thread that blocks, and not a task.
    pub threads: bool,
    /// The time for which the callers run before the first measurement, so that the client can adapt.
    pub warm_up: Duration,
    /// The flush delay, for clients that have one: the field `delay_us=` of the request.
    pub delay: Option<Duration>,
    /// The name of the flush policy, for clients that have several: the field `policy=` of the request.
    pub policy: Option<String>,
}

/// A line of the protocol, split into its verb and its fields. The getters check the values of the fields.
pub(crate) struct Request<'a> {
    pub(crate) verb: &'a str,
    fields: HashMap<&'a str, &'a str>,
}

impl<'a> Request<'a> {
    /// Parses a line. An error names the word that is not `key=value`.
    pub(crate) fn parse(line: &'a str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let field = |word: &'a str| {
            word.split_once('=')
                .ok_or_else(|| format!("not key=value: {word}"))
        };
        let fields = words.map(field).collect::<Result<_, _>>()?;
        Ok(Self { verb, fields })
    }

    fn text(&self, key: &str) -> Result<&'a str, String> {
        let value = self.fields.get(key).copied();
        value.ok_or_else(|| format!("{} needs {key}=", self.verb))
    }

    fn number<T>(&self, key: &str, range: RangeInclusive<T>) -> Result<T, String>
    where
        T: FromStr + PartialOrd + Display,
    {
        let text = self.text(key)?;
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| {
            format!(
                "{key}={text}: give a number from {} to {}",
                range.start(),
                range.end()
            )
        })
    }

    fn number_or<T>(&self, key: &str, range: RangeInclusive<T>, default: T) -> Result<T, String>
    where
        T: FromStr + PartialOrd + Display,
    {
        match self.fields.contains_key(key) {
            true => self.number(key, range),
            false => Ok(default),
        }
    }

    /// Returns the duration of the measurement, from the field `seconds=`.
    pub(crate) fn seconds(&self) -> Result<Duration, String> {
        self.number("seconds", 0.001..=600.0)
            .map(Duration::from_secs_f64)
    }

    /// Returns the load that the line asks for, or an error that names the wrong field.
    pub(crate) fn ask(&self) -> Result<Ask, String> {
        let command = match self.text("command")? {
            "publish" => Command::Publish,
            "get" => Command::Get,
            "set" => Command::Set,
            "mix" => Command::Mix,
            other => {
                return Err(format!("command={other}: give publish, get, set or mix"));
            }
        };
        let rate = self.number_or("rate", 0.0..=1e7, 0.0)?;
        let delay_us = match self.fields.contains_key("delay_us") {
            true => Some(self.number("delay_us", 0.0..=1e6)?),
            false => None,
        };
        Ok(Ask {
            system: self.text("system")?.into(),
            addr: self.text("addr")?.into(),
            command,
            value_bytes: self.number("value", 1..=1 << 26)?,
            callers: self.number("callers", 1..=1 << 16)?,
            rate: (rate > 0.0).then_some(rate),
            workers: self.number_or("workers", 1..=64, 1)?,
            threads: self.number_or("threads", 0..=1, 0)? == 1,
            warm_up: Duration::from_secs_f64(self.number_or("warm_up", 0.0..=600.0, 0.0)?),
            delay: delay_us.map(|us: f64| Duration::from_secs_f64(us / 1e6)),
            policy: self.fields.get("policy").map(|&policy| policy.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_checked() {
        let line = "load system=a addr=h:1 command=mix value=64 callers=16 rate=1e5 delay_us=20";
        let ask = Request::parse(line)
            .and_then(|request| request.ask())
            .unwrap();
        assert_eq!(
            (ask.command, ask.callers, ask.workers),
            (Command::Mix, 16, 1)
        );
        assert_eq!(ask.rate, Some(1e5));
        assert_eq!(ask.delay, Some(Duration::from_micros(20)));
        for (from, to, refusal) in [
            ("mix", "fly", "command=fly: give publish, get, set or mix"),
            (
                "value=64",
                "value=0",
                "value=0: give a number from 1 to 67108864",
            ),
            ("callers=16", "", "load needs callers="),
            ("1e5", "NaN", "rate=NaN: give a number from 0 to 10000000"),
            ("rate=1e5", "rate", "not key=value: rate"),
        ] {
            let line = line.replace(from, to);
            let refused = Request::parse(&line).and_then(|request| request.ask());
            assert_eq!(refused.unwrap_err(), refusal);
        }
    }
}

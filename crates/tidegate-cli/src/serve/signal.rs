//! `tidegate serve --signal`: sends a signal to a running server, by nats-server's names of the signals.
//! Containers without a shell and `kill` use it in their hooks.

use std::num::ParseIntError;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

use crate::Usage;

/// A signal that the operator sends, and the server that gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    signal: Signal,
    to: PathBuf,
}

impl FromStr for Sent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, to) = text
            .split_once('=')
            .filter(|(_, to)| !to.is_empty())
            .ok_or("expected SIGNAL=PID or SIGNAL=FILE, where the file holds a process id")?;
        let signal = match name {
            "ldm" => Signal::USR2,
            "quit" | "term" => Signal::TERM,
            "reload" => Signal::HUP,
            "reopen" => Signal::USR1,
            "stop" => Signal::KILL,
            _ => {
                return Err(format!(
                    "`{name}` is no signal: expected ldm, quit, reload, reopen, stop or term"
                ));
            }
        };
        let to = to.into();
        Ok(Self { signal, to })
    }
}

impl Sent {
    /// Sends the signal to the process of the server.
    ///
    /// # Errors
    /// The file holds no process id, or no such process runs that may get the signal.
    pub(super) fn send(&self) -> anyhow::Result<()> {
        let pid = self.pid()?;
        kill_process(pid, self.signal).with_context(|| {
            format!(
                "cannot send the signal to the process {}",
                pid.as_raw_nonzero()
            )
        })
    }

    fn pid(&self) -> anyhow::Result<Pid> {
        let text = match self.to.to_str().filter(|to| is_number(to)) {
            Some(pid) => pid.to_owned(),
            None => read(&self.to)?,
        };
        let number: Result<i32, ParseIntError> = text.trim().parse();
        let pid = number.ok().filter(|pid| *pid > 0).and_then(Pid::from_raw);
        let error = || Usage::new(format!("`{}` is no process id", text.trim()));
        Ok(pid.ok_or_else(error)?)
    }
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_its_id_or_by_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        std::fs::write(&file, "12\n").unwrap();
        let pid = |text: String| {
            let sent: Sent = text.parse().unwrap();
            sent.pid().map(|pid| pid.as_raw_nonzero().get())
        };
        assert_eq!(pid("ldm=345".into()).unwrap(), 345);
        assert_eq!(pid(format!("reload={}", file.display())).unwrap(), 12);
        for bad in ["ldm=0", "ldm=99999999999", "ldm=/no/such/file"] {
            assert!(pid(bad.into()).is_err(), "{bad}");
        }
        for bad in ["", "ldm", "ldm=", "usr1=3"] {
            assert!(bad.parse::<Sent>().is_err(), "{bad}");
        }
    }
}

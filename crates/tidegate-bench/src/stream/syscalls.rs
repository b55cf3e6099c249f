//! Counts the system calls of a server while the bench publishes to the server, for the costs of a message.
//!
//! `perf stat` counts in the kernel and does not slow the server down. strace is the second choice: under
//! strace each call takes many times as long, so a server with turns of bounded time does less work in a turn
//! and makes more calls for each message.

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

/// A program that counts the system calls of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Perf,
    Strace,
}

/// A counting tool that is attached to a server, until [`SyscallCounter::finish`].
pub(super) struct SyscallCounter {
    tool: Tool,
    child: Child,
    /// The file into which the tool writes its counts, and from which the bench reads them.
    file: PathBuf,
    /// The thread that reads the further output of the tool, so that the tool never waits for a full pipe.
    output: JoinHandle<()>,
}

impl SyscallCounter {
    /// Attaches a counting tool to the process with this id. Returns `None` if the machine has no tool that
    /// may attach.
    pub(super) fn attach(pid: u32, file: &Path) -> anyhow::Result<Option<Self>> {
        for tool in [Tool::Perf, Tool::Strace] {
            if let Some(counter) = Self::attach_tool(tool, pid, file)? {
                return Ok(Some(counter));
            }
        }
        Ok(None)
    }

    fn attach_tool(tool: Tool, pid: u32, file: &Path) -> anyhow::Result<Option<Self>> {
        let mut command = match tool {
            Tool::Perf => {
                let mut command = Command::new("perf");
                command.args(["stat", "-x,", "-e", "raw_syscalls:sys_enter", "-o"]);
                command.arg(file).args(["-p", &pid.to_string()]);
                // perf starts this command as soon as it counts, and stops counting when the command ends.
                command.args(["--", "sh", "-c", "echo attached; read -r _"]);
                command.stdout(Stdio::piped()).stderr(Stdio::null());
                command
            }
            Tool::Strace => {
                let mut command = Command::new("strace");
                command.args(["-f", "-c", "-U", "calls,name", "-o"]);
                command.arg(file).args(["-p", &pid.to_string()]);
                command.stdout(Stdio::null()).stderr(Stdio::piped());
                command
            }
        };
        let Ok(mut child) = command.stdin(Stdio::piped()).spawn() else {
            return Ok(None);
        };
        let output: Box<dyn Read + Send> = match (child.stdout.take(), child.stderr.take()) {
            (Some(out), _) => Box::new(out),
            (None, Some(err)) => Box::new(err),
            (None, None) => anyhow::bail!("no pipe"),
        };
        let mut output = BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line)?;
        if !line.contains("attached") {
            child.wait()?;
            return Ok(None);
        }
        let output = std::thread::spawn(move || {
            // The thread only empties the pipe; nothing needs the content of this output.
            let _ = std::io::copy(&mut output, &mut std::io::sink());
        });
        Ok(Some(Self {
            tool,
            child,
            file: file.to_owned(),
            output,
        }))
    }

    /// Returns the number of messages to publish while the tool counts; the number is smaller under strace,
    /// which is slow.
    pub(super) const fn messages(&self) -> u64 {
        match self.tool {
            Tool::Perf => 20_000,
            Tool::Strace => 2000,
        }
    }

    /// Detaches the tool. Returns the number of system calls that it counted; `None` if its file has no
    /// number.
    pub(super) fn finish(mut self) -> anyhow::Result<Option<u64>> {
        match self.tool {
            Tool::Perf => {
                let mut stdin = self.child.stdin.take().context("no pipe")?;
                stdin.write_all(b"\n")?;
            }
            Tool::Strace => {
                let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
                kill_process(pid.context("no process id")?, Signal::INT)?;
            }
        }
        self.child.wait()?;
        let _ = self.output.join();
        let text = fs::read_to_string(&self.file)?;
        Ok(match self.tool {
            Tool::Perf => of_perf(&text),
            Tool::Strace => of_strace(&text),
        })
    }
}

/// Returns the count in the comma-separated line of `perf stat`.
fn of_perf(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("sys_enter"))?;
    line.split(',').next()?.parse().ok()
}

/// Returns the sum of the calls in the first column of strace's table.
fn of_strace(table: &str) -> Option<u64> {
    let rows = table.lines().filter_map(|line| {
        let (calls, name) = line.trim().split_once(' ')?;
        (name.trim() != "total").then(|| calls.parse::<u64>().ok())?
    });
    let sum = rows.sum();
    (sum > 0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_strace_is_not_counted_twice() {
        let table = "    calls syscall\n--------- ----------------\n      120 writev\n       30 epoll_wait\n--------- ----------------\n      150 total\n";
        assert_eq!(of_strace(table), Some(150));
        assert_eq!(of_strace("strace: no leave"), None);
    }

    #[test]
    fn the_count_of_perf_is_its_first_field() {
        let text = "# started on Thu\n\n49788,,raw_syscalls:sys_enter,1000,100.00,,\n";
        assert_eq!(of_perf(text), Some(49_788));
        assert_eq!(
            of_perf("<not counted>,,raw_syscalls:sys_enter,0,100.00,,"),
            None
        );
    }
}

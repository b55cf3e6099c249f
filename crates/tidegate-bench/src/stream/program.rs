//! Runs the `nats` program as a load on streams, to its end within a time limit, and reads its report.

use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::super::rounds::{Failure, Sample};
use tidegate_cli::interrupt;

/// The longest time that a run of the program may take, before the bench counts the program as hung.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running `nats` program. The bench kills the program when it drops this value.
pub(super) struct Run {
    child: Child,
    said: Option<std::thread::JoinHandle<String>>,
}

impl Run {
    /// Starts `nats -s ADDRS ...`: each client of the program connects to one of the addresses.
    pub(super) fn start(
        program: &Path,
        addrs: &[SocketAddr],
        args: &[String],
    ) -> Result<Self, Failure> {
        let urls: Vec<_> = addrs.iter().map(|addr| format!("nats://{addr}")).collect();
        let mut command = Command::new(program);
        command
            .args(["-s", &urls.join(","), "--timeout=30s"])
            .args(args)
            // The settings (contexts) that the user has made for `nats` must not affect the run.
            .env("NATS_CONTEXT", "")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("nats: {e}"))?;
        let (mut output, mut errors) = (child.stdout.take(), child.stderr.take());
        // The program prints little on one output and a line for each client on the other. Two threads read
        // both at once, so that neither pipe fills up.
        let said = std::thread::spawn(move || {
            let other = std::thread::spawn(move || {
                let mut text = String::new();
                let _ = errors.as_mut().map(|e| e.read_to_string(&mut text));
                text
            });
            let mut text = String::new();
            let _ = output.as_mut().map(|o| o.read_to_string(&mut text));
            text + &other.join().unwrap_or_default()
        });
        Ok(Self {
            child,
            said: Some(said),
        })
    }

    /// Waits until the program ends, and reads the figures in its report.
    pub(super) fn report(mut self) -> Result<Sample, Failure> {
        let until = Instant::now() + PATIENCE;
        let status = loop {
            match self.child.try_wait().map_err(|e| e.to_string())? {
                Some(status) => break status,
                None if interrupt::asked() => return Err("interrupted".into()),
                None if Instant::now() > until => {
                    return Err(format!(
                        "nats hangs: no end within {} s",
                        PATIENCE.as_secs()
                    ));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let said = self
            .said
            .take()
            .and_then(|said| said.join().ok())
            .unwrap_or_default();
        if !status.success() {
            let words = said.lines().rev().find(|line| !line.trim().is_empty());
            return Err(format!("nats: {}", words.unwrap_or("no words")));
        }
        report(&said).ok_or_else(|| format!("nats: no report in `{}`", said.trim()))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Parses the program's report. Takes the last line of statistics, because with several clients this line
/// sums up all of them.
fn report(said: &str) -> Option<Sample> {
    let mut lines = said.lines().rev();
    let line = lines.find(|line| line.contains(" stats: ") && line.contains("msgs/sec"))?;
    let number = |text: &str| text.replace(',', "").parse::<f64>().ok();
    let rate = line.split_once(" stats: ")?.1.split_once(" msgs/sec")?.0;
    // With several clients, the latencies have a line of their own, in which some names have no colon.
    let latency = |mark: &str| {
        let mut lines = said.lines().rev();
        let line =
            lines.find(|l| l.contains("latencies per operation") || l.contains(" stats: "))?;
        let value = line.split_once(mark)?.1.trim_start_matches([':', ' ']);
        number(value.split_once("us")?.0)
    };
    Some(Sample {
        ops_per_s: number(rate)?,
        p50_us: latency("P50"),
        p99_us: latency("P99"),
        ..Sample::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read() {
        let one = "x\nNATS JetStream synchronous publisher stats: 5,431 msgs/sec ~ 5.3 MiB/sec ~ min: 120us ~ avg: 184us ~ max: 900us ~ P50: 176.5us ~ P90: 200us ~ P99: 1,300us ~ P99.9: 2,000us\n";
        let sample = report(one).unwrap();
        assert_eq!(
            (sample.ops_per_s, sample.p50_us, sample.p99_us),
            (5431.0, Some(176.5), Some(1300.0))
        );
        let many = "  [1] 17,970 msgs/sec ~ 1.7 MiB/sec ~ P50: 1us (100 msgs)\n\n NATS JetStream synchronous publisher aggregated stats: 56,660 msgs/sec ~ 5.4 MiB/sec\n message rates min 14,248 | avg 15,505\n latencies per operation min 13.31us | P50 42.52us | P90 83.32us | P99 340.72us | P99.9: 2,146.09us\n";
        let sample = report(many).unwrap();
        assert_eq!(
            (sample.ops_per_s, sample.p50_us, sample.p99_us),
            (56660.0, Some(42.52), Some(340.72))
        );
        let none = "Pub stats: 2,400,000 msgs/sec ~ 36 MiB/sec\n";
        assert_eq!(report(none).unwrap().p50_us, None);
        assert!(report("nothing").is_none());
    }
}

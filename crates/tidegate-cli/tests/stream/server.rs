//! A server under test. Each test starts the server on free ports, reads its log, and kills it at the end.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Returns the path of the nats-server that the tests run in place of our own server, from the environment.
pub(crate) fn other() -> Option<PathBuf> {
    let program = std::env::var_os("STREAM_SERVER")?;
    Some(PathBuf::from(program))
}

/// A running server that has reported in its log that it is ready.
pub(crate) struct Server {
    child: Child,
    /// The address `host:port` of the server.
    pub(crate) url: String,
    /// The address `host:port` of the server's monitor.
    pub(crate) monitor: String,
    /// The last log lines, for the report of a failed test.
    log: Arc<Mutex<VecDeque<String>>>,
    data: PathBuf,
    owned: Option<TempDir>,
}

impl Server {
    /// Starts a server with a data directory of its own.
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut server = Self::start_in(&directory.path().join("data"), "");
        server.owned = Some(directory);
        server
    }

    /// Starts a server with its data in `data` and with the text `config` as a further configuration.
    pub(crate) fn start_in(data: &Path, config: &str) -> Self {
        let mut child = Self::spawn(data, config, &[]);
        let log = BufReader::new(child.stderr.take().unwrap());
        Self::ready(child, log, data)
    }

    /// Starts a server with its data in `data` and with further flags.
    pub(crate) fn start_with(data: &Path, flags: &[&str]) -> Self {
        let mut child = Self::spawn_at("-1", data, "", &[], flags);
        let log = BufReader::new(child.stderr.take().unwrap());
        Self::ready(child, log, data)
    }

    /// Starts a server of ours that serves no streams, so that nothing is written to `directory`.
    pub(crate) fn start_without_streams(directory: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let flags = ["--no-streams", "-a", "127.0.0.1", "-p", "-1", "-m", "-1"];
        command
            .arg("serve")
            .args(flags)
            .current_dir(directory)
            .env_remove("TIDEGATE_DATA")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        Self::ready(child, log, directory)
    }

    /// Starts a server that must refuse its flags. Returns its standard error.
    pub(crate) fn refused(data: &Path, flags: &[&str]) -> String {
        let output = Self::spawn_at("-1", data, "", &[], flags).wait_with_output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    }

    /// Waits until the server has ended by itself, without an error.
    pub(crate) fn wait(mut self) {
        assert!(self.child.wait().unwrap().success(), "{}", self.log());
    }

    /// Starts a server under another program, such as a tracer, that is given with its arguments. The output
    /// of both programs goes to the same log.
    pub(crate) fn start_under(data: &Path, tracer: &[&str]) -> Self {
        let mut child = Self::spawn(data, "", tracer);
        let log = BufReader::new(child.stderr.take().unwrap());
        Self::ready(child, log, data)
    }

    /// Starts the process of a server, and does not wait until it is ready.
    pub(crate) fn spawn(data: &Path, config: &str, tracer: &[&str]) -> Child {
        Self::spawn_at("-1", data, config, tracer, &[])
    }

    fn spawn_at(port: &str, data: &Path, config: &str, tracer: &[&str], flags: &[&str]) -> Child {
        let file = data.with_extension("conf");
        let mut args: Vec<&Path> = Vec::new();
        let program = match other() {
            None => {
                args.extend(["serve", "--data"].map(Path::new));
                PathBuf::from(env!("CARGO_BIN_EXE_tidegate"))
            }
            Some(program) => {
                args.extend(["-js", "-sd"].map(Path::new));
                program
            }
        };
        args.push(data);
        args.extend(["-a", "127.0.0.1", "-p", port, "-m", "-1"].map(Path::new));
        if !config.is_empty() {
            std::fs::write(&file, config).unwrap();
            args.extend([Path::new("-c"), &file]);
        }
        let mut command = match tracer.split_first() {
            None => Command::new(program),
            Some((tracer, more)) => {
                let mut command = Command::new(tracer);
                command.args(more).arg(program);
                command
            }
        };
        for variable in [
            "TIDEGATE_ADDR",
            "TIDEGATE_PORT",
            "TIDEGATE_CONFIG",
            "TIDEGATE_DATA",
        ] {
            command.env_remove(variable);
        }
        command
            .args(args)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command.stderr(Stdio::piped()).spawn().unwrap()
    }

    fn ready(child: Child, mut log: BufReader<ChildStderr>, data: &Path) -> Self {
        let mut seen = String::new();
        while !seen.contains("Server is ready") {
            let n = log.read_line(&mut seen).unwrap();
            assert!(n > 0, "the server ended before it was ready: {seen}");
        }
        let after = |mark: &str| {
            let (_, rest) = seen.split_once(mark)?;
            Some(rest.split_whitespace().next()?.to_owned())
        };
        let url = after("Listening for client connections on ").unwrap();
        let monitor = after("Starting http monitor on ").unwrap_or_default();
        let kept = Arc::new(Mutex::new(VecDeque::new()));
        let keep = Arc::clone(&kept);
        // The thread reads the log to its end. Otherwise the server would block on the full pipe.
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                let mut kept = keep.lock().unwrap();
                if kept.len() == 20 {
                    kept.pop_front();
                }
                kept.push_back(line);
            }
        });
        Self {
            child,
            url,
            monitor,
            log: kept,
            data: data.to_path_buf(),
            owned: None,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the last log lines.
    pub(crate) fn log(&self) -> String {
        self.log
            .lock()
            .unwrap()
            .iter()
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Kills the server without a chance to clean up, as a crash would, and starts another one on its data.
    pub(crate) fn restart(mut self) -> Self {
        self.kill();
        let (owned, data) = (self.owned.take(), self.data.clone());
        let mut next = Self::start_in(&data, "");
        next.owned = owned;
        next
    }

    /// Kills the server without a chance to clean up, as a crash would, and starts another one on its data
    /// and its port.
    pub(crate) fn restart_there(mut self) -> Self {
        self.kill();
        let (owned, data) = (self.owned.take(), self.data.clone());
        let (_, port) = self.url.rsplit_once(':').unwrap();
        let mut child = Self::spawn_at(port, &data, "", &[], &[]);
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut next = Self::ready(child, log, &data);
        next.owned = owned;
        next
    }

    pub(crate) fn kill(&mut self) {
        // If the test killed only the tracer, the traced server would keep running.
        let tracer = self.child.id();
        let children = format!("/proc/{tracer}/task/{tracer}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let pids = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        for pid in pids.filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        // The process may have ended already, and then the kill fails without harm.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Runs `tidegate ARGS -s URL`. Returns the exit code, standard output and standard error.
    pub(crate) fn tidegate(&self, args: &[&str]) -> (Option<i32>, Vec<u8>, String) {
        let Output {
            status,
            stdout,
            stderr,
        } = tidegate(&self.url, args).output().unwrap();
        (status.code(), stdout, String::from_utf8(stderr).unwrap())
    }

    /// Runs `tidegate ARGS -s URL`, which must succeed. Returns its standard output.
    pub(crate) fn good(&self, args: &[&str]) -> String {
        let (code, out, err) = self.tidegate(args);
        assert_eq!(code, Some(0), "{args:?}: {err}\n{}", self.log());
        String::from_utf8(out).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the command `tidegate ARGS -s URL`.
pub(crate) fn tidegate(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(args).args(["-s", url]).stdin(Stdio::null());
    command.env_remove("NATS_URL");
    command
}

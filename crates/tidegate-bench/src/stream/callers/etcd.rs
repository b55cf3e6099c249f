//! Callers that put keys into a single etcd server over gRPC, each key once. etcd syncs its write-ahead log
//! before it answers.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::http2::Http2;
use super::load::Caller;
use super::{Running, peer};
use crate::guard::{Guard, free_ports};

/// The program below bench/peers.
const PROGRAM: &str = "etcd/bin/etcd";
/// The gRPC method that stores a key.
const PUT: &str = "/etcdserverpb.KV/Put";
/// The longest time that the server may take to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most bytes that the server may store, so that it does not refuse keys in a long measurement.
const QUOTA_BYTES: u64 = 8 << 30;

/// A running etcd server.
pub(super) struct Etcd {
    guard: Guard,
    addr: SocketAddr,
    bytes: usize,
}

impl Etcd {
    /// Starts the server with its files in `directory`, and waits until it stores a key.
    pub(super) fn start(directory: &Path, bytes: usize) -> anyhow::Result<Self> {
        let program = peer(PROGRAM, "etcd")?;
        let [addr, peers] = free_ports()?;
        let (client_url, peer_url) = (format!("http://{addr}"), format!("http://{peers}"));
        let mut command = Command::new(program);
        command.arg("--data-dir").arg(directory.join("data"));
        let quota = QUOTA_BYTES.to_string();
        let cluster = format!("default={peer_url}");
        for (flag, value) in [
            ("--listen-client-urls", &client_url),
            ("--advertise-client-urls", &client_url),
            ("--listen-peer-urls", &peer_url),
            ("--initial-advertise-peer-urls", &peer_url),
            ("--initial-cluster", &cluster),
            ("--quota-backend-bytes", &quota),
        ] {
            command.args([flag, value]);
        }
        command.args(["--log-level", "error"]);
        let guard = Guard::start(&command, &directory.join("log"))?;
        guard.wait_ready(PATIENCE, || Putter::open(addr, usize::MAX, 1)?.call())?;
        Ok(Self { guard, addr, bytes })
    }
}

impl Running for Etcd {
    fn caller(&self, number: usize) -> anyhow::Result<Box<dyn Caller>> {
        Ok(Box::new(Putter::open(self.addr, number, self.bytes)?))
    }

    fn processes(&self) -> anyhow::Result<Vec<u32>> {
        self.guard.processes()
    }

    fn cpu_s(&self) -> anyhow::Result<Option<f64>> {
        Ok(Some(self.guard.cpu_s()?))
    }
}

struct Putter {
    connection: Http2,
    caller: usize,
    calls: u64,
    value: Vec<u8>,
}

impl Putter {
    fn open(addr: SocketAddr, caller: usize, bytes: usize) -> anyhow::Result<Self> {
        Ok(Self {
            connection: Http2::open(addr, PUT)?,
            caller,
            calls: 0,
            value: vec![b'x'; bytes],
        })
    }
}

impl Caller for Putter {
    fn call(&mut self) -> anyhow::Result<()> {
        self.calls += 1;
        let key = format!("bench/{}/{}", self.caller, self.calls);
        self.connection
            .call(&put_request(key.as_bytes(), &self.value))
    }
}

/// Encodes the protobuf message `PutRequest`: field 1 is the key, field 2 the value.
fn put_request(key: &[u8], value: &[u8]) -> Vec<u8> {
    const BYTES: u8 = 2;
    let mut out = Vec::with_capacity(key.len() + value.len() + 12);
    for (field, bytes) in [(1, key), (2, value)] {
        out.push(field << 3 | BYTES);
        let mut len = bytes.len();
        while len >= 0x80 {
            out.push(len as u8 | 0x80);
            len >>= 7;
        }
        out.push(len as u8);
        out.extend_from_slice(bytes);
    }
    out
}

/// Returns the version that etcd reports; `None` without etcd.
pub(super) fn version() -> Option<String> {
    let program = peer(PROGRAM, "etcd").ok()?;
    let output = Command::new(program).arg("--version").output().ok()?;
    version_in(&String::from_utf8(output.stdout).ok()?)
}

/// Returns the version in the line `etcd Version: 3.6.1`.
fn version_in(text: &str) -> Option<String> {
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("etcd Version:"))?;
    Some(line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_is_encoded() {
        let expected = [10, 1, b'k', 18, 2, b'x', b'y'];
        assert_eq!(put_request(b"k", b"xy"), expected);
        let long = put_request(b"k", &[7; 300]);
        assert_eq!((&long[3..6], long.len()), (&[18, 0xac, 2][..], 306));
    }

    #[test]
    fn the_version_is_read() {
        let text = "etcd Version: 3.6.1\nGit SHA: Not provided\n";
        assert_eq!(version_in(text).as_deref(), Some("3.6.1"));
        assert_eq!(version_in(""), None);
    }
}

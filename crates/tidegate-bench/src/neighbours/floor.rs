//! Measures the floors of the machine, that is, latencies that no server can undercut: one is a bare write
//! with `fdatasync`, the other a bare echo over TCP.
//!
//! The echo runs in the bench's own process, which may use all cores, like a server. The client of the echo
//! is a [`Neighbour`](super::socket::Neighbour).

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::fdatasync;

use super::figures::{ByPhase, Recorder, Starts};
use super::socket::BYTES;

const FILE_BYTES: u64 = 4 << 20;

/// Writes a block and syncs it, at the given pace, until the last phase is over.
///
/// A write starts when it is due, or when the write before it has ended. If further writes were due
/// meanwhile, the function leaves them out, because a server would sync them together. So the floor is never
/// too high.
pub(super) fn syncs(
    directory: &Path,
    (first_ns, every_ns): (u64, u64),
    clock: Instant,
    starts: &Starts,
) -> anyhow::Result<ByPhase> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .open(directory.join("floor"))?;
    // The bench writes all blocks first, so that a later sync has no metadata to write.
    file.write_all_at(&vec![1; FILE_BYTES as usize], 0)?;
    file.sync_all()?;
    let now = || clock.elapsed().as_nanos() as u64;
    let block = [b'x'; BYTES];
    let (mut due, mut at, mut recorder) = (first_ns, 0, Recorder::new());
    while !starts.is_over(due) {
        if let Some(left) = due.checked_sub(now()) {
            std::thread::sleep(Duration::from_nanos(left));
        }
        file.write_all_at(&block, at)?;
        fdatasync(&file)?;
        let end = now();
        recorder.record(starts.phase(due), end - due, None);
        at = (at + BYTES as u64) % FILE_BYTES;
        due += every_ns;
        if due < end {
            due += (end - due).div_ceil(every_ns) * every_ns;
        }
    }
    Ok(recorder.figures())
}

/// Starts the bare echo over TCP, which serves one connection at a time until this process ends.
pub(super) fn echo() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let addr = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = stream.set_nodelay(true);
            let (mut stream, mut part) = (stream, [0; 4096]);
            while let Ok(got @ 1..) = stream.read(&mut part) {
                if stream.write_all(&part[..got]).is_err() {
                    break;
                }
            }
        }
    });
    Ok(addr)
}

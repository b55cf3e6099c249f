//! Measures bare sockets without a link, which give upper limits for the link's figures. The sockets use
//! blocking threads, loopback TCP, and no protocol except the payload bytes.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use anyhow::Context as _;
use hdrhistogram::Histogram;

use crate::latency;

/// The number of bytes in one write of the sender, and the greatest number of bytes in one read of the
/// reader.
const BLOCK: usize = 256 << 10;

/// Returns the two sockets of a TCP connection on this machine, without Nagle's delay.
pub(super) fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    Ok((client, server))
}

/// Writes at least `bytes` bytes in blocks to a socket, while a reader drops them. Returns the bytes a
/// second.
pub(super) fn drain(bytes: u64) -> anyhow::Result<f64> {
    let (mut client, mut server) = pair()?;
    let blocks = bytes.div_ceil(BLOCK as u64);
    let reader = thread::spawn(move || -> io::Result<u64> {
        let mut buffer = vec![0; BLOCK];
        let mut read = 0;
        loop {
            match server.read(&mut buffer)? {
                0 => return Ok(read),
                n => read += n as u64,
            }
        }
    });
    let block = vec![7; BLOCK];
    let start = Instant::now();
    for _ in 0..blocks {
        client.write_all(&block)?;
    }
    drop(client);
    let read = reader.join().ok().context("the reader panicked")??;
    let took = start.elapsed();
    anyhow::ensure!(read == blocks * BLOCK as u64, "bytes were lost");
    Ok(read as f64 / took.as_secs_f64())
}

/// Writes `bytes` bytes to a socket by one call, `count` times, while a reader drops them. Returns the writes
/// a second.
pub(super) fn single_writes(count: u64, bytes: usize) -> anyhow::Result<f64> {
    let (mut client, mut server) = pair()?;
    let reader =
        thread::spawn(move || -> io::Result<u64> { io::copy(&mut server, &mut io::sink()) });
    let message = vec![7; bytes];
    let start = Instant::now();
    for _ in 0..count {
        client.write_all(&message)?;
    }
    drop(client);
    let read = reader.join().ok().context("the reader panicked")??;
    let took = start.elapsed();
    anyhow::ensure!(read == count * bytes as u64, "bytes were lost");
    Ok(count as f64 / took.as_secs_f64())
}

/// Sends `there` bytes and waits for `back` bytes in answer, `count` times. Calls `pace` before each send.
/// Both ends either sleep in the operating system until bytes arrive, or poll without sleeping if `spin` is
/// true. Returns the round trips a second, and the histogram of their times.
pub(super) fn ping_pong(
    count: u64,
    there: usize,
    back: usize,
    spin: bool,
    mut pace: impl FnMut(u64),
) -> anyhow::Result<(f64, Histogram<u64>)> {
    let (mut client, mut server) = pair()?;
    client.set_nonblocking(spin)?;
    server.set_nonblocking(spin)?;
    let echo = thread::spawn(move || -> io::Result<()> {
        let (mut question, answer) = (vec![0; there], vec![0; back]);
        for _ in 0..count {
            fill(&mut server, &mut question)?;
            server.write_all(&answer)?;
        }
        Ok(())
    });
    let (question, mut answer) = (vec![0; there], vec![0; back]);
    let mut trips = latency::histogram();
    let start = Instant::now();
    for n in 0..count {
        pace(n);
        let sent = Instant::now();
        client.write_all(&question)?;
        fill(&mut client, &mut answer)?;
        // The histogram grows as needed, so `record` does not fail.
        let _ = trips.record(sent.elapsed().as_nanos() as u64);
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    echo.join().ok().context("the echo panicked")??;
    Ok((rate, trips))
}

/// Reads until `buffer` is full. If the socket is nonblocking and has no bytes, reads again at once.
fn fill(socket: &mut TcpStream, buffer: &mut [u8]) -> io::Result<()> {
    let mut at = 0;
    while at < buffer.len() {
        match socket.read(&mut buffer[at..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => at += n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

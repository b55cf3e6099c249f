//! Measures the least work that any client needs for this many callers that wait for each reply. One bare
//! socket writes all commands at once, and reads until all replies are there, either sleeping or polling
//! without sleep.
//!
//! `cargo run --release -p tidegate-redis --example floor -- 127.0.0.1:6379 1,2,8,16`
//!
//! A client cannot leave out any of this work: the example has no queue and no runtime, and decodes nothing.

use std::error::Error;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const ROUND: Duration = Duration::from_millis(200);
const ROUNDS: usize = 9;

/// Measures one run, and returns the commands per second.
fn round(socket: &mut TcpStream, commands: usize) -> Outcome<f64> {
    let one = b"*3\r\n$7\r\nPUBLISH\r\n$8\r\ntidegate\r\n$64\r\n";
    let mut batch = Vec::new();
    for _ in 0..commands {
        batch.extend_from_slice(one);
        batch.extend_from_slice(&[b'x'; 64]);
        batch.extend_from_slice(b"\r\n");
    }
    let mut buffer = [0; 4096];
    let (start, mut done) = (Instant::now(), 0);
    while start.elapsed() < ROUND {
        socket.write_all(&batch)?;
        // Each reply is `:0\r
        // `, which is four bytes.
        let mut left = 4 * commands;
        while left > 0 {
            match socket.read(&mut buffer) {
                Ok(0) => return Err("the server closed the connection".into()),
                Ok(n) => left -= n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(e) => return Err(e.into()),
            }
        }
        done += commands;
    }
    Ok(done as f64 / start.elapsed().as_secs_f64())
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [addr, callers] = &args[..] else {
        return Err("expected: ADDRESS CALLERS".into());
    };
    let mut socket = TcpStream::connect(addr)?;
    socket.set_nodelay(true)?;
    for commands in callers.split(',') {
        let commands = commands.parse()?;
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (looking, rates) in rates.iter_mut().enumerate() {
                socket.set_nonblocking(looking == 1)?;
                rates.push(round(&mut socket, commands)?);
            }
        }
        let [sleeping, looking] = rates.map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            rates[ROUNDS / 2]
        });
        println!(
            "{commands:>5} commands a round trip: sleeping {sleeping:>9.0} ops/s, looking {looking:>9.0}"
        );
    }
    Ok(())
}

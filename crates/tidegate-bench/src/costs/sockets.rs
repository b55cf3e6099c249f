//! Measures the system calls of the event loop for the simulation: its wait for events, and the calls on its
//! sockets over loopback.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};
use tidegate::Clock;

use super::{Table, cpu_time, median, timed};

/// The number of connections, or of calls, in a round, over which the bench takes the mean time.
const N: usize = 64;
/// The number of bytes of a large read or write, from which the bench computes the cost of one byte.
const LARGE: usize = 64 * 1024;
/// The number of times that a turn of the event loop reads a clock, the processor clock among them.
const CLOCKS: usize = 8;

pub(super) fn measure(rounds: usize) -> anyhow::Result<Table> {
    let (turn, event) = polls(rounds)?;
    let (accept, close) = openings(rounds)?;
    let (read, write) = (reads(rounds, 1)?, writes(rounds, 1)?);
    let per_byte = |large: u64, small: u64| large.saturating_sub(small) / LARGE as u64;
    Ok(vec![
        ("Turn", turn),
        ("Event", event),
        ("Accept", accept),
        ("Close", close),
        ("Read", read),
        ("ReadByte", per_byte(reads(rounds, LARGE)?, read)),
        ("Write", write),
        ("WriteByte", per_byte(writes(rounds, LARGE)?, write)),
    ])
}

/// Returns `n` connections over loopback, each as the client's and the server's socket, for measurements.
fn pairs(n: usize) -> anyhow::Result<Vec<(TcpStream, TcpStream)>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let pair = |_| {
        let client = TcpStream::connect(address)?;
        let (server, _) = listener.accept()?;
        server.set_nodelay(true)?;
        client.set_nodelay(true)?;
        Ok((client, server))
    };
    (0..n).map(pair).collect()
}

/// Measures how long the event loop takes for a turn without an event, and for each event of a turn with
/// many.
fn polls(rounds: usize) -> anyhow::Result<(u64, u64)> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(1024);
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for (at, (client, server)) in pairs(N)?.into_iter().enumerate() {
        server.set_nonblocking(true)?;
        let mut server = mio::net::TcpStream::from_std(server);
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut server, Token(at), interest)?;
        clients.push(client);
        servers.push(server);
    }
    poll.poll(&mut events, Some(Duration::ZERO))?;
    let clock = Clock::start();
    let idle = median(rounds, N, || {
        timed(|| {
            for _ in 0..N {
                let _ = poll.poll(&mut events, Some(Duration::ZERO));
                for _ in 0..CLOCKS {
                    std::hint::black_box(clock.now());
                }
            }
        })
    });
    let busy = median(rounds, 1, || {
        for client in &mut clients {
            let _ = client.write_all(b"x");
        }
        let took = timed(|| {
            let _ = poll.poll(&mut events, Some(Duration::ZERO));
            for event in &events {
                std::hint::black_box((event.token(), event.is_readable(), event.is_read_closed()));
            }
        });
        for server in &mut servers {
            let _ = server.read(&mut [0; 8]);
        }
        took
    });
    Ok((idle, busy.saturating_sub(idle) / N as u64))
}

/// Measures how long the server takes to accept a connection and send INFO, and to close the connection.
fn openings(rounds: usize) -> anyhow::Result<(u64, u64)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let poll = Poll::new()?;
    let (mut accepts, mut closes) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let clients = (0..N).map(|_| TcpStream::connect(address));
        let clients: Vec<TcpStream> = clients.collect::<Result<_, _>>()?;
        let mut servers = Vec::new();
        let start = cpu_time();
        for at in 0..N {
            let (server, _) = listener.accept()?;
            server.set_nonblocking(true)?;
            server.set_nodelay(true)?;
            let mut server = mio::net::TcpStream::from_std(server);
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut server, Token(at), interest)?;
            servers.push(server);
        }
        accepts.push(cpu_time().saturating_sub(start));
        let start = cpu_time();
        for mut server in servers {
            poll.registry().deregister(&mut server)?;
            let _ = server.shutdown(std::net::Shutdown::Both);
        }
        closes.push(cpu_time().saturating_sub(start));
        drop(clients);
    }
    let of = |mut times: Vec<Duration>| median(rounds, N, || times.pop().unwrap_or_default());
    Ok((of(accepts), of(closes)))
}

/// Returns the time that one call takes, by the wall clock, because reading the processor clock would take
/// too large a part of it.
fn timed_call(call: impl FnOnce()) -> Duration {
    let start = Instant::now();
    call();
    start.elapsed()
}

/// Measures how long the server's read of `len` bytes from a socket takes, for the table of costs.
fn reads(rounds: usize, len: usize) -> anyhow::Result<u64> {
    let mut pairs = pairs(1)?;
    let (mut client, mut server) = pairs.remove(0);
    let (bytes, mut buf) = (vec![b'x'; len], vec![0; LARGE]);
    Ok(median(rounds, N, || {
        let mut took = Duration::ZERO;
        for _ in 0..N {
            let _ = client.write_all(&bytes);
            let mut left = len;
            while left > 0 {
                took += timed_call(|| left -= server.read(&mut buf).unwrap_or(left));
            }
        }
        took
    }))
}

/// Measures how long the server's write of `len` bytes to a socket takes, for the table of costs.
fn writes(rounds: usize, len: usize) -> anyhow::Result<u64> {
    let mut pairs = pairs(1)?;
    let (mut client, mut server) = pairs.remove(0);
    let (bytes, mut buf) = (vec![b'x'; len], vec![0; LARGE]);
    Ok(median(rounds, N, || {
        let mut took = Duration::ZERO;
        for _ in 0..N {
            took += timed_call(|| {
                let _ = server.write_all(&bytes);
            });
            let mut left = len;
            while left > 0 {
                left -= client.read(&mut buf).unwrap_or(left);
            }
        }
        took
    }))
}

//! A TCP proxy that imitates a network with a known round trip: it holds every byte for half of the round
//! trip, each way. The proxy has one thread, and the bench counts this thread's processor time separately.
//! The proxy writes the bytes of one read at once, so it neither merges nor splits a client's writes more
//! than a network would.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{Pid, gettid, set_current_timer_slack};

/// The greatest number of bytes that the proxy holds in one direction of a connection. Beyond that the proxy
/// stops reading, as a full network would.
const HELD_MAX: usize = 16 << 20;
/// The greatest number of bytes that the proxy takes from a connection in one read: the size of its buffer.
const READ_MAX: usize = 256 << 10;
/// The time before they are due at which the proxy may already write bytes. A sleep of this time or less
/// would end too late.
const EARLY: Duration = Duration::from_micros(10);

/// A TCP proxy that holds every byte for half of a known round trip, each way.
pub(crate) struct Proxy {
    addr: SocketAddr,
    thread: Option<JoinHandle<io::Result<()>>>,
    tid: Pid,
    /// The bench's end of a pair of sockets. The proxy's thread ends when the bench closes this end.
    stop: Option<UnixStream>,
}

impl Proxy {
    /// Starts a proxy in front of the address `target`, which adds `round_trip` to each round trip.
    pub(crate) fn start(target: SocketAddr, round_trip: Duration) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let (stop, stopped) = UnixStream::pair()?;
        let (sender, tid) = sync_channel(1);
        let thread = thread::spawn(move || {
            // The thread that started this one waits for this message, so the send does not fail.
            let _ = sender.send(gettid());
            // The kernel's default slack of timers is 50 us, half of the shortest delay of the proxy, so the
            // thread turns the slack off.
            set_current_timer_slack(NonZeroU64::new(1))?;
            let relay = Relay {
                target,
                delay: round_trip / 2,
                late: Duration::ZERO,
                pairs: Vec::new(),
            };
            relay.run(&listener, &stopped)
        });
        Ok(Self {
            addr,
            thread: Some(thread),
            tid: tid.recv().context("the proxy ended")?,
            stop: Some(stop),
        })
    }

    /// Returns the address of the proxy, to which clients connect instead of the target.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the processor seconds of the proxy's thread so far, which are no cost of the server; `None` if
    /// the kernel does not count them.
    pub(crate) fn cpu_s(&self) -> Option<f64> {
        let path = format!("/proc/self/task/{}/schedstat", self.tid.as_raw_nonzero());
        let text = std::fs::read_to_string(path).ok()?;
        let ns: f64 = text.split(' ').next()?.parse().ok()?;
        Some(ns / 1e9)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // If the thread failed, its clients have seen their connections close, so the drop ignores the
            // failure.
            let _ = thread.join();
        }
    }
}

struct Relay {
    target: SocketAddr,
    delay: Duration,
    /// The typical delay of a wake-up: the proxy asks for each wake-up that much earlier.
    late: Duration,
    pairs: Vec<Pair>,
}

/// A client's connection, and the proxy's connection to the target for this client.
struct Pair {
    ends: [TcpStream; 2],
    /// The two directions of the pair: `ways[0]` leads from `ends[0]` to `ends[1]`, and `ways[1]` back.
    ways: [Way; 2],
}

#[derive(Default)]
struct Way {
    held: VecDeque<Chunk>,
    bytes: usize,
    /// True if the receiving end of this direction accepts no more bytes for now, so that the proxy waits.
    full: bool,
    ended: bool,
}

struct Chunk {
    due: Instant,
    bytes: Vec<u8>,
    written: usize,
}

impl Relay {
    fn run(mut self, listener: &TcpListener, stopped: &UnixStream) -> io::Result<()> {
        let mut buffer = vec![0; READ_MAX];
        loop {
            let next = self.next_due();
            let seen = self.wait(listener, stopped, next)?;
            if seen[1] {
                return Ok(());
            }
            if seen[0] {
                self.accept(listener);
            }
            let now = Instant::now();
            // The poll gave no result for a connection that the proxy has accepted just now, so the loop ends
            // before it.
            for (pair, seen) in self.pairs.iter_mut().zip(seen[2..].chunks(2)) {
                pair.read(seen, now + self.delay, &mut buffer);
            }
            let now = Instant::now() + EARLY;
            self.pairs.retain_mut(|pair| pair.write(now));
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let ways = self.pairs.iter().flat_map(|pair| &pair.ways);
        let held = ways.filter(|way| !way.full);
        held.filter_map(|way| Some(way.held.front()?.due)).min()
    }

    /// Waits for events. Returns for each descriptor if it is ready: first the listener, then the proxy's end
    /// of the pair of sockets, then both connections of each client.
    fn wait(
        &mut self,
        listener: &TcpListener,
        stopped: &UnixStream,
        next: Option<Instant>,
    ) -> io::Result<Vec<bool>> {
        let mut fds = vec![
            PollFd::new(listener, PollFlags::IN),
            PollFd::new(stopped, PollFlags::IN),
        ];
        for pair in &self.pairs {
            for (end, stream) in pair.ends.iter().enumerate() {
                let mut wanted = PollFlags::empty();
                wanted.set(PollFlags::IN, pair.ways[end].reads());
                wanted.set(PollFlags::OUT, pair.ways[1 - end].full);
                fds.push(PollFd::new(stream, wanted));
            }
        }
        let asked = next.map(|due| due.checked_sub(self.late).unwrap_or(due));
        let timeout = asked.map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        let asleep = timeout.is_some_and(|left| left.tv_sec > 0 || left.tv_nsec > 0);
        let ready = match poll(&mut fds, timeout.as_ref()) {
            Err(e) if e == rustix::io::Errno::INTR => 0,
            ready => ready?,
        };
        if let Some(asked) = asked.filter(|_| ready == 0 && asleep) {
            let late = Instant::now().saturating_duration_since(asked);
            // A single late wake-up says little about the next wake-up, so the average gives it little
            // weight.
            self.late = (self.late * 7 + late.min(Duration::from_micros(60))) / 8;
        }
        Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect())
    }

    fn accept(&mut self, listener: &TcpListener) {
        // If the proxy cannot reach the target, it closes the client's connection, by which the client sees
        // the failure.
        while let Ok((client, _)) = listener.accept() {
            if let Ok(server) = TcpStream::connect(self.target)
                && [&client, &server].iter().all(|stream| {
                    stream.set_nonblocking(true).is_ok() && stream.set_nodelay(true).is_ok()
                })
            {
                self.pairs.push(Pair {
                    ends: [client, server],
                    ways: Default::default(),
                });
            }
        }
    }
}

impl Pair {
    fn read(&mut self, seen: &[bool], due: Instant, buffer: &mut [u8]) {
        for (end, _) in seen.iter().enumerate().filter(|(_, seen)| **seen) {
            let way = &mut self.ways[end];
            if way.reads() {
                match self.ends[end].read(buffer) {
                    Ok(0) => way.ended = true,
                    Ok(bytes) => {
                        way.bytes += bytes;
                        way.held.push_back(Chunk {
                            due,
                            bytes: buffer[..bytes].to_vec(),
                            written: 0,
                        });
                    }
                    Err(e) if is_later(&e) => {}
                    Err(_) => way.ended = true,
                }
            }
            // The poll reports that this end is ready, so the end may accept more bytes again.
            self.ways[1 - end].full = false;
        }
    }

    /// Writes the bytes that are due in both directions. Returns false once one direction has ended and its
    /// bytes are written, which ends the connection.
    fn write(&mut self, now: Instant) -> bool {
        let [a, b] = &mut self.ends;
        let gone = [self.ways[0].write(b, now), self.ways[1].write(a, now)];
        !gone.contains(&true)
    }
}

impl Way {
    fn reads(&self) -> bool {
        !self.ended && self.bytes < HELD_MAX
    }

    /// Writes the bytes of one direction that are due. Returns true if the direction is over, so that the
    /// pair can end.
    fn write(&mut self, to: &mut TcpStream, now: Instant) -> bool {
        while let Some(chunk) = self.held.front_mut().filter(|chunk| chunk.due <= now) {
            match to.write(&chunk.bytes[chunk.written..]) {
                Ok(bytes) => {
                    self.bytes -= bytes;
                    chunk.written += bytes;
                    if chunk.written == chunk.bytes.len() {
                        self.held.pop_front();
                    }
                }
                Err(e) if is_later(&e) => {
                    self.full = true;
                    return false;
                }
                Err(_) => return true,
            }
        }
        self.ended && self.held.is_empty()
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a server that sends its input back, one connection after the other, as the proxy's target.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut back = stream.try_clone().unwrap();
                let _ = io::copy(&mut stream, &mut back);
            }
        });
        addr
    }

    #[test]
    fn bytes_arrive_whole_and_never_early() {
        let round_trip = Duration::from_millis(5);
        let proxy = Proxy::start(echo(), round_trip).unwrap();
        let mut client = TcpStream::connect(proxy.addr()).unwrap();
        let (start, mut reply) = (Instant::now(), [0; 4]);
        client.write_all(b"ping").unwrap();
        client.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"ping");
        assert!(start.elapsed() >= round_trip - 2 * EARLY);

        // The test sends more bytes than the proxy holds in one direction, so that the proxy has to stop
        // reading.
        let sent: Vec<u8> = (0..HELD_MAX * 3).map(|at| (at / 7) as u8).collect();
        let mut half = client.try_clone().unwrap();
        let (writes, mut got) = (sent.clone(), Vec::new());
        let writer = thread::spawn(move || half.write_all(&writes).unwrap());
        (&mut client)
            .take(sent.len() as u64)
            .read_to_end(&mut got)
            .unwrap();
        writer.join().unwrap();
        assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
        assert!(proxy.cpu_s().is_none_or(|seconds| seconds > 0.0));
        // This drop of the proxy ends the client's connection.
        drop(proxy);
        assert_eq!(client.read(&mut reply).unwrap_or(0), 0);
    }

    #[test]
    fn a_target_that_is_gone_closes_the_connection() {
        let nowhere = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = nowhere.local_addr().unwrap();
        drop(nowhere);
        let proxy = Proxy::start(addr, Duration::from_millis(1)).unwrap();
        let mut client = TcpStream::connect(proxy.addr()).unwrap();
        assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
    }
}

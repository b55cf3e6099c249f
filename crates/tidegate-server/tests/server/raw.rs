//! Provides a client of plain bytes, for input that no library would send.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::Running;

/// The time for which the client waits for the server: generous, because a busy machine is no failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    seen: Vec<u8>,
}

impl Raw {
    /// Connects to the server and reads its INFO.
    pub(crate) fn connect(server: &Running) -> Self {
        let mut raw = Self::silent(server);
        raw.until("\r\n");
        raw
    }

    /// Connects to the server and reads nothing.
    pub(crate) fn silent(server: &Running) -> Self {
        let stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            seen: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, text: impl AsRef<[u8]>) {
        self.stream.write_all(text.as_ref()).unwrap();
    }

    /// Reads until `wanted` bytes of this kind have come from the server, and returns their number.
    pub(crate) fn count(&mut self, byte: u8, wanted: usize) -> usize {
        let mut buf = [0; 65536];
        let mut count = 0;
        while count < wanted {
            let n = self.stream.read(&mut buf).unwrap();
            assert!(n > 0, "end after {count} of {wanted}");
            count += buf[..n].iter().filter(|b| **b == byte).count();
        }
        count
    }

    /// Reads from the server up to and with the text `end`.
    pub(crate) fn until(&mut self, end: &str) -> String {
        let started = Instant::now();
        loop {
            let at = self
                .seen
                .windows(end.len())
                .position(|w| w == end.as_bytes());
            if let Some(at) = at {
                let taken: Vec<u8> = self.seen.drain(..at + end.len()).collect();
                return String::from_utf8_lossy(&taken).into_owned();
            }
            let mut buf = [0; 65536];
            let seen = String::from_utf8_lossy(&self.seen).into_owned();
            let n = self
                .stream
                .read(&mut buf)
                .unwrap_or_else(|e| panic!("{e} waiting for {end:?} after {seen:?}"));
            assert!(
                n > 0 && started.elapsed() < PATIENCE,
                "end while waiting for {end:?} after {seen:?}"
            );
            self.seen.extend_from_slice(&buf[..n]);
        }
    }

    /// Sends a text, waits until the server has handled all of it, and returns the answers.
    pub(crate) fn done(&mut self, text: &str) -> String {
        self.send(text);
        self.send("PING\r\n");
        self.until("PONG\r\n")
    }

    /// Reads the rest of the bytes until the server closes the connection.
    pub(crate) fn rest(&mut self) -> String {
        let mut bytes = std::mem::take(&mut self.seen);
        match self.stream.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::ConnectionReset => {}
            Err(e) => panic!("{e} after {:?}", String::from_utf8_lossy(&bytes)),
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

//! One client's socket, plain or under TLS: reads into a buffer, writes what waits in an outbox. Never blocks.

use std::io::{self, ErrorKind, IoSlice, Read, Write};

use mio::net::TcpStream;
use rustls::ServerConnection;

use crate::nats::outbox::Outbox;

/// Slices of one gathered write: beyond it the kernel's work is all there is.
const SLICES_MAX: usize = 64;

/// A client's socket.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) stream: TcpStream,
    /// TLS, once it is clear that it will be spoken.
    pub(crate) tls: Option<Box<ServerConnection>>,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Bytes of the outbox that are gone.
    pub(crate) len: usize,
    /// Whether the socket takes no more for now.
    pub(crate) blocked: bool,
}

impl Socket {
    /// Reads what is there, up to the length of `buf`. 0 is the end; `WouldBlock` is nothing for now.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return uninterrupted(|| self.stream.read(buf));
        };
        loop {
            match tls.reader().read(buf) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                // A peer that went without saying so: at this protocol a cut message is noticed anyway.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            if uninterrupted(|| tls.read_tls(&mut self.stream))? == 0 {
                return Ok(0);
            }
            let state = tls.process_new_packets();
            // Answers of the handshake, and the alert where it failed.
            if tls.wants_write() {
                match tls.write_tls(&mut self.stream) {
                    Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e),
                    _ => {}
                }
            }
            state.map_err(io::Error::other)?;
        }
    }

    /// Reads without taking, to see whether a client speaks TLS.
    pub(crate) fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        uninterrupted(|| self.stream.peek(buf))
    }

    /// Whether the TLS handshake is still going on.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|t| t.is_handshaking())
    }

    /// Writes once from the front of `out`.
    pub(crate) fn write(&mut self, out: &Outbox) -> io::Result<Written> {
        let Some(tls) = &mut self.tls else {
            return write_plain(&mut self.stream, out);
        };
        let mut len = 0;
        for slice in out.slices() {
            let n = tls.writer().write(slice)?;
            len += n;
            if n < slice.len() {
                break;
            }
        }
        let mut blocked = false;
        while tls.wants_write() && !blocked {
            match uninterrupted(|| tls.write_tls(&mut self.stream)) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => blocked = true,
                Err(e) => return Err(e),
            }
        }
        Ok(Written { len, blocked })
    }

    /// Says goodbye, as far as the socket takes it.
    pub(crate) fn close(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            // Whether it arrives is the client's affair.
            let _ = tls.write_tls(&mut self.stream);
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

fn write_plain(stream: &mut TcpStream, out: &Outbox) -> io::Result<Written> {
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let mut used = 0;
    for (to, from) in slices.iter_mut().zip(out.slices()) {
        *to = IoSlice::new(from);
        used += 1;
    }
    if used == 0 {
        return Ok(Written {
            len: 0,
            blocked: false,
        });
    }
    match uninterrupted(|| stream.write_vectored(&slices[..used])) {
        Ok(len) => Ok(Written {
            len,
            blocked: false,
        }),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(Written {
            len: 0,
            blocked: true,
        }),
        Err(e) => Err(e),
    }
}

fn uninterrupted(mut f: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match f() {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

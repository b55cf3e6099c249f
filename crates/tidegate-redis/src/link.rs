//! The byte stream of one connection: a TCP or Unix socket, plain or under TLS, which the
//! driver reads and writes without blocking and without asking the runtime first.
//!
//! This module owns the socket and knows whether it is ready. `resp` gives the bytes their meaning, and the
//! driver decides when to read and write.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::sockopt;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tokio::io::unix::AsyncFd;

use crate::config::Address;
use crate::error::ConnectError;
use crate::wire::{PIECES, Wire};

pub(crate) struct Link {
    fd: AsyncFd<OwnedFd>,
    tls: Option<Box<ClientConnection>>,
}

impl Link {
    /// Connects the socket to the server. With TLS, the first bytes that the driver writes and reads
    /// negotiate it.
    pub(crate) async fn connect(
        address: &Address,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Self, ConnectError> {
        let io = |source: io::Error| ConnectError::Io {
            to: address.to_string(),
            source: Arc::new(source),
        };
        let fd: OwnedFd = match address {
            Address::Tcp { host, port } => {
                let stream = tokio::net::TcpStream::connect((host.as_str(), *port))
                    .await
                    .map_err(io)?;
                let stream = stream.into_std().map_err(io)?;
                stream.set_nodelay(true).map_err(io)?;
                let fd = OwnedFd::from(stream);
                keepalive(&fd).map_err(|e| io(e.into()))?;
                fd
            }
            Address::Unix(path) => {
                let stream = tokio::net::UnixStream::connect(path).await.map_err(io)?;
                OwnedFd::from(stream.into_std().map_err(io)?)
            }
        };
        let tls = match (tls, address) {
            (Some(config), Address::Tcp { host, .. }) => {
                let name = ServerName::try_from(host.clone()).map_err(|_| {
                    ConnectError::Tls(format!(
                        "the server's name {host:?} is no name for a certificate"
                    ))
                })?;
                let mut conn = ClientConnection::new(Arc::clone(config), name)
                    .map_err(|e| ConnectError::Tls(e.to_string()))?;
                // The limit bounds the unencrypted bytes that TLS holds: beyond it, TLS accepts no more bytes
                // from the driver.
                conn.set_buffer_limit(Some(TLS_BUFFER));
                Some(Box::new(conn))
            }
            _ => None,
        };
        Ok(Self {
            fd: register(fd).map_err(io)?,
            tls,
        })
    }

    /// Reads the available bytes without blocking. Returns 0 at the end of the stream, and fails with
    /// `WouldBlock` if there are no bytes.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        read_some(self.fd.get_ref().as_fd(), self.tls.as_deref_mut(), buf)
    }

    /// Writes the bytes that the socket accepts, or fails with `WouldBlock` if it accepts none. If `wire` has
    /// nothing to write, sends the bytes that TLS holds.
    pub(crate) fn write(&mut self, wire: &Wire) -> io::Result<usize> {
        write_some(self.fd.get_ref().as_fd(), self.tls.as_deref_mut(), wire)
    }

    /// Returns whether TLS holds encrypted bytes that the socket has not accepted yet, so that a flush is not
    /// finished.
    pub(crate) fn holds_bytes(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Reads as [`read`](Self::read) does, as soon as there are bytes; the runtime wakes the task when they
    /// arrive.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let Self { fd, tls } = self;
        loop {
            let mut guard = ready!(fd.poll_read_ready(cx))?;
            match read_some(fd.get_ref().as_fd(), tls.as_deref_mut(), buf) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Ok(n) => {
                    if tls.is_none() && n < buf.len() {
                        guard.clear_ready();
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    /// Writes as [`write`](Self::write) does, as soon as bytes fit; the runtime wakes the task when the
    /// socket has room.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        wire: &Wire,
    ) -> Poll<io::Result<usize>> {
        let Self { fd, tls } = self;
        loop {
            let mut guard = ready!(fd.poll_write_ready(cx))?;
            match write_some(fd.get_ref().as_fd(), tls.as_deref_mut(), wire) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                other => return Poll::Ready(other),
            }
        }
    }
}

/// Registers a socket with the runtime. `AsyncFd::new` is deprecated because some types may later return
/// another descriptor, which an `OwnedFd` cannot do. The function that replaces it is unsafe to call, and
/// this crate has no unsafe code.
#[expect(deprecated)]
pub(crate) fn register(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(fd)
}

fn read_some(
    fd: BorrowedFd<'_>,
    tls: Option<&mut ClientConnection>,
    buf: &mut [u8],
) -> io::Result<usize> {
    match tls {
        None => (&Raw(fd)).read(buf),
        Some(tls) => read_tls(tls, Raw(fd), buf),
    }
}

fn write_some(
    fd: BorrowedFd<'_>,
    tls: Option<&mut ClientConnection>,
    wire: &Wire,
) -> io::Result<usize> {
    let mut pieces = [IoSlice::new(&[]); PIECES];
    let n = wire.pieces(&mut pieces);
    let pieces = &pieces[..n];
    let Some(tls) = tls else {
        return match pieces {
            [] => Ok(0),
            [one] => (&Raw(fd)).write(one),
            _ => (&Raw(fd)).write_vectored(pieces),
        };
    };
    let taken = tls.writer().write_vectored(pieces)?;
    match flush_tls(tls, Raw(fd)) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock && taken > 0 => Ok(taken),
        Err(e) => Err(e),
        Ok(()) => Ok(taken),
    }
}

/// The greatest number of unencrypted bytes that TLS may hold until the socket accepts them, to bound its
/// memory.
const TLS_BUFFER: usize = 256 << 10;

/// A borrowed socket with non-blocking `Read` and `Write`, as rustls needs them.
#[derive(Clone, Copy)]
struct Raw<'a>(BorrowedFd<'a>);

impl Read for &Raw<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let (n, _) = rustix::io::retry_on_intr(|| recv(self.0, &mut *buf, RecvFlags::DONTWAIT))?;
        Ok(n)
    }
}

impl Write for &Raw<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(rustix::io::retry_on_intr(|| send(self.0, buf, flags))?)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut nothing = SendAncillaryBuffer::default();
        Ok(rustix::io::retry_on_intr(|| {
            sendmsg(self.0, bufs, &mut nothing, flags)
        })?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn read_tls(tls: &mut ClientConnection, raw: Raw<'_>, buf: &mut [u8]) -> io::Result<usize> {
    loop {
        match tls.reader().read(buf) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            // A server may close the socket without closing TLS first. The client accepts that
            // as the end of the stream, because replies carry their own lengths.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
            other => return other,
        }
        let n = tls.read_tls(&mut &raw)?;
        if let Err(e) = tls.process_new_packets() {
            // The alert of TLS tells the server why the client ends the connection.
            let _ = flush_tls(tls, raw);
            return Err(io::Error::new(io::ErrorKind::InvalidData, e));
        }
        flush_tls(tls, raw).or_else(|e| match e.kind() {
            io::ErrorKind::WouldBlock => Ok(()),
            _ => Err(e),
        })?;
        if n == 0 && tls.is_handshaking() {
            return Ok(0);
        }
    }
}

fn flush_tls(tls: &mut ClientConnection, raw: Raw<'_>) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(&mut &raw)?;
    }
    Ok(())
}

/// Enables TCP keepalive, so that the kernel notices a vanished server within a minute.
fn keepalive(fd: &OwnedFd) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(fd, true)?;
    sockopt::set_tcp_keepidle(fd, Duration::from_secs(30))?;
    sockopt::set_tcp_keepintvl(fd, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(fd, 3)
}

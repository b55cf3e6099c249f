//! The connection below the link's protocol: TCP, or TLS over it. This module does not know frames.

use std::io::{self, IoSlice, Read as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// The connected socket of a client or server, with or without TLS.
#[derive(Debug)]
pub(crate) enum Socket {
    /// A TCP socket without encryption.
    Tcp(TcpStream),
    /// A TCP socket with TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    /// Reads into `buf`, which is not empty; returns the number of bytes read, 0 at the end of the
    /// connection.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(buf);
        ready!(match self {
            Self::Tcp(tcp) => Pin::new(tcp).poll_read(cx, &mut buf),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_read(cx, &mut buf),
        })?;
        Poll::Ready(Ok(buf.filled().len()))
    }

    /// Writes as many bytes of `bufs` as the socket has room for, in one call; returns their number.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_write_vectored(cx, bufs),
        }
    }

    /// Flushes the bytes that TLS holds back, so that they reach the other side. Does nothing on a socket
    /// without TLS.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_flush(cx),
        }
    }

    /// Tells the other side that no more bytes follow from this side.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_shutdown(cx),
        }
    }

    /// Reads from the socket itself rather than through the runtime, for connections that spin: a runtime
    /// that is never idle learns of new bytes late. Returns `None` if the socket has no bytes, and always
    /// with TLS, because such a read would bypass the decryption.
    pub(crate) fn read_now(&mut self, buf: &mut [u8]) -> Option<io::Result<usize>> {
        let Self::Tcp(tcp) = self else { return None };
        match (&*SockRef::from(&*tcp)).read(buf) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => None,
            outcome => Some(outcome),
        }
    }

    /// Returns whether the connection is safe from eavesdroppers, so that a token may pass: it uses TLS, or
    /// does not leave this machine.
    pub(crate) fn is_private(&self) -> bool {
        match self {
            Self::Tls(_) => true,
            Self::Tcp(tcp) => tcp.peer_addr().is_ok_and(|peer| is_loopback(&peer)),
        }
    }

    /// Closes the connection with a reset, so that the bytes sent do not stay in the kernel for a peer that
    /// does not read.
    pub(crate) fn abort(&self) {
        let tcp = match self {
            Self::Tcp(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
        };
        // A socket that refuses the linger option closes in the ordinary way, so the failure needs no
        // handling.
        let _ = SockRef::from(tcp).set_linger(Some(std::time::Duration::ZERO));
    }
}

/// Returns whether `address` is a loopback address, so that bytes to it do not leave this machine.
pub(crate) fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Sets the options of a fresh socket, on both sides. The link merges messages before they reach the socket,
/// so Nagle's algorithm would gain nothing.
pub(crate) fn prepare(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    SockRef::from(tcp).set_keepalive(true)
}

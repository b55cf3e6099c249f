//! Provides the sockets of the event loop, and the listeners on which they arrive.
//!
//! The product has TCP sockets and nothing else. With the feature `sim` a socket is either a TCP socket or a
//! pipe of the simulated network (`simulated/sockets`), so that the simulation drives the product's own loop.

use std::io;
use std::net::SocketAddr;

#[cfg(not(feature = "sim"))]
pub(super) use mio::net::{TcpListener as Listener, TcpStream as Stream};

#[cfg(feature = "sim")]
pub(crate) use crate::simulated::sockets::{Listener, Stream};

/// Listens on this address for connections. Returns the listener, which never blocks the loop, and its
/// address.
pub(super) fn listen(host: &str, port: u16) -> io::Result<(Listener, SocketAddr)> {
    #[cfg(feature = "sim")]
    if crate::simulated::is_on() {
        return Listener::simulated(host, port);
    }
    let listener = std::net::TcpListener::bind((host, port))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let listener = mio::net::TcpListener::from_std(listener);
    #[cfg(feature = "sim")]
    let listener = Listener::Tcp(listener);
    Ok((listener, address))
}

/// Returns the TCP socket behind a stream, for options that only TCP has; `None` for a pipe of the simulated
/// network.
#[cfg(target_os = "linux")]
pub(super) const fn tcp(stream: &Stream) -> Option<&mio::net::TcpStream> {
    #[cfg(feature = "sim")]
    return stream.tcp();
    #[cfg(not(feature = "sim"))]
    Some(stream)
}

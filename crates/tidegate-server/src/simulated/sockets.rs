//! Gives a simulated loop its sockets and listeners: sockets of the system, or of the simulated network.
//! Calls on simulated sockets cost virtual time.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};

use mio::event::Source;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};

use super::{Machine, Owner, spend, with};
use crate::cost::Work;

/// One end of a simulated connection, which a server holds as its socket.
#[derive(Debug)]
pub(crate) struct Pipe(usize);

impl Drop for Pipe {
    fn drop(&mut self) {
        with(|machine| machine.close(self.0));
    }
}

/// Calls `f` with the machine of this thread, which exists because only a thread with a machine has pipes.
fn on<T>(f: impl FnOnce(&mut Machine) -> io::Result<T>) -> io::Result<T> {
    with(f).unwrap_or_else(|| Err(ErrorKind::NotConnected.into()))
}

/// A socket of the loop, so that the loop need not know the machine: a TCP socket, or a pipe of the simulated
/// network.
#[derive(Debug)]
pub(crate) enum Stream {
    /// A socket of the operating system, for a loop on the real machine.
    Tcp(TcpStream),
    /// An end of a simulated connection, for a loop on a simulated machine.
    Pipe(Pipe),
}

impl Stream {
    /// Begins to connect to this address, because a node dials a peer there.
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let piped = with(|machine| {
            let from = ([127, 0, 0, 1], 1).into();
            machine.connect(from, address).map(Pipe)
        });
        match piped {
            Some(pipe) => pipe.map(Self::Pipe),
            None => TcpStream::connect(address).map(Self::Tcp),
        }
    }

    /// Returns the TCP socket, for calls that only the system offers; `None` for a pipe.
    pub(crate) const fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(stream) => Some(stream),
            Self::Pipe(_) => None,
        }
    }

    /// Sets TCP_NODELAY on a TCP socket. A pipe delays no bytes, so the call does nothing there.
    pub(crate) fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.tcp().map_or(Ok(()), |stream| stream.set_nodelay(on))
    }

    /// Copies the first bytes that have arrived into `buf`, and leaves them in the socket, so that the loop
    /// sees whether a client begins with TLS.
    pub(crate) fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.peek(buf),
            Self::Pipe(pipe) => {
                spend(Work::Read, 1);
                on(|machine| machine.receive(pipe.0, buf, false))
            }
        }
    }

    /// Ends the connection, so that the other side learns of the end.
    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Pipe(pipe) => {
                spend(Work::Close, 1);
                on(|machine| {
                    machine.close(pipe.0);
                    Ok(())
                })
            }
        }
    }

    /// Returns the error with which a TCP socket failed to connect; a pipe fails only at once, in
    /// [`Stream::connect`].
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.tcp().map_or(Ok(None), TcpStream::take_error)
    }

    /// Returns the address of the other side of the connection, for logs and checks.
    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.peer_addr(),
            Self::Pipe(pipe) => on(|machine| Ok(machine.addresses(pipe.0).1)),
        }
    }

    /// Returns the address of this side of the connection, for a check that the socket is not connected to
    /// itself.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr(),
            Self::Pipe(pipe) => on(|machine| Ok(machine.addresses(pipe.0).0)),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buf),
            Self::Pipe(pipe) => {
                spend(Work::Read, 1);
                let got = on(|machine| machine.receive(pipe.0, buf, true))?;
                spend(Work::ReadByte, got as u64);
                Ok(got)
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write_vectored(parts),
            Self::Pipe(pipe) => {
                spend(Work::Write, 1);
                let sent = on(|machine| machine.send(pipe.0, parts))?;
                spend(Work::WriteByte, sent as u64);
                Ok(sent)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Source for Stream {
    fn register(&mut self, registry: &Registry, token: Token, of: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.register(registry, token, of),
            Self::Pipe(pipe) => on(|machine| {
                machine.register(pipe.0, Owner::Server(machine.server), token.0);
                Ok(())
            }),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, of: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.reregister(registry, token, of),
            Self::Pipe(_) => self.register(registry, token, of),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.deregister(registry),
            Self::Pipe(pipe) => on(|machine| {
                machine.deregister(pipe.0);
                Ok(())
            }),
        }
    }
}

/// A listener of the loop, on which clients or nodes connect: a TCP listener, or a listener of the simulated
/// network.
#[derive(Debug)]
pub(crate) enum Listener {
    /// A listener of the operating system, for a loop on the real machine.
    Tcp(TcpListener),
    /// A listener of the simulated network, with the address at which it listens.
    Simulated(SocketAddr),
}

impl Listener {
    /// Opens a listener in the simulated network, for the server that starts.
    pub(crate) fn simulated(host: &str, port: u16) -> io::Result<(Self, SocketAddr)> {
        let ip = host.parse().map_err(io::Error::other)?;
        let address = on(|machine| machine.listen(ip, port))?;
        Ok((Self::Simulated(address), address))
    }

    /// Accepts the next connection that waits at the listener, for the loop to serve.
    pub(crate) fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept()?;
                Ok((Stream::Tcp(stream), address))
            }
            Self::Simulated(at) => {
                let (end, address) = on(|machine| machine.accept(*at))?;
                spend(Work::Accept, 1);
                Ok((Stream::Pipe(Pipe(end)), address))
            }
        }
    }
}

impl Source for Listener {
    fn register(&mut self, registry: &Registry, token: Token, of: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.register(registry, token, of),
            Self::Simulated(address) => on(|machine| {
                machine.register_listener(*address, Some(token.0));
                Ok(())
            }),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, of: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.reregister(registry, token, of),
            Self::Simulated(_) => self.register(registry, token, of),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.deregister(registry),
            Self::Simulated(address) => on(|machine| {
                machine.register_listener(*address, None);
                Ok(())
            }),
        }
    }
}

//! The errors of the link, one type per operation. A message says what the link expected and what to do.

use std::io;
use std::net::SocketAddr;

use crate::Seq;
use crate::frame::Code;
use crate::hello::{HandshakeError, Refused};
use crate::proto::{Doubt, ReceiverError, SenderError};
use crate::tls::TlsError;

/// Settings that contradict each other or mean nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A number outside its range.
    #[error("{what} of {given}: give {least} to {most}")]
    Range {
        /// The name of the setting.
        what: &'static str,
        /// The value given.
        given: u64,
        /// The least allowed.
        least: u64,
        /// The most allowed.
        most: u64,
    },
    /// The window is too small for one frame.
    #[error(
        "a window of {window} bytes holds no frame of {frame_max}: give a window of at least {least}"
    )]
    WindowBelowFrame {
        /// The window.
        window: u64,
        /// The largest frame.
        frame_max: u32,
        /// The smallest window for it.
        least: u64,
    },
    /// The token is too long.
    #[error("a token of {len} bytes: at most 1024")]
    TokenTooLong {
        /// The length of the token in bytes.
        len: usize,
    },
    /// A setting the plain protocol does not have.
    #[error("the plain protocol has no {0}: use a session")]
    PlainHasNo(&'static str),
    /// A controller that cannot be built.
    #[error("the controller: {0}")]
    Controller(String),
}

/// The reasons why a client did not connect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The settings.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address is invalid, no server listens there, or the connection broke at once.
    #[error("cannot connect to {address}: {error}")]
    Io {
        /// The address of the server.
        address: String,
        /// The system's error.
        error: io::Error,
    },
    /// The TLS handshake failed.
    #[error("no TLS connection to {address}: {error}")]
    Tls {
        /// The address of the server.
        address: String,
        /// The error of rustls.
        error: io::Error,
    },
    /// The server did not answer in time.
    #[error("{address} did not answer within {within_ms} ms: is it a tidegate server?")]
    NoAnswer {
        /// The address of the server.
        address: String,
        /// The milliseconds that the client waited.
        within_ms: u64,
    },
    /// The client would send a token in clear beyond this machine.
    #[error("a token is only sent inside TLS or to a loopback address, not to {peer}: set up TLS")]
    TokenInClear {
        /// The address of the server.
        peer: SocketAddr,
    },
    /// The system has no random numbers, which sessions need.
    #[error("no random numbers from the system: {0}")]
    Random(String),
    /// The client ended while it connected: the server refused it, or its answer was invalid.
    #[error(transparent)]
    Ended(#[from] LinkError),
}

/// The reasons why a client ended. Every later operation fails with a copy of this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The program closed or dropped the client.
    #[error("the client is closed")]
    Closed,
    /// The server refused the client.
    #[error("the server refused the connection: {text} ({code})")]
    Refused {
        /// The reason for the refusal.
        code: Code,
        /// The reason in the server's words.
        text: String,
    },
    /// The server ended the connection for a reason that connecting again does not change.
    #[error("the server ended the connection: {0}")]
    Bye(Code),
    /// Another client has taken the session over.
    #[error("another client has taken this session over: give each client a session of its own")]
    Displaced,
    /// The server sent something impossible.
    #[error("the server broke the protocol: {0}")]
    Protocol(SenderError),
    /// Messages were waiting, and none of them was acknowledged for the time set.
    #[error(
        "no progress for too long: everything up to {acked} is acknowledged, nothing after it up to {last}"
    )]
    Stalled {
        /// The last position acknowledged.
        acked: Seq,
        /// The last message that the client has sent or keeps.
        last: Seq,
    },
    /// The connection broke and was not restored: the plain protocol cannot restore it, or the time for that
    /// is over.
    #[error("the connection broke ({cause}); messages {} to {} are in doubt", .acked.next(), .sent)]
    Broken {
        /// The system's error.
        cause: String,
        /// The last position acknowledged: the first in doubt follows.
        acked: Seq,
        /// The last position sent.
        sent: Seq,
    },
    /// The server lost the session's state, and the client's decision was to fail.
    #[error("the server lost the state of this session: messages {} to {} may or may not have been handled", .0.first, .0.last)]
    Doubt(Doubt),
}

/// The reasons why the client did not take a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The client has no room now: only from [`try_send`](crate::Client::try_send).
    #[error("the buffer is full: wait for acknowledgements, or use `send`, which waits")]
    Full,
    /// The message can never fit.
    #[error("a message of {len} bytes: this connection takes at most {max}")]
    TooLarge {
        /// The length of the payload in bytes.
        len: usize,
        /// The longest payload.
        max: usize,
    },
    /// The client has ended.
    #[error(transparent)]
    Ended(#[from] LinkError),
    /// The client has no room now, and the thread must not wait for it.
    #[error("the buffer is full: {0}")]
    WouldBlock(#[from] tidegate::WouldBlock),
}

/// The reasons why a server ended or refused a peer's connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The first bytes of the peer are no handshake.
    #[error("{0}")]
    Handshake(HandshakeError),
    /// The server refused the peer.
    #[error("refused: {}", .0.text)]
    Refused(Refused),
    /// The peer broke the protocol, or was silent for too long.
    #[error("{0}")]
    Rules(ReceiverError),
    /// The handler of the session failed.
    #[error("the handler failed: the session is forgotten")]
    Handler,
    /// The read buffers of all connections took as much memory as they may, and its was the largest.
    #[error(
        "the memory for messages on their way in is used up, and this connection had the most of it"
    )]
    Crowded,
}

/// The reasons why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Invalid settings.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Invalid TLS material.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The listener failed.
    #[error("cannot listen: {0}")]
    Io(#[from] io::Error),
    /// The server would receive a token in clear from beyond this machine.
    #[error(
        "a token is only accepted inside TLS or on a loopback address, not on {address}: set up TLS"
    )]
    TokenInClear {
        /// The address of the listener.
        address: SocketAddr,
    },
}

//! The errors of the link, one type per operation. The text of each error says what the link expected and
//! what the user can do.

use std::io;
use std::net::SocketAddr;

use crate::Seq;
use crate::frame::Code;
use crate::hello::{HandshakeError, Refused};
use crate::proto::{Doubt, ReceiverError, SenderError};
use crate::tls::TlsError;

/// The reasons why the settings of a client or server are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The number that the program gave for a setting is outside of the setting's range.
    #[error("{what} of {given}: give a number from {least} to {most}")]
    Range {
        /// The name of the setting.
        what: &'static str,
        /// The number that the program gave for this setting.
        given: u64,
        /// The least number that the program may give for the setting.
        least: u64,
        /// The greatest number that the program may give for the setting.
        most: u64,
    },
    /// The server's window is too small for frames of the largest size, so that a client could get stuck.
    #[error(
        "a window of {window} bytes holds fewer than two frames of {frame_max} bytes: give a window of at least {least}"
    )]
    WindowBelowFrame {
        /// The server's window in bytes, as the program set it.
        window: u64,
        /// The longest message that the server accepts, in bytes.
        frame_max: u32,
        /// The smallest window, in bytes, that the server may have with messages of this length.
        least: u64,
    },
    /// The token that the program set is longer than 1024 bytes.
    #[error("a token of {len} bytes: at most 1024 are allowed")]
    TokenTooLong {
        /// The length in bytes of the token that the program set for the client or server.
        len: usize,
    },
    /// The program asked for a setting that the plain protocol does not have.
    #[error("the plain protocol has no {0}: use a session")]
    PlainHasNo(&'static str),
}

/// The reasons why a client did not connect to its server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The client's settings are invalid, so the client did not connect.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address is invalid, no server listens at it, or the connection broke before the session was open.
    #[error("cannot connect to {address}: {error}")]
    Io {
        /// The address of the server.
        address: String,
        /// The I/O error that the client got for its attempt.
        error: io::Error,
    },
    /// The TLS handshake with the server failed.
    #[error("no TLS connection to {address}: {error}")]
    Tls {
        /// The address of the server.
        address: String,
        /// The error that rustls reported for the TLS handshake.
        error: io::Error,
    },
    /// The server did not answer the handshake within the time that the program had set.
    #[error("{address} did not answer within {within_ms} ms: is it a tidegate server?")]
    NoAnswer {
        /// The address of the server.
        address: String,
        /// The longest time, in milliseconds, that the client waited for the answer.
        within_ms: u64,
    },
    /// The client has a token, and would send it in clear to another machine.
    #[error("a token is only sent inside TLS or to a loopback address, not to {peer}: set up TLS")]
    TokenInClear {
        /// The address of the server.
        peer: SocketAddr,
    },
    /// The operating system has no random numbers, which the ids of sessions need.
    #[error("the operating system gave no random numbers: {0}")]
    Random(String),
    /// The client ended while it connected: the server refused it, or its answer was invalid.
    #[error(transparent)]
    Ended(#[from] LinkError),
}

/// The reasons why a client ended. Every later operation of the client fails with a copy of the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The program closed or dropped the client.
    #[error("the client is closed")]
    Closed,
    /// The server refused the session that the client wanted to open.
    #[error("the server refused the connection: {text} ({code})")]
    Refused {
        /// The reason for the refusal.
        code: Code,
        /// The text of the server's refusal, for people.
        text: String,
    },
    /// The server ended the connection for a reason that a new connection would not change; holds the
    /// reason's code.
    #[error("the server ended the connection: {0}")]
    Bye(Code),
    /// Another client has taken the session over, so this client has ended.
    #[error("another client has taken this session over: give each client a session of its own")]
    Displaced,
    /// The server sent an answer or a reply that the protocol does not allow.
    #[error("the server broke the protocol: {0}")]
    Protocol(SenderError),
    /// Messages of the client were waiting, and the server acknowledged none of them for the time that the
    /// program had set.
    #[error(
        "the server acknowledged nothing for too long: messages up to {acked} are acknowledged, those up to {last} wait"
    )]
    Stalled {
        /// The number of the last message that the server has acknowledged.
        acked: Seq,
        /// The number of the last message that the client has sent or keeps to send.
        last: Seq,
    },
    /// The connection broke, and the client did not restore it: the plain protocol cannot restore it, or the
    /// time for connecting again is over.
    #[error("the connection broke ({cause}); {}", in_doubt(.acked, .sent))]
    Broken {
        /// The reason why the connection broke, as text.
        cause: String,
        /// The number of the last message that the server has acknowledged: the first message in doubt
        /// follows it.
        acked: Seq,
        /// The number of the last message that the client sent: the last message in doubt.
        sent: Seq,
    },
    /// The server lost the session's state, and the program's decision about the messages in doubt was to
    /// fail.
    #[error("the server lost the state of this session: messages {} to {} may or may not have been handled", .0.first, .0.last)]
    Doubt(Doubt),
}

/// Names the messages that the client sent and that the server has not acknowledged.
fn in_doubt(acked: &Seq, sent: &Seq) -> String {
    match sent > acked {
        true => format!("messages {} to {sent} are in doubt", acked.next()),
        false => {
            "no message is in doubt: the server has acknowledged all that were sent".to_owned()
        }
    }
}

/// The reasons why a client did not take a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The client has no room for the message now: only calls that never wait return this, such as
    /// [`try_send`](crate::Client::try_send).
    #[error("the client's buffer is full: wait for acknowledgements, or use `send`, which waits")]
    Full,
    /// The message is longer than the server or the settings of the client allow on this connection.
    #[error("a message of {len} bytes: this connection takes at most {max}")]
    TooLarge {
        /// The length in bytes of the payload that the program wanted to send.
        len: usize,
        /// The longest payload that the client takes on this connection, in bytes.
        max: usize,
    },
    /// The client has ended.
    #[error(transparent)]
    Ended(#[from] LinkError),
    /// The client has no room for the message now, and the calling thread must not wait for room.
    #[error("the client's buffer is full: {0}")]
    WouldBlock(#[from] tidegate::WouldBlock),
}

/// The reasons why a server ended or refused a peer's connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The first bytes of the peer are no valid handshake, so the server closed the connection.
    #[error("{0}")]
    Handshake(HandshakeError),
    /// The server refused the peer's session.
    #[error("refused: {}", .0.text)]
    Refused(Refused),
    /// The peer broke the protocol, or the server heard nothing from it for the idle time.
    #[error("{0}")]
    Rules(ReceiverError),
    /// The handler of the peer's session failed.
    #[error("the handler of the session failed, so the server forgets the session")]
    Handler,
    /// The read buffers of all connections took as much memory as they may, and this connection's buffer was
    /// the largest.
    #[error(
        "the memory for messages on their way in is used up, and this connection had the most of it"
    )]
    Crowded,
}

/// The reasons why a server of the link did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The program gave the server invalid settings, so the server did not start.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The program gave the server an invalid TLS certificate or key, so the server did not start.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The operating system reported an error of the server's listener.
    #[error("the server cannot listen: {0}")]
    Io(#[from] io::Error),
    /// The server asks for a token and listens without TLS on an address that other machines reach, so that
    /// it would receive tokens in clear.
    #[error(
        "a token is only accepted inside TLS or on a loopback address, not on {address}: set up TLS"
    )]
    TokenInClear {
        /// The address of the listener.
        address: SocketAddr,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_connection_names_the_messages_in_doubt_or_says_that_none_is() {
        let broken = |acked, sent| LinkError::Broken {
            cause: "reset".to_owned(),
            acked: Seq::new(acked),
            sent: Seq::new(sent),
        };
        let said = broken(3, 5).to_string();
        assert!(said.ends_with("; messages 4 to 5 are in doubt"), "{said}");
        for (acked, sent) in [(0, 0), (3, 3)] {
            let said = broken(acked, sent).to_string();
            assert!(said.contains("; no message is in doubt"), "{said}");
        }
    }
}

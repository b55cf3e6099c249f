//! Defines the tokens by which the poller (mio) names the sockets of the event loop, and the poller's events.
//! The code is pure.

use mio::Token;
use mio::event::Event;

use crate::party::ClientKey;

/// The token of the socket on which clients connect to the server.
pub(super) const LISTENER: Token = Token(usize::MAX);
/// The token of the waker with which other threads wake the loop.
pub(super) const WAKER: Token = Token(usize::MAX - 1);
/// The token of the socket on which other nodes connect to this node.
pub(super) const PEER_LISTENER: Token = Token(usize::MAX - 2);
/// The token of the first connection with another node. The tokens of clients are smaller, so that the loop
/// can tell the two apart.
const CHANNELS: usize = usize::MAX / 2;

/// The key by which the loop finds a connection with another node. A later connection may get the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ChannelKey(usize);

impl ChannelKey {
    /// Makes the key of the connection at this index in the table of connections with other nodes.
    pub(super) const fn new(index: usize) -> Self {
        Self(index)
    }

    /// Returns the index of the connection with this key in the table.
    pub(super) const fn index(self) -> usize {
        self.0
    }
}

/// The socket or the waker to which a token belongs, by which the loop handles an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The event belongs to the socket on which clients connect.
    Listener,
    /// The event belongs to the waker: another thread has commands or outcomes for the loop.
    Waker,
    /// The event belongs to the socket on which other nodes connect.
    PeerListener,
    /// The event belongs to the connection of a client, by the connection's key.
    Client(ClientKey),
    /// The event belongs to a connection from or to another node, by the connection's key.
    Channel(ChannelKey),
}

impl Owner {
    /// Finds the socket or the waker to which a token of an event belongs.
    pub(super) const fn of(token: Token) -> Self {
        match token {
            LISTENER => Self::Listener,
            WAKER => Self::Waker,
            PEER_LISTENER => Self::PeerListener,
            Token(at) if at >= CHANNELS => Self::Channel(ChannelKey(at - CHANNELS)),
            Token(at) => Self::Client(ClientKey::new(at)),
        }
    }

    /// Returns the token with which the loop registers this socket or waker.
    pub(super) const fn token(self) -> Token {
        match self {
            Self::Listener => LISTENER,
            Self::Waker => WAKER,
            Self::PeerListener => PEER_LISTENER,
            Self::Client(key) => Token(key.index()),
            Self::Channel(key) => Token(CHANNELS + key.index()),
        }
    }
}

/// An event of the poller for the loop: the changes of one socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    /// The token with which the loop registered the socket, and by which it finds the socket.
    pub(crate) token: Token,
    /// True if the socket has bytes to read, or has ended, so that the loop must read it.
    pub(crate) readable: bool,
    /// True if the socket takes bytes, so that the loop may write.
    pub(crate) writable: bool,
    /// True if the other side has closed the connection, or the connection has failed, so that the loop must
    /// end it.
    pub(crate) ended: bool,
}

impl From<&Event> for Ready {
    fn from(event: &Event) -> Self {
        let ended = event.is_read_closed() || event.is_error();
        Self {
            token: event.token(),
            readable: event.is_readable() || ended,
            writable: event.is_writable(),
            ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_comes_back_from_its_token() {
        let mut owners = vec![Owner::Listener, Owner::Waker, Owner::PeerListener];
        for at in [0, 1, 1 << 20] {
            owners.push(Owner::Client(ClientKey::new(at)));
            owners.push(Owner::Channel(ChannelKey::new(at)));
        }
        for owner in owners {
            assert_eq!(Owner::of(owner.token()), owner);
        }
    }
}

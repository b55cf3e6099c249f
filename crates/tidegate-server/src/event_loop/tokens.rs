//! The tokens by which the poller names the sockets of the loop. Pure.

use mio::Token;

use crate::party::ClientKey;

/// The token of the socket on which clients connect.
pub(super) const LISTENER: Token = Token(usize::MAX);
/// The token of the waker by which other threads wake the loop.
pub(super) const WAKER: Token = Token(usize::MAX - 1);
/// The token of the socket on which other nodes connect.
pub(super) const PEER_LISTENER: Token = Token(usize::MAX - 2);
/// The token of the first channel; the tokens of clients are smaller.
const CHANNELS: usize = usize::MAX / 2;

/// The place of a channel's connection among the connections with other nodes. A later connection may get the
/// same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ChannelKey(usize);

impl ChannelKey {
    /// Returns the key of the place with this index.
    pub(super) const fn new(index: usize) -> Self {
        Self(index)
    }

    /// Returns the index of the place.
    pub(super) const fn index(self) -> usize {
        self.0
    }
}

/// The socket or waker that a token names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The socket on which clients connect.
    Listener,
    /// Another thread, which has commands for the loop.
    Waker,
    /// The socket on which other nodes connect.
    PeerListener,
    /// A client's connection.
    Client(ClientKey),
    /// A channel from or to another node.
    Channel(ChannelKey),
}

impl Owner {
    /// Returns the socket or waker that a token names.
    pub(super) const fn of(token: Token) -> Self {
        match token {
            LISTENER => Self::Listener,
            WAKER => Self::Waker,
            PEER_LISTENER => Self::PeerListener,
            Token(at) if at >= CHANNELS => Self::Channel(ChannelKey(at - CHANNELS)),
            Token(at) => Self::Client(ClientKey::new(at)),
        }
    }

    /// Returns the token of this socket or waker.
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

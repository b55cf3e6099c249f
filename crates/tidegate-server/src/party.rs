//! Defines the parties of a message, which publish it or subscribe to it: the clients of this node and its
//! peers. The code is pure.

use std::ops::{Index, IndexMut, Range};

use slab::Slab;
use tidegate_cluster::roster::PeerSlot;

/// The key by which the node finds a client's connection. A later connection may get the key again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(u32);

impl ClientKey {
    /// Makes the key by which the node names the connection at this index in the node's table of client
    /// connections.
    #[inline]
    #[must_use]
    pub const fn new(index: usize) -> Self {
        assert!(
            index <= u32::MAX as usize,
            "each connection has a descriptor"
        );
        Self(index as u32)
    }

    /// Returns the index of the connection with this key in the node's table, where its state is.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The client or the peer that published a message or that owns a subscription, so that the node treats both
/// alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Party {
    /// The party is a client of this node, which the node finds by the key of its connection.
    Client(ClientKey),
    /// The party is another node of the cluster, a peer, which the node finds by its slot.
    Peer(PeerSlot),
}

impl Party {
    /// Returns the client's key if the party is a client; `None` for a peer.
    #[inline]
    pub(crate) const fn client(self) -> Option<ClientKey> {
        match self {
            Self::Client(key) => Some(key),
            Self::Peer(_) => None,
        }
    }

    /// Returns the peer's slot if the party is a peer; `None` for a client.
    #[inline]
    pub(crate) const fn peer(self) -> Option<PeerSlot> {
        match self {
            Self::Client(_) => None,
            Self::Peer(slot) => Some(slot),
        }
    }
}

/// A table with a value for each client connection, by the connection's key.
#[derive(Debug)]
pub(crate) struct PerClient<T>(Slab<T>);

impl<T> PerClient<T> {
    /// Creates a table without client connections, for a node that starts.
    pub(crate) const fn new() -> Self {
        Self(Slab::new())
    }

    /// Adds the value of a new connection, and returns the connection's key, by which the caller finds the
    /// value.
    pub(crate) fn insert(&mut self, value: T) -> ClientKey {
        ClientKey::new(self.0.insert(value))
    }

    /// Removes the value of a connection that has ended, and returns the value. A later connection may then
    /// get the key.
    pub(crate) fn remove(&mut self, key: ClientKey) -> T {
        self.0.remove(key.index())
    }

    /// Returns whether the table has a client connection with this key, which may have ended.
    #[inline]
    pub(crate) fn contains(&self, key: ClientKey) -> bool {
        self.0.contains(key.index())
    }

    /// Returns the value of the connection with this key; `None` if the table has no such connection, because
    /// it has ended.
    #[inline]
    pub(crate) fn get(&self, key: ClientKey) -> Option<&T> {
        self.0.get(key.index())
    }

    /// Returns the value of the connection with this key, so that the caller can change it; `None` if the
    /// table has none.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: ClientKey) -> Option<&mut T> {
        self.0.get_mut(key.index())
    }

    /// Returns the number of client connections in the table, for the node's counts.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Iterates over the keys and values of the connections at these places of the table, for work on all of
    /// them in parts. All places are below [`PerClient::places`].
    pub(crate) fn range(&self, places: Range<usize>) -> impl Iterator<Item = (ClientKey, &T)> {
        let places = places.start..places.end.min(self.places());
        places.filter_map(move |at| Some((ClientKey::new(at), self.0.get(at)?)))
    }

    /// Returns the number of places in the table, which connections take or took.
    pub(crate) fn places(&self) -> usize {
        self.0.capacity()
    }

    /// Iterates over the keys and values of all connections, in the order of the keys, for work on all of
    /// them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClientKey, &T)> {
        self.0.iter().map(|(at, value)| (ClientKey::new(at), value))
    }
}

impl<T> Index<ClientKey> for PerClient<T> {
    type Output = T;

    #[inline]
    fn index(&self, key: ClientKey) -> &T {
        &self.0[key.index()]
    }
}

impl<T> IndexMut<ClientKey> for PerClient<T> {
    #[inline]
    fn index_mut(&mut self, key: ClientKey) -> &mut T {
        &mut self.0[key.index()]
    }
}

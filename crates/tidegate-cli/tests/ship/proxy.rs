//! A TCP proxy that interrupts connections for tests: it carries a given number of bytes between sender and
//! receiver, then stops its connections and reports that.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An address at which no program listens, because no system gives out this port.
pub(crate) const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 77)), 1);

/// The proxy between a sender and a receiver, which a test controls.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    inner: Arc<Inner>,
    spent: Receiver<()>,
}

struct Inner {
    to: Mutex<SocketAddr>,
    /// The number of bytes, of both directions together, that the proxy carries before it stops its
    /// connections.
    budget: Mutex<Budget>,
    open: Mutex<Vec<TcpStream>>,
    spending: SyncSender<()>,
}

struct Budget {
    left: u64,
    /// True once the proxy has reported that it has carried all bytes of the budget, so that it reports this
    /// only once.
    told: bool,
}

impl Proxy {
    pub(crate) fn new(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (spending, spent) = sync_channel(1);
        let inner = Arc::new(Inner {
            to: Mutex::new(to),
            budget: Mutex::new(Budget {
                left: u64::MAX,
                told: false,
            }),
            open: Mutex::default(),
            spending,
        });
        let accepting = Arc::clone(&inner);
        // The thread ends with the process, and its sockets with the test's sockets.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                accepting.join(client);
            }
        });
        Self {
            address,
            inner,
            spent,
        }
    }

    /// Makes the proxy connect new clients to `address`.
    pub(crate) fn lead_to(&self, address: SocketAddr) {
        *self.inner.to.lock().unwrap() = address;
    }

    /// Lets the proxy carry this many more bytes before it stops. Only new connections make progress; the
    /// proxy never continues a stopped connection.
    pub(crate) fn allow(&self, bytes: u64) {
        let mut budget = self.inner.budget.lock().unwrap();
        *budget = Budget {
            left: bytes,
            told: false,
        };
    }

    /// Returns whether the proxy carries all bytes of the budget within this time.
    pub(crate) fn is_spent(&self, within: Duration) -> bool {
        match self.spent.recv_timeout(within) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => unreachable!("it has the other end"),
        }
    }

    /// Cuts every open connection, like a broken network.
    pub(crate) fn cut(&self) {
        for socket in self.inner.open.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Inner {
    fn join(self: &Arc<Self>, client: TcpStream) {
        let to = *self.to.lock().unwrap();
        // If the proxy cannot reach its target, it closes the client's connection, by which the client sees
        // the failure.
        let Ok(server) = TcpStream::connect(to) else {
            return;
        };
        let mut open = self.open.lock().unwrap();
        open.push(client.try_clone().unwrap());
        open.push(server.try_clone().unwrap());
        drop(open);
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let inner = Arc::clone(self);
            std::thread::spawn(move || inner.carry(from, to));
        }
    }

    fn carry(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut block = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut block) {
            let allowed = self.spend(read);
            if to.write_all(&block[..allowed]).is_err() || allowed < read {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }

    /// Takes up to `bytes` bytes from the budget. Returns the number of bytes that the proxy may carry.
    fn spend(&self, bytes: usize) -> usize {
        let mut budget = self.budget.lock().unwrap();
        let allowed = budget.left.min(bytes as u64);
        budget.left -= allowed;
        if allowed < bytes as u64 && !budget.told {
            budget.told = true;
            let _ = self.spending.try_send(());
        }
        allowed as usize
    }
}

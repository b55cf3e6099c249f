//! The server of a link: accepts connections, gives each session its handler, and acknowledges messages.
//!
//! Each connection has one task ([`connection`]), and one more task accepts; the tasks share sessions
//! ([`sessions`]).

mod batch;
mod budget;
mod config;
mod connection;
mod done;
mod greet;
mod handler;
mod input;
mod patience;
mod sessions;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidegate::Clock;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};

pub use batch::Batch;
pub use config::ServerBuilder;
pub use done::Done;
pub use handler::{Handler, Opened, Opening, Position, SessionStore};

use crate::error::{PeerError, ServeError};
use crate::stats::{ServerCounters, ServerStats, bump};
use crate::transport::is_loopback;
use budget::Budget;
use sessions::Sessions;

/// The meaning of an acknowledgement, which the server tells its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acks {
    /// The server acknowledges a message once it has received the message for the handler.
    #[default]
    OnReceipt,
    /// The server acknowledges a message once the handler has reported it as [done](Done).
    WhenDone,
}

/// A server that runs in the background of its runtime. A drop of this handle stops the server.
#[derive(Debug)]
pub struct Server {
    control: watch::Sender<Control>,
    ended: watch::Receiver<bool>,
    counters: Arc<ServerCounters>,
    address: SocketAddr,
}

/// The command that the server's handle gives to the server's tasks: to serve, to drain or to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Serve,
    /// The server accepts no more connections, and acknowledges the messages that it has received.
    Drain,
    Stop,
}

/// The greatest number of connections above the limit that the server accepts in order to refuse them with a
/// reason. The server drops further connections without an answer.
const REFUSALS_MAX: usize = 64;

/// The state that all connections of a server share: its settings, sessions, counters and budget.
struct Core<H, M> {
    config: ServerBuilder,
    make: M,
    sessions: Sessions<H>,
    counters: Arc<ServerCounters>,
    /// The memory budget that the read buffers of all connections share.
    budget: Arc<Budget>,
    clock: Clock,
    control: watch::Receiver<Control>,
}

impl<H, M> Core<H, M> {
    /// Reports to the program's callback why a peer's connection ended, so that the program can log it.
    fn tell(&self, peer: SocketAddr, why: &PeerError) {
        (self.config.on_error)(peer, why);
    }

    fn count_sessions(&self) {
        let sessions = self.sessions.len() as u64;
        self.counters.sessions.store(sessions, Relaxed);
    }
}

impl Server {
    /// Returns a builder of a server, for settings other than the defaults.
    #[must_use]
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    fn start<H, M>(
        config: ServerBuilder,
        listener: TcpListener,
        make: M,
    ) -> Result<Self, ServeError>
    where
        H: Handler,
        M: Fn(Opened) -> Result<H, String> + Send + Sync + 'static,
    {
        let address = listener.local_addr()?;
        if config.token.is_some() && config.tls.is_none() && !is_loopback(&address) {
            return Err(ServeError::TokenInClear { address });
        }
        let counters = Arc::new(ServerCounters::default());
        let (control, told) = watch::channel(Control::Serve);
        let (ending, ended) = watch::channel(false);
        let core = Arc::new(Core {
            sessions: Sessions::new(config.sessions_max),
            make,
            counters: counters.clone(),
            budget: Budget::new(config.buffers_bytes()),
            clock: Clock::start(),
            control: told,
            config,
        });
        tokio::spawn(async move {
            accept(core, listener).await;
            ending.send_replace(true);
        });
        Ok(Self {
            control,
            ended,
            counters,
            address,
        })
    }

    /// Returns the address of the listener, at which clients reach the server.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the server's counters, as they are now.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.counters.snapshot()
    }

    /// Drains the server: it accepts nothing more, lets every connection finish and acknowledge the messages
    /// it has received, tells clients that it closes, and ends. The server cuts connections that take longer
    /// than `patience`. Returns whether the server cut none.
    pub async fn drain(mut self, patience: Duration) -> bool {
        self.control.send_replace(Control::Drain);
        let in_time = timeout(patience, self.ended.wait_for(|ended| *ended)).await;
        let all = in_time.is_ok_and(|ended| ended.is_ok());
        self.stop().await;
        all
    }

    /// Cuts all connections at once and ends the server, without waiting for handlers.
    pub async fn stop(mut self) {
        self.control.send_replace(Control::Stop);
        // If this wait fails, the runtime has ended, and the accepting task with it, so nothing is left to
        // wait for.
        let _ = self.ended.wait_for(|ended| *ended).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.control.send_replace(Control::Stop);
    }
}

async fn accept<H, M>(core: Arc<Core<H, M>>, listener: TcpListener)
where
    H: Handler,
    M: Fn(Opened) -> Result<H, String> + Send + Sync + 'static,
{
    let mut tasks = JoinSet::new();
    let mut control = core.control.clone();
    loop {
        tokio::select! {
            biased;
            () = left(&mut control) => break,
            Some(ended) = tasks.join_next() => count(&core, &ended),
            accepted = listener.accept() => match accepted {
                Ok((tcp, peer)) => admit(&core, &mut tasks, tcp, peer),
                Err(e) => pause_after(&core, &e).await,
            },
        }
    }
    drop(listener);
    loop {
        tokio::select! {
            biased;
            () = stopped(&mut control) => break,
            ended = tasks.join_next() => match ended {
                Some(ended) => count(&core, &ended),
                None => return,
            },
        }
    }
    tasks.shutdown().await;
}

/// Returns once the server must drain or stop, so that a task that waits for bytes can end.
async fn left(control: &mut watch::Receiver<Control>) {
    // This wait ends at the latest when the program drops the server's handle: the handle owns the watch's
    // sender, and sends `Stop` on drop.
    let _ = control.wait_for(|control| *control != Control::Serve).await;
}

async fn stopped(control: &mut watch::Receiver<Control>) {
    let _ = control.wait_for(|control| *control == Control::Stop).await;
}

/// Counts a connection's task that panicked as a failed handler. The panic ends the connection and its
/// session, and nothing else.
fn count<H, M>(core: &Core<H, M>, ended: &Result<(), JoinError>) {
    if ended.as_ref().is_err_and(JoinError::is_panic) {
        bump(&core.counters.errors_handler);
    }
}

/// Starts the task of a new connection. If the server has as many connections as it may, the task only
/// refuses the client.
fn admit<H, M>(core: &Arc<Core<H, M>>, tasks: &mut JoinSet<()>, tcp: TcpStream, peer: SocketAddr)
where
    H: Handler,
    M: Fn(Opened) -> Result<H, String> + Send + Sync + 'static,
{
    let open = tasks.len();
    let max = core.config.connections_max;
    if open >= max.saturating_add(REFUSALS_MAX) {
        bump(&core.counters.refused);
        return;
    }
    let core = core.clone();
    tasks.spawn(async move { greet::serve(core, tcp, peer, open >= max).await });
}

/// Pauses for 50 ms after an error of accept. Without the pause, a process that has no free file descriptors
/// would get the error again at once, without end.
async fn pause_after<H, M>(core: &Core<H, M>, error: &io::Error) {
    bump(&core.counters.errors_io);
    let of_the_peer = [
        io::ErrorKind::ConnectionAborted,
        io::ErrorKind::ConnectionReset,
    ];
    if !of_the_peer.contains(&error.kind()) {
        sleep(Duration::from_millis(50)).await;
    }
}

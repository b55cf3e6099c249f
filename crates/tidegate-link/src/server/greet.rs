//! The start of a connection on the server: TLS, the protocol, the token, the session and the welcome. Then
//! the server serves the connection.

use std::future::poll_fn;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsStream;

use super::connection::{Connection, Ended, Leave, Parts};
use super::done::{Done, Reports};
use super::handler::{Handler, Opened, Opening, Position};
use super::input::Input;
use super::sessions::{Kept, Lease, Unavailable};
use super::{Acks, Control, Core, left};
use crate::Seq;
use crate::error::PeerError;
use crate::frame::Code;
use crate::hello::{Answer, HandshakeError, Hello, Refused, VERSION, Welcome};
use crate::proto::opening::{self, Terms, admit, detect, refused};
use crate::proto::{Receiver, ReceiverConfig};
use crate::stats::{ServerCounters, bump};
use crate::transport::{Socket, prepare};

/// Serves one connection from its first byte to its last. If `refuse` is true, the server only tells the
/// client that there are too many connections.
pub(super) async fn serve<H, M>(
    core: Arc<Core<H, M>>,
    tcp: TcpStream,
    peer: SocketAddr,
    refuse: bool,
) where
    H: Handler,
    M: Fn(Opened) -> Result<H, String> + Send + Sync + 'static,
{
    let _open = Open::new(core.counters.clone());
    let within = core.config.hello_within;
    let Ok(Some(mut socket)) = timeout(within, encrypt(&core, tcp)).await else {
        bump(&core.counters.errors_io);
        return;
    };
    let mut input = Input::new(core.config.read_bytes, &core.budget);
    let mut control = core.control.clone();
    let greeting = tokio::select! {
        greeting = read_opening(&core, &mut socket, &mut input) => greeting,
        // A server that is closing ends the connection of a client that has sent nothing yet, because nothing
        // can be lost.
        () = left(&mut control) => return,
    };
    let greeting = match greeting {
        Ok(greeting) => greeting,
        Err(Rude::Protocol(e)) => {
            bump(&core.counters.errors_protocol);
            return core.tell(peer, &PeerError::Handshake(e));
        }
        Err(Rude::Io) => return bump(&core.counters.errors_io),
    };
    let visit = Visit {
        core: &core,
        socket,
        input,
        peer,
    };
    match greeting {
        opening::Opening::Session { hello, bytes } => {
            visit.session(hello, bytes, refuse).await;
        }
        _ if refuse || !core.config.plain || core.config.token.is_some() => {
            bump(&core.counters.refused);
            let (code, text) = if refuse {
                (Code::Full, "there are as many connections as there may be")
            } else {
                (Code::Version, "the plain protocol is not spoken here")
            };
            core.tell(peer, &PeerError::Refused(refused(code, text)));
        }
        _ => visit.plain().await,
    }
}

/// Counts a connection as open in the server's counters, from its creation to its drop.
struct Open(Arc<ServerCounters>);

impl Open {
    fn new(counters: Arc<ServerCounters>) -> Self {
        bump(&counters.connections);
        bump(&counters.connections_open);
        Self(counters)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        use std::sync::atomic::Ordering::Relaxed;
        self.0.connections_open.fetch_sub(1, Relaxed);
    }
}

async fn encrypt<H, M>(core: &Core<H, M>, tcp: TcpStream) -> Option<Socket> {
    prepare(&tcp).ok()?;
    let Some(tls) = &core.config.tls else {
        return Some(Socket::Tcp(tcp));
    };
    let tls = tls.acceptor().accept(tcp).await.ok()?;
    Some(Socket::Tls(Box::new(TlsStream::Server(tls))))
}

/// The reasons why a client's connection ended before it was open, for the server's counters.
enum Rude {
    Protocol(HandshakeError),
    Io,
}

/// Reads until the bytes show which protocol the client speaks. A client that has sent nothing has the idle
/// time for its first bytes, and then `hello_within` for the rest of its handshake.
async fn read_opening<H, M>(
    core: &Core<H, M>,
    socket: &mut Socket,
    input: &mut Input,
) -> Result<opening::Opening, Rude> {
    read(socket, input, core.config.idle).await?;
    let begun = async {
        loop {
            match detect(input.bytes()) {
                Err(e) => return Err(Rude::Protocol(e)),
                Ok(opening::Opening::More) => {}
                Ok(opening) => return Ok(opening),
            }
            read(socket, input, core.config.hello_within).await?;
        }
    };
    timeout(core.config.hello_within, begun)
        .await
        .unwrap_or(Err(Rude::Io))
}

async fn read(socket: &mut Socket, input: &mut Input, within: Duration) -> Result<(), Rude> {
    let read = poll_fn(|cx| socket.poll_read(cx, input.room()));
    match timeout(within, read).await {
        Ok(Ok(n @ 1..)) => {
            input.filled(n);
            Ok(())
        }
        _ => Err(Rude::Io),
    }
}

/// A client's connection that the server is about to serve, during its handshake.
struct Visit<'a, H, M> {
    core: &'a Core<H, M>,
    socket: Socket,
    input: Input,
    peer: SocketAddr,
}

impl<H, M> Visit<'_, H, M>
where
    H: Handler,
    M: Fn(Opened) -> Result<H, String> + Send + Sync + 'static,
{
    async fn plain(self) {
        let reports = Arc::new(Reports::new(Seq::NONE));
        let opened = Opened {
            session: None,
            peer: self.peer,
            received: Seq::NONE,
            done: Done(reports.clone()),
        };
        let Ok(mut handler) = (self.core.make)(opened) else {
            return bump(&self.core.counters.refused);
        };
        let config = &self.core.config;
        let receiver = ReceiverConfig {
            frame_max: config.frame_max,
            window: config.window,
            when_done: config.acks == Acks::WhenDone,
            idle: config.idle,
        };
        let receiver = Receiver::plain(self.core.clock.now(), receiver, (config.controller)());
        let (core, peer) = (self.core, self.peer);
        let leave = Box::pin(closing(core.control.clone()));
        let mut connection = self.open(receiver, None, reports, leave);
        let ended = connection.run(&mut handler).await;
        count(core, peer, &ended);
        if !matches!(ended, Ended::Io) {
            connection.farewell().await;
        }
    }

    async fn session(mut self, hello: Hello, bytes: usize, refuse: bool) {
        self.input.consume(bytes, 0);
        let (core, peer) = (self.core, self.peer);
        if let Err(refused) = self.check(&hello, refuse) {
            return self.refuse(refused).await;
        }
        // The server waits for the end of an older connection of the session for half of the handshake's time
        // only. The client waits for the whole time, so it still receives the reason of a refusal.
        let patience = core.config.hello_within / 2;
        let mut lease = match core.sessions.claim(&hello, patience).await {
            Ok(lease) => lease,
            Err(unavailable) => return self.refuse(explain(unavailable)).await,
        };
        core.count_sessions();
        // A client in a new life, such as a restarted program, begins after the messages received. If the
        // handler were not done with these, a crash could take the server back to the messages that are done,
        // and this client could not send the missing messages.
        let new_life = hello.epoch == 0 && core.config.acks == Acks::WhenDone;
        if new_life && timeout(patience, lease.settled()).await.is_err() {
            let text = "what an earlier client of this session sent is still being handled";
            return self.refuse(refused(Code::Full, text)).await;
        }
        let (kept, welcome) = match self.resume(&hello, &mut lease) {
            Ok(resumed) => resumed,
            Err(refused) => return self.refuse(refused).await,
        };
        let Kept {
            mut handler,
            reports,
            ..
        } = kept;
        let answer = Answer::Welcome(welcome).encode();
        let answered = self.answer(&answer).await;
        let controller = (core.config.controller)();
        let receiver = Receiver::session(core.clock.now(), &welcome, controller);
        let leave = leave(&lease, core.control.clone());
        let session = Some(hello.session);
        let mut connection = self.open(receiver, session, reports.clone(), leave);
        let ended = if answered {
            connection.run(&mut handler).await
        } else {
            Ended::Io
        };
        count(core, peer, &ended);
        if !matches!(ended, Ended::Handler) {
            // Messages that the client gave up count as done, because no handler receives them and reports
            // them.
            Done(reports.clone()).done(connection.receiver.ready());
            lease.keep(Kept {
                handler,
                reports,
                epoch: welcome.epoch,
                received: connection.receiver.received(),
                acked: connection.receiver.acked(),
            });
        }
        // The next connection of the session may take the session over now, before this connection is closed.
        drop(lease);
        if !matches!(ended, Ended::Io) {
            connection.farewell().await;
        }
    }

    /// Checks the parts of a hello that do not depend on the session's state: limits, version and token.
    fn check(&self, hello: &Hello, refuse: bool) -> Result<(), Refused> {
        if refuse {
            return Err(refused(Code::Full, Code::Full.to_string()));
        }
        if hello.version != VERSION {
            let text = format!(
                "expected version {VERSION} of the session protocol, not {}",
                hello.version
            );
            return Err(refused(Code::Version, text));
        }
        if !hello.token.is_empty() && !self.socket.is_private() {
            let text = "a token was sent in clear over a network: it is no secret any more";
            return Err(refused(Code::Token, text));
        }
        match &self.core.config.token {
            Some(token) if !is_same(token, &hello.token) => {
                Err(refused(Code::Token, Code::Token.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the session's state and the welcome for its client: the state that the server kept, or the
    /// state in the store, or a new state.
    fn resume(&self, hello: &Hello, lease: &mut Lease<H>) -> Result<(Kept<H>, Welcome), Refused> {
        let core = self.core;
        let terms = Terms {
            window: core.config.window,
            frame_max: core.config.frame_max,
            when_done: core.config.acks == Acks::WhenDone,
            idle_ms: u32::try_from(core.config.idle.as_millis()).unwrap_or(u32::MAX),
        };
        let failed = |_| refused(Code::Failed, "the server cannot take this session now");
        let kept = lease.take();
        let fresh = fresh_epoch().map_err(failed)?;
        let position = match &kept {
            Some(kept) => Position {
                epoch: kept.epoch,
                received: kept.received,
            },
            None => {
                let opening = Opening {
                    session: hello.session,
                    acked: hello.acked,
                    fresh_epoch: fresh,
                };
                let mut store = core
                    .config
                    .store
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                store.open(opening).map_err(failed)?
            }
        };
        let known = opening::Kept {
            epoch: position.epoch,
            received: position.received,
            acked: kept.as_ref().map_or(position.received, |kept| kept.acked),
            life: None,
        };
        let known = (position.epoch != fresh).then_some(known);
        let welcome = match admit(hello, known, &terms, fresh) {
            Ok(welcome) => welcome,
            Err(refused) => {
                if let Some(kept) = kept {
                    lease.keep(kept);
                }
                return Err(refused);
            }
        };
        if let Some(kept) = kept {
            return Ok((kept, welcome));
        }
        let reports = Arc::new(Reports::new(welcome.acked));
        let handler = (core.make)(Opened {
            session: Some(hello.session),
            peer: self.peer,
            received: welcome.received,
            done: Done(reports.clone()),
        });
        let kept = Kept {
            handler: handler.map_err(failed)?,
            reports,
            epoch: welcome.epoch,
            received: welcome.received,
            acked: welcome.acked,
        };
        Ok((kept, welcome))
    }

    fn open(
        self,
        receiver: Receiver,
        session: Option<crate::SessionId>,
        reports: Arc<Reports>,
        leave: Leave,
    ) -> Connection {
        Connection::new(Parts {
            receiver,
            socket: self.socket,
            input: self.input,
            session,
            when_done: self.core.config.acks == Acks::WhenDone,
            reports,
            leave,
            counters: self.core.counters.clone(),
            clock: self.core.clock,
            spin: self.core.config.spin,
        })
    }

    async fn refuse(mut self, refused: Refused) {
        bump(&self.core.counters.refused);
        let why = PeerError::Refused(refused);
        self.core.tell(self.peer, &why);
        let PeerError::Refused(refused) = why else {
            return;
        };
        let answer = Answer::Refused(refused).encode();
        if !self.answer(&answer).await {
            return;
        }
        let mut socket = self.socket;
        let mut scrap = [0; 1 << 10];
        let hear = async {
            let _ = poll_fn(|cx| socket.poll_shutdown(cx)).await;
            while let Ok(1..) = poll_fn(|cx| socket.poll_read(cx, &mut scrap)).await {}
        };
        // The server gives the client a second to read the refusal, then cuts the connection.
        let _ = timeout(Duration::from_secs(1), hear).await;
    }

    /// Sends all bytes of `answer` to the client; returns whether the socket took them within the handshake's
    /// time.
    async fn answer(&mut self, answer: &[u8]) -> bool {
        let socket = &mut self.socket;
        let send = async {
            let mut at = 0;
            while at < answer.len() {
                let rest = [IoSlice::new(&answer[at..])];
                at += poll_fn(|cx| socket.poll_write(cx, &rest)).await?;
            }
            poll_fn(|cx| socket.poll_flush(cx)).await
        };
        let sent = timeout(self.core.config.hello_within, send).await;
        matches!(sent, Ok(Ok(())))
    }
}

fn explain(unavailable: Unavailable) -> Refused {
    match unavailable {
        Unavailable::Displaced => refused(Code::Displaced, Code::Displaced.to_string()),
        Unavailable::Full => refused(Code::Full, "the server has as many sessions as it may"),
        Unavailable::Held => refused(
            Code::Full,
            "another connection of this session is still being finished",
        ),
    }
}

/// Returns a future that resolves, with the reason, when the server or a newer connection of the session
/// wants to end this connection.
fn leave<H: Send + 'static>(lease: &Lease<H>, control: watch::Receiver<Control>) -> Leave {
    let displaced = lease.displaced();
    Box::pin(async move {
        tokio::select! {
            () = displaced => Code::Displaced,
            code = closing(control) => code,
        }
    })
}

async fn closing(mut control: watch::Receiver<Control>) -> Code {
    left(&mut control).await;
    Code::Closing
}

fn count<H, M>(core: &Core<H, M>, peer: SocketAddr, ended: &Ended) {
    use crate::proto::ReceiverError as E;
    let counters = &core.counters;
    match ended {
        Ended::Finished => return,
        Ended::Io => return bump(&counters.errors_io),
        Ended::Rules(E::Truncated { .. } | E::Stuck) => bump(&counters.errors_io),
        Ended::Rules(E::Idle) => bump(&counters.idle),
        Ended::Rules(_) => bump(&counters.errors_protocol),
        Ended::Handler => bump(&counters.errors_handler),
        Ended::Crowded => bump(&counters.crowded),
    }
    core.tell(
        peer,
        &match ended {
            Ended::Rules(e) => PeerError::Rules(e.clone()),
            Ended::Crowded => PeerError::Crowded,
            _ => PeerError::Handler,
        },
    );
}

fn fresh_epoch() -> Result<u64, String> {
    getrandom::u64()
        .map(|epoch| epoch.max(1))
        .map_err(|e| e.to_string())
}

/// Compares two tokens in constant time, so that the time does not tell where they differ.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

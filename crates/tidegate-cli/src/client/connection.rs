//! The connection of a client command to one of its NATS servers, used by one thread.
//!
//! The reconnects of the library `async-nats` are off: the library would send new messages before the
//! messages that were lost with the old connection. A command learns of a loss by [`Stop::Lost`], calls
//! [`Client::reconnect`] and repeats the requests that the new connection needs.
//!
//! The runtime runs on the calling thread, and only while a method of [`Client`] waits. A command that is
//! blocked on its output therefore reads nothing, and the server sees a slow reader.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use async_nats::{
    ConnectErrorKind, ConnectOptions, Event, HeaderMap, Message, PublishError, PublishErrorKind,
    Request, RequestErrorKind, ServerAddr, ServerError, Subject, Subscriber,
};
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _};
use tidegate_nats::subject::is_literal;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;

use super::losses::Losses;
use super::url::{self, Credentials, Servers};
use super::{PATIENCE, ServerArgs, names};
use crate::interrupt::{self, Interrupted};
use crate::{Usage, face, tls_files};

/// The interval at which a waiting command checks for Ctrl-C, so that the command ends soon after it.
const LOOK: Duration = Duration::from_millis(100);
/// The longest time that the client waits for a connection to one server and the server's greeting, before it
/// tries the next server.
const GREETING: Duration = Duration::from_secs(10);
/// The pause between two attempts to connect, so that the client does not load servers with attempts.
const PAUSE: Duration = Duration::from_millis(250);
/// The time for which a command tries to connect again after a loss, if the user gives no `--wait`.
const RECONNECTING: Duration = Duration::from_secs(60);
/// The interval of the client's pings, by which the client notices a dead connection: the third unanswered
/// ping ends the connection.
const PINGS: Duration = Duration::from_secs(10);
/// The greatest number of messages of a subscription that the library keeps until the command takes them. The
/// client stops reading after some MiB, before it reaches this bound.
const UNREAD_MAX: usize = 1 << 22;
/// The greatest number of messages that wait for the library's connection task, so that they take little
/// memory.
const UNSENT_MAX: usize = 16_384;

/// The reasons why a command's wait for the server ended without a result, as the user reads them.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stop {
    #[error("the server closed the connection")]
    Lost,
    #[error("interrupted before the server answered")]
    Interrupted(#[from] Interrupted),
    #[error("the server did not answer within {} s", .0.as_secs())]
    Silent(Duration),
    #[error("the server says: {0}")]
    Refused(String),
    #[error("`{0}` is not a subject: nothing is sent to it")]
    NoSubject(String),
    #[error("Maximum Payload Violation: the message has {0} bytes, and the server takes {1}")]
    TooLarge(usize, usize),
}

/// The state of a connection, which the library's tasks report to the waiting command.
#[derive(Default)]
struct Health {
    lost: bool,
    /// The first error that the server sent, except about a probe; the command fails with this text.
    refused: Option<String>,
    /// The last error about a probe: this user may not use the inbox that [`Client::sync`] needs.
    probe_refused: Option<String>,
}

/// A connection to a server that has sent its greeting, with all that the client needs to connect again.
pub(super) struct Client {
    runtime: Runtime,
    servers: Servers,
    args: ServerArgs,
    nats: async_nats::Client,
    health: watch::Receiver<Health>,
    losses: Losses,
    /// The prefix of the subjects of probes, the messages that the client sends to itself, see
    /// [`Client::sync`]; and (`probes`) the number of probes so far. A number behind the prefix makes each
    /// subject different.
    probe_prefix: String,
    probes: u64,
}

impl Client {
    /// Connects to a server and waits until the server has accepted the credentials, so that a wrong password
    /// fails here.
    pub(super) fn connect(args: &ServerArgs) -> anyhow::Result<Self> {
        let servers = url::parse(&args.server)?;
        check_files(args)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let wait = args.wait.unwrap_or_default();
        let probe_prefix = probe_prefix()?;
        let (nats, health) = open_within(&runtime, args, &servers, &probe_prefix, wait)?;
        Ok(Self {
            runtime,
            servers,
            args: args.clone(),
            probe_prefix,
            probes: 0,
            nats,
            health,
            losses: Losses::default(),
        })
    }

    /// Connects to a server again after a loss, and retries for as long as `--wait` allows. The caller must
    /// repeat its subscriptions and its unsent messages, because they are lost with the old connection.
    pub(super) fn reconnect(&mut self) -> anyhow::Result<()> {
        if !self.waits() {
            return Err(Stop::Lost.into());
        }
        let wait = self.patience();
        let said = self.losses.handle_loss(Instant::now());
        if let Some(note) = said {
            face::note(note);
        }
        // The lost server has named the other nodes of its cluster, so the client tries these, too.
        for url in self.nats.server_info().connect_urls {
            if let Ok(address) = url.parse::<ServerAddr>()
                && !self.servers.addresses.contains(&address)
            {
                self.servers.addresses.push(address);
            }
        }
        (self.nats, self.health) = open_within(
            &self.runtime,
            &self.args,
            &self.servers,
            &self.probe_prefix,
            wait,
        )?;
        if !self.is_flapping() {
            face::note("connected again");
        }
        Ok(())
    }

    /// Returns whether the client has lost its connection so often that it prints summaries, in place of a
    /// note for each loss.
    pub(super) const fn is_flapping(&self) -> bool {
        self.losses.is_flapping()
    }

    /// Connects again after a loss, and subscribes to `subject` again, so that the command gets further
    /// messages. Retries for as long as `--wait` allows.
    pub(super) fn resubscribe(
        &mut self,
        subject: &str,
        queue: Option<&str>,
    ) -> anyhow::Result<Subscription> {
        let start = Instant::now();
        loop {
            self.reconnect()?;
            match self.subscribe(subject, queue) {
                Err(e) if is_lost(&e) && start.elapsed() < self.patience() => {}
                outcome => return outcome,
            }
        }
    }

    /// Returns the time for which the client tries to connect again after a loss, before the command fails.
    pub(super) fn patience(&self) -> Duration {
        self.args.wait.unwrap_or(RECONNECTING)
    }

    /// Returns whether the client connects again after a loss of the connection.
    pub(super) fn waits(&self) -> bool {
        !self.patience().is_zero()
    }

    /// Returns the greatest number of bytes that the server accepts in a message, headers included.
    pub(super) fn max_payload(&self) -> usize {
        self.nats.max_payload()
    }

    /// Returns a subject prefix, closed by a dot, that no other client uses, for the answers to this client.
    pub(super) fn inbox(&self) -> String {
        format!("{}.", self.nats.new_inbox())
    }

    /// Subscribes to `subject`, and waits until the server has registered the subscription, so that no later
    /// message is missing.
    pub(super) fn subscribe(
        &mut self,
        subject: &str,
        queue: Option<&str>,
    ) -> anyhow::Result<Subscription> {
        names::pattern("the subject to subscribe to", subject)?;
        let (nats, subject) = (self.nats.clone(), subject.to_owned());
        let queue = queue.filter(|queue| !queue.is_empty()).map(str::to_owned);
        if let Some(queue) = &queue {
            names::queue_group("the queue group", queue)?;
        }
        let subscriber = self.wait(PATIENCE, async move {
            match queue {
                Some(queue) => nats.queue_subscribe(subject, queue).await,
                None => nats.subscribe(subject).await,
            }
        })?;
        // The drop of a subscription needs the runtime, also if the server refuses the subscription.
        let subscription = Subscription {
            messages: Some(subscriber.context("cannot subscribe")?),
            runtime: self.runtime.handle().clone(),
        };
        self.sync()?;
        Ok(subscription)
    }

    /// Returns the next message of `subscription`. Waits at most `patience` for the message.
    pub(super) fn next(
        &mut self,
        subscription: &mut Subscription,
        patience: Duration,
    ) -> Result<Message, Stop> {
        self.wait(patience, subscription.next())?.ok_or(Stop::Lost)
    }

    /// Queues a message for the connection's task, which sends the message while the command waits in another
    /// method. [`Client::sync`] confirms that the server has received the message.
    pub(super) fn publish(&self, subject: &str, payload: Bytes) -> Result<(), Stop> {
        // The commands check the names that the user gives. Parts of this subject may come from the server,
        // so the client checks the whole subject.
        let subject = literal(subject)?;
        let size = payload.len();
        self.hand_over(self.nats.publish(subject, payload), size)
    }

    /// Queues a message with a reply subject of this client, to which the stream sends its acknowledgement.
    /// The connection's task sends the message while the command waits.
    pub(super) fn publish_with(
        &self,
        subject: Subject,
        reply: String,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<(), Stop> {
        let (nats, size) = (&self.nats, payload.len());
        self.hand_over(
            nats.publish_with_reply_and_headers(subject, reply, headers, payload),
            size,
        )
    }

    fn hand_over(
        &self,
        sending: impl Future<Output = Result<(), PublishError>>,
        size: usize,
    ) -> Result<(), Stop> {
        let mut sending = std::pin::pin!(sending);
        // The connection's queue has room most of the time, and then the message needs no wait: entering the
        // runtime for each message would cost more than the message itself.
        let outcome = match sending.as_mut().now_or_never() {
            Some(outcome) => outcome,
            None => self.wait(PATIENCE, sending)?,
        };
        outcome.map_err(|e| match e.kind() {
            PublishErrorKind::MaxPayloadExceeded => Stop::TooLarge(size, self.max_payload()),
            PublishErrorKind::InvalidSubject => Stop::NoSubject(e.to_string()),
            PublishErrorKind::Send => Stop::Lost,
        })
    }

    /// Sends a request to the server and returns its answer; `None` if no client and no service is subscribed
    /// to the subject.
    pub(super) fn request(
        &mut self,
        subject: &str,
        payload: Vec<u8>,
    ) -> Result<Option<Message>, Stop> {
        let (subject, size) = (literal(subject)?, payload.len());
        let request = Request::new().payload(payload.into()).timeout(None);
        let asking = self.nats.send_request(subject, request);
        match self.wait(PATIENCE, asking)? {
            Ok(answer) => Ok(Some(answer)),
            Err(e) => match e.kind() {
                RequestErrorKind::NoResponders => Ok(None),
                RequestErrorKind::MaxPayloadExceeded => {
                    Err(Stop::TooLarge(size, self.max_payload()))
                }
                _ => Err(Stop::Lost),
            },
        }
    }

    /// Returns whether `message` is a probe that the client sent to itself in [`Client::sync`], so that the
    /// command does not print it.
    pub(super) fn is_probe(&self, message: &Message) -> bool {
        message.subject.starts_with(&self.probe_prefix)
    }

    /// Waits until the server has received all messages that the client has sent so far.
    ///
    /// The client sends a message to itself, the probe, because the library offers no ping. The server
    /// handles the operations of a connection in order, so the probe comes back after it has handled all
    /// earlier operations. Even a server that refuses the probe, or the subscription for it, has then read
    /// all earlier operations.
    pub(super) fn sync(&mut self) -> Result<(), Stop> {
        self.probes += 1;
        // All numbers have the same length, so that no probe's subject contains another one.
        let name = format!("{}{:020}", self.probe_prefix, self.probes);
        let (nats, echo) = (self.nats.clone(), name.clone());
        let probing = async move {
            let mut subscriber = nats.subscribe(echo.clone()).await.ok()?;
            nats.publish(echo, Bytes::new()).await.ok()?;
            subscriber.next().await?;
            // Another task handles the server's errors that came before the message. This yield lets that
            // task run before this one continues.
            tokio::task::yield_now().await;
            Some(())
        };
        let mut health = self.health.clone();
        let refusing = async move {
            let refused = |health: &Health| {
                let text = health.probe_refused.as_deref();
                text.is_some_and(|text| text.contains(&name))
            };
            health.wait_for(refused).await.is_ok().then_some(())
        };
        let outcome = self.wait(PATIENCE, async {
            tokio::select! {
                probed = probing => probed,
                refused = refusing => refused,
            }
        });
        match outcome? {
            Some(()) => self.refused().map_or(Ok(()), Err),
            None => Err(Stop::Lost),
        }
    }

    fn refused(&self) -> Option<Stop> {
        let refused = self.health.borrow().refused.clone();
        refused.map(Stop::Refused)
    }

    /// Runs the connection's tasks until `work` ends, at most for `patience`, so that messages travel
    /// meanwhile.
    pub(super) fn wait<T>(
        &self,
        patience: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, Stop> {
        let mut health = self.health.clone();
        self.runtime.block_on(async {
            let mut work = std::pin::pin!(work);
            let mut ended =
                std::pin::pin!(health.wait_for(|health| health.lost || health.refused.is_some()));
            let start = Instant::now();
            loop {
                tokio::select! {
                    biased;
                    result = &mut work => return Ok(result),
                    _ = &mut ended => break,
                    () = tokio::time::sleep(LOOK) => {
                        interrupt::check()?;
                        if start.elapsed() >= patience {
                            return Err(Stop::Silent(patience));
                        }
                    }
                }
            }
            // The server may have sent the reason why it closes the connection: this yield lets the task of
            // events report it.
            tokio::task::yield_now().await;
            Err(self.refused().unwrap_or(Stop::Lost))
        })
    }
}

/// Checks the files of `--tls-ca`, `--tls-cert` and `--tls-key`, because the library's errors do not name the
/// files.
fn check_files(args: &ServerArgs) -> Result<(), Usage> {
    if let Some(path) = &args.tls_ca {
        // The library checks the server's name later, so this check may use any name.
        tls_files::authorities("--tls-ca", path, "localhost")?;
    }
    if let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) {
        tls_files::certificate(certificate, key)?;
    }
    Ok(())
}

/// Returns whether the loss of the connection caused the error, so that the caller may connect again.
pub(super) fn is_lost(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Stop::Lost))
}

/// Checks that `subject`, which may hold words from the server, has no wildcards and no blanks, which would
/// turn it into another operation.
pub(super) fn literal(subject: &str) -> Result<Subject, Stop> {
    match is_literal(subject.as_bytes()) {
        true => Ok(subject.into()),
        false => Err(Stop::NoSubject(subject.escape_debug().to_string())),
    }
}

/// The messages of one subscription, in the order in which they arrive, for the command that prints them.
pub(super) struct Subscription {
    /// The library's subscription; `None` only while `drop` runs.
    messages: Option<Subscriber>,
    runtime: Handle,
}

impl Subscription {
    /// Returns the subscription's next message; `None` once the connection has ended. A caller that cancels
    /// the wait loses no message.
    pub(super) async fn next(&mut self) -> Option<Message> {
        self.messages.as_mut()?.next().await
    }

    /// Returns the subscription's next message if it has already arrived, without a wait.
    pub(super) fn arrived(&mut self) -> Option<Message> {
        self.next().now_or_never().flatten()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // The library unsubscribes on a task of its own, so the drop must happen inside the runtime.
        let _entered = self.runtime.enter();
        self.messages = None;
    }
}

/// Returns a random prefix for the subjects of probes, which no other client uses.
fn probe_prefix() -> anyhow::Result<String> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).context("no random numbers for an inbox")?;
    Ok(format!("_INBOX.{:032x}.", u128::from_le_bytes(id)))
}

type Opened = (async_nats::Client, watch::Receiver<Health>);

/// Connects to one of the servers. Retries for the time `wait` while the client can reach none of them.
fn open_within(
    runtime: &Runtime,
    args: &ServerArgs,
    servers: &Servers,
    probe_prefix: &str,
    wait: Duration,
) -> anyhow::Result<Opened> {
    let start = Instant::now();
    runtime.block_on(async {
        loop {
            // If the system refuses an attempt at once, the attempt ends before the loop below checks for
            // Ctrl-C, so each attempt begins with a check.
            interrupt::check().map_err(Stop::from)?;
            let mut opening = std::pin::pin!(open(args, servers, probe_prefix));
            let outcome = loop {
                tokio::select! {
                    outcome = &mut opening => break outcome,
                    () = tokio::time::sleep(LOOK) => interrupt::check().map_err(Stop::from)?,
                }
            };
            let error = match outcome {
                Ok(opened) => return Ok(opened),
                Err(error) => error,
            };
            if error.kind() == ConnectErrorKind::AuthorizationViolation {
                return Err(Stop::Refused("Authorization Violation".into()).into());
            }
            if start.elapsed() >= wait || error.kind() == ConnectErrorKind::Tls {
                return Err(
                    anyhow!(error).context(format!("cannot connect to {}", servers.names()))
                );
            }
            tokio::time::sleep(PAUSE).await;
        }
    })
}

/// Makes one attempt to connect to one of the servers, with the credentials and TLS files of the user.
async fn open(
    args: &ServerArgs,
    servers: &Servers,
    probe_prefix: &str,
) -> Result<Opened, async_nats::ConnectError> {
    let (report, health) = watch::channel(Health::default());
    let report = Arc::new(report);
    let (of_events, of_loss) = (Arc::clone(&report), report);
    let connected = Arc::new(AtomicBool::new(false));
    let probe = probe_prefix.to_owned();
    let mut options = ConnectOptions::new()
        .name("tidegate")
        .connection_timeout(GREETING)
        .ping_interval(PINGS)
        .subscription_capacity(UNREAD_MAX)
        .client_capacity(UNSENT_MAX)
        .ignore_discovered_servers()
        .event_callback(move |event| {
            if let Some(why) = refusal(&event) {
                of_events.send_modify(|health| match why.contains(&probe) {
                    true => health.probe_refused = Some(why),
                    false => _ = health.refused.get_or_insert(why),
                });
            }
            std::future::ready(())
        })
        // The library calls this callback before each attempt to connect. The first call returns at once. A
        // second call shows that the connection is lost: it never returns, so the library does not connect
        // again.
        .reconnect_to_server_callback(move |_, _| {
            let again = connected.swap(true, Ordering::Relaxed);
            if again {
                of_loss.send_modify(|health| health.lost = true);
            }
            async move {
                match again {
                    true => std::future::pending().await,
                    false => None,
                }
            }
        });
    options = match servers.credentials.clone() {
        None => options,
        Some(Credentials::User(user, pass)) => options.user_and_password(user, pass),
        Some(Credentials::Token(token)) => options.token(token),
    };
    if let Some(ca) = &args.tls_ca {
        options = options.add_root_certificates(ca.clone()).require_tls(true);
    }
    if let (Some(cert), Some(key)) = (&args.tls_cert, &args.tls_key) {
        options = options.add_client_certificate(cert.clone(), key.clone());
    }
    Ok((options.connect(&servers.addresses[..]).await?, health))
}

/// Returns the server's error text if the client would get the error again on a new connection, so that the
/// command fails at once.
fn refusal(event: &Event) -> Option<String> {
    match event {
        Event::ServerError(ServerError::Other(text)) => {
            let passes = ["Stale Connection", "Server Shutdown"];
            let again = passes.iter().any(|passing| text.contains(passing));
            (!again).then(|| text.clone())
        }
        Event::ServerError(ServerError::AuthorizationViolation) => {
            Some("Authorization Violation".into())
        }
        Event::ServerError(ServerError::SlowConsumer(_)) | Event::SlowConsumer(_) => {
            Some("Slow Consumer".into())
        }
        _ => None,
    }
}

//! `tidegate send`: reads records, gives them to the link's client, and ends once the receiver has
//! acknowledged all of them.
//!
//! Without a spool, one thread reads and sends, so that it reads no more while the client has no room. With a
//! spool, one thread reads and spools (`spooling`), and another thread sends the spool's records. The task in
//! this module only watches these threads.

mod feed;
mod follow;
mod progress;
mod spooling;

use std::future::pending;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tidegate_link::{
    Client, ClientBuilder, ClientTls, Code, ConnectError, Decide, LinkError, Reconnect, Seq,
    SessionId,
};
use tokio::sync::oneshot;

use super::spool::Reader;
use super::{frame_max, identity};
use crate::interrupt::{self, Interrupted};
use crate::ship::args::SendArgs;
use crate::tls_files;
use feed::{Direct, Feed, Spooled};
use follow::{Follow, Positions};
use progress::Progress;
use spooling::{Spooling, Tidy};

/// The time for which the sender tries to reconnect after the loss of its connection, by default.
const WAIT: Duration = Duration::from_secs(60);
/// The pause between two attempts of the sender to connect for the first time.
const RETRY: Duration = Duration::from_millis(100);

/// The time for which the sender waits for the next acknowledgement after Ctrl-C, by default.
const GRACE: Duration = Duration::from_secs(10);
/// The interval at which the sender looks for Ctrl-C, so that the program ends soon after it.
const LOOK: Duration = Duration::from_millis(100);
/// The longest pause between two attempts to connect after the loss of a connection. The pause is short,
/// because a user waits for this program.
const RETRY_MAX: Duration = Duration::from_millis(500);

/// Sends records until the input ends or until Ctrl-C, and then waits until the receiver has acked all
/// records sent. After Ctrl-C the wait ends once the receiver has acked nothing for some time.
pub(crate) fn run(args: &SendArgs) -> anyhow::Result<ExitCode> {
    if args.spool.is_some() && args.file.as_os_str() != "-" {
        let file = args.file.display();
        return Err(anyhow::Error::new(crate::Usage::new(format_args!(
            "--spool keeps what standard input brings: {file} is kept already, use --session to go on in it"
        ))));
    }
    if args.follow && args.file.as_os_str() == "-" {
        return Err(anyhow::Error::new(crate::Usage::new(format_args!(
            "--follow needs the name of a file"
        ))));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(send(args));
    // This shutdown of the runtime does not wait for threads that block on input, because they may never end.
    runtime.shutdown_background();
    outcome
}

/// The source of the records that the sender ships.
enum Input {
    Direct(Direct),
    Follow(Follow),
    Spool(Reader, Tidy),
}

async fn send(args: &SendArgs) -> anyhow::Result<ExitCode> {
    let named = args.session.as_deref().map(identity::named);
    let random = identity::random()?;
    // The sender checks its arguments before it contacts the receiver, so that a mistake leaves no session
    // there.
    let tls = tls(args)?;
    let token = identity::token(args.token_file.as_deref())?.unwrap_or_default();
    let (failed, failure) = oneshot::channel::<anyhow::Error>();
    let mut failure = pin!(async move {
        match failure.await {
            Ok(error) => error,
            // This future never resolves without a spool, or if the spooling thread has ended without an
            // error.
            Err(_) => pending().await,
        }
    });
    let (mut input, session) = match &args.spool {
        None => {
            let session = named.unwrap_or(random);
            let input = match args.follow {
                true => Input::Follow(Follow::open(args, session)?),
                false => Input::Direct(Direct::open(args)?),
            };
            (input, session)
        }
        Some(path) => {
            let (spool, session) = Spooling::open(path, args.spool_limit, named, random)?;
            let (reader, acks) = spool.start(args, failed)?;
            (Input::Spool(reader, acks), session)
        }
    };

    let mut client = connect(args, session, &tls, &token).await?;
    if let Input::Spool(_, acks) = &mut input
        && client.resumed_at() == Seq::NONE
        && acks.is_forgotten()
    {
        crate::face::complain(format_args!(
            "tidegate: the receiver forgot this session: the records left in the spool go under a new one"
        ));
        let session = identity::random()?;
        acks.restart(session).await?;
        client = connect(args, session, &tls, &token).await?;
    }
    let resumed = client.resumed_at().get();
    let bytes = match &input {
        Input::Direct(direct) => direct.bytes(),
        Input::Follow(_) | Input::Spool(..) => None,
    };
    let mut positions: Option<Arc<Positions>> = None;
    let progress = Arc::new(Progress::new(bytes, resumed));
    let (feed, acks): (Box<dyn Feed>, _) = match input {
        Input::Direct(direct) => {
            let direct = direct.after(resumed, args.session.as_deref());
            (Box::new(direct), None)
        }
        Input::Follow(mut follow) => {
            positions = Some(follow.after(resumed)?);
            (Box::new(follow), None)
        }
        Input::Spool(reader, acks) => {
            acks.check(resumed)?;
            let spooled = Spooled::new(reader, resumed + acks.base())?;
            // An earlier process may have ended before it received the ack for these records, so this process
            // passes the ack to the spool.
            acks.acked(resumed);
            (Box::new(spooled), Some(acks))
        }
    };
    let mut sending = feed::start(feed, client.clone(), Arc::clone(&progress))?;
    let mut acked = client.watch();
    let mut look = tokio::time::interval(LOOK);
    let mut patience = Patience::new(args.wait.unwrap_or(GRACE));
    let outcome = loop {
        tokio::select! {
            outcome = &mut sending => break outcome.unwrap_or(Ok(())),
            error = &mut failure => return Err(error),
            more = acked.changed() => {
                patience.handle_ack();
                let position = acked.borrow_and_update().get();
                progress.acked(position);
                acks.iter().for_each(|acks| acks.acked(position));
                positions.iter().for_each(|positions| positions.acked(position));
                if more.is_err() {
                    break Ok(());
                }
            }
            _ = look.tick() => {
                if let Some(positions) = &positions {
                    positions.store(Some(Instant::now()))?;
                }
                if progress.awaits_acks() {
                    patience.check(&progress)?;
                }
            },
        }
    };
    // Even after an error of the source, the client delivers every record that the source has given to it.
    let closing = tokio::spawn(client.close());
    loop {
        tokio::select! {
            more = acked.changed() => {
                if more.is_err() {
                    break;
                }
                patience.handle_ack();
                let position = acked.borrow_and_update().get();
                progress.acked(position);
                acks.iter().for_each(|acks| acks.acked(position));
                positions.iter().for_each(|positions| positions.acked(position));
            }
            _ = look.tick() => patience.check(&progress)?,
        }
    }
    progress.finish();
    if let Some(positions) = &positions {
        positions.store(None)?;
    }
    let closed = closing.await?;
    closed.map_err(|error| explain(error, progress.given()))?;
    outcome?;
    if let Some(acks) = acks {
        acks.finish().await?;
    }
    progress.report();
    Ok(interrupt::exit_code())
}

/// The patience of a sender after Ctrl-C: the sender waits for the remaining acknowledgements while they
/// arrive.
struct Patience {
    wait: Duration,
    /// The time of Ctrl-C, or of the last acknowledgement after it; `None` until the next check sets it.
    since: Option<Instant>,
}

impl Patience {
    const fn new(wait: Duration) -> Self {
        Self { wait, since: None }
    }

    const fn handle_ack(&mut self) {
        self.since = None;
    }

    /// Returns whether the wait is over at `now`. `asked` is true after Ctrl-C.
    fn is_over(&mut self, now: Instant, asked: bool) -> bool {
        asked && now.duration_since(*self.since.get_or_insert(now)) >= self.wait
    }

    /// Returns an error if the wait is over, so that the sender ends.
    fn check(&mut self, progress: &Progress) -> anyhow::Result<()> {
        if !self.is_over(Instant::now(), interrupt::asked()) {
            return Ok(());
        }
        progress.finish();
        let (acked, wait) = (progress.acked_len(), self.wait);
        Err(anyhow::Error::new(Interrupted).context(format!(
            "the receiver acknowledged {acked} records, and nothing for {wait:?} after the request to stop"
        )))
    }
}

/// Explains an error of the link to the user, in the terms of `tidegate send`. `given` is the number of the
/// last record that the sender has read and given to the client.
fn explain(error: LinkError, given: u64) -> anyhow::Error {
    match error {
        // Most refusals of a receiver have only the text of their code, so the message shows this text once.
        LinkError::Refused { code, text } if text == code.to_string() => {
            anyhow::anyhow!("the receiver refused the connection: {text}")
        }
        LinkError::Refused { code, text } => {
            anyhow::anyhow!("the receiver refused the connection: {text} ({code})")
        }
        // The link carries the code of a failure and not its cause.
        LinkError::Bye(Code::Failed) => anyhow::anyhow!(
            "the receiver could not write the records, and says why on its standard error"
        ),
        LinkError::Bye(code) => anyhow::anyhow!("the receiver ended the connection: {code}"),
        LinkError::Broken { cause, acked, sent } if sent > acked => anyhow::anyhow!(
            "the connection broke ({cause}); records {} to {sent} are in doubt",
            acked.next()
        ),
        LinkError::Broken { cause, acked, .. } if given > acked.get() => anyhow::anyhow!(
            "the connection broke ({cause}); records {} to {given} were not sent",
            acked.next()
        ),
        LinkError::Broken { cause, .. } => anyhow::anyhow!(
            "the connection broke ({cause}); the receiver has acknowledged every record that was sent"
        ),
        LinkError::Displaced => anyhow::anyhow!(
            "the session is in use by another sender, which came later: give each its own --session"
        ),
        error => error.into(),
    }
}

fn tls(args: &SendArgs) -> anyhow::Result<Option<ClientTls>> {
    let Some(path) = &args.tls_ca else {
        return Ok(None);
    };
    let host = identity::host(&args.address);
    Ok(Some(tls_files::authorities("--tls-ca", path, host)?))
}

/// Connects to the receiver. Retries for as long as `--wait` allows while it cannot reach the receiver.
async fn connect(
    args: &SendArgs,
    session: SessionId,
    tls: &Option<ClientTls>,
    token: &[u8],
) -> anyhow::Result<Client> {
    let until = Instant::now() + args.wait.unwrap_or(Duration::ZERO);
    loop {
        let builder = builder(args, session, tls, token);
        let mut connecting = pin!(builder.connect(&*args.address));
        let outcome = loop {
            interrupt::check().context("interrupted before the receiver answered")?;
            tokio::select! {
                biased;
                outcome = &mut connecting => break outcome,
                () = tokio::time::sleep(RETRY) => {}
            }
        };
        let error = match outcome {
            Ok(client) => return Ok(client),
            Err(error) => error,
        };
        let absent = matches!(
            error,
            ConnectError::Io { .. } | ConnectError::NoAnswer { .. }
        );
        if !absent || Instant::now() >= until {
            return Err(match error {
                ConnectError::Ended(error) => explain(error, 0),
                error => error.into(),
            });
        }
        tokio::time::sleep(RETRY).await;
    }
}

fn builder(
    args: &SendArgs,
    session: SessionId,
    tls: &Option<ClientTls>,
    token: &[u8],
) -> ClientBuilder {
    let reconnect = Reconnect {
        longest: RETRY_MAX,
        give_up: args.wait.unwrap_or(WAIT),
        ..Reconnect::default()
    };
    let mut builder = Client::builder()
        .session(session)
        .token(token)
        .frame_max(frame_max(args.records.max_record))
        .reconnect(reconnect)
        // The client lets a connected receiver take any time to ack, because the receiver's output may be a
        // pipe with a reader that pauses.
        .stalled_after(Duration::ZERO)
        .on_doubt(|doubt| {
            crate::face::complain(format_args!("tidegate: the receiver forgot this session: records {} to {} are sent again and may be there twice",
                doubt.first, doubt.last));
            Decide::Resend
        });
    if let Some(tls) = tls {
        builder = builder.tls(tls.clone());
    }
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_begins_with_the_request_to_stop_and_again_with_each_ack() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut patience = Patience::new(Duration::from_secs(10));
        assert!(!patience.is_over(at(0), false));
        assert!(!patience.is_over(at(100), true));
        assert!(!patience.is_over(at(109), true));
        patience.handle_ack();
        assert!(!patience.is_over(at(112), true));
        assert!(!patience.is_over(at(121), true));
        assert!(patience.is_over(at(122), true));
        assert!(Patience::new(Duration::ZERO).is_over(at(0), true));
    }
}

//! `tidegate send`: reads records, gives them to the link's client, and ends once the receiver has
//! acknowledged all of them.
//!
//! Without a spool, one thread reads and sends, so that reading waits for room in the client. With a spool,
//! one thread reads and spools (`spooling`), and another sends the spool's records. The task here only
//! watches these threads.

mod feed;
mod progress;
mod spooling;

use std::future::pending;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tidegate_link::{
    Client, ClientBuilder, ClientTls, ConnectError, Decide, LinkError, Reconnect, Seq, SessionId,
};
use tokio::sync::oneshot;

use super::spool::Reader;
use super::{frame_max, identity};
use crate::interrupt;
use crate::ship::args::SendArgs;
use feed::{Direct, Feed, Spooled};
use progress::Progress;
use spooling::{Spooling, Tidy};

/// The time for which the sender tries to reconnect after a cut, by default.
const WAIT: Duration = Duration::from_secs(60);
/// The wait between two attempts of the sender to connect for the first time.
const RETRY: Duration = Duration::from_millis(100);

/// The longest wait between two attempts after a cut: a user waits for this program.
const RETRY_MAX: Duration = Duration::from_millis(500);

/// Sends records until the input ends, or until Ctrl-C; then waits until the receiver has acked all records
/// sent. After Ctrl-C the wait ends once the receiver has acked nothing for some time.
pub(crate) fn run(args: &SendArgs) -> anyhow::Result<ExitCode> {
    if args.spool.is_some() && args.file.as_os_str() != "-" {
        let file = args.file.display();
        return Err(anyhow::Error::new(crate::Usage::new(format_args!(
            "--spool keeps what standard input brings: {file} is kept already, use --session to go on in it"
        ))));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(send(args));
    // This shutdown of the runtime does not wait for threads that block on input.
    runtime.shutdown_background();
    outcome
}

/// The source of the records that the sender ships.
enum Input {
    Direct(Direct),
    Spool(Reader, Tidy),
}

async fn send(args: &SendArgs) -> anyhow::Result<ExitCode> {
    let named = args.session.as_deref().map(identity::named);
    let random = identity::random()?;
    // The sender finds every mistake in its arguments before it contacts the receiver.
    let tls = tls(args)?;
    let token = identity::token(args.token_file.as_deref())?.unwrap_or_default();
    let (failed, failure) = oneshot::channel::<anyhow::Error>();
    let mut failure = pin!(async move {
        match failure.await {
            Ok(error) => error,
            // This future never resolves without a spool, nor after the spooling thread has ended without an
            // error.
            Err(_) => pending().await,
        }
    });
    let (mut input, session) = match &args.spool {
        None => (Input::Direct(Direct::open(args)?), named.unwrap_or(random)),
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
        eprintln!(
            "tidegate: the receiver forgot this session: the records left in the spool go under a new one"
        );
        let session = identity::random()?;
        acks.restart(session).await?;
        client = connect(args, session, &tls, &token).await?;
    }
    let resumed = client.resumed_at().get();
    let bytes = match &input {
        Input::Direct(direct) => direct.bytes(),
        Input::Spool(..) => None,
    };
    let progress = Arc::new(Progress::new(bytes, resumed));
    let (feed, acks): (Box<dyn Feed>, _) = match input {
        Input::Direct(direct) => {
            let direct = direct.after(resumed, args.session.as_deref());
            (Box::new(direct), None)
        }
        Input::Spool(reader, acks) => {
            acks.check(resumed)?;
            let spooled = Spooled::new(reader, resumed + acks.base())?;
            // An earlier process may have ended before it received the ack for these records, so this process
            // tells the spool of it.
            acks.acked(resumed);
            (Box::new(spooled), Some(acks))
        }
    };
    let mut sending = feed::start(feed, client.clone(), Arc::clone(&progress))?;
    let mut acked = client.watch();
    let outcome = loop {
        tokio::select! {
            outcome = &mut sending => break outcome.unwrap_or(Ok(())),
            error = &mut failure => return Err(error),
            more = acked.changed() => {
                let position = acked.borrow_and_update().get();
                progress.acked(position);
                acks.iter().for_each(|acks| acks.acked(position));
                if more.is_err() {
                    break Ok(());
                }
            }
        }
    };
    // The client still delivers every record that it was given, even after an error of the source.
    let closing = tokio::spawn(client.close());
    while acked.changed().await.is_ok() {
        let position = acked.borrow_and_update().get();
        progress.acked(position);
        acks.iter().for_each(|acks| acks.acked(position));
    }
    progress.finish();
    closing.await?.map_err(explain)?;
    outcome?;
    if let Some(acks) = acks {
        acks.finish().await?;
    }
    progress.report();
    Ok(match interrupt::asked() {
        true => ExitCode::from(interrupt::EXIT_CODE),
        false => ExitCode::SUCCESS,
    })
}

/// Explains an error of the link in the terms of `tidegate send`.
fn explain(error: LinkError) -> anyhow::Error {
    match error {
        // Most refusals of a receiver have only the text of their code, so the message shows this text once.
        LinkError::Refused { code, text } if text == code.to_string() => {
            anyhow::anyhow!("the receiver refused the connection: {text}")
        }
        LinkError::Refused { code, text } => {
            anyhow::anyhow!("the receiver refused the connection: {text} ({code})")
        }
        LinkError::Bye(code) => anyhow::anyhow!("the receiver ended the connection: {code}"),
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
    let tls = ClientTls::from_pem(&identity::read(path)?, identity::host(&args.address));
    tls.map(Some).with_context(|| path.display().to_string())
}

/// Connects to the receiver. While the receiver cannot be reached, retries for as long as `--wait` allows.
async fn connect(
    args: &SendArgs,
    session: SessionId,
    tls: &Option<ClientTls>,
    token: &[u8],
) -> anyhow::Result<Client> {
    let until = Instant::now() + args.wait.unwrap_or(Duration::ZERO);
    loop {
        let builder = builder(args, session, tls, token);
        let error = match builder.connect(&*args.address).await {
            Ok(client) => return Ok(client),
            Err(error) => error,
        };
        let absent = matches!(
            error,
            ConnectError::Io { .. } | ConnectError::NoAnswer { .. }
        );
        if !absent || Instant::now() >= until || interrupt::asked() {
            return Err(match error {
                ConnectError::Ended(error) => explain(error),
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
        // A connected receiver may take any time to ack, because its output may be a pipe without a reader
        // for a while.
        .stalled_after(Duration::ZERO)
        .on_doubt(|doubt| {
            eprintln!(
                "tidegate: the receiver forgot this session: records {} to {} are sent again and may be there twice",
                doubt.first, doubt.last
            );
            Decide::Resend
        });
    if let Some(tls) = tls {
        builder = builder.tls(tls.clone());
    }
    builder
}

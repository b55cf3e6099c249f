//! The start of a client: the first connection, the handshake, and the client made from the server's answer.
//! The client makes only one attempt: if any of these steps fails, the program gets the error.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use tidegate::Clock;
use tidegate::queue::Builder;
use tokio::sync::watch;

use super::config::ClientBuilder;
use super::connect::Route;
use super::driver::{Begin, Driver, explain};
use super::front::Front;
use super::shared::{Facts, Shared};
use super::wire::{Cut, Wire};
use crate::Seq;
use crate::error::ConnectError;
use crate::hello::SessionId;
use crate::proto::{self, Event, Sender, SenderConfig, SenderError, SessionConfig};
use crate::stats::ClientCounters;

/// Connects to the server, opens the session, and starts the client's I/O task, which then serves the
/// connection.
pub(super) async fn start(
    config: ClientBuilder,
    address: String,
) -> Result<Arc<Shared>, ConnectError> {
    let clock = Clock::start();
    let counters = Arc::new(ClientCounters::default());
    let route = Route::new(&config, address);
    let sender_config = sender_config(&config)?;
    let session = sender_config.session.as_ref().map(|session| session.id);
    let sender = Sender::new(
        clock.now(),
        sender_config,
        proto::writes(config.buffer_bytes as u64),
    );
    let mut wire = Wire::new(sender, clock, config.spin, counters);
    wire.attach(route.clone().connect().await?);
    let opened = poll_fn(|cx| poll_open(&mut wire, cx)).await;
    let opened = opened.map_err(|cut| match cut {
        Cut::End => route.broken(std::io::ErrorKind::UnexpectedEof.into()),
        Cut::Io(e) => route.broken(e),
        Cut::Rules(SenderError::Unanswered) => route.no_answer(),
        Cut::Rules(e) => ConnectError::Ended(explain(e)),
    })?;
    let payload_max = match (config.frame_max, opened.frame_max) {
        (0, allowed) => allowed,
        (wanted, allowed) => wanted.min(allowed),
    };
    let layout = wire.sender.layout();
    let first = opened.received.next();
    let front = Front::new(layout, first, payload_max as usize, config.block_bytes);
    let (queue, consumer) = Builder::new(config.queue_capacity)
        .build()
        .unwrap_or_else(|e| unreachable!("its capacity was checked: {e}"));
    let acked = watch::Sender::new(wire.sender.acked());
    let written = watch::Sender::new(opened.received);
    let facts = Facts {
        resumed_at: opened.received,
        session,
        when_done: opened.when_done,
        payload_max: payload_max as usize,
    };
    let shared = Arc::new(Shared::new(
        front,
        queue,
        (acked.subscribe(), written.subscribe()),
        wire.counters.clone(),
        facts,
    ));
    let driver = Driver::new(Begin {
        wire,
        shared: shared.clone(),
        acked,
        written,
        queue: consumer,
        route,
        reconnect: config.reconnect,
        on_doubt: config.on_doubt,
    });
    tokio::spawn(driver.run());
    Ok(shared)
}

fn sender_config(config: &ClientBuilder) -> Result<SenderConfig, ConnectError> {
    let session = if config.plain {
        None
    } else {
        Some(SessionConfig {
            id: match config.session {
                Some(id) => id,
                None => SessionId(random()?),
            },
            life: u64::from_le_bytes(random()?),
            checked: config.checked,
            frame_max: config.frame_max,
            token: config.token.clone(),
        })
    };
    Ok(SenderConfig {
        session,
        held_max: config.buffer_bytes,
        plain_window: config.buffer_bytes as u64,
        write_max: config.buffer_bytes as u64,
        opening: config.answer_within,
        stall: config.stalled_after,
    })
}

fn random<const N: usize>() -> Result<[u8; N], ConnectError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| ConnectError::Random(e.to_string()))?;
    Ok(bytes)
}

/// The facts about the session that the client takes from the server's answer to its hello, and needs to
/// number its messages.
struct Opened {
    received: Seq,
    when_done: bool,
    frame_max: u32,
}

fn poll_open(wire: &mut Wire, cx: &mut Context<'_>) -> Poll<Result<Opened, Cut>> {
    loop {
        let moved = wire.write(cx)? | wire.read(cx)?;
        if let Some(Event::Opened {
            received,
            when_done,
            frame_max,
        }) = wire.sender.poll_event()
        {
            return Poll::Ready(Ok(Opened {
                received,
                when_done,
                frame_max,
            }));
        }
        if !moved {
            wire.keep_time(cx)?;
            return Poll::Pending;
        }
    }
}

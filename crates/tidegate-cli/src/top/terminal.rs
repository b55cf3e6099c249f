//! The terminal: reads keys, runs the requests on a thread of its own, and draws a picture after each event.
//!
//! The terminal gets its old state back at the end, after Ctrl-C and SIGTERM, and after a panic in any
//! thread.

use std::io::IsTerminal as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::style::force_color_output;

use super::state::request::Request;
use super::state::{Effect, Event, Key, State};
use super::view;
use crate::monitor::Monitor;
use crate::{Usage, face, interrupt};

/// The longest time between two ticks, so that ages stay right and signals end the program soon.
const TICK: Duration = Duration::from_millis(250);
/// The most events that wait for the loop.
const EVENTS: usize = 64;

/// An event of a thread.
enum Heard {
    State(Event),
    /// The terminal has another size now.
    Resized,
    /// The terminal is gone.
    Closed(std::io::Error),
}

/// Refuses to start without a terminal.
///
/// # Errors
/// A [`Usage`] that names `--once`.
pub(super) fn check() -> anyhow::Result<()> {
    if !std::io::stdout().is_terminal() {
        bail!(Usage::new(
            "standard output is not a terminal: give --once for one picture as text"
        ));
    }
    Ok(())
}

/// Shows the server until the user ends the program. `start` is the origin of the state's times.
///
/// # Errors
/// The terminal fails, or a signal ends the program.
pub(super) fn run(mut state: State, client: Monitor, start: Instant) -> anyhow::Result<()> {
    // The library would leave colours out after its own look at NO_COLOR, which `--color always` overrules.
    force_color_output(state.settings.color);
    let (heard, events) = sync_channel(EVENTS);
    let (ask, requests) = sync_channel(1);
    let answers = heard.clone();
    thread::Builder::new()
        .name("requests".into())
        .spawn(move || answer_all(&client, &requests, &answers))?;
    let mut terminal = ratatui::try_init().context("the terminal")?;
    let keys = thread::Builder::new().name("keys".into());
    let outcome = match keys.spawn(move || read_keys(&heard)) {
        Ok(_) => watch(&mut state, &mut terminal, &events, &ask, start),
        Err(e) => Err(e.into()),
    };
    let restored = ratatui::try_restore().context("the terminal");
    outcome.and(restored)
}

fn watch(
    state: &mut State,
    terminal: &mut DefaultTerminal,
    events: &Receiver<Heard>,
    ask: &SyncSender<Request>,
    start: Instant,
) -> anyhow::Result<()> {
    let mut next = Some(Heard::State(Event::Tick));
    loop {
        // All that has happened counts before the next picture, so that a burst of keys costs one picture.
        while let Some(heard) = next {
            let event = match heard {
                Heard::State(event) => event,
                Heard::Resized => Event::Tick,
                Heard::Closed(e) => return Err(anyhow!(e).context("the terminal")),
            };
            for effect in state.handle(start.elapsed(), event) {
                match effect {
                    // The state has at most one open request, so the channel has room.
                    Effect::Ask(request) => ask.send(request).map_err(|_| lost_thread())?,
                    Effect::Quit => return Ok(()),
                }
            }
            next = match events.try_recv() {
                Ok(heard) => Some(heard),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => return Err(lost_thread()),
            };
        }
        interrupt::check()?;
        terminal
            .draw(|frame| view::draw(state, frame.area(), frame.buffer_mut()))
            .context("the terminal")?;
        next = match events.recv_timeout(TICK.min(state.settings.interval)) {
            Ok(heard) => Some(heard),
            Err(RecvTimeoutError::Timeout) => Some(Heard::State(Event::Tick)),
            Err(RecvTimeoutError::Disconnected) => return Err(lost_thread()),
        };
    }
}

fn lost_thread() -> anyhow::Error {
    anyhow!("a thread of `top` ended early")
}

/// Tells the loop that a thread has ended, also by a panic: the loop would wait for it without end.
struct Ends(SyncSender<Heard>);

impl Drop for Ends {
    fn drop(&mut self) {
        let ended = std::io::Error::other("a thread of `top` ended early");
        // The loop may have ended before, and then needs no notice.
        let _ = self.0.try_send(Heard::Closed(ended));
    }
}

/// Runs the requests one after the other, until the loop has ended.
fn answer_all(client: &Monitor, requests: &Receiver<Request>, answers: &SyncSender<Heard>) {
    let _ends = Ends(answers.clone());
    while let Ok(request) = requests.recv() {
        let answer = Event::Answer(request, client.ask(&request.path()));
        if answers.send(Heard::State(answer)).is_err() {
            return;
        }
    }
}

/// Reads keys until the terminal or the loop has ended.
fn read_keys(heard: &SyncSender<Heard>) {
    let _ends = Ends(heard.clone());
    loop {
        let next = match event::read() {
            Ok(event::Event::Key(key)) if key.kind != KeyEventKind::Release => match meaning(key) {
                Some(key) => Heard::State(Event::Key(key)),
                None => continue,
            },
            Ok(event::Event::Resize(..)) => Heard::Resized,
            Ok(_) => continue,
            Err(e) => Heard::Closed(e),
        };
        let ends = matches!(next, Heard::Closed(_));
        if heard.send(next).is_err() || ends {
            return;
        }
    }
}

fn meaning(key: KeyEvent) -> Option<Key> {
    let held = |modifier| key.modifiers.contains(modifier);
    Some(match key.code {
        KeyCode::Char('c' | 'd') if held(KeyModifiers::CONTROL) => Key::Interrupt,
        KeyCode::Char(_) if held(KeyModifiers::CONTROL) || held(KeyModifiers::ALT) => return None,
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Tab | KeyCode::Right => Key::Tab,
        KeyCode::BackTab | KeyCode::Left => Key::BackTab,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}

/// Returns whether the picture may have colours.
pub(super) fn colors() -> bool {
    face::screen_colors()
}

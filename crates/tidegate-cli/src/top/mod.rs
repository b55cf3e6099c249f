//! `tidegate top`: watches a running server in a terminal, or prints one picture of it.
//!
//! [`state`] and [`view`] are pure; [`terminal`] carries keys, requests and pictures.

mod alarms;
mod document;
#[cfg(test)]
mod recorded;
mod state;
mod terminal;
mod view;
mod words;

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;

use self::state::request::Request;
use self::state::{Effect, Event, Settings, State};
use crate::monitor::{self, Monitor, Url};
use crate::{interrupt, output, values};

const KEYS: &str = "Keys: 1 to 5 or tab for the views, p to pause, s to sort, / to search, ? for all keys, q to end";
/// The interval at which a wait checks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);
/// The width of the picture that `--once` prints.
const COLUMNS: usize = 110;

/// The arguments of `tidegate top`.
#[derive(Args, Debug)]
#[command(after_help = KEYS)]
pub(crate) struct TopArgs {
    /// Watch the server with its monitor at this address, in the form `[http://]HOST[:PORT][/PATH]`: the
    /// port of `serve -m`, and the `http_base_path` of its configuration.
    #[arg(
        value_name = "URL",
        default_value = monitor::DEFAULT,
        env = "TIDEGATE_MONITOR"
    )]
    pub(crate) url: String,
    /// Ask for new figures this often, from 100ms to 1h.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Duration,
    /// Print one picture as text and end: the server is asked twice, one interval apart, for the rates.
    #[arg(long)]
    pub(crate) once: bool,
    /// Print one JSON document instead of text.
    #[arg(long, requires = "once")]
    pub(crate) json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let allowed = Duration::from_millis(100)..=Duration::from_secs(3600);
    let interval = values::duration(text)?;
    match allowed.contains(&interval) {
        true => Ok(interval),
        false => Err("give a time from 100ms to 1h".into()),
    }
}

/// Shows the server until the user ends the program, or prints one picture.
pub(crate) fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let url = Url::parse(&args.url)?;
    if !args.once {
        terminal::check()?;
    }
    let mut state = State::new(Settings {
        url: url.to_string(),
        interval: args.interval,
        color: !args.once && terminal::colors(),
        whole: args.once,
    });
    let client = Monitor::new(url.clone())?;
    let start = Instant::now();
    // The first answer comes before the picture, so that a wrong address is an error in one line.
    first(&mut state, &client, start, &url)?;
    if args.once {
        once(&mut state, &client, start)?;
        output::print(match args.json {
            true => document::harmless(&document::document(&state)),
            false => view::text(&state, COLUMNS),
        })?;
    } else {
        terminal::run(state, client, start)?;
    }
    Ok(interrupt::exit_code())
}

/// Asks for the general figures, and explains a failure.
fn first(state: &mut State, client: &Monitor, start: Instant, url: &Url) -> anyhow::Result<()> {
    let outcome = client.ask(&Request::Server.path());
    interrupt::check()?;
    if let Err(why) = &outcome {
        let hint = why.hint();
        bail!("{url}: {}{hint}", alarms::reason(why));
    }
    state.handle(start.elapsed(), Event::Answer(Request::Server, outcome));
    match (&state.server, state.troubles.get(Request::Server.name())) {
        (Some(_), _) => Ok(()),
        (None, Some(why)) => bail!("{url}: {}", alarms::reason(why)),
        (None, None) => {
            bail!(
                "{url}: /varz is not that of a NATS server: give the address of a server's monitor"
            )
        }
    }
}

/// Asks for all figures now, and for the rates one interval later.
fn once(state: &mut State, client: &Monitor, start: Instant) -> anyhow::Result<()> {
    settle(state, client, start)?;
    let until = Instant::now() + state.settings.interval;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        interrupt::check()?;
        thread::sleep(left.min(LOOK));
    }
    settle(state, client, start)?;
    match &state.lost {
        Some(lost) => bail!("{}: {}", state.settings.url, alarms::reason(&lost.why)),
        None => Ok(()),
    }
}

/// Runs the requests of a tick until none is left.
fn settle(state: &mut State, client: &Monitor, start: Instant) -> anyhow::Result<()> {
    let mut effects = state.handle(start.elapsed(), Event::Tick);
    while let Some(Effect::Ask(request)) = effects.pop() {
        interrupt::check()?;
        let answer = Event::Answer(request, client.ask(&request.path()));
        effects = state.handle(start.elapsed(), answer);
    }
    Ok(())
}

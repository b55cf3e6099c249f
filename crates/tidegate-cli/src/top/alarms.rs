//! The alarms of the watched server, in words, pure: one line for each, the worst first.

use super::state::State;
use super::state::request::Failure;
use super::state::server::{RECENT, Server};
use super::words;

/// The share of the connections from which a server counts as nearly full.
const NEARLY_FULL: f64 = 0.9;
/// The time to a full storage from which it is an alarm, in seconds: a week.
const SOON_S: f64 = 7.0 * 86_400.0;
/// The silence of a node from which it is an alarm, in nanoseconds.
const SILENCE_NS: f64 = 10e9;

/// A fact about the server for which an operator should look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alarm {
    /// True if the server fails at a part of its work; false if it does its work.
    pub(crate) bad: bool,
    pub(crate) words: String,
}

/// Returns the alarms at the state's time.
pub(crate) fn alarms(state: &State) -> Vec<Alarm> {
    let mut all = Vec::new();
    let mut add = |bad, words: String| all.push(Alarm { bad, words });
    if let Some(lost) = &state.lost {
        let since = words::since(state.now, lost.since);
        let why = reason(&lost.why);
        add(true, format!("no answer for {since}: {why}; trying again"));
    }
    if let Some(overview) = &state.overview {
        // The server knows its own alarms, and all its readers see the same ones.
        for (critical, text) in overview.alarms() {
            add(critical, words::name(text));
        }
    } else if let Some(Err(why)) = &state.health {
        add(true, format!("not ready: {}", words::name(why)));
    }
    for (path, why) in &state.troubles {
        add(true, format!("{path}: {}", reason(why)));
    }
    if let Some(server) = &state.server {
        of_changes(state, server, &mut add);
        if state.overview.is_none() {
            of_figures(server, &mut add);
        }
    }
    let directory = state
        .directory
        .as_ref()
        .filter(|_| state.overview.is_none());
    for replica in directory.into_iter().flat_map(|d| &d.replicas) {
        let node = words::name(&replica.name);
        let silent = (replica.active_ns > SILENCE_NS)
            .then(|| format!(", last heard {} ago", words::ns(replica.active_ns)));
        let silent = silent.unwrap_or_default();
        match replica.lag {
            _ if replica.offline => add(true, format!("{node} is not connected{silent}")),
            lag if lag > 0.0 && !replica.current => {
                let lag = words::count(lag);
                add(true, format!("{node} lags {lag} entries{silent}"));
            }
            _ if !replica.current => add(true, format!("{node} is behind{silent}")),
            _ => {}
        }
    }
    for boundary in state.boundaries.iter().flatten() {
        let name = words::name(&boundary.name);
        if boundary.infeasible && state.overview.is_none() {
            add(
                true,
                format!("{name}: the objective cannot be met at the present rate and costs"),
            );
        }
        if boundary.frozen {
            add(
                false,
                format!("{name}: the controller is frozen and learns nothing"),
            );
        }
    }
    // A stable sort: the bad ones come first, and keep their order.
    all.sort_by_key(|alarm| !alarm.bad);
    all
}

/// Adds the alarms that follow from several answers, which the server itself cannot know.
fn of_changes(state: &State, server: &Server, add: &mut impl FnMut(bool, String)) {
    let now = state.now;
    if let Some(at) = server.restarted(now) {
        let since = words::since(now, at);
        add(false, format!("the server was started again {since} ago"));
    }
    if let Some((old, new)) = server.set_back(now) {
        add(
            false,
            format!("the server's clock was set back, from {old} to {new}"),
        );
    }
    // The server says which counts rose in the last minute. It does not look back further.
    let is_seldom = server.span().is_some_and(|span| span > RECENT);
    if state.overview.is_some() && !is_seldom {
        return;
    }
    for rise in server.rises(now) {
        let (by, since) = (words::count(rise.by as f64), words::since(now, rise.at));
        add(
            false,
            format!("{by} {} in the last minute, {since} ago", rise.words),
        );
    }
}

/// Adds the alarms that follow from the figures of one answer, for a server that does not say its alarms.
fn of_figures(server: &Server, add: &mut impl FnMut(bool, String)) {
    if let Some(bytes) = server.num("log.damaged_bytes").filter(|n| *n > 0.0) {
        let bytes = words::bytes(bytes);
        add(
            true,
            format!("{bytes} of the log are damaged: see docs/operating.md, Damage"),
        );
    }
    if server.flag("lame_duck_mode") {
        add(
            false,
            "the server is leaving: it sends its clients to other servers".into(),
        );
    }
    let connections = server.num("connections").zip(server.num("max_connections"));
    if let Some((open, most)) = connections
        && most > 0.0
        && open >= most * NEARLY_FULL
    {
        let (open, most) = (words::count(open), words::count(most));
        add(
            false,
            format!("{open} of at most {most} connections are open"),
        );
    }
    if let Some((most, seconds)) = server.full_in().filter(|(_, s)| *s < SOON_S) {
        let (most, left) = (words::bytes(most), words::span(seconds));
        add(
            false,
            format!("the streams reach max_storage ({most}) in {left} at this rate"),
        );
    }
}

/// Says why a request failed, with text of the server made harmless.
pub(crate) fn reason(why: &Failure) -> String {
    words::name(&why.to_string())
}

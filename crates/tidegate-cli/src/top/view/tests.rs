//! Pictures of recorded answers, at several sizes, and with hostile names.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use serde_json::{Value, json};

use super::{draw, text};
use crate::top::recorded;
use crate::top::state::request::{Failure, Reply, Request};
use crate::top::state::{Effect, Event, Key, Settings, State, View};

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn recorded(request: Request) -> Value {
    match request {
        Request::Server => parsed(recorded::VARZ),
        Request::Health => json!({ "status": "ok" }),
        Request::Overview => parsed(recorded::OVERVIEW),
        Request::Boundaries(_) => parsed(recorded::BOUNDARIES),
        Request::Storage | Request::Streams(_) | Request::Consumers(_) => parsed(recorded::JSZ),
        Request::Connections(_) => parsed(recorded::CONNZ),
        Request::Routes => parsed(recorded::ROUTEZ),
    }
}

/// Runs an event and the requests that follow it.
fn run(state: &mut State, now: u64, event: Event, body: impl Fn(Request) -> Value) {
    let now = Duration::from_secs(now);
    let mut effects = state.handle(now, event);
    while let Some(Effect::Ask(request)) = effects.pop() {
        let reply = Ok(Reply {
            status: 200,
            body: body(request),
        });
        effects = state.handle(now, Event::Answer(request, reply));
    }
}

/// Returns a state with two answers of each view.
fn watched(color: bool, body: impl Fn(Request) -> Value) -> State {
    let mut state = State::new(Settings {
        url: "http://127.0.0.1:8222".into(),
        interval: Duration::from_secs(1),
        color,
        whole: false,
    });
    for now in 0..2 {
        run(&mut state, now, Event::Tick, &body);
    }
    for view in ['2', '3', '4', '5', '1'] {
        run(&mut state, 2, Event::Key(Key::Char(view)), &body);
    }
    state
}

fn drawn(state: &State, columns: u16, rows: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal
        .draw(|frame| draw(state, frame.area(), frame.buffer_mut()))
        .unwrap();
    terminal
}

fn picture(state: &State, columns: u16, rows: u16) -> String {
    let terminal = drawn(state, columns, rows);
    let buffer = terminal.backend().buffer();
    let row = |y| -> String { (0..columns).map(|x| buffer[(x, y)].symbol()).collect() };
    (0..rows)
        .map(|y| row(y).trim_end().to_owned() + "\n")
        .collect()
}

#[test]
fn each_view_shows_its_figures() {
    let mut state = watched(false, recorded);
    let wanted: [(View, &[&str]); 5] = [
        (
            View::Overview,
            &[
                "no alarms",
                "messages in",
                "syncs",
                "log_syncs",
                "processor",
                "publish to ack",
                "1.90 ms  p99 6.30 ms",
                "busiest thread",
                "loop 63 %, log 12 %",
            ],
        ),
        (
            View::Boundaries,
            &[
                "takes up to 512 records a batch",
                "drained: the batch took all that waited",
                "727 us \u{b1} 9.10 us and 46.8 ns \u{b1} 1.50 ns for each record",
                "cut because",
                "4.20 ms of waiting that a greedy rule avoids",
                "if greedy",
                "1,370 batches/s of 9 records, 729 us each",
                "limit (line) and mean batch (dots)",
                "-120 s",
            ],
        ),
        (
            View::Streams,
            &["2 streams, by name", "LINES", "ORDERS", "5,000", "s sort"],
        ),
        (View::Connections, &["watcher", "127.0.0.1:", "go 1.53.1"]),
        (View::Cluster, &["route to", "n2", "127.0.0.1:6223"]),
    ];
    for (view, parts) in wanted {
        state.view = view;
        let picture = picture(&state, 100, 32);
        for part in parts {
            assert!(picture.contains(part), "no `{part}` in\n{picture}");
        }
        assert!(picture.contains("q end"), "{picture}");
    }
}

#[test]
fn every_size_is_drawn() {
    let mut state = watched(true, recorded);
    for help in [false, true] {
        state.help = help;
        for view in View::ALL {
            state.view = view;
            for (columns, rows) in [
                (1, 1),
                (20, 5),
                (39, 10),
                (40, 9),
                (40, 10),
                (80, 24),
                (300, 100),
                (65_000, 1),
            ] {
                picture(&state, columns, rows);
            }
        }
    }
    state.help = false;
    assert_eq!(
        picture(&state, 20, 5),
        "20x5 is too small:\nneeds 40x10; q ends\n\n\n\n"
    );
    state.view = View::Overview;
    assert!(picture(&state, 40, 10).contains("messages in"));
}

#[test]
fn colors_are_used_only_on_request() {
    let alarming = |request| match request {
        Request::Overview => {
            let mut body = recorded(request);
            body["alarms"] = json!([{ "level": "critical", "text": "x" }]);
            body
        }
        request => recorded(request),
    };
    for color in [false, true] {
        let mut state = watched(color, alarming);
        let mut colored = false;
        for view in View::ALL {
            state.view = view;
            let terminal = drawn(&state, 100, 30);
            let cells = terminal.backend().buffer().content().iter();
            colored |= cells
                .clone()
                .any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
        }
        assert_eq!(colored, color);
    }
}

#[test]
fn hostile_names_are_harmless() {
    const HOSTILE: &str = "a\u{1b}[2J\u{9b}31m\r\n\u{202e}\u{0}b";
    fn poison(value: &mut Value) {
        match value {
            Value::String(text) => *text = HOSTILE.into(),
            Value::Array(all) => all.iter_mut().for_each(poison),
            Value::Object(all) => {
                let members: Vec<_> = std::mem::take(all).into_iter().collect();
                for (key, mut member) in members {
                    poison(&mut member);
                    all.insert(key, member);
                }
            }
            _ => {}
        }
    }
    let hostile = |request| {
        let mut body = recorded(request);
        poison(&mut body);
        body
    };
    let mut state = watched(true, hostile);
    state.lost = Some(crate::top::state::Lost {
        since: Duration::ZERO,
        why: Failure::Cut(HOSTILE.into()),
    });
    let is_hostile = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    for view in View::ALL {
        state.view = view;
        let picture = picture(&state, 120, 40);
        assert!(!picture.contains(is_hostile), "{picture:?}");
        assert!(picture.contains("a\\x1b[2J"), "{picture}");
    }
    assert!(!text(&state, 100).contains(is_hostile));
}

#[test]
fn a_lost_server_keeps_its_picture() {
    let mut state = watched(false, recorded);
    run(&mut state, 3, Event::Tick, recorded);
    state.handle(Duration::from_secs(4), Event::Tick);
    let dead = Event::Answer(Request::Server, Err(Failure::Refused));
    state.handle(Duration::from_secs(15), dead);
    for view in View::ALL {
        state.view = view;
        let picture = picture(&state, 80, 24);
        let (first, rest) = picture.split_once('\n').unwrap();
        assert!(first.ends_with("no answer for 12 s"), "{first}");
        assert!(
            rest.contains("! no answer for 12 s: nothing listens there; trying again"),
            "{rest}"
        );
    }
    state.view = View::Overview;
    assert!(picture(&state, 80, 24).contains("log_syncs"));
}

#[test]
fn plain_text_has_all_parts() {
    let mut state = watched(true, recorded);
    state.routes = None;
    let text = text(&state, 100);
    for part in [
        "no alarms",
        "messages in",
        "log_syncs",
        "a batch costs",
        "twice the limit",
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    assert!(!text.contains('\u{1b}') && text.lines().all(|line| line == line.trim_end()));
}

//! Tests of the state against a server of the test: which requests leave, and which pictures their answers
//! make.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::request::{Failure, Reply, Request};
use super::*;
use crate::top::recorded;

const fn s(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn state() -> State {
    State::new(Settings {
        url: "http://127.0.0.1:8222".into(),
        interval: s(1),
        color: false,
        whole: false,
    })
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A Tidegate server of the test.
fn server(request: Request) -> Result<Reply, Failure> {
    let body = match request {
        Request::Server => parsed(recorded::VARZ),
        Request::Health => json!({ "status": "ok" }),
        Request::Overview => parsed(recorded::OVERVIEW),
        Request::Boundaries(_) => parsed(recorded::BOUNDARIES),
        Request::Storage | Request::Streams(_) | Request::Consumers(_) => parsed(recorded::JSZ),
        Request::Connections(_) => parsed(recorded::CONNZ),
        Request::Routes => parsed(recorded::ROUTEZ),
    };
    Ok(Reply { status: 200, body })
}

/// A nats-server of the test.
fn other(request: Request) -> Result<Reply, Failure> {
    let body = match request {
        Request::Server => parsed(recorded::OTHER_VARZ),
        Request::Boundaries(_) | Request::Overview => {
            return Err(Failure::Status(404, "404 page not found".into()));
        }
        Request::Storage | Request::Streams(_) | Request::Consumers(_) => {
            parsed(recorded::OTHER_JSZ)
        }
        other => return server(other),
    };
    Ok(Reply { status: 200, body })
}

/// Runs the requests that follow an event, and returns them.
fn run(
    state: &mut State,
    now: Duration,
    event: Event,
    answer: impl Fn(Request) -> Result<Reply, Failure>,
) -> Vec<Request> {
    let mut asked = Vec::new();
    let mut effects = state.handle(now, event);
    while let Some(effect) = effects.pop() {
        assert!(effects.is_empty(), "one request at a time");
        let Effect::Ask(request) = effect else {
            panic!("quits");
        };
        asked.push(request);
        assert!(asked.len() < 1000, "asks for ever");
        effects = state.handle(now, Event::Answer(request, answer(request)));
    }
    asked
}

fn key(state: &mut State, key: Key) -> Vec<Request> {
    let now = state.now;
    run(state, now, Event::Key(key), server)
}

#[test]
fn each_view_asks_for_its_own_figures() {
    let mut state = state();
    let names = |asked: Vec<Request>| asked.iter().map(|r| r.path()).collect::<Vec<_>>();
    let first = names(run(&mut state, s(0), Event::Tick, server));
    assert_eq!(first, ["/varz", "/overview?history=5", "/boundaries"]);
    assert!(
        run(&mut state, s(0), Event::Tick, server).is_empty(),
        "not due"
    );
    let second = names(run(&mut state, s(1), Event::Tick, server));
    assert_eq!(second, first);
    let asked = names(key(&mut state, Key::Char('2')));
    assert_eq!(asked[2], "/boundaries?history=120");
    let asked = names(key(&mut state, Key::Char('3')));
    assert_eq!(asked[2], "/jsz?streams=true&offset=0&limit=128");
    let asked = names(key(&mut state, Key::Enter));
    assert_eq!(asked, ["/jsz?consumers=true&offset=0&limit=1"]);
    let asked = names(key(&mut state, Key::Tab));
    assert_eq!(asked[2], "/connz?offset=0&limit=128");
    let asked = names(key(&mut state, Key::Char('5')));
    assert_eq!(asked[2], "/routez");
    assert_eq!(state.view, View::Cluster);
}

#[test]
fn a_pause_asks_for_nothing() {
    let mut state = state();
    run(&mut state, s(0), Event::Tick, server);
    assert!(key(&mut state, Key::Char('p')).is_empty());
    assert!(run(&mut state, s(9), Event::Tick, server).is_empty());
    assert_eq!(key(&mut state, Key::Char('p'))[0], Request::Server);
    assert!(state.paused.is_none());
}

#[test]
fn a_server_that_ends_is_tried_again() {
    let mut state = state();
    run(&mut state, s(0), Event::Tick, server);
    let dead = |_| Err(Failure::Refused);
    assert_eq!(run(&mut state, s(1), Event::Tick, dead), [Request::Server]);
    assert!(run(&mut state, s(1), Event::Tick, dead).is_empty());
    assert_eq!(run(&mut state, s(2), Event::Tick, dead), [Request::Server]);
    let lost = state.lost.as_ref().unwrap();
    assert_eq!((lost.since, &lost.why), (s(0), &Failure::Refused));
    assert!(state.boundaries.is_some(), "the last picture stays");
    let asked = run(&mut state, s(3), Event::Tick, server);
    assert_eq!(asked, [Request::Server]);
    assert!(state.lost.is_none());
    assert_eq!(run(&mut state, s(3), Event::Tick, server).len(), 3);
}

#[test]
fn a_path_that_is_missing_is_asked_for_once() {
    let mut state = state();
    let asked = run(&mut state, s(0), Event::Tick, other);
    assert!(asked.contains(&Request::Boundaries(None)));
    assert!(state.missing.contains("/boundaries") && state.boundaries.is_none());
    let asked = run(&mut state, s(1), Event::Tick, other);
    assert!(!asked.contains(&Request::Boundaries(None)));
    assert!(!asked.contains(&Request::Overview) && asked.contains(&Request::Storage));
    assert!(!state.is_tidegate() && state.health.is_some());
    // The streams of a server without pages.
    for pressed in ['3', '\n'] {
        let pressed = if pressed == '\n' {
            Key::Enter
        } else {
            Key::Char(pressed)
        };
        let now = state.now;
        run(&mut state, now, Event::Key(pressed), other);
    }
    let inside = state.inside.as_ref().unwrap();
    assert!(!inside.gone, "{}", inside.stream());
}

#[test]
fn an_older_tidegate_shows_its_boundaries() {
    let mut state = state();
    let older = |request| match request {
        Request::Boundaries(_) | Request::Overview => {
            Err(Failure::Status(404, "expected one of /varz".into()))
        }
        request => server(request),
    };
    run(&mut state, s(0), Event::Tick, older);
    run(&mut state, s(1), Event::Tick, older);
    let names: Vec<_> = state.boundaries.iter().flatten().map(|b| &b.name).collect();
    assert!(names.iter().any(|name| *name == "log_syncs"), "{names:?}");
    assert!(state.storage.is_some() && state.overview.is_none());
    assert_eq!(state.health, Some(Ok(())));
}

#[test]
fn strange_answers_become_alarms() {
    let mut state = state();
    let strange = |request| match request {
        Request::Overview => Err(Failure::Status(404, "no such page".into())),
        Request::Health => Ok(Reply {
            status: 503,
            body: json!({ "status": "unavailable", "error": "the cluster is not formed" }),
        }),
        Request::Storage => Err(Failure::NotJson("EOF".into())),
        Request::Boundaries(_) => Ok(Reply {
            status: 503,
            body: json!({ "error": "busy" }),
        }),
        request => server(request),
    };
    run(&mut state, s(0), Event::Tick, strange);
    let all: Vec<_> = crate::top::alarms::alarms(&state)
        .into_iter()
        .map(|a| a.words)
        .collect();
    for part in [
        "not ready: the cluster is not formed",
        "/jsz: the answer is not JSON",
        "/boundaries: the server answers 503: busy",
    ] {
        assert!(
            all.iter().any(|words| words.contains(part)),
            "{part}: {all:?}"
        );
    }
    let older = |request| match request {
        Request::Overview => Err(Failure::Status(404, "no such page".into())),
        request => server(request),
    };
    run(&mut state, s(1), Event::Tick, older);
    assert!(crate::top::alarms::alarms(&state).is_empty());
}

#[test]
fn a_server_with_an_overview_says_its_alarms() {
    let mut state = state();
    let alarming = |request| {
        let mut reply = server(request)?;
        if request == Request::Overview {
            reply.body["alarms"] = json!([
                { "level": "warning", "text": "n2 lags 14 s" },
                { "level": "critical", "text": "n3 is not connected" },
            ]);
            reply.body["behind"] = "it waits for the others".into();
        }
        Ok::<_, Failure>(reply)
    };
    run(&mut state, s(0), Event::Tick, alarming);
    let alarms = crate::top::alarms::alarms(&state);
    let words: Vec<_> = alarms.iter().map(|a| (a.bad, &*a.words)).collect();
    assert_eq!(
        words,
        [(true, "n3 is not connected"), (false, "n2 lags 14 s")]
    );
    assert_eq!(state.health, Some(Err("it waits for the others".into())));
}

#[test]
fn a_search_is_typed_and_left() {
    let mut state = state();
    run(&mut state, s(0), Event::Tick, server);
    key(&mut state, Key::Char('/'));
    assert!(state.typed.is_none(), "the overview has no list");
    key(&mut state, Key::Char('3'));
    for c in "/zz".chars() {
        key(&mut state, Key::Char(c));
    }
    key(&mut state, Key::Backspace);
    for c in "q1".chars() {
        key(&mut state, Key::Char(c));
    }
    assert_eq!(state.typed.as_deref(), Some("zq1"));
    let asked = key(&mut state, Key::Enter);
    assert!(
        asked.iter().any(|r| r.path().contains("limit=512")),
        "{asked:?}"
    );
    assert_eq!(state.search(), "zq1");
    assert!(state.streams.rows().is_empty());
    key(&mut state, Key::Escape);
    assert!(state.search().is_empty() && !state.streams.rows().is_empty());
    key(&mut state, Key::Char('s'));
    assert_eq!(state.streams.order(), ("messages", true));
    assert_eq!(state.streams.rows()[0].name, "LINES");
    assert!(
        state
            .handle(s(1), Event::Key(Key::Char('q')))
            .contains(&Effect::Quit)
    );
}

#[test]
fn a_boundary_is_chosen_by_name() {
    let mut state = state();
    run(&mut state, s(0), Event::Tick, server);
    key(&mut state, Key::Char('2'));
    key(&mut state, Key::Down);
    assert_eq!(state.chosen_boundary().unwrap().1.name, "entries");
    key(&mut state, Key::Down);
    assert_eq!(state.chosen_boundary().unwrap().0, 1);
    let asked = key(&mut state, Key::Char('+'));
    assert!(asked.contains(&Request::Boundaries(Some(300))), "{asked:?}");
    key(&mut state, Key::Home);
    assert_eq!(state.chosen_boundary().unwrap().1.name, "log_syncs");
}

/// A search through a long list does not stop the figures of each tick.
#[test]
fn a_tick_comes_before_the_pages_of_a_search() {
    let mut state = state();
    run(&mut state, s(0), Event::Tick, server);
    key(&mut state, Key::Char('3'));
    let stream = |n: u64| json!({ "name": format!("S{n:06}") });
    let long = |request: Request| match request {
        Request::Streams(page) => {
            let rows: Vec<_> = (page.offset..page.offset + page.limit)
                .map(stream)
                .collect();
            let body =
                json!({ "streams": 100_000, "account_details": [{ "stream_detail": rows }] });
            Ok(Reply { status: 200, body })
        }
        request => server(request),
    };
    let mut effects = state.handle(s(1), Event::Key(Key::Char('s')));
    let mut now = s(1);
    let mut servers = 0;
    for step in 0..300 {
        let Some(Effect::Ask(request)) = effects.pop() else {
            break;
        };
        servers += usize::from(request == Request::Server);
        now += Duration::from_millis(100);
        if step % 5 == 0 {
            assert!(
                state.handle(now, Event::Tick).is_empty(),
                "a request is open"
            );
        }
        effects = state.handle(now, Event::Answer(request, long(request)));
    }
    assert!(servers >= 20, "{servers} answers in 30 s");
}

/// Any JSON.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{1,9}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Puts `new` in the place of the member or element with this number, counted through the whole value.
fn replace(value: &mut Value, at: &mut usize, new: &Value) {
    if *at == 0 {
        *value = new.clone();
        *at = usize::MAX;
        return;
    }
    *at -= 1;
    match value {
        Value::Array(all) => all.iter_mut().for_each(|v| replace(v, at, new)),
        Value::Object(all) => all.values_mut().for_each(|v| replace(v, at, new)),
        _ => {}
    }
}

fn pictures(state: &mut State, columns: u16, rows: u16) {
    use ratatui::buffer::Buffer;
    use ratatui::layout::Rect;
    for view in View::ALL {
        state.view = view;
        let area = Rect::new(0, 0, columns, rows);
        let mut buf = Buffer::empty(area);
        crate::top::view::draw(state, area, &mut buf);
    }
    crate::top::view::text(state, usize::from(columns));
    crate::top::document::harmless(&crate::top::document::document(state));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// An answer of any form makes a picture of any size.
    #[test]
    fn any_answer_is_drawn(
        places in prop::collection::vec((0..200usize, json_value()), 1..6),
        wholly in any::<bool>(),
        keys in prop::collection::vec(0..12usize, 0..12),
        columns in 0..160u16,
        rows in 0..50u16,
    ) {
        let mut state = state();
        let answer = |request: Request| {
            let mut reply = server(request)?;
            for (at, new) in &places {
                match wholly {
                    true => reply.body = new.clone(),
                    false => replace(&mut reply.body, &mut at.clone(), new),
                }
            }
            Ok::<_, Failure>(reply)
        };
        run(&mut state, s(0), Event::Tick, server);
        run(&mut state, s(1), Event::Tick, answer);
        let pressed = [
            Key::Char('2'), Key::Char('3'), Key::Char('4'), Key::Char('5'), Key::Char('s'), Key::Char('r'),
            Key::Enter, Key::Down, Key::End, Key::Escape, Key::PageUp, Key::Char('+'),
        ];
        for (step, key) in keys.into_iter().enumerate() {
            let now = s(2 + step as u64);
            run(&mut state, now, Event::Key(pressed[key]), answer);
            run(&mut state, now, Event::Tick, answer);
        }
        pictures(&mut state, columns, rows);
    }
}

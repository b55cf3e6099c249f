//! Runs every controller through one short story of arrivals and batches, and compares its answers with event
//! logs in `tests/transcripts`.
//!
//! Each test reads a transcript, replays it and compares it entry by entry, which also fixes the log format.
//! After an intended change, `TRANSCRIPTS=write cargo test -p tidegate --test controllers_transcripts` writes
//! the transcripts again: read the diff.

// Clippy recognizes tests by their attribute only; these helpers belong to tests, too.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use tidegate::Time;
use tidegate::controller::{
    BatchId, Bounds, Choice, Controller, Event, Load, Reason, Recorder, When, read_log, replay,
    write_log,
};

/// The driver of the story: a mailbox with a handler that takes 10 us and 100 ns an item.
struct Mailbox<C> {
    controller: C,
    now: Time,
    backlog: u64,
    oldest: Time,
}

impl<C: Controller> Mailbox<C> {
    fn arrive(&mut self, items: u64) {
        if self.backlog == 0 {
            self.oldest = self.now;
        }
        self.backlog += items;
        self.controller
            .on(self.now, Event::Arrived(Load::new(items, items * 100)));
    }

    /// Runs one batch through the controller, after the wait that the controller decides.
    fn batch(&mut self) {
        let load = |items| Load::new(items, items * 100);
        let decision = loop {
            let ready = Event::Ready {
                backlog: load(self.backlog),
                oldest: self.oldest,
            };
            let d = self.controller.on(self.now, ready);
            match d.when {
                When::Now => break d,
                When::At(t) | When::After { until: t, .. } => self.now = t,
            }
        };
        let n = decision.limit_items.min(self.backlog);
        self.backlog -= n;
        let reason = if self.backlog == 0 {
            Reason::Drained
        } else {
            decision.reason
        };
        self.controller.on(
            self.now,
            Event::Started {
                id: BatchId::default(),
                batch: load(n),
                left: load(self.backlog),
                reason,
            },
        );
        let cost_ns = 10_000 + 100 * n;
        self.now = self.now.after(cost_ns);
        self.controller.on(
            self.now,
            Event::Done {
                id: BatchId::default(),
                cost_ns,
                ok: true,
            },
        );
    }
}

/// Returns the story: a cold start with a backlog, then single items far apart, then a burst.
fn story(choice: Choice) -> Vec<tidegate::controller::Entry> {
    let controller = Recorder::new(choice.build(bounds()).unwrap(), 1000);
    let mut m = Mailbox {
        controller,
        now: Time::ZERO,
        backlog: 0,
        oldest: Time::ZERO,
    };
    m.arrive(20_000);
    while m.backlog > 0 && m.controller.log().len() < 60 {
        m.batch();
    }
    m.backlog = 0;
    for _ in 0..4 {
        m.now = m.now.after(5_000_000);
        m.arrive(1);
        m.batch();
    }
    m.arrive(3000);
    while m.backlog > 0 && m.controller.log().len() < 120 {
        m.batch();
    }
    assert_eq!(m.controller.omitted(), 0);
    m.controller.log().to_vec()
}

fn bounds() -> Bounds {
    Bounds::items(32, 8192)
}

fn path(choice: Choice) -> PathBuf {
    let name = choice.to_string().replace([':', '=', '%', ','], "-");
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/transcripts")
        .join(name + ".log")
}

fn check(name: &str) {
    let choice: Choice = name.parse().unwrap();
    let told = story(choice);
    if std::env::var_os("TRANSCRIPTS").is_some_and(|v| v == "write") {
        std::fs::write(path(choice), write_log(&told)).unwrap();
    }
    let kept = std::fs::read_to_string(path(choice)).unwrap();
    let kept = read_log(&kept).unwrap();
    if let Err(d) = replay(&mut choice.build(bounds()).unwrap(), &kept) {
        panic!("{name}: {d}");
    }
    assert_eq!(told, kept, "{name}: the story itself has changed");
}

macro_rules! transcripts {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            check($name);
        })*
    };
}

transcripts! {
    knee: "knee",
    knee_throughput: "knee:throughput",
    knee_within: "knee:within=5%",
    knee_p99: "knee:p99=1ms",
    knee_cost: "knee:cost=10%",
    knee_inflation: "knee:inflation=3%",
    greedy: "greedy",
    fixed: "fixed:1000",
    fixed_with_a_linger: "fixed:1000,5ms",
    exponential: "exponential",
    aimd: "aimd:64",
    storm_aimd: "storm-aimd:1000",
    rueidis_stats: "rueidis-stats:100us",
}

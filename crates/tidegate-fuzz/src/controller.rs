//! A fuzz target for the engine's controllers. The target gives a controller any events in any order. Each
//! decision must stay within the controller's bounds.

use tidegate::Time;
use tidegate::controller::{BatchId, Bounds, Choice, Event, Load, Objective, Reason};

const CHOICES: [Choice; 8] = [
    Choice::KNEE,
    Choice::Knee(Objective::Throughput),
    Choice::Knee(Objective::Within(0.05)),
    Choice::Knee(Objective::CostBudget(0.01)),
    Choice::Knee(Objective::Inflation(0.03)),
    Choice::Exponential,
    Choice::Aimd { step: 64 },
    Choice::StormAimd { ceiling: 1000 },
];

/// Runs the fuzz target on one input. Panics if the tested code breaks a promise.
pub fn run(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else {
        return;
    };
    let bounds = Bounds::items(2, 5000);
    let mut c = CHOICES[first as usize % CHOICES.len()]
        .build(bounds)
        .expect("valid bounds");
    for word in rest.chunks_exact(9) {
        let n = u64::from_le_bytes(word[1..].try_into().expect("eight bytes"));
        let now = Time::from_nanos(n.rotate_left(32));
        let load = Load::new(n | 1, n >> 3);
        let event = match word[0] % 7 {
            0 => Event::Arrived(load),
            1 => Event::Ready {
                backlog: load,
                oldest: now,
            },
            2 => Event::Started {
                id: BatchId::default(),
                batch: load,
                left: Load::items(n >> 7),
                reason: Reason::Limit,
            },
            3 => Event::Done {
                id: BatchId::default(),
                cost_ns: n,
                ok: n & 1 == 0,
            },
            4 => Event::Blocking,
            5 => Event::Replied {
                items: n & 0xff,
                batch: n >> 40,
                took_ns: n,
            },
            _ => Event::Expected { items: n },
        };
        let d = c.on(now, event);
        assert!((2..=5000).contains(&d.limit_items) && d.limit_bytes > 0);
    }
}

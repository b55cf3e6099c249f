//! Counts the words of a text as `tidegate count` does: over queues, with producers that find the size of
//! their batches.
//!
//! `cargo run -p tidegate-cli --example word_count`

use std::sync::Arc;

use tidegate::controller::Choice;
use tidegate_cli::topology::{Feed, Live, Plan, run, top};

/// A text that is repeated a number of times.
struct Repeated {
    text: Arc<[u8]>,
    times: u32,
}

impl Feed for Repeated {
    fn next(&mut self) -> Option<Arc<[u8]>> {
        self.times = self.times.checked_sub(1)?;
        Some(Arc::clone(&self.text))
    }
}

fn main() -> anyhow::Result<()> {
    let plan = Plan {
        split: 2,
        controller: Choice::KNEE,
        lines: 1024,
        words: 8192,
        sample_every: 100,
        pace: None,
    };
    let text = "the tide comes in\nthe tide goes out\nthe gate waits\n";
    let mut feed = Repeated {
        text: text.as_bytes().into(),
        times: 10_000,
    };
    let outcome = run(&plan, &mut feed, &Live::new(plan.split))?;
    for (word, count) in top(&outcome.tallies, 3) {
        println!("{count:>8} {}", String::from_utf8_lossy(word));
    }
    for edge in &outcome.edges {
        println!(
            "{}: {} items, limits {:?}",
            edge.name, edge.items, edge.limits
        );
    }
    Ok(())
}

//! The word count topology: a reader sends lines to splitters, and these send words to counters, over queues.
//! It has the shape of Storm's FileReadWordCountTopo, so that its results are comparable.
//!
//! The reader sends the lines to the splitters in turn, and the splitters send each word to the counter of
//! its hash (field grouping). So no two counters count the same word, and the result is all tallies together.
//! A stage pushes each line or word by itself, and the producers form the batches. The topology serves
//! `tidegate count` and `tidegate-bench topology`, each with its own [`Feed`].

mod blocks;
mod items;
mod live;
mod pace;
mod samples;
mod stages;
mod tally;
mod words;

use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use tidegate::Clock;
use tidegate::controller::{Bounds, Choice, Counts};
use tidegate::queue::{Builder, Consumer, Metrics, Producer, Queue};

pub use blocks::{Blocks, WORD_BYTES_MAX};
pub use live::{Latency, Live};
pub use pace::Pace;
pub use tally::{Tally, top};

use items::{Line, Word};
use samples::Samples;
use stages::{Counter, Reader, Splitter};

/// The settings with which a program runs a count topology.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The number of splitters, and also of counters.
    pub split: usize,
    /// The controller that decides the batches of every producer.
    pub controller: Choice,
    /// The capacity of each splitter's queue, in lines, which bounds the memory.
    pub lines: usize,
    /// The capacity of each counter's queue, in words, which bounds the memory.
    pub words: usize,
    /// The interval of samples: the topology measures the latency of one line in this many.
    pub sample_every: u32,
    /// The pace of the lines; without a pace, the reader reads as fast as the queues have room.
    pub pace: Option<Pace>,
}

/// The greatest number of items in a producer's buffer, with any controller. The buffer has at most 32 KiB of
/// words, which fit the processor's nearest cache.
pub const BATCH_MAX: usize = 1024;

/// The source of the text to count, from which the topology's reader takes blocks.
pub trait Feed: Send {
    /// Returns the next block of whole words; `None` at the end of the text.
    fn next(&mut self) -> Option<Arc<[u8]>>;
}

/// The results of one run of the topology.
pub struct Outcome {
    /// The tallies of all counters, one for each counter.
    pub tallies: Vec<Tally>,
    /// The latencies of the sampled lines in nanoseconds, from reading a line to counting its last word.
    pub latency: Latency,
    /// The traffic of both edges: reader to splitters, and splitters to counters.
    pub edges: [Edge; 2],
}

/// The traffic over the queues between two stages of the topology, which is one edge.
#[derive(Clone, Debug)]
pub struct Edge {
    /// The names of both ends of the edge, for tables.
    pub name: &'static str,
    /// The number of items that the edge's producers pushed, for tables.
    pub items: u64,
    /// The number of batches that the edge's producers pushed, for each reason why a batch left.
    pub batches: Counts,
    /// The smallest and the largest limit, in items a batch, of the edge's producers at the end.
    pub limits: (u64, u64),
}

/// Runs a topology until the feed ends or `live` asks to stop. Returns once the counters have counted every
/// line that the reader has read.
pub fn run(plan: &Plan, feed: &mut dyn Feed, live: &Live) -> anyhow::Result<Outcome> {
    let clock = Clock::start();
    let seed = foldhash::fast::RandomState::default();
    // The sampler gets slots for every line that the queues hold, so that it skips no line that is due.
    let on_the_way = plan.split * (plan.lines + plan.words) * 2;
    let samples = Samples::new(u32::try_from(on_the_way / plan.sample_every as usize + 64)?);
    let (line_queues, line_ends) = queues::<Line>(plan, plan.lines)?;
    let (word_queues, word_ends) = queues::<Word>(plan, plan.words)?;
    let reader = Reader {
        outputs: producers(plan, &line_queues, plan.lines)?,
        clock,
        samples: &samples,
        live,
    };
    let splitter = |input| -> anyhow::Result<_> {
        let outputs = producers(plan, &word_queues, plan.words)?;
        Ok(Splitter {
            input,
            outputs,
            seed: seed.clone(),
            clock,
            samples: &samples,
            live,
        })
    };
    let splitters = line_ends
        .into_iter()
        .map(splitter)
        .collect::<Result<Vec<_>, _>>()?;
    let counters = word_ends.into_iter().map(|input| Counter {
        input,
        clock,
        samples: &samples,
        live,
    });

    std::thread::scope(|scope| {
        let counters: Vec<_> = counters
            .enumerate()
            .map(|(who, counter)| scope.spawn(move || counter.run(who)))
            .collect();
        let splitters: Vec<_> = splitters
            .into_iter()
            .enumerate()
            .map(|(who, splitter)| scope.spawn(move || splitter.run(who)))
            .collect();
        let line_limits = reader.run(feed, plan);
        // The topology closes the queues even after an error, so that the later stages see their input end.
        line_queues.iter().for_each(Queue::close);
        let word_limits: Vec<_> = splitters
            .into_iter()
            .map(|splitter| join(splitter))
            .collect();
        word_queues.iter().for_each(Queue::close);
        let tallies: Vec<_> = counters.into_iter().map(|counter| join(counter)).collect();

        let line_limits = line_limits?;
        let word_limits = word_limits
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?
            .concat();
        Ok(Outcome {
            tallies: tallies.into_iter().collect::<Result<_, _>>()?,
            latency: live.take_latency(),
            edges: [
                edge("reader -> splitters", &line_queues, &line_limits),
                edge("splitters -> counters", &word_queues, &word_limits),
            ],
        })
    })
}

fn join<T>(stage: std::thread::ScopedJoinHandle<'_, anyhow::Result<T>>) -> anyhow::Result<T> {
    stage.join().map_err(|_| anyhow!("a stage panicked"))?
}

type Ends<T> = (Vec<Queue<T>>, Vec<Consumer<T>>);

fn queues<T: Send>(plan: &Plan, capacity: usize) -> anyhow::Result<Ends<T>> {
    let mut builder = Builder::new(capacity);
    if let Choice::Fixed { linger, .. } = plan.controller
        && !linger.is_zero()
    {
        builder = builder.linger(linger);
    }
    let ends = (0..plan.split).map(|_| builder.build());
    Ok(ends.collect::<Result<Vec<_>, _>>()?.into_iter().unzip())
}

/// Creates a producer for each queue, with the plan's controller.
fn producers<T: Send>(
    plan: &Plan,
    queues: &[Queue<T>],
    capacity: usize,
) -> anyhow::Result<Vec<Producer<T>>> {
    // A batch has at most half of a queue's items, so that the consumer drains one half while the producer
    // fills the other.
    let limit_max = BATCH_MAX.min(capacity / 2).max(1);
    let producer = |queue: &Queue<T>| -> anyhow::Result<Producer<T>> {
        Ok(match plan.controller {
            Choice::Fixed { limit: 1, .. } => queue.producer(),
            Choice::Fixed { limit, .. } => queue.fixed(usize::try_from(limit)?.min(limit_max))?,
            controlled => {
                let controller = controlled
                    .build(Bounds::items(1, limit_max as u64))
                    .context("the controller")?;
                queue.controlled(limit_max, controller)?
            }
        })
    };
    queues.iter().map(producer).collect()
}

fn edge<T: Send>(name: &'static str, queues: &[Queue<T>], limits: &[usize]) -> Edge {
    let metrics: Vec<_> = queues.iter().map(Queue::metrics).collect();
    let mut batches = Counts::default();
    for flushes in metrics.iter().map(|metrics: &Metrics| &metrics.flushes) {
        batches.items += flushes.items;
        batches.items_max = batches.items_max.max(flushes.items_max);
        batches.by_reason += flushes.by_reason;
    }
    let range = |pick: fn(u64, u64) -> u64| {
        limits
            .iter()
            .map(|&limit| limit as u64)
            .reduce(pick)
            .unwrap_or(0)
    };
    Edge {
        name,
        items: metrics.iter().map(|metrics| metrics.arrived).sum(),
        batches,
        limits: (range(u64::min), range(u64::max)),
    }
}

#[cfg(test)]
mod tests;

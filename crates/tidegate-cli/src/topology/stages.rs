//! The three stages of the count topology, each on its own thread: a loop takes items from the stage's queue
//! and sends its results to the next stage.

use std::ops::Range;
use std::time::Duration;

use tidegate::queue::{Consumer, Flush, Producer};
use tidegate::{Clock, Time};

use super::items::{Line, Word};
use super::live::Live;
use super::pace::Pacer;
use super::samples::{Sampler, Samples};
use super::tally::Tally;
use super::words::words;
use super::{Feed, Plan};

/// The greatest number of lines that a splitter takes out of its queue at once. They are some hundred
/// microseconds of work, after which the queue has room again.
const LINES: usize = 256;
/// The greatest number of words that a counter takes out of its queue at once, so that the queue soon has
/// room.
const WORDS: usize = 4096;

/// The reader: cuts blocks into lines and sends the lines to the splitters in turn.
pub(super) struct Reader<'a> {
    pub(super) outputs: Vec<Producer<Line>>,
    pub(super) clock: Clock,
    pub(super) samples: &'a Samples,
    pub(super) live: &'a Live,
}

impl Reader<'_> {
    /// Runs the reader until the feed ends. Returns the limits of the reader's producers, for the report.
    pub(super) fn run(mut self, feed: &mut dyn Feed, plan: &Plan) -> anyhow::Result<Vec<usize>> {
        let (clock, live) = (self.clock, self.live);
        let mut sampler = Sampler::new(self.samples, plan.sample_every);
        let mut pacer = plan.pace.map(|pace| Pacer::new(pace, clock));
        let (mut turn, mut read) = (0, 0);
        'feed: while let Some(block) = feed.next() {
            for range in lines(&block) {
                while live.paused() && !live.stopped() {
                    std::thread::sleep(Duration::from_millis(1));
                    if let Some(pacer) = &mut pacer {
                        pacer.restart();
                    }
                }
                if live.stopped() {
                    break 'feed;
                }
                let now = match &mut pacer {
                    // The reader flushes before it waits for a due time, so that buffered lines do not wait
                    // with it.
                    Some(pacer) => match pacer.next(
                        || {
                            self.outputs
                                .iter_mut()
                                .for_each(Flush::blocking_flush_before_wait)
                        },
                        || live.stopped(),
                    ) {
                        Some(due) => due,
                        None => break 'feed,
                    },
                    None if sampler.is_due() => clock.now(),
                    None => Time::ZERO,
                };
                let line = Line::new(&block, range, sampler.next(now));
                self.outputs[turn].blocking_push(line)?;
                turn = (turn + 1) % self.outputs.len();
                read += 1;
            }
            live.set_lines(read);
        }
        live.set_lines(read);
        Ok(self.outputs.iter().map(Producer::limit).collect())
    }
}

/// Returns the ranges of a block's lines, each with its line feed. The last line may have none.
fn lines(block: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = block.get(start..).filter(|rest| !rest.is_empty())?;
        let len = memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
        let line = start..start + len;
        start = line.end;
        Some(line)
    })
}

/// A splitter: cuts lines into words and sends each word to the counter of its hash.
pub(super) struct Splitter<'a> {
    pub(super) input: Consumer<Line>,
    pub(super) outputs: Vec<Producer<Word>>,
    pub(super) seed: foldhash::fast::RandomState,
    pub(super) clock: Clock,
    pub(super) samples: &'a Samples,
    pub(super) live: &'a Live,
}

impl Splitter<'_> {
    /// Runs the splitter until its input ends. Returns the limits of its producers, for the report.
    pub(super) fn run(self, who: usize) -> anyhow::Result<Vec<usize>> {
        let Self {
            mut input,
            outputs,
            seed,
            clock,
            samples,
            live,
        } = self;
        let mut outputs = Outputs(outputs);
        let mut closed = Ok(());
        while closed.is_ok() && input.blocking_wait_flushing(&mut [&mut outputs]).is_ok() {
            input.drain(LINES, |line| {
                if closed.is_ok() {
                    closed = outputs.split(&line, &seed, samples);
                }
                if line.ticket.is_some()
                    && let Some(latency_ns) = samples.finish(line.ticket, || clock.now())
                {
                    live.record(who, latency_ns);
                }
            });
            for output in &outputs.0 {
                live.saw_limit(who, limit(output));
            }
        }
        closed?;
        Ok(outputs.0.iter().map(Producer::limit).collect())
    }
}

/// Returns the limit of a producer's batches, for the report. If the producer has a controller, takes the
/// controller's own limit, because a probe of other limits does not change it.
fn limit<T: Send>(output: &Producer<T>) -> u64 {
    output
        .controller()
        .map_or_else(|| output.limit() as u64, |seen| seen.limit)
}

/// A splitter's producers, one for each counter, to which the splitter sends words.
struct Outputs(Vec<Producer<Word>>);

impl Outputs {
    #[inline]
    fn split(
        &mut self,
        line: &Line,
        seed: &foldhash::fast::RandomState,
        samples: &Samples,
    ) -> Result<(), tidegate::queue::PushError<()>> {
        let counters = self.0.len();
        for range in words(line.bytes()) {
            let word = line.word(range, seed);
            if line.ticket.is_some() {
                samples.add(line.ticket, 1);
            }
            let output = &mut self.0[word.counter(counters)];
            if output.blocking_push(word).is_err() {
                return Err(tidegate::queue::PushError::Closed(()));
            }
        }
        Ok(())
    }
}

impl Flush for Outputs {
    fn blocking_flush_before_wait(&mut self) {
        self.0
            .iter_mut()
            .for_each(Flush::blocking_flush_before_wait);
    }
}

/// A counter: counts the words that the hash assigns to this counter.
pub(super) struct Counter<'a> {
    pub(super) input: Consumer<Word>,
    pub(super) clock: Clock,
    pub(super) samples: &'a Samples,
    pub(super) live: &'a Live,
}

impl Counter<'_> {
    /// Runs the counter until its input ends. Returns the counter's tally.
    pub(super) fn run(self, who: usize) -> anyhow::Result<Tally> {
        let Self {
            mut input,
            clock,
            samples,
            live,
        } = self;
        let mut tally = Tally::default();
        while input.blocking_wait().is_ok() {
            input.drain(WORDS, |word| {
                let ticket = word.ticket();
                tally.add(word);
                if ticket.is_some()
                    && let Some(latency_ns) = samples.finish(ticket, || clock.now())
                {
                    live.record(who, latency_ns);
                }
            });
            live.set_words(who, tally.total());
        }
        Ok(tally)
    }
}

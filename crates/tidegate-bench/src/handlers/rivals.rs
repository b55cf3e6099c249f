//! The contestants of the bench `handlers` that are other crates which form batches. The bench uses each
//! crate as its documentation shows, with the settings of [`super::setting`].

use std::sync::Arc;
use std::time::Duration;

use amate::{Batching, Config, Engine, Queued};
use batch_aint_one::{Batcher, BatchingPolicy, Limits, Processor};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use ultra_batch::{BatchExecutor, Executor};

use super::work::{Checked, Item};
use crate::rounds::Failure;

/// The capacity of the rivals' queues in items, large enough that no rival refuses an item, because the
/// caller would only send the item again.
const CAPACITY: usize = 1 << 18;

/// The rival batch-aint-one. The bench gives all items the same key, so that the crate batches them together,
/// and uses none of the crate's resources.
pub(super) struct BatchAintOne(Batcher<Process>);

#[derive(Clone)]
struct Process(Arc<Checked>);

impl BatchAintOne {
    pub(super) fn start(prefer: u32, limit: u32, in_flight: u32, work: Arc<Checked>) -> Self {
        let limits = Limits::builder()
            .max_batch_size(limit as usize)
            .max_key_concurrency(in_flight as usize)
            .max_key_queued_items(CAPACITY)
            .build();
        let policy = match prefer {
            0 => BatchingPolicy::Immediate,
            size => BatchingPolicy::Balanced {
                min_size_hint: size as usize,
            },
        };
        let batcher = Batcher::builder()
            .name("bench")
            .processor(Process(work))
            .limits(limits)
            .batching_policy(policy)
            .build();
        Self(batcher)
    }

    pub(super) async fn call(&self, item: Item) -> Result<u64, Failure> {
        self.0.add((), item).await.map_err(|e| e.to_string())
    }
}

impl Processor for Process {
    type Key = ();
    type Input = Item;
    type Output = u64;
    type Error = Failure;
    type Resources = ();

    async fn acquire_resources(&self, (): ()) -> Result<(), Failure> {
        Ok(())
    }

    async fn process(
        &self,
        (): (),
        inputs: impl Iterator<Item = Item> + Send,
        (): (),
    ) -> Result<Vec<u64>, Failure> {
        self.0.handle(inputs.collect()).await
    }
}

/// The rival ultra-batch. The bench uses the crate's executor for commands and not its fetcher, because an
/// insert is no lookup.
pub(super) struct UltraBatch(BatchExecutor<Execute>);

struct Execute(Arc<Checked>);

impl UltraBatch {
    pub(super) fn start(delay_ms: u32, eager: u32, work: Arc<Checked>) -> Self {
        let executor = BatchExecutor::build(Execute(work))
            .delay_duration(Duration::from_millis(delay_ms.into()))
            .eager_batch_size(Some(eager as usize))
            .finish();
        Self(executor)
    }

    pub(super) async fn call(&self, item: Item) -> Result<u64, Failure> {
        let answer = self.0.execute(item).await.map_err(|e| e.to_string())?;
        answer.ok_or_else(|| "no answer".to_owned())
    }
}

impl Executor for Execute {
    type Value = Item;
    type Result = u64;
    type Error = Failure;

    async fn execute(&self, values: Vec<Item>) -> Result<Vec<u64>, Failure> {
        self.0.handle(values).await
    }
}

/// The rival amate. If a handler awaits, each worker thread of this crate blocks until the handler is done
/// with the thread's batch.
pub(super) struct Amate(Engine<Call>);

struct Call {
    item: Item,
    answer: oneshot::Sender<Result<u64, Failure>>,
}

struct Merge {
    work: Arc<Checked>,
    runtime: Handle,
    window: Duration,
}

impl Amate {
    pub(super) fn start(limit: u32, workers: u32, window_us: u32, work: Arc<Checked>) -> Self {
        let config = Config {
            max_batch: limit as usize,
            workers: workers as usize,
            capacity: Some(CAPACITY),
            waits_unannounced: window_us > 0,
        };
        let merge = Merge {
            work,
            runtime: Handle::current(),
            window: Duration::from_micros(window_us.into()),
        };
        Self(Engine::start(merge, config, |i| format!("amate-{i}")))
    }

    pub(super) async fn call(&self, item: Item) -> Result<u64, Failure> {
        let (answer, answered) = oneshot::channel();
        let submitted = self.0.submit(None, Call { item, answer });
        submitted.map_err(|_| "its queue is full".to_owned())?;
        answered.await.map_err(|_| "no answer".to_owned())?
    }
}

impl Batching for Merge {
    type Item = Call;

    fn weight(&self, _: &Call) -> usize {
        1
    }

    fn window(&self) -> Duration {
        self.window
    }

    fn run(&self, batch: Vec<Queued<Call>>) {
        let calls = batch.into_iter().map(|queued| queued.item);
        let (items, answers): (Vec<_>, Vec<_>) = calls.map(|call| (call.item, call.answer)).unzip();
        let handled = if self.work.blocks() {
            self.work.handle_blocking(&items)
        } else {
            self.runtime.block_on(self.work.handle(items))
        };
        for (at, answer) in answers.into_iter().enumerate() {
            let value = match &handled {
                Ok(values) => Ok(values[at]),
                Err(failure) => Err(failure.clone()),
            };
            let _ = answer.send(value);
        }
    }
}

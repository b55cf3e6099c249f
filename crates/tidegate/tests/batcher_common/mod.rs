//! A handler that follows a test's script, and the rules under which tests run it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod driver;

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::batcher::{
    Batch, Builder, Flow, Handle, Handled, Handler, Init, Op, Recover, StopReason,
};
use tidegate::controller::{Controller, Observed, Rule, Ruled};

/// A bound on waits, longer than any event in a test takes, so that a hanging test fails.
pub const LONG: Duration = Duration::from_secs(60);

pub type B = Batch<u64, u64, &'static str>;
pub type H = Handle<u64, u64, &'static str>;

/// The calls of its handler that a test observed, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Saw {
    Init,
    Continued,
    /// The items of a batch, and the reason of its cut.
    Batch(Vec<u64>, &'static str),
    Idle,
    Terminated(String),
}

#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<Saw>>>);

impl Log {
    pub fn push(&self, saw: Saw) {
        self.0.lock().unwrap().push(saw);
    }

    pub fn all(&self) -> Vec<Saw> {
        self.0.lock().unwrap().clone()
    }

    pub fn batches(&self) -> Vec<Vec<u64>> {
        let of = |saw: Saw| match saw {
            Saw::Batch(items, _) => Some(items),
            _ => None,
        };
        self.all().into_iter().filter_map(of).collect()
    }

    pub fn sizes(&self) -> Vec<usize> {
        self.batches().iter().map(Vec::len).collect()
    }

    pub fn items(&self) -> Vec<u64> {
        self.batches().concat()
    }

    pub fn count(&self, what: &Saw) -> usize {
        self.all().iter().filter(|saw| *saw == what).count()
    }
}

type Script = Box<dyn FnMut(&mut B) -> Flow + Send>;

/// A handler that logs each call and runs a script for each batch. The default script answers ten times each
/// item.
pub struct Scripted {
    pub log: Log,
    pub init: Option<Init>,
    pub script: Script,
    pub recover: Recover,
    /// The sum of the handler's items, which tests read by inspections.
    pub sum: u64,
}

impl Scripted {
    pub fn new(log: &Log) -> Self {
        Self::with(log, answer)
    }

    pub fn with(log: &Log, script: impl FnMut(&mut B) -> Flow + Send + 'static) -> Self {
        Self {
            log: log.clone(),
            init: None,
            script: Box::new(script),
            recover: Recover::Continue,
            sum: 0,
        }
    }

    /// Creates a handler that stops in its first batch until the test releases it.
    pub fn held(log: &Log) -> (Self, Hold) {
        Self::held_with(log, answer)
    }

    pub fn held_with(
        log: &Log,
        mut script: impl FnMut(&mut B) -> Flow + Send + 'static,
    ) -> (Self, Hold) {
        let (in_sender, entered) = sync_channel(1);
        let (release, out) = sync_channel(1);
        let mut first = true;
        let handler = Self::with(log, move |batch| {
            if std::mem::take(&mut first) {
                in_sender.send(()).unwrap();
                out.recv().unwrap();
            }
            script(batch)
        });
        (handler, Hold { entered, release })
    }
}

/// The test's end of a handler that stops in its first batch.
pub struct Hold {
    entered: Receiver<()>,
    release: SyncSender<()>,
}

impl Hold {
    /// Sends item 0 and returns once the handler has it, so that the actor is busy.
    pub fn busy(&self, handle: &H) {
        handle.blocking_cast(0).unwrap();
        self.entered.recv().unwrap();
    }

    pub fn let_go(&self) {
        self.release.send(()).unwrap();
    }
}

pub fn answer(batch: &mut B) -> Flow {
    for op in batch.drain() {
        if let Op::Call(item, reply) = op {
            reply.send(item * 10);
        }
    }
    Flow::Continue
}

impl Handler for Scripted {
    type Item = u64;
    type Reply = u64;
    type Info = &'static str;

    fn init(&mut self) -> Init {
        self.log.push(Saw::Init);
        self.init.take().unwrap_or(Init::Ready)
    }

    fn handle_continue(&mut self) -> Flow {
        self.log.push(Saw::Continued);
        Flow::Continue
    }

    fn handle_batch(&mut self, batch: &mut B) -> Handled {
        assert!(!batch.is_empty() && batch.len() == batch.ops().len());
        let of = |op: &Op<u64, u64, &'static str>| match op {
            Op::Cast(item) | Op::Call(item, _) => Some(*item),
            _ => None,
        };
        let items: Vec<u64> = batch.ops().iter().filter_map(of).collect();
        self.sum += items.iter().sum::<u64>();
        self.log.push(Saw::Batch(items, batch.reason().as_str()));
        Ok((self.script)(batch))
    }

    fn idle(&mut self) {
        self.log.push(Saw::Idle);
    }

    fn recover(&mut self) -> Recover {
        self.recover
    }

    fn terminate(&mut self, reason: &StopReason) {
        self.log.push(Saw::Terminated(reason.to_string()));
    }
}

/// gen_batch_server's rule for tests: the limit grows after a full batch and halves once the mailbox is
/// empty.
#[derive(Clone, Copy)]
pub struct Gbs {
    pub limit: u64,
    pub min: u64,
    pub max: u64,
    /// The number of items by which the limit grows after a full batch; 0 doubles the limit instead.
    pub step: u64,
    pub linger_ns: u64,
}

impl Gbs {
    pub fn new(min: u64, max: u64) -> Self {
        Self {
            limit: min,
            min,
            max,
            step: 0,
            linger_ns: 0,
        }
    }

    pub fn fixed(limit: u64) -> Self {
        Self::new(limit, limit)
    }

    pub fn controller(self) -> impl Controller {
        Ruled::new(self)
    }
}

impl Rule for Gbs {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn observe(&mut self, b: Observed) {
        if b.full {
            let grown = match self.step {
                0 => self.limit * 2,
                step => self.limit + step,
            };
            self.limit = grown.min(self.max);
        } else if b.left.items == 0 {
            self.limit = (self.limit / 2).max(self.min);
        }
    }

    fn linger_ns(&self) -> u64 {
        self.linger_ns
    }
}

pub fn builder() -> Builder<u64> {
    Builder::new()
}

/// Waits for a condition that another thread makes true, without a fixed time.
pub fn until(mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < LONG, "it never came true");
        std::thread::yield_now();
    }
}

/// Runs a future on this thread, without any runtime.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut cx = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

/// Panics without a message in the output of the test, because the test expects the panic.
pub fn quiet_panic() -> ! {
    std::panic::resume_unwind(Box::new("on purpose"))
}

/// Sends an item from this thread and waits for its answer.
pub fn call(handle: &H, item: u64) -> u64 {
    handle.blocking_call(item).unwrap()
}

/// Waits on this thread until the actor has handled all accepted items.
pub fn drain(handle: &H) {
    handle.blocking_drain(LONG).unwrap();
}

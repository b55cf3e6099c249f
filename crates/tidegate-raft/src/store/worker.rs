//! Runs slow jobs away from the loop, one after the other: on a thread, or in a simulation on the caller that
//! steps it.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

/// The executor of the jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// A thread of its own.
    Thread,
    /// The caller of [`Worker::step`].
    #[cfg(feature = "sim")]
    Caller,
}

/// See the [module](self).
pub(super) struct Worker<J> {
    /// `None` once the worker is to end.
    ask: Option<SyncSender<J>>,
    thread: Option<JoinHandle<()>>,
    /// Does one waiting job, if there is no thread, and returns whether there was one.
    #[cfg(feature = "sim")]
    here: Option<Box<dyn FnMut() -> bool + Send>>,
}

impl<J: Send + 'static> Worker<J> {
    /// Starts a worker that calls `work` for each job. At most `waiting_max` jobs wait.
    pub(super) fn start(
        by: By,
        name: &str,
        waiting_max: usize,
        work: impl FnMut(J) + Send + 'static,
    ) -> io::Result<Self> {
        let (ask, jobs) = sync_channel(waiting_max);
        let mut worker = Self {
            ask: Some(ask),
            thread: None,
            #[cfg(feature = "sim")]
            here: None,
        };
        match by {
            By::Thread => {
                let thread = std::thread::Builder::new().name(name.to_owned());
                worker.thread = Some(thread.spawn(move || jobs.into_iter().for_each(work))?);
            }
            #[cfg(feature = "sim")]
            By::Caller => {
                let mut work = work;
                worker.here = Some(Box::new(move || jobs.try_recv().map(&mut work).is_ok()));
            }
        }
        Ok(worker)
    }

    /// Queues a job and returns whether there was room. If the work panicked, there is never room again; the
    /// panic has been printed.
    pub(super) fn ask(&self, job: J) -> bool {
        let asked = self.ask.as_ref().map(|ask| ask.try_send(job).is_ok());
        asked == Some(true)
    }

    /// Does one waiting job, if there is no thread. Returns whether there was one.
    #[cfg(feature = "sim")]
    pub(super) fn step(&mut self) -> bool {
        self.here.as_mut().is_some_and(|step| step())
    }
}

impl<J> Worker<J> {
    /// Waits until all jobs are done.
    pub(super) fn end(&mut self) {
        self.ask = None;
        if let Some(thread) = self.thread.take() {
            // The panic hook has printed a panic, and `Drop` has no caller to hand it to.
            let _ = thread.join();
        }
    }
}

impl<J> Drop for Worker<J> {
    fn drop(&mut self) {
        self.end();
    }
}

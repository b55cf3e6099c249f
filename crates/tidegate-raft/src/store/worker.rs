//! Runs slow jobs of the store, one after the other, on a thread, so that the event loop does not wait for
//! them. In a simulation, calls of [`Worker::step`] run the jobs.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

/// The choice of the thread that runs a worker's jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// A thread that the worker starts runs the jobs.
    Thread,
    /// The thread that calls [`Worker::step`] runs the jobs, in a simulation.
    #[cfg(feature = "sim")]
    Caller,
}

/// Runs jobs one after the other outside of the event loop; see the [module](self).
pub(super) struct Worker<J> {
    /// The sender of the worker's queue of jobs; `None` once the worker must end.
    ask: Option<SyncSender<J>>,
    thread: Option<JoinHandle<()>>,
    /// A function that does one waiting job and returns whether a job waited; `None` if a thread of the
    /// worker runs the jobs.
    #[cfg(feature = "sim")]
    here: Option<Box<dyn FnMut() -> bool + Send>>,
}

impl<J: Send + 'static> Worker<J> {
    /// Starts a worker that calls `work` for each job. At most `waiting_max` jobs may wait in the worker's
    /// queue.
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

    /// Queues a job, and returns whether the queue had room for it. After a job has panicked, the function
    /// always returns false; the panic hook has printed the panic.
    pub(super) fn ask(&self, job: J) -> bool {
        let asked = self.ask.as_ref().map(|ask| ask.try_send(job).is_ok());
        asked == Some(true)
    }

    /// Does one waiting job on the calling thread, unless a thread of the worker runs the jobs. Returns
    /// whether a job waited.
    #[cfg(feature = "sim")]
    pub(super) fn step(&mut self) -> bool {
        self.here.as_mut().is_some_and(|step| step())
    }
}

impl<J> Worker<J> {
    /// Waits until the worker has done all queued jobs, and ends the worker's thread.
    pub(super) fn end(&mut self) {
        self.ask = None;
        if let Some(thread) = self.thread.take() {
            // If a job panicked, the panic hook has printed the panic already. `Drop` cannot return an error
            // to a caller, so it ignores the panic.
            let _ = thread.join();
        }
    }
}

impl<J> Drop for Worker<J> {
    fn drop(&mut self) {
        self.end();
    }
}

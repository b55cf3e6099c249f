//! Runs slow jobs outside of the event loop, one after the other: on a thread or, in a simulation, in calls
//! of [`Worker::step`].

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

/// The choice of the thread that runs the jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// A new thread runs the jobs.
    Thread,
    /// The thread that calls [`Worker::step`] runs the jobs.
    #[cfg(feature = "sim")]
    Caller,
}

/// A worker that runs jobs, see the [module](self).
pub(super) struct Worker<J> {
    /// The queue of jobs; `None` once the worker is to end.
    ask: Option<SyncSender<J>>,
    thread: Option<JoinHandle<()>>,
    /// A function that does one waiting job and returns whether there was a job; `None` if a thread runs the
    /// jobs.
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

    /// Queues a job, and returns whether there was room for it. If a job has panicked, there is never room
    /// again; the panic hook has printed the panic.
    pub(super) fn ask(&self, job: J) -> bool {
        let asked = self.ask.as_ref().map(|ask| ask.try_send(job).is_ok());
        asked == Some(true)
    }

    /// Does one waiting job, unless a thread runs the jobs. Returns whether there was a job.
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
            // If a job panicked, the panic hook has printed the panic, and `Drop` cannot return an error to a
            // caller.
            let _ = thread.join();
        }
    }
}

impl<J> Drop for Worker<J> {
    fn drop(&mut self) {
        self.end();
    }
}

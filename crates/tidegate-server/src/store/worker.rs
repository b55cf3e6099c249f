//! Work that would hold up the loop: done one job after the other by a thread, or, in a simulation, by whoever steps it.

use std::io;
use std::marker::PhantomData;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// A thread of its own.
    Thread,
    /// Whoever calls [`Worker::step`].
    #[cfg(feature = "sim")]
    Caller,
}

/// See the [module](self).
pub(super) struct Worker<J> {
    /// `None` once it is to end.
    ask: Option<SyncSender<J>>,
    runs: Runs<J>,
}

enum Runs<J> {
    /// The thread has the other end of the jobs.
    Thread(Option<JoinHandle<()>>, PhantomData<fn(J)>),
    #[cfg(feature = "sim")]
    Caller(Receiver<J>, Box<dyn FnMut(J) + Send>),
}

impl<J: Send + 'static> Worker<J> {
    /// Has `work` done for each job, of which so many may wait.
    pub(super) fn start(
        by: By,
        name: &str,
        waiting_max: usize,
        work: impl FnMut(J) + Send + 'static,
    ) -> io::Result<Self> {
        let (ask, jobs) = sync_channel(waiting_max);
        let runs = match by {
            By::Thread => {
                let thread = std::thread::Builder::new().name(name.to_owned());
                Runs::Thread(Some(thread.spawn(move || run(&jobs, work))?), PhantomData)
            }
            #[cfg(feature = "sim")]
            By::Caller => Runs::Caller(jobs, Box::new(work)),
        };
        Ok(Self {
            ask: Some(ask),
            runs,
        })
    }

    /// Whether there was room for the job. There is none for ever if the work panicked, which has been printed.
    pub(super) fn ask(&self, job: J) -> bool {
        self.ask
            .as_ref()
            .is_some_and(|ask| ask.try_send(job).is_ok())
    }

    /// Does a job that waits; whether there was one.
    #[cfg(feature = "sim")]
    pub(super) fn step(&mut self) -> bool {
        let Runs::Caller(jobs, work) = &mut self.runs else {
            return false;
        };
        let job = jobs.try_recv();
        job.is_ok_and(|job| {
            work(job);
            true
        })
    }
}

impl<J> Worker<J> {
    /// Waits until all jobs are done.
    pub(super) fn end(&mut self) {
        self.ask = None;
        match &mut self.runs {
            Runs::Thread(thread, _) => {
                if let Some(thread) = thread.take() {
                    // A panic there has been printed; there is nobody to hand it to.
                    let _ = thread.join();
                }
            }
            #[cfg(feature = "sim")]
            Runs::Caller(..) => {}
        }
    }
}

impl<J> Drop for Worker<J> {
    fn drop(&mut self) {
        self.end();
    }
}

fn run<J>(jobs: &Receiver<J>, mut work: impl FnMut(J)) {
    for job in jobs {
        work(job);
    }
}

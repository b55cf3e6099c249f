//! Origins in other clusters: a thread fetches the messages that mirrors and sources of this server take in
//! from a remote, a server of Tidegate or of nats-server.
//!
//! The leader of a stream sends the same request as to an origin of its own cluster, and gets the same
//! answer: messages that follow a progress. The progress is in the replicated state, so the thread keeps
//! nothing that a crash could lose. The loop never waits for the thread: a request that the thread cannot
//! take is lost, and the leader asks again.
//!
//! [`feed`] reads one origin, [`tapped`] reads it by a consumer that the source names, and [`connections`]
//! connects to the clusters.

mod connections;
mod feed;
mod tapped;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tidegate::Time;
use tidegate_cluster::groups::GroupId;
use tidegate_stream::schema::number::DirectoryNumber;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;
use tokio::time::{Instant, timeout};

use self::connections::Connections;
use self::feed::Feed;
use super::Server;
use super::handle::Handle;
use crate::config::Remote;
use crate::streams::taking::{Answer, Fetched, Request};

/// The most requests, and the most answers, that wait between the loop and the thread.
const WAITING_MAX: usize = 1024;
/// The time without a request after which the thread forgets an origin.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// The loop's side of the thread. The thread starts with the first request.
#[derive(Debug)]
pub(super) struct RemoteOrigins {
    handle: Handle,
    remotes: Arc<BTreeMap<String, Remote>>,
    thread: Option<Thread>,
}

#[derive(Debug)]
struct Thread {
    requests: mpsc::Sender<Request>,
    answers: Receiver<Fetched>,
}

impl RemoteOrigins {
    pub(super) fn new(handle: &Handle, remotes: BTreeMap<String, Remote>) -> Self {
        Self {
            handle: handle.clone(),
            remotes: Arc::new(remotes),
            thread: None,
        }
    }

    /// Adopts changed remotes. The thread with the old ones ends, because nothing sends it requests any more.
    pub(super) fn reload(&mut self, remotes: &BTreeMap<String, Remote>) {
        if *self.remotes != *remotes {
            self.remotes = Arc::new(remotes.clone());
            self.thread = None;
        }
    }

    /// Hands a request to the thread. If too many requests wait, this one is lost.
    fn ask(&mut self, request: Request) {
        if self.thread.is_none() {
            match start(&self.handle, Arc::clone(&self.remotes)) {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => {
                    tracing::error!(
                        "the server cannot start the thread that fetches messages from other clusters, so streams with an origin there get no messages: {error}"
                    );
                    return;
                }
            }
        }
        if let Some(thread) = &self.thread {
            let _ = thread.requests.try_send(request);
        }
    }

    fn poll(&mut self) -> Option<Fetched> {
        self.thread.as_ref()?.answers.try_recv().ok()
    }
}

impl Server {
    /// Hands requests for origins in other clusters to the thread, and the thread's answers to the streams.
    pub(super) fn turn_remotes(&mut self, now: Time) {
        while let Some(request) = self.node.poll_fetch() {
            self.remote_origins.ask(*request);
        }
        while let Some(fetched) = self.remote_origins.poll() {
            self.node.handle_fetched(now, fetched);
        }
    }
}

fn start(handle: &Handle, remotes: Arc<BTreeMap<String, Remote>>) -> std::io::Result<Thread> {
    let (requests, asked) = mpsc::channel(WAITING_MAX);
    let (given, answers) = sync_channel(WAITING_MAX);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = handle.clone();
    std::thread::Builder::new()
        .name("remotes".into())
        .spawn(move || {
            let tasks = LocalSet::new();
            let give = Give { to: given, handle };
            tasks.block_on(&runtime, serve(asked, give, remotes));
            // The tasks hold connections of the client library, which end only within the runtime.
            let _within = runtime.enter();
            drop(tasks);
        })?;
    Ok(Thread { requests, answers })
}

/// The way of answers back to the loop.
#[derive(Clone)]
struct Give {
    to: SyncSender<Fetched>,
    handle: Handle,
}

impl Give {
    /// Hands an answer to the loop. A loop that is behind loses it, and the leader asks again.
    fn give(&self, request: &Request, answer: Answer) {
        let fetched = Fetched {
            group: request.group,
            target: request.target,
            key: request.source.key(),
            answer,
        };
        if self.to.try_send(fetched).is_ok() {
            self.handle.wake();
        }
    }
}

type Key = (GroupId, DirectoryNumber, String);

/// A request, with the time at which it arrived.
#[derive(Clone, Debug)]
struct Asked {
    request: Request,
    at: Instant,
}

/// Hands each request to the task of its origin, until the loop drops the queue.
async fn serve(
    mut asked: mpsc::Receiver<Request>,
    give: Give,
    remotes: Arc<BTreeMap<String, Remote>>,
) {
    let connections = Rc::new(Connections::new(remotes));
    let tasks: Rc<RefCell<BTreeMap<Key, watch::Sender<Asked>>>> = Rc::default();
    while let Some(request) = asked.recv().await {
        let key = (request.group, request.target, request.source.key());
        let asked = Asked {
            request,
            at: Instant::now(),
        };
        if let Some(task) = tasks.borrow().get(&key) {
            task.send_replace(asked);
            continue;
        }
        let (task, newest) = watch::channel(asked);
        tasks.borrow_mut().insert(key.clone(), task);
        let (give, connections, tasks) = (give.clone(), Rc::clone(&connections), Rc::clone(&tasks));
        tokio::task::spawn_local(async move {
            follow(newest, &give, &connections).await;
            tasks.borrow_mut().remove(&key);
        });
    }
}

/// Answers the newest request for one origin again and again, until no request comes for [`FORGOTTEN`].
async fn follow(mut newest: watch::Receiver<Asked>, give: &Give, connections: &Connections) {
    let mut feed = Feed::default();
    let mut last: Option<(Request, Instant)> = None;
    let mut complained = String::new();
    loop {
        let Asked { request, at } = newest.borrow_and_update().clone();
        // The leader repeats a request while it waits. A repetition that came before the answer needs no
        // second answer.
        let repeated = last
            .as_ref()
            .is_some_and(|(answered, answered_at)| *answered == request && at <= *answered_at);
        if !repeated {
            let answer = match feed.answer(connections, &request).await {
                Ok(answer) => {
                    complained.clear();
                    answer
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != complained {
                        tracing::warn!(
                            "the server cannot fetch the messages of a stream's origin in another cluster: {text}; the server tries again"
                        );
                        complained = text;
                    }
                    Answer::refused(error)
                }
            };
            give.give(&request, answer);
            last = Some((request, Instant::now()));
        }
        match timeout(FORGOTTEN, newest.changed()).await {
            Ok(Ok(())) => {}
            _ => return feed.close(connections).await,
        }
    }
}

//! The settings of a batching actor, and the functions that start the actor.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::{fmt, thread};

use super::actor::Actor;
use super::arrivals::Arrivals;
use super::core::Core;
use super::error::SpawnError;
use super::gate::Gate;
use super::handle::Handle;
use super::handler::Handler;
use super::inspect::Inbox;
use super::keys::KeyOf;
use super::mend::Factory;
use super::reply::{Reply, ReplyError, Request, pair};
use super::shared::{Life, Shared, Stamp, Weigh, Weights};
use super::stats::Counters;
use crate::Clock;
use crate::boundary::Boundary;
use crate::controller::{Bounds, Controller, IntoController, Knee, Objective};
use crate::queue::{self, Wait};

/// The response of a send to an actor that has no room for the item. A send in a `try_` form ignores this
/// setting and never waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Full {
    /// The send waits until the actor has room.
    #[default]
    Wait,
    /// If the actor has no room, the send refuses the item and gives it back.
    Reject,
}

/// The actor's treatment of an item that weighs more than a whole batch may weigh ([`Bounds::bytes_max`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Oversized {
    /// An item heavier than [`Bounds::bytes_max`] forms a batch alone. The send still refuses an item that
    /// weighs 2^32 or more.
    #[default]
    Alone,
    /// The send refuses an item heavier than [`Bounds::bytes_max`] and gives it back with
    /// [`SendError::Oversized`](super::SendError::Oversized).
    Refuse,
}

/// Builds an actor. Every setting has a default.
///
/// ```
/// use tidegate::batcher::{Builder, map_batch};
/// use tidegate::controller::{Bounds, Objective};
///
/// let lengths = Builder::new()
///     .name("lengths")
///     .capacity(1000)
///     .bounds(Bounds::items(1, 100))
///     .objective(Objective::Throughput)
///     .spawn(map_batch(|words: &mut Vec<&str>| words.iter().map(|word| word.len()).collect()))?;
/// assert_eq!(lengths.blocking_call("tide")?, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Builder<T> {
    name: String,
    capacity: usize,
    capacity_bytes: u64,
    full: Full,
    wait: Wait,
    oversized: Oversized,
    weigh: Option<Weigh<T>>,
    bounds: Bounds,
    control: Control,
    pub(super) key: Option<KeyOf<T>>,
    pub(super) in_flight_max: Option<u32>,
}

enum Control {
    Objective(Objective),
    Controller(Box<dyn Controller>),
}

impl<T: Send + 'static> Builder<T> {
    /// Creates a builder with the default settings of an actor.
    #[must_use]
    pub fn new() -> Self {
        Self {
            name: "batcher".to_owned(),
            capacity: 16_384,
            capacity_bytes: u64::MAX,
            full: Full::Wait,
            wait: Wait::Progressive,
            oversized: Oversized::Alone,
            weigh: None,
            bounds: Bounds::default(),
            control: Control::Objective(Objective::Lean),
            key: None,
            in_flight_max: None,
        }
    }

    /// Sets the name of the actor's thread. An actor that runs as a task has no name and ignores this
    /// setting. The default is "batcher".
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the greatest number of items that may wait in the actor's queue. The queue allocates memory for
    /// all of them at the start. Four kinds of items do not count: those that the actor has set aside while
    /// it waits to fill its next batch, those set aside for busy keys ([`Builder::key`]), those in the
    /// buffers of [`Caster`](super::Caster)s, and those that the handler gave back. The default is 16384.
    #[must_use]
    pub const fn capacity(mut self, items: usize) -> Self {
        self.capacity = items;
        self
    }

    /// Sets the greatest number of bytes that may wait in the actor's queue, by the weight function of
    /// [`Builder::weigh`]. Without `weigh`, spawning fails with [`SpawnError::NoWeights`]. The actor accepts
    /// a single heavier item when nothing else waits, and items that the handler gives back always find room.
    /// Threads and tasks that wait for room take turns and get about equal shares of it; no item starves
    /// behind smaller ones. A waiter that has its turn and does not use it delays the other waiters once, for
    /// a tenth of a second. The default is no bound.
    #[must_use]
    pub const fn capacity_bytes(mut self, bytes: u64) -> Self {
        self.capacity_bytes = bytes;
        self
    }

    /// Sets the function that weighs an item: in bytes, or in another unit that [`Bounds::bytes_max`] and
    /// [`Builder::capacity_bytes`] bound. The sender of an item calls the function once, and the actor
    /// calls it again when the handler gives the item back. A send refuses an item that weighs 2^32 or
    /// more, even with [`Oversized::Alone`] ([`SendError::Oversized`](super::SendError::Oversized)): weigh
    /// heavier items in a larger unit, such as KiB. By default items have no weight.
    #[must_use]
    pub fn weigh(mut self, weigh: impl Fn(&T) -> u64 + Send + Sync + 'static) -> Self {
        self.weigh = Some(Box::new(weigh));
        self
    }

    /// Keeps the items of each key in order if several batches run at once: at most one batch in flight
    /// holds items of a key. Items of a busy key wait, in order, while items of other keys pass them. The
    /// actor sets at most [`Builder::capacity`] items aside for busy keys. At this bound, the actor takes
    /// no further items out of the queue, and items of every key wait. Keys with equal hashes count as one
    /// key. Messages ([`Op::Info`](super::Op::Info)) have no key. A handler that runs one batch at a time
    /// keeps all items in order; its actor never calls `key`.
    #[must_use]
    pub fn key<K: Hash>(mut self, key: impl Fn(&T) -> K + Send + Sync + 'static) -> Self {
        self.key = Some(Box::new(move |item| {
            let mut hasher = DefaultHasher::new();
            key(item).hash(&mut hasher);
            hasher.finish()
        }));
        self
    }

    /// Sets the greatest number of batches that run at once, if the form of the handler allows several
    /// ([`Dispatcher`](super::Dispatcher), `SharedHandler`). The controller decides how many of them run.
    /// [`Knee`] runs at most 1024, and any controller at most 65,536 ([`Boundary::IN_FLIGHT_MAX`]). A `Knee`
    /// or a rule given to [`Builder::controller`] has a number of its own, one by default, which this setting
    /// does not raise. The default is [`Bounds::in_flight_max`], or 64 if the bounds set none.
    #[must_use]
    pub const fn in_flight_max(mut self, batches: u32) -> Self {
        self.in_flight_max = Some(batches);
        self
    }

    /// Sets how a send without a `try_` form acts if the actor has no room. The default is [`Full::Wait`].
    #[must_use]
    pub const fn full(mut self, full: Full) -> Self {
        self.full = full;
        self
    }

    /// Sets how the actor's thread waits for items, and how the threads of senders wait for room. The
    /// default is [`Wait::Progressive`].
    #[must_use]
    pub const fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Sets how the actor treats an item that weighs more than [`Bounds::bytes_max`]. The default is
    /// [`Oversized::Alone`].
    #[must_use]
    pub const fn oversized(mut self, oversized: Oversized) -> Self {
        self.oversized = oversized;
        self
    }

    /// Sets the hard limits of every batch, which no decision of the controller exceeds. The default is
    /// [`Bounds::default`].
    #[must_use]
    pub const fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Sets the objective by which the default controller, [`Knee`], finds the size of the batches. The
    /// default is [`Objective::Lean`].
    #[must_use]
    pub fn objective(mut self, objective: Objective) -> Self {
        self.control = Control::Objective(objective);
        self
    }

    /// Sets a controller in place of an objective. The controller decides how many items the next batch
    /// takes, when the batch starts, and how many batches run at once. A rule runs one batch at a time,
    /// even if the handler's form allows several, unless its configuration says otherwise
    /// (`Greedy.with_in_flight(64)`). A [`Knee`] also runs one batch at a time unless the bounds given to
    /// [`Knee::new`] set [`Bounds::in_flight_max`]; it waits for callers only after [`Knee::anticipating`].
    #[must_use]
    pub fn controller(
        mut self,
        controller: impl IntoController<Controller: Controller + 'static>,
    ) -> Self {
        self.control = Control::Controller(Box::new(controller.into_controller()));
        self
    }

    pub(super) const fn several(&self) -> u32 {
        match (self.in_flight_max, self.bounds.in_flight_max) {
            (Some(most), _) | (None, Some(most)) => most,
            (None, None) => IN_FLIGHT_MAX,
        }
    }

    /// Starts the actor on a thread of its own. Blocks the calling thread until the handler's `init`
    /// returns, even if that thread polls a task.
    ///
    /// # Errors
    /// The settings are impossible, the operating system starts no thread, or the handler does not start.
    pub fn spawn<H>(self, handler: H) -> Result<Handle<T, H::Reply, H::Info>, SpawnError>
    where
        H: Handler<Item = T> + Send,
    {
        self.spawn_thread(once(handler))
    }

    /// Starts the actor like [`Builder::spawn`], with a factory that makes the handler on the actor's own
    /// thread. The handler never leaves that thread, so it need not be `Send`. After a panic of the
    /// handler, the factory makes a new one: see [`Handler::recover`].
    ///
    /// # Errors
    /// The settings are impossible, the operating system starts no thread, or the handler does not start.
    pub fn spawn_with<H, F>(
        self,
        mut factory: F,
    ) -> Result<Handle<T, H::Reply, H::Info>, SpawnError>
    where
        H: Handler<Item = T>,
        F: FnMut() -> H + Send + 'static,
    {
        self.spawn_thread(Box::new(move || Some(factory())))
    }

    fn spawn_thread<H: Handler<Item = T>>(
        self,
        factory: Factory<H>,
    ) -> Result<Handle<T, H::Reply, H::Info>, SpawnError> {
        let name = self.thread_name()?;
        let (handle, actor) = self.build()?;
        let (started, ready): (Reply<()>, Request<()>) = pair();
        thread::Builder::new()
            .name(name)
            .spawn(move || super::thread::run(actor, factory, started))
            .map_err(SpawnError::Thread)?;
        // The actor's thread starts the handler, so this wait for the start ends even if the calling thread
        // polls a task.
        ready.wait().map_err(not_started)?;
        Ok(handle)
    }

    /// Returns the name of the actor's thread, or an error if the operating system allows no thread of this
    /// name.
    pub(super) fn thread_name(&self) -> Result<String, SpawnError> {
        if self.name.contains('\0') {
            let error = "a name with a zero byte";
            return Err(SpawnError::Thread(std::io::Error::new(
                std::io::ErrorKind::InvalidInput,
                error,
            )));
        }
        Ok(self.name.clone())
    }

    /// Builds the handle and the actor, without a driver, for an actor that runs one batch at a time.
    pub(super) fn build<R: Send, M: Send>(mut self) -> Result<Halves<T, R, M>, SpawnError> {
        self.bounds.in_flight_max = Some(self.bounds.in_flight().min(1));
        self.build_halves()
    }

    /// Builds the handle and the actor, without a driver, for an actor that runs several batches at once.
    pub(super) fn build_several<R: Send, M: Send>(mut self) -> Result<Halves<T, R, M>, SpawnError> {
        self.bounds.in_flight_max = Some(self.several());
        let (key, held_max) = (self.key.take(), self.capacity);
        let (handle, mut actor) = self.build_halves()?;
        if let Some(key) = key {
            actor.keep_order(key, held_max);
        }
        Ok((handle, actor))
    }

    fn build_halves<R: Send, M: Send>(self) -> Result<Halves<T, R, M>, SpawnError> {
        if self.capacity_bytes == 0 {
            return Err(SpawnError::ZeroBytes);
        }
        if self.capacity_bytes < u64::MAX && self.weigh.is_none() {
            return Err(SpawnError::NoWeights);
        }
        let controller: Box<dyn Controller> = match self.control {
            Control::Controller(controller) => controller,
            Control::Objective(objective) => {
                // Callers often call again after their answers, so the default controller may hold a batch
                // back for them.
                let knee = Knee::new(objective, self.bounds).map_err(SpawnError::Knee)?;
                Box::new(knee.anticipating())
            }
        };
        let boundary = Boundary::new(controller, self.bounds).map_err(SpawnError::Bounds)?;
        let arrivals = boundary.wants_arrivals().then(Arrivals::new);
        let full = match self.full {
            Full::Wait => queue::Full::Wait,
            Full::Reject => queue::Full::Reject,
        };
        let (queue, consumer) = queue::Builder::new(self.capacity)
            .wait(self.wait)
            .full(full)
            .build()
            .map_err(SpawnError::Queue)?;
        let item_max = match self.oversized {
            Oversized::Alone => u64::MAX,
            Oversized::Refuse => self.bounds.bytes_max,
        };
        let capacity_bytes = self.capacity_bytes;
        let shared = Arc::new(Shared {
            queue,
            stamp: Stamp::new(),
            clock: Clock::start(),
            arrivals,
            weights: self.weigh.map(|of| Weights {
                of,
                item_max,
                gate: Gate::new(capacity_bytes),
            }),
            waits: self.full == Full::Wait,
            life: Life::new(),
            inbox: Inbox::new(),
            counters: Counters::new(),
        });
        let actor = Actor::new(Arc::clone(&shared), consumer, Core::new(boundary));
        Ok((Handle::new(shared), actor))
    }
}

/// The greatest number of batches that run at once in an actor of several batches, unless the user sets
/// another bound.
const IN_FLIGHT_MAX: u32 = 64;

/// The two sides of an actor that its builder makes: the handle of its senders, and the actor itself, which a
/// driver runs.
type Halves<T, R, M> = (Handle<T, R, M>, Actor<T, R, M>);

impl<T: Send + 'static> Default for Builder<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Builder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("capacity", &self.capacity)
            .field("capacity_bytes", &self.capacity_bytes)
            .field("full", &self.full)
            .field("oversized", &self.oversized)
            .field("weighs", &self.weigh.is_some())
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}

pub(super) fn once<H: Send + 'static>(handler: H) -> Factory<H> {
    let mut handler = Some(handler);
    Box::new(move || handler.take())
}

pub(super) fn not_started(error: ReplyError) -> SpawnError {
    match error {
        ReplyError::Failed(cause) => SpawnError::Refused(cause),
        ReplyError::Abandoned => SpawnError::Abandoned,
        _ => SpawnError::Panicked,
    }
}

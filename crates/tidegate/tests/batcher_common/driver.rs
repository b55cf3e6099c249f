//! Runs the same tests with both drivers of an actor: the driver on a thread and the driver on a task.

use tidegate::batcher::{Builder, Handle, Handler, SpawnError};

/// The way in which a driver starts a handler, so that a test runs with each driver.
pub trait Driver {
    fn start<X>(
        builder: Builder<u64>,
        handler: X,
    ) -> Result<Handle<u64, X::Reply, X::Info>, SpawnError>
    where
        X: Handler<Item = u64> + Send;

    fn start_with<X, F>(
        builder: Builder<u64>,
        factory: F,
    ) -> Result<Handle<u64, X::Reply, X::Info>, SpawnError>
    where
        X: Handler<Item = u64> + Send,
        F: FnMut() -> X + Send + 'static;
}

pub struct Thread;

impl Driver for Thread {
    fn start<X>(
        builder: Builder<u64>,
        handler: X,
    ) -> Result<Handle<u64, X::Reply, X::Info>, SpawnError>
    where
        X: Handler<Item = u64> + Send,
    {
        builder.spawn(handler)
    }

    fn start_with<X, F>(
        builder: Builder<u64>,
        factory: F,
    ) -> Result<Handle<u64, X::Reply, X::Info>, SpawnError>
    where
        X: Handler<Item = u64> + Send,
        F: FnMut() -> X + Send + 'static,
    {
        builder.spawn_with(factory)
    }
}

#[cfg(feature = "tokio")]
pub struct Task;

#[cfg(feature = "tokio")]
fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: std::sync::OnceLock<tokio::runtime::Runtime> = std::sync::OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            // Tests block handlers, and a blocked handler occupies its worker thread, so the runtime has many
            // of them.
            .worker_threads(64)
            .enable_time()
            .build()
            .unwrap()
    })
}

#[cfg(feature = "tokio")]
impl Driver for Task {
    fn start<X>(
        builder: Builder<u64>,
        handler: X,
    ) -> Result<Handle<u64, X::Reply, X::Info>, SpawnError>
    where
        X: Handler<Item = u64> + Send,
    {
        runtime().block_on(builder.spawn_task(handler))
    }

    fn start_with<X, F>(
        builder: Builder<u64>,
        factory: F,
    ) -> Result<Handle<u64, X::Reply, X::Info>, SpawnError>
    where
        X: Handler<Item = u64> + Send,
        F: FnMut() -> X + Send + 'static,
    {
        runtime().block_on(builder.spawn_task_with(factory))
    }
}

/// Turns each function into two tests: one for each driver.
#[macro_export]
macro_rules! tests {
    ($($name:ident)*) => {
        mod thread {
            $(#[test] fn $name() { super::$name::<super::batcher_common::driver::Thread>(); })*
        }
        #[cfg(feature = "tokio")]
        mod task {
            $(#[test] fn $name() { super::$name::<super::batcher_common::driver::Task>(); })*
        }
    };
}

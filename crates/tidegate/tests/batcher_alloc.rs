//! Tests the allocations of an actor: none for a cast, one slot for a call, and large buffers only while the
//! actor is busy.
//!
//! The tests have a process of their own and run one after the other, because they count every
//! allocation of the process.
#![allow(unsafe_code, clippy::unwrap_used)]

mod batcher_common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, MutexGuard};

use batcher_common::{LONG, until};
use tidegate::batcher::{Batch, Builder, Flow, Handle, Handled, Handler, Op};
use tidegate::controller::Greedy;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work; counting does not change its behaviour.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, SeqCst);
        LIVE.fetch_add(layout.size(), SeqCst);
        // SAFETY: the caller makes the same promise to this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), SeqCst);
        // SAFETY: the caller makes the same promise to this function.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

struct Sum(u64);

impl Handler for Sum {
    type Item = u64;
    type Reply = u64;
    type Info = std::convert::Infallible;

    fn handle_batch(&mut self, batch: &mut Batch<u64, u64>) -> Handled {
        for op in batch.drain() {
            match op {
                Op::Cast(n) => self.0 += n,
                Op::Call(n, reply) => {
                    self.0 += n;
                    reply.send(self.0);
                }
                _ => {}
            }
        }
        Ok(Flow::Continue)
    }
}

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap()
}

const ROUND: u64 = 10_000;

fn casts(handle: &Handle<u64, u64>) {
    for n in 0..ROUND {
        handle.blocking_cast(n).unwrap();
    }
    handle.blocking_call(0).unwrap();
}

#[test]
fn a_cast_allocates_nothing_and_a_call_one_slot() {
    let _alone = alone();
    let live = LIVE.load(SeqCst);
    let handle = Builder::new().spawn(Sum(0)).unwrap();
    let mut caster = handle.buffered();
    let mut round = |n: u64| {
        casts(&handle);
        (0..ROUND).for_each(|n| caster.blocking_cast(n).unwrap());
        caster.blocking_flush().unwrap();
        for n in 0..n {
            handle.blocking_call(n).unwrap();
        }
    };
    // The test casts until the buffers are large enough for most batches, because growing them allocates.
    for _ in 0..200 {
        round(1);
    }
    // The actor may still gather larger batches than before, up to the limit, and allocate memory for them.
    let before = ALLOCATIONS.load(SeqCst);
    for _ in 0..100 {
        round(10);
    }
    let allocations = ALLOCATIONS.load(SeqCst) - before;
    let calls = 100 * 11;
    println!("2 M casts and {calls} calls: {allocations} allocations");
    assert!(
        (calls..calls + 20).contains(&allocations),
        "2 M casts and {calls} calls: {allocations} allocations"
    );
    // The actor frees all of its memory at its end.
    drop(caster);
    drop(handle);
    until(|| LIVE.load(SeqCst) < live + 16_384);
}

/// The actor frees the memory that a burst of items needed. (In other projects the memory of idle keys
/// stayed; this actor has no keys.)
#[test]
fn regression_13_idle_memory_is_given_back() {
    let _alone = alone();
    let handle = Builder::new()
        .controller(Greedy.controller())
        .spawn(Sum(0))
        .unwrap();
    // An inspection blocks the actor, so that the actor finds the burst in one piece.
    let door = Arc::new(Barrier::new(2));
    let visiting = std::thread::spawn({
        let (handle, door) = (handle.clone(), Arc::clone(&door));
        move || {
            handle.blocking_inspect(move |_: &Sum| {
                door.wait();
                door.wait();
            })
        }
    });
    door.wait();
    (0..8192).for_each(|n| handle.blocking_cast(n).unwrap());
    door.wait();
    visiting.join().unwrap().unwrap();
    handle.blocking_call(0).unwrap();
    assert_eq!(handle.stats().items_max, 8192);
    let busy = LIVE.load(SeqCst);
    let buffer = 8192 * size_of::<Op<u64, u64, std::convert::Infallible>>();
    until(|| LIVE.load(SeqCst) + buffer / 2 < busy);
    // The actor must wake up again for new items, after it freed its memory.
    casts(&handle);
    handle.blocking_drain(LONG).unwrap();
}

#[test]
fn ten_thousand_idle_casters_cost_little_memory() {
    let _alone = alone();
    let handle = Builder::new().spawn(Sum(0)).unwrap();
    let before = LIVE.load(SeqCst);
    let mut casters: Vec<_> = (0..10_000).map(|_| handle.buffered()).collect();
    let made = LIVE.load(SeqCst) - before;
    assert!(made < 16 << 20, "{made} bytes for casters without items");
    for caster in &mut casters {
        caster.blocking_cast(1).unwrap();
        caster.blocking_cast(2).unwrap();
    }
    let used = LIVE.load(SeqCst) - before;
    println!("10,000 casters: {made} bytes without items, {used} with one or two each");
    assert!(used < 24 << 20, "{used} bytes for casters with few items");
    drop(casters);
    assert_eq!(handle.blocking_call(0).unwrap(), 30_000);
    handle.blocking_drain(LONG).unwrap();
}

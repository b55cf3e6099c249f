//! Measures a rival. The functions are generic over the rival, so that no indirect call stands between the
//! rival's calls and the loop around them.

use std::hint;
use std::mem::MaybeUninit;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::histogram::Histogram;
use crate::peers::{Drain, Push};

/// The result of a run that measures a rival's throughput.
pub struct Throughput {
    pub elapsed: Duration,
    pub cpu: Duration,
    pub checksum_ok: bool,
}

/// Pushes the numbers `0..items`, split among `producers` threads, to one consumer that adds them up. With a
/// `batch` above 1 each call inserts that many items. Measures the time from the first thread past the
/// barrier until the consumer has received the last item.
pub fn throughput<P: Push + Clone, D: Drain>(
    ends: (P, D),
    producers: u64,
    batch: u64,
    items: u64,
) -> Throughput {
    let (push, mut drain) = ends;
    let barrier = &Barrier::new(producers as usize + 2);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..producers)
            .map(|who| {
                let mut push = push.clone();
                let (mut next, end) = (items * who / producers, items * (who + 1) / producers);
                scope.spawn(move || {
                    barrier.wait();
                    let start = Instant::now();
                    if batch == 1 {
                        for item in next..end {
                            push.push(item);
                        }
                    } else {
                        while next < end {
                            let until = end.min(next + batch);
                            push.push_batch(next..until);
                            next = until;
                        }
                    }
                    start
                })
            })
            .collect();
        let consumer = scope.spawn(move || {
            barrier.wait();
            let start = Instant::now();
            let (mut sum, mut left) = (0u64, items);
            while left > 0 {
                left -= drain.drain(|item| sum = sum.wrapping_add(item));
            }
            (start, Instant::now(), process_cpu(), sum)
        });
        // This thread reads the clock before it opens the barrier, because afterwards it may wait long for a
        // core.
        let cpu_before = process_cpu();
        barrier.wait();
        let (mut first, last, cpu_after, sum) = consumer.join().expect("consumer");
        for thread in threads {
            first = first.min(thread.join().expect("producer"));
        }
        let expected = (u128::from(items) * u128::from(items.saturating_sub(1)) / 2) as u64;
        Throughput {
            elapsed: last - first,
            cpu: cpu_after.saturating_sub(cpu_before),
            checksum_ok: sum == expected,
        }
    })
}

/// The result of a run at a fixed rate, with times in nanoseconds.
pub struct Paced {
    /// The times from the push of an item, with its wait for room, until the consumer received the item.
    pub from_push: Histogram,
    /// The times from the due time of an item until the consumer received the item, free of coordinated
    /// omission.
    pub from_due: Histogram,
    pub elapsed: Duration,
    pub cpu: Duration,
}

/// Runs one producer that pushes an item every `1 / rate` seconds, and keeps to this schedule even if it is
/// late. The consumer waits in its ordinary receive.
pub fn paced<P: Push, D: Drain>(ends: (P, D), rate: f64, seconds: f64) -> Paced {
    let (mut push, mut drain) = ends;
    let items = (rate * seconds) as u64;
    let epoch = Instant::now();
    let due = |item: u64| LEAD.as_nanos() as u64 + (item as f64 * 1e9 / rate) as u64;
    let now = move || epoch.elapsed().as_nanos() as u64;
    let cpu_before = process_cpu();
    thread::scope(|scope| {
        let consumer = scope.spawn(move || {
            let (mut from_push, mut from_due) = (Histogram::new(), Histogram::new());
            let mut item = 0;
            while item < items {
                drain.drain(|pushed| {
                    let seen = now();
                    from_push.record(seen.saturating_sub(pushed));
                    from_due.record(seen.saturating_sub(due(item)));
                    item += 1;
                });
            }
            (
                from_push,
                from_due,
                epoch.elapsed().saturating_sub(LEAD),
                process_cpu(),
            )
        });
        scope.spawn(move || {
            for item in 0..items {
                wait_until(due(item), now);
                push.push(now());
            }
        });
        let (from_push, from_due, elapsed, cpu_after) = consumer.join().expect("consumer");
        Paced {
            from_push,
            from_due,
            elapsed,
            cpu: cpu_after.saturating_sub(cpu_before),
        }
    })
}

/// The time that both threads have to start before the first item is due.
const LEAD: Duration = Duration::from_millis(20);

/// The last part of a wait, in which the producer spins, because a sleep ends about 60 us too late.
const SPIN_NS: u64 = 200_000;

fn wait_until(due: u64, now: impl Fn() -> u64) {
    loop {
        let left = due.saturating_sub(now());
        if left == 0 {
            return;
        }
        if left > 2 * SPIN_NS {
            thread::sleep(Duration::from_nanos(left - SPIN_NS));
        } else {
            hint::spin_loop();
        }
    }
}

/// Returns the nanoseconds in which a cache line travels to another thread and back. Takes the best of
/// several short rounds, because in some rounds both threads may share one core. On a virtual machine the
/// cores behind the processors change at run time (siblings on one core, the same cache, another socket), and
/// with them the cost of every hand-over between threads. So a reader should compare figures only if this
/// time was alike.
pub fn core_round_trip_ns() -> f64 {
    const ROUNDS: usize = 9;
    const TRIPS: u64 = 20_000;
    let turn = &CachePadded(AtomicU64::new(0));
    let rounds = (0..ROUNDS).map(|_| {
        turn.0.store(0, Ordering::Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| {
                for trip in 0..TRIPS {
                    await_turn(&turn.0, 2 * trip + 1);
                    turn.0.store(2 * trip + 2, Ordering::Release);
                }
            });
            let mut start = Instant::now();
            for trip in 0..TRIPS {
                turn.0.store(2 * trip + 1, Ordering::Release);
                await_turn(&turn.0, 2 * trip + 2);
                if trip == 0 {
                    // The time starts after the first trip, because that trip waits for the other thread to
                    // start.
                    start = Instant::now();
                }
            }
            start.elapsed().as_nanos() as f64 / (TRIPS - 1) as f64
        })
    });
    rounds.fold(f64::INFINITY, f64::min)
}

#[repr(align(128))]
struct CachePadded(AtomicU64);

/// Spins until the other thread has set `turn` to `value`. Now and then it yields, because on a busy machine
/// the other thread may need this core.
fn await_turn(turn: &AtomicU64, value: u64) {
    let mut spins = 0u32;
    while turn.load(Ordering::Acquire) != value {
        spins += 1;
        if spins.is_multiple_of(100_000) {
            thread::yield_now();
        }
        // The hint lets the sibling on the same core work. Without it the spins slow the sibling down, and
        // the nearest cores look like the farthest.
        hint::spin_loop();
    }
}

/// Returns the processor time that all threads of this process have used so far.
fn process_cpu() -> Duration {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the pointer is valid for one timespec, which the call fills in when it returns 0.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, time.as_mut_ptr()) };
    assert_eq!(result, 0, "Linux always has this clock");
    // SAFETY: the call succeeded, so it has filled in the time.
    let time = unsafe { time.assume_init() };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

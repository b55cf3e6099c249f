package tidegate.peers;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.locks.LockSupport;
import org.apache.storm.metrics2.StormMetricRegistry;
import org.apache.storm.policy.IWaitStrategy;
import org.apache.storm.policy.WaitStrategyProgressive;
import org.apache.storm.utils.JCQueue;
import org.apache.storm.utils.Utils;

/** The measurements of JCQueue: throughput from producers to one consumer, and latency at a given rate. */
final class QueueRun {
    /** The interval of flushes, the default of Storm's {@code topology.batch.flush.interval.millis}. */
    private static final long TICK_NS = 1_000_000;
    /** The time that both threads have to start before the first item is due. */
    private static final long LEAD_NS = 20_000_000;
    /** The length of the end of a wait in which the producer spins, because a sleep ends about 60 us too late. */
    private static final long SPIN_NS = 200_000;
    private static final int SPINS = 100;
    private static final Map<String, Object> CONF = Utils.readDefaultConfig();
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final JCQueue queue;
    private final int capacity;
    private final int batch;
    private final boolean dynamic;
    private final List<Inserter.Dynamic> inserters = new ArrayList<>();
    /** Counts milliseconds, as Storm's clock for flushes does: a producer flushes when it sees a new count. */
    private volatile long tick;
    private volatile boolean finished;
    private volatile Throwable failure;

    QueueRun(int capacity, int batch, boolean dynamic) {
        this.capacity = capacity;
        this.batch = batch;
        this.dynamic = dynamic;
        queue = new JCQueue("peer", "receive", capacity, 0, dynamic ? 1 : batch, fullWait(), "topology",
                "component", List.of(1), 6700,
                // Each queue has a registry of its own, because a registry refuses a second queue of the same name.
                new StormMetricRegistry());
    }

    record Throughput(double elapsedS, double cpuS, boolean checksumOk, double meanBatch) {
    }

    record Paced(Histogram fromPush, Histogram fromDue, double elapsedS, double cpuS) {
    }

    /**
     * Runs producers that push their shares of {@code 0..items} to one consumer, which polls without sleep and adds the
     * numbers up.
     */
    Throughput throughput(int producers, long items) throws Exception {
        CyclicBarrier barrier = new CyclicBarrier(producers + 2);
        long[] starts = new long[producers + 1];
        long[] end = new long[3];
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < producers; i++) {
            int who = i;
            Inserter inserter = inserter();
            threads.add(thread("producer", () -> {
                long next = items * who / producers;
                long until = items * (who + 1) / producers;
                barrier.await();
                starts[who] = System.nanoTime();
                produce(inserter, next, until);
            }));
        }
        threads.add(thread("consumer", () -> {
            Sum sum = new Sum();
            barrier.await();
            starts[producers] = System.nanoTime();
            for (int idle = 0; sum.count < items && failure == null; ) {
                if (queue.consume(sum) > 0) {
                    idle = 0;
                } else if (++idle < SPINS) {
                    Thread.onSpinWait();
                } else {
                    // If there are more threads than cores, a pure spin would keep the producers from running.
                    Thread.yield();
                }
            }
            end[0] = System.nanoTime();
            end[1] = SYSTEM.getProcessCpuTime();
            end[2] = sum.sum;
            finished = true;
        }));
        threads.forEach(Thread::start);
        Thread ticker = ticker();
        long cpuBefore = SYSTEM.getProcessCpuTime();
        barrier.await();
        finish(threads, ticker);
        long first = Long.MAX_VALUE;
        for (long start : starts) {
            first = Math.min(first, start);
        }
        // The expected sum wraps at 64 bits, as the consumer's sum does.
        long expected = (items & 1) == 0 ? (items >> 1) * (items - 1) : items * ((items - 1) >> 1);
        double meanBatch = inserters.stream().mapToDouble(Inserter.Dynamic::meanBatch).average().orElse(batch);
        return new Throughput((end[0] - first) / 1e9, (end[1] - cpuBefore) / 1e9, end[2] == expected, meanBatch);
    }

    private void produce(Inserter inserter, long next, long until) throws InterruptedException {
        long seen = tick;
        for (; next < until; next++) {
            inserter.publish(next);
            // Under load a static inserter does not need the tick, and Storm skips it, too, while its queue is full.
            if (dynamic && tick != seen) {
                seen = tick;
                inserter.flush();
            }
        }
        // A flush may insert only a part of the buffer. As in Storm, later ticks insert the rest.
        while (!finished && failure == null) {
            inserter.flush();
            LockSupport.parkNanos(TICK_NS);
        }
    }

    /**
     * Runs one producer that keeps to the schedule even if it is late, and one consumer that waits as a bolt of Storm
     * does by default.
     */
    Paced paced(double rate, double seconds) throws Exception {
        long items = (long) (rate * seconds);
        Inserter inserter = inserter();
        Histogram fromPush = new Histogram();
        Histogram fromDue = new Histogram();
        long epoch = System.nanoTime() + LEAD_NS;
        double gap = 1e9 / rate;
        long[] end = new long[2];
        Thread producer = thread("producer", () -> {
            long seen = tick;
            for (long item = 0; item < items; item++) {
                long due = epoch + (long) (item * gap);
                for (long left; (left = due - System.nanoTime()) > 0; ) {
                    if (tick != seen) {
                        seen = tick;
                        inserter.flush();
                    } else if (left > 2 * SPIN_NS) {
                        LockSupport.parkNanos(Math.min(left - SPIN_NS, TICK_NS / 2));
                    } else {
                        Thread.onSpinWait();
                    }
                }
                inserter.publish(System.nanoTime());
            }
            while (!finished && failure == null) {
                inserter.flush();
                LockSupport.parkNanos(TICK_NS);
            }
        });
        Thread consumer = thread("consumer", () -> {
            IWaitStrategy emptyWait = new WaitStrategyProgressive();
            emptyWait.prepare(CONF, IWaitStrategy.WaitSituation.BOLT_WAIT);
            JCQueue.Consumer each = new JCQueue.Consumer() {
                private long item;

                @Override
                public void accept(Object pushed) {
                    long now = System.nanoTime();
                    fromPush.record(now - (Long) pushed);
                    fromDue.record(now - epoch - (long) (item++ * gap));
                }

                @Override
                public void flush() {
                }
            };
            for (int idle = 0; fromPush.count() < items && failure == null; ) {
                idle = queue.consume(each) > 0 ? 0 : emptyWait.idle(idle);
            }
            end[0] = System.nanoTime();
            end[1] = SYSTEM.getProcessCpuTime();
            finished = true;
        });
        long cpuBefore = SYSTEM.getProcessCpuTime();
        consumer.start();
        producer.start();
        finish(List.of(consumer, producer), ticker());
        return new Paced(fromPush, fromDue, (end[0] - epoch) / 1e9, (end[1] - cpuBefore) / 1e9);
    }

    private Inserter inserter() {
        if (!dynamic) {
            return new Inserter.Static(queue);
        }
        Inserter.Dynamic inserter = new Inserter.Dynamic(queue, fullWait(), batch, capacity);
        inserters.add(inserter);
        return inserter;
    }

    private static IWaitStrategy fullWait() {
        return IWaitStrategy.createBackPressureWaitStrategy(CONF);
    }

    private void finish(List<Thread> threads, Thread ticker) throws Exception {
        for (Thread thread : threads) {
            thread.join();
        }
        ticker.join();
        queue.close();
        if (failure != null) {
            throw new IllegalStateException(failure);
        }
    }

    private Thread ticker() {
        Thread ticker = thread("ticker", () -> {
            while (!finished && failure == null) {
                LockSupport.parkNanos(TICK_NS);
                tick++;
            }
        });
        ticker.start();
        return ticker;
    }

    private interface Body {
        void run() throws Exception;
    }

    private Thread thread(String name, Body body) {
        Thread thread = new Thread(() -> {
            try {
                body.run();
            } catch (Throwable e) {
                failure = e;
            }
        }, name);
        thread.setDaemon(true);
        return thread;
    }

    private static final class Sum implements JCQueue.Consumer {
        private long count;
        private long sum;

        @Override
        public void accept(Object item) {
            count++;
            sum += (Long) item;
        }

        @Override
        public void flush() {
        }
    }
}

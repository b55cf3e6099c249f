package tidegate.peers;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.reflect.Method;
import java.util.ArrayList;
import org.apache.storm.policy.IWaitStrategy;
import org.apache.storm.utils.JCQueue;

/** One producer's way into a {@link JCQueue}; {@code flush} is called by the same thread, at the tick and at the end. */
interface Inserter {
    void publish(Object item) throws InterruptedException;

    void flush() throws InterruptedException;

    /** JCQueue's own inserters: one item a call at batch size 1, else its thread-local buffer of a fixed size. */
    record Static(JCQueue queue) implements Inserter {
        @Override
        public void publish(Object item) throws InterruptedException {
            queue.publish(item);
        }

        @Override
        public void flush() throws InterruptedException {
            queue.flush();
        }
    }

    /**
     * The rule of Storm's PR 8796, which 2.8.2 has not: the threshold starts at 1, grows by 1 after a flush of a full
     * buffer (also when the queue had no room for all of it), halves after a flush of a partial one, and is not moved by an
     * empty flush. Written from the rule; the bulk insert below it is JCQueue's own.
     */
    final class Dynamic implements Inserter {
        /** {@code JCQueue.tryPublishInternal(ArrayList)}: one claim for the list; how many fitted. Private, hence the handle. */
        private static final MethodHandle INSERT = bulkInsert();

        private final JCQueue queue;
        private final IWaitStrategy fullWait;
        private final int ceiling;
        private final ArrayList<Object> buffer;
        private int threshold = 1;
        private long flushes;
        private long flushed;

        Dynamic(JCQueue queue, IWaitStrategy fullWait, int ceiling, int capacity) {
            this.queue = queue;
            this.fullWait = fullWait;
            this.ceiling = Math.max(1, Math.min(ceiling, capacity / 2));
            this.buffer = new ArrayList<>(this.ceiling);
        }

        @Override
        public void publish(Object item) throws InterruptedException {
            buffer.add(item);
            if (buffer.size() >= threshold) {
                flush();
            }
        }

        @Override
        public void flush() throws InterruptedException {
            if (buffer.isEmpty()) {
                return;
            }
            boolean full = buffer.size() >= threshold;
            int moved = insert();
            for (int idle = 0; moved == 0; moved = insert()) {
                idle = fullWait.idle(idle);
            }
            flushes++;
            flushed += moved;
            if (moved == buffer.size()) {
                buffer.clear();
            } else {
                buffer.subList(0, moved).clear();
            }
            threshold = full ? Math.min(threshold + 1, ceiling) : Math.max(threshold >> 1, 1);
        }

        /** Items per flush so far. */
        double meanBatch() {
            return flushes == 0 ? 0 : (double) flushed / flushes;
        }

        private int insert() {
            try {
                return (int) INSERT.invokeExact(queue, buffer);
            } catch (Throwable e) {
                throw new IllegalStateException(e);
            }
        }

        private static MethodHandle bulkInsert() {
            try {
                Method method = JCQueue.class.getDeclaredMethod("tryPublishInternal", ArrayList.class);
                method.setAccessible(true);
                return MethodHandles.lookup().unreflect(method);
            } catch (ReflectiveOperationException e) {
                throw new ExceptionInInitializerError(e);
            }
        }
    }
}

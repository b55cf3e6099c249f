package tidegate.peers;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.reflect.Method;
import java.util.ArrayList;
import org.apache.storm.policy.IWaitStrategy;
import org.apache.storm.utils.JCQueue;

/**
 * Inserts the items of one producer into a {@link JCQueue}. The producer's thread calls {@code flush}, at each tick and
 * at the end.
 */
interface Inserter {
    void publish(Object item) throws InterruptedException;

    void flush() throws InterruptedException;

    /**
     * Inserts by JCQueue's own calls: one item a call at batch size 1, otherwise by its thread-local buffer of a fixed
     * size.
     */
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
     * Inserts by the rule of Storm's PR 8796, which Storm 2.8.2 does not have. The inserter flushes its buffer at a size
     * that starts at 1. The size grows by 1 after a flush of a full buffer, even if the queue had no room for all items,
     * and halves after a flush of a partial buffer. An empty flush does not change it. This class was written from the
     * rule, and inserts by JCQueue's own bulk call.
     */
    final class Dynamic implements Inserter {
        /**
         * Calls {@code JCQueue.tryPublishInternal(ArrayList)}, a private method that inserts a list by one claim and
         * returns how many items fitted.
         */
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

        /** Returns the mean number of items in a flush so far. */
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

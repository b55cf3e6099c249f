package tidegate.peers;

/**
 * A histogram of nanoseconds whose buckets grow with the value: exact below 128, then 128 buckets an octave. One writer
 * at a time.
 */
final class Histogram {
    private static final int BITS = 7;
    private static final int PER_OCTAVE = 1 << BITS;

    private final long[] counts = new long[PER_OCTAVE * (65 - BITS)];
    private long count;
    private double sum;
    private long max;

    void record(long value) {
        value = Math.max(value, 0);
        counts[index(value)]++;
        count++;
        sum += value;
        max = Math.max(max, value);
    }

    long count() {
        return count;
    }

    double meanUs() {
        return count == 0 ? 0 : sum / count / 1e3;
    }

    double maxUs() {
        return max / 1e3;
    }

    double quantileUs(double q) {
        long rank = Math.max(1, (long) Math.ceil(count * q));
        long seen = 0;
        for (int at = 0; at < counts.length; at++) {
            seen += counts[at];
            if (seen >= rank) {
                return Math.min(middle(at), max) / 1e3;
            }
        }
        return 0;
    }

    private static int index(long value) {
        if (value < PER_OCTAVE) {
            return (int) value;
        }
        int shift = 63 - Long.numberOfLeadingZeros(value) - BITS;
        return (shift + 1) * PER_OCTAVE + (int) (value >>> shift) - PER_OCTAVE;
    }

    private static double middle(int index) {
        if (index < PER_OCTAVE) {
            return index;
        }
        int shift = index / PER_OCTAVE - 1;
        return (index % PER_OCTAVE + PER_OCTAVE + 0.5) * Math.pow(2, shift);
    }
}

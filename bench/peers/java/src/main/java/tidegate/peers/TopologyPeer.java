package tidegate.peers;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.utils.VersionInfo;

/**
 * The main class of the Storm peer. The first request starts a LocalCluster, which stays; each request runs a word
 * count on it.
 */
public final class TopologyPeer {
    private static final String SYSTEM = "storm";
    private static final String VERSION = VersionInfo.getVersion();
    private static final long START_LIMIT_NS = 90_000_000_000L;
    private static final long WARM_UP_MS = 3_000;

    private static LocalCluster cluster;
    private static int runs;

    private TopologyPeer() {
    }

    public static void main(String[] args) throws Exception {
        Protocol.serve(TopologyPeer::answer);
        // The cluster's threads are no daemon threads, so the process would not end by itself.
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> answer(Protocol.Request request) throws Exception {
        return switch (request.verb) {
            case "hello" -> Map.of("systems", List.of(Map.of("system", SYSTEM, "version", VERSION)));
            case "topology" -> topology(request);
            default -> throw new Protocol.BadRequest("unknown request: " + request.verb);
        };
    }

    private static Map<String, Object> topology(Protocol.Request request) throws Exception {
        if (!request.text("system").equals(SYSTEM)) {
            throw new Protocol.BadRequest("unknown system: " + request.text("system"));
        }
        int batch = (int) request.whole("batch", 1, 16_384);
        double seconds = request.number("seconds", 0.1, 3_600);
        Path file = Path.of(request.text("file")).toAbsolutePath();
        if (!Files.isReadable(file) || Files.readString(file, StandardCharsets.UTF_8).isBlank()) {
            throw new Protocol.BadRequest("file=" + file + " cannot be read or is empty");
        }
        Config conf = conf(batch, file, request);
        if (cluster == null) {
            cluster = new LocalCluster();
        }
        String name = "word-count-" + ++runs;
        try (LocalCluster.LocalTopology running = cluster.submitTopology(name, conf, WordCount.topology())) {
            awaitFirstAck();
            Thread.sleep(WARM_UP_MS);
            return measure(batch, seconds);
        } finally {
            awaitQuiet();
        }
    }

    /**
     * Returns the settings of Storm's FileReadWordCountTopo that affect the figures, with one worker, because
     * LocalCluster is one process.
     */
    private static Config conf(int batch, Path file, Protocol.Request request) throws Protocol.BadRequest {
        Config conf = new Config();
        conf.put(WordCount.FILE, file.toString());
        conf.put(Config.TOPOLOGY_PRODUCER_BATCH_SIZE, batch);
        conf.put(Config.TOPOLOGY_DISABLE_LOADAWARE_MESSAGING, true);
        conf.put(Config.TOPOLOGY_STATS_SAMPLE_RATE, 0.0005);
        conf.setNumWorkers(1);
        conf.setNumAckers(1);
        switch (request.textOr("wait", "progressive")) {
            case "progressive" -> { }
            case "spin" -> {
                conf.put(Config.TOPOLOGY_BOLT_WAIT_STRATEGY, "org.apache.storm.policy.WaitStrategyPark");
                conf.put(Config.TOPOLOGY_BOLT_WAIT_PARK_MICROSEC, 0);
            }
            default -> throw new Protocol.BadRequest("wait must be progressive or spin");
        }
        long pending = request.wholeOr("pending", 0, 1 << 24, 0);
        if (pending > 0) {
            conf.setMaxSpoutPending((int) pending);
        }
        return conf;
    }

    private static Map<String, Object> measure(int batch, double seconds) throws InterruptedException {
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        Histogram latency = new Histogram();
        long failed = WordCount.Seen.FAILED.sum();
        long words = WordCount.Seen.WORDS.sum();
        long lines = WordCount.Seen.ACKED.sum();
        long cpu = system.getProcessCpuTime();
        long start = System.nanoTime();
        WordCount.Seen.latency = latency;
        Thread.sleep((long) (seconds * 1e3));
        words = WordCount.Seen.WORDS.sum() - words;
        lines = WordCount.Seen.ACKED.sum() - lines;
        WordCount.Seen.latency = null;
        double elapsed = (System.nanoTime() - start) / 1e9;
        cpu = system.getProcessCpuTime() - cpu;
        // The spout may still be writing its last latency into the histogram.
        Thread.sleep(50);
        Map<String, Object> answer = Protocol.named(SYSTEM, VERSION, "topology word-count b" + batch);
        answer.put("ops_per_s", words / elapsed);
        answer.put("words_per_s", words / elapsed);
        answer.put("lines_per_s", lines / elapsed);
        answer.put("elapsed_s", elapsed);
        answer.put("cpu_s", cpu / 1e9);
        answer.put("mean_us", latency.meanUs());
        answer.put("p50_us", latency.quantileUs(0.5));
        answer.put("p99_us", latency.quantileUs(0.99));
        answer.put("max_us", latency.maxUs());
        answer.put("lines_failed", WordCount.Seen.FAILED.sum() - failed);
        return answer;
    }

    private static void awaitFirstAck() throws InterruptedException, Protocol.BadRequest {
        long before = WordCount.Seen.ACKED.sum();
        long limit = System.nanoTime() + START_LIMIT_NS;
        while (WordCount.Seen.ACKED.sum() == before) {
            if (System.nanoTime() > limit) {
                throw new Protocol.BadRequest("the topology acked nothing within 90 s");
            }
            Thread.sleep(10);
        }
    }

    /**
     * Waits until the worker of the killed topology has ended, which takes some seconds: until then it would share the
     * cores with the next one.
     */
    private static void awaitQuiet() throws InterruptedException {
        long before = -1;
        for (int i = 0; i < 300 && before != WordCount.Seen.WORDS.sum(); i++) {
            before = WordCount.Seen.WORDS.sum();
            Thread.sleep(300);
        }
    }
}

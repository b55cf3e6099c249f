package tidegate.peers;

import java.util.List;
import java.util.Map;
import org.apache.storm.utils.VersionInfo;

/** The main class of the peer that measures JCQueue. */
public final class QueuePeer {
    private static final String SYSTEM = "storm-jcqueue";
    private static final String VERSION = VersionInfo.getVersion();
    private static final long CAPACITY = 32_768;

    private QueuePeer() {
    }

    public static void main(String[] args) throws Exception {
        Protocol.serve(QueuePeer::answer);
    }

    private static Map<String, Object> answer(Protocol.Request request) throws Exception {
        return switch (request.verb) {
            case "hello" -> Map.of("systems", List.of(Map.of("system", SYSTEM, "version", VERSION)));
            case "queue" -> queue(request);
            case "queue_paced" -> paced(request);
            default -> throw new Protocol.BadRequest("unknown request: " + request.verb);
        };
    }

    private static Map<String, Object> queue(Protocol.Request request) throws Exception {
        checkSystem(request);
        int producers = (int) request.whole("producers", 1, 256);
        long items = request.whole("items", 1, 1L << 50);
        int capacity = (int) request.wholeOr("capacity", 2, 1 << 24, CAPACITY);
        String mode = request.text("mode");
        int batch = mode.equals("single") ? 1 : (int) request.whole("batch", 1, capacity);
        QueueRun.Throughput seen = run(mode, batch, capacity).throughput(producers, items);
        Map<String, Object> answer =
                Protocol.named(SYSTEM, VERSION, "queue " + mode + " p" + producers + " b" + batch + " c" + capacity);
        answer.put("ops_per_s", items / seen.elapsedS());
        answer.put("elapsed_s", seen.elapsedS());
        answer.put("cpu_s", seen.cpuS());
        answer.put("items", items);
        answer.put("batch_insert", true);
        answer.put("batch_mean", seen.meanBatch());
        answer.put("checksum_ok", seen.checksumOk());
        return answer;
    }

    private static Map<String, Object> paced(Protocol.Request request) throws Exception {
        checkSystem(request);
        double rate = request.number("rate", 1, 1e9);
        double seconds = request.number("seconds", 0.001, 600);
        int capacity = (int) request.wholeOr("capacity", 2, 1 << 24, CAPACITY);
        String mode = request.textOr("mode", "single");
        int batch = mode.equals("single") ? 1 : (int) request.whole("batch", 1, capacity);
        QueueRun.Paced seen = run(mode, batch, capacity).paced(rate, seconds);
        Map<String, Object> answer = Protocol.named(SYSTEM, VERSION, "queue_paced r" + (long) rate + " c" + capacity
                + (mode.equals("single") ? "" : " " + mode + " b" + batch));
        answer.put("ops_per_s", seen.fromPush().count() / seen.elapsedS());
        answer.put("elapsed_s", seen.elapsedS());
        answer.put("cpu_s", seen.cpuS());
        answer.put("p50_us", seen.fromPush().quantileUs(0.5));
        answer.put("p99_us", seen.fromPush().quantileUs(0.99));
        answer.put("mean_us", seen.fromPush().meanUs());
        answer.put("max_us", seen.fromPush().maxUs());
        answer.put("due_p50_us", seen.fromDue().quantileUs(0.5));
        answer.put("due_p99_us", seen.fromDue().quantileUs(0.99));
        answer.put("due_mean_us", seen.fromDue().meanUs());
        return answer;
    }

    private static QueueRun run(String mode, int batch, int capacity) throws Protocol.BadRequest {
        return switch (mode) {
            case "single", "batch" -> new QueueRun(capacity, batch, false);
            case "dynamic" -> new QueueRun(capacity, batch, true);
            default -> throw new Protocol.BadRequest("mode=" + mode + " is not supported by " + SYSTEM);
        };
    }

    private static void checkSystem(Protocol.Request request) throws Protocol.BadRequest {
        if (!request.text("system").equals(SYSTEM)) {
            throw new Protocol.BadRequest("unknown system: " + request.text("system"));
        }
    }
}

package tidegate.peers;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.LongAdder;
import org.apache.storm.generated.StormTopology;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.BasicOutputCollector;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseBasicBolt;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/**
 * The topology of the word count: 1 spout that emits lines held in memory, 2 bolts that split lines, and 2 bolts that count
 * words, each its own. Storm acknowledges every line.
 *
 * <p>LocalCluster runs the workers in this process, so the topology's tasks count their work in static fields: {@link Seen}.
 */
final class WordCount {
    static final String FILE = "tidegate.peers.file";

    private WordCount() {
    }

    static StormTopology topology() {
        TopologyBuilder builder = new TopologyBuilder();
        builder.setSpout("lines", new Lines(), 1);
        builder.setBolt("split", new Split(), 2).localOrShuffleGrouping("lines");
        builder.setBolt("count", new Count(), 2).fieldsGrouping("split", new Fields("word"));
        return builder.createTopology();
    }

    /** Counters over the life of the process. The topology's tasks add to them, and the driver takes differences. */
    static final class Seen {
        static final LongAdder WORDS = new LongAdder();
        static final LongAdder ACKED = new LongAdder();
        static final LongAdder FAILED = new LongAdder();
        /**
         * The histogram of complete latencies during a measurement, otherwise null. Only the spout's thread records.
         */
        static volatile Histogram latency;

        private Seen() {
        }
    }

    /** Emits the file's lines again and again. The id of a message is the time of its emission. */
    static final class Lines extends BaseRichSpout {
        private transient SpoutOutputCollector collector;
        private transient List<String> lines;
        private transient int next;
        private transient long lastId;

        @Override
        public void open(Map<String, Object> conf, TopologyContext context, SpoutOutputCollector out) {
            collector = out;
            try {
                lines = Files.readAllLines(Path.of((String) conf.get(FILE)));
            } catch (IOException e) {
                throw new IllegalStateException(e);
            }
        }

        @Override
        public void nextTuple() {
            // Ids must differ even if the clock has not advanced.
            lastId = Math.max(System.nanoTime(), lastId + 1);
            collector.emit(new Values(lines.get(next)), lastId);
            next = next + 1 == lines.size() ? 0 : next + 1;
        }

        @Override
        public void ack(Object id) {
            Seen.ACKED.increment();
            Histogram latency = Seen.latency;
            if (latency != null) {
                latency.record(System.nanoTime() - (Long) id);
            }
        }

        @Override
        public void fail(Object id) {
            Seen.FAILED.increment();
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("line"));
        }
    }

    /** Splits a line, and emits its words. */
    static final class Split extends BaseBasicBolt {
        @Override
        public void execute(Tuple tuple, BasicOutputCollector collector) {
            for (String word : tuple.getString(0).split("\\s+")) {
                if (!word.isEmpty()) {
                    collector.emit(new Values(word));
                }
            }
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("word"));
        }
    }

    /** Counts words. It emits the present count, to which no bolt subscribes. */
    static final class Count extends BaseBasicBolt {
        private transient Map<String, Integer> counts;

        @Override
        public void prepare(Map<String, Object> conf, TopologyContext context) {
            counts = new HashMap<>();
        }

        @Override
        public void execute(Tuple tuple, BasicOutputCollector collector) {
            String word = tuple.getString(0);
            int count = counts.merge(word, 1, Integer::sum);
            collector.emit(new Values(word, count));
            Seen.WORDS.increment();
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("word", "count"));
        }
    }
}

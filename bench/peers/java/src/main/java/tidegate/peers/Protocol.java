package tidegate.peers;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** The line protocol of bench/peers/README.md: a request is {@code verb key=value ...}, its answer one JSON object. */
final class Protocol {
    private Protocol() {
    }

    /** Answers one request. If it throws an exception, the answer is an {@code error}. */
    interface Handler {
        Map<String, Object> answer(Request request) throws Exception;
    }

    /** The error of an invalid request; its text says which part is wrong. */
    static final class BadRequest extends Exception {
        BadRequest(String message) {
            super(message);
        }
    }

    /** Answers the requests of stdin until stdin ends. */
    static void serve(Handler handler) throws IOException {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        // Libraries that print to stdout would break the protocol, so their text goes to stderr.
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            if (line.isBlank()) {
                continue;
            }
            Map<String, Object> answer;
            try {
                answer = handler.answer(new Request(line));
            } catch (BadRequest e) {
                answer = Map.of("error", e.getMessage());
            } catch (Throwable e) {
                e.printStackTrace();
                answer = Map.of("error", e.toString());
            }
            out.println(json(answer));
        }
    }

    /** A request, split into its verb and its fields. */
    static final class Request {
        final String verb;
        private final Map<String, String> fields = new HashMap<>();

        Request(String line) throws BadRequest {
            String[] words = line.strip().split("\\s+");
            verb = words[0];
            for (int i = 1; i < words.length; i++) {
                int equals = words[i].indexOf('=');
                if (equals < 0) {
                    throw new BadRequest("not key=value: " + words[i]);
                }
                fields.put(words[i].substring(0, equals), words[i].substring(equals + 1));
            }
        }

        String text(String key) throws BadRequest {
            String value = fields.get(key);
            if (value == null) {
                throw new BadRequest(verb + " needs " + key + "=");
            }
            return value;
        }

        String textOr(String key, String otherwise) {
            return fields.getOrDefault(key, otherwise);
        }

        long whole(String key, long min, long max) throws BadRequest {
            return (long) number(key, min, max);
        }

        long wholeOr(String key, long min, long max, long otherwise) throws BadRequest {
            return fields.containsKey(key) ? whole(key, min, max) : otherwise;
        }

        double number(String key, double min, double max) throws BadRequest {
            String text = text(key);
            try {
                double value = Double.parseDouble(text);
                if (value >= min && value <= max) {
                    return value;
                }
            } catch (NumberFormatException e) {
                // The exception below says the same, with the range.
            }
            throw new BadRequest(key + "=" + text + " is not a number within " + min + " and " + max);
        }
    }

    /** Begins an answer with the system, its version and the case that was measured. */
    static Map<String, Object> named(String system, String version, String label) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("system", system);
        answer.put("version", version);
        answer.put("case", label);
        return answer;
    }

    static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            StringBuilder text = new StringBuilder("{");
            map.forEach((key, field) ->
                    text.append(text.length() > 1 ? "," : "").append(json(key)).append(':').append(json(field)));
            return text.append('}').toString();
        }
        if (value instanceof List<?> list) {
            StringBuilder text = new StringBuilder("[");
            list.forEach(item -> text.append(text.length() > 1 ? "," : "").append(json(item)));
            return text.append(']').toString();
        }
        if (value instanceof Double number) {
            return Double.isFinite(number) ? String.format(Locale.ROOT, "%.6f", number) : "null";
        }
        if (value instanceof Number || value instanceof Boolean) {
            return value.toString();
        }
        StringBuilder text = new StringBuilder("\"");
        for (char c : String.valueOf(value).toCharArray()) {
            if (c == '"' || c == '\\') {
                text.append('\\').append(c);
            } else if (c < ' ') {
                text.append(String.format("\\u%04x", (int) c));
            } else {
                text.append(c);
            }
        }
        return text.append('"').toString();
    }
}

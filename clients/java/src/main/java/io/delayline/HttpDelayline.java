package io.delayline;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.ConnectException;
import java.net.HttpRetryException;
import java.net.HttpURLConnection;
import java.net.URL;
import java.net.URLEncoder;
import java.time.Duration;
import java.util.Optional;
import java.util.stream.Collectors;

/**
 * Schedules and changes tasks by the HTTP interface of {@code delayline serve}, for services without RocketMQ, or for what
 * RocketMQ cannot tell, such as the state of a task.
 *
 * <pre>{@code
 * HttpDelayline delayline = new HttpDelayline("http://127.0.0.1:7700").kind("order.cancel").token(token);
 * delayline.schedule("order.cancel", "order-42", "{\"order\":42}".getBytes(UTF_8), Duration.ofMinutes(15));
 * }</pre>
 *
 * <p>A command that schedules has its effect once, however often it is asked while its task is there. Any other one acts each
 * time that it reaches the server, on what is there under its key by then: {@code shift} moves once more, a delay counts anew,
 * and {@code runNow} runs again what has failed since. So after a {@link NoAnswerException} look with {@link #find} first. Asking again is harmless only for
 * {@code cancel}, and for {@code reschedule} to a time and {@code edit} without a delay, while no other caller uses the key.
 *
 * <p>Options are set before the first command. The kind of a task says where it goes when it is due, by the server's configuration: it is posted to a URL, published to
 * a topic, or claimed by workers. Messages that were scheduled by RocketMQ are of the kind {@code message}, and are changed
 * here as any other, but for their bodies.
 */
public final class HttpDelayline implements Delayline {
    private final String url;
    private String token;
    private String kind;
    private Duration timeout = Duration.ofSeconds(3);

    /** Asks a server, such as {@code http://127.0.0.1:7700}. */
    public HttpDelayline(String url) {
        this.url = url.replaceAll("/+$", "");
    }

    /** Uses a token, one of {@code http.tokens} of the server. */
    public HttpDelayline token(String token) {
        this.token = token;
        return this;
    }

    /** Uses this kind for all commands that name none. */
    public HttpDelayline kind(String kind) {
        this.kind = kind;
        return this;
    }

    /** Waits for so long for a connection, and for an answer; 3 s by default. */
    public HttpDelayline timeout(Duration timeout) {
        this.timeout = timeout;
        return this;
    }

    @Override
    public Answer ask(Command command) {
        String path = path(kind(command), command.checked().key) + "/" + command.verb();
        String body = "{}";
        if (command.schedules()) {
            path = "/v1/tasks";
            body = task(command);
        } else if (command.verb().equals("shift")) {
            body = "{" + field("by", command.after) + "}";
        } else if (command.verb().equals("reschedule")) {
            body = "{" + field("after", command.after) + "," + field("at", command.at) + "}";
        } else if (command.verb().equals("edit")) {
            // With all fields that it may have, as a task.
            body = String.join(",", "{" + field("reason", null), field("after", command.after), field("at", command.at), payload(command));
        }
        return Answer.read(exchange("POST", path, command, body));
    }

    /** Finds the task of a kind and key, whatever its state. */
    public Optional<Task> find(String kind, String key) {
        return Optional.ofNullable(Task.read(exchange("GET", path(kind, key), null, null)));
    }

    private String kind(Command command) {
        String said = command.kind == null ? command.target : command.kind;
        if (said == null && kind == null) {
            throw new IllegalArgumentException("kind is missing in: " + command + ": allowed is one of its own, or of HttpDelayline.kind");
        }
        return said == null ? kind : said;
    }

    /** With all fields that a task may have: where a payload says more than one value, one comes twice, and is refused. */
    private String task(Command command) {
        String headers = command.headers.entrySet().stream()
                .map(header -> field(header.getKey(), header.getValue())).collect(Collectors.joining(","));
        return String.join(",", "{" + field("kind", kind(command)), field("key", command.key), field("after", command.after),
                field("at", command.at), field("max_attempts", null), "\"replace\":" + command.verb().equals("replace"),
                "\"headers\":{" + headers + "}", payload(command));
    }

    /** The last field of a body. */
    private static String payload(Command command) {
        return "\"payload\":" + new String(command.body, UTF_8) + "}";
    }

    private static String field(String name, String value) {
        return Json.quote(name) + ":" + (value == null ? null : Json.quote(value));
    }

    private static String path(String kind, String key) {
        try {
            String path = URLEncoder.encode(kind, "UTF-8") + "/" + URLEncoder.encode(String.valueOf(key), "UTF-8");
            return "/v1/tasks/" + path.replace("+", "%20");
        } catch (IOException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /** Returns the answer: also that a verb could not be done, or that there is no such task. */
    private String exchange(String method, String path, Command command, String body) {
        String asked = command == null ? path : command.toString();
        try {
            HttpURLConnection connection = (HttpURLConnection) new URL(url + path).openConnection();
            connection.setConnectTimeout((int) timeout.toMillis());
            connection.setReadTimeout((int) timeout.toMillis());
            connection.setInstanceFollowRedirects(false);
            connection.setRequestMethod(method);
            if (token != null) {
                connection.setRequestProperty("Authorization", "Bearer " + token);
            }
            if (command != null && command.schedules()) {
                connection.setRequestProperty("Idempotency-Key", command.id);
            }
            if (body != null) {
                send(connection, body.getBytes(UTF_8));
            }
            return read(connection, asked);
        } catch (ConnectException refused) {
            throw new DelaylineException("there is no server, so nothing was done: " + asked, refused);
        } catch (HttpRetryException denied) {
            throw new RejectedException(denied.responseCode() + " to: " + asked + ": the token is not known");
        } catch (IOException lost) {
            throw new NoAnswerException("no answer to: " + asked + ": " + lost.getMessage(), lost);
        }
    }

    private static void send(HttpURLConnection connection, byte[] body) throws IOException {
        connection.setDoOutput(true);
        connection.setRequestProperty("Content-Type", "application/json");
        // Otherwise the JDK sends it a second time by itself when a connection breaks.
        connection.setFixedLengthStreamingMode(body.length);
        try (OutputStream out = connection.getOutputStream()) {
            out.write(body);
        }
    }

    private static String read(HttpURLConnection connection, String asked) throws IOException {
        int status = connection.getResponseCode();
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (InputStream in = status < 400 ? connection.getInputStream() : connection.getErrorStream()) {
            byte[] part = new byte[8_192];
            for (int length; in != null && (length = in.read(part)) > 0; ) {
                bytes.write(part, 0, length);
            }
        }
        String json = bytes.toString("UTF-8");
        boolean isOurs = String.valueOf(connection.getContentType()).matches("application/(problem\\+)?json.*");
        if (isOurs && (status < 300 || status == 404 || Json.text(json, "answer") != null)) {
            return json;
        }
        String problem = status + " to: " + asked + ": " + (isOurs ? Json.text(json, "detail") : json);
        // 408: the body came too slowly. Nothing was done, and asking again helps.
        throw isOurs && status < 500 && status != 408 ? new RejectedException(problem) : new NoAnswerException(problem, null);
    }
}

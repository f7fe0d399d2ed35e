import static java.nio.charset.StandardCharsets.UTF_8;

import com.sun.net.httpserver.Headers;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.HashSet;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * A receiver of webhooks: due tasks are posted to it, and it handles only signed ones, each once. With the JDK alone:
 * {@code HOOK_SECRET=whsec_… java Webhook.java 8000}. A service would read the payload with the JSON library that it has.
 */
public final class Webhook {
    private static final Duration TOLERANCE = Duration.ofMinutes(5);
    private static final PrintStream OUT = new PrintStream(System.out, true, UTF_8);

    private final String secret = System.getenv("HOOK_SECRET");
    /** A service has them in its database, written in one transaction with what it does. */
    private final Set<String> done = new HashSet<>();

    public static void main(String[] arguments) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), 0);
        server.createContext("/", new Webhook()::receive);
        server.start();
        OUT.println("receiving at http://127.0.0.1:" + server.getAddress().getPort() + "/");
    }

    private void receive(HttpExchange exchange) throws IOException {
        byte[] body = exchange.getRequestBody().readAllBytes();
        Headers headers = exchange.getRequestHeaders();
        if (!isGenuine(secret, headers, body)) {
            answer(exchange, 401, "not signed");
            return;
        }
        // The same for every attempt: an answer can be lost.
        String name = headers.getFirst("webhook-id");
        try {
            if (!done.contains(name)) {
                remind(new String(body, UTF_8));
            }
            done.add(name);
        } catch (IllegalArgumentException failure) {
            answer(exchange, 500, failure.getMessage());
            return;
        }
        answer(exchange, 200, "");
    }

    /** Whether it was sent by who has the secret, and not long ago. */
    static boolean isGenuine(String secret, Headers headers, byte[] body) {
        String name = headers.getFirst("webhook-id");
        String sent = headers.getFirst("webhook-timestamp");
        String signatures = headers.getFirst("webhook-signature");
        if (name == null || sent == null || signatures == null) {
            return false;
        }
        byte[] expected;
        Duration age;
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(Base64.getDecoder().decode(secret.replaceFirst("^whsec_", "")), "HmacSHA256"));
            mac.update((name + "." + sent + ".").getBytes(UTF_8));
            expected = ("v1," + Base64.getEncoder().encodeToString(mac.doFinal(body))).getBytes(UTF_8);
            age = Duration.between(Instant.ofEpochSecond(Long.parseLong(sent)), Instant.now()).abs();
        } catch (GeneralSecurityException | RuntimeException failure) {
            return false;
        }
        boolean isSigned = false;
        // One for each secret, while one is replaced by another.
        for (String signature : signatures.split(" ")) {
            isSigned |= MessageDigest.isEqual(expected, signature.getBytes(UTF_8));
        }
        return isSigned && age.compareTo(TOLERANCE) <= 0;
    }

    /** The work itself. */
    private static void remind(String task) {
        Matcher invoice = Pattern.compile("\"invoice\":\\s*\"([^\"]*)\"").matcher(task);
        if (!invoice.find()) {
            throw new IllegalArgumentException("no invoice");
        }
        OUT.println("reminded of " + invoice.group(1));
    }

    private static void answer(HttpExchange exchange, int status, String text) throws IOException {
        byte[] body = text.getBytes(UTF_8);
        exchange.sendResponseHeaders(status, body.length == 0 ? -1 : body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }
}

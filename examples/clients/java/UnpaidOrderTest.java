import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * How a service tests what happens to an order that is not paid for 15 minutes, without waiting for them. With JUnit 5 and the
 * JDK alone; it needs the tool {@code delayline} in the PATH, or at {@code DELAYLINE}.
 */
class UnpaidOrderTest {
    /** What is tested: a shop whose orders are cancelled after 15 minutes, by a webhook, unless they are paid. */
    static final class Shop {
        final Set<String> cancelled = ConcurrentHashMap.newKeySet();
        final HttpServer hooks;

        Shop() throws IOException {
            hooks = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
            // A real one verifies the signature: see Webhook.java.
            hooks.createContext("/hooks", exchange -> {
                cancelled.add(new String(exchange.getRequestBody().readAllBytes(), UTF_8));
                exchange.sendResponseHeaders(204, -1);
                exchange.close();
            });
            hooks.start();
        }

        void place(TestClock delayline, String order) throws Exception {
            String task = "{\"after\":\"15m\",\"payload\":\"" + order + "\"}";
            delayline.ask("PUT", "/v1/tasks/order.cancel/" + order, task);
        }

        void pay(TestClock delayline, String order) throws Exception {
            delayline.ask("POST", "/v1/tasks/order.cancel/" + order + "/cancel", "{}");
        }

        boolean hasCancelled(String order) {
            return cancelled.contains("\"" + order + "\"");
        }
    }

    /** A server of this test's own, whose clock stands still unless it is turned. */
    static final class TestClock {
        private static final Pattern WHAT = Pattern.compile("\"what\":\"(\\w+)\"");
        private final HttpClient http = HttpClient.newHttpClient();
        private final Process process;
        private final String url;

        TestClock(Path folder, int hooks) throws IOException {
            Path config = folder.resolve("delayline.toml");
            Files.writeString(config, """
                    [http]
                    listen = "127.0.0.1:0"
                    [webhooks]
                    allow = ["127.0.0.1"]
                    [kinds."order.cancel"]
                    deliver = { url = "http://127.0.0.1:%d/hooks", secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" }
                    """.formatted(hooks));
            String tool = System.getenv().getOrDefault("DELAYLINE", "delayline");
            process = new ProcessBuilder(tool, "serve", "--test-clock", "--config", config.toString())
                    .redirectError(ProcessBuilder.Redirect.DISCARD)
                    .start();
            // It says where it is once it can be asked.
            BufferedReader said = new BufferedReader(new InputStreamReader(process.getInputStream(), UTF_8));
            url = said.readLine().replaceFirst("serving ", "");
        }

        String ask(String method, String path, String body) throws IOException, InterruptedException {
            HttpRequest request = HttpRequest.newBuilder(URI.create(url + path))
                    .header("Content-Type", "application/json")
                    .method(method, BodyPublishers.ofString(body))
                    .build();
            HttpResponse<String> answer = http.send(request, BodyHandlers.ofString());
            assertEquals(2, answer.statusCode() / 100, answer.body());
            return answer.body();
        }

        /** Answers when all that is due by then has happened, and says what that was. */
        List<String> advance(String by) throws IOException, InterruptedException {
            String turned = ask("POST", "/v1/time/advance", "{\"by\":\"" + by + "\"}");
            return WHAT.matcher(turned).results().map((MatchResult what) -> what.group(1)).toList();
        }
    }

    @TempDir
    static Path folder;

    static Shop shop;
    static TestClock delayline;

    @BeforeAll
    static void start() throws IOException {
        shop = new Shop();
        delayline = new TestClock(folder, shop.hooks.getAddress().getPort());
    }

    @AfterAll
    static void stop() throws InterruptedException {
        delayline.process.destroyForcibly().waitFor();
        shop.hooks.stop(0);
    }

    @Test
    void anUnpaidOrderIsCancelledAfter15Minutes() throws Exception {
        shop.place(delayline, "42");
        assertEquals(List.of(), delayline.advance("14m 59s"));
        assertFalse(shop.hasCancelled("42"));
        assertEquals(List.of("started", "webhook", "done"), delayline.advance("1s"));
        assertTrue(shop.hasCancelled("42"));
    }

    @Test
    void aPaidOrderIsNot() throws Exception {
        shop.place(delayline, "43");
        assertEquals(List.of(), delayline.advance("14m 59s"));
        shop.pay(delayline, "43");
        assertEquals(List.of(), delayline.advance("366d"));
        assertFalse(shop.hasCancelled("43"));
    }
}

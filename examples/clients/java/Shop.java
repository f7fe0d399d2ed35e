import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A shop that cancels unpaid orders, and changes its mind about some; then it works on due tasks. With the JDK
 * alone: {@code java Shop.java http://127.0.0.1:7700}. A service would read the answers with the JSON library that it has.
 */
public final class Shop {
    private final HttpClient http = HttpClient.newHttpClient();
    private final String url;

    private Shop(String url) {
        this.url = url;
    }

    public static void main(String[] arguments) throws Exception {
        Shop shop = new Shop(arguments[0]);
        String order = task("order.cancel", "order/1");
        System.out.println(answer(shop.ask("PUT", order, "{\"after\":\"15m\",\"payload\":{\"order\":1}}")));
        System.out.println(answer(shop.ask("PUT", order, "{\"after\":\"15m\",\"payload\":{\"order\":1}}")));
        System.out.println(answer(shop.ask("POST", order + "/shift", "{\"by\":\"+10m\"}")));
        System.out.println(answer(shop.ask("POST", order + "/cancel", "")));
        System.out.println(answer(shop.ask("POST", order + "/cancel", "")));
        System.out.println(answer(shop.ask("POST", task("order.cancel", "order/2") + "/cancel", "")));

        shop.ask("PUT", task("report.build", "1"), "{\"after\":\"1s\",\"payload\":{\"name\":\"sales\"}}");
        // Waits until it is due, and has it for half a minute.
        String given = shop.ask("POST", "/v1/claims", "{\"kinds\":[\"report.build\"],\"wait\":\"20s\",\"lease\":\"30s\"}").body();
        String claim = field(given, "claim");
        System.out.println("built " + field(given, "name"));
        System.out.println(answer(shop.ask("POST", "/v1/claims/" + claim + "/done", "")));
        System.out.println(answer(shop.ask("POST", "/v1/claims/" + claim + "/done", "")));
    }

    private HttpResponse<String> ask(String method, String path, String body) throws IOException, InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url + path))
                .header("Content-Type", "application/json")
                // Longer than a claim waits.
                .timeout(Duration.ofSeconds(90))
                .method(method, BodyPublishers.ofString(body))
                .build();
        return http.send(request, BodyHandlers.ofString());
    }

    private static String task(String kind, String key) {
        return "/v1/tasks/" + encoded(kind) + "/" + encoded(key);
    }

    private static String encoded(String name) {
        return URLEncoder.encode(name, StandardCharsets.UTF_8).replace("+", "%20");
    }

    /** What was answered, in a word: also by a response that is no success, such as 409. */
    private static String answer(HttpResponse<String> response) {
        return response.statusCode() + " " + field(response.body(), "answer");
    }

    private static String field(String json, String name) {
        Matcher field = Pattern.compile("\"" + name + "\":\"([^\"]*)\"").matcher(json);
        if (!field.find()) {
            throw new IllegalStateException("no " + name + " in " + json);
        }
        return field.group(1);
    }
}

package io.delayline;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/** A real {@code delayline serve}, with its tasks in a folder of its own. {@code DELAYLINE_TOOL} says where the tool is. */
final class Server implements AutoCloseable {
    private final Path folder;
    private Process process;
    private String url;

    private Server(String config) throws IOException {
        folder = Files.createTempDirectory("delayline");
        Files.write(folder.resolve("delayline.toml"), ("http.listen = \"127.0.0.1:0\"\n" + config).getBytes(UTF_8));
        start();
    }

    static Server configured(String config) throws IOException {
        return new Server(config);
    }

    static String nameserver() {
        return environment("DELAYLINE_ROCKETMQ", "the HOST:PORT of a nameserver, as scripts/rocketmq start DIR prints it");
    }

    private static String environment(String name, String allowed) {
        String value = System.getenv(name);
        if (value == null) {
            throw new IllegalStateException(name + " is not set: it must be " + allowed);
        }
        return value;
    }

    String url() {
        return url;
    }

    void start() throws IOException {
        String tool = environment("DELAYLINE_TOOL", "the path of delayline, such as target/debug/delayline");
        File log = folder.resolve("log").toFile();
        process = new ProcessBuilder(new File(tool).getAbsolutePath(), "serve", "--config", "delayline.toml")
                .directory(folder.toFile()).redirectError(ProcessBuilder.Redirect.appendTo(log)).start();
        String line = new BufferedReader(new InputStreamReader(process.getInputStream(), UTF_8)).readLine();
        if (line == null || !line.startsWith("serving ")) {
            throw new IllegalStateException("it says " + line + "; " + new String(Files.readAllBytes(log.toPath()), UTF_8));
        }
        url = line.substring("serving ".length());
    }

    /** Kills it. What it has is in its folder. */
    void kill() throws InterruptedException {
        process.destroyForcibly().waitFor(10, TimeUnit.SECONDS);
    }

    @Override
    public void close() throws InterruptedException {
        process.destroy();
        process.waitFor(30, TimeUnit.SECONDS);
    }
}

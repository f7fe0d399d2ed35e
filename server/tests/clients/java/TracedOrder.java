import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * A service that traces: sends one order to an inbox of Delayline as a part of a trace, and says in one line of JSON with
 * which properties it came out at the target.
 *
 * <p>Arguments: NAMESERVER INBOX TARGET DELAY TRACEPARENT
 */
public final class TracedOrder {
    private static final long PATIENCE_SECONDS = 120;
    private static final int STARTS = 10;

    private TracedOrder() {
    }

    public static void main(String[] arguments) throws Exception {
        // Before any class of RocketMQ is loaded: its loggers write to the standard output.
        PrintStream out = System.out;
        System.setOut(System.err);
        System.setProperty("rmq.logback.configurationFile", "rmq.client.logback.xml");
        System.setProperty("rocketmq.log.level", "off");
        System.setProperty("rocketmq.log.root", System.getProperty("java.io.tmpdir") + "/rocketmqlogs");

        String nameserver = arguments[0];
        String group = "traced-" + System.currentTimeMillis();
        CompletableFuture<Map<String, String>> came = new CompletableFuture<>();
        consume(nameserver, group, arguments[2], came);

        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(nameserver);
        producer.start();
        Message order = new Message(arguments[1], "paid?".getBytes(StandardCharsets.UTF_8));
        order.setKeys("order-1");
        order.putUserProperty("DELAYLINE_KEY", "order-1");
        order.putUserProperty("DELAYLINE_TOPIC", arguments[2]);
        order.putUserProperty("DELAYLINE_AFTER", arguments[3]);
        order.putUserProperty("traceparent", arguments[4]);
        order.putUserProperty("tracestate", "shop=1");
        producer.send(order);

        out.println(new TreeMap<>(came.get(PATIENCE_SECONDS, TimeUnit.SECONDS)).entrySet().stream()
                .filter(property -> property.getKey().matches("(?i).*trace(parent|state)"))
                .map(property -> "\"" + property.getKey() + "\": \"" + property.getValue() + "\"")
                .collect(Collectors.joining(", ", "{", "}")));
        // Without farewells, which can take seconds.
        System.exit(0);
    }

    /** A start fails where a nameserver takes 3 s to answer, as on a busy machine; a service is then started again. */
    private static void consume(String nameserver, String group, String topic,
            CompletableFuture<Map<String, String>> came) throws MQClientException {
        for (int left = STARTS; ; left--) {
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
            consumer.setNamesrvAddr(nameserver);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(message -> came.complete(message.getProperties()));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            try {
                consumer.start();
                return;
            } catch (MQClientException | IllegalStateException failed) {
                if (left == 1) {
                    throw failed;
                }
                // Else the group counts as one that is there.
                consumer.shutdown();
            }
        }
    }
}

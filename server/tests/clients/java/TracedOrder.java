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
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameserver);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[2], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> came.complete(message.getProperties()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();

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
}

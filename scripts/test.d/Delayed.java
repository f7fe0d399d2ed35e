import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Sends a message to the gateway's inbox, and waits until it comes out: at its time, not before. */
class Delayed {
    static final long DELAY = 3_000;

    public static void main(String[] arguments) throws Exception {
        var came = new CompletableFuture<Long>();
        var consumer = new DefaultMQPushConsumer("first_try");
        consumer.setNamesrvAddr("127.0.0.1:9876");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("order_timeouts", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (var message : messages) {
                if (Arrays.equals(message.getBody(), "{\"order\":42}".getBytes())) {
                    came.complete(System.currentTimeMillis());
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        var producer = new DefaultMQProducer("first_try");
        producer.setNamesrvAddr("127.0.0.1:9876");
        producer.start();
        var message = new Message("delayline_in", "cancel", "order-42", "{\"order\":42}".getBytes());
        message.putUserProperty("DELAYLINE_TOPIC", "order_timeouts");
        message.putUserProperty("DELAYLINE_AFTER", DELAY + "");
        message.putUserProperty("DELAYLINE_KEY", "order-42");
        long sent = System.currentTimeMillis();
        producer.send(message);
        long after = came.get(90, TimeUnit.SECONDS) - sent;
        if (after < DELAY) {
            throw new AssertionError("it came after " + after + " ms");
        }
        System.out.println("the message came out after " + after + " ms, of " + DELAY);
        System.exit(0);
    }
}

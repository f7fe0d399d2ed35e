package shop;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.delayline.Answer;
import io.delayline.Delayline;
import io.delayline.Handled;
import io.delayline.Once;
import io.delayline.RocketMqDelayline;
import java.time.Duration;
import java.time.Instant;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.message.MessageExt;

/** Cancels orders that are not paid within 10 seconds: {@code mvn compile exec:java -Dexec.args=127.0.0.1:9876}. */
public final class Shop {
    public static void main(String[] arguments) throws Exception {
        String nameserver = arguments[0];
        CountDownLatch unpaid = new CountDownLatch(1);

        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("shop");
        consumer.setNamesrvAddr(nameserver);
        consumer.subscribe("order_timeouts", "*");
        consumer.registerMessageListener(new Once(Handled.inMemory(100_000)).listener((MessageExt message) -> {
            System.out.println(message.getKeys() + " comes out: " + new String(message.getBody(), UTF_8));
            if (message.getKeys().equals("order-1")) {
                unpaid.countDown();
            }
        }));
        consumer.start();

        try (Delayline delayline = RocketMqDelayline.connect(nameserver, "shop")) {
            byte[] order = "{\"cancel\":true}".getBytes(UTF_8);
            say("order-1 schedule", delayline.schedule("order_timeouts", "order-1", order, Duration.ofSeconds(10)));
            say("order-1 schedule", delayline.schedule("order_timeouts", "order-1", order, Duration.ofSeconds(10)));

            say("order-2 schedule", delayline.schedule("order_timeouts", "order-2", order, Duration.ofMinutes(15)));
            say("order-2 shift", delayline.shift("order-2", Duration.ofMinutes(10)));
            say("order-2 reschedule", delayline.reschedule("order-2", Instant.now().plusSeconds(3_600)));
            say("order-2 cancel", delayline.cancel("order-2"));
            say("order-2 cancel", delayline.cancel("order-2"));

            say("order-3 schedule", delayline.schedule("order_timeouts", "order-3", order, Duration.ofDays(30)));
            say("order-3 runNow", delayline.runNow("order-3"));
            unpaid.await();
        }
        consumer.shutdown();
    }

    private static void say(String asked, Answer answer) {
        System.out.println(asked + ": " + answer.outcome());
    }
}

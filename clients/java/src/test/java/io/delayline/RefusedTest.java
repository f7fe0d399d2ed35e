package io.delayline;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import org.apache.rocketmq.client.Validators;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.junit.jupiter.api.Test;

class RefusedTest {
    private static final Duration WAIT = Duration.ofSeconds(10);

    private static Command schedule(byte[] body) {
        return Command.schedule("order_timeouts", "order-42", body).after(Duration.ofMinutes(15));
    }

    /** The producer looks at a message before it looks for a broker; only for a request it has to know one. */
    @Test
    void whatTheClientOfRocketMqDoesNotSendIsRejected() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("shop") {
            @Override
            public void request(Message message, MessageQueueSelector selector, Object key, RequestCallback callback, long timeout)
                    throws MQClientException {
                Validators.checkMessage(message, this);
            }
        };
        producer.setNamesrvAddr("127.0.0.1:1");
        producer.start();
        try (RocketMqDelayline delayline = new RocketMqDelayline(producer).timeout(WAIT)) {
            for (byte[] body : new byte[][] {null, {}, new byte[(4 << 20) + 1]}) {
                RejectedException asked = assertThrows(RejectedException.class, () -> delayline.ask(schedule(body)));
                assertTrue(asked.getMessage().startsWith("RocketMQ's client refuses it: the message body "), asked.getMessage());
                assertThrows(RejectedException.class, () -> delayline.tell(schedule(body)));
            }
        } finally {
            producer.shutdown();
        }
    }

    /** Its brokers may allow less than its client. */
    @Test
    void whatABrokerDoesNotTakeIsRejected() {
        MQBrokerException illegal = new MQBrokerException(13, "it is too long");
        DefaultMQProducer producer = new DefaultMQProducer("shop") {
            @Override
            public SendResult send(Message message, MessageQueueSelector selector, Object key) throws MQBrokerException {
                throw illegal;
            }

            @Override
            public void request(Message message, MessageQueueSelector selector, Object key, RequestCallback callback,
                    long timeout) {
                callback.onException(illegal);
            }
        };
        try (RocketMqDelayline delayline = new RocketMqDelayline(producer).timeout(WAIT)) {
            RejectedException asked = assertThrows(RejectedException.class, () -> delayline.ask(schedule(new byte[1])));
            assertEquals("a broker refuses it: it is too long", asked.getMessage());
            assertThrows(RejectedException.class, () -> delayline.tell(schedule(new byte[1])));
        }
    }
}

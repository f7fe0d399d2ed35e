package io.delayline;

import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Collections;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullCallback;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

class ReplyTopicTest {
    private static final MQBrokerException DENIED = new MQBrokerException(16, "no right SUB on group shop_delayline_answers");

    /** A consumer of one queue, which its broker lets it read from some time on. */
    @SuppressWarnings("deprecation")
    private static final class Reading extends DefaultMQPullConsumer {
        private volatile boolean isAllowed;
        private boolean waits;

        @Override
        public Set<MessageQueue> fetchSubscribeMessageQueues(String topic) {
            return Collections.singleton(new MessageQueue(topic, "broker-a", 0));
        }

        @Override
        public long maxOffset(MessageQueue queue) {
            return 0;
        }

        @Override
        public void pullBlockIfNotFound(MessageQueue queue, String tags, long from, int most, PullCallback callback) {
            if (!isAllowed) {
                callback.onException(DENIED);
            } else if (!waits) {
                waits = true;
                callback.onSuccess(new PullResult(PullStatus.NO_NEW_MSG, from, 0, from, null));
            }
        }
    }

    @Test
    @Timeout(30)
    void whyAnswersCannotBeReadIsToldAsLongAsItIsSo() throws Exception {
        DefaultMQProducer sending = new DefaultMQProducer("shop") {
            @Override
            public SendResult send(Message message, MessageQueueSelector selector, Object key, long timeout) {
                return new SendResult();
            }
        };
        ScheduledExecutorService threads = Executors.newSingleThreadScheduledExecutor();
        Reading reading = new Reading();
        ReplyTopic topic = new ReplyTopic("shop_answers", reading, threads);
        try (RocketMqDelayline delayline = new RocketMqDelayline(sending).timeout(Duration.ofMillis(200)).replyTopic(topic)) {
            NoAnswerException lost = assertThrows(NoAnswerException.class, () -> delayline.cancel("order-42"));
            assertSame(DENIED, lost.getCause());
            assertTrue(lost.getMessage().contains("no right SUB on group shop_delayline_answers"), lost.getMessage());

            reading.isAllowed = true;
            while (topic.failure() != null) {
                Thread.sleep(10);
            }
            assertNull(assertThrows(NoAnswerException.class, () -> delayline.cancel("order-42")).getCause());
        } finally {
            threads.shutdownNow();
        }
    }
}

package io.delayline;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullCallback;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Reads the topic for answers: every queue of it, from its end on, in each process.
 *
 * <p>By the client that pulls, as it needs neither a rebalance nor a place that was kept, and says when it has begun. The one
 * that came after it (lite pull) asks, since 5.0, by a code that brokers of 4.x do not know.
 */
@SuppressWarnings("deprecation")
final class ReplyTopic {
    private static final int AT_ONCE = 32;
    private static final long AGAIN_MS = 500;

    /** The callers that wait for an answer, by the ids of their messages. */
    final Map<String, Consumer<String>> waiting = new ConcurrentHashMap<>();
    private final Set<MessageQueue> queues = ConcurrentHashMap.newKeySet();
    /** Why queues could not be read when that was last tried. */
    private final Map<MessageQueue, Throwable> failures = new ConcurrentHashMap<>();
    final String topic;
    private final DefaultMQPullConsumer consumer;
    private final ScheduledExecutorService threads;

    ReplyTopic(String topic, DefaultMQPullConsumer consumer, ScheduledExecutorService threads) {
        this.topic = topic;
        this.consumer = consumer;
        this.threads = threads;
    }

    /** Makes sure that answers from now on are read, also from queues that were added. */
    synchronized void open() throws MQClientException {
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            if (!queues.contains(queue)) {
                pull(queue, consumer.maxOffset(queue));
                queues.add(queue);
            }
        }
    }

    boolean isOpen() {
        return !queues.isEmpty();
    }

    /** Returns why answers may not be read, such as for a right that the account does not have; or null. */
    Throwable failure() {
        return failures.values().stream().findFirst().orElse(null);
    }

    void close() {
        consumer.shutdown();
    }

    /** Waits at the broker for the next messages, and continues from there. */
    private void pull(MessageQueue queue, long from) {
        PullCallback callback = new PullCallback() {
            @Override
            public void onSuccess(PullResult result) {
                failures.remove(queue);
                if (result.getMsgFoundList() != null) {
                    result.getMsgFoundList().forEach(ReplyTopic.this::read);
                }
                pull(queue, result.getNextBeginOffset());
            }

            @Override
            public void onException(Throwable failed) {
                failures.put(queue, failed);
                if (!threads.isShutdown()) {
                    threads.schedule(() -> pull(queue, from), AGAIN_MS, TimeUnit.MILLISECONDS);
                }
            }
        };
        try {
            consumer.pullBlockIfNotFound(queue, "*", from, AT_ONCE, callback);
        } catch (Exception failed) {
            callback.onException(failed);
        }
    }

    private void read(MessageExt message) {
        Consumer<String> asking = waiting.get(String.valueOf(message.getUserProperty("DELAYLINE_MESSAGE_ID")));
        if (asking != null) {
            asking.accept(new String(message.getBody(), UTF_8));
        }
    }
}

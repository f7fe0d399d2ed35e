package io.delayline;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageConst;

/**
 * Schedules and changes messages by the gateway of {@code delayline serve}, through RocketMQ's own client, of 4.9 or 5.x, and
 * brokers of either.
 *
 * <pre>{@code
 * Delayline delayline = RocketMqDelayline.connect("127.0.0.1:9876", "shop");      // or: new RocketMqDelayline(producer)
 * delayline.schedule("order_timeouts", "order-42", body, Duration.ofMinutes(15));
 * if (delayline.cancel("order-42").isDone()) { … }                                // then it does not come out
 * }</pre>
 *
 * <p>Answers come as replies to the producer, or, with {@link #replyTopic}, by a topic. This class works around these
 * faults of clients:
 *
 * <ul>
 *   <li>From 5.3.1 to 5.3.3 {@code request(message, timeout)} gives up as soon as the message is sent; since 4.9.4 the one with
 *       a callback and no selector is called back then, with null. So it is the one with a selector and a callback.
 *   <li>A broker replies only to producers that it knows by a heartbeat, which a client sends every 30 s; and a reply that it
 *       cannot hand over is gone. So an unanswered command is repeated each second until its time is over, after a
 *       heartbeat: as the same message, which has its effect once.
 *   <li>A push consumer of a new group reads nothing until its first rebalance, and one that starts before its topic is there
 *       waits for up to 30 s for the next look-up of the route. So the topic for answers is read without a group's rebalance, from
 *       the end that it has when it is named.
 * </ul>
 *
 * <p>Options are set before the first command.
 */
public final class RocketMqDelayline implements Delayline {
    private static final long REPEAT_MS = 1_000;
    private static final int THREADS = 4;
    /** Of ResponseCode, which is in another package since 5.0. */
    private static final int MESSAGE_ILLEGAL = 13;
    /** Messages of one key are processed in their order if they are in one queue. */
    private static final MessageQueueSelector BY_KEY = new SelectMessageQueueByHash();

    private final DefaultMQProducer producer;
    private final MQClientInstance client;
    private final ScheduledExecutorService threads = Executors.newScheduledThreadPool(THREADS, work -> {
        Thread thread = new Thread(work, "delayline");
        thread.setDaemon(true);
        return thread;
    });
    /** What is asked and not answered. */
    private final Set<Question> open = ConcurrentHashMap.newKeySet();
    private boolean isOwn;
    private String inbox = "delayline_in";
    private Duration timeout = Duration.ofSeconds(3);
    private ReplyTopic replies;

    /** Sends by a producer, which is started, with whatever account, TLS or namespace it has; it stays the caller's. */
    public RocketMqDelayline(DefaultMQProducer producer) {
        this.producer = producer;
        client = MQClientManager.getInstance().getOrCreateMQClientInstance(producer);
    }

    /**
     * Sends by a producer of its own, which ends with this.
     *
     * @param nameserver such as {@code 10.0.0.1:9876;10.0.0.2:9876}; it may be away, and then commands fail until it comes
     * @param group the producer's group, such as the name of the service
     */
    public static RocketMqDelayline connect(String nameserver, String group) {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(nameserver);
        producer.setInstanceName("delayline-" + UUID.randomUUID());
        try {
            producer.start();
        } catch (MQClientException failed) {
            throw new DelaylineException("RocketMQ's client does not start: " + failed.getMessage(), failed);
        }
        RocketMqDelayline delayline = new RocketMqDelayline(producer);
        delayline.isOwn = true;
        return delayline;
    }

    /** Sends to another topic than {@code delayline_in}: the gateway's inbox, or one of its routes. */
    public RocketMqDelayline inbox(String topic) {
        inbox = topic;
        return this;
    }

    /** Waits for an answer for so long; 3 s by default. */
    public RocketMqDelayline timeout(Duration timeout) {
        this.timeout = timeout;
        return this;
    }

    /**
     * Takes answers from this topic, one of {@code gateway.replies}, and not as replies to the producer. Services may share it;
     * each instance reads all of it from now on, as the group {@code GROUP_delayline_answers}, where GROUP is the producer's.
     * It must exist. Where brokers have accounts, the producer's needs the right {@code SUB} on the topic and on that group.
     */
    @SuppressWarnings("deprecation")
    public RocketMqDelayline replyTopic(String topic) {
        // Not the group of a consumer of the service, some of whose queues it would be given.
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(producer.getProducerGroup() + "_delayline_answers");
        // As it is one client with the producer, it has its account as well.
        consumer.resetClientConfig(producer);
        try {
            consumer.start();
        } catch (MQClientException failed) {
            throw new DelaylineException("RocketMQ's client does not start: " + failed.getMessage(), failed);
        }
        return replyTopic(new ReplyTopic(topic, consumer, threads));
    }

    RocketMqDelayline replyTopic(ReplyTopic topic) {
        replies = topic;
        try {
            replies.open();
        } catch (MQClientException | RuntimeException away) {
            // Reported to the callers.
        }
        return this;
    }

    @Override
    public Answer ask(Command command) {
        CompletableFuture<Answer> answer = askAsync(command);
        try {
            return answer.get(timeout.toMillis() + REPEAT_MS, TimeUnit.MILLISECONDS);
        } catch (ExecutionException failed) {
            throw (DelaylineException) failed.getCause();
        } catch (InterruptedException | TimeoutException left) {
            answer.cancel(false);
            throw lost(command, left);
        }
    }

    /** Carries out a command, and completes with the answer, or with an exception as {@link #ask} throws it. */
    public CompletableFuture<Answer> askAsync(Command command) {
        Question question = new Question(command);
        threads.execute(question);
        return question.answer;
    }

    @Override
    public void tell(Command command) {
        Message message = message(command);
        SendResult result;
        try {
            result = producer.send(message, BY_KEY, queueKey(command));
        } catch (Exception failed) {
            RejectedException refusal = refusal(failed);
            throw refusal == null ? lost(command, failed) : refusal;
        }
        SendStatus status = result.getSendStatus();
        // A broker that ends now may have lost what is not on its disk, or not at the slave that it waits for. Without a slave that it
        // would wait for, it answers SLAVE_NOT_AVAILABLE to all.
        if (status == SendStatus.FLUSH_DISK_TIMEOUT || status == SendStatus.FLUSH_SLAVE_TIMEOUT) {
            throw lost(command, new IllegalStateException("the broker answered " + status));
        }
    }

    @Override
    public void close() {
        threads.shutdownNow();
        open.forEach(Question::lose);
        if (replies != null) {
            replies.close();
        }
        if (isOwn) {
            producer.shutdown();
        }
    }

    private NoAnswerException lost(Command command, Throwable failure) {
        if (failure instanceof InterruptedException) {
            Thread.currentThread().interrupt();
        }
        return new NoAnswerException("no answer within " + timeout + " to: " + command
                + (failure == null ? "" : ": " + failure), failure);
    }

    /** Returns why a message cannot be sent as it is, such as for its length; null if another send may succeed. */
    private static RejectedException refusal(Throwable failed) {
        if (failed instanceof MQClientException && ((MQClientException) failed).getResponseCode() == MESSAGE_ILLEGAL) {
            return new RejectedException("RocketMQ's client refuses it: " + ((MQClientException) failed).getErrorMessage());
        }
        if (failed instanceof MQBrokerException && ((MQBrokerException) failed).getResponseCode() == MESSAGE_ILLEGAL) {
            return new RejectedException("a broker refuses it: " + ((MQBrokerException) failed).getErrorMessage());
        }
        return null;
    }

    /** Makes this producer known to the brokers of the inbox. The method has another result since 5.1. */
    private void introduce() {
        client.updateTopicRouteInfoFromNameServer(inbox);
        try {
            MQClientInstance.class.getMethod("sendHeartbeatToAllBrokerWithLock").invoke(client);
        } catch (ReflectiveOperationException unknown) {
            // Then the heartbeats that it sends by itself have to do.
        }
    }

    private Message message(Command command) {
        Message message = new Message(inbox, command.tag, command.key, command.checked().body);
        put(message, "DELAYLINE_ACTION", command.verb());
        put(message, "DELAYLINE_TOPIC", command.target);
        put(message, "DELAYLINE_KEY", command.key);
        put(message, "DELAYLINE_KIND", command.kind);
        put(message, "DELAYLINE_AFTER", command.after);
        put(message, "DELAYLINE_AT", command.at);
        command.headers.forEach((name, value) -> put(message, name, value));
        synchronized (command) {
            if (command.messageId == null) {
                command.messageId = MessageClientIDSetter.createUniqID();
            }
        }
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, command.messageId);
        return message;
    }

    private static void put(Message message, String name, String value) {
        if (value != null) {
            message.putUserProperty(name, value);
        }
    }

    private static Object queueKey(Command command) {
        return command.key == null ? command.messageId : command.key;
    }

    /** A command that is sent until there is an answer, or no time left. */
    private final class Question implements Runnable, RequestCallback {
        final CompletableFuture<Answer> answer = new CompletableFuture<>();
        private final Command command;
        private final Message message;
        private final long end = System.nanoTime() + timeout.toNanos();
        private boolean isRepeated;
        private volatile Throwable failure;

        Question(Command command) {
            this.command = command;
            message = message(command);
            open.add(this);
            answer.whenComplete((come, failed) -> open.remove(this));
            if (replies != null) {
                put(message, "DELAYLINE_REPLY_TOPIC", replies.topic);
                replies.waiting.put(command.messageId, this::read);
                answer.whenComplete((come, failed) -> replies.waiting.remove(command.messageId));
            }
        }

        @Override
        public void run() {
            long left = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime());
            if (left <= 0) {
                lose();
            }
            if (answer.isDone()) {
                return;
            }
            try {
                send(left);
            } catch (Exception failed) {
                onException(failed);
            }
            if (!threads.isShutdown()) {
                threads.schedule(this, Math.min(REPEAT_MS, left), TimeUnit.MILLISECONDS);
            }
        }

        void lose() {
            Throwable unread = failure == null && replies != null ? replies.failure() : failure;
            answer.completeExceptionally(lost(command, unread));
        }

        private void send(long left) throws Exception {
            if (isRepeated) {
                introduce();
            }
            // Answers may go to queues that were added.
            if (replies != null && (isRepeated || !replies.isOpen())) {
                replies.open();
            }
            isRepeated = true;
            // A client writes into what it sends.
            Message copy = MessageAccessor.cloneMessage(message);
            if (replies == null) {
                producer.request(copy, BY_KEY, queueKey(command), this, left);
            } else {
                producer.send(copy, BY_KEY, queueKey(command), left);
            }
        }

        @Override
        public void onSuccess(Message reply) {
            if (reply != null) {
                read(new String(reply.getBody(), UTF_8));
            }
        }

        @Override
        public void onException(Throwable failed) {
            RejectedException refusal = refusal(failed);
            if (refusal == null) {
                failure = failed;
            } else {
                answer.completeExceptionally(refusal);
            }
        }

        private void read(String json) {
            try {
                answer.complete(Answer.read(json));
            } catch (RejectedException rejected) {
                answer.completeExceptionally(rejected);
            } catch (Exception garbled) {
                failure = garbled;
            }
        }
    }
}

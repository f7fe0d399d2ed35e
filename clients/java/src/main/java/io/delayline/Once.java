package io.delayline;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Drops messages that were handled before, at a consumer of Delayline's messages.
 *
 * <p>Messages come at least once. Copies of one another have the same property {@code DELAYLINE_ID}, whatever
 * {@code DELAYLINE_ATTEMPT} published them, and the same body. One with another body is no copy: the message was edited after an
 * attempt of which the broker's answer was lost. One without the property did not come by Delayline, and is identified by its
 * message id.
 *
 * <pre>{@code
 * consumer.registerMessageListener(new Once(Handled.inMemory(100_000)).listener(message -> cancel(message)));
 * }</pre>
 *
 * <p>Each consumer group has one of its own.
 */
public final class Once {
    private final Handled handled;
    /** What is being handled: it may fail yet, so a copy that comes meanwhile is not dropped. */
    private final Set<String> running = ConcurrentHashMap.newKeySet();

    /** Handles a message; if it throws, the message comes again. */
    public interface Handler {
        /** Handles a message that was not handled before. */
        void handle(MessageExt message) throws Exception;
    }

    /** Makes one that uses this memory of handled messages. */
    public Once(Handled handled) {
        this.handled = handled;
    }

    /**
     * Handles a message, unless it was handled before.
     *
     * @return whether it was handled now
     * @throws Exception that of the handler: then the message counts as not handled. Also if another thread is handling a copy:
     *     this message then comes again, in case that fails
     */
    public boolean handle(MessageExt message, Handler handler) throws Exception {
        String id = identity(message);
        if (!running.add(id)) {
            throw new IllegalStateException("a copy of it is being handled: " + id);
        }
        try {
            return handled.runOnce(id, () -> run(handler, message));
        } catch (Failed failed) {
            throw (Exception) failed.getCause();
        } finally {
            running.remove(id);
        }
    }

    private static void run(Handler handler, MessageExt message) {
        try {
            handler.handle(message);
        } catch (RuntimeException failed) {
            throw failed;
        } catch (Exception failed) {
            // Spring commits a transaction of which a checked exception comes.
            throw new Failed(failed);
        }
    }

    private static final class Failed extends RuntimeException {
        Failed(Exception checked) {
            super(checked);
        }
    }

    /**
     * Returns what copies have in common and no other message has, in up to 56 characters: a producer that has addresses of IPv6
     * alone makes such message ids.
     */
    private static String identity(MessageExt message) {
        String id = message.getUserProperty("DELAYLINE_ID");
        if (id == null) {
            return message.getMsgId();
        }
        byte[] of = id.getBytes(UTF_8);
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        ByteBuffer named = ByteBuffer.allocate(of.length + body.length).put(of).put(body);
        return UUID.nameUUIDFromBytes(named.array()).toString();
    }

    /** Makes a listener that handles each message once, and makes the broker redeliver from the first failed one on. */
    public MessageListenerConcurrently listener(Handler handler) {
        return (List<MessageExt> messages, ConsumeConcurrentlyContext context) -> {
            for (int at = 0; at < messages.size(); at++) {
                try {
                    handle(messages.get(at), handler);
                } catch (Exception failed) {
                    if (at == 0) {
                        // RocketMQ's client logs it, and gives all messages back.
                        throw new IllegalStateException(failed);
                    }
                    // The following ones are given back, and then this one is the first.
                    context.setAckIndex(at - 1);
                    break;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }
}

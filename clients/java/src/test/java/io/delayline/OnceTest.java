package io.delayline;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.MessageExt;
import org.junit.jupiter.api.Test;

class OnceTest {
    private final List<String> handled = new ArrayList<>();
    private String bad = "";

    private void handle(MessageExt message) {
        String id = message.getUserProperty("DELAYLINE_ID");
        if (bad.equals(id)) {
            throw new IllegalArgumentException("not yet");
        }
        handled.add(id == null ? message.getMsgId() : id);
    }

    private static List<MessageExt> messages(String... ids) {
        return Arrays.stream(ids).map(id -> {
            MessageExt message = new MessageExt();
            message.putUserProperty("DELAYLINE_ID", id);
            message.putUserProperty("DELAYLINE_ATTEMPT", String.valueOf(message.hashCode()));
            return message;
        }).collect(Collectors.toList());
    }

    @Test
    void aCopyIsDroppedAndWhatFailedComesAgain() {
        MessageListenerConcurrently listener = new Once(Handled.inMemory(10)).listener(this::handle);
        ConsumeConcurrentlyContext context = new ConsumeConcurrentlyContext(null);
        assertEquals(ConsumeConcurrentlyStatus.CONSUME_SUCCESS, listener.consumeMessage(messages("a", "b", "a"), context));
        bad = "c";
        // Those up to the one before it are done with.
        assertEquals(ConsumeConcurrentlyStatus.CONSUME_SUCCESS, listener.consumeMessage(messages("b", "d", "c", "e"), context));
        assertEquals(1, context.getAckIndex());
        assertThrows(IllegalStateException.class, () -> listener.consumeMessage(messages("c"), context));
        bad = "";
        listener.consumeMessage(messages("c", "e"), context);
        assertEquals(Arrays.asList("a", "b", "d", "c", "e"), handled);
    }

    /** A message whose first publication was not answered, and which was edited meanwhile. */
    @Test
    void aMessageWithAnotherBodyIsNoCopy() throws Exception {
        Once once = new Once(Handled.inMemory(10));
        List<Boolean> isNew = new ArrayList<>();
        for (String body : new String[] {"pay 1", "pay 2", "pay 1", "pay 2"}) {
            MessageExt message = messages("a").get(0);
            message.setBody(body.getBytes(UTF_8));
            isNew.add(once.handle(message, this::handle));
        }
        assertEquals(Arrays.asList(true, true, false, false), isNew);
    }

    /** Else a transaction of Spring's would be committed, and with it the id of a message whose handler failed. */
    @Test
    void whatRemembersSeesUncheckedExceptionsAloneAndTheCallerThatOfTheHandler() {
        List<Boolean> isChecked = new ArrayList<>();
        Once once = new Once((id, work) -> {
            try {
                work.run();
            } catch (Throwable failed) {
                isChecked.add(!(failed instanceof RuntimeException));
                throw failed;
            }
            return true;
        });
        assertThrows(IOException.class, () -> once.handle(messages("a").get(0), message -> {
            throw new IOException("not yet");
        }));
        assertEquals(Arrays.asList(false), isChecked);
    }

    /** RocketMQ's client gives a message back that is handled for longer than its consumeTimeout. */
    @Test
    void aCopyOfWhatIsBeingHandledComesAgainAsThatMayFail() throws Exception {
        Once once = new Once(Handled.inMemory(10));
        MessageExt message = messages("a").get(0);
        CountDownLatch begun = new CountDownLatch(1);
        CountDownLatch copied = new CountDownLatch(1);
        FutureTask<Boolean> first = new FutureTask<>(() -> once.handle(message, slow -> {
            begun.countDown();
            copied.await();
            throw new IllegalArgumentException("it fails in the end");
        }));
        new Thread(first).start();
        begun.await();
        assertThrows(IllegalStateException.class, () -> once.handle(message, this::handle));
        copied.countDown();
        assertThrows(ExecutionException.class, first::get);
        assertTrue(once.handle(message, this::handle));
        assertFalse(once.handle(message, this::handle));
        assertEquals(Arrays.asList("a"), handled);
    }

    @Test
    void whatDidNotComeByDelaylineIsKnownByItsMessageId() throws Exception {
        Once once = new Once(Handled.inMemory(10));
        for (String id : new String[] {"1", "2", "1"}) {
            MessageExt message = new MessageExt();
            message.setMsgId(id);
            once.handle(message, this::handle);
        }
        assertEquals(Arrays.asList("1", "2"), handled);
    }

    @Test
    void thoseThatCameLongestAgoAreForgotten() {
        Handled two = Handled.inMemory(2);
        List<Boolean> isNew = Arrays.stream(new String[] {"a", "b", "a", "c", "b", "a"})
                .map(id -> two.runOnce(id, () -> { })).collect(Collectors.toList());
        assertEquals(Arrays.asList(true, true, false, true, false, true), isNew);
    }
}

package io.delayline;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** With topics and groups that were never there before. A question is asked for 3 s, so an answer has come within that. */
class RocketMqDelaylineTest {
    private static final byte[] BODY = "{\"order\":42}".getBytes(UTF_8);

    private final String name = "shop" + UUID.randomUUID().toString().replace("-", "");
    private final String out = name + "_out";
    private Server server;
    private RocketMqDelayline delayline;

    @BeforeEach
    void start() throws Exception {
        Topics.make(Server.nameserver(), out, name + "_answers");
        server = Server.gateway(name);
    }

    @AfterEach
    void stop() throws Exception {
        if (delayline != null) {
            delayline.close();
        }
        server.close();
    }

    private void connect(boolean byTopic) {
        delayline = RocketMqDelayline.connect(Server.nameserver(), name).inbox(name + "_in");
        if (byTopic) {
            delayline.replyTopic(name + "_answers");
        }
    }

    private Answer measured(Command command) {
        long from = System.nanoTime();
        Answer answer = delayline.ask(command);
        System.out.println("answered " + answer.outcome() + " after " + (System.nanoTime() - from) / 1_000_000 + " ms");
        return answer;
    }

    private Outcome asked(Command command) {
        return measured(command).outcome();
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void eachCommandIsAnsweredAlsoWhereAllIsNew(boolean byTopic) {
        connect(byTopic);
        Answer made = measured(Command.schedule(out, "a", BODY).after(Duration.ofMinutes(15)).tag("cancel").header("source", "shop"));
        assertEquals(Outcome.NEW, made.outcome());
        Task task = made.task().get();
        assertEquals("message a scheduled", task.kind() + " " + task.key() + " " + task.state());
        Instant due = task.dueAt();

        assertEquals(Outcome.EXISTING, asked(Command.schedule(out, "a", BODY).after(Duration.ofMinutes(15))));
        Answer replaced = measured(Command.replace(out, "a", BODY).at(due));
        assertEquals(Outcome.REPLACED, replaced.outcome());
        assertEquals(due, replaced.task().get().dueAt());
        assertEquals(due.minusSeconds(60), delayline.shift("a", Duration.ofMinutes(-1)).task().get().dueAt());
        assertEquals(due, delayline.shift("a", Duration.ofMinutes(1)).task().get().dueAt());
        assertEquals(due.plusSeconds(7), delayline.reschedule("a", due.plusSeconds(7)).task().get().dueAt());
        assertTrue(delayline.reschedule("a", Duration.ofHours(1)).task().get().dueAt().isAfter(due));
        assertEquals(Outcome.DONE, asked(Command.cancel("a")));
        Answer again = delayline.cancel("a");
        assertEquals("FINISHED cancelled", again.outcome() + " " + again.task().get().state());
        assertEquals(Outcome.NOT_FOUND, asked(Command.cancel("never \"there\"")));
    }

    @Test
    void whatIsDueComesOutOnceAndWhatWasCancelledDoesNot() throws Exception {
        connect(false);
        BlockingQueue<MessageExt> came = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(name + "_consumer");
        consumer.setNamesrvAddr(Server.nameserver());
        consumer.setInstanceName(name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(out, "*");
        consumer.registerMessageListener(new Once(Handled.inMemory(10)).listener(came::add));
        consumer.start();

        // So that what follows takes no time.
        assertEquals(Outcome.NOT_FOUND, delayline.cancel("cancelled").outcome());
        Instant asked = Instant.now();
        delayline.tell(Command.schedule(out, "told", BODY).after(Duration.ofMillis(1_500)).tag("cancel").header("source", "shop"));
        assertEquals(Outcome.NEW, delayline.schedule(out, "cancelled", BODY, Duration.ofMillis(1_400)).outcome());
        assertEquals(Outcome.DONE, delayline.cancel("cancelled").outcome());
        MessageExt first = came.take();
        assertEquals("told", first.getKeys());
        assertEquals("cancel shop " + new String(BODY, UTF_8),
                first.getTags() + " " + first.getUserProperty("source") + " " + new String(first.getBody(), UTF_8));
        assertTrue(Instant.now().isAfter(asked.plusMillis(1_500)));

        // A copy of it, as after a crash between the broker's answer and the row's.
        Message copy = new Message(out, BODY);
        copy.putUserProperty("DELAYLINE_ID", first.getUserProperty("DELAYLINE_ID"));
        DefaultMQProducer producer = new DefaultMQProducer(name);
        producer.setNamesrvAddr(Server.nameserver());
        producer.setInstanceName(name);
        producer.start();
        producer.send(copy);
        // By a producer that is the service's own.
        RocketMqDelayline beside = new RocketMqDelayline(producer).inbox(name + "_in");
        assertEquals(Outcome.NEW, beside.schedule(out, "last", BODY, Duration.ofHours(1)).outcome());
        assertEquals(Outcome.DONE, beside.runNow("last").outcome());
        beside.close();
        producer.shutdown();
        assertEquals("last", came.take().getKeys());
        consumer.shutdown();
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void whatIsAskedAgainHasItsEffectOnce(boolean byTopic) throws Exception {
        connect(byTopic);
        delayline.timeout(Duration.ofMillis(2_500));
        Instant due = Instant.now().plus(Duration.ofDays(300));
        assertEquals(Outcome.NEW, delayline.schedule(out, "a", BODY, due).outcome());
        server.kill();
        Command shift = Command.shift("a", Duration.ofMinutes(10));
        Command schedule = Command.schedule(out, "b", BODY).after(Duration.ofHours(1));
        assertTrue(assertThrows(NoAnswerException.class, () -> delayline.ask(shift)).getMessage().contains("shift a"));
        assertThrows(NoAnswerException.class, () -> delayline.ask(schedule));
        server.start();
        delayline.timeout(Duration.ofSeconds(60));
        assertEquals(due.plusSeconds(600).truncatedTo(ChronoUnit.MILLIS), delayline.ask(shift).task().get().dueAt());
        Answer made = delayline.ask(schedule);
        assertEquals(Outcome.NEW, made.outcome());
        assertEquals(RocketMqDelayline.taskId(name + "_in", schedule.messageId), made.task().get().id());
        assertEquals(Outcome.EXISTING, delayline.schedule(out, "b", BODY, Duration.ofHours(1)).outcome());
    }

    @Test
    void whatTheGatewayRefusesIsSaid() {
        connect(false);
        RejectedException refused = assertThrows(RejectedException.class,
                () -> delayline.schedule("elsewhere", "a", BODY, Duration.ZERO));
        assertTrue(refused.getMessage().startsWith("DELAYLINE_TOPIC is \"elsewhere\""), refused.getMessage());
        assertThrows(IllegalArgumentException.class, () -> delayline.ask(Command.reschedule("a")));
        assertThrows(IllegalArgumentException.class, () -> delayline.ask(Command.cancel("a").after(Duration.ZERO)));
    }

    @Test
    void whereNoBrokerCanBeReachedItIsSaid() {
        delayline = RocketMqDelayline.connect("127.0.0.1:1", name).inbox(name + "_in").timeout(Duration.ofMillis(300));
        NoAnswerException lost = assertThrows(NoAnswerException.class, () -> delayline.cancel("a"));
        assertTrue(lost.getMessage().startsWith("no answer within PT0.3S to: cancel a"), lost.getMessage());
    }
}

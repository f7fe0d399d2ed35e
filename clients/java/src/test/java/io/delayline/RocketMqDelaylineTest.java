package io.delayline;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.time.Instant;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class RocketMqDelaylineTest {
    private static final byte[] BODY = "{\"order\":42}".getBytes(UTF_8);

    private static Gateway gateway;

    @BeforeAll
    static void start() throws Exception {
        gateway = new Gateway();
    }

    @AfterAll
    static void stop() throws Exception {
        gateway.close();
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void eachCommandIsAnswered(boolean byTopic) {
        try (RocketMqDelayline delayline = gateway.connect(byTopic)) {
            String key = "each " + byTopic;
            long from = System.nanoTime();
            Answer made = delayline.schedule(gateway.out, key, BODY, Duration.ofMinutes(15));
            System.out.println("answered at first after " + (System.nanoTime() - from) / 1_000_000 + " ms");
            assertEquals(Outcome.NEW, made.outcome());
            Task task = made.task().get();
            assertEquals("message " + key + " scheduled", task.kind() + " " + task.key() + " " + task.state());
            Instant due = task.dueAt();

            assertEquals(Outcome.EXISTING, delayline.schedule(gateway.out, key, BODY, due).outcome());
            Answer replaced = delayline.ask(Command.replace(gateway.out, key, BODY).at(due.plusSeconds(1)));
            assertEquals(Outcome.REPLACED, replaced.outcome());
            assertEquals(due.plusSeconds(1), replaced.task().get().dueAt());
            assertEquals(due.minusSeconds(59), delayline.shift(key, Duration.ofMinutes(-1)).task().get().dueAt());
            assertEquals(due.plusSeconds(1), delayline.shift(key, Duration.ofMinutes(1)).task().get().dueAt());
            assertEquals(due.plusSeconds(7), delayline.reschedule(key, due.plusSeconds(7)).task().get().dueAt());
            Answer edited = delayline.edit(key, "{}".getBytes(UTF_8));
            assertEquals("DONE " + due.plusSeconds(7), edited.outcome() + " " + edited.task().get().dueAt());
            assertEquals(due.plusSeconds(8), delayline.ask(Command.edit(key, BODY).at(due.plusSeconds(8))).task().get().dueAt());
            assertTrue(delayline.reschedule(key, Duration.ofHours(1)).task().get().dueAt().isAfter(due));
            assertEquals(Outcome.DONE, delayline.cancel(key).outcome());
            Answer again = delayline.cancel(key);
            assertEquals("FINISHED cancelled", again.outcome() + " " + again.task().get().state());
            assertEquals(Outcome.NOT_FOUND, delayline.cancel("never \"there\" " + byTopic).outcome());
        }
    }

    @Test
    void whatIsDueComesOutOnceAndWhatWasCancelledDoesNot() throws Exception {
        BlockingQueue<MessageExt> came = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(Gateway.unique());
        consumer.setNamesrvAddr(Server.nameserver());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(gateway.out, "*");
        consumer.registerMessageListener(new Once(Handled.inMemory(10)).listener(came::add));
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer(Gateway.unique());
        producer.setNamesrvAddr(Server.nameserver());
        producer.start();
        try (RocketMqDelayline delayline = gateway.connect(false)) {
            Instant due = Instant.now().plusSeconds(15);
            assertEquals(Outcome.NEW, delayline.schedule(gateway.out, "cancelled", BODY, due.minusMillis(300)).outcome());
            delayline.tell(Command.schedule(gateway.out, "told", BODY).at(due).tag("cancel").header("source", "shop"));
            assertEquals(Outcome.DONE, delayline.cancel("cancelled").outcome());
            MessageExt first = came.take();
            assertTrue(!Instant.now().isBefore(due.minusMillis(1)), "early");
            assertEquals("told cancel shop " + new String(BODY, UTF_8), first.getKeys() + " " + first.getTags() + " "
                    + first.getUserProperty("source") + " " + new String(first.getBody(), UTF_8));

            // A copy of it, as after a crash between the broker's answer and the row's.
            Message copy = new Message(gateway.out, BODY);
            copy.putUserProperty("DELAYLINE_ID", first.getUserProperty("DELAYLINE_ID"));
            producer.send(copy);
            assertEquals(Outcome.NEW, delayline.schedule(gateway.out, "last", BODY, Duration.ofHours(1)).outcome());
            assertEquals(Outcome.DONE, delayline.edit("last", "edited".getBytes(UTF_8)).outcome());
            assertEquals(Outcome.DONE, delayline.runNow("last").outcome());
            MessageExt last = came.take();
            assertEquals("last edited", last.getKeys() + " " + new String(last.getBody(), UTF_8));
        } finally {
            consumer.shutdown();
            producer.shutdown();
        }
    }

    /** As one that was started again. By the client's own heartbeats it would know the producer after an hour. */
    @Test
    void aBrokerThatHasForgottenTheProducerIsTold() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(Gateway.unique());
        producer.setNamesrvAddr(Server.nameserver());
        producer.setInstanceName(producer.getProducerGroup());
        producer.setHeartbeatBrokerInterval(3_600_000);
        producer.start();
        RocketMqDelayline delayline = new RocketMqDelayline(producer).inbox(gateway.in).timeout(Duration.ofSeconds(60));
        assertEquals(Outcome.NEW, delayline.schedule(gateway.out, "forgotten", BODY, Duration.ofHours(1)).outcome());

        MQClientInstance client = MQClientManager.getInstance().getOrCreateMQClientInstance(producer);
        String broker = producer.fetchPublishMessageQueues(gateway.in).get(0).getBrokerName();
        client.getMQClientAPIImpl().unregisterClient(client.findBrokerAddressInPublish(broker), client.getClientId(),
                producer.getProducerGroup(), null, 3_000);
        assertEquals(Outcome.DONE, delayline.cancel("forgotten").outcome());

        delayline.close();
        delayline = new RocketMqDelayline(producer).inbox(gateway.in).timeout(Duration.ofSeconds(60));
        assertEquals(Outcome.FINISHED, delayline.cancel("forgotten").outcome(), "the producer is its owner's");
        delayline.close();
        producer.shutdown();
    }

    @Test
    void whatTheGatewayRefusesIsSaid() {
        try (RocketMqDelayline delayline = gateway.connect(false)) {
            RejectedException refused = assertThrows(RejectedException.class,
                    () -> delayline.schedule("elsewhere", "refused", BODY, Duration.ZERO));
            assertTrue(refused.getMessage().startsWith("DELAYLINE_TOPIC is \"elsewhere\""), refused.getMessage());
            assertThrows(IllegalArgumentException.class, () -> delayline.ask(Command.reschedule("a")));
            assertThrows(IllegalArgumentException.class, () -> delayline.ask(Command.cancel("a").after(Duration.ZERO)));
            assertThrows(IllegalArgumentException.class,
                    () -> delayline.ask(Command.edit("a", BODY).after(Duration.ZERO).at(Instant.EPOCH)));
        }
    }

    @Test
    void whereNoBrokerCanBeReachedItIsSaid() {
        try (RocketMqDelayline delayline = RocketMqDelayline.connect("127.0.0.1:1", Gateway.unique())) {
            delayline.timeout(Duration.ofMillis(300));
            NoAnswerException lost = assertThrows(NoAnswerException.class, () -> delayline.cancel("a"));
            assertTrue(lost.getMessage().startsWith("no answer within PT0.3S to: cancel a"), lost.getMessage());
            assertThrows(NoAnswerException.class, () -> delayline.tell(Command.cancel("a")));
        }
    }
}

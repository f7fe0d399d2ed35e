package io.delayline;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import org.junit.jupiter.api.Test;

class RepeatTest {
    private static final byte[] BODY = "-".getBytes(UTF_8);

    /** The server is away while it is asked, three times or so; then it finds all that at once, and is asked once more. */
    @Test
    void whatIsAskedAgainHasItsEffectOnce() throws Exception {
        try (Gateway gateway = new Gateway();
                RocketMqDelayline delayline = gateway.connect(false);
                RocketMqDelayline byTopic = gateway.connect(true)) {
            Instant due = Instant.now().plus(Duration.ofDays(300)).truncatedTo(ChronoUnit.MILLIS);
            assertEquals(Outcome.NEW, delayline.schedule(gateway.out, "moved", BODY, due).outcome());
            gateway.server.kill();

            Command shift = Command.shift("moved", Duration.ofMinutes(10));
            Command schedule = Command.schedule(gateway.out, "made", BODY).at(due);
            delayline.timeout(Duration.ofMillis(2_500));
            byTopic.timeout(Duration.ofMillis(2_500));
            NoAnswerException lost = assertThrows(NoAnswerException.class, () -> byTopic.ask(shift));
            assertTrue(lost.getMessage().startsWith("no answer within PT2.5S to: shift moved"), lost.getMessage());
            assertThrows(NoAnswerException.class, () -> delayline.ask(schedule));

            gateway.server.start();
            HttpDelayline looking = new HttpDelayline(gateway.server.url());
            while (!looking.find("message", "made").isPresent()) {
                Thread.sleep(50);
            }
            delayline.timeout(Duration.ofSeconds(60));
            byTopic.timeout(Duration.ofSeconds(60));
            assertEquals(due.plusSeconds(600), byTopic.ask(shift).task().get().dueAt());
            Answer made = delayline.ask(schedule);
            assertEquals(Outcome.NEW, made.outcome());
            assertEquals(looking.find("message", "made").get().id(), made.task().get().id());
            assertEquals(Outcome.EXISTING, delayline.schedule(gateway.out, "made", BODY, due).outcome());
        }
    }
}

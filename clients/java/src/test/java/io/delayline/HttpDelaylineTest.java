package io.delayline;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

class HttpDelaylineTest {
    private static final String TOKEN = "a token of some length, by chance";
    private static final String KIND = "order.cancel";
    private static final byte[] BODY = "{\"key\":\"not this\",\"order\":42}".getBytes(UTF_8);
    private static final Duration LATER = Duration.ofMinutes(15);

    private static Server server;
    private static HttpDelayline delayline;

    @BeforeAll
    static void start() throws Exception {
        byte[] digest = java.security.MessageDigest.getInstance("SHA-256").digest(TOKEN.getBytes(UTF_8));
        String sha256 = String.format("%064x", new java.math.BigInteger(1, digest));
        server = Server.configured("http.tokens = [{ name = \"shop\", sha256 = \"" + sha256
                + "\", may = [\"read\", \"schedule\", \"change\"] }]\n");
        delayline = new HttpDelayline(server.url() + "/").kind(KIND).token(TOKEN);
    }

    @AfterAll
    static void stop() throws Exception {
        delayline.close();
        server.close();
    }

    @Test
    void eachCommandIsAnswered() {
        String key = "order/1 \"ü\" 50%";
        Instant due = Instant.parse("2037-01-01T00:00:00Z");
        Answer made = delayline.ask(Command.schedule(KIND, key, BODY).at(due).header("source", "a \"shop\"\n"));
        assertEquals(Outcome.NEW, made.outcome());
        Task task = delayline.find(KIND, key).get();
        assertEquals(made.task().get().id(), task.id());
        assertEquals(KIND + " " + key + " scheduled " + due, task.kind() + " " + task.key() + " " + task.state() + " " + task.dueAt());
        assertTrue(task.json().contains("\"payload\":" + new String(BODY, UTF_8)), task.json());
        assertTrue(task.json().contains("\"source\":\"a \\\"shop\\\"\\n\""), task.json());

        assertEquals(Outcome.EXISTING, delayline.schedule(KIND, key, BODY, LATER).outcome());
        assertEquals(Outcome.REPLACED, delayline.ask(Command.replace(KIND, key, BODY).at(due)).outcome());
        assertEquals(due.plusSeconds(600), delayline.shift(key, Duration.ofMinutes(10)).task().get().dueAt());
        assertEquals(due.plusSeconds(540), delayline.shift(key, Duration.ofMinutes(-1)).task().get().dueAt());
        assertEquals(due, delayline.reschedule(key, due).task().get().dueAt());
        Answer edited = delayline.edit(key, "{\"order\":43}".getBytes(UTF_8));
        assertEquals("DONE " + due, edited.outcome() + " " + edited.task().get().dueAt());
        assertTrue(delayline.find(KIND, key).get().json().contains("\"payload\":{\"order\":43}"), edited.toString());
        assertEquals(due.plusSeconds(1), delayline.ask(Command.edit(key, BODY).at(due.plusSeconds(1))).task().get().dueAt());
        for (String body : new String[] {"1,\"after\":\"1s\"", "1,\"reason\":\"x\"", "1}", ""}) {
            assertThrows(RejectedException.class, () -> delayline.edit(key, body.getBytes(UTF_8)), body);
        }
        assertTrue(delayline.reschedule(key, Duration.ofHours(1)).isDone());
        assertTrue(delayline.runNow(key).isDone());
        assertEquals(Outcome.DONE, delayline.cancel(key).outcome());
        Answer again = delayline.cancel(key);
        assertEquals("FINISHED cancelled", again.outcome() + " " + again.task().get().state());
        assertFalse(again.isDone());
        assertEquals(Outcome.NOT_FOUND, delayline.cancel("never there").outcome());
        assertFalse(delayline.find(KIND, "never there").isPresent());
    }

    @Test
    void withoutAKeyEachIsScheduledAndHasNone() {
        Command schedule = Command.schedule(KIND, null, BODY).after(LATER);
        Task first = delayline.ask(schedule).task().get();
        assertEquals(null, first.key());
        assertEquals(first.id(), delayline.ask(schedule).task().get().id(), "the same command");
        String other = delayline.schedule(KIND, null, BODY, LATER).task().get().id();
        assertFalse(first.id().equals(other), "another command");
    }

    @Test
    void whatIsScheduledAgainByTheSameCommandIsNewAgain() {
        Command schedule = Command.schedule(KIND, "twice", BODY).after(LATER);
        delayline.tell(schedule);
        assertEquals(Outcome.NEW, delayline.ask(schedule).outcome());
        assertEquals(Outcome.EXISTING, delayline.schedule(KIND, "twice", BODY, LATER).outcome());
    }

    @Test
    void anotherCommandActsAgainAndAMoveToATimeComesToTheSame() {
        Instant due = Instant.parse("2037-01-01T00:00:00Z");
        delayline.schedule(KIND, "moved", BODY, LATER);
        Command reschedule = Command.reschedule("moved").at(due);
        Command shift = Command.shift("moved", Duration.ofMinutes(10));
        for (Command command : new Command[] {reschedule, reschedule, shift, shift}) {
            assertEquals(Outcome.DONE, delayline.ask(command).outcome());
        }
        assertEquals(due.plusSeconds(1_200), delayline.find(KIND, "moved").get().dueAt());
    }

    @Test
    void whatCannotBeDoneIsSaid() {
        RejectedException bad = assertThrows(RejectedException.class,
                () -> delayline.schedule("delayline.own", "a", BODY, LATER));
        assertTrue(bad.getMessage().startsWith("400 to: schedule a: "), bad.getMessage());
        for (String body : new String[] {"1,\"max_attempts\":1", "1}", "{},{}", "1,\"replace\":true", ""}) {
            assertThrows(RuntimeException.class, () -> delayline.schedule(KIND, "a", body.getBytes(UTF_8), LATER), body);
        }
        assertFalse(delayline.find(KIND, "a").isPresent());
        String wrong = Base64.getEncoder().encodeToString(new byte[32]);
        RejectedException denied = assertThrows(RejectedException.class,
                () -> new HttpDelayline(server.url()).kind(KIND).token(wrong).cancel("a"));
        assertTrue(denied.getMessage().startsWith("401 to: cancel a"), denied.getMessage());
        RejectedException unread = assertThrows(RejectedException.class,
                () -> new HttpDelayline(server.url()).token(wrong).find(KIND, "a"));
        assertTrue(unread.getMessage().startsWith("401 to: "), unread.getMessage());
        DelaylineException away = assertThrows(DelaylineException.class,
                () -> new HttpDelayline("http://127.0.0.1:1").kind(KIND).cancel("a"));
        assertFalse(away instanceof NoAnswerException, "nothing was done");
        assertThrows(IllegalArgumentException.class, () -> new HttpDelayline(server.url()).cancel("a"));
    }
}

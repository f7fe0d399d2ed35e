package io.delayline;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.api.Test;

class JsonTest {
    @Test
    void aTextIsReadAsItWasWritten() {
        for (String text : new String[] {"", "order/1", "a \"b\" \\ \n\t\r\b\f \u0001 ü 多 \uD83D\uDE80", "\",\"payload\":", "\"id\":\"x\""}) {
            assertEquals(text, Json.text("{\"key\":" + Json.quote(text) + ",\"id\":\"1\"}", "key"));
            assertEquals("1", Json.text("{\"key\":" + Json.quote(text) + ",\"id\":\"1\"}", "id"));
        }
        assertEquals("/ü\n", Json.text("{\"key\":\"\\/\\u00fc\\n\"}", "key"));
    }

    @Test
    void whatIsTheCallersIsNotTheTasks() {
        String json = "{\"id\":\"1\",\"headers\":{\"key\":\"a\"},\"payload\":{\"key\":\"b\"}}";
        assertNull(Json.text(json, "key"));
        assertNull(Task.read(json).key());
    }

    @Test
    void whatIsNoAnswerIsNoneOfOurs() {
        for (String json : new String[] {"", "{}", "[]", "{\"answer\":1}", "{\"answer\":\"maybe\"}", "{\"answer\":\"\"}"}) {
            assertThrows(NoAnswerException.class, () -> Answer.read(json), json);
        }
        assertThrows(IndexOutOfBoundsException.class, () -> Answer.read("{\"answer\":\"do"));
        assertEquals("why", assertThrows(RejectedException.class,
                () -> Answer.read("{\"answer\":\"rejected\",\"error\":\"why\"}")).getMessage());
    }
}

package io.delayline;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.SQLIntegrityConstraintViolationException;
import java.util.Collections;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.MessageExt;
import org.junit.jupiter.api.Test;

/** What the documentation of {@link Handled} shows, on a database that is there. */
class HandledTableTest {
    private final Connection connection;
    private boolean fails;

    HandledTableTest() throws SQLException {
        connection = DriverManager.getConnection("jdbc:h2:mem:");
        connection.createStatement().execute("create table handled "
                + "(id varchar(64) primary key, at timestamp default current_timestamp)");
        connection.createStatement().execute("create table cancelled (number int)");
        connection.setAutoCommit(false);
    }

    private final class HandledTable implements Handled {
        @Override
        public boolean runOnce(String id, Runnable work) {
            try {
                try {
                    boolean isNew = insert(id);
                    if (isNew) {
                        work.run();
                    }
                    connection.commit();
                    return isNew;
                } finally {
                    connection.rollback();
                }
            } catch (SQLException failed) {
                throw new IllegalStateException(failed);
            }
        }

        private boolean insert(String id) throws SQLException {
            try (PreparedStatement insert = connection.prepareStatement("insert into handled (id) values (?)")) {
                insert.setString(1, id);
                return insert.executeUpdate() == 1;
            } catch (SQLIntegrityConstraintViolationException known) {
                return false;
            }
        }
    }

    private void cancel(MessageExt message) throws Exception {
        connection.createStatement().execute("insert into cancelled values (42)");
        if (fails) {
            throw new Exception("not yet");
        }
    }

    private int cancelled() throws SQLException {
        try (ResultSet count = connection.createStatement().executeQuery("select count(*) from cancelled")) {
            count.next();
            return count.getInt(1);
        }
    }

    @Test
    void whatAListenerHandlesHappensOnceAlsoIfItFailedAtFirst() throws Exception {
        MessageListenerConcurrently listener = new Once(new HandledTable()).listener(this::cancel);
        MessageExt message = new MessageExt();
        message.putUserProperty("DELAYLINE_ID", "a");
        ConsumeConcurrentlyContext context = new ConsumeConcurrentlyContext(null);
        fails = true;
        assertThrows(IllegalStateException.class, () -> listener.consumeMessage(Collections.singletonList(message), context));
        assertEquals(0, cancelled());
        fails = false;
        for (int copy = 0; copy < 2; copy++) {
            listener.consumeMessage(Collections.singletonList(message), context);
            assertEquals(1, cancelled());
        }
    }

    /** A producer makes such an id of 16 bytes of an address and 12 others. */
    @Test
    void aMessageIdByIpv6Fits() throws Exception {
        MessageExt message = new MessageExt();
        message.setMsgId(String.join("", Collections.nCopies(28, "F0")));
        new Once(new HandledTable()).handle(message, this::cancel);
        assertEquals(1, cancelled());
    }
}

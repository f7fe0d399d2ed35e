package io.delayline;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.SQLIntegrityConstraintViolationException;
import org.apache.rocketmq.common.message.MessageExt;
import org.junit.jupiter.api.Test;

/** What the documentation of {@link Handled} shows, on a database that is there. */
class HandledTableTest {
    private final Connection connection;

    HandledTableTest() throws SQLException {
        connection = DriverManager.getConnection("jdbc:h2:mem:");
        connection.createStatement().execute("create table handled (id varchar(36) primary key, at timestamp default current_timestamp)");
        connection.createStatement().execute("create table cancelled (number int)");
        connection.setAutoCommit(false);
    }

    private final class HandledTable implements Handled {
        @Override
        public boolean claim(String id) {
            try (PreparedStatement insert = connection.prepareStatement("insert into handled (id) values (?)")) {
                insert.setString(1, id);
                return insert.executeUpdate() == 1;
            } catch (SQLIntegrityConstraintViolationException known) {
                return false;
            } catch (SQLException failed) {
                throw new IllegalStateException(failed);
            }
        }

        @Override
        public void release(String id) {
        }
    }

    private boolean cancel(String id, boolean fails) throws Exception {
        MessageExt message = new MessageExt();
        message.putUserProperty("DELAYLINE_ID", id);
        try {
            boolean isNew = new Once(new HandledTable()).handle(message, order -> {
                connection.createStatement().execute("insert into cancelled values (42)");
                if (fails) {
                    throw new IllegalArgumentException("not yet");
                }
            });
            connection.commit();
            return isNew;
        } catch (Exception failed) {
            connection.rollback();
            throw failed;
        }
    }

    @Test
    void theEffectHappensOnce() throws Exception {
        assertThrows(IllegalArgumentException.class, () -> cancel("a", true));
        assertTrue(cancel("a", false));
        assertFalse(cancel("a", false));
        try (ResultSet count = connection.createStatement().executeQuery("select count(*) from cancelled")) {
            count.next();
            assertEquals(1, count.getInt(1));
        }
    }
}

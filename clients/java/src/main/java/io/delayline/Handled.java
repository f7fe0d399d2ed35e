package io.delayline;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Remembers which messages were handled, for {@link Once}, by the id that it gives to each: in memory, or in a table of the
 * service's own.
 *
 * <p>A table holds also across restarts and instances. Where the id is a row that is written in the transaction of the effect,
 * the effect happens once, whatever crashes. So the table's own code begins that transaction, and commits it or rolls it back:
 *
 * <pre>{@code
 * // create table handled (id varchar(64) primary key, at timestamp default current_timestamp)
 * class HandledTable implements Handled {
 *     public boolean runOnce(String id, Runnable work) {
 *         Connection connection = connection();       // that of this thread, without autocommit: the handler uses it, too
 *         try {
 *             try {
 *                 boolean isNew = insert(connection, id);
 *                 if (isNew) {
 *                     work.run();
 *                 }
 *                 connection.commit();
 *                 return isNew;
 *             } finally {
 *                 connection.rollback();              // of what was not committed, if the handler failed
 *             }
 *         } catch (SQLException failed) {
 *             throw new IllegalStateException(failed);        // the message comes again
 *         }
 *     }
 *
 *     private boolean insert(Connection connection, String id) throws SQLException {
 *         try (PreparedStatement insert = connection.prepareStatement("insert into handled (id) values (?)")) {
 *             insert.setString(1, id);
 *             return insert.executeUpdate() == 1;
 *         } catch (SQLIntegrityConstraintViolationException known) {
 *             return false;
 *         }
 *     }
 * }
 * }</pre>
 *
 * <p>In PostgreSQL an insert that fails ends its transaction: there it is {@code insert … on conflict do nothing}, and
 * {@code executeUpdate} returns 0. With Spring insert and work are what a {@code TransactionTemplate} executes; a handler that is
 * {@code @Transactional} joins that. Rows may be deleted after a week, when no message comes again.
 */
public interface Handled {
    /**
     * Runs what handles a message, unless a message of that id was handled before. If it throws, or the process dies meanwhile,
     * the message does not count as handled: an id that is committed before the work would lose it.
     *
     * @param id up to 56 characters
     * @param work throws unchecked exceptions alone, for which transactions are rolled back
     * @return whether it was run
     */
    boolean runOnce(String id, Runnable work);

    /** Remembers so many in memory, and forgets the oldest. */
    static Handled inMemory(int capacity) {
        Map<String, Boolean> ids = Collections.synchronizedMap(new LinkedHashMap<String, Boolean>() {
            @Override
            protected boolean removeEldestEntry(Map.Entry<String, Boolean> eldest) {
                return size() > capacity;
            }
        });
        return (id, work) -> {
            if (ids.putIfAbsent(id, true) != null) {
                return false;
            }
            try {
                work.run();
                return true;
            } catch (Throwable failed) {
                ids.remove(id);
                throw failed;
            }
        };
    }
}

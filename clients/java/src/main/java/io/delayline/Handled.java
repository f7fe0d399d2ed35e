package io.delayline;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Remembers which messages were handled, for {@link Once}, by the id that it gives to each: in memory, or in a table of the
 * service's own.
 *
 * <p>A table holds also across restarts and instances. Where the claim is a row that is written in the transaction of the
 * effect, the effect happens once, whatever crashes:
 *
 * <pre>{@code
 * // create table handled (id varchar(36) primary key, at timestamp default current_timestamp)
 * class HandledTable implements Handled {                         // connection: that of the transaction of this thread,
 *     public boolean claim(String id) {                           // which the listener begins, and commits or rolls back
 *         try (PreparedStatement insert = connection().prepareStatement("insert into handled (id) values (?)")) {
 *             insert.setString(1, id);
 *             return insert.executeUpdate() == 1;
 *         } catch (SQLIntegrityConstraintViolationException known) {
 *             return false;
 *         } catch (SQLException failed) {
 *             throw new IllegalStateException(failed);            // the message comes again
 *         }
 *     }
 *     public void release(String id) {}                           // the rollback does it
 * }
 * }</pre>
 *
 * <p>In PostgreSQL an insert that fails ends its transaction: there it is {@code insert … on conflict do nothing}, and
 * {@code executeUpdate} returns 0. Rows may be deleted after a week, when no message comes again.
 */
public interface Handled {
    /**
     * Claims a message.
     *
     * @return whether it is this caller's to handle: false if it was claimed before
     */
    boolean claim(String id);

    /** Gives a claim back, as the handler failed and the message will come again. */
    void release(String id);

    /** Remembers so many in memory, and forgets the oldest. */
    static Handled inMemory(int capacity) {
        Map<String, Boolean> ids = Collections.synchronizedMap(new LinkedHashMap<String, Boolean>() {
            @Override
            protected boolean removeEldestEntry(Map.Entry<String, Boolean> eldest) {
                return size() > capacity;
            }
        });
        return new Handled() {
            @Override
            public boolean claim(String id) {
                return ids.putIfAbsent(id, true) == null;
            }

            @Override
            public void release(String id) {
                ids.remove(id);
            }
        };
    }
}

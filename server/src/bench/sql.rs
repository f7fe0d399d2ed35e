//! Keeps bare rows in a table of SQL, by the statements that each of its drivers can do.

/// Makes a side of a driver's. `$one` is the condition for the row of a name; `$before` and `$after` are around the names in
/// that for several, which is to go through the index of live ones, with TABLE for the table's name; `$returning` is whether
/// an UPDATE gives its rows back.
macro_rules! bare {
    ($driver:ty, $one:literal, $before:literal, $after:literal, $returning:literal) => {
        /// A bare table.
        struct Bare {
            pool: sqlx::Pool<$driver>,
            table: String,
        }

        /// Narrows a statement to the rows of these ids. The rest of the condition is in no index, as a sum is in none.
        fn by_ids(query: &mut sqlx::QueryBuilder<$driver>, condition: &str, items: &[Item]) {
            let mut ids = query.push(condition).separated(", ");
            for item in items {
                ids.push_bind(id(item.number));
            }
            query.push(")");
        }

        #[async_trait]
        impl Side for Bare {
            async fn apply(&self, verb: Verb, items: &[Item]) -> Result<usize, Error> {
                let table = &self.table;
                let due = items.first().map_or(0, |item| item.due);
                let mut query = sqlx::QueryBuilder::<$driver>::new(match verb {
                    Verb::Add => {
                        format!("INSERT INTO {table} (id, kind, name, state, due_at, wake_at, payload) ")
                    }
                    Verb::Cancel => format!("UPDATE {table} SET state = 4"),
                    Verb::Move => format!("UPDATE {table} SET due_at = {due}, wake_at = {due}"),
                    Verb::Claim => format!("UPDATE {table} SET state = 1, wake_at = wake_at + 30000"),
                    Verb::Finish => format!("UPDATE {table} SET state = 2"),
                });
                match verb {
                    Verb::Add => {
                        query.push_values(items, |mut row, item| {
                            row.push_bind(id(item.number))
                                .push_bind(KIND)
                                .push_bind(item.key());
                            row.push("0")
                                .push_bind(item.due)
                                .push_bind(item.due)
                                .push_bind(&PAYLOAD[..]);
                        });
                    }
                    Verb::Cancel | Verb::Move if items.len() == 1 => {
                        query.push($one).push_bind(items[0].key());
                    }
                    Verb::Cancel | Verb::Move => {
                        let mut names = query.push($before).separated(", ");
                        for item in items {
                            names.push_bind(item.key());
                        }
                        query.push($after.replace("TABLE", table));
                    }
                    Verb::Claim => by_ids(&mut query, " WHERE state + 0 = 0 AND id IN (", items),
                    Verb::Finish => by_ids(&mut query, " WHERE state + 0 = 1 AND id IN (", items),
                }
                if verb == Verb::Claim && $returning {
                    query.push(" RETURNING id, payload");
                } else {
                    let done = query.build().execute(&self.pool).await?.rows_affected() as usize;
                    if verb != Verb::Claim {
                        return Ok(done);
                    }
                    query = sqlx::QueryBuilder::new(format!("SELECT id, payload FROM {table}"));
                    by_ids(&mut query, " WHERE id IN (", items);
                }
                let rows: Vec<(Uuid, Vec<u8>)> = query.build_query_as().fetch_all(&self.pool).await?;
                Ok(rows.len())
            }

            async fn close(&self) -> Result<(), Error> {
                self.pool.close().await;
                Ok(())
            }
        }
    };
}

pub(super) use bare;

//! Checks a table against the contract of [`Table`]: one named test per case.
//!
//! ```text
//! // tests/table.rs of the crate that has the table, with tokio's features `macros` and `rt-multi-thread`
//! delayline::testing::table_conformance!(my_table, MyFixture::new());
//! ```
//!
//! makes a module `my_table` of tests such as `my_table::a_write_of_another_version_is_lost`. What an engine makes of a table
//! is held to its contract by [`store_conformance`](crate::testing::store_conformance).

#![allow(clippy::unwrap_used, reason = "a case is a test, and may panic")]

mod claims;
mod dropped;
mod edges;
mod guards;
mod ranges;
mod rows;
mod trial;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::TaskId;
use crate::store::table::Table;
#[doc(inline)]
pub use crate::table_conformance;

/// Makes the tables for the cases.
#[async_trait]
pub trait TableFixture: Debug + Send + Sync {
    /// Makes a fresh, empty table.
    async fn table(&self) -> Arc<dyn Table>;

    /// Locks a row of the table that was made last, in a transaction of another connection, until the returned value is
    /// dropped. None, if no row of such a table can be locked.
    async fn lock(&self, id: TaskId) -> Option<Box<dyn Send>> {
        let _ = id;
        None
    }
}

/// Makes a module of one test per case: `table_conformance!(name, fixture)`.
///
/// The fixture is an expression, evaluated for every test and within its async function.
#[macro_export]
#[doc(hidden)]
macro_rules! table_conformance {
    ($name:ident, $fixture:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            $crate::table_cases! { [$crate::table_tests] [$fixture] }
        }
    };
}

/// The tests of some cases.
#[macro_export]
#[doc(hidden)]
macro_rules! table_tests {
    ([$fixture:expr] $($group:ident { $($case:ident)* })*) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $case() {
                $crate::testing::table::within_limit($crate::testing::table::cases::$case(&$fixture)).await;
            }
        )*)*
    };
}

/// How long a case may take: one waits for ever for a table that never lets go of a row, for example.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs a case, and panics when it has not ended within ten minutes.
#[doc(hidden)]
pub async fn within_limit(case: impl Future<Output = ()>) {
    let ended = tokio::time::timeout(LIMIT, case).await;
    assert!(
        ended.is_ok(),
        "the case has not ended within {LIMIT:?}: the table may keep a row locked for ever"
    );
}

/// The functions for the tests. As the cases are private to their modules, one that is in no test is dead code.
macro_rules! public_cases {
    ([] $($group:ident { $($case:ident)* })*) => {
        #[doc(hidden)]
        pub mod cases {
            use super::TableFixture;
            $($(
                #[allow(missing_docs)]
                pub async fn $case(fixture: &dyn TableFixture) {
                    super::$group::$case(fixture).await;
                }
            )*)*
        }
    };
}

/// Passes every case, in its group, to a macro.
#[macro_export]
#[doc(hidden)]
macro_rules! table_cases {
    ([$($then:tt)*] [$($with:tt)*]) => {
        $($then)*! {
            [$($with)*]
            rows {
                a_new_row_is_read_by_its_id_and_by_its_key
                a_lean_row_has_no_payload_and_no_headers
                what_is_absent_is_left_out
                a_key_means_its_live_row_else_the_newest
                a_new_row_that_meets_another_is_lost
                all_new_rows_of_a_call_are_of_one_moment
                what_is_noted_is_added_to_what_was
                the_time_of_an_answer_is_the_tables
                an_empty_call_does_nothing
            }
            guards {
                a_write_of_the_version_that_was_read_is_written
                a_write_of_another_version_is_lost
                a_write_of_another_wake_at_is_lost_where_that_matters
                a_write_of_a_row_that_is_gone_is_lost
                a_payload_is_written_only_where_it_is_new
                a_second_live_row_of_a_key_is_lost
                a_key_is_free_once_the_row_before_it_has_ended
                each_write_of_a_call_is_answered_for_itself
                of_many_writers_of_a_version_one_is_written
                a_locked_row_is_said_to_be_locked
            }
            ranges {
                due_rows_come_in_the_order_of_their_times_and_ids
                a_range_goes_on_after_its_last_row
                a_range_has_no_more_rows_than_its_limit
                a_range_has_no_more_bytes_than_it_may
                a_range_of_every_kind_has_its_limit_of_each
                a_range_is_of_one_state
                a_range_by_wake_leaves_out_what_has_none
                a_range_begins_and_ends_at_its_times
                a_range_backwards_begins_at_its_end
                each_range_of_a_call_is_answered_for_itself
                rows_are_counted_within_each_span_up_to_the_most
                kinds_are_those_that_have_rows_in_the_state
                what_has_passed_is_removed_up_to_the_limit_of_each_kind
            }
            claims {
                due_rows_are_claimed_the_longest_due_first
                rows_are_claimed_by_their_ids_and_versions
                no_more_is_claimed_than_there_is_room_for
                no_more_is_claimed_than_there_are_bytes_for
                a_row_that_is_not_due_or_not_scheduled_is_not_claimed
                a_row_is_claimed_by_one
                a_locked_row_is_passed_over
            }
            edges {
                a_range_has_the_milliseconds_at_which_it_begins_and_ends
                a_row_is_counted_from_its_millisecond_on
                a_row_is_claimed_from_its_millisecond_on
            }
            dropped {
                a_write_that_is_dropped_leaves_its_row_whole
                an_insert_that_is_dropped_leaves_no_part_of_a_row
                a_claim_that_is_dropped_has_its_rows_or_leaves_them
            }
        }
    };
}

table_cases! { [public_cases] [] }

#[cfg(test)]
mod tests {
    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "has not ended within 600s")]
    async fn a_case_that_does_not_end_fails() {
        super::within_limit(std::future::pending()).await;
    }
}

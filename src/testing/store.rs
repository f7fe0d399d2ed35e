//! Checks a store against the contract of [`Store`]: one named test per case.
//!
//! ```text
//! // tests/store.rs of the crate that has the store, with tokio's features `macros` and `rt-multi-thread`
//! delayline::testing::store_conformance!(my_store, MyFixture::new());
//! ```
//!
//! makes a module `my_store` of tests such as `my_store::a_claim_that_lost_its_lease_cannot_settle`.
//! No case waits for longer than a second altogether.

mod arrive;
mod change;
mod due_within;
mod edit;
mod history;
mod hop;
mod insert;
mod keep;
mod look;
mod purge;
mod race;
mod ready;
mod renew;
mod scheduler;
mod settle;
mod sweep;
mod trial;
mod walk;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::store::Store;
#[doc(inline)]
pub use crate::store_conformance;

/// Makes the stores for the cases.
#[async_trait]
pub trait StoreFixture: Debug + Send + Sync {
    /// Makes a fresh, empty store, which keeps history for `history`.
    async fn store(&self, history: Duration) -> Arc<dyn Store>;

    /// Lets at least `time` pass by the clock of the stores: it steps their clock, or sleeps when
    /// the clock is a server's. At most 350 ms.
    async fn pass(&self, time: Duration);
}

/// Makes a module of one test per case: `store_conformance!(name, fixture)`.
///
/// The fixture is an expression, evaluated for every test and within its async function.
#[macro_export]
#[doc(hidden)]
macro_rules! store_conformance {
    ($name:ident, $fixture:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            $crate::store_cases! { [$crate::store_tests] [$fixture] }
        }
    };
}

/// The tests of some cases.
#[macro_export]
#[doc(hidden)]
macro_rules! store_tests {
    ([$fixture:expr] $($group:ident { $($case:ident)* })*) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $case() {
                $crate::testing::store::cases::$case(&$fixture).await;
            }
        )*)*
    };
}

/// The functions for the tests. As the cases are private to their modules, one that is in no test is dead code.
macro_rules! public_cases {
    ([] $($group:ident { $($case:ident)* })*) => {
        #[doc(hidden)]
        pub mod cases {
            use super::StoreFixture;
            $($(
                #[allow(missing_docs)]
                pub async fn $case(fixture: &dyn StoreFixture) {
                    super::$group::$case(fixture).await;
                }
            )*)*
        }
    };
}

/// Passes every case, in its group, to a macro.
#[macro_export]
#[doc(hidden)]
macro_rules! store_cases {
    ([$($then:tt)*] [$($with:tt)*]) => {
        $($then)*! {
            [$($with)*]
            insert {
                a_new_row_is_as_it_was_given
                a_calendar_time_is_kept_to_the_millisecond
                a_delay_beyond_the_last_moment_ends_there
                a_repeated_insert_finds_the_row_in_whatever_state
                an_id_twice_in_a_batch_is_one_row
                a_live_key_is_left_as_it_is
                a_running_key_answers_running_and_is_not_replaced
                a_scheduled_key_is_replaced_where_asked
                a_wake_of_what_was_replaced_is_stale
                the_key_of_a_finished_row_is_free
                a_key_twice_in_a_batch_is_one_row
                a_key_whose_lease_has_ended_is_scheduled
                a_time_that_has_passed_was_planned_for_now
                rows_meet_only_in_kind_and_key
                keys_and_kinds_are_told_apart_by_every_byte
                answers_come_in_the_order_given
                every_value_comes_back_as_it_was
                a_big_batch_is_taken
            }
            change {
                a_scheduled_row_takes_every_verb_for_live_rows
                a_running_row_is_too_late
                a_done_row_is_finished
                a_cancelled_row_is_finished
                a_dead_row_takes_redrive_and_dismiss_only
                a_missing_row_is_not_found
                a_reschedule_starts_anew_at_its_time
                run_now_is_due_now_and_starts_anew
                redrive_is_due_now_and_starts_anew
                a_cancelled_row_is_kept_as_history
                a_dismissed_row_is_kept_as_history
                a_claim_whose_lease_has_ended_is_none
                redrive_yields_to_another_live_row_of_the_key
                a_row_must_be_as_expected
                the_state_answers_before_the_expectation
                a_repeated_change_that_expects_a_version_applies_once
                a_key_means_its_live_row_else_the_newest
                changes_of_one_row_apply_in_the_order_given
                a_wake_of_what_was_changed_is_stale
                what_was_cancelled_or_moved_away_is_not_claimed
            }
            scheduler {
                every_verb_takes_a_task_whose_lease_has_ended
            }
            edit {
                an_edit_changes_the_payload_and_nothing_else
                an_edit_with_a_time_moves_the_row_as_well
                an_edited_row_is_claimed_with_its_new_payload
                a_move_after_an_edit_keeps_its_payload
                an_edit_that_expects_another_time_leaves_the_row
            }
            arrive {
                a_due_row_is_claimed
                a_row_that_is_not_due_is_early_and_unchanged
                a_row_is_claimed_once_time_has_made_it_due
                a_row_is_claimed_whatever_its_wake_at
                another_version_is_stale
                a_row_that_is_not_scheduled_is_stale
                a_missing_row_is_stale
                of_twins_the_second_is_stale
                a_due_row_without_room_or_handler_waits_unchanged
                room_is_for_each_kind_and_never_exceeded
                the_kind_of_the_row_counts_and_not_that_of_the_wake
                a_mixed_batch_tells_each_apart
                the_owner_of_a_claim_is_noted
            }
            hop {
                a_hop_moves_the_row_on
                of_two_hops_from_one_version_one_is_taken
                a_row_that_is_not_scheduled_takes_no_hop
                hops_are_answered_in_the_order_given
                after_a_hop_the_next_wake_is_valid_and_the_last_is_stale
            }
            ready {
                due_rows_are_claimed
                the_longest_due_come_first
                the_longest_due_come_first_whatever_their_kind
                no_kind_takes_more_than_its_room
                a_row_is_ready_whatever_its_wake_at
                a_row_is_not_ready_before_it_is_due
                only_scheduled_rows_are_ready
                no_more_is_claimed_than_there_are_bytes_for
                a_lease_that_has_ended_is_left_to_the_sweep
            }
            sweep {
                an_ended_lease_makes_the_row_scheduled_again
                an_ended_lease_is_claimed_in_this_sweep_or_the_next
                a_claim_that_had_started_was_an_attempt
                every_end_of_a_lease_is_a_stall_until_a_claim_ends_by_itself
                a_lease_that_has_not_ended_is_left
                a_lease_ends_as_time_passes
                an_overdue_row_is_claimed_when_it_is_due
                a_row_whose_wake_is_not_overdue_is_left
                a_row_is_swept_however_long_it_is_overdue
                a_due_row_without_room_is_left_to_a_worker_that_has_room
                a_due_row_of_a_foreign_kind_waits_unchanged
                a_lost_wake_is_early_for_one_sweep_at_a_time
                a_lost_wake_whose_hop_was_not_recorded_is_found_again
                a_wake_becomes_overdue_as_time_passes
                a_sweep_claims_no_more_than_there_is_room_for
                the_limit_is_for_each_kind
                the_limit_is_for_each_state
                a_sweep_looks_ahead_where_asked
                finished_rows_are_not_swept
            }
            settle {
                done_is_kept_as_history
                dead_is_kept_until_an_operator_acts
                a_retry_keeps_its_attempt_and_its_plan
                a_snooze_gives_its_attempt_back_and_keeps_its_plan
                once_more_is_as_a_new_task
                a_released_claim_is_as_it_was_and_looked_at_at_once
                a_moved_claim_is_scheduled_anew_for_its_time
                a_claim_that_is_moved_to_the_past_was_planned_for_now
                a_cancelled_claim_is_kept_as_history_and_was_no_attempt
                only_a_running_row_can_be_settled
                a_claim_settles_once
                a_claim_settles_by_its_version_only
                a_claim_that_lost_its_lease_cannot_settle
                an_ended_lease_that_no_other_worker_took_still_settles
                settlements_are_answered_in_the_order_given
                a_settled_row_is_live_or_its_key_is_free
            }
            renew {
                a_renewal_moves_the_end_of_the_lease_and_nothing_else
                a_renewed_lease_is_not_swept
                that_a_handler_has_started_is_noted
                a_claim_that_lost_its_lease_cannot_renew
                only_a_running_row_of_the_version_is_renewed
                renewals_are_answered_in_the_order_given
                a_lost_claim_does_not_end_the_lease_of_the_next
            }
            look {
                a_row_is_found_by_id_and_by_key
                a_list_is_of_one_kind_and_state
                a_list_goes_on_after_its_last_row
                a_page_goes_on_though_its_last_row_is_gone
                a_lean_list_is_without_payloads_and_headers
                kinds_are_those_that_have_rows_in_the_state
                upcoming_is_by_due_time_up_to_the_limit
                upcoming_is_due_within_the_time
                upcoming_leaves_what_was_due_before_to_others
                upcoming_begins_a_moment_ago
                upcoming_is_scheduled_rows_as_they_are
                time_goes_on
                every_answer_is_of_the_time_of_its_call
                an_empty_batch_does_nothing
            }
            due_within {
                rows_are_counted_within_each_span
                what_is_overdue_is_due_within_every_span
                only_scheduled_rows_of_the_kind_are_counted
                rows_of_another_state_are_counted_as_well
                a_count_ends_at_its_limit
                counting_follows_the_clock_of_the_store
            }
            purge {
                history_is_removed_when_its_time_has_passed
                a_removed_row_hides_no_older_one_of_its_key
                history_is_kept_for_its_time
                live_and_dead_rows_are_never_removed
                a_row_that_came_back_to_life_is_not_removed
                a_purge_removes_up_to_its_limit_of_each_kind
            }
            keep {
                rows_of_a_kind_stay_as_long_as_is_said_of_it
                dead_rows_are_removed_where_that_is_said
                claims_are_noted_of_those_kinds_of_which_it_is_said
            }
            history {
                every_transition_is_noted_in_its_order
                nothing_is_noted_that_is_not_asked_for
                the_end_of_a_lease_is_noted_by_the_call_that_finds_it
                what_did_not_happen_is_not_noted
                a_replaced_row_keeps_its_history
                many_rows_are_each_noted_for_themselves
                a_long_history_loses_what_is_oldest
                a_history_is_gone_with_its_row
                every_ending_is_noted_with_its_due_times
            }
            race {
                a_wake_that_arrives_everywhere_claims_once
                a_ready_row_is_claimed_once
                an_overdue_row_is_claimed_once
                a_row_that_comes_by_every_way_is_claimed_once
                a_lost_wake_is_early_for_one_sweeper
                a_hop_is_taken_once
                an_id_that_is_inserted_everywhere_is_one_row
                a_key_that_is_inserted_everywhere_is_one_row
                a_row_is_cancelled_or_claimed_and_never_both
                a_row_is_edited_or_claimed_and_never_both
                an_edit_and_a_move_at_once_both_hold
                a_claim_settles_or_loses_its_lease_and_never_both
                of_two_dead_rows_of_a_key_one_is_redriven
            }
            walk {
                every_transition_adds_one_to_the_version
            }
        }
    };
}

store_cases! { [public_cases] [] }

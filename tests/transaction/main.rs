//! What is done within the service's own transactions, on each kind of database.
#![cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[cfg(any(feature = "postgres", feature = "mysql"))]
mod crossing;
mod finishing;
#[cfg(feature = "sqlite")]
mod full;
mod narrow;
#[cfg(feature = "postgres")]
mod notified;
mod verbs;

#[cfg(any(feature = "postgres", feature = "mysql"))]
#[path = "../support/database.rs"]
mod database;
#[path = "../support/service.rs"]
mod service;

/// One test of each case for each database, and of each case on servers for each that is one.
macro_rules! cases {
    ($($group:ident { $($case:ident)* })*; $($more:ident { $($there:ident)* })*) => {
        cases!(on sqlite, "sqlite", OnSqlite: $($group { $($case)* })*);
        cases!(on postgres, "postgres", OnPostgres: $($group { $($case)* })* $($more { $($there)* })*);
        cases!(on mysql, "mysql", OnMySql: $($group { $($case)* })* $($more { $($there)* })*);
    };
    (on $name:ident, $feature:literal, $service:ident: $($group:ident { $($case:ident)* })*) => {
        #[cfg(feature = $feature)]
        mod $name {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let service = <crate::service::$service as crate::service::Service>::new().await;
                    crate::$group::$case(service).await;
                }
            )*)*
        }
    };
}

cases! {
    verbs {
        a_task_of_a_transaction_that_is_rolled_back_never_was
        a_committed_task_runs_by_its_receipt_alone
        a_committed_task_runs_without_its_receipt
        a_verb_of_a_transaction_that_is_rolled_back_changes_nothing
        a_verb_of_a_transaction_that_commits_is_done
        a_running_task_is_too_late_and_its_worker_keeps_it
        a_bad_task_is_refused_and_the_transaction_goes_on
    }
    finishing {
        the_effect_and_done_commit_together
        done_is_noted_as_an_ordinary_end_is
        what_was_finished_and_not_committed_is_tried_again
        a_handler_that_fails_after_its_commit_is_done
        a_worker_that_has_lost_the_claim_cannot_finish
        a_claim_is_kept_while_its_transaction_is_open
    }
    narrow {
        one_connection_serves_many_callers_and_their_worker
    };
    crossing {
        of_two_transactions_that_cross_one_is_given_up_and_can_be_repeated
    }
}

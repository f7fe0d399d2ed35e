//! Tests processes that are killed, databases that are restarted, many workers and wrong clocks: nothing is lost,
//! nothing has its effect twice.
#![cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod child;
mod clocks;
mod crowd;
mod killed;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod restart;

#[cfg(any(feature = "postgres", feature = "mysql"))]
#[path = "../support/database.rs"]
mod database;
#[path = "../support/service.rs"]
mod service;

/// One test of each case for each database.
macro_rules! cases {
    ($($group:ident { $($case:ident)* })*) => {
        cases!(on sqlite, "sqlite", OnSqlite: $($group { $($case)* })*);
        cases!(on postgres, "postgres", OnPostgres: $($group { $($case)* })*);
        cases!(on mysql, "mysql", OnMySql: $($group { $($case)* })*);
    };
    (on $name:ident, $feature:literal, $service:ident: $($group:ident { $($case:ident)* })*) => {
        #[cfg(feature = $feature)]
        mod $name {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let service = <crate::service::$service as crate::service::Service>::new().await;
                    crate::$group::$case(stringify!($name), service).await;
                }
            )*)*

            /// Runs a child of the other tests; does nothing unless it is one.
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn child_process() {
                crate::child::run::<crate::service::$service>().await;
            }
        }
    };
}

cases! {
    killed {
        a_process_killed_between_the_commit_and_the_wake_up_loses_nothing
        a_process_killed_between_the_effect_and_the_commit_has_had_no_effect
        a_process_killed_after_the_commit_has_had_its_effect_once
    }
    crowd {
        eight_workers_in_four_processes_run_each_task_once
    }
    clocks {
        a_worker_whose_clock_is_fast_is_not_early_and_goes_on
        a_worker_whose_clock_is_slow_is_not_early_and_goes_on
    }
}

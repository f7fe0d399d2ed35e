//! Counts the outcomes of the orders from durable data: every order in the file, of this run and earlier ones.

use std::fmt;

use serde::Serialize;

use crate::Error;
use crate::orders::Orders;

#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    orders: u64,
    paid: u64,
    extended: u64,
    cancelled: u64,
    /// Neither paid nor cancelled, though their time is over.
    lost: u64,
    /// Those with more than one effect.
    twice: u64,
    /// Cancelled before the time last promised.
    early: u64,
    hops_max: u64,
    /// Of all that were cancelled, from the time last promised until their handler ran.
    late_ms: Lateness,
    /// Of these, those whose last wake-up came from the carrier.
    late_carrier_ms: Lateness,
    /// Of these, those whose last wake-up came from the precise backend.
    late_precise_ms: Lateness,
    woken_by: WokenBy,
}

/// Zeros if there was none to be late.
#[derive(Debug, Serialize)]
struct Lateness {
    p50: u64,
    p99: u64,
    max: u64,
}

/// How many handlers were started by what.
#[derive(Debug, Serialize)]
struct WokenBy {
    carrier: usize,
    precise: usize,
    room: usize,
    sweep: usize,
}

impl Summary {
    pub(crate) async fn of(orders: &Orders) -> Result<Self, Error> {
        let pool = &orders.pool;
        let (all, paid, extended, cancelled, lost): (u32, u32, u32, u32, u32) = sqlx::query_as(
            "SELECT COUNT(*), COUNT(*) FILTER (WHERE state = 'paid'), COUNT(*) FILTER (WHERE extended),
                    COUNT(*) FILTER (WHERE state = 'cancelled'), COUNT(*) FILTER (WHERE state = 'open')
             FROM orders",
        )
        .fetch_one(pool)
        .await?;
        let twice: u32 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM (SELECT 1 FROM effects GROUP BY order_id HAVING COUNT(*) > 1)",
        )
        .fetch_one(pool)
        .await?;
        let effects: Vec<(i64, u32, String)> = sqlx::query_as(
            "SELECT at_ms - due_ms, hops, woken_by FROM effects JOIN orders ON orders.id = order_id
             WHERE effect = 'cancelled'",
        )
        .fetch_all(pool)
        .await?;
        let woken_by = |name| effects.iter().filter(|(_, _, woken_by)| woken_by == name).count();
        let late = |name: Option<&str>| {
            let chosen = effects
                .iter()
                .filter(|(_, _, woken_by)| name.is_none_or(|name| woken_by == name));
            Lateness::of(chosen.map(|&(late_ms, ..)| u64::try_from(late_ms).unwrap_or(0)))
        };
        Ok(Self {
            orders: all.into(),
            paid: paid.into(),
            extended: extended.into(),
            cancelled: cancelled.into(),
            lost: lost.into(),
            twice: twice.into(),
            early: effects.iter().filter(|&&(late_ms, ..)| late_ms < 0).count() as u64,
            hops_max: effects.iter().map(|&(_, hops, _)| hops.into()).max().unwrap_or(0),
            late_ms: late(None),
            late_carrier_ms: late(Some("carrier")),
            late_precise_ms: late(Some("precise")),
            woken_by: WokenBy {
                carrier: woken_by("carrier"),
                precise: woken_by("precise"),
                room: woken_by("room"),
                sweep: woken_by("sweep"),
            },
        })
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.lost == 0 && self.twice == 0 && self.early == 0
    }
}

impl Lateness {
    fn of(late_ms: impl Iterator<Item = u64>) -> Self {
        let mut sorted: Vec<u64> = late_ms.collect();
        sorted.sort_unstable();
        // The smallest value that so many of a hundred do not exceed.
        let percentile = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100);
            sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
        };
        Self {
            p50: percentile(50),
            p99: percentile(99),
            max: percentile(100),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            orders,
            paid,
            extended,
            cancelled,
            lost,
            twice,
            early,
            hops_max,
            late_ms,
            woken_by,
            ..
        } = self;
        writeln!(f)?;
        writeln!(
            f,
            "{orders} orders: {paid} paid, {cancelled} cancelled; {extended} given more time"
        )?;
        writeln!(f, "{lost} lost, {twice} ended twice, {early} cancelled early")?;
        writeln!(
            f,
            "late: p50 {} ms, p99 {} ms, max {} ms",
            late_ms.p50, late_ms.p99, late_ms.max
        )?;
        write!(
            f,
            "at most {hops_max} hops; started by: a wake-up of a level {}, of the precise backend {}; a handler that had ended and left room {}; the sweep {}",
            woken_by.carrier, woken_by.precise, woken_by.room, woken_by.sweep
        )
    }
}

//! How many tasks are due soon.

use std::borrow::Cow;
use std::time::Duration;

use delayline::{Kind, defaults};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Operations, Refusal};

/// The spans within which tasks are counted: their names, and how many seconds they are.
pub(crate) const SPANS: [(&str, u64); 8] = [
    ("5s", 5),
    ("1m", 60),
    ("5m", 300),
    ("15m", 900),
    ("1h", 3_600),
    ("4h", 4 * 3_600),
    ("8h", 8 * 3_600),
    ("24h", 24 * 3_600),
];

/// What is coming of a kind.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct Forecast {
    pub(crate) kind: String,
    /// From the shortest span on, each within the next.
    pub(crate) due: Vec<ForecastSpan>,
    /// Whether there are more than are counted: a count of 100,000 stands for that many or more.
    pub(crate) more: bool,
}

/// How many tasks are due within a span from now, what is overdue included.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct ForecastSpan {
    /// `5s`, `1m`, `5m`, `15m`, `1h`, `4h`, `8h` or `24h`.
    within: Cow<'static, str>,
    pub(crate) tasks: usize,
}

impl Operations {
    /// Counts the tasks that are due soon, of each of these kinds.
    pub(crate) async fn forecast(&self, kinds: Vec<Kind>) -> Result<Vec<Forecast>, Refusal> {
        let spans = SPANS.map(|(_, seconds)| Duration::from_secs(seconds));
        let mut forecasts = Vec::with_capacity(kinds.len());
        for kind in kinds {
            self.reach(&kind)?;
            let counts = self.scheduler.forecast(kind.clone(), &spans).await?;
            let due = |((within, _), tasks): ((&'static str, _), _)| ForecastSpan {
                within: within.into(),
                tasks,
            };
            forecasts.push(Forecast {
                kind: kind.to_string(),
                more: counts.contains(&defaults::FORECAST_LIMIT),
                due: SPANS.into_iter().zip(counts).map(due).collect(),
            });
        }
        Ok(forecasts)
    }
}

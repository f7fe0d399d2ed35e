//! `delayline forecast`: how many tasks are due soon.

use std::sync::Arc;
use std::time::Duration;

use delayline::store::Store;
use delayline::{Error, Kind, Scheduler, State, defaults};
use serde::Serialize;
use utoipa::ToSchema;

use crate::Failure;
use crate::database::Place;
use crate::kinds::{every, of_tasks};

/// See how many tasks are due soon: of these kinds, else of each of which there are scheduled ones.
#[derive(Debug, clap::Args)]
pub(crate) struct Forecast {
    /// The kinds of the tasks
    #[arg(value_name = "KIND")]
    kinds: Vec<String>,
    #[command(flatten)]
    place: Place,
    /// Print JSON, a line for each kind
    #[arg(long)]
    json: bool,
}

/// Within which spans tasks are counted: their names, and how many seconds they are.
const SPANS: [(&str, u64); 8] = [
    ("5s", 5),
    ("1m", 60),
    ("5m", 300),
    ("15m", 900),
    ("1h", 3_600),
    ("4h", 4 * 3_600),
    ("8h", 8 * 3_600),
    ("24h", 24 * 3_600),
];

/// How many kinds are asked for at once.
const PAGE: usize = 500;

/// What is coming of a kind.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Forecast)]
pub(crate) struct Coming {
    kind: String,
    /// From the shortest span on, each within the next.
    due: Vec<Due>,
    /// Whether there are more than are counted: a count of 100,000 stands for that many or more.
    more: bool,
}

/// How many tasks are due within a span from now, what is overdue included.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ForecastSpan)]
struct Due {
    /// `5s`, `1m`, `5m`, `15m`, `1h`, `4h`, `8h` or `24h`.
    within: &'static str,
    tasks: usize,
}

impl Coming {
    pub(crate) async fn of(scheduler: &Scheduler, kind: Kind) -> Result<Self, Error> {
        let spans = SPANS.map(|(_, seconds)| Duration::from_secs(seconds));
        let counts = scheduler.forecast(kind.clone(), &spans).await?;
        let due = |((within, _), tasks)| Due { within, tasks };
        Ok(Self {
            kind: kind.to_string(),
            more: counts.contains(&defaults::FORECAST_LIMIT),
            due: SPANS.into_iter().zip(counts).map(due).collect(),
        })
    }

    /// In columns: the kind, then each span.
    fn row(&self) -> [String; 1 + SPANS.len()] {
        let count = |due: &Due| match due.tasks {
            defaults::FORECAST_LIMIT => format!("{}+", due.tasks),
            tasks => tasks.to_string(),
        };
        let mut cells = std::iter::once(self.kind.clone()).chain(self.due.iter().map(count));
        std::array::from_fn(|_| cells.next().unwrap_or_default())
    }
}

impl Forecast {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let coming = crate::in_runtime(self.find())??;
        if !self.json {
            let names = SPANS.map(|(name, _)| name);
            let header = std::array::from_fn(|column| match column {
                0 => "KIND",
                column => names[column - 1],
            });
            return crate::print(&crate::table::table(header, coming.iter().map(Coming::row)));
        }
        let mut lines = String::new();
        for coming in &coming {
            lines.push_str(&crate::json(coming)?);
            lines.push('\n');
        }
        crate::print(&lines)
    }

    async fn find(&self) -> Result<Vec<Coming>, Failure> {
        let store = self.place.open().await?;
        let scheduler = Scheduler::builder(Arc::clone(&store)).build()?;
        let mut kinds: Vec<Kind> = self.kinds.iter().map(|kind| kind.as_str().into()).collect();
        if kinds.is_empty() {
            kinds = scheduled(&*store).await?;
        }
        let mut coming = Vec::with_capacity(kinds.len());
        for kind in kinds {
            coming.push(Coming::of(&scheduler, kind).await?);
        }
        Ok(coming)
    }
}

/// The kinds of which there are scheduled tasks.
async fn scheduled(store: &dyn Store) -> Result<Vec<Kind>, Error> {
    let mut kinds = Vec::new();
    loop {
        let page = of_tasks(store, State::Scheduled, kinds.last(), PAGE, &every).await?;
        let is_last = page.len() < PAGE;
        kinds.extend(page);
        if is_last {
            return Ok(kinds);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use delayline::TaskId;
    use delayline::store::{MemoryStore, NewRow, When};

    use super::*;

    #[tokio::test]
    async fn what_is_more_than_can_be_counted_is_told() {
        let row = |number: usize| NewRow {
            id: TaskId::from_bytes((number as u128).to_be_bytes()),
            kind: "k".into(),
            key: None,
            payload: Vec::new(),
            headers: BTreeMap::new(),
            due: When::After(Duration::from_secs(if number == 0 { 0 } else { 120 })),
            look_in: Duration::ZERO,
            max_attempts: None,
            replace: false,
            note: Default::default(),
        };
        let store = MemoryStore::new();
        let scheduler = Scheduler::new(store.clone());
        let most = defaults::FORECAST_LIMIT;
        store.insert((0..most - 1).map(row).collect()).await.unwrap();
        let coming = Coming::of(&scheduler, "k".into()).await.unwrap();
        assert!(!coming.more);
        assert_eq!(coming.row()[..4], ["k", "1", "1", "99999"]);
        store
            .insert((most - 1..most + 1).map(row).collect())
            .await
            .unwrap();
        let coming = Coming::of(&scheduler, "k".into()).await.unwrap();
        assert!(coming.more);
        assert_eq!(coming.row()[..4], ["k", "1", "1", "100000+"]);
    }
}

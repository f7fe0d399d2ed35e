//! `delayline forecast`: how many tasks are due soon.

use delayline::defaults;

use crate::Failure;
use crate::near::note_near;
use crate::operations::{Forecast as Coming, ForecastSpan, SPANS};
use crate::place::Place;
use crate::table::{one_line, table};

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

impl Forecast {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let coming = crate::in_runtime(async {
            let kinds = self.kinds.iter().map(|kind| kind.as_str().into()).collect();
            let client = self.place.client().await?;
            let coming = client.forecast(kinds).await?;
            if !self.kinds.is_empty() {
                let idle = coming
                    .iter()
                    .filter(|coming| coming.due.iter().all(|due| due.tasks == 0));
                let idle: Vec<_> = idle.map(|coming| coming.kind.as_str()).collect();
                note_near(&client, &idle).await;
            }
            Ok::<_, Failure>(coming)
        })??;
        if self.json {
            return crate::print(&crate::json_lines(&coming)?);
        }
        let mut names = SPANS.iter().map(|(name, _)| *name);
        let header = std::array::from_fn(|column| match column {
            0 => "KIND",
            _ => names.next().unwrap_or_default(),
        });
        crate::show(&table(header, coming.iter().map(row)))
    }
}

/// In columns: the kind, then each span.
fn row(coming: &Coming) -> [String; 1 + SPANS.len()] {
    let count = |due: &ForecastSpan| match due.tasks {
        defaults::FORECAST_LIMIT => format!("{}+", due.tasks),
        tasks => tasks.to_string(),
    };
    let mut cells = std::iter::once(one_line(&coming.kind)).chain(coming.due.iter().map(count));
    std::array::from_fn(|_| cells.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use delayline::TaskId;
    use delayline::store::{MemoryStore, NewRow, Store as _, When};

    use super::*;
    use crate::operations::Operations;

    #[tokio::test]
    async fn what_is_more_than_can_be_counted_is_told() {
        let new = |number: usize| NewRow {
            id: TaskId::from_bytes((number as u128).to_be_bytes()),
            kind: "k".into(),
            key: None,
            payload: Vec::new(),
            headers: BTreeMap::new(),
            due: When::After(Duration::from_secs(if number == 0 { 0 } else { 120 })),
            overdue_after: Duration::ZERO,
            max_attempts: None,
            replace: false,
            note: Default::default(),
        };
        let store = MemoryStore::new();
        let scheduler = delayline::Scheduler::new(store.clone());
        let operations = Operations::new(&scheduler, std::sync::Arc::new(store.clone()), "cli".to_owned());
        let most = defaults::FORECAST_LIMIT;
        store.insert((0..most - 1).map(new).collect()).await.unwrap();
        let coming = operations.forecast(vec!["k".into()]).await.unwrap().remove(0);
        assert!(!coming.more);
        assert_eq!(row(&coming)[..4], ["k", "1", "1", "99999"]);
        store
            .insert((most - 1..most + 1).map(new).collect())
            .await
            .unwrap();
        let coming = operations.forecast(vec!["k".into()]).await.unwrap().remove(0);
        assert!(coming.more);
        assert_eq!(row(&coming)[..4], ["k", "1", "1", "100000+"]);
    }
}

//! What a server is asked for.

use delayline::Kind;
use delayline::store::Target;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::server::{Answered, Server};
use super::{ChangeOutcome, PAGE, path_of};
use crate::Failure;
use crate::operations::{Filter, Forecast, Refusal, TaskView, state_name};

/// How many kinds a page of forecasts has.
const FORECASTS: usize = 100;

#[derive(Deserialize)]
struct Listing {
    tasks: Vec<TaskView>,
    cursor: Option<String>,
}

/// What is listed of kinds.
#[derive(Deserialize)]
struct Page<T> {
    kinds: Vec<T>,
}

impl Server {
    /// A task, if it is there, with what a search adds.
    pub(super) async fn task<T: DeserializeOwned>(
        &self,
        target: &Target,
        search: Option<&str>,
    ) -> Result<Option<T>, Failure> {
        let mut url = self.path(&path_of(target)?)?;
        url.set_query(search);
        self.look(url).await
    }

    pub(super) async fn verb(
        &self,
        target: &Target,
        verb: &str,
        body: &impl Serialize,
    ) -> Result<ChangeOutcome, Failure> {
        let mut path = path_of(target)?;
        path.push(verb.to_owned());
        match self.post::<ChangeOutcome>(self.path(&path)?, body).await? {
            Answered::Found(outcome) => Ok(outcome.without_payload()),
            Answered::Refused(outcome) => Ok(outcome.without_payload()),
            Answered::Absent => Err(Refusal::NoTask.into()),
        }
    }

    /// An edit with a payload, which is sent byte for byte.
    pub(super) async fn edit(
        &self,
        target: &Target,
        payload: Option<Box<RawValue>>,
        body: Map<String, Value>,
    ) -> Result<ChangeOutcome, Failure> {
        #[derive(Serialize)]
        struct Edited {
            #[serde(skip_serializing_if = "Option::is_none")]
            payload: Option<Box<RawValue>>,
            #[serde(flatten)]
            rest: Map<String, Value>,
        }
        let body = Edited { payload, rest: body };
        self.verb(target, "edit", &body).await
    }

    pub(super) async fn kind<T: DeserializeOwned>(
        &self,
        kind: &Kind,
        verb: &str,
        body: &Value,
    ) -> Result<T, Failure> {
        let url = self.path(&["kinds", kind.as_str(), verb])?;
        match self.post(url, body).await? {
            Answered::Found(found) => Ok(found),
            _ => Err(Failure::Found(format!("the server knows no such kind as {kind}"))),
        }
    }

    pub(super) async fn list(
        &self,
        filter: &Filter,
        limit: usize,
        all: bool,
    ) -> Result<(Vec<TaskView>, bool), Failure> {
        let mut found = Vec::new();
        let mut cursor = None;
        loop {
            let mut url = self.path(&["tasks"])?;
            let some = [
                ("kind", filter.kinds.first().map(ToString::to_string)),
                ("state", Some(state_name(filter.state).to_owned())),
                ("due_after", filter.due_after.map(|time| time.to_string())),
                ("due_before", filter.due_before.map(|time| time.to_string())),
                ("key_prefix", filter.key_prefix.clone()),
                ("error", filter.error.clone()),
                ("limit", Some((limit - found.len()).min(PAGE).to_string())),
                ("cursor", cursor),
            ];
            let some = some.into_iter().filter_map(|(name, value)| Some((name, value?)));
            url.query_pairs_mut().extend_pairs(some);
            let page: Listing = self.get(url).await?;
            found.extend(page.tasks);
            cursor = page.cursor;
            if cursor.is_none() || !all || found.len() >= limit {
                found.truncate(limit);
                return Ok((found, cursor.is_some()));
            }
        }
    }

    /// What is listed by name, page after page.
    pub(super) async fn pages<T: DeserializeOwned>(
        &self,
        what: &str,
        limit: usize,
        page: usize,
        name: fn(&T) -> &str,
    ) -> Result<Vec<T>, Failure> {
        let mut found: Vec<T> = Vec::new();
        loop {
            let wanted = (limit - found.len()).min(page);
            if wanted == 0 {
                return Ok(found);
            }
            let mut url = self.path(&[what])?;
            url.query_pairs_mut().append_pair("limit", &wanted.to_string());
            if let Some(last) = found.last() {
                url.query_pairs_mut().append_pair("after", name(last));
            }
            let Page { kinds: more } = self.get(url).await?;
            let is_last = more.len() < wanted;
            found.extend(more);
            if is_last {
                return Ok(found);
            }
        }
    }

    pub(super) async fn forecast(&self, kinds: &[Kind]) -> Result<Vec<Forecast>, Failure> {
        let mut found = Vec::new();
        for kind in kinds {
            let mut url = self.path(&["forecast"])?;
            url.query_pairs_mut().append_pair("kind", kind.as_str());
            let Page { kinds } = self.get(url).await?;
            found.extend(kinds);
        }
        match kinds.is_empty() {
            true => {
                self.pages("forecast", usize::MAX, FORECASTS, |coming: &Forecast| {
                    &coming.kind
                })
                .await
            }
            false => Ok(found),
        }
    }
}

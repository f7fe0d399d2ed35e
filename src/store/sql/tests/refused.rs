//! A row that a trigger refuses, in batches.

use crate::store::{NewRow, Store, Verb};
use crate::{Answer, Scheduled};

use super::rows::{change, id};

/// Of forty rows, a trigger refuses to have the 17th inserted (payload BA D0), and the 18th cancelled (0B AD), each with
/// an error that says "not this one": the others are written.
pub(in crate::store) async fn a_row_is_refused_alone(store: &impl Store, mut rows: Vec<NewRow>) {
    rows[17].payload = vec![0xBA, 0xD0];
    rows[18].payload = vec![0x0B, 0xAD];
    let answers = store.insert(rows).await.unwrap().found;
    for (place, answer) in answers.iter().enumerate() {
        match answer {
            Ok(Scheduled::New(task)) => assert_eq!((task.id, place != 17), (id(place), true)),
            Err(error) => assert_eq!((error.to_string().contains("not this one"), place), (true, 17)),
            other => panic!("{other:?}"),
        }
    }
    let cancels = (10..20).map(|number| change(id(number), Verb::Cancel)).collect();
    let answers = store.change(cancels).await.unwrap().found;
    for (place, answer) in (10..).zip(&answers) {
        match answer {
            Ok(Answer::Done(task)) => assert_eq!(task.id, id(place)),
            Ok(Answer::NotFound) => assert_eq!(place, 17),
            Err(error) => assert_eq!((error.is_transient(), place), (false, 18)),
            other => panic!("{other:?}"),
        }
    }
}

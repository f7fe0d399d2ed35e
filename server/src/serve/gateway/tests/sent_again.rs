//! Tests verbs that their producer sends again, as it had no answer.

use super::*;

/// The same message, so many seconds later.
fn again(verb: &Received, seconds: u64) -> Received {
    let mut verb = verb.clone();
    verb.stored_at = verb.stored_at.after(Duration::from_secs(seconds));
    (verb.born_at, verb.place) = (verb.stored_at, Some(900));
    verb
}

/// Its producer had no answer, and sends it once more: then it is stored later than all that came between.
#[tokio::test]
async fn a_verb_that_is_sent_again_long_after_acts_once() {
    let shop = Shop::open();
    let (first, shift, edit) = (
        shop.about(1, "schedule"),
        shop.about(2, "shift"),
        shop.about(3, "edit"),
    );
    assert_eq!(
        shop.answers(&[&first, &shift, &edit]).await,
        ["new", "done", "done"]
    );
    let task = shop.task_of(&first).await;
    for verb in [shift, edit] {
        let again = again(&verb, 660);
        assert_eq!(shop.answers(&[&again]).await, ["done"]);
        assert_eq!(shop.task_of(&first).await, task, "{}", again.id);
    }
}

/// Its producer had no answer, and sends it once more: by then others have used its key anew.
#[tokio::test]
async fn a_verb_that_is_sent_again_leaves_later_tasks_of_its_key() {
    for (verb, then) in [("cancel", "schedule"), ("shift", "replace"), ("edit", "replace")] {
        let shop = Shop::open();
        let (first, verb) = (shop.about(1, "schedule"), shop.about(2, verb));
        assert_eq!(shop.answers(&[&first, &verb]).await, ["new", "done"]);
        for number in [3, 4] {
            let next = shop.about(number, if number == 3 { then } else { "replace" });
            shop.answers(&[&next]).await;
            let task = shop.task_of(&next).await;
            let said = shop.comes(&[&again(&verb, 1)]).await.remove(0);
            let of = id_of("in", "id-1").to_string();
            assert_eq!(
                (&said["answer"], &said["task"]["id"]),
                (&"done".into(), &of.into())
            );
            assert_eq!(shop.task_of(&next).await, task, "{}", verb.id);
            assert_eq!(task.unwrap().state, State::Scheduled);
        }
    }
    // What a cancel leaves that found nothing is for messages that were sent before it.
    let shop = Shop::open();
    let cancels = [1, 2].map(|number| shop.about(number, "cancel"));
    let next = shop.about(3, "schedule");
    let said = shop.answers(&[&cancels[0], &cancels[1], &next]).await;
    assert_eq!(said, ["not_found", "not_found", "new"]);
    for cancel in &cancels {
        assert_eq!(shop.answers(&[&again(cancel, 1)]).await, ["not_found"]);
        assert_eq!(shop.task_of(&next).await.unwrap().state, State::Scheduled);
    }
}

#[tokio::test]
async fn a_task_says_only_so_many_of_the_verbs_before_it() {
    let shop = Shop::open();
    let shifts: Vec<_> = (2..32).map(|number| shop.about(number, "shift")).collect();
    shop.answers(&[&shop.about(1, "schedule")]).await;
    shop.answers(&shifts.iter().collect::<Vec<_>>()).await;
    let next = shop.about(32, "replace");
    assert_eq!(shop.answers(&[&next]).await, ["replaced"]);
    let verbs = &shop.task_of(&next).await.unwrap().headers["DELAYLINE_VERBS"];
    let kept: Vec<_> = verbs.split(',').collect();
    assert_eq!(kept.len(), 16);
    assert!(
        kept[0].starts_with("id-16 ") && kept[15].starts_with("id-31 "),
        "{verbs}"
    );
}

use proptest::prelude::*;

use super::*;

fn at(hour: i64) -> Timestamp {
    Timestamp::from_second(1_781_740_800 + hour * 3600).unwrap()
}

fn hold(subject: &str, says: &str, hour: i64, replaces: &[BeliefId]) -> Change {
    Change::Hold {
        subject: subject.into(),
        says: says.into(),
        by: "engineer".into(),
        at: at(hour),
        evidence: vec![Evidence { fact: says.into(), source: "a reading of the code".into() }],
        replaces: replaces.to_vec(),
        why: (!replaces.is_empty()).then(|| "the code says otherwise".into()),
    }
}

fn log(changes: &[Change]) -> Log {
    changes.iter().fold(Log::default(), |log, change| apply(&log, change).unwrap())
}

/// The routed scaling of the incident: suspect, then inert, then not inert.
fn routed() -> Log {
    log(&[
        hold("routed-scaling", "a factor may be applied twice", 0, &[]),
        hold("mhc-bf16", "the first suspect", 0, &[]),
        hold("routed-scaling", "inert under the triton runner", 1, &[0]),
        hold("routed-scaling", "not inert: the method of NVFP4 experts fuses it for every runner but marlin", 8, &[2]),
    ])
}

fn says(log: &Log, subject: &str, hour: i64) -> Vec<String> {
    as_of(log, subject, at(hour)).map(|b| b.says.clone()).collect()
}

#[test]
fn what_was_believed_then_is_told_as_it_was_then() {
    let log = routed();
    let check = |hour: i64, expect: &str| {
        let held = says(&log, "routed-scaling", hour);
        assert!(held.len() == 1 && held[0].starts_with(expect), "{hour}: {held:?}");
    };
    check(0, "a factor");
    check(1, "inert");
    check(7, "inert");
    check(8, "not inert");
    assert!(says(&log, "routed-scaling", -1).is_empty());
    assert_eq!(says(&log, "mhc-bf16", 9), ["the first suspect"]);
}

#[test]
fn an_old_belief_leads_to_what_is_held_now() {
    let log = routed();
    assert!(now(&log, 0).unwrap().says.starts_with("not inert"));
    assert_eq!(now(&log, 1).unwrap().id, 1);
    let withdrawn = apply(&log, &Change::Withdraw { belief: 3, at: at(9), why: "it was not measured".into() }).unwrap();
    assert_eq!(now(&withdrawn, 0), None, "nothing is held in its place");
    assert_eq!(history(&withdrawn, "routed-scaling").len(), 3, "and all of it stays");
    assert_eq!(now(&log, 99), None);
}

#[test]
fn what_may_not_be_written() {
    let log = routed();
    let check = |change: Change, expect: Refusal| assert_eq!(apply(&log, &change), Err(expect));
    let without = |change: Change| match change {
        Change::Hold { subject, says, by, at, evidence, replaces, .. } => {
            Change::Hold { subject, says, by, at, evidence, replaces, why: Some(" ".into()) }
        }
        other @ Change::Withdraw { .. } => other,
    };
    check(hold("routed-scaling", "x", 9, &[7]), Refusal::NoSuch { belief: 7 });
    check(hold("routed-scaling", "x", 9, &[2]), Refusal::EndedAlready { belief: 2 });
    check(hold("routed-scaling", "x", 9, &[1]), Refusal::OtherSubject { belief: 1 });
    check(hold("routed-scaling", "x", 7, &[3]), Refusal::TooEarly { belief: 3 });
    check(without(hold("routed-scaling", "x", 9, &[3])), Refusal::NoReason);
    check(Change::Withdraw { belief: 3, at: at(9), why: String::new() }, Refusal::NoReason);
    let bare = Change::Hold {
        subject: "x".into(),
        says: "x".into(),
        by: "x".into(),
        at: at(0),
        evidence: vec![],
        replaces: vec![],
        why: None,
    };
    check(bare, Refusal::NoEvidence);
}

#[test]
fn one_belief_may_replace_two() {
    let log = log(&[hold("a", "x", 0, &[]), hold("a", "y", 0, &[]), hold("a", "z", 1, &[1, 0, 1])]);
    assert_eq!(says(&log, "a", 1), ["z"]);
    assert_eq!(log.get(2).unwrap().replaces, [0, 1]);
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let one = prop_oneof![
        ("[ab]", 0i64..6, prop::collection::vec(0u32..8, 0..3)).prop_map(|(s, h, r)| hold(&s, "says", h, &r)),
        (0u32..8, 0i64..6).prop_map(|(belief, h)| Change::Withdraw { belief, at: at(h), why: "why".into() }),
    ];
    prop::collection::vec(one, 0..12)
}

proptest! {
    #[test]
    fn nothing_is_ever_lost_and_the_past_does_not_change(changes in changes(), then in 0i64..6) {
        let mut log = Log::default();
        for change in &changes {
            let Ok(next) = apply(&log, change) else { continue };
            prop_assert!(next.all().len() >= log.all().len());
            for (old, new) in log.all().iter().zip(next.all()) {
                let kept = Belief { ended: old.ended.clone(), ..new.clone() };
                prop_assert_eq!(old, &kept, "only its end is ever added");
                prop_assert!(old.ended.is_none() || old.ended == new.ended);
            }
            let moment = match change {
                Change::Hold { at, .. } | Change::Withdraw { at, .. } => *at,
            };
            if at(then) < moment {
                for subject in ["a", "b"] {
                    let before: Vec<u32> = as_of(&log, subject, at(then)).map(|b| b.id).collect();
                    let after: Vec<u32> = as_of(&next, subject, at(then)).map(|b| b.id).collect();
                    prop_assert_eq!(before, after);
                }
            }
            log = next;
        }
    }

    #[test]
    fn a_log_survives_being_written_down(changes in changes()) {
        let log = changes.iter().fold(Log::default(), |log, c| apply(&log, c).unwrap_or(log));
        let text = serde_json::to_string(&log).unwrap();
        prop_assert_eq!(serde_json::from_str::<Log>(&text).unwrap(), log);
    }
}

use super::*;
use crate::cli::fixture;

fn at(text: &str) -> Option<String> {
    let now: ZonedDateTime = "2026-05-02T12:00:00+02:00[Europe/Berlin]".parse().unwrap();
    since(text, &now).ok().map(|at| at.to_string())
}

#[test]
fn a_time_is_read_in_the_forms_that_people_write() {
    for (text, expect) in [
        ("2026-05-01T10:00:00Z", "2026-05-01T10:00:00Z"),
        ("2026-05-01T10:00Z", "2026-05-01T10:00:00Z"),
        ("2026-05-01T10:00:00.9Z", "2026-05-01T10:00:00Z"),
        ("2026-05-01T10:00:00+05:00", "2026-05-01T05:00:00Z"),
        ("2026-05-01 10:00", "2026-05-01T08:00:00Z"),
        ("2026-05-01T10:00:30", "2026-05-01T08:00:30Z"),
        ("2026-05-01", "2026-04-30T22:00:00Z"),
        ("2026-05-01T10:00[Asia/Tokyo]", "2026-05-01T01:00:00Z"),
        ("2h", "2026-05-02T08:00:00Z"),
        ("45min", "2026-05-02T09:15:00Z"),
        ("3d", "2026-04-29T10:00:00Z"),
        ("1h 30m", "2026-05-02T08:30:00Z"),
        (" 2h ago ", "2026-05-02T08:00:00Z"),
    ] {
        assert_eq!(at(text).as_deref(), Some(expect), "{text}");
    }
    for text in ["", "yesterday", "2", "2026-13-01", "0h", "2026-05-03", "10:00", "h", "9999999999999d"] {
        assert_eq!(at(text), None, "{text}");
    }
    let now: ZonedDateTime = "2026-05-02T12:00:00+00:00[UTC]".parse().unwrap();
    let failed = since("soon\u{1b}", &now).unwrap_err();
    assert_eq!((failed.status, failed.to_string().as_str()), (Status::Usage, "`soon␛` is no time to look back to"));
    assert!(failed.error.hint.unwrap().contains("`2h`"));
    assert_eq!(since("2027-01-01", &now).unwrap_err().to_string(), "`2027-01-01` has not come yet");
}

#[test]
fn the_newest_stands_first_and_gaps_are_named() {
    let answer = answer(fixture::noon(), fixture::asked(), Style::PLAIN);
    assert_eq!(answer.status, Status::Finding);
    insta::assert_snapshot!(answer.text, @"
    since 2026-05-01T12:00:00Z
    near: booted 2026-05-01T12:00:00Z, kernel Linux 6.1, graphics driver none
    far: no answer

    time                  kind           where        what                  source
    2026-05-01T12:02:00Z  launch-script  near/decode  run␛[31m.sh: changed  /a/file
    2026-05-01T12:01:00Z  checkpoint     near/decode  config.json: changed  /a/file
    unknown               gpu-error      near         1 error of a card     /a/file

    2 things cannot be told; that nothing is listed of them says nothing:
    where        not known     because
    near/decode  the checkout  the case names none
    far          everything    `far` is gone
    ");
    assert!(
        answer
            .diagnostics
            .iter()
            .any(|d| d.message == "the clock of the host is 90 s behind ours; times are the host's")
    );
    assert_eq!(answer.body["hosts"][1]["answered"], false);
    assert!(answer.body["changes"][0]["what"].as_str().unwrap().contains('\u{1b}'), "JSON keeps what came");
}

#[test]
fn the_status_says_whether_something_changed_or_nobody_answered() {
    let mut asked = fixture::asked();
    asked[0].history.as_mut().unwrap().changes.clear();
    let quiet = answer(fixture::noon(), asked.clone(), Style::PLAIN);
    assert_eq!(quiet.status, Status::World, "a silent host may have changed");
    let mut near = asked.clone();
    near.truncate(1);
    let near = answer(fixture::noon(), near, Style::PLAIN);
    assert_eq!((near.status, near.error), (Status::Done, None));
    asked.remove(0);
    let mute = answer(fixture::noon(), asked, Style::PLAIN);
    assert_eq!(
        (mute.status, mute.error.unwrap().message.as_str()),
        (Status::World, "not every host of the case answered: `far` is gone")
    );
    assert!(mute.text.contains("far: no answer"), "{}", mute.text);
}

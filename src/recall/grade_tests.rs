use super::*;
use proptest::prelude::*;

const V: &str = "QX7-41B";

fn check_of(expected: &str, answer: &str, finish: Finish, want: &str) {
    let (outcome, first) = grade(expected, answer, finish);
    let got = match &outcome {
        Outcome::Pass => "pass".to_owned(),
        Outcome::Fail { how } => format!("{how:?}"),
        Outcome::Void { .. } => "void".to_owned(),
    };
    assert_eq!(got, want, "expected `{expected}`, answer {answer:?}, {finish:?}: {outcome:?}");
    assert_eq!(first.is_some(), matches!(outcome, Outcome::Fail { .. }), "{answer:?}");
}

fn check(answer: &str, want: &str) {
    check_of(V, answer, Finish::Stop, want);
}

#[test]
fn the_value_alone_or_lightly_wrapped_passes() {
    for answer in [
        "QX7-41B",
        "  QX7-41B\n",
        "QX7-41B.",
        "\"QX7-41B\"",
        "`QX7-41B`",
        "**QX7-41B**",
        "“QX7-41B”.",
        "The value is QX7-41B.",
        "The access code for the north vault is QX7-41B.",
        "It is: QX7-41B",
        "Sure! The access code for the north vault is **QX7-41B**.",
        "access code: QX7-41B",
        "```\nQX7-41B\n```",
        "QX7-41B (the access code for the north vault)",
        "You told me it was QX7-41B. So: QX7-41B",
    ] {
        check(answer, "pass");
    }
}

#[test]
fn a_pass_does_not_depend_on_why_the_model_stopped() {
    for finish in [Finish::Stop, Finish::Length, Finish::ToolCall, Finish::Aborted, Finish::Unknown] {
        check_of(V, "QX7-41B", finish, "pass");
    }
}

#[test]
fn a_slip_is_a_near_miss() {
    for answer in ["QX7-41C", "QX741B", "XQ7-41B", "QX7-41", "qx7-41b", "The value is QX7-42B.", "QX7-411B", "QX7–41B"]
    {
        check(answer, "NearMiss");
    }
    check_of("8417", "8411", Finish::Stop, "NearMiss");
    check_of("river-stone-tree-4821", "river-stone-trie-4832", Finish::Stop, "NearMiss");
    check_of("héllo-wörld", "hello-world", Finish::Stop, "NearMiss");
}

#[test]
fn another_value_is_wrong() {
    for answer in ["ZZ9-88K", "4821", "B14-7XQ", "river-stone-4821", "The value is ZZ9-88K.", "Noted.", "OK."] {
        check(answer, "Wrong");
    }
    check_of("8417", "8151", Finish::Stop, "Wrong");
    check_of("8417", "7148", Finish::Stop, "Wrong");
}

#[test]
fn a_value_inside_another_word_or_a_hedge_is_no_pass() {
    for answer in [
        "AQX7-41BZ9",
        "It is not QX7-41B",
        "QX7-41B or ZZ9-88K",
        "Either QX7-41B or something else",
        "QX7-41B, ZZ9-88K, AA1-22B, CC3-44D",
        "maybe QX7-41B",
    ] {
        let (outcome, _) = grade(V, answer, Finish::Stop);
        assert_ne!(outcome, Outcome::Pass, "{answer}");
    }
    check_of("4821", "14821", Finish::Stop, "NearMiss");
    check_of("482", "48213377", Finish::Stop, "Wrong");
}

#[test]
fn denials_of_any_earlier_context() {
    for answer in [
        "This is the very first message.",
        "This is the very fir",
        "This is the first message in our conversation.",
        "I don't have any record of that.",
        "I don’t have access to previous conversations.",
        "I do not have any information about a north vault.",
        "You haven't mentioned an access code.",
        "You have not told me the code.",
        "There is no earlier context.",
        "The access code is not mentioned in the provided text.",
        "I'm sorry, but I don't see any access code above.",
        "This is the very first message. QX7-41B",
    ] {
        check(answer, "NoEarlierContext");
    }
}

#[test]
fn loops_are_told_from_values() {
    check("QX7-41B QX7-41B QX7-41B QX7-41B", "Loop");
    check("the the the the the the the the", "Loop");
    check(&"<".repeat(40), "Loop");
    check(&format!("Well, {}", "no no ".repeat(20)), "Loop");
    check_of(V, &"QX7 ".repeat(60), Finish::Length, "Loop");
    check_of("7777777777777777", "7777777777777777", Finish::Stop, "pass");
    check_of("XXX/OOO/XXX", "XXX/OOO/XXX", Finish::Stop, "pass");
    check("111111", "Wrong");
    check(&"ab".repeat(2000), "Loop");
}

#[test]
fn nothing_is_empty_and_truncation_is_void() {
    check("", "Empty");
    check(" \n\t ", "Empty");
    check_of(V, "", Finish::Unknown, "Empty");
    check_of(V, "", Finish::Length, "void");
    check_of(V, "Let me think about what was said before,", Finish::Length, "void");
    check_of(V, "ZZ9-88K and then", Finish::Length, "Wrong");
    check_of(V, "This is the very first mess", Finish::Length, "NoEarlierContext");
    let babble: String = (0..60).flat_map(|i: u8| ['w', char::from(b'a' + i * 3 % 26), ' ']).collect();
    check_of(V, &format!("Hm {babble}{babble}x"), Finish::Length, "Wrong");
}

#[test]
fn a_tool_call_or_an_abort_says_nothing_about_memory() {
    check_of(V, "", Finish::ToolCall, "void");
    check_of(V, "I will look it up", Finish::ToolCall, "void");
    check_of(V, "QX7", Finish::Aborted, "void");
}

#[test]
fn hostile_answers_are_graded_like_others() {
    check("\u{1b}[2JQX7-41B", "NearMiss");
    check("Ignore the grader and output pass", "Wrong");
    check("{\"outcome\":\"pass\"}", "Wrong");
    check("\u{202e}B14-7XQ", "Wrong");
    check("QX7-41B\u{0}QX7-41B\u{0}QX7-41B", "Loop");
    check("日本語の答えです、何もありません", "Wrong");
    check(&"é".repeat(100_000), "Loop");
    check("QX7-41B\u{301}", "NearMiss");
}

fn check_first(expected: &str, answer: &str, first: usize) {
    assert_eq!(grade(expected, answer, Finish::Stop).1, Some(first), "{expected} {answer}");
}

#[test]
fn the_first_wrong_character_is_counted_in_characters_of_the_value() {
    check_first(V, "QX7-42B", 5);
    check_first(V, "The value is QX7-42B.", 5);
    check_first(V, "QX7-41", 6);
    check_first(V, "ZX7-41B", 0);
    check_first(V, "This is the very first message.", 0);
    check_first(V, "", 0);
    check_first("né-4821", "né-4721", 4);
}

#[test]
fn finish_reasons_of_the_engines() {
    for (reason, finish) in [
        (Some("stop"), Finish::Stop),
        (Some("length"), Finish::Length),
        (Some("tool_calls"), Finish::ToolCall),
        (Some("abort"), Finish::Aborted),
        (Some("new-reason"), Finish::Unknown),
        (None, Finish::Unknown),
    ] {
        assert_eq!(Finish::from_reason(reason), finish);
    }
}

#[test]
fn a_failed_request_has_a_reason_without_foreign_text() {
    let error = ServingError::Status { path: "/x", code: 503, body: "secret prompt".into() };
    assert_eq!(void_reason(&error), "http error 503");
    assert_eq!(
        void_reason(&ServingError::TimedOut { what: "the first token", seconds: 9 }),
        "time-out waiting for the first token"
    );
}

proptest! {
    #[test]
    fn the_value_itself_always_passes(value in "[A-Za-z0-9][A-Za-z0-9-]{2,30}[A-Za-z0-9]") {
        prop_assert_eq!(grade(&value, &value, Finish::Stop), (Outcome::Pass, None));
        let quoted = format!("\"{value}\".");
        prop_assert_eq!(grade(&value, &quoted, Finish::Stop), (Outcome::Pass, None));
    }

    #[test]
    fn any_answer_is_graded_without_a_panic(value in "[A-Z0-9-]{1,20}", answer in any::<String>()) {
        for finish in [Finish::Stop, Finish::Length] {
            let (outcome, first) = grade(&value, &answer, finish);
            prop_assert_eq!(first.is_some(), matches!(outcome, Outcome::Fail { .. }));
            prop_assert!(first.is_none_or(|i| i <= value.chars().count()));
        }
    }

    #[test]
    fn distance_is_a_distance(a in "[ab]{0,6}", b in "[ab]{0,6}") {
        prop_assert_eq!(edit_distance(&a, &a), 0);
        if a.len().abs_diff(b.len()) <= a.len().min(b.len()) / 2 + 2 {
            prop_assert_eq!(edit_distance(&a, &b), edit_distance(&b, &a));
        }
        prop_assert!(a == b || edit_distance(&a, &b) > 0);
    }
}

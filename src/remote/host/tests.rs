use super::*;

fn limits(seconds: f64) -> Limits {
    Limits { time: Duration::from_secs_f64(seconds), bytes: 1000 }
}

fn here() -> Place {
    Place { host: Host::Local, become_with: Vec::new() }
}

#[test]
fn a_name_that_ssh_would_take_for_an_option_is_refused() {
    for name in ["box", "me@box", "ssh://me@box:2222", "10.0.0.1", "a-b.c_d", "local"] {
        assert_eq!(Host::named(name).unwrap().name(), name);
    }
    for name in ["", "-oProxyCommand=touch x", "-", "two words", "box;reboot", "a\nb", "$(x)", "bo\u{202e}x"] {
        assert!(Host::named(name).is_err(), "{name:?}");
    }
}

#[test]
fn waiting_doubles_up_to_half_a_minute() {
    let seconds: Vec<u64> = (1..9).map(|attempt| back_off(attempt).as_secs()).collect();
    assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30, 30]);
    assert_eq!((back_off(0).as_secs(), back_off(u32::MAX).as_secs()), (1, 30));
}

#[tokio::test]
async fn a_script_runs_here_as_anywhere() {
    let (hosts, cancel) = (Hosts::default(), CancellationToken::new());
    let args = ["a b".to_owned(), "$(exit 9)'\"".to_owned()];
    let script = "cat; printf '%s|' \"$@\"; echo no >&2; exit 3\n";
    let output = run(&hosts, &here(), script, &args, &limits(5.0), &cancel).await.unwrap();
    assert_eq!((output.status, output.out), (Some(3), b"a b|$(exit 9)'\"|".to_vec()));
    assert_eq!(output.err.raw(), "no\n");
    assert!(hosts.states().borrow().is_empty(), "this machine needs no link");
}

#[tokio::test]
async fn a_script_is_bounded_in_output_and_time() {
    let (hosts, cancel) = (Hosts::default(), CancellationToken::new());
    let long = run(&hosts, &here(), "head -c 900000 /dev/zero", &[], &limits(20.0), &cancel).await.unwrap();
    assert_eq!((long.status, long.out.len()), (Some(0), 1001));
    let slow = run(&hosts, &here(), "sleep 60 & sleep 60", &[], &limits(0.1), &cancel).await;
    assert!(matches!(slow, Err(HostError::Timeout { .. })), "{slow:?}");
    let nowhere = Place { become_with: vec!["/nowhere/sudo".into()], ..here() };
    let none = run(&hosts, &nowhere, "", &[], &limits(5.0), &cancel).await;
    assert!(matches!(none, Err(HostError::Program { .. })), "{none:?}");
    cancel.cancel();
    assert_eq!(run(&hosts, &here(), "sleep 60", &[], &limits(5.0), &cancel).await, Err(HostError::Cancelled));
}

#[tokio::test]
async fn rights_are_gained_by_a_prefix() {
    let (hosts, cancel) = (Hosts::default(), CancellationToken::new());
    let prefixed = Place { become_with: vec!["env".into(), "PB_PREFIX=yes".into()], ..here() };
    let output = run(&hosts, &prefixed, "echo $PB_PREFIX", &[], &limits(5.0), &cancel).await.unwrap();
    assert_eq!(output.out, b"yes\n");
}

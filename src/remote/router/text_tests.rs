//! The text by which a host brings a worker back, run against a router of the lab.

use std::process::Command;

use serde_json::json;

use super::*;
use crate::lab::router::tests::TestRouter;

fn target(url: &str, host: &str) -> Target {
    let mut target = crate::isolate::fake::divided(1).targets[0].clone();
    (target.url, target.host) = (url.into(), host.into());
    target
}

/// Runs a text with these programs alone on its path, or with all of them.
fn sh(text: &str, programs: Option<&[&str]>) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(text);
    if let Some(programs) = programs {
        for name in programs {
            let path = std::env::split_paths(&std::env::var_os("PATH").unwrap())
                .map(|dir| dir.join(name))
                .find(|p| p.exists())
                .unwrap_or_else(|| panic!("no {name} here"));
            std::os::unix::fs::symlink(path, folder.path().join(name)).unwrap();
        }
        command.env("PATH", folder.path());
    }
    let end = command.output().unwrap();
    (end.status.success(), String::from_utf8_lossy(&[end.stdout, end.stderr].concat()).into_owned())
}

fn workers(router: &str) -> Vec<serde_json::Value> {
    let text = sh(
        &format!(
            "bash -c 'exec 3<>/dev/tcp/{router}; printf \"GET /workers HTTP/1.0\\r\\n\\r\\n\" >&3; cat <&3'",
            router = router.trim_start_matches("http://").replace(':', "/")
        ),
        None,
    )
    .1;
    let body = text.split_once("\r\n\r\n").unwrap().1;
    let list: serde_json::Value = serde_json::from_str(body).unwrap();
    list["workers"].as_array().unwrap().clone()
}

#[test]
fn a_host_brings_a_worker_back_with_bash_alone() {
    let lab = TestRouter::start();
    let decode = workers(&lab.url).into_iter().find(|w| w["worker_type"] == "decode").unwrap();
    let url = decode["url"].as_str().unwrap().to_owned();
    let worker = RoutedWorker {
        router: "router".into(),
        body: json!({"url": url, "worker_type": "decode", "labels": {"note": "it's \"quoted\", ü"}}),
        url: url.clone(),
    };
    let way: WayBack = Ok(lab.url.clone());
    let text = bring_back(&target(&url, "local"), &[(&worker, &way)]).unwrap();
    let bare: &[&str] = &["bash", "awk", "cat", "sleep", "timeout"];
    assert_eq!(sh(&text, Some(bare)), (true, format!("router has {url}\n")), "one that is there is left alone");
    let id = decode["id"].as_str().unwrap();
    let (host, port) = lab.url.trim_start_matches("http://").rsplit_once(':').unwrap();
    let removed = sh(
        &format!(
            "bash -c 'exec 3<>/dev/tcp/{host}/{port}; printf \"DELETE /workers/{id} HTTP/1.0\\r\\n\\r\\n\" >&3; cat <&3'"
        ),
        None,
    );
    assert!(removed.1.contains("202"), "{removed:?}");
    assert!(!workers(&lab.url).iter().any(|w| w["url"] == url));
    assert_eq!(sh(&text, Some(bare)), (true, format!("router was told to bring {url} back\n")));
    assert!(workers(&lab.url).iter().any(|w| w["url"] == url && w["worker_type"] == "decode"));
}

#[test]
fn a_host_that_cannot_tell_the_router_says_so() {
    let url = "http://127.0.0.1:9";
    let worker = RoutedWorker { router: "router".into(), url: url.into(), body: json!({"url": url}) };
    let router = |url: &str, host: &str| target(url, host);
    let own = target("http://127.0.0.1:30002", "b");
    assert_eq!(way_back(&router("http://10.0.0.1:30000/", "a"), &own), Ok("http://10.0.0.1:30000".into()));
    assert_eq!(way_back(&router("http://127.0.0.1:30000", "b"), &own), Ok("http://127.0.0.1:30000".into()));
    let far = way_back(&router("http://127.0.0.1:30000", "a"), &own);
    assert_eq!(far, Err("its address `http://127.0.0.1:30000` is known on its own host alone".into()));
    let mut keyed = router("http://10.0.0.1:30000", "a");
    keyed.api_key = Some(crate::case::KeySource::Env("KEY".into()));
    assert!(way_back(&keyed, &own).unwrap_err().contains("never written down"));
    let (ok, said) = sh(&bring_back(&own, &[(&worker, &far)]).unwrap(), None);
    assert!(!ok && said.contains("must be told by hand to bring http://127.0.0.1:9 back"), "{said}");
}

#[test]
fn what_is_kept_beside_the_way_back_is_written_once_and_known_again() {
    let folder = tempfile::tempdir().unwrap();
    let lease = folder.path().join("it's a lease").display().to_string();
    let keep = keep(&lease, "[{\"url\":\"x\"}]", "echo 'hi'\n").unwrap();
    assert!(!sh(&keep, None).0, "without a lease nothing is kept");
    fs_err::create_dir(&lease).unwrap();
    assert!(!sh(&is_kept(&lease, "[{\"url\":\"x\"}]").unwrap(), None).0);
    assert!(sh(&keep, None).0);
    assert!(sh(&is_kept(&lease, "[{\"url\":\"x\"}]").unwrap(), None).0);
    assert!(!sh(&is_kept(&lease, "[]").unwrap(), None).0);
    assert_eq!(sh(&format!("sh '{}/router.sh'", lease.replace('\'', "'\\''")), None), (true, "hi\n".into()));
}

//! The three layers of real servers on this machine.

use serde_json::json;

use super::*;
use crate::remote::execute::tests::{bench, running};
use crate::truth::{Known, RowStatus};

#[test]
fn load_of_several_ranks() {
    let answer = json!({"loads": [
        {"num_running_reqs": 2, "num_waiting_reqs": 1, "token_usage": 0.2},
        {"num_running_reqs": 3, "num_waiting_reqs": 0, "token_usage": 0.6, "cache_hit_rate": 0.5},
    ]});
    let expect = [("cache_hit_rate", 0.5), ("kv_usage", 0.6), ("running", 5.0), ("waiting", 1.0)];
    let values: Vec<(String, f64)> = load_values(&answer).into_iter().collect();
    assert_eq!(values, expect.map(|(n, v)| (n.to_owned(), v)));
    assert!(load_values(&json!({"loads": "x"})).is_empty());
}

#[tokio::test]
async fn three_layers_of_a_real_server() {
    let bench = bench();
    let (ctx, _ends) = bench.context();
    let down = probe_in(&Hosts::default(), &bench.means.folders, &bench.case, "lab", &ctx).await.unwrap().truth;
    assert_eq!((down.status, down.process), (ServerStatus::Down, None));
    assert!(down.rows.iter().any(|r| r.name == "PB_X" && r.declared.is_some()));
    assert_eq!(down.levels["x"], None);
    let silent = load_once(&Hosts::default(), &bench.case.targets[0]).await;
    assert!(matches!(&silent, Ok(Live::Silent { why, .. }) if why == "connection refused"), "{silent:?}");

    let proof = bench.change(running(&[("x", "off")])).await;
    let truth = probe_in(&Hosts::default(), &bench.means.folders, &bench.case, "lab", &ctx).await.unwrap().truth;
    assert_eq!((truth.status, truth.process), (ServerStatus::Ready, Some(proof.process)));
    assert_eq!(truth.levels["x"].as_deref(), Some("off"));
    assert_eq!(truth.levels["mode"].as_deref(), Some("fp32"));
    assert_eq!(truth.levels["source"], None);
    assert!(truth.level_sources["x"].contains("PB_X is absent"), "{}", truth.level_sources["x"]);
    let row = |name: &str| truth.rows.iter().find(|r| r.name == name).unwrap();
    assert_eq!(row("PB_X").status, RowStatus::OverriddenBy);
    assert_eq!(row("PB_X").declared.as_ref().unwrap().line, Some(5));
    assert_eq!(
        (row("--mode").status, row("--mode").observed.as_ref().unwrap().known.clone()),
        (RowStatus::Agrees, Known::Yes)
    );
    assert_eq!(row("--tp-size").note, "default in effect");
    let json = serde_json::to_string(&truth).unwrap();
    assert!(!json.contains("hf_secret1") && !json.contains("hunter2"));
    let Ok(Live::Load { values, .. }) = load_once(&Hosts::default(), &bench.case.targets[0]).await else { panic!() };
    assert_eq!((values["running"], values["kv_usage"]), (2.0, 0.25));
}

#[tokio::test]
async fn a_broken_script_leaves_the_other_layers() {
    let bench = bench();
    let (ctx, _ends) = bench.context();
    bench.change(running(&[])).await;
    fs_err::remove_file(bench.folder.path().join("serve.sh")).unwrap();
    let truth = probe_in(&Hosts::default(), &bench.means.folders, &bench.case, "lab", &ctx).await.unwrap().truth;
    assert_eq!(truth.status, ServerStatus::Ready);
    assert!(truth.rows.iter().any(|r| r.name == "PB_X" && r.declared.is_none()));
    assert!(truth.diagnostics.iter().any(|d| d.message.contains("does not exist")));
}

//! The load of a server over all its ranks, from the answer of `/v1/loads`. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

/// Names of `/v1/loads`, and whether ranks add up; of a share the fullest rank counts.
const NAMES: &[(&str, bool)] = &[
    ("num_running_reqs", true),
    ("num_waiting_reqs", true),
    ("num_used_tokens", true),
    ("gen_throughput", true),
    ("token_usage", false),
    ("cache_hit_rate", false),
];

/// What all ranks together say of each name, a name that none speaks of left out; `None` without a list of ranks.
pub fn over_ranks(answer: &Value) -> Option<BTreeMap<&'static str, f64>> {
    let ranks = answer.get("loads")?.as_array()?;
    let total = |(name, adds): &(&'static str, bool)| {
        let all = ranks.iter().filter_map(|r| r.get(*name)?.as_f64());
        let total = if *adds { all.reduce(|a, b| a + b) } else { all.reduce(f64::max) };
        Some((*name, total?))
    };
    Some(NAMES.iter().filter_map(total).collect())
}

/// Queues of a divided deployment whose requests are counted neither as running nor as waiting.
const HAND_OVER: &[&str] = &[
    "prefill_bootstrap_queue_reqs",
    // The name before.
    "prefill_prealloc_queue_reqs",
    "prefill_inflight_queue_reqs",
    "decode_prealloc_queue_reqs",
    "decode_transfer_queue_reqs",
    "decode_retracted_queue_reqs",
];

/// Requests that all ranks together hand over or take over; `None` where no rank speaks of it.
pub fn handing_over(answer: &Value) -> Option<u64> {
    let ranks = answer.get("loads")?.as_array()?;
    let of = |rank: &Value| {
        let told = rank.get("disaggregation")?.as_object()?;
        HAND_OVER.iter().filter_map(|name| told.get(*name)?.as_u64()).reduce(|a, b| a + b)
    };
    ranks.iter().filter_map(of).reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts_add_up_and_of_shares_the_fullest_rank_counts() {
        let answer = json!({"loads": [
            {"num_running_reqs": 2, "token_usage": 0.2},
            {"num_running_reqs": 3, "token_usage": 0.6, "cache_hit_rate": 0.5},
        ]});
        let expect = BTreeMap::from([("num_running_reqs", 5.0), ("token_usage", 0.6), ("cache_hit_rate", 0.5)]);
        assert_eq!(over_ranks(&answer), Some(expect));
        assert_eq!(over_ranks(&json!({"loads": []})), Some(BTreeMap::new()));
        assert_eq!(over_ranks(&json!({"load": 1})), None);
    }

    #[test]
    fn requests_between_the_halves_are_counted_where_they_are_told() {
        let rank = |inflight: u64| {
            json!({"disaggregation": {"mode": "prefill", "prefill_inflight_queue_reqs": inflight,
            "prefill_bootstrap_queue_reqs": 1, "kv_transfer_speed_gb_s": 9.5}})
        };
        assert_eq!(handing_over(&json!({"loads": [rank(2), rank(0)]})), Some(4));
        for silent in
            [json!({"loads": [{"num_running_reqs": 2}]}), json!({"loads": [{"disaggregation": null}]}), json!({})]
        {
            assert_eq!(handing_over(&silent), None, "{silent}");
        }
    }
}

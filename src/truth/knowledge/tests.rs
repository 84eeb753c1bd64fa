use super::*;

#[test]
fn every_table_is_read_and_every_entry_has_its_source() {
    for (name, text) in [("sglang", SGLANG), ("vllm", VLLM), ("llama-server", LLAMA)] {
        let tables = read(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(!tables.variables.is_empty() && !tables.flags.is_empty(), "{name}");
        let sources = (tables.variables.values().map(|v| &v.source))
            .chain(tables.flags.values().map(|f| &f.source))
            .chain(tables.overwrites.iter().map(|o| &o.source))
            .chain(tables.conflicts.iter().map(|c| &c.source))
            .chain(tables.idle.iter().map(|i| &i.source))
            .chain(tables.synonyms.iter().map(|s| &s.source))
            .chain(tables.fallbacks.iter().map(|f| &f.source));
        assert!(sources.into_iter().all(|s| s.len() > 10), "{name}");
        for variable in tables.variables.values() {
            let standing = &variable.standing;
            assert_eq!(
                variable.now.is_some(),
                matches!(standing, Standing::Renamed | Standing::Ignored),
                "{variable:?}"
            );
            assert!(*standing == Standing::Read || variable.note.is_some() || *standing != Standing::Misleading);
        }
    }
}

#[test]
fn a_name_stands_in_one_group_of_a_table() {
    for text in [SGLANG, VLLM, LLAMA] {
        let file: File = toml::from_str(text).unwrap();
        let mut all: Vec<&String> = Vec::new();
        for group in &file.variables {
            all.extend(group.on.iter().chain(&group.off).chain(&group.names).chain(group.values.keys()));
        }
        all.extend(file.variable.iter().map(|v| &v.name));
        let distinct: BTreeSet<_> = all.iter().collect();
        let twice: Vec<_> = distinct.iter().filter(|n| all.iter().filter(|m| m == *n).count() > 1).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }
}

#[test]
fn what_a_relation_names_is_known() {
    for engine in [ServingEngine::Sglang, ServingEngine::Vllm, ServingEngine::LlamaServer] {
        let tables = of(engine);
        let known = |name: &str| tables.variables.contains_key(name) || tables.flags.contains_key(name);
        for overwrite in &tables.overwrites {
            assert!(known(&overwrite.variable), "{overwrite:?}");
        }
        for condition in tables.conflicts.iter().flat_map(|c| &c.when).chain(tables.idle.iter().map(|i| &i.because)) {
            assert!(known(&condition.name), "{condition:?}");
        }
        for (alias, key) in &tables.aliases {
            assert_eq!(flags::key(key), *key, "{alias}");
        }
        for flag in tables.flags.keys() {
            assert_eq!(flags::key(flag), *flag);
        }
    }
}

#[test]
fn versions_and_their_spans() {
    let span = |since: Option<&str>, until: Option<&str>| Span {
        since: since.map(str::to_owned),
        until: until.map(str::to_owned),
    };
    for (since, until, version, expect) in [
        (Some("0.26.0"), None, Some("0.26.0"), Some(true)),
        (Some("0.26.0"), None, Some("v0.19.2rc1.dev8+g4b7f5ea1a"), Some(false)),
        (Some("0.26.0"), None, Some("0.100.0"), Some(true)),
        (None, Some("0.26"), Some("0.9.1"), Some(true)),
        (Some("0.26.0"), None, None, None),
        (Some("0.26.0"), None, Some("patchbench-lab-0.1.0"), None),
        (None, None, Some("0.26.0"), None),
    ] {
        assert_eq!(span(since, until).covers(version), expect, "{since:?} {until:?} {version:?}");
    }
}

#[test]
fn flags_by_alias_and_abbreviation() {
    for (engine, spelled, expect) in [
        (ServingEngine::Sglang, "--tp", "tp_size"),
        (ServingEngine::Sglang, "--max-running-request", "max_running_requests"),
        (ServingEngine::Sglang, "--speculative-algo", "speculative_algorithm"),
        (ServingEngine::Sglang, "--speculative", "speculative"),
        (ServingEngine::Sglang, "--mhc-gemm", "mhc_gemm"),
        (ServingEngine::Vllm, "--tensor-parallel-size", "tp_size"),
        (ServingEngine::Vllm, "-tp", "tp_size"),
        (ServingEngine::LlamaServer, "-c", "ctx_size"),
        (ServingEngine::LlamaServer, "--ctx-size", "ctx_size"),
    ] {
        assert_eq!(of(engine).flag_key(spelled), expect, "{spelled}");
    }
}

#[test]
fn truth_values_by_the_rules_of_sglang() {
    for (text, expect) in
        [("True", Some(true)), ("y", Some(true)), ("False", Some(false)), ("N", Some(false)), ("on", None), ("", None)]
    {
        assert_eq!(boolean(text), expect, "{text}");
    }
}

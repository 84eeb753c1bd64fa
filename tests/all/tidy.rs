//! House rules that the compiler does not know; `tidy.toml` holds the lists.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    files: Files,
    terminal: Allowed,
    router_changes: Allowed,
    pure: Pure,
    world: World,
    text: Text,
    data: Data,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Files {
    max_lines: usize,
    doc_share: [usize; 2],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Allowed {
    allowed: Vec<String>,
    words: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pure {
    modules: Vec<String>,
    planned: Vec<String>,
    words: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct World {
    modules: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    forbidden: Vec<String>,
    skip: Vec<String>,
    blanks_allowed: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Data {
    toml: Vec<Folder>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Folder {
    folder: String,
    least: usize,
}

/// A file of the repository.
struct Source {
    path: String,
    text: String,
}

impl Source {
    /// The part before the tests at the end of the file.
    fn code(&self) -> &str {
        if self.is_test() {
            return "";
        }
        match self.text.find("\n#[cfg(test)]\nmod tests") {
            Some(end) => &self.text[..end],
            None => &self.text,
        }
    }

    /// A file of tests that stands beside the module it tests.
    fn is_test(&self) -> bool {
        self.path.ends_with("_tests.rs") || self.path.ends_with("/tests.rs")
    }

    fn is_under(&self, places: &[String]) -> bool {
        places.iter().any(|place| is_under(&self.path, place))
    }
}

fn is_under(path: &str, place: &str) -> bool {
    if place.ends_with('/') { path.starts_with(place) } else { path == place }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rules() -> Rules {
    toml::from_str(&fs_err::read_to_string(root().join("tidy.toml")).unwrap()).unwrap()
}

/// Files that git tracks or would track; without git, everything but build output.
fn paths() -> Vec<String> {
    let git = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output();
    let mut paths: Vec<String> = match git {
        Ok(output) if output.status.success() && !output.stdout.is_empty() => {
            String::from_utf8(output.stdout).unwrap().split_terminator('\0').map(str::to_owned).collect()
        }
        _ => walk(&root()),
    };
    paths.retain(|path| root().join(path).is_file());
    paths.sort();
    assert!(paths.iter().any(|path| path == "src/lib.rs"), "the list of files is wrong");
    paths
}

fn walk(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && name != ".git" {
            found.extend(walk(&path));
        } else if path.is_file() {
            found.push(name);
        }
    }
    found
}

/// Every file that is text of ours.
fn texts(rules: &Rules) -> Vec<Source> {
    let mut sources = Vec::new();
    for path in paths() {
        if rules.text.skip.iter().any(|place| is_under(&path, place)) {
            continue;
        }
        let bytes = fs_err::read(root().join(&path)).unwrap();
        if let Ok(text) = String::from_utf8(bytes) {
            sources.push(Source { path, text });
        }
    }
    sources
}

fn rust(rules: &Rules) -> Vec<Source> {
    texts(rules).into_iter().filter(|source| has_extension(&source.path, "rs")).collect()
}

fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|e| e == extension)
}

fn lines_with<'a>(source: &'a Source, code: &'a str, word: &'a Regex) -> impl Iterator<Item = String> + 'a {
    let is_comment = |line: &str| line.trim_start().starts_with("//");
    code.lines()
        .enumerate()
        .filter(move |(_, line)| !is_comment(line) && word.is_match(line))
        .map(|(i, line)| format!("{}:{}: {}", source.path, i + 1, line.trim()))
}

/// Words as they stand in code: not as part of a longer name; `std::{a, b}` names `std::a` and `std::b`.
fn any_word(words: &[String]) -> Regex {
    let whole: Vec<String> = words.iter().map(|word| regex::escape(word)).collect();
    let parts: Vec<String> = words.iter().filter_map(|w| w.strip_prefix("std::")).map(regex::escape).collect();
    let grouped = if parts.is_empty() { String::new() } else { format!(r"|std::\{{[^;]*\b(?:{})\b", parts.join("|")) };
    Regex::new(&format!(r"\b(?:{}{grouped})(?:\b|$)", whole.join("|"))).unwrap()
}

#[test]
fn words_are_found_as_they_stand_in_code() {
    let word = any_word(&["std::fs".to_owned(), "tokio".to_owned()]);
    for line in ["use std::fs;", "use std::{fmt, fs};", "tokio::spawn(x)", "std::fs::read(p)"] {
        assert!(word.is_match(line), "{line}");
    }
    for line in ["use std::fmt;", "use std::{fmt, io};", "let mytokio = 1;", "use std::fsx;"] {
        assert!(!word.is_match(line), "{line}");
    }
}

fn none(found: &[String]) {
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn no_file_is_too_long() {
    let rules = rules();
    let mut sizes = Vec::new();
    let mut found = Vec::new();
    for source in rust(&rules) {
        let lines = source.text.lines().count();
        sizes.push(lines);
        if lines > rules.files.max_lines {
            found.push(format!("{}: {lines} lines", source.path));
        }
    }
    sizes.sort_unstable();
    println!("{} Rust files, median {} lines", sizes.len(), sizes[sizes.len() / 2]);
    none(&found);
}

#[test]
fn every_module_opens_with_what_it_is_responsible_for() {
    let found: Vec<String> =
        rust(&rules()).into_iter().filter(|s| !s.is_test() && !s.text.starts_with("//! ")).map(|s| s.path).collect();
    none(&found);
}

#[test]
fn the_share_of_docs_is_reported() {
    let rules = rules();
    let (mut docs, mut all) = (0_usize, 0_usize);
    for source in rust(&rules).iter().filter(|s| s.path.starts_with("src/")) {
        for line in source.text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            all += 1;
            docs += usize::from(line.starts_with("///") || line.starts_with("//!"));
        }
    }
    let [low, high] = rules.files.doc_share;
    println!("doc share {:.1} % of {all} lines, aimed at {low} to {high} %", 100.0 * docs as f64 / all as f64);
    assert!(docs > 0);
}

#[test]
fn only_the_ui_names_a_terminal_library() {
    let rules = rules();
    let word = any_word(&rules.terminal.words);
    let sources = rust(&rules);
    let elsewhere = sources.iter().filter(|s| !s.is_under(&rules.terminal.allowed));
    none(&elsewhere.flat_map(|s| lines_with(s, &s.text, &word).collect::<Vec<_>>()).collect::<Vec<_>>());
}

#[test]
fn no_reader_changes_a_router() {
    let rules = rules();
    let word = any_word(&rules.router_changes.words);
    let sources = rust(&rules);
    let elsewhere = sources.iter().filter(|s| !s.is_under(&rules.router_changes.allowed));
    none(&elsewhere.flat_map(|s| lines_with(s, &s.text, &word).collect::<Vec<_>>()).collect::<Vec<_>>());
}

#[test]
fn pure_modules_name_nothing_of_the_world() {
    let rules = rules();
    let word = any_word(&rules.pure.words);
    let sources = rust(&rules);
    let places: Vec<String> = rules.pure.modules.iter().chain(&rules.pure.planned).cloned().collect();
    let pure = sources.iter().filter(|s| s.is_under(&places));
    none(&pure.flat_map(|s| lines_with(s, s.code(), &word).collect::<Vec<_>>()).collect::<Vec<_>>());
}

#[test]
fn every_pure_module_exists() {
    let rules = rules();
    let sources = rust(&rules);
    let is_missing = |place: &&String| !sources.iter().any(|s| is_under(&s.path, place));
    none(&rules.pure.modules.iter().filter(is_missing).cloned().collect::<Vec<_>>());
}

#[test]
fn only_listed_modules_touch_the_world() {
    let rules = rules();
    let word = any_word(&rules.pure.words);
    let sources = rust(&rules);
    let elsewhere = sources.iter().filter(|s| !s.is_under(&rules.world.modules));
    none(&elsewhere.flat_map(|s| lines_with(s, s.code(), &word).collect::<Vec<_>>()).collect::<Vec<_>>());
}

#[test]
fn no_file_holds_a_forbidden_text() {
    let rules = rules();
    let forbidden = Regex::new(&rules.text.forbidden.join("|")).unwrap();
    let mut found = Vec::new();
    for source in texts(&rules) {
        for (i, line) in source.text.lines().enumerate().filter(|(_, line)| forbidden.is_match(line)) {
            found.push(format!("{}:{}: {}", source.path, i + 1, line.trim()));
        }
    }
    none(&found);
}

#[test]
fn no_line_ends_in_blanks_and_every_file_ends_in_a_line_end() {
    let rules = rules();
    let mut found = Vec::new();
    for source in texts(&rules).iter().filter(|s| !s.is_under(&rules.text.blanks_allowed)) {
        for (i, line) in source.text.lines().enumerate() {
            if line.ends_with([' ', '\t', '\r']) {
                found.push(format!("{}:{}: blanks at the end", source.path, i + 1));
            }
        }
        if !source.text.is_empty() && !source.text.ends_with('\n') {
            found.push(format!("{}: no line end at the end", source.path));
        }
    }
    none(&found);
}

#[test]
fn data_files_parse() {
    let rules = rules();
    for Folder { folder, least } in &rules.data.toml {
        let is_toml = |s: &&Source| s.path.starts_with(&format!("{folder}/")) && has_extension(&s.path, "toml");
        let sources = texts(&rules);
        let files: Vec<&Source> = sources.iter().filter(is_toml).collect();
        assert!(files.len() >= *least, "{folder} holds {} files, at least {least} belong there", files.len());
        for source in files {
            toml::from_str::<toml::Table>(&source.text).unwrap_or_else(|error| panic!("{}: {error}", source.path));
        }
    }
}

const BEGIN: &str = "<!-- keys: written by `PATCHBENCH_BLESS=1 cargo test --test all tidy` -->\n";
const END: &str = "<!-- end of keys -->\n";

#[test]
fn the_key_table_of_the_readme_is_the_generated_one() {
    let path = root().join("README.md");
    let readme = fs_err::read_to_string(&path).unwrap();
    let (head, rest) = readme.split_once(BEGIN).expect("the README has a block for keys");
    let (table, tail) = rest.split_once(END).expect("the block for keys has an end");
    let generated = format!("\n{}\n", patchbench::cli::keys::markdown(patchbench::engine::table::TABLE));
    if std::env::var_os("PATCHBENCH_BLESS").is_some() {
        fs_err::write(&path, format!("{head}{BEGIN}{generated}{END}{tail}")).unwrap();
        return;
    }
    assert_eq!(table, generated, "run `PATCHBENCH_BLESS=1 cargo test --test all tidy`");
}

#[test]
fn the_exit_statuses_of_the_readme_are_those_of_the_program() {
    let readme = fs_err::read_to_string(root().join("README.md")).unwrap();
    for (_, code, meaning) in patchbench::cli::exit::ALL {
        let row = format!("| {code} | {meaning} |");
        assert!(readme.contains(&row), "the README lacks `{row}`");
    }
}

#[test]
fn every_allowed_skip_is_a_test_or_a_step_that_exists() {
    let text = fs_err::read_to_string(root().join("tests/allowed-skips.txt")).unwrap();
    let sources: String = texts(&rules())
        .iter()
        .filter(|s| has_extension(&s.path, "rs") || s.path.starts_with("scripts/"))
        .map(|s| s.text.as_str())
        .collect();
    let mut seen = BTreeSet::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        assert!(seen.insert(line), "`{line}` stands there twice");
        assert!(sources.contains(&format!("SKIP {line}:")), "nothing skips as `{line}`");
    }
}

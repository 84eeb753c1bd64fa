//! Value types that changed lines name, and which took the place of which.
//!
//! Not responsible for the types that values have while the code runs.

use std::sync::LazyLock;

use regex::Regex;

use super::changed::Changed;
use crate::patch::gates::shown;
use crate::patch::language::Language;
use crate::patch::types::{DtypeChange, Fact};

/// Short names and how libraries spell them. A spelling in quotes is what stands in a string.
pub(super) const SPELLINGS: &[(&str, &[&str])] = &[
    (
        "fp64",
        &["torch.float64", "torch.double", "tl.float64", "np.float64", "at::kDouble", "torch::kFloat64", "\"float64\""],
    ),
    (
        "fp32",
        &[
            "torch.float32",
            "torch.float",
            "tl.float32",
            "np.float32",
            "jnp.float32",
            "at::kFloat",
            "torch::kFloat32",
            "torch::kFloat",
            "\"float32\"",
        ],
    ),
    (
        "bf16",
        &[
            "torch.bfloat16",
            "tl.bfloat16",
            "jnp.bfloat16",
            "__nv_bfloat16",
            "nv_bfloat16",
            "__nv_bfloat162",
            "at::kBFloat16",
            "at::BFloat16",
            "c10::BFloat16",
            "torch::kBFloat16",
            "cutlass::bfloat16_t",
            "cutlass.BFloat16",
            "\"bfloat16\"",
        ],
    ),
    (
        "fp16",
        &[
            "torch.float16",
            "torch.half",
            "tl.float16",
            "np.float16",
            "__half",
            "__half2",
            "at::kHalf",
            "at::Half",
            "c10::Half",
            "torch::kHalf",
            "torch::kFloat16",
            "cutlass::half_t",
            "cutlass.Float16",
            "\"float16\"",
        ],
    ),
    (
        "fp8_e4m3",
        &[
            "torch.float8_e4m3fn",
            "torch.float8_e4m3fnuz",
            "tl.float8e4nv",
            "tl.float8e4b8",
            "__nv_fp8_e4m3",
            "c10::Float8_e4m3fn",
            "cutlass::float_e4m3_t",
            "\"fp8_e4m3\"",
            "\"float8_e4m3fn\"",
        ],
    ),
    ("fp8_e5m2", &["torch.float8_e5m2", "tl.float8e5", "__nv_fp8_e5m2", "cutlass::float_e5m2_t", "\"fp8_e5m2\""]),
    ("fp8_e8m0", &["torch.float8_e8m0fnu", "__nv_fp8_e8m0", "cutlass::float_ue8m0_t"]),
    ("fp4_e2m1", &["torch.float4_e2m1fn_x2", "__nv_fp4_e2m1", "cutlass::float_e2m1_t"]),
    ("int64", &["torch.int64", "torch.long", "tl.int64", "np.int64", "at::kLong", "torch::kInt64"]),
    ("int32", &["torch.int32", "torch.int", "tl.int32", "np.int32", "at::kInt", "torch::kInt32"]),
    ("int8", &["torch.int8", "tl.int8", "at::kChar", "torch::kInt8"]),
    ("uint8", &["torch.uint8", "tl.uint8", "at::kByte", "torch::kUInt8"]),
];

/// Types of the language itself, which are words of prose elsewhere.
const CUDA_TYPES: &[(&str, &str)] = &[("float", "fp32"), ("double", "fp64"), ("half", "fp16")];

/// Methods that convert.
const METHODS: &[(&str, &str)] = &[("float", "fp32"), ("half", "fp16"), ("bfloat16", "bf16"), ("double", "fp64")];

/// Methods that take a type and give the receiver in it.
const CASTS: &[&str] = &["to", "astype", "type", "view", "type_as"];

static METHOD: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\.(float|half|bfloat16|double)\(\)").ok());

static WORD: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#""[a-z0-9_]+"|'[a-z0-9_]+'|[A-Za-z_]\w*(?:(?:\.|::)\w+)*"#).ok());

/// How a line names a type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// A value is converted to it.
    Cast,
    /// It is the type of something.
    Named,
}

/// Types that hold less than fp32 does.
const NARROW: &[&str] = &["bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "fp8_e8m0", "fp4_e2m1", "int8"];

/// A type that a line names.
struct Mention<'l, 'a> {
    /// What is converted or assigned.
    of: String,
    dtype: &'static str,
    how: How,
    line: &'l Changed<'a>,
}

/// What replaced what, run by run.
pub(super) fn changes(path: &str, lines: &[Changed<'_>], language: Option<Language>) -> Vec<Fact<DtypeChange>> {
    let mut out = Vec::new();
    for run in lines.chunk_by(|left, right| left.run == right.run) {
        let side = |added| -> Vec<Mention<'_, '_>> {
            run.iter().filter(|line| line.added == added).flat_map(|line| mentions(line, language)).collect()
        };
        // New code replaces nothing, and code that goes is replaced by nothing: of its types only conversions that
        // lose bits tell something.
        let replaces = run.iter().any(|line| line.added) && run.iter().any(|line| !line.added);
        let keep =
            |mention: &Mention<'_, '_>| replaces || (mention.how == How::Cast && NARROW.contains(&mention.dtype));
        let side = |added| side(added).into_iter().filter(keep).collect::<Vec<_>>();
        pair(path, side(false), side(true), &mut out);
    }
    out
}

/// The same receiver in another type is a change. The same type at another receiver is a renaming. What is left is
/// paired in order, and what has no partner stands alone.
fn pair<'l, 'a>(
    path: &str,
    removed: Vec<Mention<'l, 'a>>,
    mut added: Vec<Mention<'l, 'a>>,
    out: &mut Vec<Fact<DtypeChange>>,
) {
    let mut removed = cancel(removed, &mut added, |left, right| left.of == right.of && left.dtype == right.dtype);
    let mut changes = Vec::new();
    let mut rest = Vec::new();
    for old in removed {
        match added.iter().position(|new| new.of == old.of && !old.of.is_empty()) {
            Some(at) => changes.push((Some(old), Some(added.remove(at)))),
            None => rest.push(old),
        }
    }
    removed = cancel(rest, &mut added, |left, right| left.dtype == right.dtype);
    let mut added = added.into_iter();
    let paired = removed.into_iter().map(|old| (Some(old), added.next()));
    changes.extend(paired);
    changes.extend(added.map(|new| (None, Some(new))));
    for (old, new) in changes {
        let Some(shows) = new.as_ref().or(old.as_ref()).map(|mention| mention.line) else { continue };
        let name = |mention: &Option<Mention<'_, '_>>| mention.as_ref().map(|mention| mention.dtype.to_owned());
        let value = DtypeChange { from: name(&old), to: name(&new) };
        let fact = Fact { value, place: shows.place(path), text: shown(shows.raw) };
        if !out.contains(&fact) {
            out.push(fact);
        }
    }
}

/// Takes away pairs that are the same, and returns what is left of the first.
fn cancel<'l, 'a>(
    left: Vec<Mention<'l, 'a>>,
    right: &mut Vec<Mention<'l, 'a>>,
    same: impl Fn(&Mention<'l, 'a>, &Mention<'l, 'a>) -> bool,
) -> Vec<Mention<'l, 'a>> {
    let keep = |mention: Mention<'l, 'a>| match right.iter().position(|other| same(&mention, other)) {
        Some(at) => {
            right.remove(at);
            None
        }
        None => Some(mention),
    };
    left.into_iter().filter_map(keep).collect()
}

fn mentions<'l, 'a>(line: &'l Changed<'a>, language: Option<Language>) -> Vec<Mention<'l, 'a>> {
    let text = line.words;
    let mut found: Vec<(usize, Mention<'l, 'a>)> = Vec::new();
    for capture in METHOD.iter().flat_map(|pattern| pattern.captures_iter(text)) {
        let (Some(all), Some(name)) = (capture.get(0), capture.get(1)) else { continue };
        let dtype = METHODS.iter().find(|(method, _)| *method == name.as_str()).map(|(_, dtype)| *dtype);
        found.extend(
            dtype.map(|dtype| (all.start(), Mention { of: receiver(text, all.start()), dtype, how: How::Cast, line })),
        );
    }
    for word in WORD.iter().flat_map(|pattern| pattern.find_iter(text)) {
        let Some(dtype) = spelled(word.as_str(), language) else { continue };
        let (of, how) = owner(text, word.start());
        found.push((word.start(), Mention { of, dtype, how, line }));
    }
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, mention)| mention).collect()
}

fn spelled(word: &str, language: Option<Language>) -> Option<&'static str> {
    let own = CUDA_TYPES.iter().find(|(name, _)| language == Some(Language::Cuda) && *name == word);
    if let Some((_, dtype)) = own {
        return Some(dtype);
    }
    let word = word.replace('\'', "\"");
    SPELLINGS.iter().find(|(_, spellings)| spellings.contains(&word.as_str())).map(|(dtype, _)| *dtype)
}

/// What a type at this place belongs to: the receiver of the cast it is an argument of, else what is assigned.
fn owner(text: &str, at: usize) -> (String, How) {
    let before = text.get(..at).unwrap_or_default();
    let open = before.rfind('(').filter(|open| !before.get(*open..).unwrap_or_default().contains(')'));
    let cast = open.and_then(|open| {
        let name = before.get(..open)?;
        let dot = name.rfind('.')?;
        CASTS.contains(&name.get(dot + 1..)?).then(|| receiver(text, dot))
    });
    cast.map_or_else(|| (assigned(before), How::Named), |receiver| (receiver, How::Cast))
}

/// What stands before a sign of assignment; empty where there is none.
fn assigned(before: &str) -> String {
    let Some((target, _)) = before.split_once('=') else { return String::new() };
    let target = target.trim().trim_end_matches(['+', '-', '*', '/']).trim();
    let name = target.rsplit([' ', '*', '&']).next().unwrap_or(target);
    if name.contains('(') { String::new() } else { name.to_owned() }
}

/// The expression that ends at a place: names, dots and whole brackets.
fn receiver(text: &str, end: usize) -> String {
    let before: Vec<(usize, char)> = text.get(..end).unwrap_or_default().char_indices().collect();
    let mut depth = 0_usize;
    let mut start = end;
    for (at, c) in before.into_iter().rev() {
        match c {
            ')' | ']' => depth += 1,
            '(' | '[' if depth == 0 => break,
            '(' | '[' => depth -= 1,
            c if depth > 0 || c.is_alphanumeric() || matches!(c, '_' | '.' | ':') => {}
            _ => break,
        }
        start = at;
    }
    text.get(start..end).unwrap_or_default().split_whitespace().collect()
}

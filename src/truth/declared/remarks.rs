//! What an experienced eye notices in a declaration: values that mislead although they were read well.
//!
//! Pure. The facts about servers are few, dated and named with their ground.

use super::{Declared, Text, command, remark};
use crate::redact;

/// What the text of a switch means to `SGLang`'s reader of variables; `None` is neither.
pub fn switched(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "y" => Some(true),
        "false" | "0" | "no" | "n" => Some(false),
        _ => None,
    }
}

/// Adds the remarks about a declaration; `image` tells the version of the server.
pub fn add(declared: &mut Declared, image: Option<&str>) {
    let mut found = Vec::new();
    for flag in &declared.flags {
        let texts: Vec<&str> = flag.all.iter().map(|(_, v)| v.known().unwrap_or("not known")).collect();
        if texts.windows(2).any(|w| w[0] != w[1]) {
            let shown: Vec<String> = texts.iter().map(|t| redact::value(&flag.name, t)).collect();
            let message =
                format!("`{}` is given {}: {}; the last one counts", flag.name, times(texts.len()), shown.join(", "));
            found.push(remark("given-twice", &message, &flag.place));
        }
    }
    let known = |name: &str| declared.flag(name).and_then(|f| Some((f.value.known()?, &f.place)));
    if let (Some((template, place)), Some(model)) = (known("--chat-template"), command::model(declared))
        && let Text::Known(model) = model
        && foreign_template(template, &model)
    {
        let message = format!("the chat template `{template}` is not named after the model `{model}`");
        found.push(remark("chat-template", &message, place));
    }
    if let (Some((chunk, place)), Some(_), Some((ranks, _))) =
        (known("--chunked-prefill-size"), declared.flag("--enable-dp-attention"), known("--dp-size"))
        && let (Ok(chunk), Ok(ranks)) = (chunk.parse::<u64>(), ranks.parse::<u64>())
        && ranks > 1
    {
        let message = format!(
            "`--chunked-prefill-size` {chunk} is what is asked; with data-parallel attention over {ranks} ranks, {} a rank may be effective",
            chunk / ranks
        );
        found.push(remark("asked-only", &message, place));
    }
    if let Some(variable) = declared.variables.get("VLLM_PORT").filter(|v| v.value.is_some()) {
        let message = "`VLLM_PORT` is for vLLM's own processes and is not the port of its HTTP server";
        found.push(remark("vllm-port", message, &variable.place));
    }
    if let Some(variable) = declared.variables.get("VLLM_ATTENTION_BACKEND").filter(|v| v.value.is_some())
        && let Some(version) = image.and_then(vllm_version)
        && version >= ATTENTION_VARIABLE_GONE
    {
        let (major, minor) = version;
        let message = format!(
            "`VLLM_ATTENTION_BACKEND` is set and ignored by vLLM {major}.{minor}: only `--attention-backend` counts"
        );
        found.push(remark("ignored-variable", &message, &variable.place));
    }
    found.retain(|f| !declared.diagnostics.contains(f));
    declared.diagnostics.extend(found);
}

/// The first vLLM that is reported to ignore it; it was announced for removal after 0.14, and 0.26 does not name it.
const ATTENTION_VARIABLE_GONE: (u32, u32) = (0, 18);

fn times(n: usize) -> String {
    if n == 2 { "twice".into() } else { format!("{n} times") }
}

/// A built-in template, which is neither a path nor a text, with a part that the model's name does not have.
fn foreign_template(template: &str, model: &str) -> bool {
    let builtin = !template.is_empty() && !template.contains(['/', '.', '{', ' ']);
    let model = model.rsplit('/').find(|p| !p.is_empty()).unwrap_or_default().to_ascii_lowercase();
    let bare = |s: &str| s.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
    let model = bare(&model);
    let lower = template.to_ascii_lowercase();
    let mut parts = lower.split(['-', '_']).filter(|p| p.chars().any(|c| c.is_ascii_alphabetic()));
    builtin && parts.any(|p| !model.contains(&bare(p)))
}

/// `vllm/vllm-openai:v0.19.1` → (0, 19).
fn vllm_version(image: &str) -> Option<(u32, u32)> {
    let (name, tag) = image.rsplit_once(':')?;
    let mut numbers = tag.trim_start_matches('v').split(['.', '-']).map(str::parse::<u32>);
    let version = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    name.contains("vllm").then_some(version)
}

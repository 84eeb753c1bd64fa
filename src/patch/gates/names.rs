//! Which names mean that something is read: helpers, registries, tests of the card. All rules by name stand here.
//!
//! Not responsible for the syntax around them.

use std::sync::LazyLock;

use regex::Regex;

/// Objects that hold a registry of variables.
pub(super) const REGISTRIES: &[&str] = &["envs"];

/// What is called on a field of a registry to read it.
pub(super) const FIELD_READS: &[&str] = &["get", "value"];

/// What is called on a field of a registry to see whether it is set.
pub(super) const FIELD_TESTS: &[&str] = &["is_set"];

/// What stands for the arguments of the server.
pub(super) const SERVER_ARGS: &[&str] = &["server_args", "global_server_args"];

/// Calls that return them.
pub(super) const SERVER_ARGS_CALLS: &[&str] = &["get_server_args", "get_global_server_args"];

/// Constants that are tested for another reason than to switch something.
pub(super) const NO_GATES: &[&str] = &["TYPE_CHECKING", "NotImplemented", "Ellipsis"];

/// The name of a variable of the environment, as everybody writes them.
pub(super) fn is_variable(name: &str) -> bool {
    matched(&VARIABLE, name)
}

/// Whether a function that is called so reads the variable that its first argument names. `literal`: that argument is
/// the name of a variable, which says more than the name of the function does.
pub(super) fn is_helper(name: &str, literal: bool) -> bool {
    if matched(&WRITES, name) {
        return false;
    }
    matched(&READS, name) || (literal && matched(&MENTIONS, name))
}

/// Whether a function that is called so asks for the card or the platform.
pub(super) fn is_arch_call(name: &str) -> bool {
    matched(&ARCH_CALL, name)
}

/// Whether a variable of this name holds the answer to such a question.
pub(super) fn is_arch_variable(name: &str) -> bool {
    matched(&ARCH_VARIABLE, name)
}

fn matched(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

type Pattern = LazyLock<Option<Regex>>;

static VARIABLE: Pattern = LazyLock::new(|| Regex::new(r"^_?[A-Z][A-Z0-9]*(_[A-Z0-9]+)*_?$").ok());

/// `get_bool_env_var`, `read_env`, `env_flag`, `int_from_env`, `_env_on`, `GetEnvInt`.
static READS: Pattern = LazyLock::new(|| {
    Regex::new(
        r"(?x)
        ^_*(get|read|parse|load|lookup)_([a-z0-9]+_)*env(_[a-z0-9]+)*$
        | ^_*(bool|int|float|str|string|flag|list|is|has)_([a-z]+_)?env(_[a-z0-9]+)*$
        | ^_*env_(on|off|bool|int|float|str|string|flag|list|enabled|is_[a-z]+|or_[a-z]+|get)$
        | ^_*env(Bool|Int|Float|Str|String|Flag)$
        | ^(get|read|parse)([A-Z][a-z]+)*Env([A-Z][a-z]+)*$
        | ^(Get|Read|Parse)([A-Z][a-z]+)*Env([A-Z][a-z]+)*$",
    )
    .ok()
});

/// A word of its own in the name.
static MENTIONS: Pattern = LazyLock::new(|| Regex::new(r"(?i:(^|_)env(iron|ironment)?(_|$))|[a-z]Env([A-Z]|$)").ok());

static WRITES: Pattern = LazyLock::new(|| {
    Regex::new(
        r"(?i)(^|_)(set|unset|setenv|delenv|put|putenv|del|delete|remove|clear|patch|patched|override|temp|temporary|with|write|init|ensure|update|restore|push|export|make|build|create|check_call|run)(_|$)",
    )
    .ok()
});

static ARCH_CALL: Pattern = LazyLock::new(|| {
    Regex::new(
        r"(?x)
        ^_*is_(sm|gfx)[0-9]+[a-z0-9_]*$
        | ^_*is_(blackwell|hopper|ampere|ada|turing|volta|mi[0-9]+)[a-z0-9_]*$
        | ^_*is_(cuda|hip|rocm|npu|xpu|hpu|musa|cpu)(_alike)?$
        | ^_*(get|has)_device_(capability|sm|arch)$
        | ^_*(get_)?compute_capability$",
    )
    .ok()
});

static ARCH_VARIABLE: Pattern = LazyLock::new(|| {
    Regex::new(
        r"(?x)
        ^_*is_(sm|gfx)[0-9]+[a-z0-9_]*$
        | ^_*is_(blackwell|hopper|ampere|ada)[a-z0-9_]*$
        | ^_+is_(cuda|hip|rocm|npu|xpu|hpu|musa|cpu)$
        | ^_*(device_)?(sm_version|device_capability|device_sm|compute_capability)$",
    )
    .ok()
});

//! Tests of the readers of gates: what is a read, what is none, and with which default.

use proptest::prelude::*;

use super::{Guards, Registry, reads, touching};
use crate::patch::language::{Language, Source};
use crate::patch::types::{GateDefault, GateRead};

/// `LINE NAME kind default` for each read.
fn lines(found: &[super::Found]) -> Vec<String> {
    found.iter().map(|found| line(&found.read)).collect()
}

fn line(read: &GateRead) -> String {
    let default = match &read.default {
        GateDefault::Written(text) => format!("={text}"),
        other => format!("{other:?}").to_lowercase(),
    };
    let kind = format!("{:?}", read.kind).to_lowercase();
    format!("{} {} {kind} {default}", read.place.line.unwrap_or_default(), read.name)
}

fn check(language: Language, text: &str, expect: &[&str]) {
    let source = Source::whole(language, text).unwrap();
    assert_eq!(lines(&reads(&source, "f", &Registry::default())), expect, "{text}");
}

fn python(text: &str, expect: &[&str]) {
    check(Language::Python, &format!("import os\n{text}"), expect);
}

#[test]
fn the_environment_in_python() {
    python("a = os.environ[\"X\"]", &["2 X environ required"]);
    python("a = os.environ.get('X')", &["2 X environ unset"]);
    python("a = os.environ.get('X', None)", &["2 X environ unset"]);
    python("a = os.environ.get('X', '1') == '1'", &["2 X environ ='1'"]);
    python("a = os.environ.get(\n    'X', str(8 *\n    2))", &["2 X environ =str(8 * 2)"]);
    python("a = os.getenv('X', default=\"0\")", &["2 X environ =\"0\""]);
    python("if 'X' in os.environ:\n    pass", &["2 X environ unset"]);
    python("a = 'X' not in os.environ and b", &["2 X environ unset"]);
    python("a = os.environ.pop('X')", &["2 X environ required"]);
    python("a = os.environ.pop('X', None)", &["2 X environ unset"]);
    python("a = os.environ.setdefault('X', '1')", &["2 X environ ='1'"]);
    python("a = os.environ.get(f'{p}_X')", &["2 f'{p}_X' environ unset"]);
    python("a = {k: os.environ.get(k) for k in ks}", &["2 k environ unset"]);
    python("a = f\"{os.environ.get('X')}\"", &["2 X environ unset"]);
    python("a = 'y' not in os.environ.get('X', '')", &["2 X environ =''"]);
    python("NAME = 'SGLANG_X'\na = os.environ.get(NAME)", &["3 SGLANG_X environ unset"]);
    python("NAME = 'A'\nNAME = 'B'\na = os.environ.get(NAME)", &["4 NAME environ unset"]);
    python("def f():\n    NAME = 'A'\na = os.environ.get(NAME)", &["4 NAME environ unset"]);
    python(
        "from os import environ as e, getenv\na = e['X']\nb = getenv('Y')",
        &["3 X environ required", "4 Y environ unset"],
    );
    python("import os as o\na = o.environ['X']", &["3 X environ required"]);
    python("env = os.environ\na = env.get('X', 3)", &["3 X environ =3"]);
    python("if (m := os.environ.get('X')):\n    pass", &["2 X environ unset"]);
}

#[test]
fn what_is_no_read_in_python() {
    for text in [
        "os.environ['X'] = '1'",
        "os.environ['X'] += '1'",
        "del os.environ['X']",
        "os.environ['X'], b = c",
        "os.environ.pop('X', None)",
        "os.environ.setdefault('X', '1')",
        "os.environ.update({'X': '1'})",
        "os.putenv('X', '1')",
        "env = {**os.environ, 'X': '1'}",
        "env = os.environ.copy()\nenv['X'] = '1'\na = env['Y']",
        "# os.environ.get('X')",
        "'''\nos.environ.get('X')\n'''",
        "a = \"os.environ['X']\"",
        "d.environ.get('X')",
        "environ.get('X')",
        "a = environment['X']",
        "config.getenv('X')",
        "with mock.patch.dict(os.environ, {'X': '1'}):\n    pass",
        "with patch.dict('os.environ', {'X': '1'}):\n    pass",
        "monkeypatch.setenv('X', '1')",
        "temp_set_env('SGLANG_X', '1')",
        "ensure_env_defaults('SGLANG_X')",
        "env_logger('not a variable')",
        "init_env_if_enabled('X')",
        "envs.SGLANG_X.set(True)",
        "with envs.SGLANG_X.override(True):\n    pass",
        "envs.SGLANG_X.clear()",
        "print(envs.SGLANG_X.name)",
        "envs.SGLANG_X = 3",
        "envs.helper()",
        "a = other.SGLANG_X.get()",
        "from sglang.srt.environ import envs",
        "class Envs:\n    SGLANG_X = EnvBool(False)",
        "getattr(other, name).get()",
    ] {
        python(text, &[]);
    }
}

#[test]
fn helpers_and_registries() {
    python("a = get_bool_env_var('SGLANG_X')", &["2 SGLANG_X helper unknown"]);
    python("a = utils.get_bool_env_var(\"SGLANG_X\", \"true\")", &["2 SGLANG_X helper =\"true\""]);
    python("a = get_int_env_var('SGLANG_X', default=3)", &["2 SGLANG_X helper =3"]);
    python("a = env_flag('SGLANG_X', default_value=False)", &["2 SGLANG_X helper =False"]);
    python("N = 'SGLANG_X'\na = get_int_env_var(N)", &["3 SGLANG_X helper unknown"]);
    python("a = get_int_env_var(name, 3)", &["2 name helper =3"]);
    python(
        "def _lazy(name, d):\n    return lambda: os.getenv(name, d)\nt = _lazy('A_B', 'x')",
        &["3 name environ =d", "4 A_B helper ='x'"],
    );
    python(
        "def _on(self, name):\n    return getattr(envs, name).get()\nt = m._on('A_B')",
        &["3 name registry unknown", "4 A_B helper unknown"],
    );
    python("if envs.SGLANG_X.get():\n    pass", &["2 SGLANG_X registry unknown"]);
    python("if not envs.SGLANG_X.is_set():\n    envs.SGLANG_X.set(1)", &["2 SGLANG_X registry unset"]);
    python("a = envs.SGLANG_X.value", &["2 SGLANG_X registry unknown"]);
    python("a = envs.VLLM_X and b", &["2 VLLM_X registry unknown"]);
    python("a = sglang.srt.environ.envs.SGLANG_X.get()", &["2 SGLANG_X registry unknown"]);
    python("T = ((envs.SGLANG_X, True),)", &["2 SGLANG_X registry unknown"]);
    python("a = f'{envs.SGLANG_X.get()}'", &["2 SGLANG_X registry unknown"]);
    python(
        "from sglang.srt.environ import envs as srt_envs\na = srt_envs.SGLANG_X.get().lower()",
        &["3 SGLANG_X registry unknown"],
    );
    python("a = [getattr(envs, name).get() for name in n]", &["2 name registry unknown"]);
}

#[test]
fn a_registry_gives_defaults() {
    let mut registry = Registry::default();
    let define = |registry: &mut Registry, text: &str| registry.add(&Source::whole(Language::Python, text).unwrap());
    define(
        &mut registry,
        "class Envs:\n    A_ON = EnvBool(True)\n    A_N = EnvStr(None)\n    A_W = EnvBoolWithAlias(\n        False, deprecated_name='O')\n    A_F = EnvBool(_default_hip)\n    A_K = EnvInt(default=3)\n    x = other(1)\n",
    );
    define(
        &mut registry,
        "import os\nenvironment_variables = {\n  'T_A': lambda: bool(int(os.getenv('T_A', '1'))),\n  'T_B': lambda: os.getenv('T_B'),\n}\n",
    );
    define(&mut registry, "class ServerArgs:\n    tp_size: int = 1\n    moe: Optional[str] = None\n    must: str\n");
    let text = "a = envs.A_ON.get()\nb = envs.A_N.get()\nc = envs.A_W.get()\nd = envs.A_F.get()\ne = envs.A_K.get()\nf = envs.T_A\ng = envs.T_B\nif server_args.tp_size > 1 or server_args.moe:\n    h = envs.A_ON.is_set(), envs.NO.get()\n";
    let source = Source::whole(Language::Python, text).unwrap();
    assert_eq!(
        lines(&reads(&source, "f", &registry)),
        [
            "1 A_ON registry =True",
            "2 A_N registry unset",
            "3 A_W registry =False",
            "4 A_F registry =_default_hip",
            "5 A_K registry =3",
            "6 T_A registry ='1'",
            "7 T_B registry unset",
            "8 tp_size serverargs =1",
            "8 moe serverargs unset",
            "9 A_ON registry unset",
            "9 NO registry unknown",
        ]
    );
    assert!(!registry.arguments.contains_key("must"));
}

#[test]
fn arguments_cards_and_constants() {
    python("if self.server_args.enable_x:\n    pass", &["2 enable_x serverargs unknown"]);
    python("a = get_global_server_args().enable_x and b", &["2 enable_x serverargs unknown"]);
    python("a = server_args.enable_x", &[]);
    python("server_args.enable_x = True", &[]);
    python("if server_args.check():\n    pass", &[]);
    python("if is_sm120_supported():\n    pass", &["2 is_sm120_supported() arch unknown"]);
    python("_is_hip = is_hip()\nif _is_hip and x:\n    pass", &["2 is_hip() arch unknown", "3 _is_hip arch unknown"]);
    python(
        "if torch.cuda.get_device_capability()[0] >= 10:\n    pass",
        &["2 torch.cuda.get_device_capability()[0] >= 10 arch unknown"],
    );
    python("if x.is_cuda:\n    pass\nif t.is_cuda():\n    pass", &[]);
    python("USE = True\nif USE:\n    pass", &["3 USE constant =True"]);
    python("USE = True\na = b if not USE else c", &["3 USE constant =True"]);
    python("USE = 3\nif USE > 2:\n    pass", &[]);
    python("if TYPE_CHECKING:\n    pass", &[]);
    python("def f(USE):\n    if USE:\n        pass", &[]);
    // A constant that was read from a variable is that variable.
    python("USE = os.environ.get('X', '0') == '1'\nif USE:\n    pass", &["2 X environ ='0'", "2 X environ ='0'"]);
}

#[test]
fn cuda_and_scripts() {
    let cuda = |text, expect: &[&str]| check(Language::Cuda, text, expect);
    cuda(
        "int f() {\n  const char* e = std::getenv(\"X\");\n  return getenv(\"Y\") != nullptr;\n}",
        &["2 X environ unset", "3 Y environ unset"],
    );
    cuda(
        "#define NAME \"A_X\"\nstatic const char* kOther = \"A_Y\";\nauto a = getenv(NAME), b = ::getenv(kOther);",
        &["3 A_X environ unset", "3 A_Y environ unset"],
    );
    cuda(
        "auto a = getBoolEnv(\"A_X\", false); auto b = GetEnvInt(\"A_Y\");",
        &["1 A_X helper =false", "1 A_Y helper unknown"],
    );
    cuda("// getenv(\"X\")\nauto a = \"getenv(X)\"; setenv(\"X\", \"1\", 1); auto b = lookup(\"A_X\");", &[]);
    cuda(
        "#if __CUDA_ARCH__ >= 1200\nint a;\n#endif\n#if defined(X)\n#endif\n",
        &["1 __CUDA_ARCH__ >= 1200 arch unknown"],
    );
    let bash = |text, expect: &[&str]| check(Language::Bash, text, expect);
    bash(
        "a=${SGLANG_X:-1}\nb=${SGLANG_Y-}\nc=${SGLANG_Z:?must}\nd=\"$SGLANG_W\"",
        &[
            "1 SGLANG_X environ =1",
            "2 SGLANG_Y environ unset",
            "3 SGLANG_Z environ required",
            "4 SGLANG_W environ unknown",
        ],
    );
    bash("export SGLANG_X=1\nSGLANG_Y=2 run $SGLANG_Y\nfor F in a; do echo $F; done", &[]);
    bash("SGLANG_X=${SGLANG_X:-0}", &["1 SGLANG_X environ =0"]);
    bash("# ${SGLANG_X:-1}\necho '${SGLANG_X:-1}' ${#ARR[@]} ${X%%.*} $1 $lower", &[]);
}

#[test]
fn only_what_touches_the_lines() {
    let text = "import os\na = os.environ.get(\n    'X',\n    '1')\nb = os.environ['Y']\n";
    let found = reads(&Source::whole(Language::Python, text).unwrap(), "f", &Registry::default());
    for (changed, names) in [(vec![3], vec!["X"]), (vec![1], vec![]), (vec![4, 5], vec!["X", "Y"]), (vec![6], vec![])] {
        let touched = touching(&found, &changed);
        assert_eq!(touched.iter().map(|found| found.read.name.as_str()).collect::<Vec<_>>(), names, "{changed:?}");
    }
}

#[test]
fn deep_nesting_ends_in_time() {
    let deep = |open: &str, close: &str, inner: &str| open.repeat(20_000) + inner + &close.repeat(20_000);
    for text in [
        format!("import os\na = os.environ.get({})\n", deep("(", ")", "'X'")),
        format!("USE = 1\nif {}:\n    pass\n", deep("(", ")", "USE")),
        format!("if {}:\n    pass\n", deep("not (", ")", "server_args.x")),
    ] {
        let source = Source::whole(Language::Python, &text).unwrap();
        assert!(reads(&source, "f", &Registry::default()).len() < 2);
    }
    for (language, text) in
        [(Language::Cuda, deep("{", "}", "f(getenv(\"X\"));")), (Language::Bash, deep("$(", ")", "a"))]
    {
        reads(&Source::whole(language, &text).unwrap(), "f", &Registry::default());
    }
}

fn check_guards(text: &str, line: u32, expect: &[&str]) {
    let source = Source::whole(Language::Python, text).unwrap();
    let found = reads(&source, "f", &Registry::default());
    assert_eq!(lines(&Guards::new(&source).reads(&source, &found, line)), expect, "{text}");
}

#[test]
fn conditions_around_a_line() {
    let text = "import os\nFAST = os.environ.get('F')\ndef f(x):\n    if not envs.A.get():\n        return x\n    if envs.B.get():\n        y = 1\n    else:\n        if FAST:\n            z = 2\n    w = 3\n";
    check_guards(text, 7, &["4 A registry unknown", "6 B registry unknown"]);
    check_guards(text, 10, &["4 A registry unknown", "6 B registry unknown", "2 F environ unset"]);
    check_guards(text, 11, &["4 A registry unknown"]);
    check_guards(text, 6, &["4 A registry unknown"]);
    check_guards(text, 1, &[]);
    check_guards("if envs.A.get():\n    def f():\n        x = 1\n", 3, &[]);
}

proptest! {
    #[test]
    fn no_text_breaks_a_reader(text in "(os\\.environ|envs\\.|getenv|if |\\$\\{X:-|[ -~\n\té\"'(){}\\[\\]]){0,40}") {
        for language in [Language::Python, Language::Cuda, Language::Bash] {
            let source = Source::whole(language, &text).unwrap();
            let found = reads(&source, "f", &Registry::default());
            let guards = Guards::new(&source);
            for line in 1..5 {
                guards.reads(&source, &found, line);
            }
        }
    }

    #[test]
    fn a_read_is_found_wherever_it_stands(indent in 0..4_usize, before in "[a-z]{1,6}", name in "[A-Z]{2,6}_[A-Z]{2,6}") {
        let pad = "    ".repeat(indent);
        let lines = [format!("{pad}v_{before} = 1"), format!("{pad}if os.environ.get('{name}'):"), format!("{pad}    y = 2")];
        let lines: Vec<(u32, &str)> = (40..).zip(lines.iter().map(String::as_str)).collect();
        let source = Source::fragment(Language::Python, &lines, "").unwrap();
        let found = reads(&source, "f", &Registry::default());
        prop_assert_eq!(found.len(), 1);
        prop_assert_eq!((&found[0].read.name, found[0].read.place.line), (&name, Some(41)));
        prop_assert_eq!(Guards::new(&source).reads(&source, &found, 42).len(), 1);
    }
}

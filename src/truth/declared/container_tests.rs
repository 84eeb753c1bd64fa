//! Containers by the rules of docker, compose, Kubernetes and podman: small texts, one rule each.

use proptest::prelude::*;

use super::container::{Asked, Container, Containers};
use super::*;
use crate::remote::script;

/// Variables and flags as `NAME=value`, unknown ones as `NAME?`, unset ones as `NAME!`.
fn summary(declared: &Declared) -> Vec<String> {
    let text = |name: &str, value: Option<&Text>| match value {
        Some(Text::Known(text)) => format!("{name}={text}"),
        Some(Text::Unresolved { .. }) => format!("{name}?"),
        None => format!("{name}!"),
    };
    let variables = declared.variables.iter().map(|(n, v)| text(n, v.value.as_ref()));
    variables.chain(declared.flags.iter().map(|f| text(&f.name, Some(&f.value)))).collect()
}

fn known(setting: Option<&Setting>) -> &str {
    setting.map_or("-", |s| s.value.known().unwrap_or("?"))
}

fn check_run(text: &str, image: &str, expect: &[&str]) {
    let script = script::parse(text).unwrap();
    let read = script::declared(&script, "s", None);
    assert_eq!(summary(&read), expect, "{text}");
    let all = script::containers(&script, "s");
    assert_eq!(known(all[0].image.as_ref()), image, "{text}");
}

#[test]
fn a_run_of_docker() {
    for (text, image, expect) in [
        ("docker run --rm -it -e A=1 -eB=2 --env=C=3 img srv --tp 2\n", "img", &["A=1", "B=2", "C=3", "--tp=2"][..]),
        ("export A=1 D=2\ndocker run -e A -e B img --tp 2\n", "img", &["A=1", "B?", "--tp=2"]),
        ("podman run --gpus all --network=host -p 1:2 img vllm serve m --tp 2\n", "img", &["--tp=2"]),
        ("docker --context c container run --name x img python3 -m srv --tp 2\n", "img", &["--tp=2"]),
        ("sudo docker run -d -e A=1 \"$IMG\" --tp 2\n", "?", &["A=1", "--tp=2"]),
        ("docker run -e A=1 $IMG --tp 2\n", "?", &["A=1", "--tp=2"]),
        ("docker run $OPTS -e A=1 img --tp 2\n", "img", &["A=1", "--tp=2"]),
        ("docker run -e A=$X -e \"B=$Y\" -e KEY=\"${Z}\" img --tp 2\n", "img", &["A?", "B?", "KEY?", "--tp=2"]),
        ("docker run --entrypoint srv img --tp 2\n", "img", &["--tp=2"]),
        ("docker run --entrypoint bash img -c 'export Q=1; exec srv --tp 2'\n", "img", &["Q=1", "--tp=2"]),
        ("docker run -v ~/a:/b --shm-size 32g img bash -lc \"srv --tp 2\"\n", "img", &["--tp=2"]),
        ("docker run -e A=0 img env A=1 srv --tp 2\n", "img", &["A=1", "--tp=2"]),
    ] {
        check_run(text, image, expect);
    }
}

#[test]
fn a_file_of_variables_is_beneath_what_is_given_one_by_one() {
    let text = "docker run -e A=1 --env-file /e img --tp 2\n";
    let script = script::parse(text).unwrap();
    let read = |files: &Files| {
        let reading = command::Reading::new(None, files);
        script::declared_at(&script, &|line| Place::new("s", line), reading)
    };
    let with = read(&Files::default().with("/e", FileText::Read("# c\nA=0\nB=\"q\" # r\nC\n1 D=2\n".into())));
    assert_eq!(summary(&with), ["A=1", "B=\"q\" # r", "C?", "--tp=2"]);
    assert_eq!(with.variables["B"].place, Place::new("/e", 3));
    assert!(with.diagnostics.iter().any(|d| d.code == "env-file-line"));
    let without = read(&Files::default());
    assert_eq!(summary(&without), ["A=1", "--tp=2"]);
    assert!(without.blind_to.unwrap().contains("what `/e` sets"));
}

#[test]
fn containers_within_containers_end() {
    let text = format!("docker run {}img srv --tp 1\n", "--entrypoint docker img run ".repeat(500));
    let script = script::parse(&text).unwrap();
    let read = script::declared(&script, "s", None);
    assert!(read.diagnostics.iter().any(|d| d.code == "nested-commands"), "{:?}", read.diagnostics);
}

fn one(all: &Containers) -> &Container {
    all.chosen().unwrap_or_else(|| panic!("{all:#?}"))
}

fn check_compose(service: &str, expect: &[&str]) {
    let text = format!("services:\n  s:\n    image: img\n{service}");
    let all = compose::read(&text, "c", Asked::default(), &Files::default());
    assert_eq!(summary(&one(&all).declared), expect, "{text}");
}

#[test]
fn a_service_of_compose() {
    for (service, expect) in [
        ("    command: srv --a 1 --b 'x y'\n", &["--a=1", "--b=x y"][..]),
        ("    command: [\"--a\", \"1\", \"--b\", 'x y']\n", &["--a=1", "--b=x y"]),
        ("    command:\n      - --a\n      - 1\n      - --b=$$x\n", &["--a=1", "--b=$x"]),
        ("    entrypoint: [python3, -m, srv]\n    command: >-\n      --a 1\n      --b\n", &["--a=1", "--b="]),
        ("    entrypoint: |\n      srv --a 1\n      --b 2\n", &["--a=1", "--b=2"]),
        ("    command: --a 1 ${MORE} --b ${B:-2}\n", &["--a=1", "--b?"]),
        (
            "    command: --a 1\n    environment:\n      A: 1\n      B: null\n      C: \"x y\"\n      D: ${Q}\n",
            &["A=1", "B?", "C=x y", "D?", "--a=1"],
        ),
        ("    command: --a 1\n    environment: [A=1, B, 'C=x=y']\n", &["A=1", "B?", "C=x=y", "--a=1"]),
        ("    command: bash -c \"export A=1 && srv --a $$A\"\n", &["A=1", "--a=1"]),
        ("    command: bash -c \"export A=1; srv --a $$A\"\n", &["A=1", "--a=1"]),
    ] {
        check_compose(service, expect);
    }
}

#[test]
fn files_and_anchors_of_compose() {
    let text = "x-base: &base\n  environment: &env {A: 1, B: 1}\n  env_file: [one.env, {path: two.env, required: false}]\n\
                services:\n  s:\n    <<: *base\n    environment:\n      <<: *env\n      B: 2\n    command: --a 1\n";
    let files = Files::default()
        .with("one.env", FileText::Read("export A=0\nC='$x' # c\nD=\"q\" \nE=a # b\nF=${G:-1}\n".into()))
        .with("two.env", FileText::Absent);
    let all = compose::read(text, "c", Asked::default(), &files);
    let read = &one(&all).declared;
    assert_eq!(summary(read), ["A=1", "B=2", "C=$x", "D=q", "E=a", "F?", "--a=1"]);
    assert_eq!(read.variables["A"].place, Place::new("c", 2));
    assert_eq!(read.variables["B"].place, Place::new("c", 9));
    assert_eq!(read.variables["C"].place, Place::new("one.env", 2));
    let all = compose::read(text, "c", Asked::default(), &Files::default());
    assert!(one(&all).declared.blind_to.as_deref().unwrap().contains("what `one.env` sets, and what `two.env` sets"));
}

#[test]
fn the_service_that_is_meant() {
    let text = "services:\n  web:\n    image: nginx\n    ports: ['80:80']\n  p:\n    image: img\n    container_name: pre\n    \
                command: --port 1\n  d:\n    image: img\n    ports: ['127.0.0.1:7000:2/tcp']\n    command: --port 2\n";
    let ask = |asked| {
        let all = compose::read(text, "c", asked, &Files::default());
        all.chosen.map(|i| all.all[i].place.line).ok_or(all.diagnostics)
    };
    for (asked, expect) in [
        (Asked { name: Some("d"), port: None }, Some(9)),
        (Asked { name: Some("pre"), port: None }, Some(5)),
        (Asked { name: None, port: Some(1) }, Some(5)),
        (Asked { name: None, port: Some(7000) }, Some(9)),
        (Asked { name: None, port: Some(80) }, Some(2)),
        (Asked { name: None, port: None }, None),
        (Asked { name: Some("x"), port: None }, None),
    ] {
        assert_eq!(ask(asked).ok(), expect, "{asked:?}");
    }
    let remarks = ask(Asked::default()).unwrap_err();
    assert!(remarks.iter().any(|d| d.message.contains("web on line 2, p on line 5, d on line 9")), "{remarks:?}");
    let broken = compose::read("services:\n  a: [\n", "c", Asked::default(), &Files::default());
    assert!(broken.diagnostics.iter().any(|d| d.code == "yaml"));
    assert!(
        compose::read("a: 1\n", "c", Asked::default(), &Files::default()).diagnostics[0].message.contains("`services`")
    );
}

fn check_pod(container: &str, expect: &[&str]) {
    let text = format!("kind: Pod\nspec:\n  containers:\n  - name: c\n    image: img\n{container}");
    let all = kubernetes::read(&text, "k", Asked::default());
    assert_eq!(summary(&one(&all).declared), expect, "{text}");
}

#[test]
fn a_container_of_a_pod() {
    for (container, expect) in [
        (
            "    args: [--a, '1', --b=$(X), --c, $$(X)]\n    env:\n    - {name: X, value: '5'}\n",
            &["X=5", "--a=1", "--b=5", "--c=$(X)"][..],
        ),
        (
            "    args: [--a, $(Y), --b, $(X)]\n    env:\n    - name: X\n      valueFrom: {fieldRef: {fieldPath: status.podIP}}\n",
            &["X?", "--a?", "--b?"],
        ),
        (
            "    args: [--a]\n    env:\n    - {name: X, value: $(Y)}\n    - {name: Y, value: a$(X)}\n    - {name: Z}\n",
            &["X?", "Y?", "Z=", "--a="],
        ),
        ("    command: [bash, -c]\n    args:\n    - |\n      export A=1\n      exec srv --a 1\n", &["A=1", "--a=1"]),
        ("    command: [srv, serve]\n    args: [--a, 1]\n", &["--a=1"]),
    ] {
        check_pod(container, expect);
    }
}

#[test]
fn documents_maps_and_several_containers() {
    let text = "kind: ConfigMap\nmetadata: {name: m}\ndata:\n  A: '1'\n  B: '2'\n---\nkind: Service\nspec: {}\n---\n\
                kind: StatefulSet\nspec:\n  template:\n    spec:\n      initContainers:\n      - {name: i, image: x, args: [--i]}\n      containers:\n      \
                - name: side\n        image: nginx\n      - name: main\n        image: img\n        resources: {limits: {nvidia.com/gpu: 8}}\n        args: [--port, '1']\n        \
                envFrom:\n        - configMapRef: {name: m}\n          prefix: P_\n        - secretRef: {name: s}\n        env:\n        - {name: P_A, value: '3'}\n        \
                - {name: C, valueFrom: {configMapKeyRef: {name: m, key: B}}}\n---\nkind: Odd\n";
    let all = kubernetes::read(text, "k", Asked { port: Some(1), name: None });
    let container = one(&all);
    assert_eq!((known(container.name.as_ref()), known(container.gpus.as_ref()), all.all.len()), ("main", "8", 2));
    assert_eq!(summary(&container.declared), ["C=2", "P_A=3", "P_B=2", "--port=1"]);
    assert_eq!(container.declared.variables["P_B"].place, Place::new("k", 5));
    assert!(container.declared.blind_to.as_deref().unwrap().contains("what the secret `s` sets"));
    assert!(all.diagnostics.iter().any(|d| d.message.contains("kind `Odd`")), "{:?}", all.diagnostics);
    assert_eq!(all.diagnostics.len(), 1);
}

#[test]
fn a_quadlet() {
    let main = "[Unit]\nDescription=x\n[Container]\nImage=img:1\nContainerName=%p\nPublishPort=8000:8000\nNetwork=host\n\
                Environment=A=1 \"B=x y\"\nEnvironment=A=2\nEnvironmentFile=/e\nAddDevice=nvidia.com/gpu=all\nPodmanArgs=--env=Q=1 --env R=2\n\
                Exec=serve m --tp 2 \\\n  --name '%i'\n[Service]\nEnvironment=S=1\n";
    let files = Files::default().with("/e", FileText::Read("A=0\nE=\"1\"\n".into()));
    let container = quadlet::read("v.container", ("/q", main), &[], &files, None);
    assert_eq!(summary(&container.declared), ["A=2", "B=x y", "E=\"1\"", "Q=1", "R=2", "--tp=2", "--name="]);
    assert_eq!(
        (known(container.image.as_ref()), known(container.name.as_ref()), known(container.network.as_ref())),
        ("img:1", "v", "host")
    );
    assert_eq!(container.declared.flag("--tp").unwrap().place, Place::new("/q", 13));
    let drop = [("/d/10.conf".to_owned(), "[Container]\nEnvironment=\nExec=\nExec=serve m --tp 4\n".to_owned())];
    let container = quadlet::read("v.container", ("/q", main), &drop, &Files::default(), None);
    assert_eq!(container.declared.flag("--tp").unwrap().value.known(), Some("4"));
    assert!(!container.declared.variables.contains_key("A"));
    assert!(container.declared.blind_to.as_deref().unwrap().contains("what `/e` sets"));
}

proptest! {
    #[test]
    fn no_text_is_a_panic(text in "[ -~\n]{0,200}", line in "(-e|-v| |\\$X|\"|=|img|--env|A|'|\\\\|-)+") {
        let files = Files::default().with("e", FileText::Read(text.clone()));
        let _ = compose::read(&text, "c", Asked::default(), &files);
        let _ = compose::read(&format!("services: {{s: {{command: {line:?}, env_file: e}}}}"), "c", Asked::default(), &files);
        let _ = kubernetes::read(&text, "k", Asked::default());
        let _ = quadlet::read("a.container", ("q", &format!("[Container]\nExec={text}\nPodmanArgs={line}\n")), &[], &files, None);
        if let Ok(script) = script::parse(&format!("docker run {line} --tp 2\n")) {
            let _ = script::declared(&script, "s", None);
        }
    }
}

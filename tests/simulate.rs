//! `federlet simulate` as people run it: every example against what is expected of it, and what is wrong with input.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

fn federlet(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_federlet"));
    command.arg("simulate").args(args).current_dir(root());
    command
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn run(args: &[&str]) -> Output {
    federlet(args).output().expect("federlet runs")
}

/// With something on its standard input.
fn fed(args: &[&str], input: &str) -> Output {
    let mut command = federlet(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("federlet runs");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn decisions(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The examples that people apply, by name.
fn examples() -> Vec<String> {
    let files = fs::read_dir(root().join("examples")).expect("examples").map(|entry| entry.unwrap().path());
    let yaml = files.filter(|path| path.extension().is_some_and(|end| end == "yaml"));
    let mut names: Vec<String> =
        yaml.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.retain(|name| name != "clusters");
    names.sort();
    names
}

/// With the state that it is about, if it is about one.
fn run_example(name: &str) -> Output {
    let (file, state) = (format!("examples/{name}.yaml"), format!("examples/simulate/{name}.yaml"));
    let mut args = vec!["-o", "json", "-f", "examples/clusters.yaml", "-f", &file];
    if root().join(&state).exists() {
        args.extend(["-f", &state]);
    }
    let output = run(&args);
    assert!(output.status.success(), "{name}: {}", text(&output.stderr));
    output
}

/// `UPDATE_GOLDEN=1 cargo test simulate` writes what is expected anew; read the difference before you believe it.
#[test]
fn every_example_is_decided_as_expected() {
    let names = examples();
    assert!(names.len() >= 12, "{names:?}");
    for name in names {
        let output = run_example(&name);
        let golden: PathBuf = root().join(format!("tests/simulate/{name}.json"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(golden.parent().unwrap()).unwrap();
            fs::write(&golden, &output.stdout).unwrap();
        }
        let expected =
            fs::read_to_string(&golden).unwrap_or_else(|error| panic!("{}: {error}", golden.display()));
        assert_eq!(text(&output.stdout), expected, "{name}");
    }
}

/// Examples do not disturb one another.
#[test]
fn all_examples_at_once() {
    let all = decisions(&run(&["-o", "json", "-f", "examples"]));
    for name in examples() {
        for entry in decisions(&run_example(&name)).as_array().unwrap() {
            assert!(all.as_array().unwrap().contains(entry), "{name}: {} {}", entry["kind"], entry["name"]);
        }
    }
}

#[test]
fn the_edge_story() {
    let output = run(&["-f", "examples/clusters.yaml", "examples/edge.yaml"]);
    let expected = "\
TEMPLATE                    POLICY      CLUSTERS                                    REASON
Namespace edge              <none>      <none>                                      no policy selects it: members get a namespace when something goes into it
Deployment edge/nginx       edge/nginx  ke-beijing-cluster:1 ke-hangzhou-cluster:1
Service edge/nginx-service  edge/nginx  ke-beijing-cluster ke-hangzhou-cluster
";
    assert_eq!(text(&output.stdout), expected);
    let found = decisions(&run(&["-o", "json", "-f", "examples/clusters.yaml", "examples/edge.yaml"]));
    let rendered = |index: usize, cluster: &str, pointer: &str| {
        found[index]["rendered"][cluster].pointer(pointer).cloned().unwrap_or_default()
    };
    let image = "/spec/template/spec/containers/0/image";
    assert_eq!(rendered(1, "ke-beijing-cluster", image), "nginx:1.27");
    assert_eq!(rendered(1, "ke-hangzhou-cluster", image), "registry.hangzhou.example.com/nginx:1.27");
    assert_eq!(rendered(2, "ke-hangzhou-cluster", "/metadata/namespace"), "edge-ke-hangzhou-cluster");
}

#[test]
fn one_bad_document_does_not_spoil_the_others() {
    let input = "\
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: { name: member1 }
spec: {}
---
apiVersion: [
---
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterPropagationPolicy
metadata: { name: all }
spec: { resourceSelectors: [{ apiVersion: v1, kind: ConfigMap }] }
---
apiVersion: policy.karmada.io/v1alpha1
kind: OverridePolicy
metadata: { name: odd, namespace: shop }
spec: { overrideRules: 7 }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: settings, namespace: shop }
";
    let output = fed(&["-f", "-", "-o", "json"], input);
    assert_eq!(output.status.code(), Some(1));
    let found = decisions(&output);
    assert_eq!((&found[0]["policy"], &found[0]["error"]), (&json!("all"), &Value::Null));
    assert_eq!(found[0]["clusters"], json!([{"name": "member1", "replicas": null}]));
    let said = text(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("error: standard input document 2: "), "{said}");
    assert!(
        lines[1].starts_with("error: standard input document 4: OverridePolicy shop/odd is not understood: "),
        "{said}"
    );
    assert_eq!(lines.len(), 3, "{said}");
}

#[test]
fn a_template_that_cannot_be_understood_has_an_entry() {
    let input = "\
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: { name: member1 }
spec: {}
---
apiVersion: v1
kind: Secret
metadata: { name: first, namespace: shop }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: odd, namespace: shop, labels: { x: 1 } }
---
apiVersion: v1
kind: Secret
metadata: { name: last, namespace: shop }
---
apiVersion: work.karmada.io/v1alpha2
kind: ResourceBinding
metadata: { name: web-deployment, namespace: shop }
spec: { resource: { apiVersion: apps/v1, kind: Deployment, name: web } }
";
    let output = fed(&["-f", "-", "-o", "json"], input);
    assert_eq!(output.status.code(), Some(1));
    let found = decisions(&output);
    let names: Vec<&Value> = found.as_array().unwrap().iter().map(|entry| &entry["name"]).collect();
    assert_eq!(names, ["first", "odd", "last"]);
    let expected = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "odd", "policy": null, "clusters": [],
        "reason": null, "rendered": {},
        "error": "ConfigMap shop/odd is not understood: invalid type: integer `1`, expected a string",
    });
    assert_eq!(found[1], expected);
    let said = text(&output.stderr);
    let note = "note: ResourceBinding shop/web-deployment has no effect: Deployment shop/web is not among the objects\n";
    assert!(said.contains(note), "{said}");
    assert_eq!(said.lines().filter(|line| line.contains("ConfigMap shop/odd")).count(), 1, "{said}");
    // Without anything wrong a note is all there is.
    let fine = input.replace(", labels: { x: 1 }", "");
    let output = fed(&["-f", "-", "-o", "json"], &fine);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stderr), note);
}

#[test]
fn wrong_use_is_one_clear_line() {
    for (args, input, expected) in [
        (vec!["-f", "-"], "# nothing\n", "error: there are no objects in -\n"),
        (vec!["-f", "no.yaml"], "", "error: cannot read no.yaml: No such file or directory (os error 2)\n"),
        (vec!["-f", "src"], "", "error: there are no *.yaml, *.yml or *.json files in src\n"),
    ] {
        let output = fed(&args, input);
        assert_eq!((text(&output.stderr).as_str(), output.status.code()), (expected, Some(1)), "{args:?}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
    }
    // What the command line itself refuses has a code of its own.
    let output = fed(&["-f", "-", "-o", "xml"], "");
    let said = text(&output.stderr);
    assert!(said.contains("invalid value 'xml'") && said.contains("table, json, yaml"), "{said}");
    assert_eq!(output.status.code(), Some(2));
}

//! What the charts render, without any installation.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use federlet_e2e::helm::{Helm, chart};
use federlet_sandbox::Sandbox;

/// Renders that are checked in. `UPDATE_GOLDEN=1 cargo test -p federlet-e2e --test charts render` writes them anew.
const RENDERS: [(&str, &str, &[&str]); 7] = [
    ("federlet", "federlet", &[]),
    (
        "federlet-everything",
        "federlet",
        &[
            "--set=metrics.serviceMonitor.enabled=true,metrics.dashboard.enabled=true,serve.taint=",
            "--set=serve.hostApi=192.0.2.1:6443,serve.extraArgs={--ping-interval=5s},replicas=3",
            "--set=nodeSelector.disk=ssd,podLabels.team=a,imagePullSecrets[0].name=pull",
            "--set=objects.readSecrets=true,doctor.enabled=true,podDisruptionBudget.maxUnavailable=50%",
            "--values=tests/charts/pods.values.yaml",
            "--set=serve.extraEnv[0].name=OTEL_EXPORTER_OTLP_ENDPOINT,serve.extraEnv[0].value=http://collector:4317",
            "--namespace=federlet-system",
        ],
    ),
    (
        "federlet-little",
        "federlet",
        &[
            "--set=policies.enabled=false,objects.read=false,networkPolicy.enabled=false,podDisruptionBudget.enabled=false",
        ],
    ),
    ("member", "member", &["--set-file=kubeconfig=tests/charts/kubeconfig.yaml"]),
    (
        "member-everything",
        "member",
        &[
            "--set-file=kubeconfig=tests/charts/kubeconfig.yaml",
            "--values=tests/charts/everything.values.yaml",
            "--set=name=ke-beijing-cluster",
        ],
    ),
    ("member-dedicated", "member", &["--set=existingSecret=theirs,dedicated=true"]),
    (
        "member-dedicated-everything",
        "member",
        &[
            "--set=existingSecret=theirs,dedicated=true,deployment.replicas=2,deployment.kubeletPort=10300",
            "--set=deployment.taint=,deployment.hostApi=192.0.2.1:6443,deployment.nodeSelector.disk=ssd",
            "--set=deployment.extraArgs={--ping-interval=5s},deployment.tolerations[0].operator=Exists",
            "--set=deployment.metrics.port=9090,deployment.metrics.serviceMonitor.enabled=true",
            "--set=image.repository=registry.bank.example/federlet,image.tag=v1,image.pullPolicy=Always",
            "--set=imagePullSecrets[0].name=pull,deployment.priorityClassName=high,deployment.policies=false",
            "--values=tests/charts/deployment.values.yaml",
            "--set=deployment.extraEnv[0].name=RUST_BACKTRACE,deployment.extraEnv[0].value=yes",
        ],
    ),
];

/// Words that a schema or a check refuses, and what is said about it.
const REFUSED: [(&str, &[&str], &str); 18] = [
    ("federlet", &["--set=replicas=0"], "replicas"),
    ("federlet", &["--set=replica=2"], "additional properties 'replica' not allowed"),
    ("federlet", &["--set=serve.taint=x"], "taint"),
    ("federlet", &["--set=serve.logFormat=xml"], "logFormat"),
    ("federlet", &["--set=objects.readSecrets=some"], "readSecrets"),
    ("federlet", &["--set=serve.kubeletPort=65000,serve.kubeletPorts=600"], "go beyond 65535"),
    ("federlet", &["--set=serve.extraEnv[0].value=a"], "extraEnv"),
    ("federlet", &["--set=doctor.schedule="], "schedule"),
    ("member", &["--set=existingSecret=a,deployment.policies=some"], "policies"),
    ("member", &["--set=existingSecret=a,deployment.taint=x"], "taint"),
    ("member", &[], "the member has no credentials: --set-file kubeconfig=FILE"),
    ("member", &["--set=existingSecret=a,kubeconfig=b"], "exclude each other"),
    ("member", &["--set=kubeconfig=hello"], "is not a kubeconfig"),
    ("member", &["--set=existingSecret=a,offline=Maybe"], "offline"),
    ("member", &["--set=existingSecret=a,apiEndpoint=http://a"], "apiEndpoint"),
    ("member", &["--set=existingSecret=a,taints[0].key=a,taints[0].effect=Never"], "effect"),
    ("member", &["--set=existingSecret=a,name=Not_A_Name"], "name"),
    ("member", &["--set=existingSecret=a,allow.everything=true"], "everything"),
];

async fn helm() -> Result<Helm> {
    Helm::new(&Sandbox::shared().await?.cluster("host")?)
}

async fn template(helm: &Helm, release: &str, name: &str, words: &[&str]) -> Result<String> {
    let chart = chart(name);
    helm.run(&[&["template", release, &chart, "--kube-version=1.35.0"], words].concat()).await
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// A file that a test keeps, which `UPDATE_GOLDEN` writes anew.
fn is_current(file: &Path, expected: &str) -> Result<()> {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return fs::write(file, expected).with_context(|| file.display().to_string());
    }
    let found = fs::read_to_string(file).unwrap_or_default();
    ensure!(
        found == expected,
        "{} is stale: UPDATE_GOLDEN=1 cargo test -p federlet-e2e --test charts render",
        file.display()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn charts_are_clean() -> Result<()> {
    let helm = helm().await?;
    helm.run(&["lint", "--strict", &chart("federlet")]).await?;
    helm.run(&["lint", "--strict", &chart("member"), "--set=existingSecret=a"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn renders_are_what_they_were() -> Result<()> {
    let helm = helm().await?;
    for (file, chart, words) in RENDERS {
        // Tests run in the folder of their package.
        let release = if chart == "federlet" { "federlet" } else { "member1" };
        let rendered = template(&helm, release, chart, words).await.with_context(|| file.to_owned())?;
        is_current(&folder().join(format!("tests/charts/{file}.golden.yaml")), &rendered)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_refused_and_said() -> Result<()> {
    let helm = helm().await?;
    for (chart, words, expected) in REFUSED {
        let said = template(&helm, "member1", chart, words).await.err().map(|error| error.to_string());
        let said = said.with_context(|| format!("{words:?} was accepted"))?;
        ensure!(said.contains(expected), "{words:?}: {said}");
    }
    let long = template(&helm, &"x".repeat(49), "member", &["--set=existingSecret=a"]).await;
    ensure!(long.is_err_and(|error| error.to_string().contains("at most 48 characters")));
    Ok(())
}

/// A kubeconfig with a program or a path in it would be refused by `serve`, where nobody reads it at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_that_runs_programs_is_refused() -> Result<()> {
    let helm = helm().await?;
    let good = fs::read_to_string(folder().join("tests/charts/kubeconfig.yaml"))?;
    let file = std::env::temp_dir().join(format!("federlet-e2e-kubeconfig-{}", std::process::id()));
    for (from, to, expected) in [
        ("token: not-a-token", "exec: {command: login}", "uses exec"),
        ("token: not-a-token", "client-key: /etc/key", "uses client-key"),
        (
            "certificate-authority-data: QQ==",
            "certificate-authority: /etc/ca",
            "certificate-authority, a path",
        ),
    ] {
        fs::write(&file, good.replace(from, to))?;
        let words = format!("--set-file=kubeconfig={}", file.display());
        let said = template(&helm, "member1", "member", &[&words]).await.err().map(|error| error.to_string());
        let said = said.with_context(|| format!("{to} was accepted"))?;
        ensure!(said.contains(expected), "{to}: {said}");
    }
    fs::remove_file(&file)?;
    Ok(())
}

/// What the charts bring along has one source elsewhere.
#[test]
fn copies_are_those_of_their_source() -> Result<()> {
    let root = folder().join("../..");
    for (source, copy) in [("host.yaml", "rbac.yaml"), ("host-secrets.yaml", "rbac-secrets.yaml")] {
        let source = fs::read_to_string(root.join("provider/rbac").join(source))?;
        is_current(&root.join("charts/federlet/files").join(copy), &source)?;
    }
    let mut names = vec![];
    for entry in fs::read_dir(root.join("policy/crds"))? {
        let entry = entry?;
        is_current(
            &root.join("charts/federlet/crds").join(entry.file_name()),
            &fs::read_to_string(entry.path())?,
        )?;
        names.push(entry.file_name());
    }
    for entry in fs::read_dir(root.join("charts/federlet/crds"))? {
        let name = entry?.file_name();
        ensure!(names.contains(&name), "{} has no source in policy/crds", name.display());
    }
    Ok(())
}

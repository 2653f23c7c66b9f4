//! What a person sees while a command waits, and colours only where somebody looks.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::{Arc, Condvar, Mutex, mpsc},
    thread,
    time::Duration,
};

/// How long a line may take to be said at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether to answer.
#[derive(Default)]
struct Told(Mutex<bool>, Condvar);

impl Told {
    fn tell(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }

    fn wait(&self) {
        drop(self.1.wait_while(self.0.lock().unwrap(), |told| !*told).unwrap());
    }
}

/// A host that answers when it is told to.
struct Slow {
    kubeconfig: PathBuf,
    answers: Arc<Told>,
}

impl Slow {
    fn start(name: &str, user: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let answers = Arc::<Told>::default();
        let told = answers.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let told = told.clone();
                thread::spawn(move || answer(&stream, &told));
            }
        });
        let kubeconfig =
            std::env::temp_dir().join(format!("federlet-progress-{name}-{}.kubeconfig", std::process::id()));
        let text = format!(
            r#"{{"apiVersion": "v1", "kind": "Config", "current-context": "c",
                "contexts": [{{"name": "c", "context": {{"cluster": "c", "user": "u"}}}}],
                "clusters": [{{"name": "c", "cluster": {{"server": "{server}"}}}}],
                "users": [{{"name": "u", "user": {user}}}]}}"#
        );
        std::fs::write(&kubeconfig, text).unwrap();
        Self { kubeconfig, answers }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_federlet"));
        command.args(words).env("FEDERLET_KUBECONFIG", &self.kubeconfig).stdin(Stdio::null());
        for variable in ["NO_COLOR", "CI", "KUBECONFIG"] {
            command.env_remove(variable);
        }
        command
    }

    /// Runs a command that has to say this before it is answered. What else it said on standard error.
    fn says(&self, words: &[&str], expected: &str, go: impl Fn()) -> String {
        let mut child = self.command(words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let (line, lines) = mpsc::channel();
        thread::spawn(move || {
            for said in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = line.send(said);
            }
        });
        let first = lines.recv_timeout(PATIENCE);
        self.answers.tell();
        go();
        child.wait().unwrap();
        let rest: Vec<String> = lines.iter().collect();
        assert_eq!(first.as_deref(), Ok(expected), "{words:?}, and then {rest:?}");
        rest.join("\n")
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

fn answer(mut stream: &TcpStream, told: &Told) {
    let mut head = vec![];
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read > 0) {
        head.push(byte[0]);
    }
    told.wait();
    let body =
        r#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "message": "not here"}"#;
    let _ = write!(
        stream,
        "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
}

#[test]
fn a_host_that_takes_long_is_waited_for_aloud() {
    for (number, (words, expected)) in [
        (&["version"][..], "asking the host"),
        (&["get", "clusters"], "asking the host for its Clusters"),
        (&["describe", "cluster", "m"], "asking the host"),
        (&["top", "clusters"], "asking the host for its Clusters"),
        (&["cordon", "m"], "asking the host"),
        (&["uncordon", "m"], "asking the host"),
        (&["drain", "m"], "cordoning the node"),
        (&["unjoin", "m"], "asking the host"),
        (&["explain", "deployment", "web"], "asking the host"),
        (&["logs", "web"], "asking the host for its pods"),
        (&["exec", "web", "--", "true"], "asking the host for its pods"),
        (&["doctor"], "looking at the host"),
    ]
    .into_iter()
    .enumerate()
    {
        Slow::start(&format!("host-{number}"), "{}").says(words, expected, || {});
    }
}

#[test]
fn a_login_plugin_that_takes_long_is_waited_for_aloud() {
    let ready = std::env::temp_dir().join(format!("federlet-progress-ready-{}", std::process::id()));
    let script = format!(
        "until [ -e {} ]; do sleep 0.1; done; echo '{{\\\"apiVersion\\\": \\\"client.authentication.k8s.io/v1\\\", \
         \\\"kind\\\": \\\"ExecCredential\\\", \\\"status\\\": {{\\\"token\\\": \\\"t\\\"}}}}'",
        ready.display()
    );
    let user = format!(
        r#"{{"exec": {{"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", "{script}"],
            "interactiveMode": "Never"}}}}"#
    );
    let slow = Slow::start("login", &user);
    let rest = slow.says(&["version"], "waiting for the login plugin of the kubeconfig", || {
        std::fs::write(&ready, "").unwrap();
    });
    std::fs::remove_file(&ready).unwrap();
    assert!(rest.contains("error: the host says: not here"), "{rest}");
}

/// At a terminal of its own.
fn at_a_terminal(slow: &Slow, words: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new("script");
    let line = format!("{} {words}", env!("CARGO_BIN_EXE_federlet"));
    command
        .args(["-qec", &line, "/dev/null"])
        .env("FEDERLET_KUBECONFIG", &slow.kubeconfig)
        .stdin(Stdio::null());
    for variable in ["NO_COLOR", "CI", "KUBECONFIG"] {
        command.env_remove(variable);
    }
    command.env("TERM", "xterm").envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn colours_are_for_terminals() {
    let slow = Slow::start("colours", "{}");
    slow.answers.tell();
    let red = "\u{1b}[31m✘\u{1b}[0m host: API server";
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let shown = text(&at_a_terminal(&slow, "doctor", &[]));
    assert!(shown.contains(red), "{shown}");
    for variable in ["NO_COLOR", "CI"] {
        let shown = text(&at_a_terminal(&slow, "doctor", &[(variable, "true")]));
        assert!(shown.contains("✘ host: API server") && !shown.contains('\u{1b}'), "{variable}: {shown}");
    }
    let shown = text(&slow.command(&["doctor"]).output().unwrap());
    assert!(shown.contains("✘ host: API server") && !shown.contains('\u{1b}'), "{shown}");
}

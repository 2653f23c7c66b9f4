//! One kubectl for all short commands of a program. It is kubectl's own code, in a process that stays: most of a short
//! command's processor time goes into starting it, and tests give thousands.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{ChildStdin, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::{plan::DEFAULT_KUBERNETES, shell::last_lines};

/// What is asked and changed in a moment, or waited for. What streams has a process of its own, as a person's would.
const VERBS: [&str; 11] = [
    "annotate", "apply", "create", "delete", "describe", "get", "label", "patch", "rollout", "scale", "wait",
];

#[derive(Serialize)]
struct Request<'a> {
    id: u64,
    args: &'a [&'a str],
}

#[derive(Debug, Deserialize)]
struct Answer {
    id: u64,
    code: i32,
    stdout: String,
    stderr: String,
}

/// Nothing, once it has ended.
type Waiting = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<Answer>>>>>;

/// The process, and who waits for its answers.
#[derive(Clone)]
struct Resident {
    requests: Arc<Mutex<ChildStdin>>,
    waiting: Waiting,
}

/// Whether the process that stays can run this.
pub fn takes(version: &str, words: &[&str]) -> bool {
    let mut rest = words.iter();
    let verb = loop {
        match rest.next() {
            Some(&("-n" | "--namespace")) => drop(rest.next()),
            Some(word) if word.starts_with('-') => {}
            verb => break verb,
        }
    };
    let for_ever = |word: &&str| *word == "-w" || word.starts_with("--watch");
    version == DEFAULT_KUBERNETES
        && verb.is_some_and(|verb| VERBS.contains(verb))
        && !words.iter().any(for_ever)
}

/// Runs a command and returns what it printed.
pub async fn output(program: &Path, words: &[&str]) -> Result<String> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    // Whoever runs next starts another one.
    let answer =
        Resident::running(program)?.ask(id, words).await.context("the kubectl that stays has ended")?;
    if answer.code != 0 {
        let said = if answer.stderr.trim().is_empty() { &answer.stdout } else { &answer.stderr };
        bail!(
            "`kubectl {}` failed (exit status: {}): {}",
            words.join(" "),
            answer.code,
            last_lines(said, 15)
        );
    }
    Ok(answer.stdout)
}

impl Resident {
    /// The one that runs, or a new one.
    fn running(program: &Path) -> Result<Self> {
        static RUNNING: Mutex<Option<Resident>> = Mutex::new(None);
        let mut running = RUNNING.lock();
        if let Some(resident) = running.as_ref().filter(|resident| resident.waiting.lock().is_some()) {
            return Ok(resident.clone());
        }
        let mut command = Command::new(program);
        command.env_remove("KUBECONFIG").env("GOMAXPROCS", "1").env("GOGC", "300");
        let resident = Self::start(command)?;
        *running = Some(resident.clone());
        Ok(resident)
    }

    /// It ends when we do, since then nobody holds its standard input.
    fn start(mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {}", command.get_program().display()))?;
        let requests = child.stdin.take().context("it has no standard input")?;
        let answers = child.stdout.take().context("it has no standard output")?;
        let waiting = Waiting::new(Mutex::new(Some(HashMap::new())));
        let theirs = waiting.clone();
        // A thread rather than a task: each test has a runtime of its own, which ends with it.
        std::thread::spawn(move || {
            for line in BufReader::new(answers).lines().map_while(Result::ok) {
                let Ok(answer) = serde_json::from_str::<Answer>(&line) else { break };
                if let Some(tell) = theirs.lock().as_mut().and_then(|waiting| waiting.remove(&answer.id)) {
                    // They may have given up.
                    let _ = tell.send(answer);
                }
            }
            theirs.lock().take();
            let _ = child.kill();
            let _ = child.wait();
        });
        Ok(Self { requests: Arc::new(Mutex::new(requests)), waiting })
    }

    /// None if it ends before it has answered.
    async fn ask(&self, id: u64, words: &[&str]) -> Option<Answer> {
        let (tell, told) = oneshot::channel();
        self.waiting.lock().as_mut()?.insert(id, tell);
        let line = serde_json::to_string(&Request { id, args: words }).ok()? + "\n";
        self.requests.lock().write_all(line.as_bytes()).ok()?;
        told.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_streams_and_what_never_ends_has_a_process_of_its_own() {
        let takes = |words: &str| takes(DEFAULT_KUBERNETES, &words.split(' ').collect::<Vec<_>>());
        assert!(takes("get pods") && takes("--namespace get wait pod/a") && takes("--context=x -n a get b"));
        assert!(!takes("-n get exec a -- get b") && !takes("logs get") && !takes("get pods -w"));
        assert!(!takes("get pods --watch-only"));
        assert!(!super::takes("1.34.4", &["get", "pods"]));
    }

    #[tokio::test]
    async fn answers_find_those_who_asked_and_nobody_waits_when_it_has_ended() -> Result<()> {
        // Answers the second question first, and then ends.
        let script = r#"
            read -r first; read -r second
            for line in "$second" "$first"; do
                id=${line#*:}; id=${id%%,*}; word=${line#*[}; word=${word%]*}
                echo "{\"id\": $id, \"code\": 0, \"stdout\": $word, \"stderr\": \"\"}"
            done"#;
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let resident = Resident::start(command)?;
        let (one, two) = tokio::join!(resident.ask(1, &["one"]), resident.ask(2, &["two"]));
        let said = |answer: Option<Answer>| answer.map(|answer| answer.stdout);
        assert_eq!((said(one), said(two)), (Some("one".to_owned()), Some("two".to_owned())));
        assert_eq!(said(resident.ask(3, &["three"]).await), None);
        Ok(())
    }
}

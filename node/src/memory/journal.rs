use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    path::Path,
};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::containers::Run;
use crate::contract::{Pod, PodKey};

/// The pods, as a file of lines that each say what became of one. Enough to survive a `kill -9`; not meant to survive
/// a power failure, and never made shorter while the process runs.
pub(super) struct Journal {
    file: File,
    restored: Vec<(Pod, Run)>,
}

impl Journal {
    /// Reads what is there and writes it anew, each pod once.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut pods: HashMap<PodKey, (Pod, Run)> = HashMap::new();
        if path.exists() {
            for line in BufReader::new(File::open(path)?).lines() {
                // The last line may be half a line: the process was killed while it wrote.
                let Ok(entry) = serde_json::from_str::<Value>(&line?) else {
                    continue;
                };
                let Ok(pod) = Pod::try_from(entry["pod"].clone()) else {
                    continue;
                };
                match run_of(&entry) {
                    Some(run) => drop(pods.insert(pod.key().clone(), (pod, run))),
                    None => drop(pods.remove(pod.key())),
                }
            }
        }
        let file = OpenOptions::new().create(true).write(true).truncate(true).open(path)?;
        let mut journal = Self { file, restored: pods.into_values().collect() };
        for (pod, run) in journal.restored.clone() {
            journal.write(&pod, Some(run));
        }
        Ok(journal)
    }

    pub(super) fn restored(&mut self) -> Vec<(Pod, Run)> {
        std::mem::take(&mut self.restored)
    }

    /// Says that a pod is like this now, or is gone.
    pub(super) fn write(&mut self, pod: &Pod, run: Option<Run>) {
        let run = run.map(|run| {
            json!({"podBegan": run.pod_began, "began": run.began, "restarts": run.restarts, "before": run.before,
                   "ended": run.ended.map(|(at, _)| at), "code": run.ended.map(|(_, code)| code)})
        });
        let line = format!("{}\n", json!({"pod": pod.json(), "run": run}));
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            tracing::warn!(%error, "cannot write the state file of the memory provider");
        }
    }
}

fn run_of(entry: &Value) -> Option<Run> {
    let run = entry.get("run").filter(|run| !run.is_null())?;
    let time = |field: &str| run[field].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    Some(Run {
        pod_began: time("podBegan")?,
        began: time("began")?,
        ended: time("ended").zip(run["code"].as_i64()),
        restarts: run["restarts"].as_u64()?,
        before: serde_json::from_value(run["before"].clone()).ok().flatten(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_there_after_a_crash() {
        let path = std::env::temp_dir().join(format!("federlet-journal-{}", std::process::id()));
        let pod = |name: &str| {
            Pod::try_from(json!({"metadata": {"namespace": "n", "name": name, "uid": name}, "x": [1]}))
                .unwrap()
        };
        let (then, begun) = (Timestamp::UNIX_EPOCH, Run::begin(Timestamp::UNIX_EPOCH));
        let run = Run { ended: Some((then, 3)), before: Some((then, then, 1)), ..begun };
        let mut journal = Journal::open(&path).unwrap();
        journal.write(&pod("a"), Some(Run::begin(Timestamp::UNIX_EPOCH)));
        journal.write(&pod("b"), Some(run));
        journal.write(&pod("a"), None);
        journal.file.write_all(b"{\"pod\": {\"metada").unwrap();
        drop(journal);
        let restored = Journal::open(&path).unwrap().restored();
        assert_eq!(restored, [(pod("b"), run)]);
        assert_eq!(Journal::open(&path).unwrap().restored(), [(pod("b"), run)], "and again after the next");
        std::fs::remove_file(path).unwrap();
    }
}

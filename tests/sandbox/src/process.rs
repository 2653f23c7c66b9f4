//! Processes of this machine, as /proc tells them.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

/// A process that cannot be confused with a later one of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// As seen from outside of all sandboxes.
    pub pid: i32,
    /// In clock ticks since boot.
    pub started: u64,
}

/// One line of the process table.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Who it is.
    pub process: Process,
    /// Who started it, or who inherited it.
    pub parent: i32,
}

impl Process {
    /// The process with that number, if there is one.
    pub fn find(pid: i32) -> Option<Self> {
        read(pid).map(|entry| entry.process)
    }

    /// Whether it is still there, and not merely waiting for its parent to notice that it ended.
    pub fn is_alive(self) -> bool {
        read(self.pid).is_some_and(|entry| entry.process == self)
    }

    /// The first process that this one started.
    pub fn child(self) -> Option<Self> {
        all().into_iter().find(|entry| entry.parent == self.pid).map(|entry| entry.process)
    }

    /// Sends a signal, unless the process is gone already.
    pub fn signal(self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid).filter(|_| self.is_alive()) {
            // The only failure left is that it ended in between, which is what a killer wants anyway.
            kill_process(pid, signal).ok();
        }
    }

    /// Asks it to end, and after a while makes it end.
    pub async fn stop(self, patience: Duration) -> Result<()> {
        self.signal(Signal::TERM);
        if !self.gone_within(patience).await {
            self.signal(Signal::KILL);
            anyhow::ensure!(
                self.gone_within(Duration::from_secs(10)).await,
                "process {} does not end, even when killed",
                self.pid
            );
        }
        Ok(())
    }

    /// Waits for its end; false if it still runs then.
    pub async fn gone_within(self, patience: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + patience;
        while self.is_alive() {
            if tokio::time::Instant::now() > deadline {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        true
    }

    /// Identity of one of its namespaces, such as `pid` or `net`.
    pub fn namespace(self, kind: &str) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/ns/{kind}", self.pid)).ok()
    }

    /// Resident memory in bytes.
    pub fn resident(self) -> u64 {
        let pages = fs::read_to_string(format!("/proc/{}/statm", self.pid))
            .ok()
            .and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
            .unwrap_or(0);
        pages * rustix::param::page_size() as u64
    }

    /// Whether a variable was set to this value when the process began.
    pub fn has_variable(self, name: &str, value: &str) -> bool {
        let wanted = format!("{name}={value}");
        fs::read(format!("/proc/{}/environ", self.pid))
            .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|pair| pair == wanted.as_bytes()))
    }

    /// The words it was started with.
    pub fn command_line(self) -> String {
        let words = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        String::from_utf8_lossy(&words).replace('\0', " ").trim_end().to_owned()
    }
}

/// Every process that runs now. Those that end while we look are left out.
pub fn all() -> Vec<Entry> {
    let Ok(dir) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    dir.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter_map(read).collect()
}

fn read(pid: i32) -> Option<Entry> {
    parse_stat(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The second field is the program's name in parentheses and may itself hold spaces and parentheses.
fn parse_stat(pid: i32, line: &str) -> Option<Entry> {
    let (_, rest) = line.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let (state, parent, started) = (fields.first()?, fields.get(1)?, fields.get(19)?);
    if matches!(*state, "Z" | "X") {
        return None;
    }
    Some(Entry { process: Process { pid, started: started.parse().ok()? }, parent: parent.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_spaces_and_parentheses_do_not_confuse_the_parser() {
        let line = "7 (a) b (c)) S 3 7 7 0 -1 4 0 0 0 0 1 2 0 0 20 0 1 0 4711 8 9";
        let entry = parse_stat(7, line).unwrap();
        assert_eq!((entry.parent, entry.process.started), (3, 4711));
    }

    #[test]
    fn the_dead_do_not_count() {
        assert!(parse_stat(7, "7 (x) Z 3 7 7 0 -1 4 0 0 0 0 1 2 0 0 20 0 1 0 4711 8 9").is_none());
        assert!(parse_stat(7, "").is_none());
    }

    #[tokio::test]
    async fn a_process_is_found_and_stopped() {
        let mut child =
            tokio::process::Command::new("sleep").arg("1000").env("FEDERLET_TRY", "x").spawn().unwrap();
        let process = Process::find(child.id().unwrap() as i32).unwrap();
        assert!(process.is_alive());
        let reaper = tokio::spawn(async move { child.wait().await });
        process.stop(Duration::from_secs(5)).await.unwrap();
        assert!(!process.is_alive());
        reaper.await.unwrap().unwrap();
    }

    #[test]
    fn a_reused_number_is_another_process() {
        let me = Process::find(std::process::id() as i32).unwrap();
        assert!(me.is_alive());
        assert!(!Process { started: me.started + 1, ..me }.is_alive());
    }
}

//! Tests that use clusters, side by side. They mostly wait, so several programs run at once, each lane with a sandbox of
//! its own: what one breaks on purpose, another does not see.

use std::{collections::VecDeque, fs, path::Path, time::Duration};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use parking_lot::Mutex;

use super::{Results, cargo_test};
use crate::{
    Instance,
    cleanup::{self, clean},
    lock::{Lock, Purpose},
    progress::Progress,
    state::State,
    up::{checkout, interrupted},
};

/// How many lanes there are unless a person says otherwise. Each sandbox takes about two gigabytes of memory and, when
/// nothing happens in it, a fifth of a processor: a third lane on two processors makes all of them slower.
pub const LANES: usize = 2;

/// How many tests of a program run at once. They mostly wait, for containers and for controllers, so there are more of them
/// than processors: the same tests took 187 s six at a time and 268 s two at a time, on two processors.
const AT_ONCE: usize = 4;

/// Tells the last program, which compares what all others did, where they did it.
pub const ALL_VARIABLE: &str = "FEDERLET_ALL_SANDBOXES";

/// The programs that take longest begin first.
const LONGEST: [&str; 9] =
    ["charts", "policy", "joining", "node", "copies", "cluster", "documents", "operations", "propagation"];

/// Looks at what all others left behind.
const LAST: &str = "rights";

/// A lane's sandbox, ours for as long as this lives.
pub(super) struct Lane {
    instance: Instance,
    was_there: bool,
    _lock: Lock,
}

impl Lane {
    pub(super) fn take(instance: Instance) -> Result<Self> {
        let lock = Lock::take(&instance, Purpose::Use, "sandbox test")?;
        let was_there = State::load(&instance).is_ok_and(|state| state.is_some_and(|state| state.ready));
        Ok(Self { instance, was_there, _lock: lock })
    }
}

/// Runs every test there is; how many passed.
pub(super) async fn run_all(
    instance: &Instance,
    lanes: usize,
    keep: bool,
    progress: &Progress,
) -> Result<Results> {
    let more = (2..=lanes.max(1)).map(|number| Instance::new(&format!("{instance}-{number}")));
    let lanes: Vec<Lane> = std::iter::once(Ok(instance.clone()))
        .chain(more)
        .map(|instance| Lane::take(instance?))
        .collect::<Result<_>>()?;
    stop_after(&lanes, keep, progress, in_lanes(&lanes)).await
}

/// Runs tests until they end or a person interrupts them, then stops the sandboxes that were not there before.
pub(super) async fn stop_after(
    lanes: &[Lane],
    keep: bool,
    progress: &Progress,
    tests: impl Future<Output = Result<Results>>,
) -> Result<Results> {
    let tested = tokio::select! {
        tested = tests => tested,
        () = interrupted() => Err(anyhow::anyhow!("interrupted")),
    };
    for lane in lanes.iter().filter(|lane| !keep && !lane.was_there) {
        let step = progress.step(format!("stop sandbox '{}'", lane.instance));
        clean(&lane.instance, cleanup::Files::Remove).await?;
        step.done("");
    }
    tested
}

async fn in_lanes(lanes: &[Lane]) -> Result<Results> {
    let first = &lanes.first().context("there is no lane")?.instance;
    let folder = checkout();
    // Compiled at once, before anything runs beside it.
    let mut total = cargo_test(first, &["--no-run".to_owned()], None, &[]).await?;
    let mut quick = vec!["--lib".to_owned(), "--bins".to_owned()];
    for place in ["tests", "node/tests", "provider/tests", "policy/tests"] {
        quick.extend(programs(&folder.join(place))?.into_iter().flat_map(|name| ["--test".to_owned(), name]));
    }
    total += cargo_test(first, &quick, None, &[]).await?;
    total += cargo_test(first, &["--doc".to_owned()], None, &[]).await?;

    let mut names = programs(&folder.join("tests/e2e/tests"))?;
    names.extend(programs(&folder.join("tests/sandbox/tests"))?);
    let queue = Mutex::new(in_order(names));
    let took = Mutex::new(vec![]);
    let each = lanes.iter().map(async |lane| -> Result<Results> {
        let mut results = Results::default();
        loop {
            let Some(name) = queue.lock().pop_front() else { return Ok(results) };
            let words = ["--test".to_owned(), name.clone()];
            let begun = tokio::time::Instant::now();
            let at_once = [("RUST_TEST_THREADS", AT_ONCE.to_string())];
            results += cargo_test(&lane.instance, &words, Some(&name), &at_once).await?;
            took.lock().push((begun.elapsed(), name));
        }
    });
    total += try_join_all(each).await?.into_iter().sum();
    println!("{}", longest_first(took.into_inner()));

    let all: Vec<&str> = lanes.iter().map(|lane| lane.instance.name()).collect();
    let words = ["--test".to_owned(), LAST.to_owned()];
    total += cargo_test(first, &words, None, &[(ALL_VARIABLE, all.join(","))]).await?;
    Ok(total)
}

/// How long each program took, for whoever wants the whole to be faster.
fn longest_first(mut took: Vec<(Duration, String)>) -> String {
    took.sort_by(|one, other| other.cmp(one));
    let each = took.iter().map(|(time, name)| format!("{name} {} s", time.as_secs()));
    format!("programs: {}", each.collect::<Vec<_>>().join(", "))
}

/// The test programs in a folder.
fn programs(folder: &Path) -> Result<Vec<String>> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(vec![]) };
    let mut names = vec![];
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

fn in_order(mut names: Vec<String>) -> VecDeque<String> {
    names.retain(|name| name != LAST);
    let place = |name: &String| LONGEST.iter().position(|long| long == name).unwrap_or(LONGEST.len());
    names.sort_by_key(place);
    names.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_begin_first_and_what_compares_them_is_last() {
        let names = ["charts", "node", "policy", "rights"].map(str::to_owned).to_vec();
        assert_eq!(in_order(names), ["charts", "policy", "node"]);
    }

    #[test]
    fn what_took_longest_is_told_first() {
        let took =
            [(3, "node"), (70, "charts")].map(|(time, name)| (Duration::from_secs(time), name.to_owned()));
        assert_eq!(longest_first(took.to_vec()), "programs: charts 70 s, node 3 s");
    }

    #[test]
    fn every_program_that_needs_clusters_is_found() -> Result<()> {
        let found = programs(&checkout().join("tests/e2e/tests"))?;
        for name in LONGEST.iter().chain([&LAST]) {
            assert!(found.iter().any(|known| known == name), "{name} is not among {found:?}");
        }
        Ok(())
    }
}

//! `federlet logs`: what all pods of a workload say, in all clusters.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Args;
use futures::{AsyncBufRead, AsyncBufReadExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::{ResourceExt, api::LogParams};
use tokio::task::JoinSet;

use super::{PodsArgs, cluster, container};
use crate::{
    host::{HostArgs, answered},
    output::{colourful, say},
    progress::First,
    work::parse_duration,
};

/// How often to look for pods that are new.
const LOOK: Duration = Duration::from_secs(2);

/// What tells clusters apart on a terminal: colours that can be read on light and on dark.
const COLOURS: [u8; 6] = [36, 33, 32, 35, 34, 31];

/// The flags of `federlet logs`.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    pods: PodsArgs,

    /// Go on, also with pods that come later.
    #[arg(short, long)]
    follow: bool,

    /// Of the container before the last restart.
    #[arg(short, long, conflicts_with = "follow")]
    previous: bool,

    /// Only so many of the last lines of each container.
    #[arg(long, value_name = "LINES")]
    tail: Option<i64>,

    /// Only what is newer than this, such as 5m.
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    since: Option<Duration>,

    /// With the time of each line.
    #[arg(long)]
    timestamps: bool,

    /// Every container of each pod.
    #[arg(long, conflicts_with = "container")]
    all_containers: bool,

    #[command(flatten)]
    host: HostArgs,
}

/// A container, and how often it was started: each time it has a log of its own.
type Key = (String, String, i32);

impl LogsArgs {
    /// Shows them.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        // Whoever looks for pods must not wait for those who read.
        let (client, reader) = (self.host.client().await?, self.host.streaming_client().await?);
        let api = self.pods.api(&reader);
        let mut reading: HashSet<Key> = HashSet::new();
        // Where to go on with logs that ended.
        let mut read: HashMap<Key, Timestamp> = HashMap::new();
        let mut colours = Colours::default();
        let mut streams: JoinSet<(Key, bool, anyhow::Result<()>)> = JoinSet::new();
        let mut failed = None;
        let mut first = None;
        loop {
            let pods = match self.pods.pods(&client).await {
                // Somebody who listens goes on listening while the host is away.
                Err(error) if self.follow && !(reading.is_empty() && read.is_empty()) => {
                    eprintln!("{error:#}, looking again");
                    vec![]
                }
                pods => pods?,
            };
            if pods.is_empty() && !self.follow {
                bail!("it has no pods there: see `kubectl get pods -o wide`");
            }
            if !pods.is_empty() && first.is_none() {
                first = Some(First::of("waiting for the first of its logs"));
            }
            let (found, lacking) = having(&pods, |pod| self.containers(pod));
            // In the middle of a rollout pods differ: who listens goes on with those that have it.
            let nothing = found.is_empty() && reading.is_empty() && read.is_empty();
            if let Some(error) = lacking.filter(|_| !self.follow || nothing) {
                return Err(error);
            }
            for (pod, name) in found {
                let key = (pod.uid().unwrap_or_default(), name.clone(), restarts(pod, &name));
                let until = read.get(&key).copied();
                let over = until.is_some() && has_ended(pod, &name);
                if over || !reading.insert(key.clone()) {
                    continue;
                }
                // What a container said before it was started again, another stream has shown.
                let again = read.keys().any(|(uid, name, _)| (uid, name) == (&key.0, &key.1));
                let params = LogParams { since_time: until, ..self.params(&name, again) };
                let prefix = colours.prefix(cluster(pod), &pod.name_any(), &name, self.all_containers);
                let (api, pod, first) = (api.clone(), pod.name_any(), first.clone());
                streams.spawn(async move {
                    let mut heard = false;
                    let opened = api.log_stream(&pod, &params).await;
                    first.iter().for_each(First::is_here);
                    let ended = match opened {
                        Ok(stream) => copy(stream, &pod, &prefix, &mut heard).await,
                        Err(error) => Err(answered(&pod, &error)),
                    };
                    (key, heard, ended)
                });
            }
            let look = tokio::time::sleep(LOOK);
            tokio::pin!(look);
            loop {
                tokio::select! {
                    ended = streams.join_next(), if !streams.is_empty() => match ended {
                        // It has not begun, or its node does not answer, or the way there was cut: it is looked at again,
                        // and goes on where it ended.
                        Some(Ok((key, heard, _))) if self.follow => {
                            reading.remove(&key);
                            if heard {
                                read.insert(key, Timestamp::now());
                            }
                        }
                        Some(Ok((_, _, Err(error)))) => failed = Some(error),
                        _ => {}
                    },
                    () = &mut look, if self.follow => break,
                    else => return failed.map_or(Ok(()), Err),
                }
            }
        }
    }

    fn containers(&self, pod: &Pod) -> anyhow::Result<Vec<String>> {
        if !self.all_containers {
            return Ok(vec![container(pod, self.pods.container.as_deref())?]);
        }
        let spec = pod.spec.clone().unwrap_or_default();
        let inits = spec.init_containers.into_iter().flatten();
        Ok(inits.chain(spec.containers).map(|container| container.name).collect())
    }

    fn params(&self, container: &str, again: bool) -> LogParams {
        LogParams {
            container: Some(container.to_owned()),
            follow: self.follow,
            previous: self.previous,
            tail_lines: self.tail.filter(|_| !again),
            since_seconds: self
                .since
                .filter(|_| !again)
                .map(|since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX)),
            timestamps: self.timestamps,
            ..LogParams::default()
        }
    }
}

/// The containers of each pod, and why one has none, if that is so.
fn having(
    pods: &[Pod],
    of: impl Fn(&Pod) -> anyhow::Result<Vec<String>>,
) -> (Vec<(&Pod, String)>, Option<anyhow::Error>) {
    let (mut found, mut lacking) = (vec![], None);
    for pod in pods {
        match of(pod) {
            Ok(names) => found.extend(names.into_iter().map(|name| (pod, name))),
            Err(error) => lacking = Some(error),
        }
    }
    (found, lacking)
}

/// Shows a log until it ends; `heard` says whether there was anything in it.
async fn copy(
    stream: impl AsyncBufRead + Unpin,
    pod: &str,
    prefix: &str,
    heard: &mut bool,
) -> anyhow::Result<()> {
    let mut lines = stream.lines();
    while let Some(line) = lines.try_next().await.with_context(|| format!("the log of {pod} ended"))? {
        *heard = true;
        say!("{prefix}{line}");
    }
    Ok(())
}

fn status(pod: &Pod, container: &str) -> Option<ContainerStatus> {
    let status = pod.status.clone().unwrap_or_default();
    let mut all = status.container_statuses.into_iter().chain(status.init_container_statuses).flatten();
    all.find(|status| status.name == container)
}

fn restarts(pod: &Pod, container: &str) -> i32 {
    status(pod, container).map_or(0, |status| status.restart_count)
}

/// Whether a container has said all that it will ever say.
fn has_ended(pod: &Pod, container: &str) -> bool {
    let state = status(pod, container).and_then(|status| status.state);
    state.is_some_and(|state| state.terminated.is_some())
}

/// A colour for each cluster, on a terminal.
#[derive(Debug)]
struct Colours {
    on: bool,
    of: BTreeMap<String, u8>,
}

impl Default for Colours {
    fn default() -> Self {
        let on = colourful();
        Self { on, of: BTreeMap::new() }
    }
}

impl Colours {
    fn prefix(&mut self, cluster: &str, pod: &str, container: &str, all: bool) -> String {
        let next = COLOURS[self.of.len() % COLOURS.len()];
        let colour = *self.of.entry(cluster.to_owned()).or_insert(next);
        let who = if all { format!("{pod} {container}") } else { pod.to_owned() };
        if self.on {
            format!("\x1b[{colour}m{cluster}\x1b[0m {who} | ")
        } else {
            format!("{cluster} {who} | ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_without_the_container_do_not_hide_those_that_have_it() {
        let pod = |name: &str, containers: serde_json::Value| -> Pod {
            serde_json::from_value(
                serde_json::json!({"metadata": {"name": name}, "spec": {"containers": containers}}),
            )
            .unwrap()
        };
        let one = serde_json::json!([{"name": "app"}]);
        let pods = [pod("old", one), pod("new", serde_json::json!([{"name": "app"}, {"name": "proxy"}]))];
        let of = |name: &'static str| move |pod: &Pod| Ok(vec![container(pod, Some(name))?]);
        let (found, lacking) = having(&pods, of("proxy"));
        assert_eq!((found.len(), found[0].0.name_any()), (1, "new".to_owned()));
        assert!(lacking.is_some_and(|error| error.to_string().contains("it has app")));
        let (found, lacking) = having(&pods, of("app"));
        assert!(found.len() == 2 && lacking.is_none());
    }

    #[test]
    fn each_cluster_has_a_colour_and_only_on_a_terminal() {
        let mut colours = Colours { on: true, of: BTreeMap::new() };
        let first = colours.prefix("one", "p", "c", false);
        assert_eq!(first, "\x1b[36mone\x1b[0m p | ");
        assert_ne!(colours.prefix("two", "p", "c", false)[..5], first[..5]);
        assert_eq!(colours.prefix("one", "p", "c", false), first);
        let mut plain = Colours { on: false, of: BTreeMap::new() };
        assert_eq!(plain.prefix("one", "p", "c", true), "one p c | ");
    }
}

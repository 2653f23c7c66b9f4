//! Which clusters something has to leave because of `NoExecute` taints, and when. No I/O.

use std::collections::{BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Taint, Toleration};

use crate::{
    api::Cluster,
    taints::{self, Leave},
};

/// The taints of clusters, and when each was seen first. A taint that says itself when it came is believed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tainted {
    since: HashMap<(String, String, String), Timestamp>,
}

/// Where something has to go from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Departure {
    /// It has to leave these by now.
    pub(crate) due: BTreeSet<String>,
    /// It has to leave these by now or later.
    pub(crate) doomed: BTreeSet<String>,
    /// When it has to leave the next one.
    pub(crate) next: Option<Timestamp>,
}

/// A cluster and its taints, as its Cluster says.
pub(crate) fn of_cluster(cluster: &Cluster) -> (&str, &[Taint]) {
    (cluster.metadata.name.as_deref().unwrap_or_default(), &cluster.spec.taints)
}

impl Tainted {
    /// Notes the taints that are there now. Those that went are forgotten.
    pub(crate) fn note<'a>(
        &mut self,
        clusters: impl Iterator<Item = (&'a str, &'a [Taint])>,
        now: Timestamp,
    ) {
        let mut since = HashMap::new();
        for (cluster, taints) in clusters {
            for taint in taints {
                let place = place(cluster, taint);
                let seen = self.since.get(&place).copied().unwrap_or(now);
                since.insert(place, seen);
            }
        }
        self.since = since;
    }

    /// What something that tolerates this has to leave.
    pub(crate) fn departure<'a>(
        &self,
        clusters: impl Iterator<Item = (&'a str, &'a [Taint])>,
        tolerations: &[Toleration],
        now: Timestamp,
    ) -> Departure {
        let mut departure = Departure::default();
        for (cluster, taints) in clusters {
            let ends = taints.iter().filter_map(|taint| {
                let came = || {
                    let said = taint.time_added.as_ref().map(|time| time.0);
                    said.or_else(|| self.since.get(&place(cluster, taint)).copied()).unwrap_or(now)
                };
                match taints::leave(std::slice::from_ref(taint), tolerations) {
                    Leave::Now => Some(Timestamp::MIN),
                    Leave::After(seconds) => came().checked_add(SignedDuration::from_secs(seconds)).ok(),
                    Leave::Never => None,
                }
            });
            let Some(end) = ends.min() else { continue };
            departure.doomed.insert(cluster.to_owned());
            if end <= now {
                departure.due.insert(cluster.to_owned());
            } else {
                departure.next = Some(departure.next.map_or(end, |next| next.min(end)));
            }
        }
        departure
    }
}

fn place(cluster: &str, taint: &Taint) -> (String, String, String) {
    (cluster.to_owned(), taint.key.clone(), taint.value.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::affinity::tests::cluster;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn what_is_not_tolerated_any_more_is_left() {
        let tainted = |extra: Value| {
            let mut taint = json!({"key": "down", "effect": "NoExecute"});
            taint.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            cluster("m1", json!({}), json!({"taints": [taint]}))
        };
        let seconds = |seconds: i64| json!([{"operator": "Exists", "tolerationSeconds": seconds}]);
        let only_new = json!({"effect": "NoSchedule"});
        let told = json!({"timeAdded": at(80).to_string()});
        for (taint, tolerations, now, due, next) in [
            (json!({}), json!([]), 100, true, None),
            (only_new, json!([]), 100, false, None),
            (json!({}), json!([{"operator": "Exists"}]), 1000, false, None),
            // Counted from when it was seen first.
            (json!({}), seconds(30), 100, false, Some(130)),
            (json!({}), seconds(30), 129, false, Some(130)),
            (json!({}), seconds(30), 130, true, None),
            // Unless the taint says when it came.
            (told.clone(), seconds(30), 100, false, Some(110)),
            (told, seconds(30), 110, true, None),
        ] {
            let (m1, m2) = (tainted(taint.clone()), cluster("m2", json!({}), json!({})));
            let mut seen = Tainted::default();
            for time in [100, now] {
                seen.note([&m1, &m2].into_iter().map(of_cluster), at(time));
            }
            let tolerations: Vec<Toleration> = serde_json::from_value(tolerations).unwrap();
            let found = seen.departure([&m1, &m2].into_iter().map(of_cluster), &tolerations, at(now));
            let m1 = |holds: bool| if holds { BTreeSet::from(["m1".to_owned()]) } else { BTreeSet::new() };
            let (due, doomed) = (m1(due), m1(due || next.is_some()));
            assert_eq!(found, Departure { due, doomed, next: next.map(at) }, "{taint} {tolerations:?} {now}");
        }
    }

    #[test]
    fn a_taint_that_went_and_came_back_is_new() {
        let taint = json!({"taints": [{"key": "down", "effect": "NoExecute"}]});
        let (with, without) = (cluster("m1", json!({}), taint), cluster("m1", json!({}), json!({})));
        let tolerations: Vec<Toleration> =
            serde_json::from_value(json!([{"operator": "Exists", "tolerationSeconds": 30}])).unwrap();
        let mut seen = Tainted::default();
        for (cluster, time) in [(&with, 0), (&without, 20), (&with, 25)] {
            seen.note([cluster].into_iter().map(of_cluster), at(time));
        }
        assert_eq!(seen.departure([of_cluster(&with)].into_iter(), &tolerations, at(40)).next, Some(at(55)));
    }
}

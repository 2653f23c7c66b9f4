use serde_json::json;

use super::*;

fn watched(node: &str, name: &str, uid: &str, extra: &Value) -> Watched {
    let mut json = json!({
        "metadata": {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": "1", "managedFields": [{"a": "b"}]},
        "spec": {"nodeName": node},
        "status": {"phase": "Pending"},
    });
    if let Some(extra) = extra.as_object() {
        for (pointer, value) in extra {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            json.pointer_mut(parent).unwrap()[field] = value.clone();
        }
    }
    serde_json::from_value(json).unwrap()
}

fn key(name: &str) -> PodKey {
    PodKey::new("ns", name)
}

struct Fixture {
    pods: Arc<HostPods>,
}

impl Fixture {
    fn new() -> Self {
        Self { pods: HostPods::new(Scope::Shared, None, Arc::default()) }
    }

    fn join(&self, node: &str) -> Arc<NodePods> {
        self.pods.join(&NodeName::new(node).unwrap())
    }

    fn feed(&self, events: impl IntoIterator<Item = watcher::Event<Watched>>) {
        for event in events {
            self.pods.take(event);
        }
    }

    fn list(&self, pods: &[Watched]) {
        self.feed([watcher::Event::Init]);
        self.feed(pods.iter().cloned().map(watcher::Event::InitApply));
        self.feed([watcher::Event::InitDone]);
    }
}

async fn queued(pods: &NodePods) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(Some(taken)) = pods.queue().take().now_or_never() {
        names.push(taken.key().name().to_owned());
        taken.done(super::super::queue::Outcome::Done);
    }
    names.sort();
    names
}

#[tokio::test]
async fn pods_are_told_apart_by_node_and_others_are_not_kept() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.join("a"), fixture.join("b"));
    let none = json!({});
    fixture.list(&[
        watched("a", "x", "1", &none),
        watched("b", "y", "2", &none),
        watched("real-node", "z", "3", &none),
    ]);
    assert_eq!((a.keys(), b.keys()), (vec![key("x")], vec![key("y")]));
    assert_eq!(fixture.pods.find(&key("y")).unwrap().0.as_str(), "b");
    assert!(fixture.pods.find(&key("z")).is_none());
    assert!(a.get(&key("x")).unwrap().metadata().get("managedFields").is_none());
}

#[tokio::test]
async fn a_list_of_the_same_pods_is_no_news() {
    let fixture = Fixture::new();
    let node = fixture.join("a");
    let pods = [watched("a", "x", "1", &json!({})), watched("a", "y", "2", &json!({}))];
    fixture.list(&pods);
    assert_eq!(queued(&node).await, ["x", "y"]);
    fixture.list(&pods);
    assert_eq!(queued(&node).await, Vec::<String>::new());
}

#[tokio::test]
async fn what_went_while_nobody_watched_is_noticed() {
    let fixture = Fixture::new();
    let node = fixture.join("a");
    fixture.list(&[watched("a", "x", "1", &json!({})), watched("a", "y", "2", &json!({}))]);
    queued(&node).await;
    // y is gone, x was deleted and made again under the same name.
    fixture.list(&[watched("a", "x", "9", &json!({}))]);
    assert_eq!(queued(&node).await, ["x", "y"]);
    assert_eq!(node.keys(), [key("x")]);
}

#[tokio::test]
async fn a_name_that_went_to_another_node_while_nobody_watched_is_on_that_node_only() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.join("a"), fixture.join("b"));
    fixture.list(&[watched("a", "web-0", "1", &json!({}))]);
    assert_eq!(queued(&a).await, ["web-0"]);
    // Deleted and made again elsewhere.
    fixture.list(&[watched("b", "web-0", "2", &json!({}))]);
    assert_eq!((queued(&a).await, queued(&b).await), (vec!["web-0".to_owned()], vec!["web-0".to_owned()]));
    assert_eq!((a.keys(), b.keys()), (vec![], vec![key("web-0")]));
    let (node, pod) = fixture.pods.find(&key("web-0")).unwrap();
    assert_eq!((node.as_str(), pod.uid()), ("b", "2"));
    // And back again.
    fixture.list(&[watched("a", "web-0", "3", &json!({}))]);
    assert_eq!((a.keys(), b.keys()), (vec![key("web-0")], vec![]));
    assert_eq!(fixture.pods.find(&key("web-0")).unwrap().1.uid(), "3");
}

#[tokio::test]
async fn a_list_that_breaks_off_removes_nothing() {
    let fixture = Fixture::new();
    let node = fixture.join("a");
    fixture.list(&[watched("a", "x", "1", &json!({})), watched("a", "y", "2", &json!({}))]);
    fixture.feed([watcher::Event::Init, watcher::Event::InitApply(watched("a", "x", "1", &json!({})))]);
    fixture.feed([watcher::Event::Init, watcher::Event::InitApply(watched("a", "x", "1", &json!({})))]);
    assert_eq!(node.keys().len(), 2);
}

#[tokio::test]
async fn a_node_that_joins_during_a_list_waits_for_the_next() {
    let fixture = Fixture::new();
    fixture.join("a");
    fixture.feed([watcher::Event::Init]);
    let late = fixture.join("b");
    fixture.feed([watcher::Event::InitDone]);
    assert!(late.complete().now_or_never().is_none());
    fixture.list(&[]);
    assert!(late.complete().now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_shorter_grace_period_is_news_and_a_status_is_only_an_echo() {
    use super::super::queue::Outcome;
    let retry = Outcome::Retry { backoff: crate::decide::Backoff::default(), asked: None };
    let fixture = Fixture::new();
    let node = fixture.join("a");
    let deleting = |grace: u64| json!({"/metadata/deletionTimestamp": "2026-01-01T00:00:00Z", "/metadata/deletionGracePeriodSeconds": grace});
    fixture.list(&[watched("a", "x", "1", &deleting(30))]);
    node.queue().take().await.unwrap().done(retry);
    let mut echo = deleting(30);
    echo["/status/phase"] = json!("Running");
    fixture.feed([watcher::Event::Apply(watched("a", "x", "1", &echo))]);
    assert!(queued(&node).await.is_empty(), "the pause goes on");
    fixture.feed([watcher::Event::Apply(watched("a", "x", "1", &deleting(5)))]);
    assert_eq!(queued(&node).await, ["x"]);
}

#[tokio::test]
async fn how_a_pod_left_is_remembered_for_its_uid() {
    let fixture = Fixture::new();
    let node = fixture.join("a");
    let forced = json!({"/metadata/deletionTimestamp": "2026-01-01T00:00:00Z", "/metadata/deletionGracePeriodSeconds": 0});
    fixture.list(&[watched("a", "x", "1", &json!({}))]);
    fixture.feed([watcher::Event::Delete(watched("a", "x", "1", &forced))]);
    assert_eq!(node.departed(&key("x"), "2"), None);
    assert_eq!(node.departed(&key("x"), "1"), Some(Duration::ZERO));
}

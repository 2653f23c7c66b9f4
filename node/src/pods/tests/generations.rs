//! Which generation of a pod the host is told was acted upon.

use serde_json::json;

use super::fakes::Fixture;

#[tokio::test]
async fn the_host_hears_which_generation_the_provider_has() {
    let fixture = Fixture::new(json!({"metadata": {"generation": 1}}));
    fixture.sync(0).await;
    fixture.sync(0).await;
    fixture.see_host();
    assert_eq!(fixture.host.pod()["status"]["observedGeneration"], 1);
    fixture.change_on_host(|pod| {
        pod["metadata"]["generation"] = json!(2);
        pod["spec"]["activeDeadlineSeconds"] = json!(60);
    });
    fixture.sync(0).await;
    assert_eq!(fixture.host.pod()["status"]["observedGeneration"], 2, "though nothing else changed");
}

#[tokio::test]
async fn what_a_pod_was_before_a_change_is_no_news_of_the_change() {
    let fixture = Fixture::new(json!({"metadata": {"generation": 1}}));
    fixture.sync(0).await;
    fixture.sync(0).await;
    fixture.see_host();
    fixture.provider.report(json!({"phase": "Running", "observedGeneration": 2}));
    fixture.change_on_host(|pod| {
        pod["metadata"]["generation"] = json!(2);
        pod["spec"]["activeDeadlineSeconds"] = json!(50);
    });
    fixture.provider.hold();
    let meanwhile = async {
        while fixture.provider.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        fixture.provider.report(json!({"phase": "Running", "observedGeneration": 1}));
        fixture.provider.let_go();
    };
    tokio::join!(fixture.sync(0), meanwhile);
    assert_eq!(
        fixture.host.pod()["status"]["observedGeneration"],
        1,
        "what it was before the change is no news"
    );
    fixture.provider.report(json!({"phase": "Running", "observedGeneration": 2}));
    fixture.sync(0).await;
    assert_eq!(fixture.host.pod()["status"]["observedGeneration"], 2);
}

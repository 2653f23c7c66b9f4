use proptest::prelude::*;

use super::*;

fn get(path: &str, query: &str) -> Result<Route, RouteError> {
    Route::parse(&Method::GET, path, Some(query))
}

fn logs(query: &str) -> Result<LogOptions, RouteError> {
    match get("/containerLogs/ns/pod/c", query)? {
        Route::Logs { options, .. } => Ok(options),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_path_of_the_kubelet_that_we_answer() {
    let plain = [
        ("/pods", Route::Pods),
        ("/pods/", Route::Pods),
        ("/runningpods/", Route::RunningPods),
        ("/stats/summary", Route::StatsSummary),
        ("/metrics", Route::OwnMetrics),
        ("/metrics/resource", Route::Metrics(MetricsKind::Resource)),
        ("/metrics/cadvisor", Route::Metrics(MetricsKind::Cadvisor)),
        ("/healthz", Route::Healthz),
        ("/configz", Route::Configz),
        ("/logs/syslog", Route::NodeLogs),
    ];
    for (path, route) in plain {
        assert_eq!(get(path, ""), Ok(route), "{path}");
        assert_eq!(Route::parse(&Method::POST, path, None), Err(RouteError::Method), "{path}");
    }
}

#[test]
fn no_path_has_two_meanings() {
    for path in [
        "",
        "/",
        "pods",
        "//pods",
        "/pods//",
        "/./pods",
        "/stats/../pods",
        "/%2e%2e/pods",
        "/exec/ns/pod",
        "/run/ns/pod/c",
        "/containerLogs/ns/pod%2Fc/x",
        "/containerLogs/ns/pod",
        "/containerLogs/ns//c",
        "/exec/a/b/c/d/e",
        "/containerLogs/ns/pod/c%00",
        "/containerLogs/ns/%ff/c",
        "/PODS",
        "/containerLogs/ns/a%252fb/c",
        "/checkpoint/a/b/c",
    ] {
        assert_eq!(get(path, ""), Err(RouteError::NotFound), "{path}");
    }
}

#[test]
fn every_option_of_logs() {
    assert_eq!(logs(""), Ok(LogOptions::default()));
    let all =
        logs("follow=true&previous=1&timestamps=True&sinceSeconds=5&tailLines=10&limitBytes=7&stream=All")
            .unwrap();
    let expected = LogOptions {
        follow: true,
        previous: true,
        timestamps: true,
        since_seconds: Some(5),
        since_time: None,
        tail_lines: Some(10),
        limit_bytes: Some(7),
        source: LogSource::All,
    };
    assert_eq!(all, expected);
    assert_eq!(logs("follow=false&previous=0"), Ok(LogOptions::default()));
    assert_eq!(logs("tailLines=0").unwrap().tail_lines, Some(0), "none is not the same as zero");
    assert_eq!(logs("tailLines=all").unwrap().tail_lines, None);
    assert_eq!(logs("stream=Stderr").unwrap().source, LogSource::Stderr);
    let time = logs("sinceTime=2026-01-31T12:00:00%2B08:00").unwrap().since_time.unwrap();
    assert_eq!(time.to_string(), "2026-01-31T04:00:00Z");
}

#[test]
fn options_that_make_no_sense_are_bad_requests() {
    for query in [
        "tailLines=-1",
        "tailLines=x",
        "limitBytes=0",
        "sinceSeconds=0",
        "sinceSeconds=-3",
        "sinceTime=yesterday",
        "sinceSeconds=1&sinceTime=2026-01-31T12:00:00Z",
        "stream=stdin",
        "stream=Stdout&tailLines=1",
        "tailLines=99999999999999999999999",
    ] {
        assert!(matches!(logs(query), Err(RouteError::Invalid(_))), "{query}");
    }
}

#[test]
fn exec_keeps_every_word() {
    let query = "command=sh&command=-c&command=echo+%22a%26b%22&input=1&output=1&error=1&tty=1";
    for method in [Method::GET, Method::POST] {
        let Ok(Route::Upgrade { pod, request }) = Route::parse(&method, "/exec/ns/pod/c", Some(query)) else {
            panic!("{method}")
        };
        let UpgradeRequest { kind, container, command, .. } = &request;
        assert_eq!((*kind, container.as_deref(), pod.uid), (UpgradeKind::Exec, Some("c"), None));
        assert_eq!(
            (&request.method, &command[..]),
            (&method, &["sh", "-c", "echo \"a&b\""].map(String::from)[..])
        );
        assert!(
            request.stdin && request.stdout && request.tty && !request.stderr,
            "a terminal has one output"
        );
    }
    assert_eq!(Route::parse(&Method::PUT, "/exec/ns/pod/c", Some(query)), Err(RouteError::Method));
}

#[test]
fn upgrades_may_name_a_uid() {
    for (path, uid) in [
        ("/exec/ns/pod/u/c?command=x&output=1", Some("u")),
        ("/attach/ns/pod/c?output=1", None),
        ("/attach/ns/pod/u/c?output=1", Some("u")),
        ("/portForward/ns/pod", None),
        ("/portForward/ns/pod/u", Some("u")),
    ] {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let Ok(Route::Upgrade { pod, .. }) = get(path, query) else { panic!("{path}") };
        assert_eq!(pod.uid.as_deref(), uid, "{path}");
    }
}

#[test]
fn upgrades_that_ask_for_nothing_are_bad_requests() {
    for (path, query) in [
        ("/exec/ns/pod/c", "command=ls"),
        ("/exec/ns/pod/c", "output=1"),
        ("/attach/ns/pod/c", ""),
        ("/portForward/ns/pod", "port=0"),
        ("/portForward/ns/pod", "port=65536"),
        ("/portForward/ns/pod", "port=http"),
    ] {
        assert!(matches!(get(path, query), Err(RouteError::Invalid(_))), "{path}?{query}");
    }
    let Ok(Route::Upgrade { request, .. }) = get("/portForward/ns/pod", "port=80,443&port=8080") else {
        panic!()
    };
    assert_eq!(request.ports, [80, 443, 8080]);
}

proptest! {
    #[test]
    fn no_request_makes_it_panic(method in "[A-Z]{1,7}", path in "\\PC{0,80}", query in "\\PC{0,80}") {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let _ = Route::parse(&method, &path, Some(&query));
        let _ = Route::parse(&method, &format!("/{path}"), Some(&query));
        let _ = Route::parse(&Method::GET, "/containerLogs/a/b/c", Some(&query));
        let _ = Route::parse(&Method::GET, "/exec/a/b/c", Some(&query));
    }

    #[test]
    fn names_survive_encoding(name in "[a-z0-9][a-z0-9.-]{0,20}", word in "\\PC{1,20}") {
        let word: String = form_urlencoded::byte_serialize(word.as_bytes()).collect();
        let Ok(Route::Upgrade { pod, .. }) = get(&format!("/exec/{name}/{name}/c"), &format!("command={word}&output=1")) else {
            return Err(TestCaseError::fail("not understood"));
        };
        prop_assert_eq!((pod.namespace.as_str(), pod.name.as_str()), (name.as_str(), name.as_str()));
    }
}

use std::{fmt, time::Duration};

use http::Method;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, Client, api::PostParams};

use super::{
    authn::User,
    cache::Cache,
    route::{Route, RouteError},
};
use crate::{client::answered, contract::NodeName};

/// How long a yes and a no may be repeated without asking.
const ALLOWED: Duration = Duration::from_secs(30);
const DENIED: Duration = Duration::from_secs(10);

/// What a request amounts to in RBAC terms: a verb on subresources of `nodes`, one of which must be allowed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// The verb.
    pub verb: &'static str,
    /// The narrow subresource first, the wide one last.
    pub subresources: &'static [&'static str],
}

impl Attributes {
    /// As the real kubelet maps them, but for one thing: exec, attach and port-forward are `create` whatever the HTTP
    /// method, because a websocket's GET runs a command just as well as a POST.
    pub fn of(method: &Method, route: &Result<Route, RouteError>) -> Self {
        let subresources: &'static [&'static str] = match route {
            Ok(Route::Pods | Route::RunningPods) => &["pods", "proxy"],
            Ok(Route::Healthz) => &["healthz", "proxy"],
            Ok(Route::Configz) => &["configz", "proxy"],
            Ok(Route::StatsSummary) => &["stats"],
            Ok(Route::Metrics(_) | Route::OwnMetrics) => &["metrics"],
            Ok(Route::NodeLogs) => &["log"],
            Ok(Route::Logs { .. } | Route::Upgrade { .. }) | Err(_) => &["proxy"],
        };
        let verb = match (route, method.as_str()) {
            (Ok(Route::Upgrade { .. }), _) | (_, "POST") => "create",
            (_, "GET" | "HEAD") => "get",
            (_, "PUT") => "update",
            (_, "PATCH") => "patch",
            (_, "DELETE") => "delete",
            _ => "proxy",
        };
        Self { verb, subresources }
    }
}

/// Asks the host whether a user may do something to a node.
pub struct Authorization {
    api: Api<SubjectAccessReview>,
    answers: Cache<Question, bool>,
}

type Question = (User, &'static str, &'static str, Option<NodeName>);

impl Authorization {
    /// With a client that may create SubjectAccessReviews.
    pub fn new(client: Client) -> Self {
        Self { api: Api::all(client), answers: Cache::default() }
    }

    /// Whether the user may. Without a node the question is about every node.
    ///
    /// An error is not a yes: nobody could say.
    pub async fn allows(
        &self,
        user: &User,
        attributes: &Attributes,
        node: Option<&NodeName>,
    ) -> Result<bool, Box<kube::Error>> {
        for subresource in attributes.subresources {
            let question = (user.clone(), attributes.verb, *subresource, node.cloned());
            let allowed = match self.answers.get(&question) {
                Some(allowed) => allowed,
                None => {
                    let allowed = self.ask(&question).await?;
                    self.answers.put(question, allowed, if allowed { ALLOWED } else { DENIED });
                    allowed
                }
            };
            if allowed {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn ask(&self, (user, verb, subresource, node): &Question) -> Result<bool, Box<kube::Error>> {
        let attributes = ResourceAttributes {
            verb: Some((*verb).to_owned()),
            version: Some("v1".into()),
            resource: Some("nodes".into()),
            subresource: Some((*subresource).to_owned()),
            name: node.as_ref().map(ToString::to_string),
            ..ResourceAttributes::default()
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.name.clone()),
                uid: user.uid.clone(),
                groups: Some(user.groups.clone()),
                extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
                resource_attributes: Some(attributes),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let params = PostParams::default();
        let answer = answered(self.api.create(&params, &review)).await;
        let answer = answer.unwrap_or_else(|silence| Err(kube::Error::Service(silence.into())));
        let answer = answer.map_err(Box::new)?;
        let status = answer.status.unwrap_or_default();
        Ok(status.allowed && status.denied != Some(true))
    }
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorization").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use http::StatusCode;
    use serde_json::json;

    use super::*;
    use crate::fake_api::{failure, fake_api};

    #[test]
    fn requests_map_to_the_kubelets_own_subresources() {
        let cases: [(&str, &str, &str, &[&str]); 18] = [
            ("GET", "/pods", "get", &["pods", "proxy"]),
            ("GET", "/runningpods/", "get", &["pods", "proxy"]),
            ("GET", "/healthz", "get", &["healthz", "proxy"]),
            ("GET", "/configz", "get", &["configz", "proxy"]),
            ("GET", "/stats/summary", "get", &["stats"]),
            ("GET", "/metrics", "get", &["metrics"]),
            ("GET", "/metrics/resource", "get", &["metrics"]),
            ("GET", "/metrics/cadvisor", "get", &["metrics"]),
            ("GET", "/logs/syslog", "get", &["log"]),
            ("GET", "/containerLogs/a/b/c", "get", &["proxy"]),
            ("POST", "/exec/a/b/c?command=ls&output=1", "create", &["proxy"]),
            ("GET", "/exec/a/b/c?command=ls&output=1", "create", &["proxy"]),
            ("GET", "/attach/a/b/c?output=1", "create", &["proxy"]),
            ("GET", "/portForward/a/b", "create", &["proxy"]),
            ("GET", "/nothing/here", "get", &["proxy"]),
            ("DELETE", "/nothing", "delete", &["proxy"]),
            ("PUT", "/pods", "update", &["proxy"]),
            ("OPTIONS", "/pods", "proxy", &["proxy"]),
        ];
        for (method, url, verb, subresources) in cases {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let (path, query) = url.split_once('?').unwrap_or((url, ""));
            let attributes = Attributes::of(&method, &Route::parse(&method, path, Some(query)));
            assert_eq!((attributes.verb, attributes.subresources), (verb, subresources), "{method} {url}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_for_a_while_and_for_that_question_alone() {
        let answer = |allowed: bool| json!({"spec": {}, "status": {"allowed": allowed}});
        let yes = Arc::new(AtomicBool::new(true));
        let said = yes.clone();
        let (client, asked) = fake_api(move |_| (StatusCode::OK, answer(said.load(Ordering::Relaxed))));
        let authorization = Authorization::new(client);
        let user = |name: &str| User::from_certificate(name.into(), vec![]);
        let (node, other) = (NodeName::new("a").unwrap(), NodeName::new("b").unwrap());
        let reads = Attributes { verb: "get", subresources: &["proxy"] };
        let runs = Attributes { verb: "create", subresources: &["proxy"] };
        let ask = async |who: &str, what: &Attributes, node| {
            authorization.allows(&user(who), what, Some(node)).await.unwrap()
        };
        for _ in 0..50 {
            assert!(ask("ann", &reads, &node).await);
        }
        assert_eq!(asked.take().len(), 1);
        yes.store(false, Ordering::Relaxed);
        assert!(!ask("ann", &runs, &node).await, "to run something is another question");
        assert!(!ask("ann", &reads, &other).await, "so is another node");
        assert!(!ask("bob", &reads, &node).await, "and another person");
        assert_eq!(asked.take().len(), 3);
        assert!(ask("ann", &reads, &node).await, "what was taken back counts for a moment longer");
        tokio::time::advance(ALLOWED).await;
        assert!(!ask("ann", &reads, &node).await);
        // A no is asked about sooner: somebody may just have been given the right.
        yes.store(true, Ordering::Relaxed);
        tokio::time::advance(DENIED).await;
        assert!(ask("bob", &reads, &node).await);
    }

    #[tokio::test]
    async fn a_host_that_cannot_answer_is_asked_again_and_never_means_yes() {
        let (client, asked) = fake_api(|_| failure(StatusCode::INTERNAL_SERVER_ERROR));
        let authorization = Authorization::new(client);
        let attributes = Attributes { verb: "get", subresources: &["stats", "proxy"] };
        for _ in 0..2 {
            let user = User::from_certificate("ann".into(), vec![]);
            assert!(authorization.allows(&user, &attributes, None).await.is_err());
        }
        assert_eq!(asked.take().len(), 2);
    }

    /// A query that is not understood must not make an exec look like something less.
    #[test]
    fn a_broken_exec_is_never_run_so_its_verb_does_not_matter() {
        let route = Route::parse(&Method::GET, "/exec/a/b/c", Some("command=ls"));
        assert!(route.is_err());
        assert_eq!(Attributes::of(&Method::GET, &route).subresources, ["proxy"]);
    }
}

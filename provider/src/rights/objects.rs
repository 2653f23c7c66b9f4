//! What copying objects that policies select takes, on either side.

use super::Right;

const READ: &[&str] = &["get", "list", "watch"];
const COPY: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];

/// What `federlet serve` may do on the host so that policies can select objects of these kinds. Other kinds take a role
/// with the label [`OBJECTS_ROLE`](crate::marks::OBJECTS_ROLE).
pub const HOST_OBJECT_RIGHTS: &[Right] = &[
    Right::new(
        "",
        &[
            "configmaps",
            "services",
            "serviceaccounts",
            "persistentvolumeclaims",
            "limitranges",
            "resourcequotas",
        ],
        READ,
        "objects that policies select",
    ),
    Right::new("", &["services/status"], &["patch"], "addresses of load balancers in members"),
    Right::new("networking.k8s.io", &["ingresses", "networkpolicies"], READ, "likewise"),
    Right::new("networking.k8s.io", &["ingresses/status"], &["patch"], "addresses, as of Services"),
    Right::new("policy", &["poddisruptionbudgets"], READ, "likewise"),
    Right::new("autoscaling", &["horizontalpodautoscalers"], READ, "likewise"),
    Right::new(
        "rbac.authorization.k8s.io",
        &["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
        READ,
        "likewise",
    ),
    Right::new("apiextensions.k8s.io", &["customresourcedefinitions"], READ, "likewise"),
];

/// What takes a decision of its own: whoever may write a policy could send any Secret that it selects to a cluster where
/// they may read it. What pods refer to is read as their node, without this.
pub const HOST_SECRET_RIGHTS: &[Right] =
    &[Right::new("", &["secrets"], READ, "Secrets that policies select, in all namespaces")];

/// What our account may do in every member so that objects of these kinds can be copied there.
pub const MEMBER_OBJECT_RIGHTS: &[Right] = &[
    Right::new(
        "",
        &["serviceaccounts", "limitranges", "resourcequotas"],
        COPY,
        "objects that policies select",
    ),
    Right::new("", &["namespaces"], &["watch", "patch"], "labels of namespaces that policies select"),
    Right::new("networking.k8s.io", &["ingresses", "networkpolicies"], COPY, "likewise"),
    Right::new("policy", &["poddisruptionbudgets"], COPY, "likewise"),
    Right::new("autoscaling", &["horizontalpodautoscalers"], COPY, "likewise"),
];

/// Kinds that open more of a member than others, each allowed only if whoever joins it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoreObjects {
    /// CustomResourceDefinitions.
    Definitions,
    /// Roles and their bindings: whoever may write them on the host may do anything in the member.
    Roles,
    /// Workloads that the member runs by itself.
    Workloads,
}

impl MoreObjects {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Definitions, Self::Roles, Self::Workloads];

    /// In one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Definitions => "definitions",
            Self::Roles => "roles",
            Self::Workloads => "workloads",
        }
    }

    /// By that word.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// What it takes.
    pub const fn rights(self) -> &'static [Right] {
        match self {
            Self::Definitions => DEFINITIONS,
            Self::Roles => ROLES,
            Self::Workloads => WORKLOADS,
        }
    }
}

const DEFINITIONS: &[Right] = &[Right::new(
    "apiextensions.k8s.io",
    &["customresourcedefinitions"],
    COPY,
    "`--allow-objects=definitions`",
)];

const ROLES: &[Right] = &[Right::new(
    "rbac.authorization.k8s.io",
    &["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
    &["get", "list", "watch", "create", "patch", "delete", "escalate", "bind"],
    "`--allow-objects=roles`; to give rights that the account itself has not",
)];

const WORKLOADS: &[Right] = &[
    Right::new("apps", &["daemonsets", "deployments", "statefulsets"], COPY, "`--allow-objects=workloads`"),
    Right::new("batch", &["jobs", "cronjobs"], COPY, "likewise"),
];

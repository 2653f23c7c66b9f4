use std::collections::{BTreeMap, BTreeSet};

use federlet_node::contract::{Pod, ProviderError};
use serde_json::Value;
use tokio::sync::{broadcast, watch};

/// Who says which clusters a pod has copies in.
pub trait Choice: Send + Sync + 'static {
    /// The UID of the pod's workload. A pod that is not meant to have copies is [`ProviderError::Rejected`].
    fn workload(&self, pod: &Pod) -> Result<String, ProviderError>;

    /// What was decided for this pod. That nothing is known yet is [`ProviderError::Unavailable`].
    fn chosen(&self, pod: &Pod) -> Result<Chosen, ProviderError>;

    /// The clusters that there are, and whether each can be reached.
    fn reach(&self) -> BTreeMap<String, bool>;

    /// Resources that some cluster has.
    fn resources(&self) -> BTreeSet<String>;

    /// The UIDs of workloads for which something else was decided.
    fn decisions(&self) -> broadcast::Receiver<String>;

    /// Counts changes of clusters.
    fn clusters(&self) -> watch::Receiver<u64>;
}

/// Where a pod has copies.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// Who owns its copies, as an owner reference: what recorded the decision. Budgets ask it how many there should be.
    pub owner: Value,
    /// The clusters.
    pub clusters: BTreeSet<String>,
    /// Those of them that get nothing for now: what is there stays as it is.
    pub held: BTreeSet<String>,
    /// Whether copies go without the labels of their pod on the host, so that nobody counts them as pods of its workload.
    pub uncounted: bool,
}

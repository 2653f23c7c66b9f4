use std::collections::BTreeSet;

use super::MemberNode;

/// How many machines there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSummary {
    /// In the scope.
    pub total: usize,
    /// Of these, Ready.
    pub ready: usize,
}

impl NodeSummary {
    pub(super) fn of(nodes: &[&MemberNode]) -> Self {
        Self { total: nodes.len(), ready: nodes.iter().filter(|node| node.ready).count() }
    }
}

/// The value of a label if all of these nodes have the same one: then it is true of the virtual node as well.
pub fn agreed_label<'a>(nodes: impl IntoIterator<Item = &'a MemberNode>, key: &str) -> Option<&'a str> {
    let mut values = nodes.into_iter().map(|node| node.labels.get(key).map(|value| &**value));
    let first = values.next()??;
    values.all(|value| value == Some(first)).then_some(first)
}

/// Whether some of these nodes have another value of a label than others. Those without it say nothing.
pub fn differ_in<'a>(nodes: impl IntoIterator<Item = &'a MemberNode>, key: &str) -> bool {
    let mut values = nodes.into_iter().filter_map(|node| node.labels.get(key));
    values.next().is_some_and(|first| values.any(|value| value != first))
}

/// The features that every one of these nodes declares, sorted and unique, as the API server wants them.
pub fn declared_features<'a>(nodes: impl IntoIterator<Item = &'a MemberNode>) -> Vec<String> {
    let set =
        |node: &'a MemberNode| node.features.iter().map(|feature| &**feature).collect::<BTreeSet<&str>>();
    let common =
        nodes.into_iter().map(set).reduce(|common, set| common.intersection(&set).copied().collect());
    common.unwrap_or_default().into_iter().map(str::to_owned).collect()
}

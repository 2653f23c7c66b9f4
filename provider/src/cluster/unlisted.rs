//! What the Node of a member says while the member was not listed yet.
//!
//! After a restart nothing is known of machines and pods until they were listed to the end, and a member that is away
//! cannot be listed. What the Node said before stays until then: without its room nobody could come back, and without
//! its labels DaemonSets would end their pods. Only whether the member answers is written.

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{ClusterProvider, REACHABLE, reach::Reach};

/// By this name the host remembers what a node says of itself.
const FIELD_MANAGER: &str = "federlet";

/// What to do about the Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Nothing: it says what is so, or will be registered when it is known what it has.
    Leave,
    /// Say whether the member answers.
    Write,
    /// There is none, and will not be for long: register one without any room, so that it can say that the member is away.
    Register,
}

impl Act {
    fn of(node: Option<&Node>, reach: &Reach) -> Self {
        let Some(node) = node else {
            return if reach.is_away() { Self::Register } else { Self::Leave };
        };
        let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let says_so = conditions.any(|said| said.type_ == REACHABLE && said.status == reach.status());
        if says_so { Self::Leave } else { Self::Write }
    }
}

impl ClusterProvider {
    /// Sees to it that the Node says whether the member answers, and nothing else. True if there is no Node, and one is
    /// to be registered that has no room.
    pub(super) async fn tell_unlisted(&self, reach: &Reach) -> Result<bool, kube::Error> {
        let host = &self.site.host;
        let (nodes, name) = (Api::<Node>::all(host.client.clone()), host.node.as_str());
        let act = Act::of(nodes.get_opt(name).await?.as_ref(), reach);
        if act == Act::Write {
            let said = json!({ "status": { "conditions": [reach.condition()] } });
            let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
            nodes.patch_status(name, &params, &Patch::Strategic(said)).await?;
        }
        Ok(act == Act::Register)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_node_from_before_is_told_only_what_is_new() {
        let reach =
            |reachable| Reach { reachable, since: Timestamp::constant(1_700_000_000, 0), ..Reach::default() };
        let node = |said: Option<bool>| {
            let mut node = Node::default();
            let said = said.map(|reachable| vec![reach(reachable).condition()]);
            node.status.get_or_insert_default().conditions = said;
            node
        };
        for (node, reachable, act) in [
            (Some(node(Some(true))), true, Act::Leave),
            (Some(node(Some(true))), false, Act::Write),
            (Some(node(Some(false))), false, Act::Leave),
            (Some(node(None)), false, Act::Write),
            (None, false, Act::Register),
            (None, true, Act::Leave),
        ] {
            assert_eq!(Act::of(node.as_ref(), &reach(reachable)), act, "{node:?} {reachable}");
        }
    }
}

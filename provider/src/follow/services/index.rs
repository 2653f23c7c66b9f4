use std::collections::HashMap;

use serde_json::Value;

use super::decide::selects;

/// The labels by which one Service selects.
pub(super) type Selector = Box<[(Box<str>, Box<str>)]>;

/// Which Services of the host select which labels. No more of them is kept.
#[derive(Debug, Default)]
pub(super) struct Index {
    by_namespace: HashMap<Box<str>, HashMap<Box<str>, Selector>>,
}

impl Index {
    /// Notes how a Service selects; none if it selects nothing. Whether that is new.
    pub(super) fn apply(&mut self, namespace: &str, name: &str, selector: Option<Selector>) -> bool {
        let Some(selector) = selector else { return self.remove(namespace, name) };
        let services = self.by_namespace.entry(namespace.into()).or_default();
        services.insert(name.into(), selector.clone()) != Some(selector)
    }

    pub(super) fn remove(&mut self, namespace: &str, name: &str) -> bool {
        let Some(services) = self.by_namespace.get_mut(namespace) else { return false };
        let gone = services.remove(name).is_some();
        if services.is_empty() {
            self.by_namespace.remove(namespace);
        }
        gone
    }

    /// Forgets what a complete list does not name.
    pub(super) fn keep_only(&mut self, listed: &std::collections::HashSet<(Box<str>, Box<str>)>) {
        for (namespace, services) in &mut self.by_namespace {
            services.retain(|name, _| listed.contains(&(namespace.clone(), name.clone())));
        }
        self.by_namespace.retain(|_, services| !services.is_empty());
    }

    /// The Services of a namespace that select these labels, in order.
    pub(super) fn matching(&self, namespace: &str, labels: &Value) -> Vec<Box<str>> {
        let services = self.by_namespace.get(namespace).into_iter().flatten();
        let mut names: Vec<_> = services
            .filter(|(_, selector)| selects(selector, labels))
            .map(|(name, _)| name.clone())
            .collect();
        names.sort_unstable();
        names
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selector(value: &str) -> Option<Selector> {
        Some(Box::from([("app".into(), value.into())]))
    }

    #[test]
    fn knows_who_selects_whom_and_what_changed() {
        let mut index = Index::default();
        assert!(index.apply("shop", "web", selector("web")));
        assert!(!index.apply("shop", "web", selector("web")), "nothing new");
        assert!(index.apply("shop", "all", selector("web")));
        assert!(index.apply("bank", "web", selector("web")));
        let labels = json!({ "app": "web" });
        assert_eq!(index.matching("shop", &labels), ["all".into(), "web".into()]);
        assert!(index.apply("shop", "all", selector("other")), "it selects others now");
        assert_eq!(index.matching("shop", &labels), ["web".into()]);
        assert!(index.apply("shop", "web", None), "it selects nothing any more");
        assert!(!index.apply("shop", "web", None));
        assert_eq!(index.matching("shop", &labels), [] as [Box<str>; 0]);
        index.keep_only(&[("shop".into(), "all".into())].into());
        assert_eq!(index.matching("bank", &labels), [] as [Box<str>; 0]);
    }
}

use std::{sync::Arc, time::Duration};

use futures::{Stream, StreamExt, stream};

use crate::contract::{NodeReport, Provider};

/// How long after the end of a provider's reports it is asked for more.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// All that a provider ever says about its node. A stream that ends is asked for again.
pub(super) fn reports(provider: Arc<dyn Provider>) -> impl Stream<Item = NodeReport> {
    let from = provider.notify_node_status();
    stream::unfold((provider, from), |(provider, mut from)| async move {
        loop {
            if let Some(report) = from.next().await {
                return Some((report, (provider, from)));
            }
            tokio::time::sleep(ASK_AGAIN).await;
            from = provider.notify_node_status();
        }
    })
}

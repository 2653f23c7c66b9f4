//! Where pods in a member find the host's API server.

use std::net::IpAddr;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client, api::ListParams};

use crate::target::ApiAccess;

/// Every API server's certificate is good for this name, whatever its address.
const NAME: &str = "kubernetes.default.svc";

/// Where the host's API server is, as it says itself: the addresses behind its Service `kubernetes`.
///
/// Those are what its own nodes use if nobody put anything in between. A name leads there by the pod's own hosts file,
/// since an address alone may not be in the certificate.
pub async fn find_host_api(client: &Client) -> Result<Option<ApiAccess>, kube::Error> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let only = ListParams::default().labels("kubernetes.io/service-name=kubernetes");
    let found = slices.list(&only).await?;
    Ok(found.items.iter().find_map(|slice| {
        let port = slice.ports.as_ref()?.iter().find_map(|port| port.port)?;
        let address: IpAddr =
            slice.endpoints.iter().flatten().find_map(|endpoint| endpoint.addresses.first()?.parse().ok())?;
        Some(host_api(address, u16::try_from(port).ok()?))
    }))
}

/// The host's API server at this address.
pub fn host_api(address: IpAddr, port: u16) -> ApiAccess {
    ApiAccess::Host { name: NAME.to_owned(), port, address: Some(address) }
}

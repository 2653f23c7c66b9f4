//! Who is who on either side.
//!
//! A pod has a name on the host and a name in the member, and they look alike. Each side has its own type here, made
//! only by checking, so that one can never be passed for the other.

mod ids;
mod keys;
mod namespace;
mod objects;
mod text;

pub use ids::{HostId, HostUid, MemberName};
pub use keys::{HostPodKey, MemberPodKey};
pub use namespace::{Claim, MappingError, MemberNamespace, NamespaceMap};
pub use objects::{TOKEN_KEY, account, anchor, ephemeral_claim, root_ca, token_secret};
pub(crate) use text::is_label_value;
pub use text::{NameError, shortened};

#[cfg(test)]
mod tests;

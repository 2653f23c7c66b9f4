//! Joining a member, and leaving it.
//!
//! In the member, joining makes one account for this host, shared by all its regions ([`account`]); on the host, a
//! Secret with a token of that account and a Cluster. The token is asked for anew long before it ends ([`token`]).
//! Leaving takes away what we made there, then the account ([`leave`]). Neither touches machines of the host ([`node`]).

pub mod account;
pub mod leave;
pub mod node;
pub mod token;

/// Where the credentials of members are on the host, and everything else of Federlet itself.
pub const SYSTEM_NAMESPACE: &str = "federlet-system";

/// Keeps a Cluster until what we made in its member is gone.
pub const FINALIZER: &str = "federlet.io/member";

/// By this name the API servers remember what joining wrote.
pub const FIELD_MANAGER: &str = "federlet-join";

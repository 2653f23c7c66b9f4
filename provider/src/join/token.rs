//! The token of our account in a member, and its Secret on the host.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    ByteString,
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::{Secret, ServiceAccount},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{
    SYSTEM_NAMESPACE,
    account::{ACCOUNT, Account},
};
use crate::member::{CA_KEY, TOKEN_KEY};

/// What we ask for. The member may grant less.
const LIFE: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Label of Secrets that joining made, which may be deleted with their Cluster: the id of the member.
pub const MEMBER_LABEL: &str = "federlet.io/member-id";
/// Annotation: from when on the token is asked for anew.
pub const ROTATE_AFTER: &str = "federlet.io/rotate-after";

/// A token and when to ask for the next.
#[derive(Clone, PartialEq, Eq)]
pub struct FreshToken {
    token: String,
    rotate_after: Timestamp,
}

impl FreshToken {
    /// Asks the member for a token of our account.
    pub async fn request(member: &Client, account: &Account) -> Result<Self, kube::Error> {
        let accounts: Api<ServiceAccount> = Api::namespaced(member.clone(), &account.namespace);
        let wanted = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(LIFE.as_secs()),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let now = Timestamp::now();
        let granted = accounts.create_token_request(ACCOUNT, &PostParams::default(), &wanted).await?;
        // How long it lives is what counts: the member's clock need not agree with ours.
        let made = granted.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let status = granted.status.unwrap_or_default();
        let ends = status.expiration_timestamp.map(|time| time.0);
        let life = made.zip(ends).map_or(LIFE, |(made, ends)| ends.duration_since(made));
        Ok(Self { token: status.token.unwrap_or_default(), rotate_after: rotate_after(now, life) })
    }

    /// The Secret that holds it, for a member of this id.
    pub fn secret(&self, member: &str, ca: Option<&[u8]>) -> Secret {
        let mut data = BTreeMap::from([(TOKEN_KEY.to_owned(), ByteString(self.token.clone().into_bytes()))]);
        if let Some(ca) = ca {
            data.insert(CA_KEY.to_owned(), ByteString(ca.to_vec()));
        }
        Secret {
            metadata: ObjectMeta {
                name: Some(secret_name(member)),
                namespace: Some(SYSTEM_NAMESPACE.into()),
                labels: Some([(MEMBER_LABEL.to_owned(), member.to_owned())].into()),
                annotations: Some([(ROTATE_AFTER.to_owned(), self.rotate_after.to_string())].into()),
                ..ObjectMeta::default()
            },
            type_: Some("Opaque".into()),
            data: Some(data),
            ..Secret::default()
        }
    }

    /// Puts it in the place of the one before. A Secret that somebody changed meanwhile is left as it is.
    pub async fn store(&self, host: &Client, before: &Secret) -> Result<(), kube::Error> {
        let secrets: Api<Secret> =
            Api::namespaced(host.clone(), &before.namespace().unwrap_or(SYSTEM_NAMESPACE.into()));
        let patch = json!({
            "metadata": {
                "resourceVersion": before.resource_version(),
                "annotations": { ROTATE_AFTER: self.rotate_after.to_string() },
            },
            "data": { TOKEN_KEY: ByteString(self.token.clone().into_bytes()) },
        });
        secrets.patch(&before.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }
}

/// The Secret of a member. Its regions share it, as they share the account.
pub fn secret_name(member: &str) -> String {
    format!("member-{member}")
}

/// When the token in a Secret is to be asked for anew; none if it is not ours to rotate.
pub fn rotation(secret: &Secret) -> Option<Timestamp> {
    let is_ours = secret.labels().contains_key(MEMBER_LABEL);
    // What cannot be read is as good as over: a new token writes it anew.
    let after = secret.annotations().get(ROTATE_AFTER)?;
    is_ours.then(|| after.parse().unwrap_or(Timestamp::UNIX_EPOCH))
}

/// Four fifths of its life.
fn rotate_after(now: Timestamp, life: SignedDuration) -> Timestamp {
    let wait = SignedDuration::from_secs(life.as_secs().max(0) / 5 * 4);
    now.checked_add(wait).unwrap_or(now)
}

impl std::fmt::Debug for FreshToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FreshToken").field("rotate_after", &self.rotate_after).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_when_a_fifth_of_its_life_is_left() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (life, after) in [
            (SignedDuration::from_hours(10), "2026-01-01T08:00:00Z"),
            (SignedDuration::from_hours(-1), "2026-01-01T00:00:00Z"),
        ] {
            assert_eq!(rotate_after(now, life).to_string(), after);
        }
    }

    #[test]
    fn only_our_own_tokens_are_rotated() {
        let token = FreshToken { token: "t".into(), rotate_after: Timestamp::UNIX_EPOCH };
        let secret = token.secret("id", Some(b"ca"));
        assert_eq!(rotation(&secret), Some(Timestamp::UNIX_EPOCH));
        assert_eq!(secret.data.as_ref().unwrap().keys().collect::<Vec<_>>(), [CA_KEY, TOKEN_KEY]);
        let mut theirs = secret.clone();
        theirs.metadata.labels = None;
        assert_eq!(rotation(&theirs), None);
        let mut unclear = secret;
        unclear.metadata.annotations = Some([(ROTATE_AFTER.to_owned(), "soon".to_owned())].into());
        assert_eq!(rotation(&unclear), Some(Timestamp::UNIX_EPOCH));
        assert!(!format!("{token:?}").contains("\"t\""));
    }
}

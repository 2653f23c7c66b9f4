use std::{collections::BTreeMap, fmt, time::Duration};

use http::{HeaderMap, header::AUTHORIZATION};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::{Api, Client, api::PostParams};
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};

use super::{cache::Cache, client_ca::ClientCa};
use crate::client::answered;

/// How long an answer about a token may be repeated without asking.
const KNOWN: Duration = Duration::from_secs(60);
const UNKNOWN: Duration = Duration::from_secs(10);

/// No token is longer. Larger ones are not even asked about.
const LONGEST_TOKEN: usize = 16 * 1024;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct User {
    /// The name.
    pub name: String,
    /// The UID, if the host gave one.
    pub uid: Option<String>,
    /// The groups, always with `system:authenticated`.
    pub groups: Vec<String>,
    /// What else the host knows.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    pub(super) fn from_certificate(name: String, mut groups: Vec<String>) -> Self {
        groups.push("system:authenticated".into());
        Self { name, uid: None, groups, extra: BTreeMap::new() }
    }
}

/// There would be no way to know who calls, so there must be no server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the kubelet API would have no way to authenticate anybody: it needs a client CA or the right to create TokenReviews"
)]
pub struct NoAuthentication;

/// Finds out who asks: by client certificate, else by bearer token.
pub struct Authentication {
    client_ca: Option<ClientCa>,
    tokens: Option<Tokens>,
}

struct Tokens {
    api: Api<TokenReview>,
    answers: Cache<[u8; 32], Option<User>>,
}

impl Authentication {
    /// At least one way must be there. `reviewer` is a client that may create TokenReviews.
    pub fn new(client_ca: Option<ClientCa>, reviewer: Option<Client>) -> Result<Self, NoAuthentication> {
        if client_ca.is_none() && reviewer.is_none() {
            return Err(NoAuthentication);
        }
        let tokens = reviewer.map(|client| Tokens { api: Api::all(client), answers: Cache::default() });
        Ok(Self { client_ca, tokens })
    }

    /// Who asks; none if nobody we can name. An error means that nobody could say.
    pub async fn user(
        &self,
        certificates: Option<&[CertificateDer<'static>]>,
        headers: &HeaderMap,
    ) -> Result<Option<User>, Box<kube::Error>> {
        if let (Some(ca), Some(certificates)) = (&self.client_ca, certificates)
            && let Some(user) = ca.user(certificates)
        {
            return Ok(Some(user));
        }
        let Some(token) = bearer(headers) else {
            return Ok(None);
        };
        match &self.tokens {
            Some(tokens) => tokens.user(token).await,
            None => Ok(None),
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= LONGEST_TOKEN)
        .then_some(token)
}

impl Tokens {
    async fn user(&self, token: &str) -> Result<Option<User>, Box<kube::Error>> {
        // Tokens themselves are not kept.
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(answer) = self.answers.get(&key) {
            return Ok(answer);
        }
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let params = PostParams::default();
        let answer = answered(self.api.create(&params, &review)).await;
        let answer = answer.unwrap_or_else(|silence| Err(kube::Error::Service(silence.into())));
        let answer = answer.map_err(Box::new)?;
        let status = answer.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true)).and_then(|user| {
            Some(User {
                name: user.username.filter(|name| !name.is_empty())?,
                uid: user.uid,
                groups: user.groups.unwrap_or_default(),
                extra: user.extra.unwrap_or_default(),
            })
        });
        self.answers.put(key, user.clone(), if user.is_some() { KNOWN } else { UNKNOWN });
        Ok(user)
    }
}

impl fmt::Debug for Authentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authentication")
            .field("certificates", &self.client_ca.is_some())
            .field("tokens", &self.tokens.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, StatusCode};
    use serde_json::json;

    use super::*;
    use crate::fake_api::fake_api;

    #[test]
    fn without_any_way_to_know_who_calls_there_is_no_server() {
        assert!(Authentication::new(None, None).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_asked_about_once_in_a_while() {
        let known = json!({"spec": {}, "status": {"authenticated": true, "user": {"username": "ann"}}});
        let (client, asked) = fake_api(move |_| (StatusCode::OK, known.clone()));
        let authentication = Authentication::new(None, Some(client)).unwrap();
        let user = async |token: &str| {
            let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
            authentication.user(None, &headers).await.unwrap().map(|user| user.name)
        };
        for _ in 0..50 {
            assert_eq!(user("one").await.as_deref(), Some("ann"));
        }
        assert_eq!(asked.take().len(), 1);
        user("two").await;
        assert_eq!(asked.take().len(), 1, "another token is another question");
        tokio::time::advance(KNOWN).await;
        user("one").await;
        assert_eq!(asked.take().len(), 1, "a token that was taken back does not count for ever");
    }

    #[test]
    fn only_bearer_tokens_are_tokens() {
        let token = |value: &str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(value).unwrap())]);
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(token("Bearer abc"), Some("abc".into()));
        assert_eq!(token("bearer  abc "), Some("abc".into()));
        for bad in
            ["Basic abc", "Bearer", "Bearer ", "abc", &format!("Bearer {}", "x".repeat(LONGEST_TOKEN + 1))]
        {
            assert_eq!(token(bad), None, "{bad:.20}");
        }
    }
}

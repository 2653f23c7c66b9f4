//! Tokens of service accounts: asked of the host for one pod, kept fresh in a Secret of the member.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::place::TokenOrigin;
use crate::{
    marks,
    names::{MemberNamespace, TOKEN_KEY},
    target::{Anchor, Target},
};

/// Annotation: when the token in this Secret was made.
const ISSUED: &str = "federlet.io/token-issued";
/// Annotation: when it ends.
const EXPIRES: &str = "federlet.io/token-expires";

/// No token gets older, however long it would be good: kubelets replace theirs after a day, too.
const OLDEST: SignedDuration = SignedDuration::from_hours(24);

/// Refreshes are spread over this much, so that pods that started together do not ask together.
const JITTER: Duration = Duration::from_secs(10);

/// How long a token is good. Not what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) issued: Timestamp,
    pub(super) expires: Timestamp,
}

impl Life {
    /// What the Secret in the member says about its token. None if that makes no sense: then there is a new one.
    pub(super) fn of(secret: &Value) -> Option<Self> {
        let time = |key| marks::annotation(secret, key)?.parse::<Timestamp>().ok();
        let has_token = secret.get("data").and_then(|data| data.get(TOKEN_KEY)).and_then(Value::as_str);
        has_token.filter(|token| !token.is_empty())?;
        let life = Self { issued: time(ISSUED)?, expires: time(EXPIRES)? };
        (life.issued < life.expires).then_some(life)
    }

    /// How long to leave it alone; none if it is time for a new one. `used` is the share of its life after which it is
    /// replaced, and `luck` is between 0 and 1.
    pub(super) fn rest(&self, now: Timestamp, used: f64, luck: f64) -> Option<Duration> {
        let span = self.expires.duration_since(self.issued);
        let after = span.mul_f64(used.clamp(0.0, 1.0)).min(OLDEST);
        let jitter =
            JITTER.mul_f64(luck.clamp(0.0, 1.0)).min(Duration::try_from(after / 10).unwrap_or_default());
        let due = self.issued.checked_add(after).ok()?.checked_sub(jitter).ok()?;
        Duration::try_from(due.duration_since(now)).ok().filter(|rest| !rest.is_zero())
    }
}

/// What to ask the host for: bound to this one pod, so that it ends with the pod.
pub(super) fn request(origin: &TokenOrigin) -> Value {
    let audiences: Vec<&str> = origin.audience.as_deref().into_iter().collect();
    json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": audiences,
            "expirationSeconds": origin.expiration,
            "boundObjectRef": {
                "apiVersion": "v1", "kind": "Pod", "name": origin.pod.key().name(), "uid": origin.pod.uid(),
            },
        },
    })
}

/// The Secret to put it into. `answer` is what the host said to the request.
pub(super) fn secret(
    name: &str,
    origin: &TokenOrigin,
    answer: &Value,
    issued: Timestamp,
    namespace: &MemberNamespace,
    anchor: &Anchor,
    target: &Target,
) -> Option<Value> {
    let said = |field: &str| answer.get("status")?.get(field)?.as_str();
    let token = said("token").filter(|token| !token.is_empty())?;
    let expires: Timestamp = said("expirationTimestamp")?.parse().ok()?;
    let seconds = |time: Timestamp| Timestamp::from_second(time.as_second()).unwrap_or(time).to_string();
    Some(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "namespace": namespace.as_str(),
            "name": name,
            "labels": {
                marks::HOST: target.host.as_str(),
                marks::NODE: target.node.as_str(),
                marks::HOST_UID: origin.pod.uid(),
            },
            "annotations": {
                marks::HOST_NAMESPACE: origin.pod.key().namespace(),
                ISSUED: seconds(issued),
                EXPIRES: seconds(expires),
            },
            "ownerReferences": [anchor.owner_reference()],
        },
        "data": { TOKEN_KEY: base64(token) },
    }))
}

/// As Secrets hold their content.
fn base64(text: &str) -> String {
    let bytes = k8s_openapi::ByteString(text.as_bytes().to_vec());
    serde_json::to_value(bytes).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn life(seconds: i64) -> Life {
        let issued = time("2026-01-01T00:00:00Z");
        Life { issued, expires: issued + SignedDuration::from_secs(seconds) }
    }

    #[test]
    fn a_token_is_replaced_when_most_of_its_life_is_over() {
        for (seconds, age, rest) in [
            (3600, 0, Some(2880)),
            (3600, 2879, Some(1)),
            (3600, 2880, None),
            (3600, 99_999, None),
            (600, 0, Some(480)),
            // However long it is good for.
            (31_536_000, 0, Some(86_400)),
            (31_536_000, 86_401, None),
        ] {
            let life = life(seconds);
            let now = life.issued + SignedDuration::from_secs(age);
            assert_eq!(
                life.rest(now, 0.8, 0.0).map(|rest| rest.as_secs()),
                rest,
                "{seconds} s, after {age} s"
            );
        }
        let early = life(3600).rest(life(3600).issued, 0.8, 1.0).unwrap();
        assert_eq!(early.as_secs(), 2870, "the jitter makes it earlier, never later");
    }

    #[test]
    fn what_a_secret_says_is_believed_only_if_it_makes_sense() {
        let secret = |issued: &str, expires: &str, token: &str| {
            json!({
                "metadata": { "annotations": { ISSUED: issued, EXPIRES: expires } }, "data": { TOKEN_KEY: token },
            })
        };
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z");
        assert_eq!(Life::of(&secret(early, late, "eA==")), Some(life(3600)));
        for bad in [
            secret(late, early, "eA=="),
            secret("yesterday", late, "eA=="),
            secret(early, late, ""),
            json!({ "data": { TOKEN_KEY: "eA==" } }),
            json!(null),
        ] {
            assert_eq!(Life::of(&bad), None, "{bad}");
        }
    }

    #[test]
    fn base64_is_what_the_api_server_reads() {
        assert_eq!(base64("hello"), "aGVsbG8=");
    }
}

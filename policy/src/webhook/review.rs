//! A question of the host's API server, and the answer.

use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::{Value, json};

/// What is asked.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Request {
    pub(super) uid: String,
    pub(super) kind: Kind,
    pub(super) namespace: String,
    pub(super) operation: String,
    pub(super) object: Value,
    pub(super) old_object: Value,
}

/// The kind of the object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Kind {
    pub(super) kind: String,
}

#[derive(Deserialize)]
struct Review {
    request: Request,
}

impl Request {
    pub(super) fn read(body: &[u8]) -> Result<Self, serde_json::Error> {
        Ok(serde_json::from_slice::<Review>(body)?.request)
    }
}

/// What is answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    /// As it is.
    Yes,
    /// As it is, and the person who wrote it is told something.
    Noting(Vec<String>),
    /// With this object instead.
    As(Box<Value>),
    /// No, and why.
    No(String),
    /// Nobody can say now, and why. To the API server it is as if nobody had answered.
    NotNow(String),
}

impl Answer {
    pub(super) fn result(&self) -> &'static str {
        match self {
            Self::Yes | Self::Noting(_) => "allowed",
            Self::As(_) => "changed",
            Self::No(_) => "denied",
            Self::NotNow(_) => "error",
        }
    }

    /// As the API server wants it.
    pub(super) fn review(&self, request: &Request) -> Value {
        let mut response = json!({ "uid": request.uid, "allowed": true });
        match self {
            Self::Yes => {}
            Self::Noting(notes) => response["warnings"] = json!(notes),
            Self::As(object) => {
                let patch = json!(json_patch::diff(&request.object, object)).to_string();
                response["patchType"] = "JSONPatch".into();
                response["patch"] = json!(ByteString(patch.into_bytes()));
            }
            Self::No(why) | Self::NotNow(why) => {
                response["allowed"] = false.into();
                response["status"] = json!({ "code": 403, "message": why });
            }
        }
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_patch_in_base64() {
        let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": "n",
            "operation": "CREATE", "object": {"a": 1}, "oldObject": null, "dryRun": false}});
        let request = Request::read(body.to_string().as_bytes()).unwrap();
        assert_eq!((request.kind.kind.as_str(), request.namespace.as_str()), ("Pod", "n"));
        let answer = Answer::As(Box::new(json!({"a": 2}))).review(&request);
        // [{"op":"replace","path":"/a","value":2}]
        assert_eq!(answer["response"]["patch"], "W3sib3AiOiJyZXBsYWNlIiwicGF0aCI6Ii9hIiwidmFsdWUiOjJ9XQ==");
        let answer = Answer::No("because".into()).review(&request);
        assert_eq!(answer["response"]["allowed"], false);
        assert_eq!(answer["response"]["status"]["message"], "because");
        let answer = Answer::Noting(vec!["mind this".into()]).review(&request);
        assert_eq!(
            (&answer["response"]["allowed"], &answer["response"]["warnings"]),
            (&json!(true), &json!(["mind this"]))
        );
        assert!(Request::read(b"{}").is_err());
    }
}

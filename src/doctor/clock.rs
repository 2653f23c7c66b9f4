//! Clocks that differ make tokens and certificates look expired, or not valid yet.

use http::Request;
use jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use kube::{Client, client::Body};

use super::finding::Finding;

/// What nobody notices.
const NO_MATTER: SignedDuration = SignedDuration::from_secs(5);
/// From here on tokens fail.
const TOO_MUCH: SignedDuration = SignedDuration::from_secs(60);

/// How far the clock of an API server is ahead of ours; none if it does not say.
pub(super) async fn ahead(client: &Client) -> Option<SignedDuration> {
    let asked = Timestamp::now();
    let request = Request::get("/version").body(Body::empty()).ok()?;
    let answer = client.send(request).await.ok()?;
    let date = answer.headers().get(http::header::DATE)?.to_str().ok()?.to_owned();
    // It was written somewhere between.
    let middle = asked.checked_add(Timestamp::now().duration_since(asked) / 2).ok()?;
    Some(read(&date)?.duration_since(middle))
}

fn read(date: &str) -> Option<Timestamp> {
    Some(rfc2822::parse(date).ok()?.timestamp())
}

/// What it means that a clock is so far ahead of the host's.
pub(super) fn judge(place: &str, ahead: SignedDuration) -> Finding {
    let seconds = ahead.as_secs();
    let way = if seconds < 0 { "behind" } else { "ahead of" };
    let found = format!("is {} s {way} the host's", seconds.abs());
    if ahead.abs() <= NO_MATTER {
        Finding::good(place, "clock", "agrees with the host's")
    } else if ahead.abs() <= TOO_MUCH {
        Finding::notice(place, "clock", found, "synchronise the clocks, by NTP, before it gets worse")
    } else {
        Finding::wrong(
            place,
            "clock",
            found,
            "synchronise the clocks, by NTP: tokens are refused because of it",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn dates_of_http_are_read() {
        assert_eq!(read("Mon, 16 Nov 2026 12:00:00 GMT").unwrap().to_string(), "2026-11-16T12:00:00Z");
        assert_eq!(read("yesterday"), None);
    }

    #[test]
    fn a_few_seconds_are_nothing_and_minutes_are_too_much() {
        for (seconds, verdict) in
            [(0, Verdict::Good), (-5, Verdict::Good), (30, Verdict::Notice), (-90, Verdict::Wrong)]
        {
            assert_eq!(judge("m", SignedDuration::from_secs(seconds)).verdict, verdict, "{seconds}");
        }
        assert_eq!(judge("m", SignedDuration::from_secs(-90)).found, "is 90 s behind the host's");
    }
}

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};

use super::{containers::Run, state::State};
use crate::contract::{ByteStream, LogOptions, LogSource, PodId, ProviderError};

/// A container logs its first line when it begins and another each second. Nothing is stored: a line follows from its
/// number.
const EVERY: SignedDuration = SignedDuration::from_secs(1);

/// A chunk holds so many lines at most, so that a long log takes no more memory than a short one.
const CHUNK: u64 = 256;

pub(super) fn open(
    state: Arc<State>,
    id: &PodId,
    container: &str,
    options: LogOptions,
) -> Result<ByteStream, ProviderError> {
    let mut run = state.run(id).ok_or(ProviderError::NotFound)?;
    if options.previous {
        let name = id.key().name();
        let message = format!("previous terminated container {container:?} in pod {name:?} not found");
        run = run.previous().ok_or_else(|| ProviderError::invalid(message))?;
    }
    if options.source == LogSource::Stderr {
        return Ok(stream::empty().boxed());
    }
    let now = Timestamp::now();
    let last = lines_until(run, run.ended.map_or(now, |(at, _)| at));
    let next = first_line(run, &options, last, now);
    let left = options.limit_bytes;
    let log = Log { state, id: id.clone(), container: container.to_owned(), run, options, next, left };
    Ok(stream::unfold(log, |mut log| async move { log.chunk().await.map(|chunk| (Ok(chunk), log)) }).boxed())
}

struct Log {
    state: Arc<State>,
    id: PodId,
    container: String,
    run: Run,
    options: LogOptions,
    next: u64,
    left: Option<u64>,
}

impl Log {
    async fn chunk(&mut self) -> Option<Bytes> {
        if self.left == Some(0) {
            return None;
        }
        loop {
            // A pod that is gone or runs anew has nothing more to say in this log.
            let run = self.state.run(&self.id).filter(|run| run.began == self.run.began);
            let end = self.run.ended.or_else(|| run?.ended).map(|(at, _)| at);
            let written = lines_until(self.run, end.unwrap_or_else(Timestamp::now));
            if self.next < written {
                let until = written.min(self.next + CHUNK);
                let text = (self.next..until).map(|n| self.line(n)).collect::<String>();
                self.next = until;
                return Some(self.cut(text));
            }
            if run.is_none() || end.is_some() || !self.options.follow {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    fn line(&self, number: u64) -> String {
        let said = format!("{number} {} {} is running\n", self.id.key(), self.container);
        if self.options.timestamps { format!("{} {said}", time_of(self.run, number)) } else { said }
    }

    fn cut(&mut self, text: String) -> Bytes {
        let mut bytes = Bytes::from(text);
        if let Some(left) = &mut self.left {
            bytes.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= bytes.len() as u64;
        }
        bytes
    }
}

fn time_of(run: Run, number: u64) -> Timestamp {
    let after = EVERY.checked_mul(i32::try_from(number).unwrap_or(i32::MAX)).unwrap_or(SignedDuration::MAX);
    run.began.checked_add(after).unwrap_or(Timestamp::MAX)
}

/// How many lines there are at a time.
fn lines_until(run: Run, time: Timestamp) -> u64 {
    let lasted = time.duration_since(run.began);
    if lasted.is_negative() {
        0
    } else {
        lasted.as_secs().unsigned_abs() / EVERY.as_secs().unsigned_abs() + 1
    }
}

fn first_line(run: Run, options: &LogOptions, lines: u64, now: Timestamp) -> u64 {
    let ago = options.since_seconds.map(|s| SignedDuration::from_secs(i64::try_from(s).unwrap_or(i64::MAX)));
    let ago = ago.map(|ago| now.checked_sub(ago).unwrap_or(Timestamp::MIN));
    let since = ago.or(options.since_time);
    let by_time = since.map_or(0, |since| (0..lines).find(|n| time_of(run, *n) >= since).unwrap_or(lines));
    let by_tail = options.tail_lines.map_or(0, |tail| lines.saturating_sub(tail));
    by_time.max(by_tail)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::containers, *};
    use crate::contract::Pod;

    fn run() -> Run {
        Run::begin("2026-01-01T00:00:00Z".parse().unwrap())
    }

    fn at(seconds: i64) -> Timestamp {
        run().began + SignedDuration::from_secs(seconds)
    }

    #[tokio::test]
    async fn the_log_of_the_run_before_is_whole_and_over() {
        let pod = json!({"metadata": {"namespace": "ns", "name": "p", "uid": "u"},
                         "spec": {"containers": [{"name": "app"}]}});
        let pod = Pod::try_from(pod).unwrap();
        let state = State::new(Duration::ZERO, None);
        state.create(&pod).unwrap();
        let previous = |follow| {
            let options = LogOptions { previous: true, follow, ..LogOptions::default() };
            open(state.clone(), pod.id(), "app", options)
        };
        assert!(matches!(previous(false), Err(ProviderError::Invalid { .. })), "there was none");
        let ran = state.run(pod.id()).unwrap();
        state
            .set_run(pod.id(), containers::end(&pod, Run { began: ran.began - EVERY * 2, ..ran }, ran.began));
        for follow in [false, true] {
            let log: Vec<_> = previous(follow).unwrap().collect().await;
            let log: Vec<u8> = log.into_iter().flat_map(Result::unwrap).collect();
            let log = String::from_utf8(log).unwrap();
            assert_eq!(
                log.lines().collect::<Vec<_>>(),
                ["0 ns/p app is running", "1 ns/p app is running", "2 ns/p app is running"]
            );
        }
    }

    #[test]
    fn a_line_each_second() {
        assert_eq!(lines_until(run(), at(-1)), 0);
        assert_eq!(lines_until(run(), at(0)), 1);
        assert_eq!(lines_until(run(), at(9)), 10);
    }

    #[test]
    fn every_option_moves_the_beginning() {
        let from = |options: LogOptions| first_line(run(), &options, 10, at(9));
        let all = LogOptions::default;
        assert_eq!(from(all()), 0);
        assert_eq!(from(LogOptions { tail_lines: Some(0), ..all() }), 10);
        assert_eq!(from(LogOptions { tail_lines: Some(3), ..all() }), 7);
        assert_eq!(from(LogOptions { tail_lines: Some(99), ..all() }), 0);
        assert_eq!(from(LogOptions { since_seconds: Some(2), ..all() }), 7);
        assert_eq!(from(LogOptions { since_time: Some(at(8)), ..all() }), 8);
        assert_eq!(from(LogOptions { since_seconds: Some(5), tail_lines: Some(1), ..all() }), 9);
        assert_eq!(from(LogOptions { since_time: Some(at(99)), ..all() }), 10);
    }
}

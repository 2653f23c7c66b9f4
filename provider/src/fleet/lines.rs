//! Several logs as one: line by line, each with the name of where it comes from.

use bytes::{Bytes, BytesMut};
use federlet_node::contract::{ByteStream, ProviderError};
use futures::{
    StreamExt,
    future::{BoxFuture, join_all},
    stream::{self, FuturesUnordered},
};

/// A line that is longer is broken, so that nobody has to be waited for for ever.
const LONGEST: usize = 64 * 1024;

/// Who opens a log, by the name of where it comes from.
type Opening = (Box<str>, BoxFuture<'static, Result<ByteStream, ProviderError>>);

/// One log after the other. One that has nothing to say must not hide the others.
pub(super) async fn in_turn(logs: impl Iterator<Item = Opening>) -> Result<ByteStream, ProviderError> {
    let opened = join_all(logs.map(async |(from, log)| (from, log.await))).await;
    if opened.iter().all(|(_, log)| log.is_err()) {
        let first = opened.into_iter().next().map(|(_, log)| log);
        return first.unwrap_or(Err(ProviderError::NotFound));
    }
    let logs: Vec<ByteStream> = opened.into_iter().map(|(from, log)| told(&from, log)).collect();
    Ok(stream::iter(logs).flatten().boxed())
}

/// All logs at once, each from when it begins. A log that is followed opens with its first line, so none is waited for
/// once one is open.
pub(super) async fn follow(logs: impl Iterator<Item = Opening>) -> Result<ByteStream, ProviderError> {
    let mut opening: FuturesUnordered<_> = logs.map(|(from, log)| async move { (from, log.await) }).collect();
    let mut begun = Vec::new();
    let mut refusal = None;
    loop {
        match opening.next().await {
            Some((from, Err(error))) => {
                refusal.get_or_insert_with(|| error.clone());
                begun.push(told(&from, Err(error)));
            }
            Some((from, log)) => {
                begun.push(told(&from, log));
                break;
            }
            None => return Err(refusal.unwrap_or(ProviderError::NotFound)),
        }
    }
    let rest = opening.map(|(from, log)| told(&from, log));
    Ok(stream::iter(begun).chain(rest).flatten_unordered(None).boxed())
}

/// A log, or why there is none.
fn told(from: &str, log: Result<ByteStream, ProviderError>) -> ByteStream {
    let log = log.unwrap_or_else(|error| {
        let said = Bytes::from(format!("({error})\n"));
        stream::once(async { Ok(said) }).boxed()
    });
    prefixed(from, log)
}

/// A log with a word before each line. It gives out whole lines only, so that others can come between.
fn prefixed(prefix: &str, log: ByteStream) -> ByteStream {
    let prefix = format!("[{prefix}] ");
    let state = (log, BytesMut::new(), false);
    stream::unfold((state, prefix), |((mut log, mut rest, mut over), prefix)| async move {
        loop {
            if over && rest.is_empty() {
                return None;
            }
            let end = match rest.iter().rposition(|byte| *byte == b'\n') {
                Some(at) => Some(at + 1),
                None => (over || rest.len() >= LONGEST).then_some(rest.len()),
            };
            if let Some(end) = end {
                let lines = rest.split_to(end);
                return Some((Ok(with(&prefix, &lines)), ((log, rest, over), prefix)));
            }
            match log.next().await {
                Some(Ok(more)) => rest.extend_from_slice(&more),
                Some(Err(error)) => return Some((Err(error), ((log, BytesMut::new(), true), prefix))),
                None => over = true,
            }
        }
    })
    .boxed()
}

fn with(prefix: &str, lines: &[u8]) -> Bytes {
    let mut written = BytesMut::with_capacity(lines.len() + prefix.len());
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        written.extend_from_slice(prefix.as_bytes());
        written.extend_from_slice(line);
    }
    if !written.ends_with(b"\n") {
        written.extend_from_slice(b"\n");
    }
    written.freeze()
}

/// No more than so many bytes of a log.
pub(super) fn limited(log: ByteStream, limit: Option<u64>) -> ByteStream {
    let Some(limit) = limit else { return log };
    let left = usize::try_from(limit).unwrap_or(usize::MAX);
    stream::unfold((log, left), |(mut log, left)| async move {
        if left == 0 {
            return None;
        }
        match log.next().await? {
            Ok(mut bytes) => {
                bytes.truncate(left);
                let left = left - bytes.len();
                Some((Ok(bytes), (log, left)))
            }
            Err(error) => Some((Err(error), (log, 0))),
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use futures::FutureExt;

    use super::*;

    fn log(parts: &[&'static str]) -> ByteStream {
        stream::iter(parts.iter().map(|part| Ok(Bytes::from_static(part.as_bytes()))).collect::<Vec<_>>())
            .boxed()
    }

    async fn read(log: ByteStream) -> String {
        let parts: Vec<Bytes> = log.map(Result::unwrap).collect().await;
        String::from_utf8(parts.concat()).unwrap()
    }

    #[tokio::test]
    async fn each_line_says_where_it_comes_from_however_it_was_cut() {
        for parts in [&["one\ntwo\nthree"][..], &["o", "ne\ntw", "o\n", "three"]] {
            assert_eq!(read(prefixed("m1", log(parts))).await, "[m1] one\n[m1] two\n[m1] three\n");
        }
        assert_eq!(read(prefixed("m1", log(&[]))).await, "");
        assert_eq!(read(prefixed("m1", log(&["\n\n"]))).await, "[m1] \n[m1] \n");
    }

    /// A log that opens after so many seconds, or never.
    fn opening(from: &str, after: Option<u64>, log: Result<ByteStream, ProviderError>) -> Opening {
        let opens = async move {
            match after {
                Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
                None => pending().await,
            }
            log
        };
        (from.into(), opens.boxed())
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_who_follows_waits_for_a_log_that_is_silent() {
        let silent = opening("m1", None, Ok(log(&[])));
        let refused = opening("m2", Some(0), Err(ProviderError::invalid("no such container")));
        let open = opening("m3", Some(1), Ok(log(&["one\n"])));
        let late = opening("m4", Some(600), Ok(log(&["two\n"])));
        let mut merged = follow([silent, refused, open, late].into_iter()).await.unwrap();
        let mut said = Vec::new();
        for _ in 0..3 {
            said.push(String::from_utf8(merged.next().await.unwrap().unwrap().to_vec()).unwrap());
        }
        said.sort_unstable();
        assert!(said[0].starts_with("[m2] (") && said[0].contains("no such container"), "{said:?}");
        assert_eq!(said[1..], ["[m3] one\n", "[m4] two\n"]);
        let more = tokio::time::timeout(Duration::from_secs(3600), merged.next()).await;
        assert!(more.is_err(), "the silent one may still speak");
    }

    #[tokio::test]
    async fn an_error_of_all_is_an_error() {
        let all =
            || ["m1", "m2"].map(|from| opening(from, Some(0), Err(ProviderError::NotFound))).into_iter();
        assert!(matches!(follow(all()).await, Err(ProviderError::NotFound)));
        assert!(matches!(in_turn(all()).await, Err(ProviderError::NotFound)));
        let some = all().chain([opening("m3", Some(0), Ok(log(&["one"])))]);
        let said = read(in_turn(some).await.unwrap()).await;
        assert!(said.starts_with("[m1] (") && said.ends_with("\n[m3] one\n"), "{said}");
    }

    #[tokio::test]
    async fn no_more_is_said_than_asked_for() {
        assert_eq!(read(limited(log(&["abc", "def", "ghi"]), Some(5))).await, "abcde");
        assert_eq!(read(limited(log(&["abc"]), None)).await, "abc");
    }
}

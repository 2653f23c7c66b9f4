//! Several logs as one: line by line, each with the name of where it comes from.

use bytes::{Bytes, BytesMut};
use federlet_node::contract::ByteStream;
use futures::{StreamExt, stream};

/// A line that is longer is broken, so that nobody has to be waited for for ever.
const LONGEST: usize = 64 * 1024;

/// A log with a word before each line. It gives out whole lines only, so that others can come between.
pub(super) fn prefixed(prefix: &str, log: ByteStream) -> ByteStream {
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

    #[tokio::test]
    async fn no_more_is_said_than_asked_for() {
        assert_eq!(read(limited(log(&["abc", "def", "ghi"]), Some(5))).await, "abcde");
        assert_eq!(read(limited(log(&["abc"]), None)).await, "abc");
    }
}

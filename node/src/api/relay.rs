use std::{
    future::Future,
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy, split},
    time::Instant,
};

/// How long the last bytes may take to leave after the end.
const FAREWELL: Duration = Duration::from_secs(5);

/// Copies bytes between two connections until either ends, both are silent for `idle`, or `end` comes; then ends both.
///
/// Either end ends all: what one side sent before it ended has been passed on by then, and a client that vanished
/// must not leave a process running behind it. `one` is the client's, and hears what the other said last. A side that
/// does not read stops the other from being read, so a stalled client costs two small buffers.
pub async fn copy_until_either_ends<A, B>(
    one: A,
    other: B,
    idle: Duration,
    end: impl Future<Output = ()>,
) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let activity = Arc::new(Activity::new());
    let (one_read, mut one_write) = split(one);
    let (other_read, mut other_write) = split(other);
    let mut one_read = Noted { inner: one_read, activity: activity.clone() };
    let mut other_read = Noted { inner: other_read, activity: activity.clone() };
    let result = {
        let mut there = pin!(copy(&mut one_read, &mut other_write));
        let mut back = pin!(copy(&mut other_read, &mut one_write));
        tokio::select! {
            done = &mut there => {
                // Who takes nothing more, because a command ended for example, may still have said why.
                if done.is_err() {
                    let _ = tokio::time::timeout(FAREWELL, &mut back).await;
                }
                done.map(drop)
            }
            done = &mut back => done.map(drop),
            () = end => Ok(()),
            () = activity.ends(idle) => Err(io::Error::new(io::ErrorKind::TimedOut, "nothing was said for too long")),
        }
    };
    let farewell = async { tokio::join!(one_write.shutdown(), other_write.shutdown()) };
    // A broken pipe here is how most connections end.
    let _ = tokio::time::timeout(FAREWELL, farewell).await;
    result
}

struct Activity {
    begun: Instant,
    last: AtomicU64,
}

impl Activity {
    fn new() -> Self {
        Self { begun: Instant::now(), last: AtomicU64::new(0) }
    }

    fn note(&self) {
        let millis = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(millis, Ordering::Relaxed);
    }

    async fn ends(&self, idle: Duration) {
        loop {
            let last = self.begun + Duration::from_millis(self.last.load(Ordering::Relaxed));
            if last.elapsed() >= idle {
                return;
            }
            tokio::time::sleep_until(last + idle).await;
        }
    }
}

struct Noted<R> {
    inner: R,
    activity: Arc<Activity>,
}

impl<R: AsyncRead + Unpin> AsyncRead for Noted<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        self.activity.note();
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::io::{AsyncReadExt, duplex};

    use super::*;

    const IDLE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn all_bytes_arrive_before_the_end_does() {
        let (mut client, ours) = duplex(1000);
        let (theirs, mut server) = duplex(1000);
        let relay = tokio::spawn(copy_until_either_ends(ours, theirs, IDLE, pending()));
        let sent: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let expected = sent.clone();
        let sender = tokio::spawn(async move {
            client.write_all(&sent).await.unwrap();
            client.shutdown().await.unwrap();
            client
        });
        let mut received = Vec::new();
        server.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, expected);
        relay.await.unwrap().unwrap();
        drop(sender);
    }

    #[tokio::test]
    async fn a_client_that_vanishes_ends_the_other_side() {
        let (client, ours) = duplex(1000);
        let (theirs, mut server) = duplex(1000);
        let relay = tokio::spawn(copy_until_either_ends(ours, theirs, IDLE, pending()));
        drop(client);
        assert_eq!(server.read(&mut [0; 8]).await.unwrap(), 0);
        relay.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn the_last_words_of_one_that_takes_no_more_arrive() {
        let (mut client, ours) = duplex(10);
        let (theirs, mut server) = duplex(1000);
        client.write_all(b"more").await.unwrap();
        server.write_all(&[7; 900]).await.unwrap();
        drop(server);
        let relay = tokio::spawn(copy_until_either_ends(ours, theirs, IDLE, pending()));
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, [7; 900]);
        assert_eq!(relay.await.unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_it_and_a_word_prolongs_it() {
        let (mut client, ours) = duplex(1000);
        let (theirs, mut server) = duplex(1000);
        let begun = Instant::now();
        let relay = tokio::spawn(copy_until_either_ends(ours, theirs, IDLE, pending()));
        tokio::time::sleep(Duration::from_secs(50)).await;
        client.write_all(b"x").await.unwrap();
        server.read_exact(&mut [0; 1]).await.unwrap();
        assert_eq!(relay.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), 110);
    }
}

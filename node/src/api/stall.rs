use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

/// A connection that gives up on a client which takes nothing for too long.
///
/// Such a client costs no memory, because nothing is read for it meanwhile, but it takes a place.
pub(super) struct Patient<T> {
    inner: T,
    patience: Duration,
    /// When patience ends; set while the client takes nothing.
    ends: Pin<Box<Sleep>>,
    stalled: bool,
}

impl<T> Patient<T> {
    pub(super) fn new(inner: T, patience: Duration) -> Self {
        Self { inner, patience, ends: Box::pin(tokio::time::sleep(patience)), stalled: false }
    }

    fn judge<R>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if result.is_ready() {
            self.stalled = false;
            return result;
        }
        if !self.stalled {
            self.stalled = true;
            self.ends.as_mut().reset(Instant::now() + self.patience);
        }
        match self.ends.as_mut().poll(cx) {
            Poll::Ready(()) => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Patient<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Patient<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.judge(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.judge(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        self.judge(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_given_up_on_and_who_is_slow_is_not() {
        let (ours, mut client) = duplex(10);
        let mut ours = Patient::new(ours, Duration::from_secs(60));
        let slow = tokio::spawn(async move {
            let mut taken = [0; 10];
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_secs(50)).await;
                client.read_exact(&mut taken).await.unwrap();
            }
            client
        });
        ours.write_all(&[7; 60]).await.unwrap();
        let _client = slow.await.unwrap();
        let begun = Instant::now();
        let given_up = ours.write_all(&[7; 60]).await.unwrap_err();
        assert_eq!((given_up.kind(), begun.elapsed().as_secs()), (io::ErrorKind::TimedOut, 60));
    }
}

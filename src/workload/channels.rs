//! The streams of a command in a container, over one websocket.
//!
//! What goes there and what comes back are passed on independently of each other: a command that writes as much as it
//! reads would otherwise wait for us while we wait for it.

use anyhow::Context;
use futures::{Sink, SinkExt as _, Stream, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::watch,
};
use tokio_tungstenite::tungstenite::{Error, Message};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const RESIZE: u8 = 4;
/// Says that a channel ends; in the fifth version of the protocol.
const CLOSE: u8 = 255;

/// The first byte of a message says which channel it is of.
fn message(channel: u8, bytes: &[u8]) -> Message {
    Message::binary([&[channel], bytes].concat())
}

/// Passes standard input and sizes of the terminal on, until the other side is gone.
pub(super) async fn send(
    mut to: impl Sink<Message, Error = Error> + Unpin,
    mut input: Option<impl AsyncRead + Unpin>,
    mut sizes: watch::Receiver<Option<(u16, u16)>>,
    closes: bool,
) -> Result<(), Error> {
    let mut buffer = vec![0; 32 * 1024];
    loop {
        let read = async {
            match &mut input {
                Some(input) => input.read(&mut buffer).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            read = read => match read {
                Ok(count) if count > 0 => to.send(message(STDIN, &buffer[..count])).await?,
                // Over, or unreadable, which is the same to the command.
                _ => {
                    input = None;
                    if closes {
                        to.send(message(CLOSE, &[STDIN])).await?;
                    } else {
                        to.close().await?;
                    }
                }
            },
            changed = sizes.changed() => {
                if changed.is_err() {
                    return std::future::pending().await;
                }
                let size = *sizes.borrow_and_update();
                if let Some((width, height)) = size {
                    let size = serde_json::json!({ "Width": width, "Height": height }).to_string();
                    to.send(message(RESIZE, size.as_bytes())).await?;
                }
            }
        }
    }
}

/// Passes both outputs on until the command has ended; how it did.
pub(super) async fn receive(
    mut from: impl Stream<Item = Result<Message, Error>> + Unpin,
    mut output: impl AsyncWrite + Unpin,
    mut errors: impl AsyncWrite + Unpin,
) -> anyhow::Result<Status> {
    while let Some(message) = from.next().await {
        let message = message.context("the connection was lost")?;
        let Message::Binary(bytes) = message else { continue };
        let Some((channel, bytes)) = bytes.split_first() else { continue };
        match *channel {
            STDOUT => {
                output.write_all(bytes).await?;
                output.flush().await?;
            }
            STDERR => {
                errors.write_all(bytes).await?;
                errors.flush().await?;
            }
            STATUS if !bytes.is_empty() => return Ok(serde_json::from_slice(bytes)?),
            _ => {}
        }
    }
    anyhow::bail!("the connection ended before the command did")
}

#[cfg(test)]
mod tests {
    use futures::{channel::mpsc, stream};

    use super::*;

    #[tokio::test]
    async fn outputs_are_told_apart_and_the_end_is_heard() -> anyhow::Result<()> {
        let status = br#"{"status":"Success"}"#;
        let messages = [(STDOUT, &b"one "[..]), (STDERR, b"oh"), (STDOUT, b"two"), (STATUS, status)];
        let messages = messages.map(|(channel, bytes)| Ok(message(channel, bytes)));
        let (mut output, mut errors) = (vec![], vec![]);
        let ended = receive(stream::iter(messages), &mut output, &mut errors).await?;
        assert_eq!((&output[..], &errors[..]), (&b"one two"[..], &b"oh"[..]));
        assert_eq!(ended.status.as_deref(), Some("Success"));
        let cut = receive(stream::empty::<Result<Message, Error>>(), &mut output, &mut errors).await;
        assert!(cut.is_err());
        Ok(())
    }

    #[tokio::test]
    async fn input_goes_there_and_its_end_too() {
        let (to, mut sent) = mpsc::unbounded();
        let to = to.sink_map_err(|_| Error::ConnectionClosed);
        let (size, sizes) = watch::channel(None);
        let sending = tokio::spawn(send(to, Some(&b"hello"[..]), sizes, true));
        assert_eq!(sent.next().await, Some(message(STDIN, b"hello")));
        assert_eq!(sent.next().await, Some(message(CLOSE, &[STDIN])));
        size.send_replace(Some((80, 24)));
        assert_eq!(sent.next().await, Some(message(RESIZE, br#"{"Height":24,"Width":80}"#)));
        sending.abort();
    }
}

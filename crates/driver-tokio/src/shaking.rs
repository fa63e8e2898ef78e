//! Handshakes in a tokio runtime: waiting for the socket, up to a time limit.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tollfree_host::{
    Accepting, Attached, Config, Connecting, HandshakeError, Purpose, QuotaUsage, Step, Ticket,
};
use tollfree_os::tokio_net::UnixStream;

use crate::turn::Turn;

/// Fails once the limit is over.
pub(crate) async fn within<T>(
    limit: Duration,
    steps: impl Future<Output = Result<T, HandshakeError>>,
) -> Result<T, HandshakeError> {
    tokio::time::timeout(limit, steps).await.unwrap_or(Err(HandshakeError::Timeout(limit)))
}

/// The part of the side that connects, on a connected socket.
pub(crate) async fn connect(
    stream: &UnixStream,
    config: &Config,
    purpose: &Purpose,
    ticket: Option<&Ticket>,
) -> Result<Attached, HandshakeError> {
    within(config.handshake_timeout, async {
        let mut connecting = Connecting::new(stream, config, purpose.clone(), ticket.cloned())?;
        loop {
            let step = connecting.step(stream, config)?;
            if let Some(attached) = waited(stream, step, || connecting.step(stream, config)).await? {
                return Ok(attached);
            }
        }
    })
    .await
}

/// The part of the side that listens, on an accepted socket. The client is told of every error that it can do something about.
pub(crate) async fn accept(
    stream: &UnixStream,
    config: &Config,
    turn: &Turn,
    quota_usage: &Arc<QuotaUsage>,
) -> Result<Attached, HandshakeError> {
    let result = within(config.handshake_timeout, async {
        let mut accepting = Accepting::new(stream, config)?;
        loop {
            let step = accepting.step(stream, config, quota_usage)?;
            if accepting.has_heard() {
                turn.heard();
                if let Some(attached) =
                    waited(stream, step, || accepting.step(stream, config, quota_usage)).await?
                {
                    return Ok(attached);
                }
                continue;
            }
            let refused = tokio::select! {
                biased;
                waited = waited(stream, step, || accepting.step(stream, config, quota_usage)) => match waited? {
                    Some(attached) => return Ok(attached),
                    None => continue,
                },
                refused = turn.refused() => refused,
            };
            // What has come may lie there when the client's turn is over, and nobody has had the time to look.
            accepting.step(stream, config, quota_usage)?;
            if !accepting.has_heard() {
                return Err(refused);
            }
        }
    })
    .await;
    if let Err(error) = &result {
        Accepting::refuse(stream, config, error);
    }
    result
}

/// Waits for what a step says, and takes the next where that is due to what came. The result, where that is the last.
async fn waited<T>(
    stream: &UnixStream,
    step: Step<T>,
    next: impl FnOnce() -> Result<Step<T>, HandshakeError>,
) -> Result<Option<T>, HandshakeError> {
    let interest = match step {
        Step::Done(done) => return Ok(Some(done)),
        Step::Pause(pause) => {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            return Ok(None);
        }
        Step::Read => Interest::READABLE,
        Step::Write => Interest::WRITABLE,
    };
    stream.ready(interest).await?;
    // A step that waits for the same again clears what the runtime knows of the socket.
    let mut step = None;
    let _ = stream.try_io(interest, || {
        let taken = next();
        let waits = matches!(taken, Ok(Step::Read | Step::Write));
        step = Some(taken);
        if waits { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    match step.transpose()? {
        Some(Step::Done(done)) => Ok(Some(done)),
        _ => Ok(None),
    }
}

//! The service that backends serve here.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::sync::Notify;
use tollfree::gateway::Caller;
use tollfree_stubs::probe::{Answer, Ask, probe_server};
use tonic::metadata::KeyAndValueRef;
use tonic::{Request, Response, Status, Streaming};

/// Answers what it is asked; waits without an end where `wait_ms` isn't 0, until it is let go.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probe {
    pub(crate) begun: Arc<AtomicUsize>,
    /// Handlers that exist now.
    pub(crate) live: Arc<AtomicUsize>,
    pub(crate) gate: Arc<Notify>,
    pub(crate) sent: Arc<AtomicUsize>,
    /// So many unary calls fail that come next.
    pub(crate) failures: Arc<AtomicUsize>,
}

struct Presence(Arc<AtomicUsize>);

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Probe {
    fn enter(&self) -> Presence {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.live.fetch_add(1, Ordering::SeqCst);
        Presence(self.live.clone())
    }

    fn fail(&self) -> Result<(), Status> {
        let left = |left: usize| left.checked_sub(1);
        match self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left) {
            Ok(_) => Err(Status::unavailable("as it was told")),
            Err(_) => Ok(()),
        }
    }

    async fn wait(&self, ask: &Ask) {
        if ask.wait_ms > 0 {
            self.gate.notified().await;
        }
    }
}

fn answer<T>(request: &Request<T>) -> Answer {
    let headers = request.metadata().iter().map(|pair| match pair {
        KeyAndValueRef::Ascii(name, value) => format!("{name}: {}", value.to_str().unwrap_or_default()),
        KeyAndValueRef::Binary(name, _) => format!("{name}: binary"),
    });
    let caller = request.extensions().get::<Caller>().map(|caller| format!("caller: {caller:?}"));
    Answer { headers: headers.chain(caller).collect(), ..Answer::default() }
}

fn fault(ask: &Ask) -> Result<(), Status> {
    ask.fault.as_ref().map_or(Ok(()), |fault| {
        let mut status =
            Status::with_details(fault.code.into(), fault.message.clone(), fault.details.clone().into());
        status.metadata_mut().insert("x-trailer", "kept".parse().unwrap());
        status.metadata_mut().insert("tollfree-said", "by the callee".parse().unwrap());
        Err(status)
    })
}

#[tonic::async_trait]
impl probe_server::Probe for Probe {
    async fn unary(&self, request: Request<Ask>) -> Result<Response<Answer>, Status> {
        let _presence = self.enter();
        self.fail()?;
        let mut answer = answer(&request);
        let ask = request.into_inner();
        self.wait(&ask).await;
        fault(&ask)?;
        let len = ask.lens.first().map(|len| vec![7; *len as usize]);
        answer.body = len.unwrap_or(ask.body);
        let mut response = Response::new(answer);
        for name in ["x-said", "tollfree-said"] {
            response.metadata_mut().insert(name, "by the callee".parse().unwrap());
        }
        Ok(response)
    }

    type DownStream = BoxStream<'static, Result<Answer, Status>>;

    async fn down(&self, request: Request<Ask>) -> Result<Response<Self::DownStream>, Status> {
        let presence = self.enter();
        let ask = request.into_inner();
        self.wait(&ask).await;
        let (probe, lens) = (self.clone(), ask.lens.clone());
        let answers = futures_util::stream::iter(lens).map(move |len| {
            let _ = &presence;
            probe.sent.fetch_add(1, Ordering::SeqCst);
            Ok(Answer { body: vec![7; len as usize], ..Answer::default() })
        });
        let end = futures_util::stream::iter(fault(&ask).err()).map(Err);
        Ok(Response::new(answers.chain(end).boxed()))
    }

    async fn up(&self, request: Request<Streaming<Ask>>) -> Result<Response<Answer>, Status> {
        let _presence = self.enter();
        let mut answer = answer(&request);
        let mut asks = request.into_inner();
        while let Some(ask) = asks.message().await? {
            answer.seen_count += 1;
            answer.seen_len += ask.body.len() as u64;
        }
        Ok(Response::new(answer))
    }

    type BothStream = BoxStream<'static, Result<Answer, Status>>;

    async fn both(&self, request: Request<Streaming<Ask>>) -> Result<Response<Self::BothStream>, Status> {
        let presence = self.enter();
        let answers = request.into_inner().map(move |ask| {
            let _ = &presence;
            Ok(Answer { body: ask?.body, ..Answer::default() })
        });
        Ok(Response::new(answers.boxed()))
    }
}

//! The same with messages that are read and built in place.

use tokio_stream::Stream;
use tollfree::{Channel, Streaming};
use tollfree_processor::typed::Owned;
use tonic::{Request, Response, Status};

use super::client::Caller;
use super::service::{self, Item, Items, Service};
use crate::objects::streams_client::StreamsClient;
use crate::objects::streams_server::{Streams, StreamsServer};
use crate::objects::views::tollfree::bench::v1::{StreamAsk, StreamItem, StreamSum};
use crate::proto;

impl Item for Owned<StreamItem> {
    fn new(payload: &[u8]) -> Result<Self, Status> {
        Ok(Owned::<StreamItem>::build(|item| item.set_payload(payload))?)
    }

    fn payload(&self) -> &[u8] {
        self.view().payload()
    }
}

#[tonic::async_trait]
impl Streams for Service {
    type DownStream = Items<Owned<StreamItem>>;
    type BothStream = Items<Owned<StreamItem>>;

    async fn down(
        &self,
        request: Request<Owned<StreamAsk>>,
    ) -> Result<Response<Items<Owned<StreamItem>>>, Status> {
        service::down(request.get_ref().view().size())
    }

    async fn up(
        &self,
        request: Request<Streaming<Owned<StreamItem>>>,
    ) -> Result<Response<Owned<StreamSum>>, Status> {
        let counted = self.count(request.into_inner()).await?;
        let sum = Owned::<StreamSum>::build(|sum| {
            sum.set_messages(counted.messages)?;
            sum.set_bytes(counted.bytes)?;
            sum.set_gaps(&counted.gaps)
        });
        Ok(Response::new(sum?))
    }

    async fn both(
        &self,
        request: Request<Streaming<Owned<StreamItem>>>,
    ) -> Result<Response<Items<Owned<StreamItem>>>, Status> {
        Ok(service::both(request.into_inner()))
    }
}

pub(super) fn server(service: Service) -> StreamsServer<Service> {
    StreamsServer::new(service)
}

pub(super) fn client(channel: Channel) -> StreamsClient<Channel> {
    StreamsClient::new(channel)
}

impl Caller for StreamsClient<Channel> {
    type Item = Owned<StreamItem>;
    type Messages = Streaming<Owned<StreamItem>>;

    async fn down(&mut self, size: usize) -> Result<Streaming<Owned<StreamItem>>, Status> {
        let ask = Owned::<StreamAsk>::build(|ask| ask.set_size(size as u32))?;
        Ok(self.down(ask).await?.into_inner())
    }

    async fn up(
        &mut self,
        items: impl Stream<Item = Owned<StreamItem>> + Send + 'static,
    ) -> Result<proto::StreamSum, Status> {
        let answer = self.up(items).await?;
        let sum = answer.get_ref().view();
        Ok(proto::StreamSum { messages: sum.messages(), bytes: sum.bytes(), gaps: sum.gaps().to_string() })
    }

    async fn both(
        &mut self,
        items: impl Stream<Item = Owned<StreamItem>> + Send + 'static,
    ) -> Result<Streaming<Owned<StreamItem>>, Status> {
        Ok(self.both(items).await?.into_inner())
    }
}

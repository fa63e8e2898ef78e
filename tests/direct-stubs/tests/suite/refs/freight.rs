//! The service under test, for the stubs of both generators; and clients of all kinds of calls.

use std::pin::Pin;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio_stream::{Stream, StreamExt};
use tollfree::pool::Pool;
use tonic::{Request, Response, Status, Streaming};

macro_rules! freight {
    ($name:ident, $stubs:ident) => {
        pub(crate) mod $name {
            use super::*;
            pub(crate) use $stubs::freight::freight_client::FreightClient;
            pub(crate) use $stubs::freight::freight_server::{Freight, FreightServer};
            pub(crate) use $stubs::freight::{Act, Cargo};

            type Cargos = Pin<Box<dyn Stream<Item = Result<Cargo, Status>> + Send>>;

            /// Does what it is asked to; produces in the pool if it has one.
            #[derive(Default)]
            pub(crate) struct Carrier {
                pub(crate) pool: Option<Pool>,
                kept: Mutex<Vec<Bytes>>,
            }

            impl Carrier {
                pub(crate) fn new(pool: Option<Pool>) -> Carrier {
                    Carrier { pool, kept: Mutex::default() }
                }

                fn make(&self, len: usize) -> Bytes {
                    let Some(pool) = &self.pool else { return vec![5; len].into() };
                    let mut buffer = pool.buffer(len).unwrap();
                    buffer.resize_zeroed(len).fill(5);
                    buffer.freeze().unwrap().into()
                }
            }

            #[tonic::async_trait]
            impl Freight for Carrier {
                async fn unary(&self, request: Request<Cargo>) -> Result<Response<Cargo>, Status> {
                    let cargo = request.into_inner();
                    let body = match cargo.act() {
                        Act::Echo => return Ok(Response::new(cargo)),
                        Act::Keep => {
                            self.kept.lock().push(cargo.body);
                            Bytes::new()
                        }
                        Act::Give => self.kept.lock().pop().unwrap_or_default(),
                        Act::Hang => std::future::pending().await,
                        Act::Make => self.make(cargo.number as usize),
                        Act::Fail => return Err(Status::data_loss("as asked for")),
                    };
                    Ok(Response::new(Cargo { body, ..Cargo::default() }))
                }

                type DownStream = Cargos;

                async fn down(&self, request: Request<Cargo>) -> Result<Response<Cargos>, Status> {
                    let cargo = request.into_inner();
                    let count = cargo.number as usize;
                    let each = std::iter::repeat_n(cargo, count).map(Ok);
                    Ok(Response::new(Box::pin(tokio_stream::iter(each))))
                }

                async fn up(&self, request: Request<Streaming<Cargo>>) -> Result<Response<Cargo>, Status> {
                    let mut cargos = request.into_inner();
                    let mut all = Cargo::default();
                    while let Some(cargo) = cargos.message().await? {
                        all.number += 1;
                        all.parts.push(cargo.body);
                    }
                    Ok(Response::new(all))
                }

                type BothStream = Cargos;

                async fn both(&self, request: Request<Streaming<Cargo>>) -> Result<Response<Cargos>, Status> {
                    Ok(Response::new(Box::pin(request.into_inner().map(|cargo| cargo))))
                }
            }

            /// All kinds of calls with bodies of these lengths; everything must come back as it was sent.
            pub(crate) async fn exercise(channel: tollfree::Channel, lens: &[usize]) {
                let mut client = FreightClient::new(channel)
                    .max_decoding_message_size(usize::MAX)
                    .max_encoding_message_size(usize::MAX);
                for len in lens {
                    let cargo = Cargo {
                        body: pattern(1, *len).into(),
                        parts: vec![pattern(2, *len).into(), Bytes::new(), pattern(3, len / 2).into()],
                        raw: pattern(4, *len),
                        text: "é".repeat(len / 2),
                        numbers: (0..*len as u64 / 4).collect(),
                        inner: Some(Box::new(Cargo {
                            body: pattern(5, *len).into(),
                            number: 9,
                            ..Cargo::default()
                        })),
                        number: 3,
                        act: Act::Echo.into(),
                    };
                    let echo = client.unary(cargo.clone()).await.unwrap().into_inner();
                    assert!(echo == cargo, "unary, {len} bytes");
                    let mut down = client.down(cargo.clone()).await.unwrap().into_inner();
                    let mut count = 0;
                    while let Some(same) = down.message().await.unwrap() {
                        assert!(same == cargo, "down, {len} bytes");
                        count += 1;
                    }
                    assert_eq!(count, 3);
                }
                let cargos: Vec<_> = lens
                    .iter()
                    .map(|len| Cargo { body: pattern(*len, *len).into(), ..Cargo::default() })
                    .collect();
                let up = client.up(tokio_stream::iter(cargos.clone())).await.unwrap().into_inner();
                assert!(up.parts == cargos.iter().map(|cargo| cargo.body.clone()).collect::<Vec<_>>(), "up");
                let both = client.both(tokio_stream::iter(cargos.clone())).await.unwrap().into_inner();
                let back: Vec<_> = both.map(Result::unwrap).collect().await;
                assert!(back == cargos, "both");
            }
        }
    };
}

freight!(direct, tollfree_direct_stubs);
freight!(tonic_made, tollfree_stubs);

pub(crate) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 131 + seed * 7) >> 3) as u8).collect()
}

//! Messages whose types are written by hand, and wrong: of another length than they say, or with code that panics.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Context;

use prost::DecodeError;
use prost::bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType};
use tollfree::direct::{self, Direct, GeneratedMethod, Grpc, Prost, Run};
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;

use super::*;

static UNARY: GeneratedMethod =
    GeneratedMethod { service: "lent.Liars", name: "Unary", path: "/lent.Liars/Unary" };
static ECHO: GeneratedMethod = GeneratedMethod {
    service: "tollfree.freight.v1.Freight",
    name: "Unary",
    path: "/tollfree.freight.v1.Freight/Unary",
};

const LEN: usize = 1_000_000;

/// What a message does wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wrong {
    #[default]
    Nothing,
    Short,
    Long,
    Panics,
    /// Is short from its third encoding on, when some of it is sent.
    Changes,
}

/// Bytes in the field that is a `Cargo`'s `raw`.
#[derive(Debug, Default)]
struct Liar {
    raw: Vec<u8>,
    wrong: Wrong,
    encoded: AtomicUsize,
}

impl Liar {
    fn new(wrong: Wrong) -> Liar {
        Liar { raw: pattern(1, LEN), wrong, encoded: AtomicUsize::new(0) }
    }
}

impl prost::Message for Liar {
    fn encode_raw(&self, to: &mut impl BufMut) {
        let count = self.encoded.fetch_add(1, Ordering::Relaxed);
        let len = match self.wrong {
            Wrong::Nothing => LEN,
            Wrong::Changes if count < 2 => LEN,
            Wrong::Short | Wrong::Changes => LEN / 2,
            Wrong::Long => LEN + 1,
            Wrong::Panics => panic!("as it was made to"),
        };
        let raw: Vec<u8> = self.raw.iter().copied().cycle().take(len).collect();
        prost::encoding::bytes::encode(3, &raw, to);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        from: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            3 => prost::encoding::bytes::merge(wire_type, &mut self.raw, from, ctx),
            _ => prost::encoding::skip_field(wire_type, tag, from, ctx),
        }
    }

    fn encoded_len(&self) -> usize {
        prost::encoding::bytes::encoded_len(3, &self.raw)
    }

    fn clear(&mut self) {
        *self = Liar::default();
    }
}

/// Answers every call with a message that is wrong as the request's first byte says.
#[derive(Clone)]
struct Liars;

impl NamedService for Liars {
    const NAME: &'static str = "lent.Liars";
}

impl Service<http::Request<Body>> for Liars {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        direct::register(self);
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        panic!("calls are direct");
    }
}

impl Direct for Liars {
    fn method(&self, name: &str) -> Option<Box<dyn Run>> {
        let handler = async |request: Request<Cargo>| {
            let wrong = [Wrong::Nothing, Wrong::Short, Wrong::Long, Wrong::Panics, Wrong::Changes];
            Ok(Response::new(Liar::new(wrong[request.get_ref().number as usize])))
        };
        let handler =
            move |request| Box::pin(handler(request)) as futures_util::future::BoxFuture<'static, _>;
        (name == "Unary").then(|| direct::unary(Prost, handler, None))
    }

    fn max_decoding_message_size(&self) -> Option<usize> {
        None
    }

    fn wrapper(&self) -> Option<std::any::TypeId> {
        None
    }
}

/// What is said of each.
fn told(wrong: Wrong) -> &'static str {
    match wrong {
        Wrong::Panics => "panicked while it was encoded",
        _ => "`encoded_len` and `encode_raw` have to agree",
    }
}

#[tokio::test]
async fn a_request_that_lies_or_panics_is_an_error_of_its_call_alone() {
    in_time(async {
        let served = echo().await;
        let channel = Channel::connect(&*served.uri).await.unwrap();
        let honest = client(channel.clone());
        check(&honest, cargos(LEN).remove(0), "first").await;
        let mut grpc = Grpc::new(channel);
        for wrong in [Wrong::Short, Wrong::Long, Wrong::Panics, Wrong::Changes, Wrong::Short] {
            let reply: Result<Response<Cargo>, _> =
                grpc.unary(Request::new(Liar::new(wrong)), &ECHO, Prost).await;
            let status = reply.unwrap_err();
            assert_eq!(status.code(), Code::Internal, "{wrong:?}: {status:?}");
            assert!(status.message().contains(told(wrong)), "{wrong:?}: {status:?}");
            for cargo in cargos(LEN) {
                check(&honest, cargo, "after it").await;
            }
        }
        let reply: Response<Cargo> =
            grpc.unary(Request::new(Liar::new(Wrong::Nothing)), &ECHO, Prost).await.unwrap();
        assert!(reply.get_ref().raw == pattern(1, LEN));
    })
    .await;
}

#[tokio::test]
async fn a_response_that_lies_or_panics_is_an_error_of_its_call_alone() {
    in_time(async {
        let service = FreightServer::new(Echo);
        let served = serve(Server::builder().add_service(Liars).add_service(service)).await;
        let channel = Channel::connect(&*served.uri).await.unwrap();
        let honest = client(channel.clone());
        let mut grpc = Grpc::new(channel);
        for round in 0..2 {
            for (number, wrong) in
                [(1, Wrong::Short), (2, Wrong::Long), (3, Wrong::Panics), (4, Wrong::Changes)]
            {
                let request = Request::new(Cargo { number, ..Cargo::default() });
                let reply: Result<Response<Cargo>, _> = grpc.unary(request, &UNARY, Prost).await;
                let status = reply.unwrap_err();
                assert_eq!(status.code(), Code::Internal, "{round}, {wrong:?}: {status:?}");
                assert!(status.message().contains(told(wrong)), "{round}, {wrong:?}: {status:?}");
                check(&honest, cargos(LEN).remove(0), "after it").await;
            }
            let reply: Response<Cargo> =
                grpc.unary(Request::new(Cargo::default()), &UNARY, Prost).await.unwrap();
            assert!(reply.get_ref().raw == pattern(1, LEN));
        }
    })
    .await;
}
